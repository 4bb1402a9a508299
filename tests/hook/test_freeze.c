/* SPDX-License-Identifier: Apache-2.0 */

/* Freezing: all is off or nothing is, and what happens in the worst moment. */

#include "hook/gate/gate.h"
#include "hook/table/cuda_real.h"
#include "hook/table/hooks.h"
#include "lib/fake_rm.h"

#include <sched.h>

/* ---- freezing --------------------------------------------------------------------- */

static void long_lists_are_split(void **unused)
{
	(void)unused;
	fake_rm_make_channels(GROUP, 150);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	assert_true(freeze_is_on());
	assert_int_equal(fake_rm_n_off(), 150);
	assert_int_equal(fake_rm.n_max, RM_ABI_DISABLE_MAX);
	assert_int_equal(freeze_end(), 0);
	assert_false(freeze_is_on());
	assert_int_equal(fake_rm_n_off(), 0);
}

/* Also behind a closed gate: copies of memory from before are old then. */
static void a_thaw_counts_as_work_that_may_have_run(void **unused)
{
	uint64_t before = gate_openings();

	(void)unused;
	fake_rm_make_channels(GROUP, 4);
	gate_set(GATE_CLOSED);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	assert_true(freeze_commit());
	assert_int_equal(gate_openings(), before);
	assert_int_equal(freeze_end(), 0);
	assert_int_not_equal(gate_openings(), before);
	before = gate_openings();
	clock_nap(10 * CLOCK_NS_PER_MS);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	assert_int_equal(gate_openings(), before);
	freeze_expire(freeze_epoch());
	assert_false(freeze_is_on());
	assert_int_not_equal(gate_openings(), before);
	gate_set(GATE_OPEN);
}

static void a_refusal_undoes_all(void **unused)
{
	struct freeze_stats stats;

	(void)unused;
	fake_rm_make_channels(GROUP, 150);
	assert_null(freeze_why_not());
	fake_rm.refuse_from = fake_rm.n_controls + 2;
	assert_int_equal(freeze_begin(UINT64_MAX), FREEZE_E_REFUSED);
	assert_int_equal(fake_rm_n_off(), 0);
	assert_false(freeze_is_on());
	freeze_stats(&stats);
	assert_int_equal(stats.n_failures, 1);
	assert_int_equal(stats.n_freezes, 0);
}

static void pictures_are_off_too_and_come_back(void **unused)
{
	(void)unused;
	fake_rm_make_channels(GROUP, 4);
	fake_rm_make_picture_groups(0x400);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	assert_int_equal(fake_rm_n_off(), 4 + PICTURE_GROUPS);
	fake_rm_make_picture_groups(
		0x500); /* the program's first picture comes while it is frozen */
	assert_int_equal(fake_rm_n_off(), 4 + 2 * PICTURE_GROUPS);
	assert_int_equal(freeze_end(), 0);
	assert_int_equal(fake_rm_n_off(), 0);
}

static void our_own_channels_go_on(void **unused)
{
	(void)unused;
	fake_rm_make_channels(GROUP, 4);
	channels_own_begin();
	channels_own_begin();
	channels_own_end();
	fake_rm_make_group(0x300);
	fake_rm_make_channels(0x300, 4);
	channels_own_end();
	/* One more in a group of ours, made later. */
	assert_int_equal(fake_rm_make(0x300, 0x310, 0xc86f, NULL), RM_ABI_OK);
	assert_int_equal(fake_rm_counts().n_own, 5);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	assert_int_equal(fake_rm_n_off(), 4);
}

static void nothing_to_freeze_is_said(void **unused)
{
	(void)unused;
	assert_int_equal(freeze_begin(UINT64_MAX), FREEZE_E_NO_CHANNELS);
	assert_false(freeze_is_on());
}

