/* SPDX-License-Identifier: Apache-2.0 */
#include "util/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct range {
	uint32_t first, last;
};

/*
 * Characters that are invisible, or change how their neighbours look. With them, two different
 * names could look the same. From Unicode 15: controls, formats, default ignorables and
 * noncharacters. Sorted.
 */
static const struct range unseen[] = {
	{0x0000, 0x001f},    /* controls */
	{0x007f, 0x009f},    /* controls */
	{0x00ad, 0x00ad},    /* soft hyphen */
	{0x034f, 0x034f},    /* grapheme joiner */
	{0x061c, 0x061c},    /* Arabic letter mark */
	{0x115f, 0x1160},    /* Hangul fillers */
	{0x17b4, 0x17b5},    /* invisible Khmer vowels */
	{0x180b, 0x180f},    /* Mongolian selectors */
	{0x200b, 0x200f},    /* zero width, direction marks */
	{0x2028, 0x202e},    /* separators of lines, directions */
	{0x2060, 0x206f},    /* joiners, invisible operators, isolates */
	{0x3164, 0x3164},    /* Hangul filler */
	{0xd800, 0xdfff},    /* halves of surrogate pairs */
	{0xfdd0, 0xfdef},    /* noncharacters */
	{0xfe00, 0xfe0f},    /* variation selectors */
	{0xfeff, 0xfeff},    /* byte order mark */
	{0xffa0, 0xffa0},    /* Hangul filler of half width */
	{0xfff0, 0xfffb},    /* unassigned, interlinear annotations */
	{0xfffe, 0xffff},    /* noncharacters */
	{0x13430, 0x1343f},  /* hieroglyph formats */
	{0x1bca0, 0x1bca3},  /* shorthand formats */
	{0x1d173, 0x1d17a},  /* music formats */
	{0x1fffe, 0x1ffff},  /* noncharacters */
	{0x2fffe, 0x2ffff},  /* noncharacters */
	{0x3fffe, 0x10ffff}, /* empty planes, tags, selectors, private use */
};

static bool is_seen(uint32_t code)
{
	for (size_t i = 0; i < sizeof(unseen) / sizeof(unseen[0]) && unseen[i].first <= code; i++) {
		if (code <= unseen[i].last)
			return false;
	}
	return code <= 0x10ffff;
}

/* Bytes of the character at s; 0: not valid UTF-8, or invisible. */
static size_t sequence_len(const unsigned char *s)
{
	uint32_t code;
	uint32_t min;
	size_t n;

	if (s[0] < 0x80)
		return is_seen(s[0]) ? 1 : 0;
	if ((s[0] & 0xe0) == 0xc0) {
		n = 2;
		code = s[0] & 0x1f;
		min = 0x80;
	} else if ((s[0] & 0xf0) == 0xe0) {
		n = 3;
		code = s[0] & 0x0f;
		min = 0x800;
	} else if ((s[0] & 0xf8) == 0xf0) {
		n = 4;
		code = s[0] & 0x07;
		min = 0x10000;
	} else {
		return 0;
	}
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80) /* also stops at the NUL */
			return 0;
		code = code << 6 | (s[i] & 0x3f);
	}
	return code >= min && is_seen(code) ? n : 0;
}

const char *text_quote(struct text_quoted *ret, const char *s)
{
	size_t at = 0;

	ret->text[at++] = '"';
	/* Room for an escaped byte, the last quote and the NUL. */
	for (; *s && at + 4 <= sizeof(ret->text); s++) {
		if (*s == '"' || *s == '\\')
			ret->text[at++] = '\\';
		ret->text[at++] = *s;
	}
	ret->text[at++] = '"';
	ret->text[at] = '\0';
	return ret->text;
}

void text_sanitize(char *s)
{
	unsigned char *at = (unsigned char *)s;

	while (*at) {
		size_t n = sequence_len(at);

		if (n == 0)
			*at = '?';
		else if (*at == '"')
			*at = '\'';
		at += n ? n : 1;
	}
}
