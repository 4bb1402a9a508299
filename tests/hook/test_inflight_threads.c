/* SPDX-License-Identifier: Apache-2.0 */

/* Who was inside when the program was frozen: when nothing can go wrong with it any more. */

#include "hook/gate/inflight_threads.h"

#include "util/clock.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_NS (60 * CLOCK_NS_PER_SEC)

static struct inflight_threads settle;

static int forget(void **state)
{
	(void)state;
	memset(&settle, 0, sizeof(settle));
	return 0;
}

static struct inflight_sight seen(pid_t tid, uint64_t cpu_us, bool is_asleep)
{
	return (struct inflight_sight){
		.guest = {.tid = tid, .n_visits = 7},
		.cpu_ns = cpu_us * 1000,
		.state = is_asleep ? INFLIGHT_ASLEEP : INFLIGHT_RUNNABLE,
	};
}

static bool look_at(struct inflight_sight a)
{
	return inflight_look(&settle, &a, 1);
}

static bool look_at_both(struct inflight_sight a, struct inflight_sight b)
{
	struct inflight_sight both[] = {a, b};

	return inflight_look(&settle, both, 2);
}

static void nobody_is_to_be_waited_for(void **state)
{
	(void)state;
	assert_true(inflight_look(&settle, NULL, 0));
}

static void who_has_had_the_processor_is_through(void **state)
{
	(void)state;
	assert_false(look_at(seen(1, 5000, false)));
	assert_false(look_at(seen(1, 5199, false)));
	assert_true(look_at(seen(1, 5200, false)));
	assert_true(look_at(seen(1, 9000, true)));
}

static void who_has_not_had_it_is_waited_for(void **state)
{
	(void)state;
	for (int i = 0; i < 1000; i++)
		assert_false(look_at(seen(1, 5000, false)));
}

static void who_sleeps_twice_is_in_the_driver(void **state)
{
	(void)state;
	assert_false(look_at(seen(1, 5000, true)));
	assert_true(look_at(seen(1, 5000, true)));
}

static void who_was_awake_between_two_sleeps_is_not(void **state)
{
	(void)state;
	assert_false(look_at(seen(1, 5000, true)));
	assert_false(look_at(seen(1, 5001, true)));
	assert_false(look_at(seen(1, 5001, false)));
	assert_false(look_at(seen(1, 5001, true)));
	assert_true(look_at(seen(1, 5001, true)));
}

static void who_waits_in_the_kernel_is_through_in_the_end(void **state)
{
	struct inflight_sight sight = {
		.guest = {.tid = 1, .n_visits = 7}, .cpu_ns = 5000, .state = INFLIGHT_BLOCKED};

	(void)state;
	for (sight.at_ns = 1; sight.at_ns < INFLIGHT_BLOCKED_NS;
	     sight.at_ns += INFLIGHT_BLOCKED_NS / 9)
		assert_false(look_at(sight));
	sight.at_ns = INFLIGHT_BLOCKED_NS + 1;
	assert_true(look_at(sight));
	sight.cpu_ns++;
	assert_false(look_at(sight));
}

/* It has let somebody go on who slept. */
static void after_one_has_left_the_others_are_looked_at_again(void **state)
{
	(void)state;
	assert_false(look_at_both(seen(1, 0, false), seen(2, 0, true)));
	assert_false(look_at_both(seen(1, 0, false), seen(2, 0, true)));
	assert_false(look_at(seen(2, 0, true)));
	assert_false(look_at(seen(2, 1, false)));
	assert_false(look_at(seen(2, 1, true)));
	assert_true(look_at(seen(2, 1, true)));
}

static void who_walks_through_a_graph_is_waited_for_to_the_end(void **state)
{
	struct inflight_sight sight = seen(1, 0, true);

	(void)state;
	sight.guest.is_walking = true;
	for (int i = 0; i < 4; i++) {
		assert_false(look_at(sight));
		assert_false(look_at(sight));
		sight.cpu_ns += 2 * INFLIGHT_CPU_NS;
		sight.state = i % 2 ? INFLIGHT_RUNNABLE : INFLIGHT_ASLEEP;
	}
	assert_false(inflight_look(&settle, NULL, 0)); /* it has just left */
	assert_true(inflight_look(&settle, NULL, 0));
}

static void another_visit_of_the_same_thread_is_another(void **state)
{
	struct inflight_sight again = seen(1, 0, true);

	(void)state;
	again.guest.n_visits++;
	assert_false(look_at(seen(1, 0, true)));
	assert_false(look_at(again));
	assert_true(look_at(again));
}

/* ---- with threads ----------------------------------------------------------- */

struct guest {
	pthread_t thread;
	pid_t tid;
	bool is_spinning;
	bool is_marked; /* instead of inside */
	bool is_walking;
	uint32_t is_inside, may_leave;
	int pipe[2];
};

static void *visit(void *arg)
{
	struct guest *guest = arg;
	char byte;

	if (guest->is_walking)
		gate_begin_walk();
	guest->is_marked ? gate_mark() : gate_enter();
	guest->tid = gettid();
	__atomic_store_n(&guest->is_inside, 1, __ATOMIC_SEQ_CST);
	if (guest->is_spinning) {
		while (!__atomic_load_n(&guest->may_leave, __ATOMIC_SEQ_CST))
			continue;
	} else {
		(void)!read(guest->pipe[0], &byte, 1);
	}
	guest->is_marked ? gate_unmark() : gate_leave();
	if (guest->is_walking)
		gate_end_walk();
	return NULL;
}

static void enter(struct guest *guest)
{
	assert_int_equal(pipe(guest->pipe), 0);
	assert_int_equal(pthread_create(&guest->thread, NULL, visit, guest), 0);
	while (!__atomic_load_n(&guest->is_inside, __ATOMIC_SEQ_CST))
		sched_yield();
}

