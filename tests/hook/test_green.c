/* SPDX-License-Identifier: Apache-2.0 */

/* What is known of green contexts and their streams without asking the driver. */

#include "hook/gate/green.h"

#include "hook/gate/device.h"
#include "hook/gate/gate.h"
#include "hook/orion/orion_private.h"
#include "hook/table/cuda_real.h"
#include "hook/table/hooks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define PRIMARY ((CUcontext)0x1000)
#define PART    ((CUcontext)0x2000)
#define HANDLE  ((CUgreenCtx)0x3000)
#define STREAM  ((CUstream)0x4000)
#define LATE    ((CUstream)0x5000)

static CUcontext current;

static CUresult get_current(CUcontext *ret)
{
	*ret = current;
	return CUDA_SUCCESS;
}

static void add(void)
{
	struct green green = {.handle = HANDLE, .ctx = PART, .primary = PRIMARY, .dev = 0};

	assert_true(green_add(&green));
}

static int make(void **state)
{
	(void)state;
	green_after_fork_child();
	cuda_real.cuCtxGetCurrent = get_current;
	current = PRIMARY;
	add();
	return 0;
}

/* What a test leaves in the book; setups begin with an empty one, without looking at the old. */
static int forget(void **state)
{
	struct green *green = green_take(HANDLE);

	(void)state;
	if (green)
		green_end(green);
	green_stream_gone(STREAM);
	green_stream_gone(LATE);
	return 0;
}

static CUresult context_of(CUstream stream)
{
	struct green_place place = {0};
	CUresult res = green_stream_place(stream, &place);

	if (res == CUDA_SUCCESS) {
		assert_ptr_equal(place.ctx, PART);
		assert_ptr_equal(place.owner, PRIMARY);
	}
	return res;
}

static void its_owner_is_the_primary_context(void **state)
{
	(void)state;
	assert_ptr_equal(green_place(PART).owner, PRIMARY);
	assert_ptr_equal(green_place(PRIMARY).owner, PRIMARY);
	green_end(green_take(HANDLE));
	assert_ptr_equal(green_place(PART).owner, PART);
	assert_null(green_take(HANDLE));
}

static void one_that_the_driver_keeps_stays(void **state)
{
	struct green *green = green_take(HANDLE);

	(void)state;
	assert_null(green_take(HANDLE));
	green_put_back(green);
	assert_ptr_equal(green_take(HANDLE), green);
	green_end(green);
}

static void a_stream_is_of_where_it_was_made(void **state)
{
	(void)state;
	assert_int_equal(context_of(STREAM), CUDA_ERROR_NOT_FOUND);
	green_stream_made(STREAM, NULL);
	assert_int_equal(context_of(STREAM), CUDA_ERROR_NOT_FOUND);
	green_stream_made(STREAM, HANDLE);
	assert_int_equal(context_of(STREAM), CUDA_SUCCESS);
	green_stream_gone(STREAM);
	assert_int_equal(context_of(STREAM), CUDA_ERROR_NOT_FOUND);
	current = PART;
	green_stream_made(STREAM, NULL);
	assert_int_equal(context_of(STREAM), CUDA_SUCCESS);
}

static void it_is_detached_until_it_goes(void **state)
{
	(void)state;
	green_stream_made(STREAM, HANDLE);
	green_end(green_take(HANDLE));
	assert_int_equal(context_of(STREAM), CUDA_ERROR_STREAM_DETACHED);
	green_stream_gone(STREAM);
	assert_int_equal(context_of(STREAM), CUDA_ERROR_NOT_FOUND);
}

/* The old one went with its context, and nobody destroyed it. */
static void a_new_stream_may_have_the_handle_of_an_old_one(void **state)
{
	(void)state;
	green_stream_made(STREAM, HANDLE);
	green_end(green_take_all(PRIMARY));
	green_stream_made(STREAM, NULL);
	assert_int_equal(context_of(STREAM), CUDA_ERROR_NOT_FOUND);
}

static void all_end_with_the_primary_context(void **state)
{
	(void)state;
	green_stream_made(STREAM, HANDLE);
	green_end(green_take_all(PART));
	assert_int_equal(context_of(STREAM), CUDA_SUCCESS);
	green_end(green_take_all(PRIMARY));
	assert_int_equal(context_of(STREAM), CUDA_ERROR_STREAM_DETACHED);
	assert_null(green_take(
		HANDLE)); /* so nobody gives back its reference to the next primary one */
}

