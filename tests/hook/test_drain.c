/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/gate/drain.h"

#include "hook/gate/device.h"
#include "hook/gate/gate.h"
#include "lib/fake_driver.h"
#include "lib/virtual_clock.h"
#include "nvshare/protocol.h"
#include "util/clock.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define FOREVER_NS (600ull * 1000000000)
#define CONTEXT    ((CUcontext)0x1000)
#define OTHER      ((CUcontext)0x2000)

static int setup(void **unused)
{
	(void)unused;
	virtual_clock_start();
	fake_install();
	gate_set(GATE_OPEN);
	(void)device_context_forget(OTHER);
	(void)device_context_forget(CONTEXT);
	return device_context_add(CONTEXT, 0, 0) ? 0 : -1;
}

static void nap(void)
{
	clock_nap(CLOCK_NS_PER_MS);
}

static void *drain_thread(void *arg)
{
	*(int *)arg = drain_run(FOREVER_NS);
	return NULL;
}

static void start_drain(pthread_t *thread, int *outcome)
{
	*outcome = -1;
	assert_int_equal(pthread_create(thread, NULL, drain_thread, outcome), 0);
}

static void closes_the_gate_when_nothing_runs(void **unused)
{
	(void)unused;
	assert_int_equal(drain_run(FOREVER_NS), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(gate_get(), GATE_CLOSED);
	assert_int_equal(fake_get(n_records), 1);
	assert_int_equal(fake_get(n_synchronizes), 0);
}

static void waits_for_the_work_of_every_context(void **unused)
{
	pthread_t thread;
	int outcome;

	(void)unused;
	assert_true(device_context_add(OTHER, 1, 0));
	fake_set(is_working, 1);
	start_drain(&thread, &outcome);
	while (fake_get(n_records) < 2)
		nap();
	nap();
	assert_int_equal(__atomic_load_n(&outcome, __ATOMIC_SEQ_CST), -1);
	fake_set(is_working, 0);
	pthread_join(thread, NULL);
	assert_int_equal(outcome, NVSHARE_OUTCOME_SUCCESS);
}

static void waits_for_open_captures_before_it_closes_the_gate(void **unused)
{
	pthread_t thread;
	int outcome, stream;

	(void)unused;
	gate_enter_capture();
	gate_leave_capture(&stream, CONTEXT, true);
	start_drain(&thread, &outcome);
	while (gate_get() != GATE_NO_CAPTURES)
		nap();
	nap();
	assert_int_equal(gate_get(), GATE_NO_CAPTURES);
	assert_int_equal(fake_get(n_records), 0);
	gate_enter(); /* what is captured can be captured to the end */
	gate_leave();
	assert_true(gate_find_capture(&stream) != 0);
	gate_end_capture(gate_find_capture(&stream));
	pthread_join(thread, NULL);
	assert_int_equal(outcome, NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(gate_get(), GATE_CLOSED);
}

static void never_asks_the_driver_while_a_capture_is_open(void **unused)
{
	int stream;

	(void)unused;
	gate_enter_capture();
	gate_leave_capture(&stream, CONTEXT, true);
	assert_int_equal(drain_run(1000000), NVSHARE_OUTCOME_TIMEOUT);
	gate_set(GATE_OPEN);
	assert_false(drain_probe_start(DEVICE_ANY));
	assert_int_equal(fake_get(n_records), 0);
	assert_int_equal(fake_get(n_synchronizes), 0);
	gate_end_capture(gate_find_capture(&stream));
}

struct beginner {
	int stream;
	int is_in;
	int may_leave;
};

static void *begin_capture(void *arg)
{
	struct beginner *b = arg;

	gate_enter_capture();
	__atomic_store_n(&b->is_in, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&b->may_leave, __ATOMIC_SEQ_CST))
		nap();
	gate_leave_capture(&b->stream, CONTEXT, true);
	while (__atomic_load_n(&b->may_leave, __ATOMIC_SEQ_CST) < 2)
		nap();
	gate_end_capture(gate_find_capture(&b->stream));
	return NULL;
}

static void a_capture_that_is_just_beginning_is_let_finish(void **unused)
{
	struct beginner b = {0};
	pthread_t beginner, drainer;
	int outcome;

	(void)unused;
	assert_int_equal(pthread_create(&beginner, NULL, begin_capture, &b), 0);
	while (!__atomic_load_n(&b.is_in, __ATOMIC_SEQ_CST))
		nap();
	start_drain(&drainer, &outcome);
	while (gate_get() == GATE_OPEN)
		nap();
	__atomic_store_n(&b.may_leave, 1, __ATOMIC_SEQ_CST);
	nap();
	assert_int_equal(fake_get(n_records), 0);
	__atomic_store_n(&b.may_leave, 2, __ATOMIC_SEQ_CST);
	pthread_join(beginner, NULL);
	pthread_join(drainer, NULL);
	assert_int_equal(outcome, NVSHARE_OUTCOME_SUCCESS);
}

struct submitter {
	int is_inside;
	int may_leave;
};

static void *submit(void *arg)
{
	struct submitter *s = arg;

	gate_enter();
	__atomic_store_n(&s->is_inside, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&s->may_leave, __ATOMIC_SEQ_CST))
		nap();
	gate_leave();
	return NULL;
}

static void waits_until_no_thread_is_between_gate_and_driver(void **unused)
{
	struct submitter s = {0};
	pthread_t submitter, drainer;
	int outcome;

	(void)unused;
	assert_int_equal(pthread_create(&submitter, NULL, submit, &s), 0);
	while (!__atomic_load_n(&s.is_inside, __ATOMIC_SEQ_CST))
		nap();
	start_drain(&drainer, &outcome);
	while (gate_get() != GATE_CLOSED)
		nap();
	nap();
	assert_int_equal(fake_get(n_records), 0);
	__atomic_store_n(&s.may_leave, 1, __ATOMIC_SEQ_CST);
	pthread_join(submitter, NULL);
	pthread_join(drainer, NULL);
	assert_int_equal(outcome, NVSHARE_OUTCOME_SUCCESS);
}

