/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/status.h"
#include "cli/top.h"

#include "ipc/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const top_column_titles[TOP_COLUMN_COUNT] = {
	"ID", "GPU", "PID", "USER", "NAME", "PRIORITY", "WEIGHT", "STATE", "CARD", "HOST", "USE",
};

const char *top_state_name(const struct nvshare_status_client *client)
{
	if (status_stopped(client))
		return "stopped";
	if (client->flags & NVSHARE_CLIENT_HUNG)
		return "hung";
	if (client->flags & NVSHARE_CLIENT_PAUSED && client->state == NVSHARE_CLIENT_IDLE)
		return "paused";
	return status_state_names[client->state];
}

const char *top_size(uint64_t bytes, char ret_text[TOP_CELL_LEN])
{
	static const char units[] = "BKMGTPE";
	double value = (double)bytes;
	size_t unit = 0;

	for (; value >= 1000 && unit + 2 < sizeof(units); unit++)
		value /= 1024;
	(void)snprintf(ret_text, TOP_CELL_LEN, "%.*f%c", unit > 0 && value < 100, value,
		       units[unit]);
	return ret_text;
}

static uint64_t client_on_card(const struct nvshare_status_client *client)
{
	return client->mem.resident + status_pinned(&client->mem) + client->mem.pager_context;
}

/* Numbers by which columns are sorted; those of text have none. */
static double row_number(const struct top_row *row, enum top_column column)
{
	const struct nvshare_status_client *client = row->client;

	switch (column) {
	case TOP_COLUMN_GPU:
		return client->gpu;
	case TOP_COLUMN_PID:
		return client->pid;
	case TOP_COLUMN_PRIORITY:
		return client->claim.priority;
	case TOP_COLUMN_WEIGHT:
		return client->claim.weight;
	case TOP_COLUMN_STATE:
		return client->state;
	case TOP_COLUMN_CARD:
		return (double)client_on_card(client);
	case TOP_COLUMN_HOST:
		return (double)client->mem.swapped;
	case TOP_COLUMN_USE:
		return row->use_percent;
	case TOP_COLUMN_ID:
	case TOP_COLUMN_USER:
	case TOP_COLUMN_NAME:
	case TOP_COLUMN_COUNT:
		break;
	}
	return 0;
}

void top_cell(const struct top *top, const struct top_row *row, enum top_column column,
	      char ret_text[TOP_CELL_LEN])
{
	const struct nvshare_status_client *client = row->client;
	uint64_t bytes = column == TOP_COLUMN_CARD ? client_on_card(client) : client->mem.swapped;

	switch (column) {
	case TOP_COLUMN_ID:
		(void)snprintf(ret_text, TOP_CELL_LEN, "%u", client->id);
		break;
	case TOP_COLUMN_GPU:
	case TOP_COLUMN_PID:
	case TOP_COLUMN_WEIGHT:
		(void)snprintf(ret_text, TOP_CELL_LEN, "%.0f", row_number(row, column));
		break;
	case TOP_COLUMN_USER:
		(void)snprintf(ret_text, TOP_CELL_LEN, "%s", top->user_name(client->uid));
		break;
	case TOP_COLUMN_NAME:
		(void)snprintf(ret_text, TOP_CELL_LEN, "%s", client->name);
		break;
	case TOP_COLUMN_PRIORITY:
		(void)snprintf(ret_text, TOP_CELL_LEN, "%s",
			       names_priority[client->claim.priority]);
		break;
	case TOP_COLUMN_STATE:
		(void)snprintf(ret_text, TOP_CELL_LEN, "%s", top_state_name(client));
		break;
	case TOP_COLUMN_CARD:
	case TOP_COLUMN_HOST:
		(void)snprintf(ret_text, TOP_CELL_LEN, "-");
		if (bytes)
			(void)top_size(bytes, ret_text);
		break;
	case TOP_COLUMN_USE:
	case TOP_COLUMN_COUNT:
		(void)snprintf(ret_text, TOP_CELL_LEN, "-");
		if (row->use_percent >= 0)
			(void)snprintf(ret_text, TOP_CELL_LEN, "%.0f %%", row->use_percent);
		break;
	}
}

