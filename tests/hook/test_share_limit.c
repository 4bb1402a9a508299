/* SPDX-License-Identifier: Apache-2.0 */

/* A program's own limit of the GPU's time. */

#include "lib/share_hook_rig.h"

#define THIRD_PPM 333333u

static const struct nvshare_claim third = {
	.priority = NVSHARE_PRIORITY_NORMAL, .weight = 100, .compute_limit = 30};

/* Of the time of the next few holds and of what lies between them. */
static double share_of_time(void)
{
	struct nvshare_status from = rig_own_status(), to;

	wait_until(rig_own_status().n_holds >= from.n_holds + 8);
	to = rig_own_status();
	return (double)(to.busy_ns - from.busy_ns) /
	       (double)(to.busy_ns - from.busy_ns + to.held_ns - from.held_ns);
}

/* Of the time of the next few holds: what is accounted, and the time off. */
static double share_accounted(void)
{
	struct nvshare_status from = rig_own_status(), to;
	uint64_t passed_ns = clock_now_ns();

	wait_until(rig_own_status().n_holds >= from.n_holds + 5);
	passed_ns = clock_now_ns() - passed_ns;
	to = rig_own_status();
	return (double)(to.gpu_ns - from.gpu_ns + to.held_ns - from.held_ns) / (double)passed_ns;
}

/* All of it, and no more than there was; what is told may be older than the time. */
static void check_truth(void)
{
	double share = share_accounted();

	check(share > 0.93 && share < 1.07);
}

static void check_share(double min, double max)
{
	double share = share_of_time();

	check(share > min && share < max);
}

static void keeps_to_its_limit(void)
{
	struct nvshare_status status;

	check(setenv("NVSHARE_COMPUTE_LIMIT", "30", 1) == 0);
	fake_set(can_freeze, 1);
	fake_set(is_proven, 1);
	fake_set(is_working, 1);
	{
		struct user user = {.dev = 0}; /* there is no scheduler */

		user_start(&user, rig_use_device);
		check(user_finish(&user) == CUDA_SUCCESS);
	}
	check(agent_add_context(CONTEXT, 0, 0));
	rig_submit();
	wait_until(nvshare_status(0, &status, sizeof(status)) == 0);
	check_share(0.2, 0.4);
	check_truth();
	status = rig_own_status();
	check(status.claim.compute_limit == 30);
	check(nvshare_set_compute_limit(0) == -ENOTCONN);
	wait_until(!fake_get(is_frozen) && !(rig_own_status().flags & NVSHARE_STATUS_LIMITED));
}

static struct nvshare_status status_on(int device)
{
	struct nvshare_status status;

	wait_until(nvshare_status(device, &status, sizeof(status)) == 0);
	return status;
}

/* The first GPU is idle, and the second at work; or both are. They are off together. */
static void keep_to_the_limit_on_the_second(bool is_on_both)
{
	struct nvshare_status from, to;
	double share;

	check(setenv("NVSHARE_COMPUTE_LIMIT", "30", 1) == 0);
	fake_set(can_freeze, 1);
	fake_set(is_proven, 3);
	fake_set(is_working, 1);
	for (CUdevice dev = 0; dev < 2; dev++) {
		struct user user = {.dev = dev};

		user_start(&user, rig_use_device);
		check(user_finish(&user) == CUDA_SUCCESS);
	}
	check(agent_add_context(OTHER, 1, 0));
	check(!is_on_both || agent_add_context(CONTEXT, 0, 0));
	rig_submit();
	wait_until(status_on(1).flags & NVSHARE_STATUS_LIMITED);
	from = status_on(1);
	wait_until(status_on(1).n_holds >= from.n_holds + 8);
	to = status_on(1);
	share = (double)(to.busy_ns - from.busy_ns) /
		(double)(to.busy_ns - from.busy_ns + to.held_ns - from.held_ns);
	check(share > 0.2 && share < 0.4);
	check(to.n_hold_failures == 0);
	check(is_on_both == (status_on(0).busy_ns > 0));
}

static void a_limit_is_kept_on_each_gpu(void)
{
	keep_to_the_limit_on_the_second(false);
}

static void a_limit_is_kept_where_both_work(void)
{
	keep_to_the_limit_on_the_second(true);
}

static void a_limit_and_a_hold_each_keep_it_off(void)
{
	struct nvshare_claim limited = {
		.priority = NVSHARE_PRIORITY_NORMAL, .weight = 100, .compute_limit = 1};
	int fd = rig_begin_holdable();

	fake_set(is_working, 1);
	(void)share_out(fd, 500, 0, &limited);
	rig_submit();
	wait_until(rig_own_status().flags & NVSHARE_STATUS_LIMITED);
	check(share_out(fd, 500, HOUR_US, &limited).is_held);
	check(fake_get(is_frozen));
	check(!share_out(fd, 500, 0, &limited).is_held);
	limited.compute_limit = 0;
	(void)share_out(fd, 500, 0, &limited);
	wait_until(!fake_get(is_frozen));
}

/* What others have of the time in which it has work is not its own. */
/* As what it waits for their slices. */
static void the_time_of_others_is_not_found(void)
{
	int fd = rig_begin_holdable();

	fake_set(is_working, 1);
	fake_set(is_away, 1);
	(void)share_out_use(fd, 10000, 0, &third, THIRD_PPM * 2);
	rig_submit();
	wait_until(rig_own_status().busy_ns > CLOCK_NS_PER_SEC / 2);
	check(rig_own_status().n_holds == 0);
	fake_set(is_away, 0);
	wait_until(rig_own_status().flags & NVSHARE_STATUS_LIMITED);
}

/* Where that can not be told its slices say how much was its own. */
static void the_time_of_others_does_not_count(void)
{
	int fd;

	cuda_real.cuEventRecord = NULL;
	fd = rig_begin_holdable();
	fake_set(is_working, 1);
	(void)share_out_use(fd, 10000, 0, &third, THIRD_PPM * 2);
	rig_submit();
	check_share(0.36, 0.6);
	(void)share_out_use(fd, 10000, 0, &third, THIRD_PPM / 2);
	wait_until(!(rig_own_status().flags & NVSHARE_STATUS_LIMITED));
}

/* And there are none any more when it is alone, whatever was said last. */
static void who_is_alone_has_all_the_time_that_it_computes(void)
{
	int fd = rig_begin_holdable();

	fake_set(is_working, 1);
	(void)share_out_use(fd, 10000, 0, &third, THIRD_PPM);
	rig_submit();
	(void)rig_expect_activity(fd, NVSHARE_ACTIVITY_USE);
	(void)share_out_use(fd, 0, 0, &third, THIRD_PPM);
	wait_until(rig_own_status().flags & NVSHARE_STATUS_LIMITED);
	check_share(0.2, 0.4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		child_test(keeps_to_its_limit),
		child_test(a_limit_is_kept_on_each_gpu),
		child_test(a_limit_is_kept_where_both_work),
		child_test(a_limit_and_a_hold_each_keep_it_off),
		child_test(the_time_of_others_is_not_found),
		child_test(the_time_of_others_does_not_count),
		child_test(who_is_alone_has_all_the_time_that_it_computes),
	};

	return cmocka_run_group_tests_name("hook/share_limit", tests, NULL, NULL);
}
