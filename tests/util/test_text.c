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

/* The same, as UTF-8 of 1 to 4 bytes. */
static size_t encode(uint32_t code, char *buf)
{
	static const unsigned char marks[] = {0, 0, 0xc0, 0xe0, 0xf0};
	size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;

	buf[n] = '\0';
	for (size_t i = n; i-- > 1; code >>= 6)
		buf[i] = (char)(0x80 | (code & 0x3f));
	buf[0] = (char)(marks[n] | code);
	return n;
}

static void what_is_not_seen_is_replaced(void **state)
{
	static const struct {
		uint32_t first, last;
	} rows[] = {
		{0x01, 0x1f},       {0x7f, 0x9f},       {0xad, 0xad},         {0x61c, 0x61c},
		{0x180e, 0x180e},   {0x200b, 0x200f},   {0x2028, 0x2029},     {0x202a, 0x202e},
		{0x2060, 0x206f},   {0xd800, 0xdfff},   {0xfe00, 0xfe0f},     {0xfeff, 0xfeff},
		{0xfff9, 0xfffb},   {0xfffe, 0xffff},   {0x1fffe, 0x1ffff},   {0x40000, 0x40000},
		{0xe0000, 0xe007f}, {0xe0100, 0xe01ef}, {0x10fffe, 0x10ffff}, {0x110000, 0x110000},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (uint32_t code = rows[i].first; code <= rows[i].last; code++) {
			char buf[8];
			size_t n = encode(code, buf);

			text_sanitize(buf);
			if (strlen(buf) != n || strspn(buf, "?") != n)
				fail_msg("U+%04X stays", code);
		}
	}
}

static void what_is_seen_stays(void **state)
{
	static const uint32_t codes[] = {
		0x20,    0x21,    0x23,    0x7e,    0xa0,    0xa1,   0xac,   0xae,
		0xe9,    0x3b1,   0x43f,   0x61b,   0x627,   0x180a, 0x1810, 0x200a,
		0x2010,  0x2027,  0x202f,  0x205f,  0x2070,  0x3042, 0x4e2d, 0xd7a3,
		0xe0b0,  0xfdcf,  0xfe10,  0xfefe,  0xff01,  0xfffc, 0xfffd, 0x10000,
		0x1d172, 0x1f680, 0x1fffd, 0x20000, 0x3134a,
	};

	(void)state;
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		char buf[8], kept[8];

		(void)encode(codes[i], buf);
		(void)memcpy(kept, buf, sizeof(kept));
		text_sanitize(buf);
		if (strcmp(buf, kept) != 0)
			fail_msg("U+%04X does not stay", codes[i]);
	}
}

static void what_is_quoted_comes_back(void **state)
{
	static const struct {
		const char *text, *quoted;
	} rows[] = {
		{"", "\"\""},
		{"two words", "\"two words\""},
		{"C:\\dir\\", "\"C:\\\\dir\\\\\""},
		{"say \"yes\"", "\"say \\\"yes\\\"\""},
		{"a=b", "\"a=b\""},
	};
	struct text_quoted quoted;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_string_equal(text_quote(&quoted, rows[i].text), rows[i].quoted);
}

static void what_has_no_room_is_left_out_whole(void **state)
{
	char text[1001];
	struct text_quoted quoted;
	size_t len;

	(void)state;
	for (size_t n_plain = 0; n_plain < 2; n_plain++) {
		memset(text, '\\', sizeof(text) - 1);
		memset(text, 'x', n_plain);
		text[sizeof(text) - 1] = '\0';
		len = strlen(text_quote(&quoted, text));
		assert_in_range(len, sizeof(quoted) - 3, sizeof(quoted) - 1);
		assert_int_equal(quoted.text[len - 1], '"');
		/* Pairs of backslashes, so the last quote is not escaped. */
		assert_int_equal((len - 2 - n_plain) % 2, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_can_steer_a_terminal_is_replaced),
		cmocka_unit_test(what_is_not_seen_is_replaced),
		cmocka_unit_test(what_is_seen_stays),
		cmocka_unit_test(what_is_quoted_comes_back),
		cmocka_unit_test(what_has_no_room_is_left_out_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
