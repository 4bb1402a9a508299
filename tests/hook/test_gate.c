/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/gate/gate.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static uint32_t n_wakes;

static void count_wake(void)
{
	__atomic_add_fetch(&n_wakes, 1, __ATOMIC_SEQ_CST);
}

static int open_gate(void **state)
{
	(void)state;
	gate_set_waker(count_wake);
	gate_set(GATE_OPEN);
	n_wakes = 0;
	return 0;
}

/* A thread that does one thing at the gate, and says where it is. */
struct visitor {
	pthread_t thread;
	const void *stream; /* begins a capture on it instead of entering */
	uint32_t is_inside;
	uint32_t may_leave;
	uint32_t n_begin; /* captures to begin, one after the other */
};

static void wait_for(const uint32_t *flag, uint32_t value)
{
	while (__atomic_load_n(flag, __ATOMIC_SEQ_CST) != value)
		sched_yield();
}

static void *visit(void *arg)
{
	struct visitor *visitor = arg;
	const uint32_t n = visitor->n_begin ? visitor->n_begin : 1;

	for (uint32_t i = 0; i < n; i++) {
		if (visitor->stream)
			gate_enter_capture();
		else
			gate_enter();
		__atomic_add_fetch(&visitor->is_inside, 1, __ATOMIC_SEQ_CST);
		wait_for(&visitor->may_leave, i + 1);
		if (visitor->stream)
			gate_leave_capture(visitor->stream, NULL, true);
		else
			gate_leave();
	}
	return NULL;
}

static void start(struct visitor *visitor)
{
	assert_int_equal(pthread_create(&visitor->thread, NULL, visit, visitor), 0);
}

static void finish(struct visitor *visitor)
{
	__atomic_add_fetch(&visitor->may_leave, 1, __ATOMIC_SEQ_CST);
	assert_int_equal(pthread_join(visitor->thread, NULL), 0);
}

static void open_gate_lets_threads_through_and_counts_them(void **state)
{
	uint64_t before = gate_activity();

	(void)state;
	for (int i = 0; i < 100; i++) {
		gate_enter();
		gate_leave();
	}
	assert_int_equal(gate_activity(), before + 100);
	assert_int_equal(n_wakes, 0);
	assert_false(gate_wanted());
}

static void it_is_quiet_only_when_no_other_thread_is_inside(void **state)
{
	struct visitor visitor = {0};

	(void)state;
	start(&visitor);
	wait_for(&visitor.is_inside, 1);
	assert_false(gate_quiet());
	finish(&visitor);
	assert_true(gate_quiet());

	gate_enter(); /* the caller does not count */
	assert_true(gate_quiet());
	gate_leave();
}

static void a_closed_gate_blocks_and_calls_the_waker_once(void **state)
{
	struct visitor a = {0}, b = {0};

	(void)state;
	gate_set(GATE_CLOSED);
	start(&a);
	wait_for(&n_wakes, 1);
	assert_true(gate_wanted());
	start(&b);
	while (!gate_quiet()) /* it may be on its way to the gate */
		sched_yield();
	assert_int_equal(__atomic_load_n(&a.is_inside, __ATOMIC_SEQ_CST), 0);
	assert_int_equal(__atomic_load_n(&b.is_inside, __ATOMIC_SEQ_CST), 0);

	/* A new closing without an opening in between is told again to who waits. */
	gate_set(GATE_CLOSED);
	wait_for(&n_wakes, 2);

	gate_set(GATE_OPEN);
	wait_for(&a.is_inside, 1);
	wait_for(&b.is_inside, 1);
	finish(&a);
	finish(&b);
	assert_int_equal(n_wakes, 2);
	assert_false(gate_wanted());
}

static void an_armed_gate_tells_of_the_first_to_enter(void **state)
{
	uint64_t activity = gate_activity();

	(void)state;
	assert_true(gate_arm(activity));
	assert_true(gate_is_armed());
	assert_int_equal(gate_get(), GATE_OPEN);
	assert_int_equal(gate_tripped_ns(), 0);
	assert_int_equal(n_wakes, 0);
	for (int i = 0; i < 3; i++) {
		gate_enter();
		gate_leave();
	}
	assert_int_equal(n_wakes, 1);
	assert_false(gate_is_armed());
	assert_true(gate_tripped_ns() > 0);
	assert_int_equal(gate_activity(), activity + 3);
}

