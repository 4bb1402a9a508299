/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/fold.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void folds_to(const char *text, size_t width, const char *expected)
{
	char *got = NULL;
	size_t len;
	FILE *out = open_memstream(&got, &len);

	assert_non_null(out);
	fold_print(out, text, width);
	assert_int_equal(fclose(out), 0);
	assert_string_equal(got, expected);
	free(got);
}

static void what_fits_is_as_it_was(void **state)
{
	(void)state;
	folds_to("one two\n\nthree\n", 7, "one two\n\nthree\n");
	folds_to("one two three", 0, "one two three");
	folds_to("", 5, "");
}

static void lines_break_between_words_and_hang(void **state)
{
	(void)state;
	folds_to("one two three four\n", 9, "one two\n  three\n  four\n");
	folds_to("  key   a bb ccc dd\n", 16, "  key   a bb ccc\n        dd\n");
	folds_to("    a bb ccc dd\n", 13, "    a bb ccc\n      dd\n");
}

static void a_long_word_stays_whole(void **state)
{
	(void)state;
	folds_to("abcdefgh ij\n", 4, "abcdefgh\n  ij\n");
	folds_to("abcdefgh\n", 4, "abcdefgh\n");
}

static void colours_have_no_width(void **state)
{
	(void)state;
	assert_int_equal(fold_width("\033[1mün\033[0m", strlen("\033[1mün\033[0m")), 2);
	folds_to("\033[31mone\033[0m two\n", 7, "\033[31mone\033[0m two\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_fits_is_as_it_was),
		cmocka_unit_test(lines_break_between_words_and_hang),
		cmocka_unit_test(a_long_word_stays_whole),
		cmocka_unit_test(colours_have_no_width),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
