/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/table.h"

#include "cli/fold.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define BOLD  "\033[1m"
#define RESET "\033[0m"

#define NAME_MIN 8

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

/* snprintf may have cut a UTF-8 character in its middle: removes such a rest at the end. */
static void cut_broken_character(char *s)
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
	cut_broken_character(cell->text);
}

static size_t cell_width(const char *text)
{
	return fold_width(text, strlen(text));
}

struct layout {
	FILE *out;
	const char *indent;
	size_t width;
	bool has_colours;
	size_t widths[TABLE_COLUMNS_MAX]; /* 0: the column is left out */
	size_t note;                      /* the column that goes below rows; n_columns: none */
};

static bool is_left(enum table_align align)
{
	return align != TABLE_ALIGN_RIGHT;
}

static void print_cell(const struct layout *layout, const char *text, const char *colour,
		       enum table_align align, size_t width, bool is_last)
{
	bool is_cut = cell_width(text) > width && width > 2;
	size_t len = is_cut ? fold_fit(text, width - 2) : strlen(text);
	size_t used = fold_width(text, len) + (is_cut ? 2 : 0);
	int pad = used < width ? (int)(width - used) : 0;

	if (!layout->has_colours)
		colour = NULL;
	if (!is_left(align))
		(void)fprintf(layout->out, "%*s", pad, "");
	(void)fprintf(layout->out, "%s%.*s%s%s", colour ? colour : "", (int)len, text,
		      is_cut ? ".." : "", colour ? RESET : "");
	if (is_left(align) && !is_last) /* so that no line ends with blanks */
		(void)fprintf(layout->out, "%*s", pad, "");
}

static void print_note(const struct layout *layout, const struct table_cell *cell)
{
	char line[TABLE_CELL_LEN + 64];

	if (!cell->text[0])
		return;
	(void)snprintf(line, sizeof(line), "%s    %s%s%s\n", layout->indent,
		       layout->has_colours && cell->colour ? cell->colour : "", cell->text,
		       layout->has_colours && cell->colour ? RESET : "");
	fold_print(layout->out, line, layout->width);
}

/* cells NULL: prints the titles. */
static void print_row(const struct table *table, const struct table_cell *cells,
		      const struct layout *layout)
{
	const char *gap = layout->indent;
	size_t last = 0;

	for (size_t i = 0; i < table->n_columns; i++) {
		if (layout->widths[i] && (!cells || cells[i].text[0]))
			last = i;
	}
	for (size_t i = 0; i <= last; i++) {
		if (layout->widths[i] == 0)
			continue;
		(void)fputs(gap, layout->out);
		print_cell(layout, cells ? cells[i].text : table->columns[i].title,
			   cells ? cells[i].colour : BOLD, table->columns[i].align,
			   layout->widths[i], i == last);
		gap = "  ";
	}
	(void)fputc('\n', layout->out);
	if (cells && layout->note < table->n_columns)
		print_note(layout, &cells[layout->note]);
}

static size_t line_width(const struct table *table, const struct layout *layout)
{
	size_t width = 0;

	for (size_t i = 0; i < table->n_columns; i++)
		width += layout->widths[i] ? layout->widths[i] + 2 : 0;
	return width - (width ? 2 : 0) + cell_width(layout->indent);
}

/* The next column to leave out; n_columns: all others must stay. */
static size_t dispensable_column(const struct table *table, const struct layout *layout)
{
	size_t least = table->n_columns;

	for (size_t i = 0; i < table->n_columns; i++) {
		if (layout->widths[i] && table->columns[i].rank &&
		    (least == table->n_columns ||
		     table->columns[i].rank > table->columns[least].rank))
			least = i;
	}
	return least;
}

static void shrink_names(const struct table *table, struct layout *layout)
{
	size_t too_many = line_width(table, layout) - layout->width;

	for (size_t i = 0; i < table->n_columns; i++) {
		if (table->columns[i].align == TABLE_ALIGN_NAME &&
		    layout->widths[i] >= too_many + NAME_MIN)
			layout->widths[i] -= too_many;
	}
}

static void fit_width(const struct table *table, struct layout *layout)
{
	size_t last = table->n_columns - 1, least;

	if (!layout->width || line_width(table, layout) <= layout->width)
		return;
	if (table->columns[last].align == TABLE_ALIGN_NOTE && layout->widths[last]) {
		layout->note = last;
		layout->widths[last] = 0;
	}
	while (line_width(table, layout) > layout->width &&
	       (least = dispensable_column(table, layout)) < table->n_columns)
		layout->widths[least] = 0;
	if (line_width(table, layout) > layout->width)
		shrink_names(table, layout);
}

void table_print(const struct table *table, FILE *out, const char *indent, size_t width,
		 bool has_colours)
{
	size_t n_rows = table->n_cells / table->n_columns;
	struct layout layout = {
		.out = out,
		.indent = indent,
		.width = width,
		.has_colours = has_colours,
		.note = table->n_columns,
	};

	for (size_t i = 0; i < n_rows * table->n_columns; i++) {
		size_t w = cell_width(table->cells[i].text);

		if (w > layout.widths[i % table->n_columns])
			layout.widths[i % table->n_columns] = w;
	}
	for (size_t i = 0; i < table->n_columns; i++) {
		size_t w = cell_width(table->columns[i].title);

		if (layout.widths[i] && w > layout.widths[i])
			layout.widths[i] = w;
	}
	fit_width(table, &layout);
	print_row(table, NULL, &layout);
	for (size_t i = 0; i < n_rows; i++)
		print_row(table, table->cells + i * table->n_columns, &layout);
}