static void a_channel_born_while_frozen_is_off_and_thaws(void **unused)
{
	(void)unused;
	fake_rm_make_channels(GROUP, 4);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	fake_rm_make_group(0x300);
	fake_rm_make_channels(0x300, 2);
	assert_int_equal(fake_rm_n_off(), 6);
	assert_true(freeze_commit());
	assert_int_equal(fake_rm_make(0x300, 0x310, 0xc86f, NULL), RM_ABI_OK);
	assert_int_equal(fake_rm_n_off(), 7);
	assert_int_equal(freeze_end(), 0);
	assert_int_equal(fake_rm_n_off(), 0);
}

static void a_channel_that_can_not_be_stopped_is_not_born(void **unused)
{
	struct rm_abi_alloc64 a = {CLIENT, GROUP, 0x901, 0xc86f, 0, 0, 0, 0, 1};

	(void)unused;
	fake_rm_make_channels(GROUP, 4);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	assert_true(freeze_commit());
	fake_rm.refuse_from = 1;
	assert_int_equal(rm_watch_ioctl(FD, RM_ABI_REQUEST_ALLOC64, &a), 0);
	assert_int_equal(a.status, RM_ABI_INSUFFICIENT_RESOURCES);
	assert_int_equal(fake_rm.n_freed, 1);
	assert_int_equal(fake_rm.n, 4);
	assert_int_equal(fake_rm_counts().n_channels, 4);
}

static void go_meanwhile(void)
{
	fake_rm_destroy(GROUP + 2);
}

static void a_channel_that_goes_meanwhile_does_no_harm(void **unused)
{
	(void)unused;
	fake_rm_make_channels(GROUP, 100);
	assert_null(freeze_why_not());
	fake_rm.meanwhile = go_meanwhile;
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	assert_int_equal(fake_rm_n_off(), 99);
	assert_int_equal(freeze_end(), 0);
	assert_int_equal(fake_rm_n_off(), 0);
}

static pthread_t freer;

static void *free_one(void *handle)
{
	fake_rm_destroy((uint32_t)(uintptr_t)handle);
	return NULL;
}

/* The driver has freed it, and who freed it does not come to say so. */
static void free_slowly(uint32_t handle)
{
	uint32_t n = fake_rm_n_left();

	fake_rm.free_ns = 900 * CLOCK_NS_PER_MS;
	assert_int_equal(pthread_create(&freer, NULL, free_one, (void *)(uintptr_t)handle), 0);
	while (fake_rm_n_left() == n)
		virtual_clock_settle();
}

static void go_slowly_meanwhile(void)
{
	free_slowly(GROUP + 80);
}

/* Else it could not be frozen any more: what a driver refuses once is not proven again. */
static void a_channel_whose_free_takes_long_is_no_refusal(void **unused)
{
	int r;

	(void)unused;
	fake_rm_make_channels(GROUP, 100);
	assert_null(freeze_why_not());
	fake_rm.meanwhile = go_slowly_meanwhile;
	assert_int_equal(freeze_begin(UINT64_MAX), FREEZE_E_BUSY);
	assert_int_equal(fake_rm_n_off(), 0);
	assert_int_equal(pthread_join(freer, NULL), 0);
	while ((r = freeze_begin(UINT64_MAX)) == FREEZE_E_BUSY)
		clock_nap(CLOCK_NS_PER_MS);
	assert_int_equal(r, 0);
	assert_int_equal(fake_rm_n_off(), 99);
}

static void putting_back_is_tried_again(void **unused)
{
	(void)unused;
	fake_rm_make_channels(GROUP, 4);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	fake_rm.refuse_on = 3;
	assert_int_equal(freeze_end(), 0);
	assert_int_equal(fake_rm_n_off(), 0);
	assert_null(freeze_why_not());
}

static void a_channel_whose_free_takes_long_is_not_one_that_stays_off(void **unused)
{
	(void)unused;
	fake_rm_make_channels(GROUP, 4);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	free_slowly(GROUP + 1);
	assert_int_equal(freeze_end(), 0);
	assert_int_equal(pthread_join(freer, NULL), 0);
	assert_int_equal(fake_rm_n_off(), 0);
	assert_null(freeze_why_not());
}