static void leave(struct guest *guest)
{
	__atomic_store_n(&guest->may_leave, 1, __ATOMIC_SEQ_CST);
	assert_int_equal(write(guest->pipe[1], "x", 1), 1);
	assert_int_equal(pthread_join(guest->thread, NULL), 0);
	(void)close(guest->pipe[0]);
	(void)close(guest->pipe[1]);
}

static void an_empty_gate_has_settled(void **state)
{
	(void)state;
	assert_true(inflight_wait(0));
	gate_enter(); /* the caller does not count */
	assert_true(inflight_wait(0));
	gate_leave();
}

static void one_that_sleeps_and_one_that_computes_settle(void **state)
{
	struct guest sleeper = {0}, spinner = {.is_spinning = true};
	struct gate_guest guests[2];

	(void)state;
	enter(&sleeper);
	enter(&spinner);
	assert_false(inflight_wait(0)); /* one look is none */
	assert_true(inflight_wait(PATIENCE_NS));
	assert_int_equal(gate_guests(guests, 2), 2);
	assert_true((guests[0].tid == sleeper.tid && guests[1].tid == spinner.tid) ||
		    (guests[1].tid == sleeper.tid && guests[0].tid == spinner.tid));
	assert_int_equal(gate_guests(guests, 1), 2);
	leave(&sleeper);
	leave(&spinner);
	assert_int_equal(gate_guests(guests, 2), 0);
}

static void who_is_marked_is_seen_and_does_not_keep_the_gate_from_being_quiet(void **state)
{
	struct guest marked = {.is_marked = true};
	struct gate_guest guest;

	(void)state;
	enter(&marked);
	assert_int_equal(gate_guests(&guest, 1), 1);
	assert_int_equal(guest.tid, marked.tid);
	assert_true(gate_quiet());
	assert_false(inflight_wait(0));
	assert_true(inflight_wait(PATIENCE_NS));
	gate_mark(); /* the caller does not count */
	gate_mark();
	leave(&marked);
	assert_true(inflight_wait(0));
	gate_unmark();
	gate_unmark();
}

static void one_that_walks_does_not_settle_before_it_leaves(void **state)
{
	struct guest sleeper = {.is_walking = true},
		     spinner = {.is_walking = true, .is_spinning = true};
	struct gate_guest guest;

	(void)state;
	enter(&sleeper);
	assert_int_equal(gate_guests(&guest, 1), 1);
	assert_true(guest.is_walking);
	assert_false(inflight_wait(20 * CLOCK_NS_PER_MS));
	enter(&spinner);
	leave(&sleeper);
	assert_false(inflight_wait(20 * CLOCK_NS_PER_MS));
	leave(&spinner);
	assert_true(inflight_wait(0));
	/* Not so the next visit. */
	gate_begin_walk();
	gate_end_walk();
	sleeper = (struct guest){0};
	enter(&sleeper);
	assert_true(inflight_wait(PATIENCE_NS));
	leave(&sleeper);
}

static void more_than_can_be_watched_never_settle(void **state)
{
	static struct guest guests[INFLIGHT_MAX + 1];

	(void)state;
	for (size_t i = 0; i <= INFLIGHT_MAX; i++)
		enter(&guests[i]);
	assert_false(inflight_wait(CLOCK_NS_PER_MS));
	leave(&guests[INFLIGHT_MAX]);
	assert_true(inflight_wait(PATIENCE_NS));
	for (size_t i = 0; i < INFLIGHT_MAX; i++)
		leave(&guests[i]);
}

static void *look_around(void *ret_guest)
{
	return gate_guests(ret_guest, 1) == 1 ? NULL : ret_guest;
}

/* 0: the child's only thread is seen from another, by its new number. */
static int run_child(void)
{
	struct gate_guest guest;
	void *failed = NULL;
	pthread_t thread;

	gate_after_fork_child();
	gate_enter();
	if (pthread_create(&thread, NULL, look_around, &guest) || pthread_join(thread, &failed) ||
	    failed)
		return 1;
	gate_leave();
	return guest.tid == getpid() ? 0 : 2;
}

static void the_child_of_a_fork_has_its_own_number(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	gate_enter(); /* this thread has a slot, which the child's only thread keeps */
	gate_leave();
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(run_child());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(nobody_is_to_be_waited_for, forget),
		cmocka_unit_test_setup(who_has_had_the_processor_is_through, forget),
		cmocka_unit_test_setup(who_has_not_had_it_is_waited_for, forget),
		cmocka_unit_test_setup(who_sleeps_twice_is_in_the_driver, forget),
		cmocka_unit_test_setup(who_was_awake_between_two_sleeps_is_not, forget),
		cmocka_unit_test_setup(who_waits_in_the_kernel_is_through_in_the_end, forget),
		cmocka_unit_test_setup(after_one_has_left_the_others_are_looked_at_again, forget),
		cmocka_unit_test_setup(who_walks_through_a_graph_is_waited_for_to_the_end, forget),
		cmocka_unit_test_setup(another_visit_of_the_same_thread_is_another, forget),
		cmocka_unit_test(an_empty_gate_has_settled),
		cmocka_unit_test(one_that_sleeps_and_one_that_computes_settle),
		cmocka_unit_test(who_is_marked_is_seen_and_does_not_keep_the_gate_from_being_quiet),
		cmocka_unit_test(one_that_walks_does_not_settle_before_it_leaves),
		cmocka_unit_test(more_than_can_be_watched_never_settle),
		cmocka_unit_test(the_child_of_a_fork_has_its_own_number),
	};

	return cmocka_run_group_tests_name("hook/inflight_threads", tests, NULL, NULL);
}
