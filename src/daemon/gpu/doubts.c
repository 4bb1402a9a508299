/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gpu/doubts.h"

#include "core/u64.h"
#include "daemon/client_messages.h"
#include "daemon/dispatch.h"
#include "daemon/gpu/hearsay.h"
#include "daemon/server.h"
#include "util/clock.h"
#include "util/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROCESSES_MAX 512

/* Contexts of a process cost no more than this part of a card, nor than so many bytes. */
#define CONTEXT_PART 4
#define CONTEXT_MAX  (2ull << 30)

/*
 * The least time between two lists of a GPU's processes from NVML. Until then the last list
 * counts.
 */
#define LIST_NS (100 * CLOCK_NS_PER_MS)

/*
 * The least time between two comparisons of all clients of a GPU because of one client's reports.
 */
#define COMPARE_NS (10 * CLOCK_NS_PER_MS)

struct doubts {
	struct deadline due; /* the next comparison */
	struct evidence_report reports[SERVER_PEERS_MAX];
	struct doubts_gpu {
		uint64_t listed_ns; /* 0: never */
		uint64_t compared_ns;
		uint64_t used;
		bool is_suspect; /* compare when due, even if nobody waits */
		uint32_t n;
		struct nvml_process at[PROCESSES_MAX];
	} gpus[SCHED_GPUS_MAX];
};

static uint64_t doubts_slack(const struct server *server, uint32_t index)
{
	return server->gpus.at[index].total / 100 * server->settings.report_slack_percent;
}

static bool doubts_are_possible(const struct server *server, uint32_t index)
{
	return server->gpus.at[index].device && server->settings.report_slack_percent < 100 &&
	       !grace_is_on(server);
}

static void doubts_compare_by(struct server *server, uint32_t index, uint64_t at_ns)
{
	server->doubts->gpus[index].is_suspect = true;
	if (deadline_at(&server->doubts->due) > at_ns)
		deadline_set(&server->deadlines, &server->doubts->due, at_ns);
}

/* false: NVML does not answer, so no report can be doubted. */
static bool doubts_list_processes(struct server *server, uint32_t index)
{
	struct doubts_gpu *doubts = &server->doubts->gpus[index];
	const struct gpu *gpu = &server->gpus.at[index];
	uint64_t total;

	if (doubts->listed_ns && server->now_ns - doubts->listed_ns < LIST_NS)
		return true;
	if (!nvml_memory(&server->gpus.nvml, gpu->device, &total, &doubts->used))
		return false;
	if (!nvml_processes(&server->gpus.nvml, gpu->device, doubts->at, PROCESSES_MAX, &doubts->n))
		doubts->n = 0;
	doubts->listed_ns = server->now_ns;
	return true;
}

static bool doubts_concern(const struct peer *peer, const struct peer *newcomer, uint32_t index)
{
	if (peer->is_closing || peer->gpu != index)
		return false;
	return peer->state == PEER_STATE_CLIENT || peer == newcomer;
}

/*
 * The budget of a hung client counts as its report: it does not answer, and may never use the
 * budget.
 */
static uint64_t peer_reported(const struct server *server, const struct peer *peer)
{
	uint64_t bytes = peer->account.on_card;
	struct sched_client_status status;

	if (peer->state == PEER_STATE_CLIENT && peer->account.budget > bytes) {
		sched_client_status(&server->sched, peer->slot, server->now_ns, &status);
		if (status.hung)
			bytes = peer->account.budget;
	}
	return bytes;
}

/* A process that is stopped takes nothing of what it was given, until it goes on. */
static bool peer_is_stopped(const struct peer *peer)
{
	return peer->stopped != PROCESS_GOES_ON;
}

static uint32_t doubts_collect_reports(struct server *server, uint32_t index,
				       const struct peer *newcomer)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < server->slots_used; i++) {
		const struct peer *peer = &server->peers[i];

		if (!doubts_concern(peer, newcomer, index))
			continue;
		server->doubts->reports[n++] = (struct evidence_report){
			.slot = i,
			.pid = peer->cred.pid > 0 ? (uint32_t)peer->cred.pid : 0,
			.bytes = u64_excess(peer_reported(server, peer), peer->evidence.beyond) +
				 peer->mem.pager_context,
			.managed =
				peer->mem.pinned[NVSHARE_PINNED_MANAGED] +
				(peer->backend == NVSHARE_BACKEND_MANAGED ? peer->mem.resident : 0),
			.is_trusted = users_is_trusted(peer->pod.owner),
			.is_stopped = peer_is_stopped(peer),
		};
	}
	return n;
}