static void a_channel_that_stays_off_is_the_last_freeze(void **unused)
{
	(void)unused;
	fake_rm_make_channels(GROUP, 1);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	fake_rm.refuse_on = 1000;
	assert_int_equal(freeze_end(), FREEZE_E_REFUSED);
	assert_false(freeze_is_on());
	assert_non_null(freeze_why_not());
	assert_int_equal(freeze_begin(UINT64_MAX), FREEZE_E_OFF);
}

static void the_watchdog_thaws_what_is_not_committed(void **unused)
{
	struct freeze_stats stats;
	uint64_t epoch = freeze_epoch();

	(void)unused;
	fake_rm_make_channels(GROUP, 4);
	assert_int_equal(freeze_begin(3 * CLOCK_NS_PER_MS), 0);
	clock_nap(2 * CLOCK_NS_PER_MS);
	assert_int_equal(fake_rm_n_off(), 4);
	clock_nap(CLOCK_NS_PER_MS);
	fake_rm_await_thaw();
	assert_int_equal(fake_rm_n_off(), 0);
	assert_false(freeze_commit());
	assert_int_equal(freeze_epoch(), epoch + 1);
	assert_int_equal(freeze_end(), 0);
	freeze_stats(&stats);
	assert_int_equal(stats.n_expired, 1);
}

static void an_extension_puts_the_watchdog_off(void **unused)
{
	(void)unused;
	fake_rm_make_channels(GROUP, 4);
	assert_false(freeze_extend(CLOCK_NS_PER_SEC));
	assert_int_equal(freeze_begin_compute(600 * CLOCK_NS_PER_SEC), 0);
	assert_true(freeze_extend(700 * CLOCK_NS_PER_SEC));
	clock_nap(699 * CLOCK_NS_PER_SEC);
	assert_true(freeze_is_on());
	clock_nap(2 * CLOCK_NS_PER_SEC);
	assert_false(freeze_is_on());
	assert_int_equal(fake_rm_n_off(), 0);
}

static void the_watchdog_leaves_what_is_committed(void **unused)
{
	(void)unused;
	fake_rm_make_channels(GROUP, 4);
	assert_int_equal(freeze_begin(10 * CLOCK_NS_PER_MS), 0);
	assert_true(freeze_commit());
	clock_nap(CLOCK_NS_PER_SEC);
	assert_true(freeze_is_on());
	assert_int_equal(fake_rm_n_off(), 4);
}

static void freezes_have_a_pause_between_them(void **unused)
{
	(void)unused;
	fake_rm_make_channels(GROUP, 4);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	assert_int_equal(freeze_begin(UINT64_MAX), FREEZE_E_BUSY);
	assert_int_equal(freeze_end(), 0);
	assert_int_equal(freeze_begin(UINT64_MAX), FREEZE_E_BUSY);
	clock_nap(6 * CLOCK_NS_PER_MS);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
}

static void who_stops_channels_itself_is_left_alone(void **unused)
{
	struct rm_abi_disable_channels p = {.bDisable = 1, .numChannels = 1};
	struct rm_abi_control c = {
		CLIENT, SUBDEVICE, RM_ABI_CMD_DISABLE_CHANNELS, 0, (uintptr_t)&p, sizeof(p), 0};

	(void)unused;
	fake_rm_make_channels(GROUP, 1);
	p.hClientList[0] = CLIENT;
	p.hChannelList[0] = GROUP + 1;
	assert_int_equal(rm_watch_ioctl(FD, RM_ABI_REQUEST_CONTROL, &c), 0);
	assert_string_equal(freeze_why_not(), "the program stops channels itself");
}

