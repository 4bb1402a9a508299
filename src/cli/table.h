/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CLI_TABLE_H
#define NVS_CLI_TABLE_H

/*
 * A table of text. Each column is as wide as its widest cell, and empty columns are left out.
 * The table keeps cells until table_deinit(). A cell is lost if there is no memory for it.
 *
 * A table that is too wide for the terminal is narrowed by these steps, until it fits: print
 * the note below its row, leave columns out, cut the name.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define TABLE_COLUMNS_MAX 20
#define TABLE_CELL_LEN    256 /* longer text is cut */

enum table_align {
	TABLE_ALIGN_LEFT,
	TABLE_ALIGN_RIGHT,
	TABLE_ALIGN_NAME, /* left; may be cut */
	TABLE_ALIGN_NOTE, /* left; the last column only */
};

struct table_column {
	const char *title;
	enum table_align align;
	unsigned int rank; /* the column of the highest rank is left out first; 0: never */
};

struct table_cell {
	const char *colour; /* an escape sequence, borrowed, or NULL */
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

/* Adds the next cell, row by row. */
__attribute__((format(printf, 3, 4))) void table_add(struct table *table, const char *colour,
						     const char *format, ...);

/* Prints titles and complete rows. width: columns of the terminal; 0: no limit. */
void table_print(const struct table *table, FILE *out, const char *indent, size_t width,
		 bool has_colours);

#endif