static void doubts_log(struct server *server, const struct peer *peer, uint64_t before)
{
	if ((before == 0) == (peer->evidence.doubted == 0))
		return;
	if (before)
		server_log(server, peer->pod.owner, LOG_LEVEL_INFO, "believed pid=%d uid=%u gpu=%u",
			   (int)peer->cred.pid, (unsigned int)peer->cred.uid, peer->gpu);
	else
		server_log(
			server, peer->pod.owner, LOG_LEVEL_WARN,
			"doubted pid=%d uid=%u gpu=%u reported=%llu bytes=%llu: so much is not on"
			" the card, and does not count for others",
			(int)peer->cred.pid, (unsigned int)peer->cred.uid, peer->gpu,
			(unsigned long long)peer->account.on_card,
			(unsigned long long)peer->evidence.doubted);
}

/*
 * Doubts lacking bytes of peer. reporter is the peer whose report is being taken, or a newcomer.
 * The core does not know that report yet, and would take the doubt for room that is not there. So
 * the doubt goes to the core with the report.
 */
static void doubts_apply(struct server *server, struct peer *peer, uint64_t lacking,
			 const struct peer *reporter)
{
	struct sched_event event = {.type = SCHED_EVENT_DOUBT, .client = peer->slot};
	uint64_t before = peer->evidence.doubted, most = peer_reported(server, peer);

	evidence_weigh(&peer->evidence, lacking, server->now_ns,
		       peer_is_stopped(peer) ? 0 : server->settings.report_grace_ns);
	if (!before && !peer->evidence.doubted)
		return;
	/* The program's own memory is doubted before the pager context. */
	peer->doubted = u64_min(peer->evidence.doubted, most);
	peer->doubted_second = peer->evidence.doubted - peer->doubted;
	server_account(server, peer, peer->account.on_card, peer->account.budget);
	event.doubted = peer->doubted;
	if (peer->state == PEER_STATE_CLIENT && peer != reporter)
		(void)dispatch_event(server, &event);
	doubts_log(server, peer, before);
}

/* While memory moves, or the client does not answer, its report is not of this moment. */
static bool peer_is_at_rest(const struct server *server, const struct peer *peer)
{
	enum sched_client_state state = sched_client_state(&server->sched, peer->slot);
	struct sched_client_status status;

	sched_client_status(&server->sched, peer->slot, server->now_ns, &status);
	return state != SCHED_CLIENT_INCOMING && state != SCHED_CLIENT_STOPPING && !status.hung;
}

/*
 * Whether what NVML shows beyond the report can be of the client's contexts. It can not where
 * managed memory has left the card, which NVML shows until others need the room, nor where the
 * process has others' memory open. Nor is it where contexts would cost more than any do.
 */
static bool peer_beyond_is_of_contexts(const struct server *server, const struct peer *peer,
				       uint64_t beyond)
{
	uint64_t most = u64_min(server->gpus.at[peer->gpu].total / CONTEXT_PART, CONTEXT_MAX);
	uint64_t reported = peer->mem.pinned[NVSHARE_PINNED_CONTEXT] - peer->evidence.beyond;

	return peer->backend != NVSHARE_BACKEND_MANAGED &&
	       !peer->mem.pinned[NVSHARE_PINNED_MANAGED] && !peer->ticket_process && reported > 0 &&
	       reported + beyond <= most;
}

/* true: what its contexts cost is soon to be known. */
static bool doubts_settle(struct server *server, struct peer *peer,
			  const struct evidence_report *report)
{
	struct evidence *evidence = &peer->evidence;

	if (!evidence->changed_ns || peer->state != PEER_STATE_CLIENT)
		return false;
	if (peer_is_at_rest(server, peer) &&
	    peer_beyond_is_of_contexts(server, peer, report->beyond) &&
	    evidence_settle(evidence, report, server->doubts->gpus[peer->gpu].listed_ns)) {
		client_messages_contexts(server, peer, report->beyond);
		if (report->is_sure && !evidence->shown)
			hearsay_confirm(peer, report->shown);
		if (report->is_sure) {
			evidence->shown = report->shown;
			evidence->changed_ns = 0;
		}
	}
	return evidence->changed_ns && server->now_ns - evidence->changed_ns <
					       server->settings.report_grace_ns + MEASURE_PERIOD_NS;
}

