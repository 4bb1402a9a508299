/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/shares.h"

#include "daemon/server.h"
#include "util/clock.h"
#include "util/log.h"

/* The core numbers its classes and activities as the wire does, so numbers pass unchanged. */
_Static_assert((int)TIMESHARE_CLASS_CRITICAL == (int)NVSHARE_PRIORITY_CRITICAL,
	       "enum timeshare_class");
_Static_assert((int)TIMESHARE_CLASS_COUNT_ == (int)NVSHARE_PRIORITY_COUNT, "enum timeshare_class");
_Static_assert((int)TIMESHARE_ACTIVITY_HINT == (int)NVSHARE_ACTIVITY_HINT,
	       "enum timeshare_activity");
_Static_assert((int)TIMESHARE_ACTIVITY_COUNT_ == (int)NVSHARE_ACTIVITY_COUNT,
	       "enum timeshare_activity");
_Static_assert((int)TIMESHARE_SLICE_MIN == (int)NVSHARE_SLICE_US_MIN, "slices");
_Static_assert((int)TIMESHARE_SLICE_MAX == (int)NVSHARE_SLICE_US_MAX, "slices");

/* One pass makes at most so many steps, then the loop comes back to its events. */
#define DUE_STEPS_MAX 256

/* A decision by energy needs the power, but not each change of it. */
#define POWER_NS CLOCK_NS_PER_SEC

/* A use below this does not matter for the order of turns. */
#define USED_STEP_NS CLOCK_NS_PER_MS

static void shares_send_set(struct server *server, const struct timeshare_action *action)
{
	struct peer *peer = &server->peers[action->client];

	if (action->hold_us)
		states_note_order(server);
	server_queue_body(server, peer, NVSHARE_MSG_SET_SHARE,
			  &(struct nvshare_set_share){
				  .seq = action->seq,
				  .slice_us = action->slice_us,
				  .hold_us = action->hold_us,
				  .use_ppm = action->use_ppm,
				  .claim = peer->claim,
			  });
}

static void shares_log_client(struct server *server, const struct timeshare_action *action)
{
	const struct peer *peer = &server->peers[action->client];

	if (!server_may_log(server, peer->pod.owner, LOG_LEVEL_WARN))
		return;
	if (action->report == TIMESHARE_REPORT_MUTE)
		log_warn("share-unanswered client=%u pid=%d gpu=%u", peer->id, (int)peer->cred.pid,
			 peer->gpu);
	else
		log_warn("not-held client=%u pid=%d gpu=%u outcome=%s", peer->id,
			 (int)peer->cred.pid, peer->gpu, actions_outcome(action->seq));
}

static void shares_log_report(struct server *server, const struct timeshare_action *action)
{
	switch (action->report) {
	case TIMESHARE_REPORT_MUTE:
	case TIMESHARE_REPORT_NOT_HELD:
		shares_log_client(server, action);
		break;
	case TIMESHARE_REPORT_SLOW:
		/* Any client can cause this line, by its report of how long a hold takes. */
		server_log(server, QUOTA_NOBODY, LOG_LEVEL_INFO,
			   "holds-slow gpu=%u: the bursts of latency-critical programs are left to"
			   " timeslices for a while",
			   action->gpu);
		break;
	case TIMESHARE_REPORT_FAST:
		log_debug("holds-tried-again gpu=%u", action->gpu);
		break;
	case TIMESHARE_REPORT_CAPPED:
		log_debug("capped gpu=%u", action->gpu);
		break;
	case TIMESHARE_REPORT_NOT_CAPPED:
		log_debug("not-capped gpu=%u", action->gpu);
		break;
	}
}

static void shares_note(struct server *server, uint32_t gpu)
{
	struct shares *shares = &server->shares;
	uint64_t totals[RECENT_TOTAL_COUNT_];

	timeshare_gpu_totals(&shares->timeshare, gpu, totals);
	recent_note(&shares->recent[gpu], totals, server->now_ns);
}

uint64_t shares_recent(const struct server *server, uint32_t gpu,
		       uint64_t ret_growth[RECENT_TOTAL_COUNT_])
{
	const struct shares *shares = &server->shares;
	uint64_t totals[RECENT_TOTAL_COUNT_];

	timeshare_gpu_totals(&shares->timeshare, gpu, totals);
	return recent_growth(&shares->recent[gpu], totals, server->now_ns, ret_growth);
}

/* The messages leave first, because a client's request waits for them. */
static int shares_step(struct server *server, struct timeshare_event *event)
{
	struct timeshare_actions actions;
	int r;

	relay_drain(server); /* earlier events come first */
	event->now_ns = server->now_ns;
	r = timeshare_step(&server->shares.timeshare, event, &actions);
	job_queue_touch(server); /* a program may have work now, or be frozen */
	for (uint32_t i = 0; i < actions.n; i++) {
		if (actions.at[i].type == TIMESHARE_ACTION_SET)
			shares_send_set(server, &actions.at[i]);
	}
	server_flush(server);
	for (uint32_t i = 0; i < actions.n; i++) {
		if (actions.at[i].type == TIMESHARE_ACTION_REPORT)
			shares_log_report(server, &actions.at[i]);
	}
	return r;
}

static struct timeshare_claim shares_core_claim(const struct nvshare_claim *claim)
{
	return (struct timeshare_claim){
		.class = (enum timeshare_class)claim->priority,
		.weight = claim->weight ? claim->weight : NVSHARE_WEIGHT_DEFAULT,
		.slo_us = claim->slo_us,
		.limit = claim->compute_limit,
	};
}

