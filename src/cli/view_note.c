/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/status.h"
#include "cli/view_private.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Why the client did not stop or its memory did not move; "" after a success. */
static const char *failure_words(const struct nvshare_status_client *client)
{
	static const char *const words[NVSHARE_OUTCOME_COUNT] = {
		[NVSHARE_OUTCOME_SUCCESS] = "",
		[NVSHARE_OUTCOME_TIMEOUT] = "its work or a capture did not end in time",
		[NVSHARE_OUTCOME_SAVE_FAILED] = "a copy to the host failed",
		[NVSHARE_OUTCOME_NO_HOST_MEMORY] = "no host memory for it",
		[NVSHARE_OUTCOME_GPU_HUNG] = "the GPU does not answer",
		[NVSHARE_OUTCOME_INVALID_STATE] = "not all of it came back",
		[NVSHARE_OUTCOME_UNSUPPORTED] = "not supported",
		[NVSHARE_OUTCOME_PARTIAL] = "only a part of it came back",
		[NVSHARE_OUTCOME_NO_CARD_MEMORY] = "the card had no room for all of it",
	};

	return client->last_outcome < NVSHARE_OUTCOME_COUNT ? words[client->last_outcome] : "?";
}

struct note {
	char s[VIEW_NOTE_LEN];
};

/* Appends words to the note, after a comma. */
__attribute__((format(printf, 2, 3))) static void add_words(struct note *note, const char *format,
							    ...)
{
	size_t len = strlen(note->s);
	char words[sizeof(struct view_outsiders)];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(words, sizeof(words), format, args);
	va_end(args);
	(void)snprintf(note->s + len, sizeof(note->s) - len, "%s%s", len ? ", " : "", words);
}

static bool lacks_turns(const struct nvshare_status_wait *wait)
{
	return wait && wait->obstacle == NVSHARE_OBSTACLE_TURNS_OFF;
}

/* The client that keeps this one out, in words; NULL: the status does not tell. */
static const char *blocker_reason(const struct status *status,
				  const struct nvshare_status_wait *wait, char *buf, size_t size)
{
	static const char *const kinds[NVSHARE_PINNED_COUNT] = {
		[NVSHARE_PINNED_CONTEXT] = "its context",
		[NVSHARE_PINNED_PLAIN] = "its memory",
		[NVSHARE_PINNED_ASYNC] = "its pools",
		[NVSHARE_PINNED_VMM] = "its own virtual memory",
		[NVSHARE_PINNED_ARRAY] = "its arrays",
		[NVSHARE_PINNED_MANAGED] = "its managed memory",
		[NVSHARE_PINNED_GRAPH] = "its graph memory",
		[NVSHARE_PINNED_MODULE] = "its modules",
	};
	static const char *const obstacles[NVSHARE_OBSTACLE_COUNT] = {
		[NVSHARE_OBSTACLE_FIXED] = "which takes no turns",
		[NVSHARE_OBSTACLE_CRITICAL] = "which is critical",
		[NVSHARE_OBSTACLE_HUNG] = "which does not answer",
		[NVSHARE_OBSTACLE_STOPPED] = "which is stopped",
		[NVSHARE_OBSTACLE_NOT_STOPPED] = "which could not be stopped",
	};
	const struct nvshare_status_client *blocker =
		wait ? status_client(status, wait->blocker) : NULL;

	if (!blocker)
		return NULL;
	if (wait->obstacle == NVSHARE_OBSTACLE_PINNED)
		(void)snprintf(
			buf, size, "waits until %.24s (%u) frees %s that can not be moved: %s",
			blocker->name, blocker->id, view_size(wait->bytes).s, kinds[wait->kind]);
	else if (obstacles[wait->obstacle])
		(void)snprintf(buf, size, "waits for %s of %.24s (%u), %s",
			       view_size(wait->bytes).s, blocker->name, blocker->id,
			       obstacles[wait->obstacle]);
	else
		return NULL;
	return buf;
}

/* Why its gang does not run now; NULL: the status does not tell. */
static const char *gang_reason(const struct status *status,
			       const struct nvshare_status_client *client, char *buf, size_t size)
{
	const struct nvshare_status_gang *gang = status_gang(status, client->id);

	if (gang && gang->flags & NVSHARE_GANG_LACKING)
		(void)snprintf(buf, size, "waits for its gang: %u of %u members are here",
			       gang->n_members, gang->size);
	else if (gang && gang->waits_gpu != UINT32_MAX)
		(void)snprintf(buf, size, "waits for its gang: GPU %u%s", gang->waits_gpu,
			       status_is_out(status, gang->waits_gpu) ? ", which has an error"
								      : "");
	else
		return NULL;
	return buf;
}

