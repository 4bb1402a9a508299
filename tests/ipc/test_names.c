/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

/* The first is the value that has no word, if has_none. */
static void expect_words(const char *const *words, size_t n, bool has_none)
{
	if (has_none)
		assert_null(words[0]);
	for (size_t i = has_none; i < n; i++) {
		assert_non_null(words[i]);
		assert_int_not_equal(words[i][0], '\0');
		for (size_t k = has_none; k < i; k++)
			assert_string_not_equal(words[i], words[k]);
	}
}

static void each_value_has_a_word_of_its_own(void **state)
{
	(void)state;
	expect_words(names_mode, N_OF(names_mode), false);
	expect_words(names_policy, N_OF(names_policy), false);
	expect_words(names_priority, N_OF(names_priority), false);
	expect_words(names_switch_mode, N_OF(names_switch_mode), false);
	expect_words(names_key, N_OF(names_key), false);
	expect_words(names_trace, N_OF(names_trace), false);
	expect_words(names_wait, N_OF(names_wait), true);
	expect_words(names_obstacle, N_OF(names_obstacle), true);
	expect_words(names_event_level, N_OF(names_event_level), false);
	expect_words(names_event, N_OF(names_event), false);
	expect_words(names_job_state, N_OF(names_job_state), false);
	expect_words(names_job_why, N_OF(names_job_why), true);
	expect_words(names_job_end, N_OF(names_job_end), true);
	expect_words(names_verdict, N_OF(names_verdict), false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_value_has_a_word_of_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
