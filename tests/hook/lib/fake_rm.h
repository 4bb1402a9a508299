/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_HOOK_FAKE_RM_H
#define NVS_TESTS_HOOK_FAKE_RM_H

/*
 * A resource manager for tests of freezing: it answers the ioctls that the driver's library
 * would make, which rm_watch_ioctl() sees, and those of the freeze itself. Time is virtual.
 * A program that refers to it has ioctl_next() from here.
 */

#include "hook/freeze/channels.h"
#include "hook/freeze/freeze.h"
#include "hook/freeze/freeze_private.h"
#include "hook/freeze/ioctl_next.h"
#include "hook/freeze/rm_watch.h"
#include "util/clock.h"
#include "virtual_clock.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { FD = 77, CLIENT = 0xc1d00001u, DEVICE = 0x100, SUBDEVICE = 0x101, GROUP = 0x200 };
enum { CHANNELS_MAX = 512 };

/* The resource manager: its channels, and what it is told to answer. */
struct fake_rm {
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
};

extern struct fake_rm fake_rm;

/* ---- what the driver's library does --------------------------------------------- */

uint32_t fake_rm_make(uint32_t parent, uint32_t handle, uint32_t class, void *params);
void fake_rm_destroy(uint32_t handle);
void fake_rm_make_group_on(uint32_t handle, uint32_t engine);
void fake_rm_make_group(uint32_t handle);
void fake_rm_make_copy_group(uint32_t handle);
void fake_rm_make_channels(uint32_t group, uint32_t n);

/* One channel each on what decodes video, decodes pictures, and finds optical flow. */
enum { PICTURE_GROUPS = 3 };
void fake_rm_make_picture_groups(uint32_t handle);

struct channels_counts fake_rm_counts(void);
uint32_t fake_rm_n_off(void);
uint32_t fake_rm_n_left(void);

/* Of each test. */
int fake_rm_setup(void **unused);
int fake_rm_teardown(void **unused);
void fake_rm_await_thaw(void);

/*
 * In a process of its own, since the watchdog's thread never ends: in the next test it would
 * still be about while fake_rm_setup() makes all as new.
 */
int fake_rm_run_apart(const struct CMUnitTest *test);
int fake_rm_run_all_apart(const struct CMUnitTest *tests, size_t n);

#define TEST(f) cmocka_unit_test_setup_teardown(f, fake_rm_setup, fake_rm_teardown)

#endif
