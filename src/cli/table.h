/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CLI_TABLE_H
#define NVS_CLI_TABLE_H

/*
 * A table of text whose columns are as wide as they must be. Empty columns are left
 * out. Rows are kept until they are printed; without memory they are lost.
 *
 * Where a line would be too long for the terminal, in this order until it is not: the note
 * goes below its row, columns are left out, the name is cut.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define TABLE_COLUMNS_MAX 20
#define TABLE_CELL_LEN    256 /* longer text is cut */

enum table_align {
	TABLE_ALIGN_LEFT,
	TABLE_ALIGN_RIGHT,
	TABLE_ALIGN_NAME, /* left, and can be cut */
	TABLE_ALIGN_NOTE, /* left, the last one */
};

struct table_column {
	const char *title;
	enum table_align align;
	unsigned int rank; /* the highest is the first that is left out; 0: never */
};

struct table_cell {
	const char *colour; /* an escape sequence, or NULL */
	char text[TABLE_CELL_LEN];
};

struct table {
	const struct table_column *columns; /* borrowed */
	size_t n_columns;
	size_t n_cells;
	size_t size; /* cells allocated */
	struct table_cell *cells;
};

void table_init(struct table *table, const struct table_column *columns, size_t n_columns);
void table_deinit(struct table *table);

/* The next cell, row by row. */
__attribute__((format(printf, 3, 4))) void table_add(struct table *table, const char *colour,
						     const char *format, ...);

/* width: columns of the terminal; 0: as wide as it likes. */
void table_print(const struct table *table, FILE *out, const char *indent, size_t width,
		 bool has_colours);

#endif
