/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/usage.h"

#include "ipc/names.h"
#include "nvshare/protocol.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WORDS_MAX 6
#define TEXT_MAX  1024

/* Lines between newlines, the first and last included. */
static void complete(const char *line, char ret[TEXT_MAX])
{
	char copy[128], *args[WORDS_MAX + 1] = {NULL}, *save;
	size_t n = 0;
	FILE *out;

	memset(ret, 0, TEXT_MAX);
	ret[0] = '\n';
	(void)snprintf(copy, sizeof(copy), "%s", line);
	for (char *word = strtok_r(copy, " ", &save); word && n < WORDS_MAX;
	     word = strtok_r(NULL, " ", &save))
		args[n++] = word;
	out = fmemopen(ret + 1, TEXT_MAX - 2, "w");
	assert_non_null(out);
	usage_complete(args, out);
	assert_int_equal(fclose(out), 0);
}

static bool offers(const char *line, const char *word)
{
	char text[TEXT_MAX], wanted[64];

	complete(line, text);
	(void)snprintf(wanted, sizeof(wanted), "\n%s\n", word);
	return strstr(text, wanted) != NULL;
}

static void assert_completes(const char *line, const char *words)
{
	char text[TEXT_MAX];

	complete(line, text);
	assert_string_equal(text + 1, words);
}

static void each_command_is_offered_once(void **state)
{
	(void)state;
	assert_completes(
		"",
		"status\ntop\nconfig\nreload\ntrace\ndoctor\nrun\nqueue\ncancel\nwait\nplace\nevents\nset\n--set-tq\n--anti-thrash\n--help\n--version\n");
	assert_completes("status", "--json\n");
	assert_completes("status --json", "");
	assert_completes("config", "--json\n");
	assert_completes("reload", "");
	assert_completes("doctor", "--pid\n--json\n");
	assert_completes("queue", "--all\n--ended\n--json\nposition\n");
	assert_true(offers("run", "--memory"));
	assert_completes("run --priority", "low\nnormal\nhigh\ncritical\n");
}

static void each_key_that_can_be_set_is_offered(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < NVSHARE_KEY_COUNT; i++)
		assert_true(offers("set", names_key[i]));
}

static void the_words_of_a_key_are_those_that_it_takes(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < NVSHARE_PRIORITY_COUNT; i++)
		assert_true(offers("set priority", names_priority[i]));
	assert_completes("set mode", "auto\nserial\nconcurrent\n");
	assert_completes("set policy", "priority\nfair\ncredit\ndeadline\n");
	assert_completes("set switch-time", "auto\n");
	assert_completes("set slo", "off\n");
}

static void what_people_fill_in_is_not_offered(void **state)
{
	(void)state;
	assert_completes("set tq", "");
	assert_completes("set weight", "");
	assert_completes("set priority high", "");
	assert_completes("-T", "");
	assert_completes("set --save", "");
}

static void options_are_known_by_both_names(void **state)
{
	(void)state;
	assert_completes("-S", "on\noff\n");
	assert_completes("--anti-thrash", "on\noff\n");
}

static void nothing_follows_what_is_unknown_or_complete(void **state)
{
	(void)state;
	assert_completes("bogus", "");
	assert_completes("set colour", "");
	assert_completes("set mode red", "");
	assert_completes("set mode auto", "");
	assert_completes("-Sx", "");
}

static void the_help_has_each_row(void **state)
{
	char text[16384] = "";
	FILE *out = fmemopen(text, sizeof(text), "w");

	(void)state;
	assert_non_null(out);
	usage_print(out);
	assert_int_equal(fclose(out), 0);
	assert_non_null(strstr(text, "\n  status --json       the same for programs\n"));
	assert_non_null(strstr(text, "\n  set weight 1..10000 CLIENT\n"));
	assert_non_null(strstr(text, "\n  -S, --anti-thrash on|off\n                      off: "));
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		assert_true(strlen(line) <= 80);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_command_is_offered_once),
		cmocka_unit_test(each_key_that_can_be_set_is_offered),
		cmocka_unit_test(the_words_of_a_key_are_those_that_it_takes),
		cmocka_unit_test(what_people_fill_in_is_not_offered),
		cmocka_unit_test(options_are_known_by_both_names),
		cmocka_unit_test(nothing_follows_what_is_unknown_or_complete),
		cmocka_unit_test(the_help_has_each_row),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
