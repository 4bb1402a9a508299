/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Freezing against a resource manager of ours: what is noticed of each form of each call,
 * that all is off or nothing is, and what happens in the worst moment.
 */

#include "hook/freeze/channels.h"
#include "hook/freeze/freeze.h"
#include "hook/freeze/freeze_private.h"
#include "hook/freeze/ioctl_next.h"
#include "hook/freeze/rm_watch.h"
#include "util/clock.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { FD = 77, CLIENT = 0xc1d00001u, DEVICE = 0x100, SUBDEVICE = 0x101, GROUP = 0x200 };
enum { CHANNELS_MAX = 512 };

/* The resource manager: its channels, and what it is told to answer. */
static struct {
	pthread_mutex_t lock;
	uint32_t handles[CHANNELS_MAX];
	bool is_off[CHANNELS_MAX];
	uint32_t n;
	uint32_t n_controls;
	uint32_t n_max;       /* longest list seen */
	uint32_t refuse_from; /* from this control on, taking off is refused; 0: never */
	uint32_t refuse_on;   /* so many times putting back is refused */
	uint32_t alloc_status;
	uint32_t n_freed;
	uint64_t timeslice_us;
	void (*meanwhile)(void); /* called once, in the next control that takes off */
} rm = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint32_t index_of(uint32_t handle)
{
	uint32_t i;

	for (i = 0; i < rm.n && rm.handles[i] != handle; i++)
		;
	return i;
}

static uint32_t serve_disable(const struct rm_abi_disable_channels *p)
{
	if (p->numChannels == 0)
		return RM_ABI_INVALID_PARAM_STRUCT;
	rm.n_controls++;
	if (p->numChannels > rm.n_max)
		rm.n_max = p->numChannels;
	if (p->bDisable && rm.refuse_from && rm.n_controls >= rm.refuse_from)
		return RM_ABI_INVALID_PARAM;
	if (!p->bDisable && rm.refuse_on && rm.refuse_on--)
		return RM_ABI_INVALID_PARAM;
	for (uint32_t i = 0; i < p->numChannels; i++) {
		uint32_t k = index_of(p->hChannelList[i]);

		if (k == rm.n)
			return RM_ABI_INVALID_CHANNEL;
		rm.is_off[k] = p->bDisable;
	}
	return RM_ABI_OK;
}

static void serve_control(struct rm_abi_control *c)
{
	void *params = (void *)(uintptr_t)c->params;

	c->status = RM_ABI_OK;
	if (c->cmd == RM_ABI_CMD_SET_TIMESLICE)
		memcpy(&rm.timeslice_us, params, sizeof(rm.timeslice_us));
	else if (c->cmd == RM_ABI_CMD_GET_TIMESLICE)
		memcpy(params, &rm.timeslice_us, sizeof(rm.timeslice_us));
	else if (c->cmd == RM_ABI_CMD_DISABLE_CHANNELS)
		c->status = c->hObject == SUBDEVICE && c->hClient == CLIENT ? serve_disable(params)
									    : RM_ABI_INVALID_OBJECT;
}

static void serve_free(struct rm_abi_free *gone)
{
	uint32_t k = index_of(gone->hObjectOld);

	gone->status = RM_ABI_OK;
	rm.n_freed++;
	if (k == rm.n)
		return;
	rm.n--;
	rm.handles[k] = rm.handles[rm.n];
	rm.is_off[k] = rm.is_off[rm.n];
}

static void serve_alloc(void *arg, uint32_t size)
{
	const struct rm_abi_alloc *a = arg;

	if (rm_abi_is_channel(a->hClass) && rm.alloc_status == RM_ABI_OK && rm.n < CHANNELS_MAX) {
		rm.handles[rm.n] = a->hObjectNew;
		rm.is_off[rm.n++] = false;
	}
	if (size == sizeof(struct rm_abi_alloc))
		((struct rm_abi_alloc *)arg)->status = rm.alloc_status;
	else if (size == sizeof(struct rm_abi_alloc64))
		((struct rm_abi_alloc64 *)arg)->status = rm.alloc_status;
	else if (size == sizeof(struct rm_abi_alloc64_old))
		((struct rm_abi_alloc64_old *)arg)->status = rm.alloc_status;
}

