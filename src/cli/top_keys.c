/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/status.h"
#include "cli/top.h"

#include "util/parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct top_action no_action = {.type = TOP_ACTION_NONE};

void top_init(struct top *top, const char *(*user_name)(uint32_t uid))
{
	*top = (struct top){.user_name = user_name, .page = 1};
}

static const struct nvshare_status_client *status_find(const struct status *status, uint32_t id)
{
	for (size_t i = 0; status && i < status->n_clients; i++) {
		if (status->clients[i].id == id)
			return &status->clients[i];
	}
	return NULL;
}

/* A scheduler that was restarted counts its clients anew. */
static void top_forget_ids(struct top *top, const struct status *status)
{
	const struct nvshare_status_client *was = status_find(top->status, top->selected);

	top->selected = 0;
	for (size_t i = 0; was && i < status->n_clients; i++) {
		if (status->clients[i].pid == was->pid && status->clients[i].gpu == was->gpu)
			top->selected = status->clients[i].id;
	}
	if (top->prompt == TOP_PROMPT_PRIORITY || top->prompt == TOP_PROMPT_WEIGHT)
		top->prompt = TOP_PROMPT_NONE;
	(void)snprintf(top->answer, sizeof(top->answer), "the scheduler was restarted");
}

void top_take(struct top *top, const struct status *status)
{
	const struct status *was = top->status;
	bool is_other = was && (was->node.pid != status->node.pid ||
				was->node.uptime_ns > status->node.uptime_ns);

	if (is_other)
		top_forget_ids(top, status);
	top->before = is_other ? NULL : was;
	top->status = status;
	top->problem[0] = '\0';
}

void top_select(struct top *top, const struct top_row *rows, size_t n_rows)
{
	for (size_t i = 0; i < n_rows; i++) {
		if (rows[i].client->id == top->selected) {
			top->selected_at = i;
			return;
		}
	}
	if (top->selected_at >= n_rows)
		top->selected_at = n_rows ? n_rows - 1 : 0;
	top->selected = n_rows ? rows[top->selected_at].client->id : 0;
}

static void top_move(struct top *top, int key)
{
	struct top_row *rows;
	size_t n = top_list(top, &rows), at, page = top->page;

	top_select(top, rows, n);
	at = top->selected_at;
	if (key == TOP_KEY_UP || key == TOP_KEY_PAGE_UP) {
		size_t step = key == TOP_KEY_UP ? 1 : page;

		at -= at < step ? at : step;
	} else if (key == TOP_KEY_DOWN || key == TOP_KEY_PAGE_DOWN) {
		at += key == TOP_KEY_DOWN ? 1 : page;
	} else {
		at = key == TOP_KEY_HOME ? 0 : n;
	}
	top->selected_at = at;
	top->selected = 0;
	top_select(top, rows, n);
	free(rows);
}

static void top_sort_by(struct top *top, int step)
{
	top->sort =
		(enum top_column)(((int)top->sort + TOP_COLUMN_COUNT + step) % TOP_COLUMN_COUNT);
	top->is_reversed = false;
}

/* ---- prompts ------------------------------------------------------------------ */

/* A prompt for the client under the cursor. */
static void top_ask(struct top *top, enum top_prompt prompt)
{
	struct top_row *rows;
	size_t n = top_list(top, &rows);

	top_select(top, rows, n);
	free(rows);
	top->target = top->selected;
	top->input[0] = '\0';
	if (!top->selected)
		(void)snprintf(top->answer, sizeof(top->answer), "no client is there");
	else
		top->prompt = prompt;
}

/* Adds a character to text, or takes the last one from it, which may have several bytes. */
static void input_edit(char text[TOP_INPUT_LEN], int key)
{
	size_t len = strlen(text);

	if (key == TOP_KEY_ERASE) {
		while (len > 0 && ((unsigned char)text[len - 1] & 0xc0) == 0x80)
			len--;
		text[len ? len - 1 : 0] = '\0';
	} else if (key >= ' ' && key < TOP_KEY_UP && len + 1 < TOP_INPUT_LEN) {
		text[len] = (char)key;
		text[len + 1] = '\0';
	}
}

static struct top_action press_in_filter(struct top *top, int key)
{
	if (key == TOP_KEY_ESCAPE)
		top->filter[0] = '\0';
	if (key == TOP_KEY_ESCAPE || key == TOP_KEY_ENTER)
		top->prompt = TOP_PROMPT_NONE;
	else if (key == TOP_KEY_UP || key == TOP_KEY_DOWN)
		top_move(top, key);
	else
		input_edit(top->filter, key);
	return no_action;
}

