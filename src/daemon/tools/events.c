/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tools/events.h"

#include "daemon/server.h"
#include "util/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

#define ANSWERS_A_ROUND 32

static uint64_t events_unix_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * CLOCK_NS_PER_SEC + (uint64_t)now.tv_nsec;
}

static void events_answer(struct server *server, struct peer *peer)
{
	const struct events *events = &server->events;
	uint64_t first = events->last_id < EVENTS_MAX ? 1 : events->last_id - EVENTS_MAX + 1;
	uint64_t id = peer->event_after + 1 > first ? peer->event_after + 1 : first;
	struct nvshare_event answer = {.type = NVSHARE_EVENT_NONE};

	if (id <= events->last_id) {
		answer = events->at[id % EVENTS_MAX];
		answer.n_missed = id - peer->event_after - 1;
	}
	server_send_body(server, peer, NVSHARE_MSG_EVENT, peer->event_seq, &answer);
	flow_charge(server, peer, 1);
}

/* All of many thousand answers at once would make clients wait. */
static void events_on_due(struct server *server, struct deadline *deadline)
{
	struct events *events = &server->events;

	for (unsigned int i = 0; i < ANSWERS_A_ROUND; i++) {
		struct peer *peer = events->waiting;

		if (!peer || peer->event_after >= events->last_id)
			return;
		events_forget(server, peer);
		events_answer(server, peer);
	}
	deadline_set(&server->deadlines, deadline, server->now_ns + 1); /* the next round */
}

void events_init(struct server *server)
{
	server->events.due.on_due = events_on_due;
}

static bool events_are_too_many(struct server *server, uid_t uid)
{
	return quota_take_of(&server->flow.quota, uid, QUOTA_EVENTS, 1, server->now_ns) != 0;
}

/* Takes event, whose number and time are set here. */
static void events_add(struct server *server, struct nvshare_event *event)
{
	struct events *events = &server->events;

	text_sanitize(event->message);
	event->id = ++events->last_id;
	event->unix_ns = events_unix_ns();
	events->n[event->type]++;
	events->at[event->id % EVENTS_MAX] = *event;
	if (events->waiting)
		deadline_set(&server->deadlines, &events->due, server->now_ns);
	alerts_run(server, event);
}

void events_add_gpu(struct server *server, enum nvshare_event_type type,
		    enum nvshare_event_level level, uint32_t index, uint32_t xid,
		    const char *format, ...)
{
	struct nvshare_event event = {.type = type, .level = level, .gpu = index, .xid = xid};
	va_list args;

	if (type == NVSHARE_EVENT_GPU_XID && events_are_too_many(server, QUOTA_NOBODY))
		return;
	va_start(args, format);
	(void)vsnprintf(event.message, sizeof(event.message), format, args);
	va_end(args);
	if (index != EVENTS_NONE)
		gpus_print_uuid(&server->gpus.at[index], event.uuid);
	events_add(server, &event);
}

void events_add_client(struct server *server, enum nvshare_event_type type,
		       enum nvshare_event_level level, const struct peer *peer, const char *format,
		       ...)
{
	struct nvshare_event event = {
		.type = type,
		.level = level,
		.gpu = peer->gpu,
		.client = peer->id,
		.pid = (uint32_t)peer->cred.pid,
	};
	va_list args;

	if (events_are_too_many(server, peer->pod.owner))
		return;
	va_start(args, format);
	(void)vsnprintf(event.message, sizeof(event.message), format, args);
	va_end(args);
	gpus_print_uuid(&server->gpus.at[peer->gpu], event.uuid);
	events_add(server, &event);
}

void events_ask(struct server *server, struct peer *peer, uint32_t seq,
		const struct nvshare_get_events *request)
{
	events_forget(server, peer);
	/* Numbers begin anew with the scheduler: a number that is not there yet is an old one. */
	peer->event_after = request->after <= server->events.last_id ? request->after : 0;
	peer->event_seq = seq;
	if (!request->waits || peer->event_after < server->events.last_id) {
		events_answer(server, peer);
		return;
	}
	peer->is_event_waiting = true;
	DL_APPEND2(server->events.waiting, peer, event_prev, event_next);
}

void events_forget(struct server *server, struct peer *peer)
{
	if (peer->is_event_waiting)
		DL_DELETE2(server->events.waiting, peer, event_prev, event_next);
	peer->is_event_waiting = false;
}
