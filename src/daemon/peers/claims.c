/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/claims.h"

#include "daemon/dispatch.h"
#include "daemon/peers/pauses.h"
#include "daemon/server.h"
#include "daemon/shares.h"

#include "ipc/names.h"
#include "util/text.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define GROUPS_MAX 1024

_Static_assert((int)SCHED_PRIORITY_CRITICAL == (int)NVSHARE_PRIORITY_CRITICAL,
	       "enum nvshare_priority");
_Static_assert(SCHED_WEIGHT_MAX == NVSHARE_WEIGHT_MAX, "weights");

/*
 * The groups that the process had when it connected, as the kernel knows them, and its main
 * group.
 */
static size_t peer_groups(const struct peer *peer, gid_t groups[GROUPS_MAX])
{
	socklen_t len = (GROUPS_MAX - 1) * sizeof(groups[0]);
	size_t n = 0;

	if (getsockopt(peer->fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len) == 0)
		n = len / sizeof(groups[0]);
	groups[n] = peer->cred.gid;
	return n + 1;
}

bool claims_may_steer(const struct server *server, const struct peer *peer)
{
	gid_t groups[GROUPS_MAX];
	size_t n;

	if (users_is_trusted(peer->pod.owner))
		return true;
	/* An image chooses the groups of its processes. */
	if (server->group == (gid_t)-1 || peer->pod.kind != POD_KIND_NONE)
		return false;
	n = peer_groups(peer, groups);
	for (size_t i = 0; i < n; i++) {
		if (groups[i] == server->group)
			return true;
	}
	return false;
}

static uint32_t claims_priority_max(const struct server *server, const struct peer *peer)
{
	gid_t groups[GROUPS_MAX];

	if (claims_may_steer(server, peer))
		return NVSHARE_PRIORITY_CRITICAL;
	if (peer->pod.kind != POD_KIND_NONE)
		return rights_priority_of_namespace(&server->settings.rights,
						    pods_namespace(&server->pods, &peer->pod));
	return rights_priority(&server->settings.rights, peer->cred.uid, groups,
			       peer_groups(peer, groups));
}

uint32_t claims_priority(struct server *server, const struct peer *peer, uint32_t priority)
{
	uint32_t max = NVSHARE_PRIORITY_NORMAL;

	/* Most clients claim nothing special, so the kernel is not asked for their groups. */
	if (priority > NVSHARE_PRIORITY_LOW)
		max = claims_priority_max(server, peer);
	if (priority <= max)
		return priority;
	server_log(server, peer->pod.owner, LOG_LEVEL_INFO,
		   "claim-cut pid=%d uid=%u priority=%s given=%s pod=%s", (int)peer->cred.pid,
		   (unsigned int)peer->cred.uid, names_priority[priority], names_priority[max],
		   TEXT_QUOTED(peer->pod.name));
	return max;
}

void claims_take(struct server *server, struct peer *peer, const struct nvshare_claim *claim)
{
	peer->claim = *claim;
	if (peer->claim.weight == 0)
		peer->claim.weight = NVSHARE_WEIGHT_DEFAULT;
	peer->claim.priority = claims_priority(server, peer, claim->priority);
}

struct sched_claim claims_core(const struct nvshare_claim *claim)
{
	return (struct sched_claim){
		.priority = (enum sched_priority)claim->priority,
		.weight = claim->weight,
		.slo_ns = (uint64_t)claim->slo_us * 1000,
	};
}

static struct peer *claims_find_client(struct server *server, uint32_t id)
{
	for (uint32_t i = 0; i < server->slots_used; i++) {
		if (server->peers[i].state == PEER_STATE_CLIENT && server->peers[i].id == id)
			return &server->peers[i];
	}
	return NULL;
}

static void claims_change(struct server *server, struct peer *client,
			  const struct nvshare_claim *claim)
{
	struct sched_event event = {
		.type = SCHED_EVENT_CLAIM,
		.client = client->slot,
		.claim = claims_core(claim),
	};

	client->claim = *claim;
	server_account(server, client, client->account.on_card, client->account.budget);
	(void)dispatch_event(server, &event);
	shares_claim(server, client);
}

bool claims_is_key(uint32_t key)
{
	return key == NVSHARE_KEY_PRIORITY || key == NVSHARE_KEY_WEIGHT || key == NVSHARE_KEY_SLO ||
	       key == NVSHARE_KEY_COMPUTE_LIMIT || key == NVSHARE_KEY_PAUSE;
}

