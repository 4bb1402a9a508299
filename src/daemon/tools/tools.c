/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tools/tools.h"

#include "daemon/dispatch.h"
#include "daemon/jobs/job_messages.h"
#include "daemon/peers/claims.h"
#include "daemon/server.h"

#include "daemon/settings/settings_tool.h"
#include "daemon/tools/tool_status.h"
#include "util/clock.h"
#include "util/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

/* A setting may concern all clients of a GPU, which are told; its client is looked for in all
 * slots. */
#define SET_COST       20
#define SLOTS_A_PACKET 256

void tools_answer(struct server *server, struct peer *peer, uint32_t seq, enum nvshare_result code,
		  const char *format, ...)
{
	struct nvshare_result_msg result = {.code = code};
	va_list args;

	va_start(args, format);
	(void)vsnprintf(result.text, sizeof(result.text), format, args);
	va_end(args);
	text_sanitize(result.text); /* it may quote the tool, and goes to the log */
	server_send_body(server, peer, NVSHARE_MSG_RESULT, seq, &result);
	server_log(server, peer->pod.owner, LOG_LEVEL_INFO, "%s uid=%u pid=%d: %s",
		   code == NVSHARE_RESULT_OK ? "set" : "set-refused", (unsigned int)peer->cred.uid,
		   (int)peer->cred.pid, result.text);
}

static void tools_deny(struct server *server, struct peer *peer, uint32_t seq)
{
	switch (peer->pod.kind) {
	case POD_KIND_NONE:
		tools_answer(server, peer, seq, NVSHARE_RESULT_DENIED,
			     "not permitted: this needs root, uid %u, or membership of the group"
			     " 'nvshare'%s",
			     (unsigned int)geteuid(),
			     server->group == (gid_t)-1 ? " (which this node does not have)" : "");
		break;
	case POD_KIND_POD:
		tools_answer(server, peer, seq, NVSHARE_RESULT_DENIED,
			     "not permitted: a pod's root is not this node's. Call the tool on the"
			     " node, or in the scheduler's own pod");
		break;
	case POD_KIND_UNSEEN:
		tools_answer(server, peer, seq, NVSHARE_RESULT_DENIED,
			     "not permitted: the scheduler does not see this process. Call the"
			     " tool in the scheduler's pid namespace");
		break;
	}
}

void tools_message(struct server *server, struct peer *peer, const struct msg *msg)
{
	uint32_t seq = msg->header.seq;

	if (msg->header.type == NVSHARE_MSG_GET_STATUS) {
		/* It is answered in the turns of tools, of which there is one a round. */
		tool_status_begin(server, peer, seq, msg->body.get_status.flags);
		return;
	}
	if (msg->header.type == NVSHARE_MSG_GET_CONFIG) {
		settings_tool_show(server, peer, seq, &msg->body.get_config);
		return;
	}
	if (msg->header.type == NVSHARE_MSG_GET_TRACE) {
		struct nvshare_trace page;

		trace_page(&server->trace, server->now_ns, &msg->body.get_trace, &page);
		server_send_body(server, peer, NVSHARE_MSG_TRACE, seq, &page);
		return;
	}
	if (msg->header.type == NVSHARE_MSG_GET_EVENTS) {
		events_ask(server, peer, seq, &msg->body.get_events);
		return;
	}
	if (job_messages_has(msg->header.type)) {
		job_messages_handle(server, peer, msg);
		return;
	}
	flow_charge(server, peer, SET_COST + server->slots_used / SLOTS_A_PACKET);
	if (msg->header.type == NVSHARE_MSG_TICKETS) {
		tickets_join(server, peer, seq);
		return;
	}
	if (msg->header.type == NVSHARE_MSG_SET && claims_is_key(msg->body.set.key)) {
		claims_set(server, peer, seq, &msg->body.set);
		return;
	}
	if (!claims_may_steer(server, peer)) {
		tools_deny(server, peer, seq);
		return;
	}
	switch (msg->header.type) {
	case NVSHARE_MSG_SET:
		settings_tool_set(server, peer, seq, &msg->body.set);
		break;
	case NVSHARE_MSG_SET_TQ:
		settings_tool_set(
			server, peer, seq,
			&(struct nvshare_set){.key = NVSHARE_KEY_TQ, .value = msg->body.set_tq.ms});
		break;
	case NVSHARE_MSG_SET_TEXT:
		settings_tool_set_text(server, peer, seq, &msg->body.set_text);
		break;
	case NVSHARE_MSG_RELOAD:
		settings_tool_reload(server, peer, seq);
		break;
	case NVSHARE_MSG_SCHED_ON:
	case NVSHARE_MSG_SCHED_OFF:
		settings_tool_anti_thrash(server, peer, seq,
					  msg->header.type == NVSHARE_MSG_SCHED_ON);
		break;
	}
}

/* ---- the turns of tools ------------------------------------------------------ */

static void tools_on_ready(void *context, struct event_source *source, uint32_t events)
{
	struct server *server = context;
	(void)source;
	(void)events;
	server->tools.is_ready = true;
}

int tools_open(struct server *server)
{
	int r = poller_open(&server->tools.poller);

	if (r)
		return r;
	return event_source_add(&server->poller, &server->tools.source, server->tools.poller.fd,
				EPOLLIN, tools_on_ready);
}

void tools_serve(struct server *server)
{
	struct epoll_event event;

	if (server->tools.is_ready && poller_wait(&server->tools.poller, &event, 1, 0) == 1)
		poller_dispatch(&server->tools.poller, server, &event);
	server->tools.is_ready = false;
}