static void its_captures_end_with_it(void **state)
{
	(void)state;
	gate_enter_capture();
	gate_leave_capture(STREAM, green_place(PART).id, true);
	assert_true(gate_capture_open());
	green_end(green_take(HANDLE));
	assert_false(gate_capture_open());
}

/* The driver may take long over it, and other threads go on meanwhile. */
static void its_streams_are_detached_while_it_ends(void **state)
{
	CUstream late = LATE;
	struct green *green;

	(void)state;
	green_stream_made(STREAM, HANDLE);
	green = green_take(HANDLE);
	green_stream_made(late, HANDLE);
	assert_int_equal(context_of(STREAM), CUDA_ERROR_STREAM_DETACHED);
	assert_int_equal(context_of(late), CUDA_ERROR_STREAM_DETACHED);
	assert_ptr_equal(green_place(PART).owner, PRIMARY);
	assert_true(green_place(PART).is_going);
	green_put_back(green);
	assert_int_equal(context_of(STREAM), CUDA_SUCCESS);
	assert_int_equal(context_of(late), CUDA_SUCCESS);
	green = green_take_all(PRIMARY);
	assert_int_equal(context_of(STREAM), CUDA_ERROR_STREAM_DETACHED);
	assert_ptr_equal(green_place(PART).owner, PRIMARY);
	green_end(green);
	assert_int_equal(context_of(STREAM), CUDA_ERROR_STREAM_DETACHED);
	assert_int_equal(context_of(late), CUDA_ERROR_STREAM_DETACHED);
}

/* Another thread makes it as soon as the driver has ended the old one. */
static void a_new_one_may_have_the_handle_of_one_that_ends(void **state)
{
	const void *old = green_place(PART).id;
	struct green *green = green_take(HANDLE);

	(void)state;
	add();
	green_stream_made(STREAM, HANDLE);
	gate_enter_capture();
	gate_leave_capture(STREAM, green_place(PART).id, true);
	green_end(green);
	assert_ptr_not_equal(green_place(PART).id, old);
	assert_int_equal(context_of(STREAM), CUDA_SUCCESS);
	assert_true(gate_capture_open());
	green_end(green_take(HANDLE));
	assert_false(gate_capture_open());
}

/* Each ends what it has taken. */
static void one_may_end_with_the_primary_context_at_the_same_time(void **state)
{
	struct green *green = green_take(HANDLE);

	(void)state;
	assert_null(green_take_all(PRIMARY));
	green_end(green);
	assert_ptr_equal(green_place(PART).owner, PART);
}

/* ---- the program's calls ------------------------------------------------------------- */

static CUresult answer; /* of the fake driver */

/* Another thread asks meanwhile. */
static CUresult driver_destroy(CUgreenCtx handle)
{
	assert_ptr_equal(handle, HANDLE);
	assert_int_equal(context_of(STREAM), CUDA_ERROR_STREAM_DETACHED);
	assert_ptr_equal(green_place(PART).owner, PRIMARY);
	return answer;
}

static void expect_destroy(CUresult res, CUresult expected)
{
	green_stream_made(STREAM, HANDLE);
	answer = res;
	assert_int_equal(cuGreenCtxDestroy(HANDLE), res);
	assert_int_equal(context_of(STREAM), expected);
}

static void the_book_hears_of_an_end_before_the_driver(void **state)
{
	(void)state;
	cuda_real.cuGreenCtxDestroy = driver_destroy;
	expect_destroy(CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS);
	expect_destroy(CUDA_SUCCESS, CUDA_ERROR_STREAM_DETACHED);
	add();
	expect_destroy(CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_STREAM_DETACHED);
}