/* Writes value to the field of key. NULL, or a text that says which values are allowed. */
static const char *claim_put(struct nvshare_claim *claim, uint32_t key, uint64_t value)
{
	switch ((enum nvshare_key)key) {
	case NVSHARE_KEY_PRIORITY:
		if (value >= NVSHARE_PRIORITY_COUNT)
			return "priority is low, normal, high or critical";
		claim->priority = (uint32_t)value;
		return NULL;
	case NVSHARE_KEY_WEIGHT:
		if (value < NVSHARE_WEIGHT_MIN || value > NVSHARE_WEIGHT_MAX)
			return "weight is 1 to 10000";
		claim->weight = (uint32_t)value;
		return NULL;
	case NVSHARE_KEY_SLO:
		if (value > NVSHARE_SLO_US_MAX)
			return "slo is an hour at the most";
		claim->slo_us = (uint32_t)value;
		return NULL;
	case NVSHARE_KEY_COMPUTE_LIMIT:
		if (value > 100)
			return "compute-limit is 1 to 100 percent, or 0: none";
		claim->compute_limit = (uint32_t)value;
		return NULL;
	case NVSHARE_KEY_MODE:
	case NVSHARE_KEY_TQ:
	case NVSHARE_KEY_SWITCH_TIME:
	case NVSHARE_KEY_RESERVE:
	case NVSHARE_KEY_MAX_RUNTIME:
	case NVSHARE_KEY_POLICY:
	case NVSHARE_KEY_PAUSE:
	case NVSHARE_KEY_COUNT:
		break;
	}
	return "this setting is the node's, not a client's";
}

/*
 * A limit is not kept for a client that takes no turns, because it is never held off its GPU.
 * Older libraries register a process on several GPUs so.
 */
static const char *claims_unkept(const struct server *server, const struct peer *client)
{
	struct sched_client_status status;

	sched_client_status(&server->sched, client->slot, server->now_ns, &status);
	return status.fixed ? "; it is not kept, since the client takes no turns" : "";
}

static void claims_answer(struct server *server, struct peer *tool, uint32_t seq,
			  const struct peer *client, uint32_t key)
{
	const struct nvshare_claim *claim = &client->claim;

	if (key == NVSHARE_KEY_PRIORITY)
		tools_answer(server, tool, seq, NVSHARE_RESULT_OK, "priority of client %u is %s",
			     client->id, names_priority[claim->priority]);
	else if (key == NVSHARE_KEY_WEIGHT)
		tools_answer(server, tool, seq, NVSHARE_RESULT_OK, "weight of client %u is %u",
			     client->id, claim->weight);
	else if (key == NVSHARE_KEY_SLO && claim->slo_us)
		tools_answer(server, tool, seq, NVSHARE_RESULT_OK, "slo of client %u is %.8g ms",
			     client->id, (double)claim->slo_us / 1000);
	else if (key == NVSHARE_KEY_COMPUTE_LIMIT && claim->compute_limit)
		tools_answer(server, tool, seq, NVSHARE_RESULT_OK,
			     "compute-limit of client %u is %u percent%s", client->id,
			     claim->compute_limit, claims_unkept(server, client));
	else
		tools_answer(server, tool, seq, NVSHARE_RESULT_OK, "client %u has no %s",
			     client->id, key == NVSHARE_KEY_SLO ? "slo" : "compute-limit");
}

/* Not a claim: it ends with the client's connection. */
static void claims_pause(struct server *server, struct peer *tool, uint32_t seq,
			 struct peer *client, uint64_t value)
{
	if (value > 1)
		tools_answer(server, tool, seq, NVSHARE_RESULT_INVALID, "pause is on or off");
	else if (pauses_set(server, client, PAUSE_OPERATOR, value == 1))
		tools_answer(server, tool, seq, NVSHARE_RESULT_INVALID,
			     "client %u takes no turns, so it can not be paused", client->id);
	else
		tools_answer(server, tool, seq, NVSHARE_RESULT_OK, "pause of client %u is %s",
			     client->id, value ? "on" : "off");
}

/* Pods of one namespace are apart: who may enter one of them need not be let into the others. */
static bool claims_is_same_user(const struct peer *tool, const struct peer *client)
{
	return tool->pod.owner == client->pod.owner && tool->cred.uid == client->cred.uid &&
	       !strcmp(tool->pod.group.uid, client->pod.group.uid);
}

void claims_set(struct server *server, struct peer *tool, uint32_t seq,
		const struct nvshare_set *set)
{
	struct peer *client = claims_find_client(server, set->client);
	struct nvshare_claim claim;
	const char *allowed;
	char owner[PODS_OWNER_LEN];
	uint32_t max;

	if (!client) {
		tools_answer(server, tool, seq, NVSHARE_RESULT_INVALID, "there is no client %u",
			     set->client);
		return;
	}
	if (!claims_is_same_user(tool, client) && !claims_may_steer(server, tool)) {
		tools_answer(server, tool, seq, NVSHARE_RESULT_DENIED,
			     "not permitted: client %u is another user's", set->client);
		return;
	}
	if (set->key == NVSHARE_KEY_PAUSE) {
		claims_pause(server, tool, seq, client, set->value);
		return;
	}
	claim = client->claim;
	allowed = claim_put(&claim, set->key, set->value);
	if (allowed) {
		tools_answer(server, tool, seq, NVSHARE_RESULT_INVALID, "%s", allowed);
		return;
	}
	max = claims_priority_max(server, tool);
	if (set->key == NVSHARE_KEY_PRIORITY && claim.priority > max) {
		pods_print_owner(&server->pods, tool->pod.owner, owner);
		tools_answer(server, tool, seq, NVSHARE_RESULT_DENIED,
			     "not permitted: %s may claim %s at the most", owner,
			     names_priority[max]);
		return;
	}
	claims_change(server, client, &claim);
	claims_answer(server, tool, seq, client, set->key);
}