/* ---- filter ------------------------------------------------------------------- */

static bool client_matches(const struct top *top, const struct nvshare_status_client *client)
{
	char text[NVSHARE_NAME_LEN + NVSHARE_POD_LEN + NVSHARE_GANG_LEN + 256];
	const struct nvshare_status_gang *gang = status_gang(top->status, client->id);
	char filter[TOP_INPUT_LEN], number[24] = "", *save;

	if (gang)
		(void)snprintf(number, sizeof(number), "gang:%u", gang->gang);

	(void)snprintf(text, sizeof(text), "%u pid:%u gpu:%u %.100s %s %s %s %s %s %s", client->id,
		       client->pid, client->gpu, top->user_name(client->uid), client->name,
		       client->pod, top_state_name(client), names_priority[client->claim.priority],
		       number, gang ? gang->name : "");
	(void)snprintf(filter, sizeof(filter), "%s", top->filter);
	for (char *word = strtok_r(filter, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		if (!strcasestr(text, word))
			return false;
	}
	return true;
}

/* ---- order -------------------------------------------------------------------- */

static int compare_texts(const struct top *top, const struct top_row *a, const struct top_row *b)
{
	char left[TOP_CELL_LEN], right[TOP_CELL_LEN];

	top_cell(top, a, top->sort, left);
	top_cell(top, b, top->sort, right);
	return strcasecmp(left, right);
}

/* Small numbers first where they name something, else the largest first: that is looked for. */
static bool column_begins_small(enum top_column column)
{
	return column == TOP_COLUMN_GPU || column == TOP_COLUMN_PID;
}

static int compare_rows(const void *a, const void *b, void *arg)
{
	const struct top_row *left = a, *right = b;
	const struct top *top = *(const struct top *const *)arg;
	double x = row_number(left, top->sort), y = row_number(right, top->sort);
	int r = column_begins_small(top->sort) ? (x > y) - (x < y) : (y > x) - (y < x);

	if (top->sort == TOP_COLUMN_USER || top->sort == TOP_COLUMN_NAME)
		r = compare_texts(top, left, right);
	if (r == 0)
		r = left->client->id < right->client->id ? -1 : 1;
	return top->is_reversed ? -r : r;
}

static int compare_id(const void *key, const void *element)
{
	const uint32_t *id = key;
	const struct nvshare_status_client *client = element;

	return (*id > client->id) - (*id < client->id);
}

/* Clients are sorted by ID in a status. */
static double client_use(const struct top *top, const struct nvshare_status_client *client)
{
	const struct nvshare_status_client *before = NULL;
	uint64_t passed_ns;

	if (top->before && top->before->n_clients)
		before = bsearch(&client->id, top->before->clients, top->before->n_clients,
				 sizeof(*client), compare_id);
	if (!before || client->gpu_ns == 0 || client->gpu_ns < before->gpu_ns)
		return -1;
	passed_ns = top->status->node.uptime_ns - top->before->node.uptime_ns;
	return passed_ns ? 100.0 * (double)(client->gpu_ns - before->gpu_ns) / (double)passed_ns
			 : -1;
}

size_t top_list(const struct top *top, struct top_row **ret_rows)
{
	size_t n = 0, n_clients = top->status ? top->status->n_clients : 0;
	struct top_row *rows = calloc(n_clients + 1, sizeof(*rows));

	for (size_t i = 0; rows && i < n_clients; i++) {
		const struct nvshare_status_client *client = &top->status->clients[i];

		if (client_matches(top, client))
			rows[n++] = (struct top_row){client, client_use(top, client)};
	}
	if (n)
		qsort_r(rows, n, sizeof(*rows), compare_rows, &top);
	*ret_rows = rows;
	return n;
}
