/* SPDX-License-Identifier: Apache-2.0 */

/* The agent's reports of the scheduler inside the process: when they go, and to whom. */

#include "lib/agent_rig.h"

#include "hook/orion/orion_status.h"

static struct {
	pthread_mutex_t lock;
	bool is_started;
	unsigned int n_reads;
	struct orion_status status;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* In place of the library's. */
bool orion_status_read(struct orion_status *ret)
{
	bool is_started;

	check(pthread_mutex_lock(&fake.lock) == 0);
	fake.n_reads++;
	is_started = fake.is_started;
	*ret = fake.status;
	check(pthread_mutex_unlock(&fake.lock) == 0);
	return is_started;
}

static unsigned int n_reads(void)
{
	unsigned int n;

	check(pthread_mutex_lock(&fake.lock) == 0);
	n = fake.n_reads;
	check(pthread_mutex_unlock(&fake.lock) == 0);
	return n;
}

/* Threads of the program submit, and that wakes the agent. status: NULL: the scheduler ends. */
static void program_does(const struct orion_status *status)
{
	check(pthread_mutex_lock(&fake.lock) == 0);
	fake.is_started = status != NULL;
	if (status)
		fake.status = *status;
	check(pthread_mutex_unlock(&fake.lock) == 0);
	bell_ring();
}

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
	check(agent_add_context(CONTEXT, 0, 0));
	return fd;
}

static struct nvshare_orion expect_report(int fd)
{
	return fake_expect(fd, NVSHARE_MSG_ORION).body.orion;
}

/* Nothing but the answer comes. */
static void expect_silence(int fd)
{
	fake_send(fd, NVSHARE_MSG_HEARTBEAT, &(struct nvshare_heartbeat){.nonce = 1});
	(void)fake_expect(fd, NVSHARE_MSG_HEARTBEAT);
}

/* The agent sleeps. */
static void expect_sleep(void)
{
	unsigned int before;

	virtual_clock_settle();
	before = n_reads();
	clock_nap(60 * CLOCK_NS_PER_SEC);
	check(n_reads() == before);
}

static const struct orion_status first = {3, 1, 12034, 5000, 230, 1200000};
static const struct orion_status second = {3, 0, 12035, 5001, 231, 1300000};

static void numbers_are_told_once_a_second_and_when_they_change(void)
{
	int fd = begin(NVSHARE_REGISTERED_ORION);
	struct nvshare_orion got;
	uint64_t begin_ns;

	expect_silence(fd);
	begin_ns = clock_now_ns(); /* it is told later than that; how much, only the agent knows */
	program_does(&first);
	got = expect_report(fd);
	check(got.n_clients == 3 && got.n_waiting == 1 && got.hp_ops == 12034);
	check(got.be_ops == 5000 && got.be_waits == 230 && got.wait_us == 1200000);
	program_does(&first);
	program_does(&second);
	expect_silence(fd);
	/* The program pauses now, and no bell rings again. */
	got = expect_report(fd);
	check(got.n_waiting == 0 && got.hp_ops == 12035 && got.wait_us == 1300000);
	check(clock_now_ns() - begin_ns >= CLOCK_NS_PER_SEC);
	clock_nap(2 * CLOCK_NS_PER_SEC);
	expect_sleep();
	bell_ring();
	expect_silence(fd);
}

static void its_end_is_told_once(void)
{
	int fd = begin(NVSHARE_REGISTERED_ORION);
	struct nvshare_orion got;

	program_does(&first);
	(void)expect_report(fd);
	program_does(NULL);
	got = expect_report(fd);
	check(got.n_clients == 0 && got.n_waiting == 0 && got.hp_ops == 0 && got.wait_us == 0);
	clock_nap(2 * CLOCK_NS_PER_SEC);
	expect_sleep();
	bell_ring();
	expect_silence(fd);
}

static void a_process_without_one_is_left_alone(void)
{
	int fd = begin(NVSHARE_REGISTERED_ORION);

	expect_silence(fd);
	expect_sleep();
	expect_silence(fd);
}

static void a_scheduler_of_before_hears_nothing(void)
{
	int fd = begin(NVSHARE_REGISTERED_WATCH);

	(void)fake_expect(fd, NVSHARE_MSG_WATCH);
	program_does(&first);
	expect_silence(fd);
	program_does(&second);
	clock_nap(2 * CLOCK_NS_PER_SEC);
	expect_silence(fd);
	check(n_reads() == 0);
}

static void the_next_scheduler_hears_all_of_it(void)
{
	int fd = begin(NVSHARE_REGISTERED_ORION);

	program_does(&first);
	(void)expect_report(fd);
	check(close(fd) == 0);
	fd = fake_accept();
	(void)fake_expect(fd, NVSHARE_MSG_REGISTER);
	fake_send(fd, NVSHARE_MSG_REGISTERED,
		  &(struct nvshare_registered){.client = 8, .flags = NVSHARE_REGISTERED_ORION});
	check(expect_report(fd).hp_ops == 12034);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		child_test(numbers_are_told_once_a_second_and_when_they_change),
		child_test(its_end_is_told_once),
		child_test(a_process_without_one_is_left_alone),
		child_test(a_scheduler_of_before_hears_nothing),
		child_test(the_next_scheduler_hears_all_of_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
