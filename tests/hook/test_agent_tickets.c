/* SPDX-License-Identifier: Apache-2.0 */

/* The agent of a process that shares memory with others: when it gives memory up, and waits for it.
 */

#include "lib/agent_rig.h"

static void say(int fd, uint32_t word)
{
	fake_send(fd, NVSHARE_MSG_TICKET_WORD,
		  &(struct nvshare_ticket_word){.ticket = {1}, .word = word});
}

/* Nothing but the answer comes, and all that was sent before has been heard. */
static void expect_heard(int fd)
{
	fake_send(fd, NVSHARE_MSG_HEARTBEAT, &(struct nvshare_heartbeat){.nonce = 1});
	while (fake_receive(fd).header.type != NVSHARE_MSG_HEARTBEAT)
		;
}

/* What it has open may be in use while it runs. */
static void a_program_gives_up_what_it_has_open_when_it_has_stopped(void)
{
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	say(fd, NVSHARE_TICKET_PARK);
	expect_heard(fd);
	check(fake_get(n_parks) == 0);
	fake_drop(fd, 1, 0, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	check(fake_get(n_parks) > 0);
	fake_set(n_parks, 0);
	say(fd, NVSHARE_TICKET_PARK);
	expect_heard(fd);
	check(fake_get(n_parks) == 1);
}

/* A grant says nothing of memory that belongs to others. */
static void the_gate_opens_when_what_is_open_is_back(void)
{
	struct user user = {.dev = 0};
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_drop(fd, 1, 0, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	fake_set(is_opened_parked, true);
	fake_set(is_opened_away, true);
	user_start(&user, rig_pass_gate);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	fake_grant(fd, 2, 200 * MIB, 6);
	clock_nap(CLOCK_NS_PER_SEC);
	expect_heard(fd);
	check(gate_get() == GATE_CLOSED);
	fake_set(is_opened_away, false);
	fake_set(is_opened_parked, false);
	(void)user_finish(&user);
	check(gate_get() == GATE_OPEN && fake_get(n_returned) > 0);
}

/* Its own threads want nothing, but an opener waits for what it has out. */
static void an_idle_owner_asks_for_the_gpu_for_its_opener(void)
{
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_drop(fd, 1, 60 * MIB, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	fake_set(is_ticket_wanted, true);
	say(fd, NVSHARE_TICKET_WANTED);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
}

static bool rests(int fd)
{
	return fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update.flags & NVSHARE_REPORT_RESTS;
}

/* Others are at work on its memory, as far as it knows. It says that it is not. */
static void an_owner_keeps_the_gpu_while_others_use_its_memory(void)
{
	int fd;

	check(setenv("NVSHARE_IDLE_MS", "1", 1) == 0);
	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_set(is_ticket_used, true);
	fake_send(fd, NVSHARE_MSG_PREPARE_SWAP_OUT,
		  &(struct nvshare_prepare_swap_out){.due_ms = 100000});
	while (!rests(fd))
		;
	clock_nap(CLOCK_NS_PER_SEC);
	check(gate_get() == GATE_OPEN);
	(void)rig_pass_gate(&(struct user){.dev = 0});
	while (rests(fd))
		;
	while (!rests(fd))
		;
	fake_set(is_ticket_used, false);
	say(fd, NVSHARE_TICKET_STAYS);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		child_test(a_program_gives_up_what_it_has_open_when_it_has_stopped),
		child_test(the_gate_opens_when_what_is_open_is_back),
		child_test(an_idle_owner_asks_for_the_gpu_for_its_opener),
		child_test(an_owner_keeps_the_gpu_while_others_use_its_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
