/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/top.h"

#include <stdlib.h>
#include <string.h>
#include <wchar.h>

/* One character, as a terminal of this locale shows it. */
struct glyph {
	const char *bytes;
	size_t len;
	size_t columns;
	size_t n_read; /* bytes that it takes in the text; 0: the text ends */
};

/*
 * A character that takes no column would hide or join its neighbours, and a byte that is no
 * character would move the cursor by an unknown number of columns.
 */
static struct glyph glyph_at(const char *text)
{
	mbstate_t state = {0};
	wchar_t wide;
	size_t len = mbrtowc(&wide, text, strnlen(text, MB_CUR_MAX), &state);
	int columns;

	if (*text == '\0')
		return (struct glyph){.bytes = text};
	if (len == 0 || len > MB_CUR_MAX)
		return (struct glyph){"?", 1, 1, 1};
	columns = wcwidth(wide);
	if (columns <= 0)
		return (struct glyph){"?", 1, 1, len};
	return (struct glyph){text, len, (size_t)columns, len};
}

static size_t text_width(const char *text)
{
	size_t width = 0;
	struct glyph glyph;

	for (; (glyph = glyph_at(text)).n_read; text += glyph.n_read)
		width += glyph.columns;
	return width;
}

void top_line_add(struct top_line *line, const char *text, size_t width)
{
	size_t len = strlen(line->text);
	struct glyph glyph;

	for (; (glyph = glyph_at(text)).n_read; text += glyph.n_read) {
		if (line->width + glyph.columns > width || len + glyph.len >= TOP_LINE_LEN)
			break;
		memcpy(line->text + len, glyph.bytes, glyph.len);
		len += glyph.len;
		line->width += glyph.columns;
	}
	line->text[len] = '\0';
}

static void line_pad(struct top_line *line, size_t width)
{
	while (line->width < width && strlen(line->text) + 1 < TOP_LINE_LEN)
		top_line_add(line, " ", width);
}

void top_line_cell(struct top_line *line, const char *text, size_t columns, bool is_right)
{
	size_t end = line->width + columns, width = text_width(text);

	if (is_right && width < columns)
		line_pad(line, end - width);
	top_line_add(line, text, end);
	line_pad(line, end);
}

size_t top_text_fold(const char *text, size_t columns, const char **ret_next)
{
	size_t width = 0, at = 0, blank = 0;
	struct glyph glyph;

	for (; (glyph = glyph_at(text + at)).n_read; at += glyph.n_read) {
		if (width + glyph.columns > columns)
			break;
		if (text[at] == ' ')
			blank = at;
		width += glyph.columns;
	}
	if (glyph.n_read && text[at] != ' ' && blank > 0)
		at = blank;
	*ret_next = text + at + strspn(text + at, " ");
	return at;
}

uint64_t top_less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}
