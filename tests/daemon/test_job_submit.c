/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/job_submit.h"

#include "daemon/jobs/job_queue.h"
#include "daemon/server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static struct server server;

static struct jobs_request request_of(uint32_t owner, const char *word)
{
	struct job_entry entry = {.owner = owner, .words_owner = owner, .memory = 1};
	struct jobs_event event;

	(void)snprintf(entry.submit.apart, sizeof(entry.submit.apart), "%s", word);
	(void)snprintf(entry.gang.name, sizeof(entry.gang.name), "%s", word);
	assert_int_equal(job_submit_event(&server, &entry, &event, NULL), 0);
	return event.request;
}

/* A job waits without a bound for jobs of the same word, so nobody else may choose that word. */
static void no_word_of_one_user_is_that_of_another(void **state)
{
	static const struct {
		uint32_t owner, other;
		const char *word, *others;
	} rows[] = {
		{1000, 1001, "a", "a"}, {1000, 1001, "c", "b"},    {0, 3, "a", "b"},
		{0x61, 0x62, "b", "a"}, {0x80000000, 0, "x", "x"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct jobs_request one = request_of(rows[i].owner, rows[i].word);
		struct jobs_request other = request_of(rows[i].other, rows[i].others);

		assert_int_not_equal(one.apart, other.apart);
		assert_int_not_equal(one.gang, other.gang);
		assert_int_equal(one.apart, request_of(rows[i].owner, rows[i].word).apart);
	}
}

static void no_word_is_no_number(void **state)
{
	(void)state;
	assert_int_equal(request_of(1000, "").apart, 0);
	assert_int_equal(request_of(1000, "").gang, 0);
	assert_int_not_equal(request_of(1000, "a").apart, request_of(1000, "b").apart);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_word_of_one_user_is_that_of_another),
		cmocka_unit_test(no_word_is_no_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