/* In place of the library's: the calls end here. */
int ioctl_next_rm(int fd, unsigned long request, void *arg)
{
	const struct rm_abi_xfer *xfer = arg;
	uint32_t nr = _IOC_NR(request), size = _IOC_SIZE(request);
	void (*meanwhile)(void) = NULL;

	if (fd != FD) {
		errno = ENOTTY;
		return -1;
	}
	if (nr == RM_ABI_ESC_XFER) {
		nr = xfer->cmd;
		size = xfer->size;
		arg = (void *)(uintptr_t)xfer->ptr;
	}
	pthread_mutex_lock(&rm.lock);
	if (nr == RM_ABI_ESC_CONTROL) {
		const struct rm_abi_control *c = arg;

		if (c->cmd == RM_ABI_CMD_DISABLE_CHANNELS) {
			meanwhile = rm.meanwhile;
			rm.meanwhile = NULL;
		}
		serve_control(arg);
	} else if (nr == RM_ABI_ESC_FREE) {
		serve_free(arg);
	} else if (nr == RM_ABI_ESC_ALLOC) {
		serve_alloc(arg, size);
	}
	pthread_mutex_unlock(&rm.lock);
	if (meanwhile)
		meanwhile();
	return 0;
}

int ioctl_next(int fd, unsigned long request, void *arg)
{
	return ioctl_next_rm(fd, request, arg);
}

int ioctl_control(int fd, uint32_t client, uint32_t object, uint32_t cmd, void *params,
		  uint32_t size)
{
	struct rm_abi_control c = {client, object, cmd, 0, (uintptr_t)params, size, 0};

	if (ioctl_next_rm(fd, RM_ABI_REQUEST_CONTROL, &c) < 0)
		return -errno;
	return (int)c.status;
}

/* ---- what the driver's library does --------------------------------------------- */

static uint32_t make(uint32_t parent, uint32_t handle, uint32_t class, void *params)
{
	struct rm_abi_alloc a = {CLIENT, parent, handle, class, (uintptr_t)params, 0, 0};

	assert_int_equal(rm_watch_ioctl(FD, RM_ABI_REQUEST_ALLOC, &a), 0);
	return a.status;
}

static void destroy(uint32_t handle)
{
	struct rm_abi_free gone = {CLIENT, 0, handle, 0xffff};

	assert_int_equal(rm_watch_ioctl(FD, RM_ABI_REQUEST_FREE, &gone), 0);
}

static void make_group(uint32_t handle)
{
	uint32_t params[8] = {0, 0, 0, RM_ABI_ENGINE_COMPUTE};

	assert_int_equal(make(DEVICE, handle, RM_ABI_CLASS_GROUP, params), RM_ABI_OK);
}

static void make_copy_group(uint32_t handle)
{
	uint32_t params[8] = {0, 0, 0, RM_ABI_ENGINE_COMPUTE + 8};

	assert_int_equal(make(DEVICE, handle, RM_ABI_CLASS_GROUP, params), RM_ABI_OK);
}

static void make_channels(uint32_t group, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(make(group, group + 1 + i, 0xc86f, NULL), RM_ABI_OK);
}

static struct channels_counts counts(void)
{
	struct channels_counts c;

	channels_count(&c);
	return c;
}

static uint32_t n_off(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < rm.n; i++)
		n += rm.is_off[i];
	return n;
}

static int setup(void **unused)
{
	struct rm_abi_device_params gpu = {.deviceId = 3};

	(void)unused;
	pthread_mutex_init(&rm.lock, NULL);
	memset((char *)&rm + sizeof(rm.lock), 0, sizeof(rm) - sizeof(rm.lock));
	freeze_after_fork_child();
	channels_device_begin(0);
	assert_int_equal(make(0, CLIENT, RM_ABI_CLASS_ROOT, NULL), RM_ABI_OK);
	assert_int_equal(make(CLIENT, DEVICE, RM_ABI_CLASS_DEVICE, &gpu), RM_ABI_OK);
	assert_int_equal(make(DEVICE, SUBDEVICE, RM_ABI_CLASS_SUBDEVICE, NULL), RM_ABI_OK);
	make_group(GROUP);
	channels_device_end();
	return 0;
}

