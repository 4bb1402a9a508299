/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CLI_TOP_H
#define NVS_CLI_TOP_H

/*
 * nvsharectl top without its terminal: a status and keys go in, lines of text and requests come
 * out. top_command.c has the terminal.
 *
 * Pure, but for the locale: text goes to a terminal in the locale's encoding (LC_CTYPE), and each
 * character that this locale cannot show becomes '?'. Single-threaded.
 */

#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct status;

#define TOP_LINE_LEN  1024 /* bytes of a line */
#define TOP_WIDTH_MAX 250  /* columns of a line; a wider terminal stays empty to the right */
#define TOP_INPUT_LEN 48

/* The columns of the table, from the left. The list is sorted by one of them. */
enum top_column {
	TOP_COLUMN_ID,
	TOP_COLUMN_GPU,
	TOP_COLUMN_PID,
	TOP_COLUMN_USER,
	TOP_COLUMN_NAME,
	TOP_COLUMN_PRIORITY,
	TOP_COLUMN_WEIGHT,
	TOP_COLUMN_STATE,
	TOP_COLUMN_CARD, /* bytes on the card */
	TOP_COLUMN_HOST, /* bytes in host memory */
	TOP_COLUMN_USE,  /* part of the time between two statuses with work on the GPU */
	TOP_COLUMN_COUNT,
};

/* The keys that are no characters; the others are their own number. */
enum top_key {
	TOP_KEY_ENTER = '\n',
	TOP_KEY_ESCAPE = 27,
	TOP_KEY_ERASE = 127,
	TOP_KEY_UP = 256,
	TOP_KEY_DOWN,
	TOP_KEY_PAGE_UP,
	TOP_KEY_PAGE_DOWN,
	TOP_KEY_HOME,
	TOP_KEY_END,
};

enum top_prompt {
	TOP_PROMPT_NONE,
	TOP_PROMPT_HELP,
	TOP_PROMPT_FILTER,
	TOP_PROMPT_PRIORITY,
	TOP_PROMPT_WEIGHT,
};

struct top {
	const struct status *status; /* borrowed; NULL: none has come yet */
	const struct status *before; /* the one before; NULL: none, or another scheduler's */
	/* A user's name, or its number as text; stays until the next call. */
	const char *(*user_name)(uint32_t uid);
	enum top_column sort;
	bool is_reversed;
	enum top_prompt prompt;
	uint32_t target;   /* ID of the client that the prompt is about */
	uint32_t selected; /* ID of the client under the cursor; 0: none */
	size_t selected_at;
	size_t first; /* row at the top of the list */
	size_t page;  /* rows of the list, as drawn last */
	char filter[TOP_INPUT_LEN];
	char input[TOP_INPUT_LEN];
	char problem[NVSHARE_TEXT_LEN]; /* why no status comes; "": it comes */
	char answer[NVSHARE_TEXT_LEN];  /* to the last request; the next key removes it */
};

/* A client in the list. */
struct top_row {
	const struct nvshare_status_client *client; /* borrowed from the status */
	double use_percent;                         /* negative: not known */
};

struct top_action {
	enum { TOP_ACTION_NONE, TOP_ACTION_QUIT, TOP_ACTION_REFRESH, TOP_ACTION_SET } type;
	struct nvshare_set set;
};

/* How a line looks, where the terminal can: each line can also be read without. */
enum top_style {
	TOP_STYLE_PLAIN,
	TOP_STYLE_TITLE,
	TOP_STYLE_HEAD,
	TOP_STYLE_RUNNING,
	TOP_STYLE_WAITING,
	TOP_STYLE_BAD,
	TOP_STYLE_COUNT,
};

struct top_line {
	enum top_style style;
	bool is_selected;
	size_t width; /* columns of text */
	char text[TOP_LINE_LEN];
};

void top_init(struct top *top, const char *(*user_name)(uint32_t uid));

/* A new status has come. The caller keeps it, and the one before it, until the next one. */
void top_take(struct top *top, const struct status *status);

/* Takes a key, and returns what the caller is to do. */
struct top_action top_press(struct top *top, int key);

/*
 * The clients that match the filter, sorted. A client matches if each word of the filter is in its
 * ID, "pid:PID", "gpu:N", "gang:N", user, name, pod, state, priority or its gang's name; case does
 * not matter. The caller frees *ret_rows. Returns their number.
 */
size_t top_list(const struct top *top, struct top_row **ret_rows);

/* The cursor stays on its client. If that is gone, it goes to the row that is there now. */
void top_select(struct top *top, const struct top_row *rows, size_t n_rows);

/* Fills n_lines lines of at most width columns. Scrolls, so that the cursor is in sight. */
void top_draw(struct top *top, size_t n_lines, size_t width, struct top_line *lines);

/* ---- top_list.c: what the table and the filter say of a client ---- */

extern const char *const top_column_titles[TOP_COLUMN_COUNT];

#define TOP_CELL_LEN 80

const char *top_state_name(const struct nvshare_status_client *client);

/* The text of a cell. */
void top_cell(const struct top *top, const struct top_row *row, enum top_column column,
	      char ret_text[TOP_CELL_LEN]);

/* "512M", "10.5G": at most six columns. */
const char *top_size(uint64_t bytes, char ret_text[TOP_CELL_LEN]);

/* ---- top_gpu.c ---- */

/* The line of a GPU of top->status, in at most width columns, and its style. line is empty. */
void top_gpu_line(const struct top *top, const struct nvshare_status_gpu *gpu, size_t width,
		  struct top_line *line);

/* ---- top_text.c ---- */

/* a - b, but not below 0. */
uint64_t top_less(uint64_t a, uint64_t b);

/* Appends text, cut to columns, and fills them with blanks; is_right: blanks come first. */
void top_line_cell(struct top_line *line, const char *text, size_t columns, bool is_right);

/* Appends text, as far as the line has less than width columns. */
void top_line_add(struct top_line *line, const char *text, size_t width);

/*
 * Bytes of the words of text that fit into columns; a word that is longer is cut. *ret_next: where
 * the rest begins.
 */
size_t top_text_fold(const char *text, size_t columns, const char **ret_next);

#endif
