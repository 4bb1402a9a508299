/* SPDX-License-Identifier: Apache-2.0 */

/* What is known of green contexts and their streams without asking the driver. */

#include "hook/gate/green.h"

#include "hook/gate/gate.h"
#include "hook/table/cuda_real.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define PRIMARY ((CUcontext)0x1000)
#define PART    ((CUcontext)0x2000)
#define HANDLE  ((CUgreenCtx)0x3000)
#define STREAM  ((CUstream)0x4000)

static CUcontext current;

static CUresult get_current(CUcontext *ret)
{
	*ret = current;
	return CUDA_SUCCESS;
}

static int make(void **state)
{
	struct green green = {.handle = HANDLE, .ctx = PART, .primary = PRIMARY, .dev = 0};

	(void)state;
	green_after_fork_child();
	cuda_real.cuCtxGetCurrent = get_current;
	current = PRIMARY;
	assert_true(green_add(&green));
	return 0;
}

static CUresult context_of(CUstream stream)
{
	CUcontext ctx = NULL;
	CUresult res = green_stream_context(stream, &ctx);

	assert_ptr_equal(ctx, res == CUDA_SUCCESS ? PART : NULL);
	return res;
}

static void its_owner_is_the_primary_context(void **state)
{
	(void)state;
	assert_ptr_equal(green_owner(PART), PRIMARY);
	assert_ptr_equal(green_owner(PRIMARY), PRIMARY);
	green_end(green_take(HANDLE));
	assert_ptr_equal(green_owner(PART), PART);
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
	green_primary_gone(PRIMARY);
	green_stream_made(STREAM, NULL);
	assert_int_equal(context_of(STREAM), CUDA_ERROR_NOT_FOUND);
}

static void all_end_with_the_primary_context(void **state)
{
	(void)state;
	green_stream_made(STREAM, HANDLE);
	green_primary_gone(PART);
	assert_int_equal(context_of(STREAM), CUDA_SUCCESS);
	green_primary_gone(PRIMARY);
	assert_int_equal(context_of(STREAM), CUDA_ERROR_STREAM_DETACHED);
	assert_null(green_take(
		HANDLE)); /* so nobody gives back its reference to the next primary one */
}

static void its_captures_end_with_it(void **state)
{
	(void)state;
	gate_enter_capture();
	gate_leave_capture(STREAM, PART, true);
	assert_true(gate_capture_open());
	green_end(green_take(HANDLE));
	assert_false(gate_capture_open());
}

#define GREEN_TEST(name) cmocka_unit_test_setup(name, make)

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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
