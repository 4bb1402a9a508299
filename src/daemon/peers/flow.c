/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/flow.h"

#include "daemon/server.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/text.h"

#include <unistd.h>
#include <utlist.h>

/* A latency-critical program with a thousand requests a second sends four messages a request. */
static const struct quota_rate peer_rate = {CLOCK_NS_PER_SEC / 4000, 8000};

/*
 * A peer over its quota is read again after so long. The pause grows with the number of paused
 * peers, because resuming costs the same for each of them.
 */
#define PAUSE_NS       (10 * CLOCK_NS_PER_MS)
#define PAUSED_A_PAUSE 64

#define RESUMES_A_ROUND 64

/* ---- log ------------------------------------------------------------------- */

bool server_may_log(struct server *server, uint32_t owner, enum log_level level)
{
	if (!log_is_on(level))
		return false;
	if (log_is_on(LOG_LEVEL_DEBUG))
		return true; /* the level debug asks for a line a message */
	if (quota_line(&server->flow.quota, owner, users_is_trusted(owner), server->now_ns))
		return true;
	deadline_set(&server->deadlines, &server->flow.report, quota_deadline(&server->flow.quota));
	return false;
}

void flow_report(struct server *server, bool is_last)
{
	struct quota_report reports[QUOTA_TOLD + 1];
	uint32_t n = quota_reports(&server->flow.quota, server->now_ns, is_last, reports);

	for (uint32_t i = 0; i < n; i++) {
		unsigned long long n_lines = reports[i].n_lines;
		unsigned long long seconds = reports[i].passed_ns / CLOCK_NS_PER_SEC;
		char owner[PODS_OWNER_LEN];

		pods_print_owner(&server->pods, reports[i].uid, owner);
		if (reports[i].uid == QUOTA_NOBODY)
			log_warn("suppressed lines=%llu uid=others seconds=%llu", n_lines, seconds);
		else if (reports[i].uid >= PODS_OWNER_FIRST)
			log_warn("suppressed lines=%llu pods=%s seconds=%llu", n_lines,
				 TEXT_QUOTED(owner), seconds);
		else
			log_warn("suppressed lines=%llu uid=%u seconds=%llu", n_lines,
				 (unsigned int)reports[i].uid, seconds);
	}
}

/* ---- messages -------------------------------------------------------------- */

static enum quota_kind peer_quota_kind(const struct peer *peer)
{
	return peer->state == PEER_STATE_TOOL ? QUOTA_ANSWERS : QUOTA_MESSAGES;
}

static void flow_set_resume(struct server *server)
{
	deadline_set(&server->deadlines, &server->flow.resume,
		     server->flow.paused ? server->flow.paused->resume_ns : DEADLINE_NEVER);
}

static void peer_pause(struct server *server, struct peer *peer)
{
	peer->is_paused = true;
	peer->resume_ns = server->now_ns + PAUSE_NS * (1 + server->flow.n_paused / PAUSED_A_PAUSE);
	DL_APPEND2(server->flow.paused, peer, paused_prev, paused_next);
	server->flow.n_paused++;
	flow_set_resume(server);
	if (!peer->was_paused)
		server_log(server, peer->pod.owner, LOG_LEVEL_INFO,
			   "slowed peer=%u client=%u pid=%d uid=%u: it sends too fast", peer->slot,
			   peer->id, (int)peer->cred.pid, (unsigned int)peer->cred.uid);
	peer->was_paused = true;
}

static void peer_resume(struct server *server, struct peer *peer)
{
	DL_DELETE2(server->flow.paused, peer, paused_prev, paused_next);
	server->flow.n_paused--;
	peer->is_paused = false;
	peer->is_due = true;
	flow_set_resume(server);
}

/*
 * The messages of all clients of one user count together. Root and the scheduler's own user have
 * no limit, because they can stop the scheduler in other ways.
 */
static bool flow_user_is_too_fast(struct server *server, const struct peer *peer)
{
	uint32_t owner = peer->pod.owner;

	if (peer_quota_kind(peer) == QUOTA_MESSAGES && users_is_trusted(owner))
		return false;
	return quota_take_of(&server->flow.quota, owner, peer_quota_kind(peer), 1,
			     server->now_ns) != 0;
}

bool flow_admit(struct server *server, struct peer *peer)
{

	/*
	 * After a pause one message is read in any case. Otherwise other clients of the user
	 * could take the whole quota. Tools are left out: they have turns of their own, and a
	 * part of an answer is more work than a message.
	 */
	if (peer->is_due && peer_quota_kind(peer) == QUOTA_MESSAGES) {
		peer->is_due = false;
		flow_charge(server, peer, 1);
		return true;
	}
	if (quota_take(&peer->quota, &peer_rate, 1, server->now_ns) ||
	    flow_user_is_too_fast(server, peer)) {
		peer_pause(server, peer);
		return false;
	}
	return true;
}

void flow_charge(struct server *server, struct peer *peer, uint32_t n)
{
	quota_charge(&server->flow.quota, peer->pod.owner, peer_quota_kind(peer), n,
		     server->now_ns);
}

static void flow_on_resume(struct server *server, struct deadline *deadline)
{
	(void)deadline;
	for (unsigned int i = 0; i < RESUMES_A_ROUND; i++) {
		struct peer *peer = server->flow.paused;

		if (!peer || peer->resume_ns > server->now_ns)
			return;
		peer_resume(server, peer);
		connections_update(server, peer);
	}
}

void flow_forget(struct server *server, struct peer *peer)
{
	if (peer->is_paused)
		peer_resume(server, peer);
}

static void flow_on_report(struct server *server, struct deadline *deadline)
{
	(void)deadline;
	flow_report(server, false);
}

void flow_init(struct server *server)
{
	server->flow.resume.on_due = flow_on_resume;
	server->flow.report.on_due = flow_on_report;
}
