/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/fold.h"

#include <locale.h>
#include <string.h>
#include <wchar.h>

/* Bytes of the escape sequence at s; 0: none begins there. */
static size_t escape_len(const char *s, size_t len)
{
	size_t n = 0;

	if (len < 2 || s[0] != '\033' || s[1] != '[')
		return 0;
	while (n < len && s[n] != 'm')
		n++;
	return n < len ? n + 1 : len;
}

/* Of the character at s, which is not empty; *ret_len: its bytes. A byte that is no character takes
 * one. */
static size_t character_width(const char *s, size_t len, size_t *ret_len)
{
	mbstate_t state = {0};
	wchar_t wide;
	size_t n = mbrtowc(&wide, s, len, &state);
	int columns = n && n <= len ? wcwidth(wide) : -1;

	*ret_len = n && n <= len ? n : 1;
	return columns < 0 ? 1 : (size_t)columns;
}

/* Names are UTF-8 in any locale, and so is what a terminal gets. */
size_t fold_width(const char *text, size_t len)
{
	static locale_t utf8;
	size_t width = 0, n;
	locale_t old;

	if (!utf8)
		utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
	old = uselocale(utf8);
	for (size_t i = 0; i < len; i += n) {
		n = escape_len(text + i, len - i);
		width += n ? 0 : character_width(text + i, len - i, &n);
	}
	(void)uselocale(old);
	return width;
}

size_t fold_fit(const char *text, size_t width)
{
	size_t len = strlen(text);

	while (len > 0 &&
	       (fold_width(text, len) > width || ((unsigned char)text[len] & 0xc0) == 0x80))
		len--;
	return len;
}

static size_t count_blanks(const char *s, size_t len)
{
	size_t n = 0;

	while (n < len && s[n] == ' ')
		n++;
	return n;
}

/* The column in which the rest of a folded line begins. */
static size_t hanging_indent(const char *line, size_t len)
{
	size_t first = count_blanks(line, len);

	for (size_t i = first; i + 1 < len; i++) {
		if (line[i] == ' ' && line[i + 1] == ' ')
			return fold_width(line, i + count_blanks(line + i, len - i));
	}
	return first + 2;
}

/* Offset of the break: after the last word that fits, else after the first; len: all fits. */
static size_t line_break(const char *line, size_t len, size_t width)
{
	size_t found = len;

	for (size_t i = count_blanks(line, len); i < len; i++) {
		if (line[i] != ' ' || line[i - 1] == ' ')
			continue;
		if (fold_width(line, i) > width)
			return found < len ? found : i;
		found = i;
	}
	return fold_width(line, len) > width ? found : len;
}

static void print_line(FILE *out, const char *line, size_t len, size_t width)
{
	size_t indent = hanging_indent(line, len), end = line_break(line, len, width);

	if (indent > width / 2)
		indent = 2;
	while (end < len) {
		(void)fprintf(out, "%.*s\n%*s", (int)end, line, (int)indent, "");
		end += count_blanks(line + end, len - end);
		line += end;
		len -= end;
		end = line_break(line, len, width > indent ? width - indent : 1);
	}
	(void)fprintf(out, "%.*s", (int)len, line);
}

void fold_print(FILE *out, const char *text, size_t width)
{
	while (*text) {
		size_t len = strcspn(text, "\n");

		if (width)
			print_line(out, text, len, width);
		else
			(void)fprintf(out, "%.*s", (int)len, text);
		text += len;
		if (*text) {
			(void)fputc('\n', out);
			text++;
		}
	}
}