static void work_that_does_not_end_is_a_timeout(void **unused)
{
	(void)unused;
	fake_set(is_working, 1);
	assert_int_equal(drain_run(2000000), NVSHARE_OUTCOME_TIMEOUT);
}

static void a_broken_context_counts_as_drained(void **unused)
{
	(void)unused;
	fake_set(event_error, CUDA_ERROR_ILLEGAL_ADDRESS);
	fake_set(is_working, 1);
	assert_int_equal(drain_run(FOREVER_NS), NVSHARE_OUTCOME_SUCCESS);
}

static void without_events_it_synchronizes(void **unused)
{
	(void)unused;
	fake_set(record_error, CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(drain_run(FOREVER_NS), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(fake_get(n_synchronizes), 1);
	cuda_real.cuCtxRecordEvent = NULL;
	assert_int_equal(drain_run(FOREVER_NS), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(fake_get(n_synchronizes), 2);
}

/* It once was: work that ran on was copied from, and lost. */
static void an_answer_that_makes_no_sense_is_no_proof(void **unused)
{
	(void)unused;
	fake_set(query_error, CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(drain_run(FOREVER_NS), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(fake_get(n_synchronizes), 1);
}

static void *forget(void *arg)
{
	(void)arg;
	(void)device_context_forget(CONTEXT);
	return NULL;
}

static void a_context_that_is_destroyed_is_not_waited_for(void **unused)
{
	pthread_t drainer, forgetter;
	int outcome;

	(void)unused;
	fake_set(is_working, 1);
	start_drain(&drainer, &outcome);
	while (fake_get(n_records) < 1)
		nap();
	assert_int_equal(pthread_create(&forgetter, NULL, forget, NULL), 0);
	pthread_join(forgetter, NULL);
	pthread_join(drainer, NULL);
	assert_int_equal(outcome, NVSHARE_OUTCOME_SUCCESS);
	assert_false(device_has_context(DEVICE_ANY));
}

static void a_probe_tells_working_from_idle_with_the_gate_open(void **unused)
{
	(void)unused;
	fake_set(is_working, 1);
	assert_true(drain_probe_start(DEVICE_ANY));
	assert_int_equal(gate_get(), GATE_OPEN);
	assert_false(drain_probe_done(DEVICE_ANY));
	fake_set(is_working, 0);
	assert_true(drain_probe_done(DEVICE_ANY));
}

static bool has_end(CUcontext ctx)
{
	bool has_it = false;

	for (struct device_context *c = device_context_hold(DEVICE_ANY); c;
	     c = device_context_hold_next(c, DEVICE_ANY))
		has_it = has_it || (c->ctx == ctx && c->is_end_recorded);
	return has_it;
}

/* Only of what was asked for: who has the end of something else has nothing. */
static void a_probe_takes_the_time_of_the_end_when_it_is_told_to(void **unused)
{
	(void)unused;
	assert_true(device_context_add(OTHER, 1, 0));
	fake_set(is_working, 1);
	assert_true(drain_probe_start(DEVICE_ANY));
	assert_false(has_end(CONTEXT));
	drain_probe_time(DEVICE_ANY);
	assert_true(has_end(CONTEXT) && has_end(OTHER));
	assert_int_equal(gate_get(), GATE_OPEN);
	assert_true(drain_probe_start(DEVICE_ANY));
	assert_false(has_end(CONTEXT) || has_end(OTHER));
	fake_set(record_error, CUDA_ERROR_INVALID_VALUE);
	assert_true(drain_probe_start(DEVICE_ANY));
	drain_probe_time(DEVICE_ANY);
	assert_false(has_end(CONTEXT) || has_end(OTHER));
}

/* Last: it is for good. */
static void a_cancelled_drain_ends_at_once(void **unused)
{
	pthread_t thread;
	int outcome;

	(void)unused;
	fake_set(is_working, 1);
	start_drain(&thread, &outcome);
	while (fake_get(n_records) < 1)
		nap();
	drain_cancel();
	pthread_join(thread, NULL);
	assert_int_equal(outcome, NVSHARE_OUTCOME_TIMEOUT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(closes_the_gate_when_nothing_runs, setup),
		cmocka_unit_test_setup(waits_for_the_work_of_every_context, setup),
		cmocka_unit_test_setup(waits_for_open_captures_before_it_closes_the_gate, setup),
		cmocka_unit_test_setup(never_asks_the_driver_while_a_capture_is_open, setup),
		cmocka_unit_test_setup(a_capture_that_is_just_beginning_is_let_finish, setup),
		cmocka_unit_test_setup(waits_until_no_thread_is_between_gate_and_driver, setup),
		cmocka_unit_test_setup(work_that_does_not_end_is_a_timeout, setup),
		cmocka_unit_test_setup(a_broken_context_counts_as_drained, setup),
		cmocka_unit_test_setup(without_events_it_synchronizes, setup),
		cmocka_unit_test_setup(an_answer_that_makes_no_sense_is_no_proof, setup),
		cmocka_unit_test_setup(a_context_that_is_destroyed_is_not_waited_for, setup),
		cmocka_unit_test_setup(a_probe_tells_working_from_idle_with_the_gate_open, setup),
		cmocka_unit_test_setup(a_probe_takes_the_time_of_the_end_when_it_is_told_to, setup),
		cmocka_unit_test_setup(a_cancelled_drain_ends_at_once, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