static void copies_are_told_once_and_leave_the_gate_armed(void **state)
{
	(void)state;
	assert_true(gate_arm(gate_activity()));
	for (int i = 0; i < 3; i++) {
		gate_enter_copy();
		gate_leave();
	}
	assert_int_equal(n_wakes, 1);
	assert_true(gate_is_armed());
	assert_true(gate_copied_ns() > 0);
	gate_enter();
	gate_leave();
	assert_int_equal(n_wakes, 2);
	assert_false(gate_is_armed());
	assert_true(gate_tripped_ns() >= gate_copied_ns());
	assert_true(gate_arm(gate_activity()));
	assert_int_equal(gate_copied_ns(), 0);
}

static void a_gate_is_not_armed_behind_who_has_entered(void **state)
{
	uint64_t activity = gate_activity();

	(void)state;
	gate_enter();
	gate_leave();
	assert_false(gate_arm(activity));
	assert_false(gate_is_armed());
	assert_int_equal(gate_get(), GATE_OPEN);
	gate_set(GATE_CLOSED);
	assert_false(gate_arm(gate_activity()));
	assert_int_equal(gate_get(), GATE_CLOSED);
}

static void an_armed_gate_can_be_closed(void **state)
{
	struct visitor visitor = {0};

	(void)state;
	assert_true(gate_arm(gate_activity()));
	gate_set(GATE_CLOSED);
	start(&visitor);
	wait_for(&n_wakes, 1);
	assert_true(gate_wanted());
	assert_int_equal(__atomic_load_n(&visitor.is_inside, __ATOMIC_SEQ_CST), 0);
	gate_set(GATE_OPEN);
	wait_for(&visitor.is_inside, 1);
	finish(&visitor);
}

/* Every entering is either seen by gate_arm() or trips the gate: none gets lost. */
static void *enter_many_times(void *arg)
{
	for (uint32_t i = 0; i < 20000; i++) {
		gate_enter();
		gate_leave();
	}
	__atomic_store_n((uint32_t *)arg, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void no_entering_is_missed_by_arming(void **state)
{
	uint32_t is_done = 0;
	pthread_t thread;
	uint64_t activity;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, enter_many_times, &is_done), 0);
	while (!__atomic_load_n(&is_done, __ATOMIC_SEQ_CST)) {
		activity = gate_activity();
		if (!gate_arm(activity))
			continue;
		while (gate_is_armed() && !__atomic_load_n(&is_done, __ATOMIC_SEQ_CST))
			continue;
		if (gate_is_armed())
			assert_int_equal(gate_activity(), activity);
	}
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static void nested_calls_pass_a_gate_closed_meanwhile(void **state)
{
	(void)state;
	gate_enter();
	gate_set(GATE_CLOSED);
	gate_enter(); /* would block for ever if it looked at the gate */
	gate_leave();
	gate_set(GATE_OPEN);
	gate_leave();
	assert_true(gate_quiet());
}

static void errno_survives_a_wait(void **state)
{
	(void)state;
	errno = 4711;
	gate_enter();
	gate_leave();
	gate_enter_capture();
	gate_leave_capture(state, NULL, true);
	gate_end_capture(gate_find_capture(state));
	assert_int_equal(errno, 4711);
}

static void captures_are_barred_before_the_gate_closes(void **state)
{
	int stream;
	struct visitor visitor = {.stream = &stream};

	(void)state;
	gate_set(GATE_NO_CAPTURES);
	gate_enter(); /* others still pass */
	gate_leave();
	start(&visitor);
	wait_for(&n_wakes, 1);
	assert_int_equal(__atomic_load_n(&visitor.is_inside, __ATOMIC_SEQ_CST), 0);
	assert_false(gate_capture_open());

	gate_set(GATE_OPEN);
	wait_for(&visitor.is_inside, 1);
	assert_true(gate_capture_open()); /* not begun yet, but past the gate */
	finish(&visitor);
	assert_true(gate_capture_open());
	gate_end_capture(gate_find_capture(&stream));
	assert_false(gate_capture_open());
}

/* It could not finish its capture if it were stopped here, nor could we close. */
static void a_thread_with_a_capture_open_may_begin_another(void **state)
{
	int stream;
	struct visitor visitor = {.stream = &stream, .n_begin = 2};

	(void)state;
	start(&visitor);
	wait_for(&visitor.is_inside, 1);
	gate_set(GATE_NO_CAPTURES);
	__atomic_store_n(&visitor.may_leave, 1, __ATOMIC_SEQ_CST);
	wait_for(&visitor.is_inside, 2);
	finish(&visitor);

	gate_end_capture(gate_find_capture(&stream));
	assert_true(gate_capture_open());
	gate_end_capture(gate_find_capture(&stream));
	assert_false(gate_capture_open());
}

static void a_capture_is_ended_by_its_identity_not_by_its_stream(void **state)
{
	int stream;
	uint64_t first;

	(void)state;
	gate_enter_capture();
	gate_leave_capture(&stream, NULL, true);
	first = gate_find_capture(&stream);
	assert_int_not_equal(first, 0);

	/* The handle came back and a capture began on it before the first one's end is told. */
	gate_enter_capture();
	gate_leave_capture(&stream, NULL, true);
	gate_end_capture(first);
	assert_true(gate_capture_open());
	gate_end_capture(first);
	assert_true(gate_capture_open());
	gate_end_capture(gate_find_capture(&stream));
	assert_false(gate_capture_open());
}

static void captures_that_failed_to_begin_are_not_counted(void **state)
{
	int stream;

	(void)state;
	gate_enter_capture();
	gate_leave_capture(&stream, NULL, false);
	assert_int_equal(gate_find_capture(&stream), 0);
	assert_false(gate_capture_open());
}

static void captures_end_with_their_context(void **state)
{
	int stream, other_stream, ctx, other_ctx;

	(void)state;
	gate_enter_capture();
	gate_leave_capture(&stream, &ctx, true);
	gate_enter_capture();
	gate_leave_capture(&other_stream, &other_ctx, true);
	gate_context_gone(&ctx);
	assert_int_equal(gate_find_capture(&stream), 0);
	assert_int_not_equal(gate_find_capture(&other_stream), 0);
	gate_context_gone(&other_ctx);
	assert_false(gate_capture_open());
}

static void *capture_on_own_stream(void *arg)
{
	*(const void **)arg = gate_thread_stream();
	gate_enter_capture();
	gate_leave_capture(gate_thread_stream(), NULL, true);
	return NULL;
}

static void a_capture_on_the_threads_own_stream_ends_with_the_thread(void **state)
{
	const void *stream = NULL;
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, capture_on_own_stream, &stream), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_ptr_not_equal(stream, gate_thread_stream());
	assert_false(gate_capture_open());
}

