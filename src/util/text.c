/* SPDX-License-Identifier: Apache-2.0 */
#include "util/text.h"

#include <stddef.h>
#include <stdint.h>

/* Bytes of the valid, printable UTF-8 sequence at s; 0 if there is none. */
static size_t sequence_len(const unsigned char *s)
{
	uint32_t code;
	uint32_t min;
	size_t n;

	if (s[0] < 0x80)
		return s[0] >= 0x20 && s[0] != 0x7f ? 1 : 0;
	if ((s[0] & 0xe0) == 0xc0) {
		n = 2;
		code = s[0] & 0x1f;
		min = 0xa0; /* 0x80..0x9f are control characters too */
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
		if ((s[i] & 0xc0) != 0x80) /* the NUL as well */
			return 0;
		code = code << 6 | (s[i] & 0x3f);
	}
	if (code < min || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
		return 0;
	/* Line separators, and marks that turn the direction of what follows. */
	if ((code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069))
		return 0;
	return n;
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
