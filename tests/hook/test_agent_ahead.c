/* SPDX-License-Identifier: Apache-2.0 */

/* The agent copies ahead of an eviction: when, and what the scheduler hears of it. */

#include "lib/agent_rig.h"

#include "hook/base/hook_options.h"

static struct nvshare_clean expect_clean(int fd)
{
	return fake_expect(fd, NVSHARE_MSG_CLEAN).body.clean;
}

/* Idle: it has run, and what it submitted has ended. It tells that it has no copies. */
static int begin(uint32_t flags)
{
	struct user user = {.dev = 0};
	int fd;

	fake_listen(rig_dir);
	user_start(&user, rig_use_device);
	fd = fake_accept();
	(void)fake_expect(fd, NVSHARE_MSG_REGISTER);
	fake_send(fd, NVSHARE_MSG_REGISTERED,
		  &(struct nvshare_registered){.client = 7, .flags = flags});
	check(user_finish(&user) == CUDA_SUCCESS);
	if (flags & NVSHARE_REGISTERED_CLEAN) {
		struct nvshare_clean got = expect_clean(fd);

		check(!got.bytes && !got.is_done);
	}
	check(agent_add_context(CONTEXT, 0, 0));
	user_start(&user, rig_pass_gate);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	fake_grant(fd, 1, 200 * MIB, 2);
	(void)user_finish(&user);
	fake_drop(fd, 1, 0, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	return fd;
}

static void allow(int fd, uint64_t bytes)
{
	fake_send(fd, NVSHARE_MSG_COPY_AHEAD, &(struct nvshare_copy_ahead){.bytes = bytes});
}

/* Nothing but the answer comes. */
static void expect_silence(int fd)
{
	fake_send(fd, NVSHARE_MSG_HEARTBEAT, &(struct nvshare_heartbeat){.nonce = 1});
	(void)fake_expect(fd, NVSHARE_MSG_HEARTBEAT);
}

static void an_idle_program_copies_until_all_is_copied(void)
{
	int fd = begin(NVSHARE_REGISTERED_CLEAN);
	struct nvshare_clean got;

	fake_set(n_to_copy, 5);
	expect_silence(fd);
	check(fake_get(n_copied) == 0); /* nobody has allowed it */
	allow(fd, 1 << 30);
	got = expect_clean(fd);
	check(got.is_done && got.bytes > 0 && got.copied == got.bytes);
	check(fake_get(n_copied) == 5);
	/* It is done, and nothing wakes it up. */
	fake_set(n_to_copy, 9);
	clock_nap(60 * CLOCK_NS_PER_SEC);
	expect_silence(fd);
	check(fake_get(n_copied) == 5);
}

static void it_stops_and_answers_when_it_is_told_so(void)
{
	int fd = begin(NVSHARE_REGISTERED_CLEAN);

	fake_set(n_to_copy, 1 << 30);
	allow(fd, 1 << 30);
	wait_until(fake_get(n_copied) > 3);
	allow(fd, 0);
	check(!expect_clean(fd).is_done);
	check(fake_get(n_copied) > 3);
	fake_set(n_to_copy, fake_get(n_copied)); /* where it has stopped */
	clock_nap(CLOCK_NS_PER_SEC);
	expect_silence(fd); /* else it would say that it is done */
}

/* The word to copy and its request cross: it runs, and copies nothing. */
static void a_program_that_wants_to_run_copies_nothing(void)
{
	int fd = begin(NVSHARE_REGISTERED_CLEAN);
	struct user user = {.dev = 0};

	fake_set(n_to_copy, 1 << 30);
	user_start(&user, rig_pass_gate);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	allow(fd, 1 << 30);
	expect_silence(fd);
	check(fake_get(n_copied) == 0);
	fake_send(fd, NVSHARE_MSG_LOCK_OK,
		  &(struct nvshare_lock_ok){.grant = 2, .budget = 1 << 30, .epoch = 6});
	(void)user_finish(&user);
	clock_nap(CLOCK_NS_PER_SEC);
	check(fake_get(n_copied) == 0);
}

static void a_scheduler_of_before_hears_nothing(void)
{
	int fd = begin(0);

	fake_set(n_to_copy, 5);
	clock_nap(CLOCK_NS_PER_SEC);
	expect_silence(fd);
}

/* Others lack host memory: these copies would take it away from them. */
static void it_copies_nothing_while_others_lack_host_memory(void)
{
	struct nvshare_host_memory lack = {.wanted = 10 << 20}, over = {0};
	int fd = begin(NVSHARE_REGISTERED_CLEAN), n;

	fake_set(n_to_copy, 1 << 30);
	allow(fd, 1 << 30);
	wait_until(fake_get(n_copied) > 3);
	fake_send(fd, NVSHARE_MSG_HOST_MEMORY, &lack);
	fake_send(fd, NVSHARE_MSG_HEARTBEAT, &(struct nvshare_heartbeat){.nonce = 1});
	(void)fake_expect(fd, NVSHARE_MSG_HEARTBEAT);
	n = fake_get(n_copied);
	clock_nap(CLOCK_NS_PER_SEC);
	check(fake_get(n_copied) == n);
	fake_send(fd, NVSHARE_MSG_HOST_MEMORY, &over);
	wait_until(fake_get(n_copied) > n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		child_test(an_idle_program_copies_until_all_is_copied),
		child_test(it_stops_and_answers_when_it_is_told_so),
		child_test(a_program_that_wants_to_run_copies_nothing),
		child_test(a_scheduler_of_before_hears_nothing),
		child_test(it_copies_nothing_while_others_lack_host_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
