/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tools.h"

#include "daemon/claims.h"
#include "daemon/dispatch.h"
#include "daemon/server.h"
#include "daemon/tool_status.h"
#include "util/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

/* A setting may concern all clients of a GPU, which are told; its client is looked for in all
 * slots. */
#define SET_COST       20
#define SLOTS_A_PACKET 256

/* ---- settings -------------------------------------------------------------- */

void tools_answer(struct server *server, struct peer *peer, uint32_t seq, enum nvshare_result code,
		  const char *format, ...)
{
	struct nvshare_result_msg result = {.code = code};
	va_list args;

	va_start(args, format);
	(void)vsnprintf(result.text, sizeof(result.text), format, args);
	va_end(args);
	server_send_body(server, peer, NVSHARE_MSG_RESULT, seq, &result);
	server_log(server, peer->cred.uid, LOG_LEVEL_INFO, "%s uid=%u pid=%d: %s",
		   code == NVSHARE_RESULT_OK ? "set" : "set-refused", (unsigned int)peer->cred.uid,
		   (int)peer->cred.pid, result.text);
}

/* Makes config the node's, or says why not. */
__attribute__((format(printf, 5, 6))) static void apply(struct server *server, struct peer *peer,
							uint32_t seq,
							const struct sched_config *config,
							const char *format, ...)
{
	struct sched_event event = {.type = SCHED_EVENT_CONFIG, .config = config};
	char text[NVSHARE_TEXT_LEN];
	va_list args;

	if (dispatch_event(server, &event)) {
		tools_answer(server, peer, seq, NVSHARE_RESULT_INVALID,
			     "the scheduler does not take that value together with the others");
		return;
	}
	server->config = *config;
	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	tools_answer(server, peer, seq, NVSHARE_RESULT_OK, "%s", text);
}

static void set_mode(struct server *server, struct peer *peer, uint32_t seq, uint64_t value)
{
	static const char *const names[] = {"auto", "serial", "concurrent"};
	struct sched_config config = server->config;

	if (value >= NVSHARE_MODE_COUNT) {
		tools_answer(server, peer, seq, NVSHARE_RESULT_INVALID,
			     "mode is auto, serial or concurrent");
		return;
	}
	config.mode = (enum sched_mode)value;
	apply(server, peer, seq, &config, "mode is %s", names[value]);
}

static void set_policy(struct server *server, struct peer *peer, uint32_t seq, uint64_t value)
{
	static const char *const names[] = {"priority", "fair", "credit", "deadline"};
	struct sched_config config = server->config;

	if (value >= NVSHARE_POLICY_COUNT) {
		tools_answer(server, peer, seq, NVSHARE_RESULT_INVALID,
			     "policy is priority, fair, credit or deadline");
		return;
	}
	config.policy = (enum sched_policy)value;
	apply(server, peer, seq, &config, "policy is %s", names[value]);
	shares_policy(server);
}

/* True if ms is from min to max; else the answer, which names what, is on its way. */
static bool is_time(struct server *server, struct peer *peer, uint32_t seq, const char *what,
		    uint64_t ms, uint64_t min, uint64_t max)
{
	if (ms >= min && ms <= max)
		return true;
	tools_answer(server, peer, seq, NVSHARE_RESULT_INVALID, "%s is %g to %g seconds", what,
		     (double)min / 1000, (double)max / 1000);
	return false;
}

/* A turn's length that the mode does not look at would seem to have no effect. */
static const char *unused(const struct sched_config *config, bool is_tq)
{
	bool is_concurrent = config->mode == SCHED_MODE_CONCURRENT;

	if (is_concurrent == is_tq)
		return "";
	return is_tq ? "; it counts in mode concurrent only"
		     : "; it does not count in mode concurrent";
}

static void set_tq(struct server *server, struct peer *peer, uint32_t seq, uint64_t ms)
{
	struct sched_config config = server->config;

	if (!is_time(server, peer, seq, "tq", ms, NVSHARE_TURN_MS_MIN, NVSHARE_TURN_MS_MAX))
		return;
	config.tq_ns = ms * CLOCK_NS_PER_MS;
	apply(server, peer, seq, &config, "tq is %.8g s%s", (double)ms / 1000,
	      unused(&config, true));
}

static void set_switch_time(struct server *server, struct peer *peer, uint32_t seq, uint64_t ms)
{
	struct sched_config config = server->config;

	if (ms == 0) {
		config.switch_mode = SCHED_SWITCH_AUTO;
		apply(server, peer, seq, &config, "switch-time is auto%s", unused(&config, false));
		return;
	}
	if (!is_time(server, peer, seq, "switch-time is auto, or it", ms, NVSHARE_TURN_MS_MIN,
		     NVSHARE_TURN_MS_MAX))
		return;
	config.switch_mode = SCHED_SWITCH_FIXED;
	config.switch_fixed_ns = ms * CLOCK_NS_PER_MS;
	apply(server, peer, seq, &config, "switch-time is %.8g s%s", (double)ms / 1000,
	      unused(&config, false));
}