static void a_timeslice_outlasts_the_drivers_own(void **unused)
{
	uint64_t us = 2048;
	struct rm_abi_control c = {CLIENT,     0x300, RM_ABI_CMD_SET_TIMESLICE, 0, (uintptr_t)&us,
				   sizeof(us), 0};

	(void)unused;
	assert_int_equal(freeze_set_timeslice(1, 500), -ENODEV);
	assert_int_equal(freeze_set_timeslice(0, 500), 0);
	assert_int_equal(fake_rm.timeslice_us, 500);
	fake_rm.timeslice_us = 0;
	fake_rm_make_group(0x300);
	assert_int_equal(fake_rm.timeslice_us, 500);
	assert_int_equal(rm_watch_ioctl(FD, RM_ABI_REQUEST_CONTROL, &c), 0);
	assert_int_equal(fake_rm.timeslice_us, 500);
	assert_int_equal(freeze_set_timeslice(0, 0), 0);
	assert_int_equal(rm_watch_ioctl(FD, RM_ABI_REQUEST_CONTROL, &c), 0);
	assert_int_equal(fake_rm.timeslice_us, 2048);
}

static void a_timeslice_is_undone_to_the_drivers(void **unused)
{
	uint64_t us = 3000;
	struct rm_abi_control c = {CLIENT,     GROUP, RM_ABI_CMD_SET_TIMESLICE, 0, (uintptr_t)&us,
				   sizeof(us), 0};

	(void)unused;
	fake_rm.timeslice_us = 2048;
	assert_int_equal(freeze_set_timeslice(0, 500), 0);
	assert_int_equal(freeze_set_timeslice(0, 700), 0);
	assert_int_equal(fake_rm.timeslice_us, 700);
	assert_int_equal(freeze_set_timeslice(0, 0), 0);
	assert_int_equal(fake_rm.timeslice_us, 2048);
	assert_int_equal(freeze_set_timeslice(0, 500), 0);
	assert_int_equal(rm_watch_ioctl(FD, RM_ABI_REQUEST_CONTROL, &c), 0);
	assert_int_equal(fake_rm.timeslice_us, 500);
	assert_int_equal(freeze_set_timeslice(0, 0), 0);
	assert_int_equal(fake_rm.timeslice_us, 3000);
}

static void a_stop_thaws_what_is_not_committed(void **unused)
{
	(void)unused;
	fake_rm_make_channels(GROUP, 2);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	freeze_stop();
	assert_int_equal(fake_rm_n_off(), 0);
	assert_int_equal(freeze_begin(UINT64_MAX), FREEZE_E_OFF);
}

/* What they would ask of the driver would wait for ever. */
static void after_a_stop_nobody_waits_for_what_stays_frozen(void **unused)
{
	(void)unused;
	fake_rm_make_channels(GROUP, 2);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	assert_true(freeze_commit());
	freeze_stop();
	assert_int_equal(fake_rm_n_off(), 2);
	assert_false(freeze_hold());
	assert_false(freeze_enter());
	assert_int_equal(FREEZE_AROUND(CUDA_SUCCESS), CUDA_ERROR_DEINITIALIZED);
	assert_int_equal(fake_rm_n_off(), 2);
}

/* ---- threads ------------------------------------------------------------------------ */

static uint32_t n_in_driver;

static void *call_the_driver(void *arg)
{
	CUresult res = FREEZE_AROUND(
		(CUresult)(__atomic_add_fetch(&n_in_driver, 1, __ATOMIC_SEQ_CST) - 1));

	return res == CUDA_SUCCESS ? arg : NULL;
}

static void calls_wait_for_the_thaw(void **unused)
{
	pthread_t thread;
	void *ret;

	(void)unused;
	fake_rm_make_channels(GROUP, 2);
	n_in_driver = 0;
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	assert_true(freeze_commit());
	assert_int_equal(pthread_create(&thread, NULL, call_the_driver, &n_in_driver), 0);
	virtual_clock_settle();
	assert_int_equal(__atomic_load_n(&n_in_driver, __ATOMIC_SEQ_CST), 0);
	assert_int_equal(freeze_end(), 0);
	assert_int_equal(pthread_join(thread, &ret), 0);
	assert_ptr_equal(ret, &n_in_driver);
	assert_int_equal(n_in_driver, 1);
}

static CUresult close_opened(CUdeviceptr ptr)
{
	(void)ptr;
	__atomic_add_fetch(&n_in_driver, 1, __ATOMIC_SEQ_CST);
	return CUDA_SUCCESS;
}

