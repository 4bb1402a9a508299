/* SPDX-License-Identifier: Apache-2.0 */

/* The book of channels: what is noticed of each form of each call of the driver's. */

#include "lib/fake_rm.h"

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
	assert_int_equal(fake_rm_counts().n_channels, 3);
	assert_int_equal(fake_rm_counts().n_compute, 3);
}

static void what_failed_or_is_something_else_does_not(void **unused)
{
	struct rm_abi_alloc odd = {CLIENT, GROUP, 0x901, 0xc86f, 0, 0, 0};
	struct rm_abi_alloc a = {CLIENT, GROUP, 0x902, 0xc86f, 0, 0, 0};

	(void)unused;
	fake_rm.alloc_status = RM_ABI_INSUFFICIENT_RESOURCES;
	assert_int_equal(fake_rm_make(GROUP, 0x900, 0xc86f, NULL), RM_ABI_INSUFFICIENT_RESOURCES);
	fake_rm.alloc_status = RM_ABI_OK;
	/* A size that no driver has. */
	assert_int_equal(rm_watch_ioctl(FD, _IOWR(RM_ABI_TYPE, RM_ABI_ESC_ALLOC, uint64_t), &odd),
			 0);
	assert_int_equal(fake_rm_make(GROUP, 0x903, 0xc8c0, NULL),
			 RM_ABI_OK); /* compute, no channel */
	errno = 0;
	assert_int_equal(rm_watch_ioctl(5, RM_ABI_REQUEST_ALLOC, &a), -1);
	assert_int_equal(errno, ENOTTY);
	assert_int_equal(fake_rm_counts().n_channels, 0);
	assert_null(channels_why_lost());
}

/* Before 535 the first of the last two words is the status, and the second is nothing. */
static void the_short_form_of_old_drivers_is_understood(void **unused)
{
	struct rm_abi_alloc a = {CLIENT, GROUP, 0x901, 0xc86f, 0, 0, 0xdead};

	(void)unused;
	fake_rm.alloc_status = 0xdead; /* as it was: not written */
	assert_int_equal(rm_watch_ioctl(FD, RM_ABI_REQUEST_ALLOC, &a), 0);
	assert_int_equal(fake_rm_counts().n_channels, 1);
}

static void children_go_with_their_parents(void **unused)
{
	(void)unused;
	fake_rm_make_channels(GROUP, 8);
	fake_rm_make_group(0x300);
	fake_rm_make_channels(0x300, 4);
	assert_int_equal(fake_rm_counts().n_channels, 12);
	fake_rm_destroy(GROUP + 1);
	assert_int_equal(fake_rm_counts().n_channels, 11);
	fake_rm_destroy(0x300);
	assert_int_equal(fake_rm_counts().n_channels, 7);
	assert_int_equal(fake_rm_counts().n_groups, 1);
	fake_rm_destroy(DEVICE);
	assert_int_equal(fake_rm_counts().n_channels, 0);
	assert_int_equal(fake_rm_counts().n_subdevices, 0);
}

static void a_client_takes_everything_along(void **unused)
{
	(void)unused;
	fake_rm_make_channels(GROUP, 300);
	fake_rm_destroy(CLIENT);
	assert_int_equal(fake_rm_counts().n_channels, 0);
	assert_int_equal(fake_rm_counts().n_groups, 0);
	assert_int_equal(fake_rm_counts().n_subdevices, 0);
}

static uint32_t n_in(enum channels_scope scope)
{
	struct channels_cursor cursor = {.scope = scope};
	struct channels_batch batch;
	uint32_t n = 0;

	while (channels_next(&cursor, &batch))
		n += batch.n;
	return n;
}

/* Whatever its engine does; only those of compute groups compute. */
static void a_channel_on_any_engine_counts(void **unused)
{
	(void)unused;
	fake_rm_make_channels(GROUP, 8);
	fake_rm_make_copy_group(0x300);
	fake_rm_make_channels(0x300, 4);
	fake_rm_make_picture_groups(0x400);
	assert_int_equal(fake_rm_counts().n_groups, 2 + PICTURE_GROUPS);
	assert_int_equal(fake_rm_counts().n_channels, 12 + PICTURE_GROUPS);
	assert_int_equal(fake_rm_counts().n_compute, 8);
	assert_int_equal(fake_rm_counts().n_orphans, 0);
	assert_int_equal(n_in(CHANNELS_ALL), 12 + PICTURE_GROUPS);
	assert_int_equal(n_in(CHANNELS_COMPUTE), 8);
	assert_int_equal(n_in(CHANNELS_REST), 4 + PICTURE_GROUPS);
	fake_rm_destroy(0x410);
	assert_int_equal(fake_rm_counts().n_channels, 12 + PICTURE_GROUPS - 1);
	assert_null(channels_why_lost());
}

static void a_handle_that_is_used_again_stays(void **unused)
{
	uint64_t serial;

	(void)unused;
	fake_rm_make_channels(GROUP, 1);
	/* Freed by one thread; another has made one under the same handle before it says so. */
	serial = channels_free_begin(CLIENT, GROUP + 1);
	assert_int_not_equal(serial, 0);
	assert_int_equal(fake_rm_make(GROUP, GROUP + 1, 0xc86f, NULL), RM_ABI_OK);
	channels_free_end(serial, true);
	assert_int_equal(fake_rm_counts().n_channels, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(every_form_of_an_allocation_counts),
		TEST(what_failed_or_is_something_else_does_not),
		TEST(the_short_form_of_old_drivers_is_understood),
		TEST(children_go_with_their_parents),
		TEST(a_client_takes_everything_along),
		TEST(a_channel_on_any_engine_counts),
		TEST(a_handle_that_is_used_again_stays),
	};

	return cmocka_run_group_tests_name("hook/channels", tests, NULL, NULL);
}