static void *begin_a_capture(void *arg)
{
	gate_enter_capture();
	gate_leave_capture(arg, NULL, true);
	return gate_thread_captures() ? arg : NULL;
}

static void *look_for_own_captures(void *arg)
{
	gate_enter();
	gate_leave();
	return gate_thread_captures() ? arg : NULL;
}

static void a_capture_is_not_that_of_the_next_thread_in_its_slot(void **state)
{
	pthread_t thread;
	void *ret;
	int stream;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, begin_a_capture, &stream), 0);
	assert_int_equal(pthread_join(thread, &ret), 0);
	assert_ptr_equal(ret, &stream);
	assert_true(gate_capture_open());
	assert_int_equal(pthread_create(&thread, NULL, look_for_own_captures, &stream), 0);
	assert_int_equal(pthread_join(thread, &ret), 0);
	assert_null(ret);
	gate_end_capture(gate_find_capture(&stream));
	assert_false(gate_capture_open());
}

static void *enter_and_end(void *arg)
{
	(void)arg;
	gate_enter(); /* ends inside, as by pthread_exit() in a callback */
	return NULL;
}

static void threads_that_end_leave_the_gate_and_their_slot(void **state)
{
	(void)state;
	for (int i = 0; i < 1000; i++) {
		pthread_t thread;

		assert_int_equal(pthread_create(&thread, NULL, enter_and_end, NULL), 0);
		assert_int_equal(pthread_join(thread, NULL), 0);
	}
	assert_true(gate_quiet());
}

static void more_threads_than_one_page_of_slots(void **state)
{
	struct visitor visitors[150] = {0};

	(void)state;
	for (size_t i = 0; i < 150; i++)
		start(&visitors[i]);
	for (size_t i = 0; i < 150; i++)
		wait_for(&visitors[i].is_inside, 1);
	assert_false(gate_quiet());
	for (size_t i = 0; i < 150; i++)
		finish(&visitors[i]);
	assert_true(gate_quiet());
}

