/* SPDX-License-Identifier: Apache-2.0 */
#include "util/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void what_can_steer_a_terminal_is_replaced(void **state)
{
	static const char *const table[][2] = {
		{"python train.py", "python train.py"},
		{"", ""},
		{"a\033[2Jb", "a?[2Jb"},
		{"a\nb\tc\x7f", "a?b?c?"},
		{"say \"hi\"", "say 'hi'"},
		{"Grüße 模型 🚀", "Grüße 模型 🚀"},
		{"\xc2\x9b"
		 "31m",
		 "??31m"},               /* a control character in UTF-8 */
		{"\xff\xfe", "??"},      /* no UTF-8 at all */
		{"\xc0\xaf", "??"},      /* overlong */
		{"\xed\xa0\x80", "???"}, /* half a surrogate pair */
		{"\xe2\x80\xae"
		 "gpj",
		 "???gpj"},                   /* turns the direction of writing */
		{"cut \xe2\x82", "cut ??"},   /* the end falls into a character */
		{"\xf4\x90\x80\x80", "????"}, /* beyond Unicode */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		char buf[64];

		(void)snprintf(buf, sizeof(buf), "%s", table[i][0]);
		text_sanitize(buf);
		assert_string_equal(buf, table[i][1]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_can_steer_a_terminal_is_replaced),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