static void *close_handle(void *arg)
{
	return cuIpcCloseMemHandle(4096) == CUDA_SUCCESS ? arg : NULL;
}

/* It unmaps, as cuMemFree does. */
static void closing_what_another_process_shares_waits_for_the_thaw(void **unused)
{
	pthread_t thread;
	void *ret;

	(void)unused;
	cuda_real.cuIpcCloseMemHandle = close_opened;
	fake_rm_make_channels(GROUP, 2);
	n_in_driver = 0;
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	assert_true(freeze_commit());
	assert_int_equal(pthread_create(&thread, NULL, close_handle, &n_in_driver), 0);
	virtual_clock_settle();
	assert_int_equal(__atomic_load_n(&n_in_driver, __ATOMIC_SEQ_CST), 0);
	assert_int_equal(freeze_end(), 0);
	assert_int_equal(pthread_join(thread, &ret), 0);
	assert_ptr_equal(ret, &n_in_driver);
	assert_int_equal(n_in_driver, 1);
}

static CUresult destroy_unknown(CUcontext ctx)
{
	(void)ctx;
	n_in_driver++;
	assert_int_equal(freeze_begin(UINT64_MAX), FREEZE_E_BUSY);
	return CUDA_SUCCESS;
}

/* A driver's own library makes contexts past us. Frozen there, they would hang for good. */
static void a_context_that_nobody_knows_is_not_frozen_as_it_goes(void **unused)
{
	CUcontext ctx = (CUcontext)0x4711;

	(void)unused;
	cuda_real.cuCtxDestroy_v2 = destroy_unknown;
	cuda_real.cuCtxDetach = destroy_unknown;
	fake_rm_make_channels(GROUP, 2);
	n_in_driver = 0;
	assert_int_equal(cuCtxDestroy_v2(ctx), CUDA_SUCCESS);
	assert_int_equal(cuCtxDetach(ctx), CUDA_SUCCESS);
	assert_int_equal(n_in_driver, 2);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
}

/* It may be there for long, and it is frozen there. */
static void who_is_in_the_driver_is_no_reason_not_to_freeze(void **unused)
{
	(void)unused;
	fake_rm_make_channels(GROUP, 2);
	assert_true(freeze_enter());
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	assert_int_equal(fake_rm_n_off(), 2);
	freeze_leave();
	assert_int_equal(freeze_end(), 0);
}

static uint32_t n_there, n_back;
static bool is_cancelled;

/* The driver waits by poll() and the like, where a thread can be cancelled. */
static CUresult wait_in_driver(void)
{
	__atomic_store_n(&n_there, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&is_cancelled, __ATOMIC_SEQ_CST))
		(void)sched_yield();
	pthread_testcancel();
	return CUDA_SUCCESS;
}

static void *end_in_driver(void *is_held)
{
	if (is_held) {
		assert_true(freeze_hold());
		(void)FREEZE_AROUND(wait_in_driver());
		pthread_testcancel();
		freeze_drop();
	} else {
		(void)FREEZE_AROUND(FREEZE_AROUND(wait_in_driver()));
	}
	__atomic_add_fetch(&n_back, 1, __ATOMIC_SEQ_CST);
	pthread_testcancel();
	return NULL;
}

/* Else its count would stay, and nothing could be frozen any more. */
static void who_is_cancelled_in_the_driver_ends_when_it_is_through(void **unused)
{
	pthread_t thread;
	void *ret;

	(void)unused;
	fake_rm_make_channels(GROUP, 2);
	for (int i = 0; i < 2; i++) {
		n_there = n_back = 0;
		is_cancelled = false;
		assert_int_equal(pthread_create(&thread, NULL, end_in_driver, i ? &n_there : NULL),
				 0);
		while (!__atomic_load_n(&n_there, __ATOMIC_SEQ_CST))
			(void)sched_yield();
		assert_int_equal(pthread_cancel(thread), 0);
		__atomic_store_n(&is_cancelled, true, __ATOMIC_SEQ_CST);
		assert_int_equal(pthread_join(thread, &ret), 0);
		assert_ptr_equal(ret, PTHREAD_CANCELED);
		assert_int_equal(n_back, 1);
	}
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
}

