/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_SERVER_H
#define NVS_DAEMON_SERVER_H

/*
 * The scheduler around the core: the loop, and the state of all modules.
 *
 * One thread, one epoll (util/event_source.h), one timer (daemon/deadlines.h). A round of the
 * loop handles a batch of events, then frees the peers that are marked as closing, then does what
 * is due, then serves one tool, then requests by HTTP. The relay carries news between the two state
 * machines of the core after each callback (daemon/relay.h). Nothing blocks but the calls into NVML
 * (daemon/gpu/gpus.h).
 *
 * A module has its own header and, where it needs one, its own struct here. Fields that are not in
 * such a struct are read by many modules; the comment names the one that writes them.
 *
 * Threading: one thread; the reaper alone starts others (daemon/peers/reaper.h).
 */

#include "core/sched.h"
#include "daemon/actions.h"
#include "daemon/deadlines.h"
#include "daemon/gpu/gpus.h"
#include "daemon/gpu/measure.h"
#include "daemon/gpu/states.h"
#include "daemon/grace.h"
#include "daemon/host.h"
#include "daemon/http/http.h"
#include "daemon/http/metrics_collect.h"
#include "daemon/jobs/job_queue.h"
#include "daemon/notify.h"
#include "daemon/peers/admission.h"
#include "daemon/peers/connections.h"
#include "daemon/peers/flow.h"
#include "daemon/peers/gangs.h"
#include "daemon/peers/packet_pair.h"
#include "daemon/peers/peer.h"
#include "daemon/peers/pods.h"
#include "daemon/peers/stopped.h"
#include "daemon/peers/users.h"
#include "daemon/pool/lending.h"
#include "daemon/relay.h"
#include "daemon/settings/reconfigure.h"
#include "daemon/settings/settings.h"
#include "daemon/shares.h"
#include "daemon/tickets/tickets.h"
#include "daemon/tools/alerts.h"
#include "daemon/tools/events.h"
#include "daemon/tools/tools.h"
#include "daemon/tools/trace.h"
#include "util/event_source.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SERVER_PEERS_MAX 16384

struct server {
	char *const *args;        /* of the process, for a reload; NULL: none */
	struct settings settings; /* as set by now */
	gid_t group;              /* "nvshare": may set everything; (gid_t)-1: there is none */

	uint64_t started_ns;
	uint64_t now_ns; /* of the batch */
	struct poller poller;
	struct deadlines deadlines;
	struct event_source timer;
	int timer_fd;
	uint64_t armed_ns; /* the timer's; DEADLINE_NEVER: not armed */
	struct event_source signals;
	int signal_fd;
	bool is_ending;

	struct peer *peers;   /* by slot */
	uint32_t slots_used;  /* slots below have been used at least once: admission.c */
	uint32_t *free_slots; /* a stack of the free ones among them: admission.c */
	uint32_t n_free_slots;
	uint32_t n_clients; /* client_messages.c, dispatch.c */
	uint32_t last_id;   /* client_messages.c */
	struct users users;
	struct pods pods;
	struct gpus gpus;

	struct sched sched;                 /* dispatch.c */
	struct sched_client *sched_clients; /* by slot */
	struct deadline sched_due;
	struct shares shares;
	struct relay relay;

	struct actions actions;
	struct admission admission;
	struct alerts alerts;
	struct connections connections;
	struct doubts *doubts;
	struct events events;
	struct flow flow;
	struct gangs gangs;
	struct grace grace;
	struct host host;
	struct job_queue jobs;
	struct http http;
	struct lending lending;
	struct measure measure;
	struct notify notify;
	struct packet_pairs packet_pairs;
	struct reconfigure reconfigure;
	struct states states;
	struct stopped stopped;
	struct metrics_counts metrics_counts[SCHED_GPUS_MAX]; /* actions.c, client_messages.c */
	struct tickets tickets;
	struct tools tools;
	struct trace trace;
};

/* server: zeroed, but for args. 0 or -errno, logged; deinit is allowed (and needed) either way. */
int server_init(struct server *server, const struct settings *settings);
void server_deinit(struct server *server);

/* Until a signal ends it. 0 or -errno, logged. */
int server_run(struct server *server);

/* Accounts the bytes that peer has on its GPU, and may have. Updates the sums. */
void server_account(struct server *server, struct peer *peer, uint64_t on_card, uint64_t budget);

#endif