static int teardown(void **unused)
{
	(void)unused;
	freeze_end();
	return 0;
}

/* ---- the book -------------------------------------------------------------------- */

static void every_form_of_an_allocation_counts(void **unused)
{
	struct rm_abi_alloc64 form64 = {CLIENT, GROUP, 0x901, 0xc86f, 0, 0, 0, 0, 1};
	struct rm_abi_alloc64_old old = {CLIENT, GROUP, 0x902, 0xc56f, 0, 0, 0, 1};
	struct rm_abi_alloc inner = {CLIENT, GROUP, 0x903, 0xca6f, 0, 24, 0};
	struct rm_abi_xfer xfer = {RM_ABI_ESC_ALLOC, sizeof(inner), (uintptr_t)&inner};

	(void)unused;
	assert_int_equal(rm_watch_ioctl(FD, RM_ABI_REQUEST_ALLOC64, &form64), 0);
	assert_int_equal(
		rm_watch_ioctl(FD, _IOWR(RM_ABI_TYPE, RM_ABI_ESC_ALLOC, struct rm_abi_alloc64_old),
			       &old),
		0);
	assert_int_equal(rm_watch_ioctl(FD, RM_ABI_REQUEST_XFER, &xfer), 0);
	assert_int_equal(counts().n_channels, 3);
	assert_int_equal(counts().n_compute, 3);
}

static void what_failed_or_is_something_else_does_not(void **unused)
{
	struct rm_abi_alloc odd = {CLIENT, GROUP, 0x901, 0xc86f, 0, 0, 0};
	struct rm_abi_alloc a = {CLIENT, GROUP, 0x902, 0xc86f, 0, 0, 0};

	(void)unused;
	rm.alloc_status = RM_ABI_INSUFFICIENT_RESOURCES;
	assert_int_equal(make(GROUP, 0x900, 0xc86f, NULL), RM_ABI_INSUFFICIENT_RESOURCES);
	rm.alloc_status = RM_ABI_OK;
	/* A size that no driver has. */
	assert_int_equal(rm_watch_ioctl(FD, _IOWR(RM_ABI_TYPE, RM_ABI_ESC_ALLOC, uint64_t), &odd),
			 0);
	assert_int_equal(make(GROUP, 0x903, 0xc8c0, NULL), RM_ABI_OK); /* compute, no channel */
	errno = 0;
	assert_int_equal(rm_watch_ioctl(5, RM_ABI_REQUEST_ALLOC, &a), -1);
	assert_int_equal(errno, ENOTTY);
	assert_int_equal(counts().n_channels, 0);
	assert_null(channels_why_lost());
}

/* Before 535 the first of the last two words is the status, and the second is nothing. */
static void the_short_form_of_old_drivers_is_understood(void **unused)
{
	struct rm_abi_alloc a = {CLIENT, GROUP, 0x901, 0xc86f, 0, 0, 0xdead};

	(void)unused;
	rm.alloc_status = 0xdead; /* as it was: not written */
	assert_int_equal(rm_watch_ioctl(FD, RM_ABI_REQUEST_ALLOC, &a), 0);
	assert_int_equal(counts().n_channels, 1);
}

static void children_go_with_their_parents(void **unused)
{
	(void)unused;
	make_channels(GROUP, 8);
	make_group(0x300);
	make_channels(0x300, 4);
	assert_int_equal(counts().n_channels, 12);
	destroy(GROUP + 1);
	assert_int_equal(counts().n_channels, 11);
	destroy(0x300);
	assert_int_equal(counts().n_channels, 7);
	assert_int_equal(counts().n_groups, 1);
	destroy(DEVICE);
	assert_int_equal(counts().n_channels, 0);
	assert_int_equal(counts().n_subdevices, 0);
}

static void a_client_takes_everything_along(void **unused)
{
	(void)unused;
	make_channels(GROUP, 300);
	destroy(CLIENT);
	assert_int_equal(counts().n_channels, 0);
	assert_int_equal(counts().n_groups, 0);
	assert_int_equal(counts().n_subdevices, 0);
}

