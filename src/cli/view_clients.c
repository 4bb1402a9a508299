/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/status.h"
#include "cli/table.h"
#include "cli/view_private.h"

#include "ipc/names.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>

#define NAME_WIDTH 24

static const struct table_column columns[] = {
	{"ID", TABLE_ALIGN_RIGHT, 0},        {"PID", TABLE_ALIGN_RIGHT, 0},
	{"USER", TABLE_ALIGN_LEFT, 5},       {"NAME", TABLE_ALIGN_NAME, 0},
	{"POD", TABLE_ALIGN_NAME, 3},        {"GANG", TABLE_ALIGN_RIGHT, 2},
	{"PRIORITY", TABLE_ALIGN_LEFT, 1},   {"WEIGHT", TABLE_ALIGN_RIGHT, 8},
	{"STATE", TABLE_ALIGN_LEFT, 0},      {"SINCE", TABLE_ALIGN_RIGHT, 1},
	{"SCHEDULED", TABLE_ALIGN_RIGHT, 3}, {"ALLOCATED", TABLE_ALIGN_RIGHT, 6},
	{"RESIDENT", TABLE_ALIGN_RIGHT, 0},  {"SWAPPED", TABLE_ALIGN_RIGHT, 0},
	{"PINNED", TABLE_ALIGN_RIGHT, 2},    {"USES", TABLE_ALIGN_RIGHT, 7},
	{"ENERGY", TABLE_ALIGN_RIGHT, 9},    {"STOPS", TABLE_ALIGN_RIGHT, 7},
	{"STOPS BY", TABLE_ALIGN_LEFT, 4},   {"NOTE", TABLE_ALIGN_NOTE, 0},
};

/* In the table most sizes are zero: "-" reads faster. */
static struct view_text size_cell(uint64_t bytes)
{
	return bytes ? view_size(bytes) : (struct view_text){"-"};
}

static const char *state_colour(const struct nvshare_status_client *client)
{
	if (client->flags & NVSHARE_CLIENT_HUNG || status_stopped(client))
		return VIEW_RED;
	switch ((enum nvshare_client_state)client->state) {
	case NVSHARE_CLIENT_RUNNING:
		return VIEW_GREEN;
	case NVSHARE_CLIENT_WAITING:
	case NVSHARE_CLIENT_INCOMING:
	case NVSHARE_CLIENT_STOPPING:
		return VIEW_YELLOW;
	case NVSHARE_CLIENT_IDLE:
	case NVSHARE_CLIENT_STATE_COUNT:
		break;
	}
	return VIEW_DIM;
}

static void add_note(struct table *table, const struct status *status,
		     const struct nvshare_status_client *client)
{
	char note[VIEW_NOTE_LEN];
	bool is_wrong = view_note(status, client, note);

	table_add(table, is_wrong ? VIEW_RED : NULL, "%s", note);
}

/* Defaults are empty cells, so a column disappears if all clients have the default. */
static void add_claim(struct table *table, const struct nvshare_claim *claim)
{
	if (claim->priority != NVSHARE_PRIORITY_NORMAL)
		table_add(table, NULL, "%s", names_priority[claim->priority]);
	else
		table_add(table, NULL, "%s", "");
	if (claim->weight != NVSHARE_WEIGHT_DEFAULT)
		table_add(table, NULL, "%u", claim->weight);
	else
		table_add(table, NULL, "%s", "");
}

static void add_gang(struct table *table, const struct nvshare_status_gang *gang)
{
	if (gang)
		table_add(table, NULL, "%u", gang->gang);
	else
		table_add(table, NULL, "%s", "");
}

/* Its part of the GPU's time while it ran; "" if the client has not reported any. */
static struct view_text time_part_text(const struct nvshare_status_client *client)
{
	struct view_text text = {""};

	if (client->gpu_ns && client->run_ns)
		(void)snprintf(text.s, sizeof(text.s), "%.0f %%",
			       100.0 * (double)client->gpu_ns / (double)client->run_ns);
	return text;
}

static struct view_text energy_text(const struct nvshare_status_client *client)
{
	struct view_text text = {""};
	double j = client->energy_j;

	if (j >= 3.6e6)
		(void)snprintf(text.s, sizeof(text.s), "%.2f kWh", j / 3.6e6);
	else if (j >= 10000)
		(void)snprintf(text.s, sizeof(text.s), "%.0f kJ", j / 1000);
	else if (j > 0)
		(void)snprintf(text.s, sizeof(text.s), "%.0f J", j);
	return text;
}

static void add_client(struct table *table, const struct status *status,
		       const struct nvshare_status_client *client)
{
	const struct passwd *user = getpwuid(client->uid);

	table_add(table, NULL, "%u", client->id);
	table_add(table, NULL, "%u", client->pid);
	if (user)
		table_add(table, NULL, "%s", user->pw_name);
	else
		table_add(table, NULL, "%u", client->uid);
	table_add(table, NULL, "%.*s", NAME_WIDTH, client->name);
	table_add(table, NULL, "%s%s", client->pod, status_pod_mark(client));
	add_gang(table, status_gang(status, client->id));
	add_claim(table, &client->claim);
	table_add(table, state_colour(client), "%s", status_state_names[client->state]);
	table_add(table, NULL, "%s", view_lasting(client->since_ns).s);
	if (client->last_scheduled_ns == UINT64_MAX)
		table_add(table, NULL, "%s", "");
	else
		table_add(table, NULL, "%s", view_lasting(client->last_scheduled_ns).s);
	table_add(table, NULL, "%s", size_cell(client->mem.allocated).s);
	table_add(table, NULL, "%s", size_cell(client->mem.resident).s);
	table_add(table, NULL, "%s", size_cell(client->mem.swapped).s);
	table_add(table, NULL, "%s", size_cell(status_pinned(&client->mem)).s);
	table_add(table, NULL, "%s", time_part_text(client).s);
	table_add(table, NULL, "%s", energy_text(client).s);
	table_add(table, NULL, "%" PRIu64, client->n_switches);
	table_add(table, NULL, "%s", client->halt ? status_stops_by(client) : "");
	add_note(table, status, client);
}

void view_clients_print(FILE *out, const struct status *status, uint32_t gpu, size_t width,
			bool has_colours)
{
	struct table table;

	table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < status->n_clients; i++) {
		if (status->clients[i].gpu == gpu)
			add_client(&table, status, &status->clients[i]);
	}
	if (table.n_cells) {
		(void)fputc('\n', out);
		table_print(&table, out, "  ", width, has_colours);
	}
	table_deinit(&table);
}