static void a_child_starts_with_an_open_empty_gate(void **state)
{
	struct visitor visitor = {0};
	int status;
	pid_t pid;

	(void)state;
	start(&visitor);
	wait_for(&visitor.is_inside, 1);
	gate_enter_capture();
	gate_leave_capture(&visitor, NULL, true);
	gate_set(GATE_CLOSED);

	pid = fork();
	if (pid == 0) {
		gate_after_fork_child();
		if (gate_get() != GATE_OPEN || !gate_quiet() || gate_capture_open() ||
		    gate_wanted())
			_exit(1);
		gate_enter();
		gate_leave();
		gate_enter_capture();
		gate_leave_capture(&visitor, NULL, true);
		gate_end_capture(gate_find_capture(&visitor));
		_exit(gate_capture_open() ? 2 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);

	gate_set(GATE_OPEN);
	gate_end_capture(gate_find_capture(&visitor));
	finish(&visitor);
}

/* ---- stress: the driver must never be entered while the closer is sure ------ */

enum { STRESS_THREADS = 4, STRESS_CLOSES = 200 };

static struct {
	uint32_t is_sure;
	uint32_t is_over;
	uint64_t n_violations;
	uint64_t n_passed;
} stress;

static void *stress_thread(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&stress.is_over, __ATOMIC_RELAXED)) {
		gate_enter();
		if (__atomic_load_n(&stress.is_sure, __ATOMIC_RELAXED))
			__atomic_add_fetch(&stress.n_violations, 1, __ATOMIC_RELAXED);
		gate_leave();
		__atomic_add_fetch(&stress.n_passed, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void nobody_passes_while_closed_and_quiet(void **state)
{
	pthread_t threads[STRESS_THREADS];

	(void)state;
	for (int i = 0; i < STRESS_THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, stress_thread, NULL), 0);
	for (int i = 0; i < STRESS_CLOSES; i++) {
		uint64_t passed = __atomic_load_n(&stress.n_passed, __ATOMIC_RELAXED);

		gate_set(GATE_CLOSED);
		while (!gate_quiet())
			sched_yield();
		__atomic_store_n(&stress.is_sure, 1, __ATOMIC_SEQ_CST);
		sched_yield();
		__atomic_store_n(&stress.is_sure, 0, __ATOMIC_SEQ_CST);
		gate_set(GATE_OPEN);
		while (__atomic_load_n(&stress.n_passed, __ATOMIC_RELAXED) == passed)
			sched_yield(); /* it does open again for those who waited */
	}
	__atomic_store_n(&stress.is_over, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < STRESS_THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(stress.n_violations, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(open_gate_lets_threads_through_and_counts_them, open_gate),
		cmocka_unit_test_setup(it_is_quiet_only_when_no_other_thread_is_inside, open_gate),
		cmocka_unit_test_setup(a_closed_gate_blocks_and_calls_the_waker_once, open_gate),
		cmocka_unit_test_setup(an_armed_gate_tells_of_the_first_to_enter, open_gate),
		cmocka_unit_test_setup(copies_are_told_once_and_leave_the_gate_armed, open_gate),
		cmocka_unit_test_setup(a_gate_is_not_armed_behind_who_has_entered, open_gate),
		cmocka_unit_test_setup(an_armed_gate_can_be_closed, open_gate),
		cmocka_unit_test_setup(no_entering_is_missed_by_arming, open_gate),
		cmocka_unit_test_setup(nested_calls_pass_a_gate_closed_meanwhile, open_gate),
		cmocka_unit_test_setup(errno_survives_a_wait, open_gate),
		cmocka_unit_test_setup(captures_are_barred_before_the_gate_closes, open_gate),
		cmocka_unit_test_setup(a_thread_with_a_capture_open_may_begin_another, open_gate),
		cmocka_unit_test_setup(a_capture_is_ended_by_its_identity_not_by_its_stream,
				       open_gate),
		cmocka_unit_test_setup(captures_that_failed_to_begin_are_not_counted, open_gate),
		cmocka_unit_test_setup(captures_end_with_their_context, open_gate),
		cmocka_unit_test_setup(a_capture_on_the_threads_own_stream_ends_with_the_thread,
				       open_gate),
		cmocka_unit_test_setup(a_capture_is_not_that_of_the_next_thread_in_its_slot,
				       open_gate),
		cmocka_unit_test_setup(threads_that_end_leave_the_gate_and_their_slot, open_gate),
		cmocka_unit_test_setup(more_threads_than_one_page_of_slots, open_gate),
		cmocka_unit_test_setup(a_child_starts_with_an_open_empty_gate, open_gate),
		cmocka_unit_test_setup(nobody_passes_while_closed_and_quiet, open_gate),
	};

	return cmocka_run_group_tests_name("hook/gate", tests, NULL, NULL);
}