static void a_handle_that_is_used_again_stays(void **unused)
{
	uint64_t serial;

	(void)unused;
	make_channels(GROUP, 1);
	/* Freed by one thread; another has made one under the same handle before it says so. */
	serial = channels_free_begin(CLIENT, GROUP + 1);
	assert_int_not_equal(serial, 0);
	assert_int_equal(make(GROUP, GROUP + 1, 0xc86f, NULL), RM_ABI_OK);
	channels_free_end(serial, true);
	assert_int_equal(counts().n_channels, 1);
}

/* ---- freezing --------------------------------------------------------------------- */

static void long_lists_are_split(void **unused)
{
	(void)unused;
	make_channels(GROUP, 150);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	assert_true(freeze_is_on());
	assert_int_equal(n_off(), 150);
	assert_int_equal(rm.n_max, RM_ABI_DISABLE_MAX);
	assert_int_equal(freeze_end(), 0);
	assert_false(freeze_is_on());
	assert_int_equal(n_off(), 0);
}

static void a_refusal_undoes_all(void **unused)
{
	struct freeze_stats stats;

	(void)unused;
	make_channels(GROUP, 150);
	assert_null(freeze_why_not());
	rm.refuse_from = rm.n_controls + 2;
	assert_int_equal(freeze_begin(UINT64_MAX), FREEZE_E_REFUSED);
	assert_int_equal(n_off(), 0);
	assert_false(freeze_is_on());
	freeze_stats(&stats);
	assert_int_equal(stats.n_failures, 1);
	assert_int_equal(stats.n_freezes, 0);
}

static void our_own_channels_go_on(void **unused)
{
	(void)unused;
	make_channels(GROUP, 4);
	channels_own_begin();
	channels_own_begin();
	channels_own_end();
	make_group(0x300);
	make_channels(0x300, 4);
	channels_own_end();
	/* One more in a group of ours, made later. */
	assert_int_equal(make(0x300, 0x310, 0xc86f, NULL), RM_ABI_OK);
	assert_int_equal(counts().n_own, 5);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	assert_int_equal(n_off(), 4);
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
	make_channels(GROUP, 4);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	make_group(0x300);
	make_channels(0x300, 2);
	assert_int_equal(n_off(), 6);
	assert_true(freeze_commit());
	assert_int_equal(make(0x300, 0x310, 0xc86f, NULL), RM_ABI_OK);
	assert_int_equal(n_off(), 7);
	assert_int_equal(freeze_end(), 0);
	assert_int_equal(n_off(), 0);
}

static void a_channel_that_can_not_be_stopped_is_not_born(void **unused)
{
	struct rm_abi_alloc64 a = {CLIENT, GROUP, 0x901, 0xc86f, 0, 0, 0, 0, 1};

	(void)unused;
	make_channels(GROUP, 4);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	assert_true(freeze_commit());
	rm.refuse_from = 1;
	assert_int_equal(rm_watch_ioctl(FD, RM_ABI_REQUEST_ALLOC64, &a), 0);
	assert_int_equal(a.status, RM_ABI_INSUFFICIENT_RESOURCES);
	assert_int_equal(rm.n_freed, 1);
	assert_int_equal(rm.n, 4);
	assert_int_equal(counts().n_channels, 4);
}

static void go_meanwhile(void)
{
	destroy(GROUP + 2);
}

static void a_channel_that_goes_meanwhile_does_no_harm(void **unused)
{
	(void)unused;
	make_channels(GROUP, 100);
	assert_null(freeze_why_not());
	rm.meanwhile = go_meanwhile;
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	assert_int_equal(n_off(), 99);
	assert_int_equal(freeze_end(), 0);
	assert_int_equal(n_off(), 0);
}

static void putting_back_is_tried_again(void **unused)
{
	(void)unused;
	make_channels(GROUP, 4);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	rm.refuse_on = 3;
	assert_int_equal(freeze_end(), 0);
	assert_int_equal(n_off(), 0);
	assert_null(freeze_why_not());
}

static void a_channel_that_stays_off_is_the_last_freeze(void **unused)
{
	(void)unused;
	make_channels(GROUP, 1);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	rm.refuse_on = 1000;
	assert_int_equal(freeze_end(), FREEZE_E_REFUSED);
	assert_false(freeze_is_on());
	assert_non_null(freeze_why_not());
	assert_int_equal(freeze_begin(UINT64_MAX), FREEZE_E_OFF);
}