static CUresult driver_push(CUcontext ctx)
{
	(void)ctx;
	return CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult driver_reset(CUdevice dev)
{
	(void)dev;
	add(); /* another thread does */
	return driver_destroy(HANDLE);
}

static void the_book_hears_of_the_primary_ones_end_before_the_driver(void **state)
{
	(void)state;
	cuda_real.cuCtxPushCurrent_v2 = driver_push;
	cuda_real.cuDevicePrimaryCtxReset_v2 = driver_reset;
	assert_true(device_context_add(PRIMARY, 0, 0));
	assert_true(device_context_retained(PRIMARY));
	green_stream_made(STREAM, HANDLE);
	answer = CUDA_SUCCESS;
	assert_int_equal(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	assert_int_equal(context_of(STREAM), CUDA_ERROR_STREAM_DETACHED);
	assert_ptr_equal(green_place(PART).owner, PART);
}

static CUresult driver_begin(CUstream stream, CUstreamCaptureMode mode)
{
	(void)stream;
	(void)mode;
	green_end(green_take(HANDLE));
	return CUDA_SUCCESS;
}

/* Nobody else would end it: the gate could not close any more. */
static void a_capture_that_begins_at_its_end_is_over(void **state)
{
	(void)state;
	cuda_real.cuStreamBeginCapture_v2 = driver_begin;
	green_stream_made(STREAM, HANDLE);
	assert_int_equal(cuStreamBeginCapture_v2(STREAM, CU_STREAM_CAPTURE_MODE_RELAXED),
			 CUDA_SUCCESS);
	assert_false(gate_capture_open());
	add();
	current = PART;
	assert_int_equal(
		cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED),
		CUDA_SUCCESS);
	assert_false(gate_capture_open());
}

static CUresult driver_end(CUstream stream, CUgraph *graph)
{
	(void)stream;
	(void)graph;
	return CUDA_ERROR_STREAM_DETACHED;
}

static CUresult must_not_be_asked(CUstream stream, CUstreamCaptureStatus *ret)
{
	(void)stream;
	(void)ret;
	fail();
	return CUDA_ERROR_STREAM_DETACHED;
}

static void a_driver_is_not_asked_about_a_detached_capture(void **state)
{
	struct green *green;
	CUgraph graph;

	(void)state;
	cuda_real.cuStreamEndCapture = driver_end;
	cuda_real.cuStreamIsCapturing = must_not_be_asked;
	green_stream_made(STREAM, HANDLE);
	gate_enter_capture();
	gate_leave_capture(STREAM, green_place(PART).id, true);
	green = green_take(HANDLE);
	assert_int_equal(cuStreamEndCapture(STREAM, &graph), CUDA_ERROR_STREAM_DETACHED);
	green_end(green);
	assert_false(gate_capture_open());
}

static struct green *taken;

static CUresult driver_device(CUdevice *ret)
{
	*ret = 0;
	taken = green_take(HANDLE);
	return CUDA_SUCCESS;
}

static CUresult driver_device_of_ended(CUdevice *ret)
{
	(void)driver_device(ret);
	green_end(taken);
	return CUDA_SUCCESS;
}

/* The thread that ends it has looked into that book already, or will not find it there. */
static void orion_books_none_that_ends(void **state)
{
	(void)state;
	cuda_real.cuCtxGetDevice = driver_device;
	hook_lock(&orion.lock);
	assert_null(orion_context_get(PART));
	green_put_back(taken);
	cuda_real.cuCtxGetDevice = driver_device_of_ended;
	assert_null(orion_context_get(PART));
	hook_unlock(&orion.lock);
}

#define GREEN_TEST(name) cmocka_unit_test_setup_teardown(name, make, forget)

int main(void)
{
	const struct CMUnitTest tests[] = {
		GREEN_TEST(its_owner_is_the_primary_context),
		GREEN_TEST(one_that_the_driver_keeps_stays),
		GREEN_TEST(a_stream_is_of_where_it_was_made),
		GREEN_TEST(it_is_detached_until_it_goes),
		GREEN_TEST(a_new_stream_may_have_the_handle_of_an_old_one),
		GREEN_TEST(all_end_with_the_primary_context),
		GREEN_TEST(its_captures_end_with_it),
		GREEN_TEST(its_streams_are_detached_while_it_ends),
		GREEN_TEST(a_new_one_may_have_the_handle_of_one_that_ends),
		GREEN_TEST(one_may_end_with_the_primary_context_at_the_same_time),
		GREEN_TEST(the_book_hears_of_an_end_before_the_driver),
		GREEN_TEST(the_book_hears_of_the_primary_ones_end_before_the_driver),
		GREEN_TEST(a_capture_that_begins_at_its_end_is_over),
		GREEN_TEST(a_driver_is_not_asked_about_a_detached_capture),
		GREEN_TEST(orion_books_none_that_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
