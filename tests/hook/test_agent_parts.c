/* SPDX-License-Identifier: Apache-2.0 */

/* The agent told to come in with part of its memory, and with more as there is room. */

#include "lib/agent_rig.h"

#include <sys/syscall.h>

/* Told to come in with part of its memory: that part is in, and it has said so. */
static int begin_part(struct user *user, enum pager_more (*on_part)(CUdevice dev))
{
	struct nvshare_lock_released r;
	int fd = rig_begin_waiting(user);

	fake_driver.on_part = on_part;
	fake_available(fd, 80 * MIB, 7);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.grant == 0 && r.epoch == 7 && r.outcome == NVSHARE_OUTCOME_PARTIAL && r.wants);
	check(r.mem.resident == 70 * MIB && r.mem.swapped == 30 * MIB);
	check(r.moved == 0);
	return fd;
}

/* All that was out is back; the report of it. */
static struct nvshare_mem_update expect_all(int fd)
{
	struct nvshare_mem_update u;

	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update;
	while (u.mem.swapped);
	return u;
}

static void comes_back_in_parts(void)
{
	struct user user = {0};
	struct nvshare_mem_update u;
	int fd;

	fake_listen(rig_dir);
	fd = begin_part(&user, NULL);
	check(!user_is_done(&user));
	fake_available(fd, 150 * MIB, 9);
	u = expect_all(fd);
	check(u.epoch == 9);
	/* Both restores. */
	check(u.moved == 60 * MIB && u.move_ns == 1500);
	check(!user_is_done(&user));
	fake_grant(fd, 2, 150 * MIB, 10);
	(void)user_finish(&user);
}

static void comes_back_with_what_it_is_given_meanwhile(void)
{
	struct user user = {0};
	int fd;

	fake_listen(rig_dir);
	fd = begin_part(&user, agent_more_budget);
	/* What others have is told just before; it comes in all the same. */
	fake_send(fd, NVSHARE_MSG_HOST_MEMORY, &(struct nvshare_host_memory){.others = MIB});
	fake_available(fd, 150 * MIB, 9);
	check(expect_all(fd).epoch == 9 && fake_get(n_restores) == 1);
	check(!user_is_done(&user));
	fake_grant(fd, 2, 150 * MIB, 10);
	(void)user_finish(&user);
}

static void answers_what_others_wait_for_while_it_comes_back(void)
{
	struct nvshare_set_share share = {.seq = 1, .slice_us = 10000};
	struct user user = {0};
	int fd;

	fake_listen(rig_dir);
	fd = begin_part(&user, agent_more_budget);
	fake_send(fd, NVSHARE_MSG_SET_SHARE, &share);
	check(fake_expect(fd, NVSHARE_MSG_SHARE_SET).body.share_set.seq == 1);
	fake_available(fd, 150 * MIB, 9);
	check(expect_all(fd).epoch == 9 && fake_get(n_restores) == 1);
	fake_grant(fd, 2, 150 * MIB, 10);
	(void)user_finish(&user);
}

/* Those that do not end a restore. A new budget is what it waits for. */
static const uint16_t passing[] = {
	NVSHARE_MSG_HEARTBEAT,    NVSHARE_MSG_PING,          NVSHARE_MSG_TICKET_WORD,
	NVSHARE_MSG_HOST_MEMORY,  NVSHARE_MSG_HANDOVER,      NVSHARE_MSG_SLABS,
	NVSHARE_MSG_WAIT_FOR_MEM, NVSHARE_MSG_SET_SHARE,     NVSHARE_MSG_GPU_STATE,
	NVSHARE_MSG_COPY_AHEAD,   NVSHARE_MSG_MEM_AVAILABLE,
};

static uint16_t sent;    /* the message of this child */
static int first_answer; /* of agent_more_budget(), but NOT_YET; atomic */

static enum pager_more note_answer(CUdevice dev)
{
	enum pager_more more = agent_more_budget(dev);
	int none = PAGER_MORE_NOT_YET;

	(void)__atomic_compare_exchange_n(&first_answer, &none, (int)more, false, __ATOMIC_SEQ_CST,
					  __ATOMIC_SEQ_CST);
	return more;
}

/* The budget that comes next is taken at once, or only after the restore has ended. */
static void goes_on_or_ends(void)
{
	enum pager_more expected = PAGER_MORE_LATER;
	struct user user = {0};
	int fd;

	for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++) {
		if (passing[i] == sent)
			expected = PAGER_MORE_GIVEN;
	}
	first_answer = PAGER_MORE_NOT_YET;
	fake_listen(rig_dir);
	fd = begin_part(&user, note_answer);
	if (sent != NVSHARE_MSG_MEM_AVAILABLE)
		fake_send(fd, (enum nvshare_msg_type)sent, NULL);
	fake_available(fd, 150 * MIB, 9);
	wait_until(__atomic_load_n(&first_answer, __ATOMIC_SEQ_CST) != PAGER_MORE_NOT_YET);
	check(__atomic_load_n(&first_answer, __ATOMIC_SEQ_CST) == (int)expected);
	/* The user waits on, and some messages have ended the connection. The thread sanitizer's
	 * _exit() takes a thread that runs for a fault. */
	(void)syscall(SYS_exit_group, 0);
}

static void each_message_ends_a_restore_or_does_not(void **state)
{
	static const uint16_t types[] = {
#define NVSHARE_MSG(id, NAME, field, body, direction, during) id,
#include "nvshare/messages.def"
#undef NVSHARE_MSG
	};

	(void)state;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		sent = types[i];
		if (rig_run_child(goes_on_or_ends))
			fail_msg("%s", msg_name(sent));
	}
}

static void loses_the_scheduler_while_it_comes_back(void)
{
	struct user user = {0};
	struct nvshare_mem mem;
	int fd;

	check(setenv("NVSHARE_ORPHAN_TIMEOUT_SEC", "0", 1) == 0);
	fake_listen(rig_dir);
	fd = begin_part(&user, agent_more_budget);
	fake_gone(rig_dir);
	check(close(fd) == 0);
	(void)user_finish(&user); /* by itself */
	budget_read(0, &mem);
	check(mem.swapped == 0 && fake_get(n_restores) == 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		child_test(comes_back_in_parts),
		child_test(comes_back_with_what_it_is_given_meanwhile),
		child_test(answers_what_others_wait_for_while_it_comes_back),
		cmocka_unit_test(each_message_ends_a_restore_or_does_not),
		child_test(loses_the_scheduler_while_it_comes_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