/* true: a report is still suspected or doubted. */
static bool doubts_compare(struct server *server, uint32_t index, const struct peer *reporter)
{
	struct doubts_gpu *doubts = &server->doubts->gpus[index];
	struct nvml_process processes[PROCESSES_MAX];
	bool is_suspect = false;
	uint32_t n;

	if (!doubts_list_processes(server, index))
		return false;
	doubts->compared_ns = server->now_ns;
	memcpy(processes, doubts->at, doubts->n * sizeof(*processes));
	n = doubts_collect_reports(server, index, reporter);
	evidence_compare(server->doubts->reports, n, processes, doubts->n, doubts->used,
			 doubts_slack(server, index));
	for (uint32_t i = 0; i < n; i++) {
		const struct evidence_report *report = &server->doubts->reports[i];
		struct peer *peer = &server->peers[report->slot];

		doubts_apply(server, peer, report->lacking, reporter);
		is_suspect |= peer->evidence.is_suspect || peer->evidence.doubted;
		if (peer != reporter)
			is_suspect |= doubts_settle(server, peer, report);
	}
	return is_suspect;
}

/* Bytes that a client reports no longer are taken for the doubted ones. The core does the same. */
static void doubts_follow_report(struct server *server, struct peer *peer, uint64_t before)
{
	uint64_t there = u64_excess(before, peer->doubted);

	if (peer->doubted <= u64_excess(peer->account.on_card, there))
		return;
	peer->doubted = u64_excess(peer->account.on_card, there);
	peer->evidence.doubted = peer->doubted + peer->doubted_second;
	server_account(server, peer, peer->account.on_card, peer->account.budget);
}

/* Our number is too low for a while if a report has crossed a new budget. The core's is right. */
static uint64_t peer_budget(const struct server *server, const struct peer *peer)
{
	struct sched_client_status status;

	if (peer->state != PEER_STATE_CLIENT || peer->account.on_card <= peer->account.budget)
		return peer->account.budget;
	sched_client_status(&server->sched, peer->slot, server->now_ns, &status);
	return status.budget > peer->account.budget ? status.budget : peer->account.budget;
}

/*
 * peer reports more than its budget. Such bytes are on the card already if the report is true, so
 * it is checked at once, before others lack the room.
 */
static void doubts_compare_now(struct server *server, struct peer *peer)
{
	struct doubts_gpu *doubts = &server->doubts->gpus[peer->gpu];
	uint64_t excess;

	if (server->now_ns - doubts->compared_ns >= COMPARE_NS) {
		if (doubts_compare(server, peer->gpu, peer))
			doubts_compare_by(server, peer->gpu, server->now_ns);
		return;
	}
	/* All reports were explained a moment ago, so an excess comes from this report. */
	excess = u64_excess(server->gpus.at[peer->gpu].reported,
			    doubts->used + doubts_slack(server, peer->gpu));
	doubts_apply(server, peer, peer->evidence.doubted + excess, peer);
	doubts_compare_by(server, peer->gpu, server->now_ns);
}

void doubts_hear(struct server *server, struct peer *peer, const struct memory_account *before)
{
	uint64_t there = peer->evidence.there, slack;

	if (!doubts_are_possible(server, peer->gpu))
		return;
	slack = doubts_slack(server, peer->gpu);
	doubts_follow_report(server, peer, before->on_card);
	evidence_report(&peer->evidence, peer->account.on_card, peer_budget(server, peer));
	if (peer->evidence.there > there + slack)
		doubts_compare_now(server, peer);
	else if (peer->account.on_card + peer->mem.pager_context >
		 before->on_card + before->second + slack)
		doubts_compare_by(server, peer->gpu,
				  server->now_ns + server->settings.report_grace_ns);
}

void doubts_contexts(struct server *server, struct peer *peer)
{
	peer->evidence.changed_ns = server->now_ns;
	if (doubts_are_possible(server, peer->gpu))
		doubts_compare_by(server, peer->gpu, server->now_ns + MEASURE_PERIOD_NS);
}

void doubts_wake(struct server *server, uint32_t index)
{
	if (doubts_are_possible(server, index))
		doubts_compare_by(server, index, server->now_ns);
}

static void doubts_on_due(struct server *server, struct deadline *deadline)
{
	struct sched_gpu_status status;

	(void)deadline;
	for (uint32_t i = 0; i < server->gpus.n; i++) {
		bool is_suspect = server->doubts->gpus[i].is_suspect;

		server->doubts->gpus[i].is_suspect = false;
		if (!is_suspect || !doubts_are_possible(server, i))
			continue;
		is_suspect = doubts_compare(server, i, NULL);
		sched_gpu_status(&server->sched, i, &status);
		if (is_suspect || status.n_queued)
			doubts_compare_by(server, i, server->now_ns + MEASURE_PERIOD_NS);
	}
}

int doubts_init(struct server *server)
{
	server->doubts = calloc(1, sizeof(*server->doubts));
	if (!server->doubts)
		return -ENOMEM;
	server->doubts->due.on_due = doubts_on_due;
	return 0;
}

void doubts_deinit(struct server *server)
{
	free(server->doubts);
}