static void wait_until_running(void)
{
	while (freeze_is_on())
		(void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void the_watchdog_thaws_what_is_not_committed(void **unused)
{
	struct freeze_stats stats;
	uint64_t epoch = freeze_epoch();

	(void)unused;
	make_channels(GROUP, 4);
	assert_int_equal(freeze_begin(CLOCK_NS_PER_MS), 0);
	wait_until_running();
	assert_int_equal(n_off(), 0);
	assert_false(freeze_commit());
	assert_int_equal(freeze_epoch(), epoch + 1);
	assert_int_equal(freeze_end(), 0);
	freeze_stats(&stats);
	assert_int_equal(stats.n_expired, 1);
}

static void an_extension_puts_the_watchdog_off(void **unused)
{
	uint64_t start_ns = clock_now_ns();

	(void)unused;
	make_channels(GROUP, 4);
	assert_false(freeze_extend(CLOCK_NS_PER_SEC));
	assert_int_equal(freeze_begin_compute(CLOCK_NS_PER_SEC), 0);
	assert_true(freeze_extend(20 * CLOCK_NS_PER_MS));
	while (freeze_is_on())
		(void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	assert_true(clock_now_ns() - start_ns < CLOCK_NS_PER_SEC);
	assert_int_equal(n_off(), 0);
}

static void the_watchdog_leaves_what_is_committed(void **unused)
{
	(void)unused;
	make_channels(GROUP, 4);
	assert_int_equal(freeze_begin(20 * CLOCK_NS_PER_MS), 0);
	assert_true(freeze_commit());
	(void)nanosleep(&(struct timespec){.tv_nsec = 40000000}, NULL);
	assert_true(freeze_is_on());
	assert_int_equal(n_off(), 4);
}

static void freezes_have_a_pause_between_them(void **unused)
{
	(void)unused;
	make_channels(GROUP, 4);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	assert_int_equal(freeze_begin(UINT64_MAX), FREEZE_E_BUSY);
	assert_int_equal(freeze_end(), 0);
	assert_int_equal(freeze_begin(UINT64_MAX), FREEZE_E_BUSY);
	(void)nanosleep(&(struct timespec){.tv_nsec = 6000000}, NULL);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
}

/* 4 channels that compute and 3 that copy. */
static void make_both(void)
{
	make_channels(GROUP, 4);
	make_copy_group(0x300);
	make_channels(0x300, 3);
}

static void a_hold_takes_off_only_what_computes(void **unused)
{
	(void)unused;
	make_both();
	assert_int_equal(freeze_begin_compute(UINT64_MAX), 0);
	assert_int_equal(n_off(), 4);
	assert_int_equal(freeze_end(), 0);
	assert_int_equal(n_off(), 0);
	(void)nanosleep(&(struct timespec){.tv_nsec = 6000000}, NULL);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	assert_int_equal(n_off(), 7);
	assert_int_equal(freeze_begin_compute(UINT64_MAX), FREEZE_E_BUSY);
	assert_int_equal(freeze_end(), 0);
	assert_int_equal(n_off(), 0);
}

static void holds_have_no_pause_between_them(void **unused)
{
	(void)unused;
	make_both();
	for (int i = 0; i < 10; i++) {
		assert_int_equal(freeze_begin_compute(UINT64_MAX), 0);
		assert_int_equal(freeze_end(), 0);
	}
	assert_int_equal(freeze_begin(UINT64_MAX), FREEZE_E_BUSY);
}

static void a_hold_that_is_widened_is_a_freeze(void **unused)
{
	(void)unused;
	make_both();
	assert_false(freeze_widen(CLOCK_NS_PER_SEC));
	assert_int_equal(freeze_begin_compute(CLOCK_NS_PER_SEC), 0);
	assert_true(freeze_widen(CLOCK_NS_PER_SEC));
	assert_int_equal(n_off(), 7);
	assert_true(freeze_commit());
	assert_int_equal(freeze_end(), 0);
	assert_int_equal(n_off(), 0);
}

static void widening_that_is_refused_thaws(void **unused)
{
	(void)unused;
	make_both();
	assert_int_equal(freeze_begin_compute(CLOCK_NS_PER_SEC), 0);
	rm.refuse_from = rm.n_controls + 1;
	assert_false(freeze_widen(CLOCK_NS_PER_SEC));
	assert_int_equal(n_off(), 0);
	assert_false(freeze_is_on());
}

/* As if its time were over in the worst moment: while the rest is taken off. */
static void expire_now(void)
{
	freeze_expire(freeze_epoch());
}

static void widening_that_comes_too_late_leaves_nothing_off(void **unused)
{
	(void)unused;
	make_both();
	assert_int_equal(freeze_begin_compute(CLOCK_NS_PER_SEC), 0);
	rm.meanwhile = expire_now;
	assert_false(freeze_widen(CLOCK_NS_PER_SEC));
	assert_int_equal(n_off(), 0);
	assert_false(freeze_is_on());
}

static void what_is_born_in_a_hold_comes_back_with_it(void **unused)
{
	(void)unused;
	make_both();
	assert_int_equal(freeze_begin_compute(UINT64_MAX), 0);
	make_copy_group(0x400);
	make_channels(0x400, 2);
	assert_int_equal(n_off(), 6);
	assert_int_equal(freeze_end(), 0);
	assert_int_equal(n_off(), 0);
}

static void who_stops_channels_itself_is_left_alone(void **unused)
{
	struct rm_abi_disable_channels p = {.bDisable = 1, .numChannels = 1};
	struct rm_abi_control c = {
		CLIENT, SUBDEVICE, RM_ABI_CMD_DISABLE_CHANNELS, 0, (uintptr_t)&p, sizeof(p), 0};

	(void)unused;
	make_channels(GROUP, 1);
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
	assert_int_equal(rm.timeslice_us, 500);
	rm.timeslice_us = 0;
	make_group(0x300);
	assert_int_equal(rm.timeslice_us, 500);
	assert_int_equal(rm_watch_ioctl(FD, RM_ABI_REQUEST_CONTROL, &c), 0);
	assert_int_equal(rm.timeslice_us, 500);
	assert_int_equal(freeze_set_timeslice(0, 0), 0);
	assert_int_equal(rm_watch_ioctl(FD, RM_ABI_REQUEST_CONTROL, &c), 0);
	assert_int_equal(rm.timeslice_us, 2048);
}

static void a_timeslice_is_undone_to_the_drivers(void **unused)
{
	uint64_t us = 3000;
	struct rm_abi_control c = {CLIENT,     GROUP, RM_ABI_CMD_SET_TIMESLICE, 0, (uintptr_t)&us,
				   sizeof(us), 0};

	(void)unused;
	rm.timeslice_us = 2048;
	assert_int_equal(freeze_set_timeslice(0, 500), 0);
	assert_int_equal(freeze_set_timeslice(0, 700), 0);
	assert_int_equal(rm.timeslice_us, 700);
	assert_int_equal(freeze_set_timeslice(0, 0), 0);
	assert_int_equal(rm.timeslice_us, 2048);
	assert_int_equal(freeze_set_timeslice(0, 500), 0);
	assert_int_equal(rm_watch_ioctl(FD, RM_ABI_REQUEST_CONTROL, &c), 0);
	assert_int_equal(rm.timeslice_us, 500);
	assert_int_equal(freeze_set_timeslice(0, 0), 0);
	assert_int_equal(rm.timeslice_us, 3000);
}

static void a_stop_thaws_what_is_not_committed(void **unused)
{
	(void)unused;
	make_channels(GROUP, 2);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	freeze_stop();
	assert_int_equal(n_off(), 0);
	assert_int_equal(freeze_begin(UINT64_MAX), FREEZE_E_OFF);
}

/* A context that is destroyed while it is frozen hangs, so an exit handler's must not be. */
static void after_a_stop_a_hold_thaws(void **unused)
{
	(void)unused;
	make_channels(GROUP, 2);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	assert_true(freeze_commit());
	freeze_stop();
	assert_int_equal(n_off(), 2);
	freeze_hold();
	assert_int_equal(n_off(), 0);
	freeze_drop();
	assert_false(freeze_is_on());
}

/* ---- threads ------------------------------------------------------------------------ */

static bool is_over;

static void *come_and_go(void *arg)
{
	uint32_t group = (uint32_t)(uintptr_t)arg;

	while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
		make_group(group);
		make_channels(group, 10);
		(void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
		for (uint32_t i = 0; i < 10; i++)
			destroy(group + 1 + i);
		destroy(group);
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
	make_channels(GROUP, 20);
	is_over = false;
	for (uintptr_t i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, come_and_go,
						(void *)(0x1000 + 0x100 * i)),
				 0);
	while (n_done < 200) {
		r = freeze_begin(n_done % 3 ? UINT64_MAX : CLOCK_NS_PER_MS / 10);
		if (r == FREEZE_E_BUSY || r == FREEZE_E_REFUSED)
			continue;
		assert_int_equal(r, 0);
		n_done++;
		if (freeze_commit()) {
			n_on = 0;
			pthread_mutex_lock(&rm.lock);
			for (uint32_t i = 0; i < rm.n; i++)
				n_on += rm.handles[i] < 0x1000 && !rm.is_off[i];
			pthread_mutex_unlock(&rm.lock);
			assert_int_equal(n_on, 0);
		}
		assert_int_equal(freeze_end(), 0);
	}
	__atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	assert_int_equal(n_off(), 0);
	assert_int_equal(rm.n, 20);
	assert_int_equal(counts().n_channels, 20);
	freeze_stats(&stats);
	assert_int_equal(stats.n_freezes, 200);
}

/*
 * In a process of its own, since the watchdog's thread never ends: in the next test it would
 * still be about while setup() makes all as new.
 */
static int run_apart(const struct CMUnitTest *test)
{
	const struct CMUnitTest tests[] = {*test};
	int status;
	pid_t pid;

	(void)fflush(NULL);
	pid = fork();
	if (pid == 0)
		exit(cmocka_run_group_tests_name("hook/freeze, watched", tests, NULL, NULL));
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 1;
	return status != 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(every_form_of_an_allocation_counts),
		TEST(what_failed_or_is_something_else_does_not),
		TEST(the_short_form_of_old_drivers_is_understood),
		TEST(children_go_with_their_parents),
		TEST(a_client_takes_everything_along),
		TEST(a_handle_that_is_used_again_stays),
		TEST(long_lists_are_split),
		TEST(a_refusal_undoes_all),
		TEST(our_own_channels_go_on),
		TEST(nothing_to_freeze_is_said),
		TEST(a_channel_born_while_frozen_is_off_and_thaws),
		TEST(a_channel_that_can_not_be_stopped_is_not_born),
		TEST(a_channel_that_goes_meanwhile_does_no_harm),
		TEST(putting_back_is_tried_again),
		TEST(a_channel_that_stays_off_is_the_last_freeze),
		TEST(freezes_have_a_pause_between_them),
		TEST(who_stops_channels_itself_is_left_alone),
		TEST(a_hold_takes_off_only_what_computes),
		TEST(holds_have_no_pause_between_them),
		TEST(a_hold_that_is_widened_is_a_freeze),
		TEST(widening_that_is_refused_thaws),
		TEST(widening_that_comes_too_late_leaves_nothing_off),
		TEST(what_is_born_in_a_hold_comes_back_with_it),
		TEST(a_timeslice_outlasts_the_drivers_own),
		TEST(a_timeslice_is_undone_to_the_drivers),
		TEST(a_stop_thaws_what_is_not_committed),
		TEST(after_a_stop_a_hold_thaws),
	};
	const struct CMUnitTest watched[] = {
		TEST(the_watchdog_thaws_what_is_not_committed),
		TEST(an_extension_puts_the_watchdog_off),
		TEST(the_watchdog_leaves_what_is_committed),
		TEST(channels_come_and_go_in_many_freezes),
	};
	int n_failed = cmocka_run_group_tests_name("hook/freeze", tests, NULL, NULL);

	for (size_t i = 0; i < sizeof(watched) / sizeof(watched[0]); i++)
		n_failed += run_apart(&watched[i]);
	return n_failed;
}
