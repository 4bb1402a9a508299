/* SPDX-License-Identifier: Apache-2.0 */
#include "util/setting.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define N(array) (sizeof(array) / sizeof((array)[0]))

struct owner {
	bool truth;
	unsigned int word;
	uint32_t number;
	uint64_t wide;
	char own[8];
};

static const char *const words[] = {"auto", "serial"};

static int parse_own(const struct setting *setting, const char *value, void *field)
{
	if (strlen(value) >= setting->max)
		return -ERANGE;
	(void)strcpy(field, value);
	return 0;
}

static void print_own(const void *field, char *buf, size_t size)
{
	(void)snprintf(buf, size, "%s", (const char *)field);
}

static const struct setting_form own_form = {parse_own, print_own, "a short text"};

#define NS    1000000000ull
#define WIDE  SETTING_AT(struct owner, wide, uint64_t)
#define SMALL SETTING_AT(struct owner, number, uint32_t)

/* Of each kind: what is allowed, values that are taken and printed again, and one that is not. */
static const struct {
	struct setting setting;
	const char *allowed;
	const char *good[2];
	const char *bad;
	int r;
} kinds[] = {
	{{.kind = SETTING_BOOL, .offset = SETTING_AT(struct owner, truth, bool)},
	 "0 or 1",
	 {"0", "1"},
	 "2",
	 -EINVAL},
	{{.kind = SETTING_ENUM,
	  .names = words,
	  .max = N(words),
	  .offset = SETTING_AT(struct owner, word, unsigned int)},
	 "one of auto, serial",
	 {"auto", "serial"},
	 "aut",
	 -EINVAL},
	{{.kind = SETTING_NUMBER, .min = 5, .max = 10, .offset = SMALL},
	 "a whole number from 5 to 10",
	 {"5", "10"},
	 "11",
	 -ERANGE},
	{{.kind = SETTING_SIZE, .offset = WIDE},
	 "a size in bytes, or with K, M, G or T",
	 {"0", "512"},
	 "5x",
	 -EINVAL},
	{{.kind = SETTING_DECIMAL, .min = NS / 100, .max = 86400 * NS, .offset = WIDE},
	 "seconds from 0.01 to 86400",
	 {"0.01", "86399.999"},
	 "0.009",
	 -ERANGE},
	{{.kind = SETTING_SECONDS, .min = 0, .max = 86400 * NS, .offset = WIDE},
	 "whole seconds from 0 to 86400",
	 {"0", "86400"},
	 "0.5",
	 -EINVAL},
	{{.kind = SETTING_MS, .min = NS / 1000, .max = NS, .offset = WIDE},
	 "milliseconds from 1 to 1000",
	 {"1", "1000"},
	 "0",
	 -ERANGE},
	{{.kind = SETTING_US, .min = 0, .max = NS, .offset = WIDE},
	 "microseconds from 0 to 1000000",
	 {"0", "1000000"},
	 "1000001",
	 -ERANGE},
	{{.kind = SETTING_SLICE, .min = 100, .max = 200, .offset = WIDE},
	 "microseconds from 100 to 200",
	 {"100", "200"},
	 "99",
	 -ERANGE},
	{{.kind = SETTING_SLO, .min = 1, .max = 3600000000u, .offset = SMALL},
	 "milliseconds from 0.001 to 3600000",
	 {"0.001", "3599999.999"},
	 "3600000.001",
	 -ERANGE},
	{{.kind = SETTING_OWN, .max = 8, .form = &own_form, .offset = offsetof(struct owner, own)},
	 "a short text",
	 {"", "seven77"},
	 "eight888",
	 -ERANGE},
};

static void each_kind_takes_prints_and_refuses(void **state)
{
	(void)state;
	for (size_t i = 0; i < N(kinds); i++) {
		const struct setting *setting = &kinds[i].setting;
		char text[SETTING_TEXT_LEN];
		struct owner owner, before;

		print_message("%s\n", kinds[i].allowed);
		setting_allowed(setting, text);
		assert_string_equal(text, kinds[i].allowed);
		for (size_t n = 0; n < N(kinds[i].good); n++) {
			memset(&owner, 0, sizeof(owner));
			assert_int_equal(setting_parse(setting, kinds[i].good[n], &owner), 0);
			setting_print(setting, &owner, text);
			assert_string_equal(text, kinds[i].good[n]);
		}
		memcpy(&before, &owner, sizeof(owner));
		assert_int_equal(setting_parse(setting, kinds[i].bad, &owner), kinds[i].r);
		assert_memory_equal(&owner, &before, sizeof(owner));
	}
}

static void times_are_kept_in_the_unit_of_the_field(void **state)
{
	static const struct {
		enum setting_kind kind;
		const char *text;
		uint64_t value;
	} table[] = {
		{SETTING_DECIMAL, "0.25", NS / 4}, {SETTING_SECONDS, "3", 3 * NS},
		{SETTING_MS, "3", 3000000},        {SETTING_US, "3", 3000},
		{SETTING_SLICE, "3", 3},
	};

	(void)state;
	for (size_t i = 0; i < N(table); i++) {
		struct setting setting = {.kind = table[i].kind, .max = UINT64_MAX, .offset = WIDE};
		struct owner owner;

		assert_int_equal(setting_parse(&setting, table[i].text, &owner), 0);
		assert_true(owner.wide == table[i].value);
	}
}

static void a_row_s_own_words_stand_for_its_default(void **state)
{
	struct setting setting = {.kind = SETTING_NUMBER, .max = 100, .offset = SMALL};
	struct owner owner = {.number = 7};
	char text[SETTING_TEXT_LEN];

	(void)state;
	setting_print_default(&setting, &owner, text);
	assert_string_equal(text, "7");
	setting.unset = "none";
	setting_print_default(&setting, &owner, text);
	assert_string_equal(text, "none");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_kind_takes_prints_and_refuses),
		cmocka_unit_test(times_are_kept_in_the_unit_of_the_field),
		cmocka_unit_test(a_row_s_own_words_stand_for_its_default),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
