/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dispatch.h"

#include "daemon/jobs/job_programs.h"
#include "daemon/server.h"
#include "daemon/tickets/ticket_work.h"

/* One pass makes at most so many steps, then the loop comes back to its events. */
#define DUE_STEPS_MAX 256

int dispatch_step(struct server *server, struct sched_event *event,
		  struct sched_actions *ret_actions)
{
	relay_drain(server); /* earlier events come first */
	ret_actions->n = 0;
	event->now_ns = server->now_ns;
	return sched_step(&server->sched, event, ret_actions);
}

void dispatch_perform(struct server *server, struct peer *peer, const struct sched_actions *actions)
{
	job_queue_touch(server); /* a program may wait now, or run */
	ticket_work_changed(server, peer);
	relay_push_actions(&server->relay, peer->slot, actions);
	actions_perform(server, actions);
}

int dispatch_event(struct server *server, struct sched_event *event)
{
	struct sched_actions actions;
	int r = dispatch_step(server, event, &actions);

	if (!r)
		dispatch_perform(server, &server->peers[event->client], &actions);
	return r;
}

void dispatch_used(struct server *server, const struct peer *peer, uint64_t gpu_ns)
{
	struct sched_event event = {
		.type = SCHED_EVENT_USED,
		.client = peer->slot,
		.gpu_ns = gpu_ns,
	};

	(void)dispatch_event(server, &event);
}

static void dispatch_on_due(struct server *server, struct deadline *deadline)
{
	(void)deadline;
	stopped_look_ahead(server);
	for (unsigned int i = 0; i < DUE_STEPS_MAX; i++) {
		struct sched_event event = {.type = SCHED_EVENT_TIME};

		if (sched_deadline(&server->sched) > server->now_ns)
			break;
		(void)dispatch_event(server, &event);
	}
}

void dispatch_init(struct server *server)
{
	sched_init(&server->sched, server->sched_clients, SERVER_PEERS_MAX,
		   &server->settings.config);
	server->sched_due.on_due = dispatch_on_due;
}

void dispatch_gone(struct server *server, struct peer *peer)
{
	struct sched_event event = {.type = SCHED_EVENT_LEAVE, .client = peer->slot};
	struct gpu *gpu = &server->gpus.at[peer->gpu];

	if (peer->pidfd >= 0)
		users_remove_pidfd(&server->users, peer->user);
	grace_forget(server, peer);
	if (peer->state != PEER_STATE_CLIENT)
		return;
	host_out(server, peer);
	peer->mem = (struct nvshare_mem){0};
	host_in(server, peer);
	peer->promised = 0;
	measure_leave(server, peer);
	server_account(server, peer, 0, 0);
	gpu->n_clients--;
	if (gpu->taker == peer->slot + 1)
		gpu->taker = 0;
	server->n_clients--;
	users_remove_client(&server->users, peer->user);
	server_log(server, peer->pod.owner, LOG_LEVEL_INFO, "leave client=%u gpu=%u pid=%d",
		   peer->id, peer->gpu, (int)peer->cred.pid);
	trace_name(server, peer);
	trace_client(server, peer,
		     &(struct nvshare_trace_entry){
			     .kind = NVSHARE_TRACE_LEAVE,
			     .detail = sched_client_state(&server->sched, peer->slot) >=
				       SCHED_CLIENT_RUNNING,
		     });
	shares_gone(server, peer);
	job_programs_leave(server, peer);
	(void)dispatch_event(server, &event);
	gangs_forget(server, peer);
	tickets_client_left(peer);
	measure_left(server, peer->gpu);
}