static struct top_action top_set(struct top *top, enum nvshare_key key, uint64_t value)
{
	top->prompt = TOP_PROMPT_NONE;
	if (!status_find(top->status, top->target)) {
		(void)snprintf(top->answer, sizeof(top->answer), "client %u has ended",
			       top->target);
		return no_action;
	}
	return (struct top_action){TOP_ACTION_SET,
				   {.key = (uint32_t)key, .client = top->target, .value = value}};
}

/* Pauses the client under the cursor, or resumes it. */
static struct top_action top_pause(struct top *top)
{
	const struct nvshare_status_client *client;

	top_ask(top, TOP_PROMPT_NONE);
	client = status_find(top->status, top->target);
	if (!client)
		return no_action;
	return top_set(top, NVSHARE_KEY_PAUSE, !(client->flags & NVSHARE_CLIENT_PAUSED));
}

static struct top_action press_in_priority(struct top *top, int key)
{
	static const char letters[NVSHARE_PRIORITY_COUNT] = {
		[NVSHARE_PRIORITY_LOW] = 'l',
		[NVSHARE_PRIORITY_NORMAL] = 'n',
		[NVSHARE_PRIORITY_HIGH] = 'h',
		[NVSHARE_PRIORITY_CRITICAL] = 'c',
	};

	for (unsigned int i = 0; i < NVSHARE_PRIORITY_COUNT; i++) {
		if (key == letters[i])
			return top_set(top, NVSHARE_KEY_PRIORITY, i);
	}
	top->prompt = TOP_PROMPT_NONE;
	return no_action;
}

static struct top_action press_in_weight(struct top *top, int key)
{
	uint64_t weight;

	if (key == TOP_KEY_ERASE || (key >= '0' && key <= '9'))
		input_edit(top->input, key);
	else if (key == TOP_KEY_ESCAPE)
		top->prompt = TOP_PROMPT_NONE;
	if (key != TOP_KEY_ENTER)
		return no_action;
	if (!parse_u64(top->input, NVSHARE_WEIGHT_MIN, NVSHARE_WEIGHT_MAX, &weight))
		return top_set(top, NVSHARE_KEY_WEIGHT, weight);
	top->prompt = TOP_PROMPT_NONE;
	(void)snprintf(top->answer, sizeof(top->answer), "a weight is %u to %u", NVSHARE_WEIGHT_MIN,
		       NVSHARE_WEIGHT_MAX);
	return no_action;
}

/* ---- keys --------------------------------------------------------------------- */

static struct top_action press_in_list(struct top *top, int key)
{
	static const struct {
		int key, move;
	} moves[] = {
		{'k', TOP_KEY_UP}, {'j', TOP_KEY_DOWN}, {'g', TOP_KEY_HOME}, {'G', TOP_KEY_END}};

	for (size_t i = 0; i < sizeof(moves) / sizeof(*moves); i++)
		key = key == moves[i].key ? moves[i].move : key;
	if (key >= TOP_KEY_UP && key <= TOP_KEY_END)
		top_move(top, key);
	else if (key == 's' || key == 'S')
		top_sort_by(top, key == 's' ? 1 : -1);
	else if (key == 'r')
		top->is_reversed = !top->is_reversed;
	else if (key == '/')
		top->prompt = TOP_PROMPT_FILTER;
	else if (key == '?' || key == 'h')
		top->prompt = TOP_PROMPT_HELP;
	else if (key == TOP_KEY_ESCAPE)
		top->filter[0] = '\0';
	else if ((key == 'p' || key == 'w' || key == 'z') && top->problem[0])
		(void)snprintf(top->answer, sizeof(top->answer), "no scheduler answers");
	else if (key == 'p' || key == 'w')
		top_ask(top, key == 'p' ? TOP_PROMPT_PRIORITY : TOP_PROMPT_WEIGHT);
	else if (key == 'z')
		return top_pause(top);
	return no_action;
}

struct top_action top_press(struct top *top, int key)
{
	top->answer[0] = '\0';
	switch (top->prompt) {
	case TOP_PROMPT_FILTER:
		return press_in_filter(top, key);
	case TOP_PROMPT_PRIORITY:
		return press_in_priority(top, key);
	case TOP_PROMPT_WEIGHT:
		return press_in_weight(top, key);
	case TOP_PROMPT_HELP:
		top->prompt = TOP_PROMPT_NONE;
		return no_action;
	case TOP_PROMPT_NONE:
		break;
	}
	if (key == 'q')
		return (struct top_action){.type = TOP_ACTION_QUIT};
	if (key == ' ')
		return (struct top_action){.type = TOP_ACTION_REFRESH};
	return press_in_list(top, key);
}
