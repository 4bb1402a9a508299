/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/table.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define BOLD  "\033[1m"
#define RESET "\033[0m"

void table_init(struct table *table, const struct table_column *columns, size_t n_columns)
{
	assert(n_columns <= TABLE_COLUMNS_MAX);
	*table = (struct table){.columns = columns, .n_columns = n_columns};
}

void table_deinit(struct table *table)
{
	free(table->cells);
	table->cells = NULL;
}

/* Cuts what snprintf may have cut in the middle of a character. */
static void mend_end(char *s)
{
	size_t len = strlen(s);
	size_t start = len;

	while (start > 0 && ((unsigned char)s[start - 1] & 0xc0) == 0x80)
		start--;
	if (start > 0 && ((unsigned char)s[start - 1] & 0xc0) == 0xc0) {
		unsigned char lead = (unsigned char)s[start - 1];
		size_t need = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;

		if (len - (start - 1) < need)
			s[start - 1] = '\0';
	}
}

void table_add(struct table *table, const char *colour, const char *format, ...)
{
	struct table_cell *cell;
	va_list args;

	if (table->n_cells == table->size) {
		size_t size = table->size ? table->size * 2 : 16 * table->n_columns;
		struct table_cell *cells = realloc(table->cells, size * sizeof(*cells));

		if (!cells)
			return;
		table->cells = cells;
		table->size = size;
	}
	cell = &table->cells[table->n_cells++];
	cell->colour = colour;
	va_start(args, format);
	(void)vsnprintf(cell->text, sizeof(cell->text), format, args);
	va_end(args);
	mend_end(cell->text);
}

/* Columns on a terminal, near enough: characters, not bytes. */
static size_t width(const char *s)
{
	size_t n = 0;

	for (; *s; s++)
		n += ((unsigned char)*s & 0xc0) != 0x80;
	return n;
}

static void print_cell(FILE *out, const char *text, const char *colour, enum table_align align,
		       size_t pad)
{
	if (align == TABLE_ALIGN_RIGHT)
		(void)fprintf(out, "%*s", (int)pad, "");
	(void)fprintf(out, "%s%s%s", colour ? colour : "", text, colour ? RESET : "");
	if (align == TABLE_ALIGN_LEFT)
		(void)fprintf(out, "%*s", (int)pad, "");
}

/* cells NULL: the titles. */
static void print_row(const struct table *table, FILE *out, const struct table_cell *cells,
		      const size_t *widths, bool has_colours)
{
	const char *gap = "";
	size_t last = 0;

	for (size_t i = 0; i < table->n_columns; i++) {
		if (widths[i] && (!cells || cells[i].text[0]))
			last = i;
	}
	for (size_t i = 0; i <= last; i++) {
		const char *text = cells ? cells[i].text : table->columns[i].title;
		const char *colour = cells ? cells[i].colour : BOLD;
		enum table_align align = table->columns[i].align;
		size_t pad;

		if (widths[i] == 0)
			continue;
		pad = widths[i] - width(text);
		if (i == last && align == TABLE_ALIGN_LEFT)
			pad = 0; /* no blanks at the end of a line */
		(void)fputs(gap, out);
		print_cell(out, text, has_colours ? colour : NULL, align, pad);
		gap = "  ";
	}
	(void)fputc('\n', out);
}

void table_print(const struct table *table, FILE *out, const char *indent, bool has_colours)
{
	size_t n_rows = table->n_cells / table->n_columns;
	size_t widths[TABLE_COLUMNS_MAX] = {0};

	for (size_t i = 0; i < n_rows * table->n_columns; i++) {
		size_t w = width(table->cells[i].text);

		if (w > widths[i % table->n_columns])
			widths[i % table->n_columns] = w;
	}
	for (size_t i = 0; i < table->n_columns; i++) {
		size_t w = width(table->columns[i].title);

		if (widths[i] && w > widths[i])
			widths[i] = w;
	}
	(void)fputs(indent, out);
	print_row(table, out, NULL, widths, has_colours);
	for (size_t i = 0; i < n_rows; i++) {
		(void)fputs(indent, out);
		print_row(table, out, table->cells + i * table->n_columns, widths, has_colours);
	}
}