static bool is_over;

static void *come_and_go(void *arg)
{
	uint32_t group = (uint32_t)(uintptr_t)arg;

	while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
		fake_rm_make_group(group);
		fake_rm_make_channels(group, 10);
		clock_nap(2 * CLOCK_NS_PER_MS);
		for (uint32_t i = 0; i < 10; i++)
			fake_rm_destroy(group + 1 + i);
		fake_rm_destroy(group);
	}
	return NULL;
}

static void channels_come_and_go_in_many_freezes(void **unused)
{
	pthread_t threads[2];
	struct freeze_stats stats;
	uint32_t n_done = 0, n_on;
	int r;

	(void)unused;
	fake_rm_make_channels(GROUP, 20);
	is_over = false;
	for (uintptr_t i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, come_and_go,
						(void *)(0x1000 + 0x100 * i)),
				 0);
	while (n_done < 200) {
		r = freeze_begin(n_done % 3 ? UINT64_MAX : CLOCK_NS_PER_MS / 10);
		if (r == FREEZE_E_BUSY || r == FREEZE_E_REFUSED) {
			clock_nap(CLOCK_NS_PER_MS / 10);
			continue;
		}
		assert_int_equal(r, 0);
		n_done++;
		if (freeze_commit()) {
			n_on = 0;
			pthread_mutex_lock(&fake_rm.lock);
			for (uint32_t i = 0; i < fake_rm.n; i++)
				n_on += fake_rm.handles[i] < 0x1000 && !fake_rm.is_off[i];
			pthread_mutex_unlock(&fake_rm.lock);
			assert_int_equal(n_on, 0);
		}
		assert_int_equal(freeze_end(), 0);
	}
	__atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	assert_int_equal(fake_rm_n_off(), 0);
	assert_int_equal(fake_rm.n, 20);
	assert_int_equal(fake_rm_counts().n_channels, 20);
	freeze_stats(&stats);
	assert_int_equal(stats.n_freezes, 200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(long_lists_are_split),
		TEST(a_thaw_counts_as_work_that_may_have_run),
		TEST(a_refusal_undoes_all),
		TEST(pictures_are_off_too_and_come_back),
		TEST(our_own_channels_go_on),
		TEST(nothing_to_freeze_is_said),
		TEST(a_channel_born_while_frozen_is_off_and_thaws),
		TEST(a_channel_that_can_not_be_stopped_is_not_born),
		TEST(a_channel_that_goes_meanwhile_does_no_harm),
		TEST(a_channel_whose_free_takes_long_is_no_refusal),
		TEST(putting_back_is_tried_again),
		TEST(a_channel_whose_free_takes_long_is_not_one_that_stays_off),
		TEST(a_channel_that_stays_off_is_the_last_freeze),
		TEST(freezes_have_a_pause_between_them),
		TEST(who_stops_channels_itself_is_left_alone),
		TEST(a_timeslice_outlasts_the_drivers_own),
		TEST(a_timeslice_is_undone_to_the_drivers),
		TEST(a_stop_thaws_what_is_not_committed),
		TEST(after_a_stop_nobody_waits_for_what_stays_frozen),
		TEST(calls_wait_for_the_thaw),
		TEST(closing_what_another_process_shares_waits_for_the_thaw),
		TEST(a_context_that_nobody_knows_is_not_frozen_as_it_goes),
		TEST(who_is_in_the_driver_is_no_reason_not_to_freeze),
		TEST(who_is_cancelled_in_the_driver_ends_when_it_is_through),
		TEST(the_watchdog_thaws_what_is_not_committed),
		TEST(an_extension_puts_the_watchdog_off),
		TEST(the_watchdog_leaves_what_is_committed),
		TEST(channels_come_and_go_in_many_freezes),
	};

	return fake_rm_run_all_apart(tests, sizeof(tests) / sizeof(tests[0]));
}
