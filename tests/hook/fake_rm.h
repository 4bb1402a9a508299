/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_HOOK_FAKE_RM_H
#define NVS_TESTS_HOOK_FAKE_RM_H

/*
 * A resource manager for tests of freezing: it answers the ioctls that the driver's library
 * would make, which rm_watch_ioctl() sees, and those of the freeze itself. Time is virtual.
 * Included by one file a program, which thus replaces ioctl_next.
 */

#include "hook/freeze/channels.h"
#include "hook/freeze/freeze.h"
#include "hook/freeze/freeze_private.h"
#include "hook/freeze/ioctl_next.h"
#include "hook/freeze/rm_watch.h"
#include "lib/virtual_clock.h"
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
	uint64_t free_ns; /* so long the caller is kept after a free */
	uint64_t timeslice_us;
	void (*meanwhile)(void); /* called once, in the next control that takes off */
} rm = {.lock = PTHREAD_MUTEX_INITIALIZER};

static inline uint32_t index_of(uint32_t handle)
{
	uint32_t i;

	for (i = 0; i < rm.n && rm.handles[i] != handle; i++)
		;
	return i;
}

static inline uint32_t serve_disable(const struct rm_abi_disable_channels *p)
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

static inline void serve_control(struct rm_abi_control *c)
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

static inline void serve_free(struct rm_abi_free *gone)
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

static inline void serve_alloc(void *arg, uint32_t size)
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
	uint64_t pause_ns = 0;

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
		pause_ns = rm.free_ns;
	} else if (nr == RM_ABI_ESC_ALLOC) {
		serve_alloc(arg, size);
	}
	pthread_mutex_unlock(&rm.lock);
	if (pause_ns)
		clock_nap(pause_ns);
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

static inline uint32_t make(uint32_t parent, uint32_t handle, uint32_t class, void *params)
{
	struct rm_abi_alloc a = {CLIENT, parent, handle, class, (uintptr_t)params, 0, 0};

	assert_int_equal(rm_watch_ioctl(FD, RM_ABI_REQUEST_ALLOC, &a), 0);
	return a.status;
}

static inline void destroy(uint32_t handle)
{
	struct rm_abi_free gone = {CLIENT, 0, handle, 0xffff};

	assert_int_equal(rm_watch_ioctl(FD, RM_ABI_REQUEST_FREE, &gone), 0);
}

static inline void make_group_on(uint32_t handle, uint32_t engine)
{
	uint32_t params[8] = {0, 0, 0, engine};

	assert_int_equal(make(DEVICE, handle, RM_ABI_CLASS_GROUP, params), RM_ABI_OK);
}

static inline void make_group(uint32_t handle)
{
	make_group_on(handle, RM_ABI_ENGINE_COMPUTE);
}

static inline void make_copy_group(uint32_t handle)
{
	make_group_on(handle, RM_ABI_ENGINE_COPY0);
}

static inline void make_channels(uint32_t group, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(make(group, group + 1 + i, 0xc86f, NULL), RM_ABI_OK);
}

/* One channel each on what decodes video, decodes pictures, and finds optical flow. */
enum { PICTURE_GROUPS = 3 };

static inline void make_picture_groups(uint32_t handle)
{
	static const uint32_t engines[PICTURE_GROUPS] = {RM_ABI_ENGINE_NVDEC0,
							 RM_ABI_ENGINE_NVJPEG0, RM_ABI_ENGINE_OFA0};

	for (uint32_t i = 0; i < PICTURE_GROUPS; i++) {
		make_group_on(handle + 0x10 * i, engines[i]);
		make_channels(handle + 0x10 * i, 1);
	}
}

static inline struct channels_counts counts(void)
{
	struct channels_counts c;

	channels_count(&c);
	return c;
}

static inline uint32_t n_off(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < rm.n; i++)
		n += rm.is_off[i];
	return n;
}

static inline uint32_t n_left(void)
{
	uint32_t n;

	pthread_mutex_lock(&rm.lock);
	n = rm.n;
	pthread_mutex_unlock(&rm.lock);
	return n;
}

static inline int setup(void **unused)
{
	struct rm_abi_device_params gpu = {.deviceId = 3};

	(void)unused;
	virtual_clock_start();
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

static inline int teardown(void **unused)
{
	(void)unused;
	freeze_end();
	return 0;
}

static inline void wait_until_running(void)
{
	while (freeze_is_on())
		clock_nap(CLOCK_NS_PER_MS);
}

/*
 * In a process of its own, since the watchdog's thread never ends: in the next test it would
 * still be about while setup() makes all as new.
 */
static inline int run_apart(const struct CMUnitTest *test)
{
	const struct CMUnitTest tests[] = {*test};
	int status;
	pid_t pid;

	(void)fflush(NULL);
	pid = fork();
	if (pid == 0)
		exit(cmocka_run_group_tests_name("hook/freeze", tests, NULL, NULL));
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 1;
	return status != 0;
}

static inline int run_all_apart(const struct CMUnitTest *tests, size_t n)
{
	int n_failed = 0;

	for (size_t i = 0; i < n; i++)
		n_failed += run_apart(&tests[i]);
	return n_failed;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif
