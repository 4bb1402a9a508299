/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/status.h"
#include "cli/top.h"
#include "cli/view.h"

#include "ipc/names.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_WIDTH_MIN 12
#define NAME_WIDTH_MAX 24
#define NOTE_WIDTH_MIN 20
#define N_DETAILS      2
#define LINES_SMALL    12 /* with fewer lines there are no details */

/* The lines that are filled so far. */
struct screen {
	struct top_line *lines;
	size_t n, n_max, width;
};

/* The next line, empty; beyond the last one it is the last one again. */
static struct top_line *screen_next(struct screen *screen, enum top_style style)
{
	struct top_line *line;

	screen->n += screen->n < screen->n_max;
	line = &screen->lines[screen->n - 1];
	line->style = style;
	line->is_selected = false;
	line->width = 0;
	line->text[0] = '\0';
	return line;
}

__attribute__((format(printf, 3, 4))) static void screen_add(const struct screen *screen,
							     struct top_line *line,
							     const char *format, ...)
{
	char text[TOP_LINE_LEN];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	top_line_add(line, text, screen->width);
}

/* Fills the line with blanks, so that it is a bar where the terminal can. */
static void screen_fill(const struct screen *screen, struct top_line *line)
{
	if (line->width < screen->width)
		top_line_cell(line, "", screen->width - line->width, false);
}

/* Text in at most n lines; fewer if it is short. */
static void screen_fold(struct screen *screen, enum top_style style, const char *text, size_t n)
{
	for (size_t i = 0; i < n && *text; i++) {
		const char *next;
		size_t len = top_text_fold(text, screen->width, &next);

		screen_add(screen, screen_next(screen, style), "%.*s", (int)len, text);
		text = next;
	}
}

static void draw_title(const struct top *top, struct screen *screen)
{
	struct top_line *line =
		screen_next(screen, top->problem[0] ? TOP_STYLE_BAD : TOP_STYLE_TITLE);
	const struct nvshare_status_node *node = top->status ? &top->status->node : NULL;
	char up[VIEW_DURATION_LEN];

	if (top->problem[0])
		screen_add(screen, line, "NO SCHEDULER, trying again%s",
			   node ? "; below is its last status" : "");
	else if (!node)
		screen_add(screen, line, "nvshare: asking the scheduler");
	else
		screen_add(screen, line, "nvshare %s  up %s  mode %s  policy %s%s", node->version,
			   view_duration(node->uptime_ns, up), names_mode[node->mode],
			   names_policy[node->policy],
			   node->anti_thrash ? "" : "  nobody takes turns (-S off)");
	if (top->problem[0])
		screen_fold(screen, TOP_STYLE_BAD, top->problem, 3);
}

/* ---- GPUs --------------------------------------------------------------------- */

/* At most a quarter of the lines. */
static void draw_gpus(const struct top *top, struct screen *screen)
{
	size_t n = top->status->n_gpus, n_max = screen->n_max / 4 ? screen->n_max / 4 : 1;
	size_t n_shown = n <= n_max ? n : n_max - 1;

	for (size_t i = 0; i < n_shown; i++)
		top_gpu_line(top, &top->status->gpus[i], screen->width,
			     screen_next(screen, TOP_STYLE_PLAIN));
	if (n_shown < n)
		screen_add(screen, screen_next(screen, TOP_STYLE_PLAIN),
			   "and %zu more GPUs: a taller window shows them", n - n_shown);
	if (n == 0)
		screen_add(screen, screen_next(screen, TOP_STYLE_PLAIN), "No GPU yet");
}

/* ---- clients ------------------------------------------------------------------ */

static const struct {
	size_t width;
	bool is_right;
	unsigned int rank; /* the column of the highest rank is left out first; 0: never */
} table[TOP_COLUMN_COUNT] = {
	[TOP_COLUMN_ID] = {5, true, 1},     [TOP_COLUMN_GPU] = {3, true, 4},
	[TOP_COLUMN_PID] = {7, true, 6},    [TOP_COLUMN_USER] = {8, false, 8},
	[TOP_COLUMN_NAME] = {0, false, 0},  [TOP_COLUMN_PRIORITY] = {8, false, 3},
	[TOP_COLUMN_WEIGHT] = {6, true, 7}, [TOP_COLUMN_STATE] = {8, false, 0},
	[TOP_COLUMN_CARD] = {6, true, 0},   [TOP_COLUMN_HOST] = {6, true, 2},
	[TOP_COLUMN_USE] = {5, true, 5},
};

struct layout {
	bool is_shown[TOP_COLUMN_COUNT];
	size_t name_width;
	size_t note_width; /* 0: no note */
};

/* Columns of the shown ones beside the name, with the mark and the blanks between them. */
static size_t layout_width(const struct layout *layout)
{
	size_t width = 1;

	for (size_t i = 0; i < TOP_COLUMN_COUNT; i++)
		width += layout->is_shown[i] ? table[i].width + 1 : 0;
	return width;
}

