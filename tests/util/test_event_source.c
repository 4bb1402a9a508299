/* SPDX-License-Identifier: Apache-2.0 */
#include "util/event_source.h"

#include "util/container_of.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#define N 2

/* Two sources that are ready. What the first one that is called does to the other: */
enum action { NOTHING, REMOVE, REMOVE_AND_ADD };

struct owner {
	uint64_t n_calls;
	struct event_source source;
};

static struct poller poller;
static struct owner owners[N];
static int fds[N];
static enum action action;

static void on_event(void *context, struct event_source *source, uint32_t events);

static void add(struct owner *owner)
{
	assert_int_equal(
		event_source_add(&poller, &owner->source, fds[owner - owners], EPOLLIN, on_event),
		0);
}

static void on_event(void *context, struct event_source *source, uint32_t events)
{
	struct server *server = context;
	struct owner *owner = container_of(source, struct owner, source);
	struct owner *other = &owners[owner == owners];

	assert_null(server);
	assert_int_equal(events, EPOLLIN);
	owner->n_calls++;
	if (action == NOTHING)
		return;
	event_source_remove(&other->source);
	if (action == REMOVE_AND_ADD)
		add(other);
	action = NOTHING;
}

static int set_up(void **state)
{
	(void)state;
	memset(owners, 0, sizeof(owners));
	memset(&poller, 0, sizeof(poller));
	action = NOTHING;
	if (poller_open(&poller))
		return -1;
	for (int i = 0; i < N; i++) {
		fds[i] = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
		add(&owners[i]);
	}
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	for (int i = 0; i < N; i++)
		(void)close(fds[i]);
	return close(poller.fd);
}

/* One batch: the number of its events, and of the calls that it led to. */
static int handle_batch(uint64_t *ret_n_calls)
{
	struct epoll_event events[N];
	uint64_t before = owners[0].n_calls + owners[1].n_calls;
	int n = poller_wait(&poller, events, N, 0);

	for (int i = 0; i < n; i++)
		poller_dispatch(&poller, NULL, &events[i]);
	*ret_n_calls = owners[0].n_calls + owners[1].n_calls - before;
	return n;
}

static void each_source_is_called_with_its_owner(void **state)
{
	uint64_t n_calls;

	(void)state;
	assert_int_equal(handle_batch(&n_calls), N);
	assert_int_equal(owners[0].n_calls, 1);
	assert_int_equal(owners[1].n_calls, 1);
}

static void an_event_of_a_source_removed_in_its_batch_is_dropped(void **state)
{
	uint64_t n_calls;

	(void)state;
	action = REMOVE;
	assert_int_equal(handle_batch(&n_calls), N);
	assert_int_equal(n_calls, 1);
	assert_int_equal(handle_batch(&n_calls), 1);
	assert_int_equal(n_calls, 1);
}

/* As a peer does that gets the slot of one that is gone. */
static void an_event_from_before_a_source_was_added_is_dropped(void **state)
{
	uint64_t n_calls;

	(void)state;
	action = REMOVE_AND_ADD;
	assert_int_equal(handle_batch(&n_calls), N);
	assert_int_equal(n_calls, 1);
	assert_int_equal(handle_batch(&n_calls), N);
	assert_int_equal(n_calls, N);
}

static void a_source_is_called_for_the_events_that_it_is_watched_for(void **state)
{
	uint64_t n_calls;

	(void)state;
	assert_int_equal(event_source_update(&owners[0].source, 0), 0);
	assert_int_equal(handle_batch(&n_calls), 1);
	assert_int_equal(owners[0].n_calls, 0);
	assert_int_equal(event_source_update(&owners[0].source, EPOLLIN), 0);
	assert_int_equal(handle_batch(&n_calls), N);
}

static void a_source_that_could_not_be_added_is_not_watched(void **state)
{
	struct event_source source = {0};

	(void)state;
	assert_true(event_source_add(&poller, &source, -1, EPOLLIN, on_event) < 0);
	assert_null(source.poller);
	event_source_remove(&source);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(each_source_is_called_with_its_owner),
		T(an_event_of_a_source_removed_in_its_batch_is_dropped),
		T(an_event_from_before_a_source_was_added_is_dropped),
		T(a_source_is_called_for_the_events_that_it_is_watched_for),
		T(a_source_that_could_not_be_added_is_not_watched),
	};

	return cmocka_run_group_tests_name("daemon/event_source", tests, NULL, NULL);
}