static void add_wait(struct note *note, const struct status *status,
		     const struct nvshare_status_client *client)
{
	static const char *const reasons[] = {
		[NVSHARE_WAIT_NOT] = "",
		[NVSHARE_WAIT_TURN] = "waits for its turn",
		[NVSHARE_WAIT_MEMORY] = "waits for memory",
		[NVSHARE_WAIT_SWAP] = "memory is being moved",
		[NVSHARE_WAIT_STUCK] = "memory in its way can not be moved",
		[NVSHARE_WAIT_OUTSIDERS] = "waits for memory",
		[NVSHARE_WAIT_GANG] = "waits for its gang",
	};
	const char *reason = reasons[client->why];
	const struct nvshare_status_wait *wait = status_wait(status, client->id);
	char text[112];

	if (client->why != NVSHARE_WAIT_NOT && status_is_out(status, client->gpu)) {
		reason = "waits for its GPU, which has an error";
	} else if (lacks_turns(wait)) {
		reason = "waits for memory: turns are off (nvsharectl -S on)";
	} else if (blocker_reason(status, wait, text, sizeof(text))) {
		reason = text;
	} else if (client->why == NVSHARE_WAIT_GANG &&
		   gang_reason(status, client, text, sizeof(text))) {
		reason = text;
	}

	if (client->position)
		add_words(note, "#%u%s%s", client->position, reason[0] ? " " : "", reason);
	else if (reason[0])
		add_words(note, "%s", reason);
	if (client->why == NVSHARE_WAIT_OUTSIDERS)
		add_words(note, "%s", view_outsiders(status, client->gpu).s);
}

/* How a program that has slept, or that made way for one, stands to its usual turn. */
static const char *early_words(const struct nvshare_status_client *client)
{
	if (client->flags & NVSHARE_CLIENT_SOON)
		return "has woken: is to get the GPU soon";
	if (client->flags & NVSHARE_CLIENT_MOVES)
		return "has woken: early turns have moved enough for now";
	if (client->flags & NVSHARE_CLIENT_SHARED)
		return "has woken: had its share of the last minute";
	if (client->flags & NVSHARE_CLIENT_EARLY)
		return "came early after sleep";
	if (client->flags & NVSHARE_CLIENT_MADE_WAY)
		return "made way for a program that woke: is next";
	return NULL;
}

static bool is_apart(const struct status *status, const struct nvshare_status_client *client)
{
	const struct nvshare_status_gang *gang = status_gang(status, client->id);

	return gang && gang->flags & NVSHARE_GANG_APART;
}

bool view_note(const struct status *status, const struct nvshare_status_client *client,
	       char ret_note[VIEW_NOTE_LEN])
{
	uint64_t wanted = client->mem.wanted + client->mem.wanted_pinned;
	const char *failed = failure_words(client);
	struct note note = {""};
	bool is_wrong;

	if (status_stopped(client)) {
		(void)snprintf(ret_note, VIEW_NOTE_LEN, "stopped (%s)", status_stopped(client));
		return true;
	}
	if (client->flags & NVSHARE_CLIENT_HUNG) {
		(void)snprintf(ret_note, VIEW_NOTE_LEN, "hung: does not answer");
		return true;
	}
	if (client->flags & NVSHARE_CLIENT_DOUBTED)
		add_words(&note, "reports more than is on the card");
	if (client->flags & NVSHARE_CLIENT_PAUSED)
		add_words(&note, "paused");
	if (client->flags & NVSHARE_CLIENT_PARKING)
		add_words(&note, "stopped while memory of its gang moves out");
	add_wait(&note, status, client);
	if (early_words(client))
		add_words(&note, "%s", early_words(client));
	if (wanted)
		add_words(&note, "needs %s more", view_size(wanted).s);
	if (client->flags & NVSHARE_CLIENT_FIXED)
		add_words(&note, "takes no turns");
	if (is_apart(status, client))
		add_words(&note, "its gang does not fit: each takes its own turns");
	if (client->flags & NVSHARE_CLIENT_RDMA)
		add_words(&note, "stays on the card: rdma");
	if (client->flags & NVSHARE_CLIENT_NO_PROC)
		add_words(&note, "stays on the card: it sees no /proc (NVSHARE_RDMA=ignore)");
	if (client->flags & NVSHARE_CLIENT_BYPASS)
		add_words(&note, "stays on the card: some of its calls go past nvshare");
	if (client->claim.slo_us)
		add_words(&note, "slo %g ms", (double)client->claim.slo_us / 1000);
	if (client->claim.compute_limit)
		add_words(&note, "at most %u %% of the time%s", client->claim.compute_limit,
			  client->flags & NVSHARE_CLIENT_FIXED ? ": not kept" : "");
	if (client->flags & NVSHARE_CLIENT_HELD)
		add_words(&note, "held for others");
	if (client->n_slo_violations)
		add_words(&note, "%" PRIu64 " of %" PRIu64 " too late", client->n_slo_violations,
			  client->n_tasks);
	if (client->flags & NVSHARE_CLIENT_SLICES_ONLY)
		add_words(&note, "its bursts hold no others: freezing was too slow");
	if (client->flags & NVSHARE_CLIENT_NOT_PREEMPTIBLE)
		add_words(&note, "can not be stopped%s%s", failed[0] ? ": " : "", failed);
	else if (failed[0] && status_is_running(client))
		add_words(&note, "did not stop: %s", failed);
	else if (failed[0])
		add_words(&note, "did not move: %s", failed);
	if (status_drain_reason(client))
		add_words(&note, "can not be frozen: %s", status_drain_reason(client));
	is_wrong = client->why == NVSHARE_WAIT_OUTSIDERS ||
		   (client->why == NVSHARE_WAIT_STUCK &&
		    !lacks_turns(status_wait(status, client->id)));
	(void)snprintf(ret_note, VIEW_NOTE_LEN, "%s", note.s);
	return is_wrong || failed[0];
}