static struct layout layout_of(size_t width)
{
	struct layout layout = {.name_width = NAME_WIDTH_MIN};
	size_t rest;

	for (size_t i = 0; i < TOP_COLUMN_COUNT; i++)
		layout.is_shown[i] = true;
	for (unsigned int rank = 9; rank > 0; rank--) {
		for (size_t i = 0; i < TOP_COLUMN_COUNT; i++) {
			if (table[i].rank == rank && layout_width(&layout) + NAME_WIDTH_MIN > width)
				layout.is_shown[i] = false;
		}
	}
	rest = top_less(width, layout_width(&layout));
	layout.name_width = rest < NAME_WIDTH_MAX ? rest : NAME_WIDTH_MAX;
	rest -= layout.name_width;
	layout.note_width = rest >= NOTE_WIDTH_MIN ? rest - 1 : 0;
	return layout;
}

static void draw_cell(const struct screen *screen, struct top_line *line,
		      const struct layout *layout, enum top_column column, const char *text)
{
	size_t width = column == TOP_COLUMN_NAME ? layout->name_width : table[column].width;

	if (!layout->is_shown[column] || line->width + width > screen->width)
		return;
	top_line_cell(line, text, width, table[column].is_right);
	screen_add(screen, line, " ");
}

static void draw_head(struct screen *screen, const struct layout *layout)
{
	struct top_line *line = screen_next(screen, TOP_STYLE_HEAD);

	screen_add(screen, line, " ");
	for (enum top_column i = 0; i < TOP_COLUMN_COUNT; i++)
		draw_cell(screen, line, layout, i, top_column_titles[i]);
	if (layout->note_width)
		screen_add(screen, line, "NOTE");
	screen_fill(screen, line);
}

static enum top_style client_style(const struct nvshare_status_client *client)
{
	if (client->flags & NVSHARE_CLIENT_HUNG || status_stopped(client))
		return TOP_STYLE_BAD;
	if (client->state == NVSHARE_CLIENT_RUNNING)
		return TOP_STYLE_RUNNING;
	return client->state == NVSHARE_CLIENT_IDLE ? TOP_STYLE_PLAIN : TOP_STYLE_WAITING;
}

static void draw_client(const struct top *top, struct screen *screen, const struct layout *layout,
			const struct top_row *row)
{
	struct top_line *line = screen_next(screen, client_style(row->client));
	char text[TOP_CELL_LEN], note[VIEW_NOTE_LEN];

	line->is_selected = row->client->id == top->selected;
	screen_add(screen, line, line->is_selected ? ">" : " ");
	for (enum top_column i = 0; i < TOP_COLUMN_COUNT; i++) {
		top_cell(top, row, i, text);
		draw_cell(screen, line, layout, i, text);
	}
	if (view_note(top->status, row->client, note))
		line->style = TOP_STYLE_BAD;
	if (layout->note_width)
		screen_add(screen, line, "%s", note);
	if (line->is_selected)
		screen_fill(screen, line);
}

static void draw_summary(const struct top *top, struct screen *screen, size_t n_rows)
{
	struct top_line *line = screen_next(screen, TOP_STYLE_PLAIN);

	screen_add(screen, line, "%zu client%s", top->status->n_clients,
		   view_plural(top->status->n_clients));
	if (top->filter[0])
		screen_add(screen, line, ", %zu with '%s'", n_rows, top->filter);
	screen_add(screen, line, ", by %s%s", top_column_titles[top->sort],
		   top->is_reversed ? " reversed" : "");
	if (n_rows > top->page)
		screen_add(screen, line, ", from %zu", top->first + 1);
}

static void draw_clients(struct top *top, struct screen *screen, size_t n_below)
{
	struct layout layout = layout_of(screen->width);
	struct top_row *rows;
	size_t n_rows = top_list(top, &rows);

	top_select(top, rows, n_rows);
	top->page = top_less(screen->n_max, screen->n + 2 + n_below);
	top->page += top->page == 0;
	if (top->first + top->page > n_rows)
		top->first = top_less(n_rows, top->page);
	if (top->first > top->selected_at)
		top->first = top->selected_at;
	if (top->first + top->page <= top->selected_at)
		top->first = top->selected_at + 1 - top->page;
	draw_summary(top, screen, n_rows);
	draw_head(screen, &layout);
	for (size_t i = top->first; i < n_rows && i < top->first + top->page; i++)
		draw_client(top, screen, &layout, &rows[i]);
	free(rows);
}

/* ---- below the clients -------------------------------------------------------- */

static const struct nvshare_status_client *client_selected(const struct top *top)
{
	for (size_t i = 0; i < top->status->n_clients; i++) {
		if (top->status->clients[i].id == top->selected)
			return &top->status->clients[i];
	}
	return NULL;
}