void shares_join(struct server *server, struct peer *peer)
{
	struct timeshare_event event = {
		.type = TIMESHARE_EVENT_JOIN,
		.client = peer->slot,
		.gpu = peer->gpu,
		.claim = shares_core_claim(&peer->claim),
	};

	(void)shares_step(server, &event);
	shares_note(server, peer->gpu);
	if (server->shares.timeshare.config.is_saving && server->gpus.nvml.handle &&
	    !deadline_is_set(&server->shares.power))
		deadline_set(&server->deadlines, &server->shares.power, server->now_ns);
}

void shares_claim(struct server *server, struct peer *peer)
{
	struct timeshare_event event = {
		.type = TIMESHARE_EVENT_CLAIM,
		.client = peer->slot,
		.claim = shares_core_claim(&peer->claim),
	};

	(void)shares_step(server, &event);
}

void shares_follow(struct server *server, struct peer *peer)
{
	struct timeshare_event event = {.type = TIMESHARE_EVENT_RUN, .client = peer->slot};

	if (peer->state != PEER_STATE_CLIENT)
		return;
	event.running = sched_client_state(&server->sched, peer->slot) == SCHED_CLIENT_RUNNING;
	(void)shares_step(server, &event);
}

void shares_stop(struct server *server, struct peer *peer)
{
	if (peer->state == PEER_STATE_CLIENT &&
	    sched_client_state(&server->sched, peer->slot) != SCHED_CLIENT_RUNNING)
		shares_follow(server, peer);
}

/* The GPU time that peer has had since the last time goes to sched, which orders the turns. */
static void shares_push_used(struct server *server, struct peer *peer)
{
	uint64_t gpu_ns = timeshare_gpu_ns(&server->shares.timeshare, peer->slot);

	if (gpu_ns < peer->gpu_ns + USED_STEP_NS)
		return;
	relay_push(&server->relay, RELAY_USED, peer->slot, gpu_ns - peer->gpu_ns);
	peer->gpu_ns = gpu_ns;
}

void shares_activity(struct server *server, struct peer *peer,
		     const struct nvshare_activity *activity)
{
	struct timeshare_event event = {
		.type = TIMESHARE_EVENT_ACTIVITY,
		.client = peer->slot,
		.activity = (enum timeshare_activity)activity->kind,
		.busy_ns = activity->busy_ns,
		.held_ns = activity->held_ns,
		.ran_ns = activity->ran_ns,
		.value = activity->value,
		.n_calls = activity->n_calls,
		.n_tasks = activity->n_tasks,
		.n_violations = activity->n_violations,
	};

	(void)shares_step(server, &event);
	shares_note(server, peer->gpu);
	shares_push_used(server, peer);
}

void shares_set(struct server *server, struct peer *peer, const struct nvshare_share_set *set)
{
	struct timeshare_event event = {
		.type = TIMESHARE_EVENT_DONE,
		.client = peer->slot,
		.seq = set->seq,
		.outcome = set->outcome,
		.took_ns = set->took_ns,
		.is_held = set->is_held,
	};
	int r;

	r = shares_step(server, &event);
	if (!r && peer->is_frozen != (set->is_held != 0)) {
		peer->is_frozen = set->is_held;
		trace_client(
			server, peer,
			&(struct nvshare_trace_entry){
				.kind = set->is_held ? NVSHARE_TRACE_FREEZE : NVSHARE_TRACE_THAW,
				.ns = set->took_ns,
			});
	}
	if (r)
		log_debug("ignored client=%u message=SHARE_SET seq=%llu core=%d", peer->id,
			  (unsigned long long)set->seq, r);
}

void shares_gone(struct server *server, struct peer *peer)
{
	struct timeshare_event event = {.type = TIMESHARE_EVENT_LEAVE, .client = peer->slot};

	(void)shares_step(server, &event);
	shares_note(server, peer->gpu);
}

void shares_config(struct server *server)
{
	struct timeshare_config config = server->settings.share;
	struct timeshare_event event = {.type = TIMESHARE_EVENT_CONFIG, .config = &config};

	config.has_classes = server->settings.config.policy == SCHED_POLICY_PRIORITY;
	(void)shares_step(server, &event);
}

void shares_other_gpu(struct server *server, uint32_t index)
{
	struct timeshare_event event = {.type = TIMESHARE_EVENT_GPU, .gpu = index};

	(void)shares_step(server, &event);
}

void shares_power(struct server *server)
{
	for (uint32_t i = 0; i < server->gpus.n; i++) {
		struct timeshare_event event = {
			.type = TIMESHARE_EVENT_POWER,
			.gpu = i,
			.value = gpus_power(&server->gpus, i, server->now_ns),
		};

		(void)shares_step(server, &event);
	}
}

static void shares_on_power(struct server *server, struct deadline *deadline)
{
	if (server->n_clients)
		deadline_set(&server->deadlines, deadline, server->now_ns + POWER_NS);
	shares_power(server);
}

static void shares_on_due(struct server *server, struct deadline *deadline)
{
	(void)deadline;
	for (unsigned int i = 0; i < DUE_STEPS_MAX; i++) {
		struct timeshare_event event = {.type = TIMESHARE_EVENT_TIME};

		if (timeshare_deadline(&server->shares.timeshare) > server->now_ns)
			break;
		(void)shares_step(server, &event);
	}
}

void shares_init(struct server *server)
{
	timeshare_init(&server->shares.timeshare, server->shares.clients, SERVER_PEERS_MAX,
		       &server->settings.share);
	server->shares.power.on_due = shares_on_power;
	server->shares.due.on_due = shares_on_due;
	shares_config(server);
}