static void set_reserve(struct server *server, struct peer *peer, uint32_t seq, uint64_t percent)
{
	struct sched_config config = server->config;

	if (percent > NVSHARE_RESERVE_PERCENT_MAX) {
		tools_answer(server, peer, seq, NVSHARE_RESULT_INVALID,
			     "reserve is 0 to %u percent", NVSHARE_RESERVE_PERCENT_MAX);
		return;
	}
	config.reserve_percent = (uint32_t)percent;
	apply(server, peer, seq, &config, "reserve is %u percent", (unsigned int)percent);
}

static void set_max_runtime(struct server *server, struct peer *peer, uint32_t seq, uint64_t ms)
{
	struct sched_config config = server->config;

	if (!is_time(server, peer, seq, "max-runtime", ms, NVSHARE_MAX_RUNTIME_MS_MIN,
		     NVSHARE_MAX_RUNTIME_MS_MAX))
		return;
	config.max_runtime_ns = ms * CLOCK_NS_PER_MS;
	apply(server, peer, seq, &config, "max-runtime is %.8g s", (double)ms / 1000);
}

static void on_set(struct server *server, struct peer *peer, uint32_t seq,
		   const struct nvshare_set *set)
{
	if (set->client != 0) {
		tools_answer(server, peer, seq, NVSHARE_RESULT_INVALID,
			     "this setting is the node's, not a client's");
		return;
	}
	switch ((enum nvshare_key)set->key) {
	case NVSHARE_KEY_MODE:
		set_mode(server, peer, seq, set->value);
		break;
	case NVSHARE_KEY_TQ:
		set_tq(server, peer, seq, set->value);
		break;
	case NVSHARE_KEY_SWITCH_TIME:
		set_switch_time(server, peer, seq, set->value);
		break;
	case NVSHARE_KEY_RESERVE:
		set_reserve(server, peer, seq, set->value);
		break;
	case NVSHARE_KEY_MAX_RUNTIME:
		set_max_runtime(server, peer, seq, set->value);
		break;
	case NVSHARE_KEY_POLICY:
		set_policy(server, peer, seq, set->value);
		break;
	case NVSHARE_KEY_PRIORITY:
	case NVSHARE_KEY_WEIGHT:
	case NVSHARE_KEY_SLO:
	case NVSHARE_KEY_COMPUTE_LIMIT:
		break; /* a client's: claims_set() */
	case NVSHARE_KEY_COUNT:
		break; /* msg_decode lets nothing from here on pass */
	}
}

static void set_anti_thrash(struct server *server, struct peer *peer, uint32_t seq, bool is_on)
{
	struct sched_config config = server->config;

	config.anti_thrash = is_on;
	apply(server, peer, seq, &config,
	      is_on ? "anti-thrash is on: programs take turns"
		    : "anti-thrash is off: nobody takes turns");
}

void tools_message(struct server *server, struct peer *peer, const struct msg *msg)
{
	uint32_t seq = msg->header.seq;

	if (msg->header.type == NVSHARE_MSG_GET_STATUS) {
		/* It is answered in the turns of tools, of which there is one a round. */
		tool_status_begin(server, peer, seq);
		return;
	}
	flow_charge(server, peer, SET_COST + server->slots_used / SLOTS_A_PACKET);
	if (msg->header.type == NVSHARE_MSG_SET && claims_is_key(msg->body.set_21.key)) {
		claims_set(server, peer, seq, &msg->body.set_21);
		return;
	}
	if (!claims_may_steer(server, peer)) {
		tools_answer(server, peer, seq, NVSHARE_RESULT_DENIED,
			     "not permitted: this needs root, uid %u, or membership of the group"
			     " 'nvshare'%s",
			     (unsigned int)geteuid(),
			     server->group == (gid_t)-1 ? " (which this node does not have)" : "");
		return;
	}
	switch (msg->header.type) {
	case NVSHARE_MSG_SET:
		on_set(server, peer, seq, &msg->body.set_21);
		break;
	case NVSHARE_MSG_SET_TQ:
		set_tq(server, peer, seq, msg->body.set_tq_8.ms);
		break;
	case NVSHARE_MSG_SCHED_ON:
		set_anti_thrash(server, peer, seq, true);
		break;
	case NVSHARE_MSG_SCHED_OFF:
		set_anti_thrash(server, peer, seq, false);
		break;
	}
}

/* ---- the turns of tools ------------------------------------------------------ */

static void tools_on_ready(struct server *server, struct event_source *source, uint32_t events)
{
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