static void details_text(const struct top *top, const struct nvshare_status_client *client,
			 char ret_text[TOP_LINE_LEN])
{
	char allocated[TOP_CELL_LEN], pinned[TOP_CELL_LEN], since[VIEW_DURATION_LEN];
	const struct nvshare_status_gang *gang = status_gang(top->status, client->id);
	char note[VIEW_NOTE_LEN], number[24] = "";

	if (gang)
		(void)snprintf(number, sizeof(number), ", gang %u", gang->gang);
	(void)view_note(top->status, client, note);
	(void)snprintf(ret_text, TOP_LINE_LEN,
		       "%u %s: pid %u, user %s%s%s%s%s; %s for %s, %" PRIu64 " stop%s (%s); "
		       "%s allocated, %s pinned%s%s",
		       client->id, client->name, client->pid, top->user_name(client->uid),
		       client->pod[0] ? ", pod " : "", client->pod, status_pod_mark(client), number,
		       top_state_name(client), view_duration(client->since_ns, since),
		       client->n_switches, view_plural(client->n_switches), status_stops_by(client),
		       top_size(client->mem.allocated, allocated),
		       top_size(status_pinned(&client->mem) + client->mem.pager_context, pinned),
		       note[0] ? "; " : "", note);
}

static void draw_details(const struct top *top, struct screen *screen)
{
	const struct nvshare_status_client *client = client_selected(top);
	char text[TOP_LINE_LEN] = "";

	if (client)
		details_text(top, client, text);
	screen_fold(screen, TOP_STYLE_PLAIN, text, N_DETAILS);
}

static void draw_foot(const struct top *top, struct screen *screen)
{
	struct top_line *line = screen_next(screen, TOP_STYLE_HEAD);

	if (top->prompt == TOP_PROMPT_FILTER)
		screen_add(screen, line, "show clients with: %s_   (Enter: keep, Esc: all)",
			   top->filter);
	else if (top->prompt == TOP_PROMPT_PRIORITY)
		screen_add(
			screen, line,
			"priority of client %u: l low, n normal, h high, c critical, Esc: as it is",
			top->target);
	else if (top->prompt == TOP_PROMPT_WEIGHT)
		screen_add(screen, line, "weight of client %u, %u to %u: %s_   (Esc: as it is)",
			   top->target, NVSHARE_WEIGHT_MIN, NVSHARE_WEIGHT_MAX, top->input);
	else if (top->prompt == TOP_PROMPT_HELP)
		screen_add(screen, line, "any key: back to the clients");
	else if (top->answer[0])
		screen_add(screen, line, "%s", top->answer);
	else
		screen_add(
			screen, line,
			"q quit  ? help  s sort  r reverse  / filter  p priority  w weight  z pause");
	screen_fill(screen, line);
}

static void draw_help(struct screen *screen)
{
	static const char *const help[] = {
		"",
		"Up Down PgUp PgDn Home End   choose a client (also: k j g G)",
		"s S r                        sort by the next or previous column; reverse",
		"/                            show only clients with these words in ID, user,",
		"                             name, pod, state, priority, pid:N, gpu:N, gang:N",
		"Esc                          show all clients",
		"p w                          change priority or weight of the chosen client",
		"z                            pause or resume it: paused, it gets no turn",
		"space                        ask the scheduler at once",
		"q                            quit",
		"",
		"A GPU's bar is its usable memory:  # clients that run  + other clients",
		"                                   x programs outside nvshare  . free",
		"Behind it: clients' time on the GPU, or what NVML says; heat and power, or an",
		"error, and then no client gets a turn there",
		"CARD, HOST: a client's bytes on the card, and in host memory",
		"USE: time with work on the GPU since the status before; -: it is not measured",
	};

	for (size_t i = 0; i < sizeof(help) / sizeof(*help); i++)
		screen_add(screen, screen_next(screen, TOP_STYLE_PLAIN), "%s", help[i]);
}

void top_draw(struct top *top, size_t n_lines, size_t width, struct top_line *lines)
{
	struct screen screen = {lines, 0, n_lines, width < TOP_WIDTH_MAX ? width : TOP_WIDTH_MAX};
	size_t n_below = n_lines >= LINES_SMALL ? N_DETAILS + 1 : 1;

	draw_title(top, &screen);
	if (top->prompt == TOP_PROMPT_HELP) {
		draw_help(&screen);
	} else if (top->status) {
		draw_gpus(top, &screen);
		draw_clients(top, &screen, n_below);
	}
	while (screen.n + n_below < n_lines)
		(void)screen_next(&screen, TOP_STYLE_PLAIN);
	if (top->status && n_below > 1)
		draw_details(top, &screen);
	while (screen.n + 1 < n_lines)
		(void)screen_next(&screen, TOP_STYLE_PLAIN);
	draw_foot(top, &screen);
}
