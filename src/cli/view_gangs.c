/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/status.h"
#include "cli/view_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One gang, in the order of its members' IDs. */
struct gang_view {
	const struct nvshare_status_gang *any; /* what all members have in common */
	uint32_t waits_gpu;                    /* UINT32_MAX: for none */
	uint32_t n_running, n_waiting;
	uint64_t gpus; /* a bit for each of the first 64 */
	bool is_lacking;
	uint32_t pid; /* of a member */
};

static int compare_gangs(const void *a, const void *b)
{
	const struct nvshare_status_gang *left = a, *right = b;

	if (left->gang != right->gang)
		return left->gang < right->gang ? -1 : 1;
	return left->client < right->client ? -1 : left->client > right->client;
}

static const struct nvshare_status_client *client_of(const struct status *status, uint32_t id)
{
	size_t low = 0, high = status->n_clients;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (status->clients[middle].id == id)
			return &status->clients[middle];
		if (status->clients[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL; /* it has come behind the clients' part of the status */
}

static void gang_count(struct gang_view *view, const struct nvshare_status_gang *member,
		       const struct nvshare_status_client *client)
{
	if (member->flags & NVSHARE_GANG_LACKING)
		view->is_lacking = true;
	if (member->waits_gpu != UINT32_MAX)
		view->waits_gpu = member->waits_gpu;
	if (!client)
		return;
	view->pid = client->pid;
	if (client->gpu < 64)
		view->gpus |= 1ull << client->gpu;
	if (status_is_running(client))
		view->n_running++;
	else if (client->state != NVSHARE_CLIENT_IDLE)
		view->n_waiting++;
}

static void print_gpus(FILE *out, uint64_t gpus)
{
	const char *gap = gpus & (gpus - 1) ? " on GPUs " : " on GPU ";

	for (uint32_t i = 0; i < 64; i++) {
		if (!(gpus & 1ull << i))
			continue;
		(void)fprintf(out, "%s%u", gap, i);
		gap = ", ";
	}
}

/* "gang 3 "train": 2 members on GPUs 0, 1; waits for GPU 1". */
static void print_gang(FILE *out, const struct status *status, const struct gang_view *view)
{
	const struct nvshare_status_gang *gang = view->any;

	(void)fprintf(out, "gang %u ", gang->gang);
	if (gang->name[0])
		(void)fprintf(out, "\"%s\"", gang->name);
	else
		(void)fprintf(out, "of pid %u", view->pid);
	(void)fprintf(out, ": %u member%s", gang->n_members, view_plural(gang->n_members));
	print_gpus(out, view->gpus);
	if (view->is_lacking && gang->n_members >= gang->size)
		(void)fprintf(out, "; waits for a member that does not answer");
	else if (view->is_lacking)
		(void)fprintf(out, "; waits until there are %u", gang->size);
	else if (view->waits_gpu != UINT32_MAX)
		(void)fprintf(out, "; waits for GPU %u%s", view->waits_gpu,
			      status_is_out(status, view->waits_gpu) ? ", which has an error" : "");
	else if (view->n_running)
		(void)fprintf(out, "; %u run%s", view->n_running, view->n_running == 1 ? "s" : "");
	else
		(void)fprintf(out, "; %s", view->n_waiting ? "waits" : "idle");
	if (gang->flags & NVSHARE_GANG_APART)
		(void)fputs("; does not fit, so each member takes its own turns", out);
	(void)fputc('\n', out);
}

void view_gangs_print(FILE *out, const struct status *status)
{
	struct nvshare_status_gang *members = calloc(status->n_gangs + 1, sizeof(*members));

	if (!members || !status->n_gangs) {
		free(members);
		return;
	}
	memcpy(members, status->gangs, status->n_gangs * sizeof(*members));
	qsort(members, status->n_gangs, sizeof(*members), compare_gangs);
	(void)fputc('\n', out);
	for (size_t i = 0; i < status->n_gangs;) {
		struct gang_view view = {.any = &members[i], .waits_gpu = UINT32_MAX};

		for (; i < status->n_gangs && members[i].gang == view.any->gang; i++)
			gang_count(&view, &members[i], client_of(status, members[i].client));
		print_gang(out, status, &view);
	}
	free(members);
}
