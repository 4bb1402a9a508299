/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_SERVER_H
#define NVS_DAEMON_SERVER_H

/*
 * The scheduler around the core: sockets, timer and signals in, messages out.
 *
 * One thread, one epoll (daemon/event_source.h). A peer to be closed is only marked; it is
 * freed after the batch. Nothing blocks but the calls into NVML (daemon/gpus.h).
 *
 * Tools have an epoll of their own. A round of the loop handles the clients' events first,
 * then one event of a tool, so that a client waits for one part of one tool's answer at most.
 *
 * server.c polls; flow.c bounds what peers may cause; dispatch.c turns messages into events,
 * actions.c actions into messages; shares.c does both for the GPU's time; tools.c answers tools.
 */

#include "core/sched.h"
#include "core/timeshare/timeshare.h"
#include "daemon/deadlines.h"
#include "daemon/event_source.h"
#include "daemon/gpus.h"
#include "daemon/options.h"
#include "daemon/outsiders.h"
#include "daemon/peer.h"
#include "daemon/quota.h"
#include "daemon/reaper.h"
#include "daemon/relay.h"
#include "daemon/snapshot.h"
#include "daemon/users.h"
#include "ipc/listener.h"
#include "util/log.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SERVER_PEERS_MAX  16384
#define SERVER_STRAYS_MAX 256 /* turned away, not even told so, and not closed yet */

/*
 * While somebody waits for memory, NVML is asked so often what others use, and from the moment
 * on in which a client has left until its memory is free; else for a status.
 */
#define SERVER_SAMPLE_NS (1000 * CLOCK_NS_PER_MS)

/* Clients may have too much for a moment, in a switch; for so long something is wrong. */
#define SERVER_OVER_NS (5 * CLOCK_NS_PER_SEC)

struct server {
	struct options options;
	struct sched_config config; /* as set by now */
	struct sched sched;
	struct sched_client *sched_clients; /* by slot */
	struct timeshare share;
	struct timeshare_client *timeshare_clients; /* by slot */
	struct peer *peers;                         /* by slot */
	struct gpus gpus;
	struct users users;
	struct reaper reaper; /* used only where listener.takes_rights */
	struct doubts *doubts;
	struct outsiders outsiders;

	struct poller poller;
	struct poller tools_poller; /* of the peers that are tools; a source of poller */
	struct event_source tools;
	struct event_source timer;
	struct event_source signals;
	struct event_source accepting; /* not watched while the listener rests */
	struct event_source reaped;
	struct listener listener;
	int timer_fd;
	int signal_fd;
	int spare_fd; /* given up for a moment when descriptors run out */

	uint32_t n_clients;
	uint32_t n_strays;
	uint32_t slots_used;  /* slots below have been used at least once */
	uint32_t *free_slots; /* a stack of the free ones among them */
	uint32_t n_free_slots;
	uint32_t last_id;
	uint64_t host_bytes;                        /* nvshare_mem::host of all clients */
	uint64_t host_wanted;                       /* nvshare_mem::host_wanted of all clients */
	uint64_t host_bytes_then, host_wanted_then; /* before the report that is being taken */
	bool is_host_news;                          /* somebody is still to hear of a change */
	struct peer *unsent; /* peer::unsent_next, in the order of their first messages */
	struct peer **unsent_end;
	struct peer *closing; /* peer::closing_next */
	struct peer *fresh;   /* utlist, peer::fresh_prev/next, in the order in which they came */
	struct peer *paused;  /* utlist, peer::paused_prev/next: the first is resumed first */
	struct peer *held;    /* utlist, peer::prev/next: requests that wait for the grace's end */

	uint64_t now_ns; /* of the batch */
	uint64_t started_ns;
	uint64_t armed_ns; /* the timer's; DEADLINE_NEVER: not armed */
	struct relay relay;
	struct deadlines deadlines;
	struct deadline sched_due;
	struct deadline timeshare_due;
	struct deadline grace;   /* requests are held until then; not set: no grace */
	struct deadline sample;  /* NVML is asked again; not set: nobody waits */
	struct deadline power;   /* power is asked for; not set: by tools only */
	struct deadline silence; /* the first of fresh is closed */
	struct deadline rest;    /* the listener listens again; not set: it listens */
	struct deadline resume;  /* the first of paused is read again */
	struct deadline report;  /* suppressed lines are told */
	struct deadline overcommitted[SCHED_GPUS_MAX]; /* said then, if it is still so */

	uint32_t n_paused;
	bool are_tools_ready; /* in this round */
	struct quota quota;
	struct snapshot snapshot;

	gid_t group; /* "nvshare": may set everything; (gid_t)-1: there is none */
	bool is_ending;
};

/* server: zeroed. 0 or -errno, logged; deinit is allowed (and needed) either way. */
int server_init(struct server *server, const struct options *options);
void server_deinit(struct server *server);

/* Until a signal ends it. 0 or -errno, logged. */
int server_run(struct server *server);

/*
 * admission.c: those that want to come. open: 0 or -errno.
 */
int admission_open(struct server *server);
void admission_accept(struct server *server);

/*
 * peer has said something: false if it is turned away, and has its answer. It is not waited for
 * any more. Its socket is closed, and its slot is free, now or when that is possible.
 */
bool admission_hear(struct server *server, struct peer *peer, const struct msg *msg);
void admission_forget(struct server *server, struct peer *peer);
void admission_leave(struct server *server, struct peer *peer);

/* connections.c: what has happened on one; the end of those that are marked, and of whom that ends.
 */
void connections_handle(struct server *server, struct peer *peer, uint32_t events);
event_source_fn connections_on_event; /* for peer::input */
void connections_end(struct server *server);

/* The same file. epoll looks for what peer needs now; peer is a tool from now on. */
void connections_update(struct peer *peer);
void connections_to_tools(struct server *server, struct peer *peer);

/* The same file. Sends msg to peer; a peer that can not take it is closed. */
void server_send(struct server *server, struct peer *peer, const struct msg *msg);
void server_send_body(struct server *server, struct peer *peer, uint16_t type, uint32_t seq,
		      const void *body);

/* The same, but what goes to one peer leaves together, at server_flush(). */
void server_queue_body(struct server *server, struct peer *peer, uint16_t type, const void *body);
void server_flush(struct server *server);

/* Marks it; reason (for the log) may be NULL. */
void server_close(struct server *server, struct peer *peer, const char *reason);

/*
 * flow.c: whether a line that a peer of uid caused (QUOTA_NOBODY: its user is not known) may be
 * logged now; server_log() logs it then. A stranger can not fill the log. Suppressed lines are
 * counted; flow_report() tells those that are due (is_last: all). flow_init(): before all others.
 */
bool server_may_log(struct server *server, uid_t uid, enum log_level level);
#define server_log(server, uid, level, ...) \
	(server_may_log((server), (uid), (level)) ? log_write((level), __VA_ARGS__) : (void)0)
void flow_init(struct server *server);
void flow_report(struct server *server, bool is_last);

/*
 * The same file. flow_admit(): whether peer may be read now; else the peer is paused: it stays
 * connected, its messages wait in the socket, and the loop reads it later. flow_charge(): its
 * user pays for n messages (of a tool: packets) more. flow_forget(): peer ends.
 */
bool flow_admit(struct server *server, struct peer *peer);
void flow_charge(struct server *server, struct peer *peer, uint32_t n);
void flow_forget(struct server *server, struct peer *peer);

/*
 * dispatch.c: one message of peer; an event and its actions, which leave before it returns; the
 * end of peer. dispatch_event(): 0 or SCHED_E_*; not for use in the middle of a step (relay.h).
 */
void dispatch_init(struct server *server);
void dispatch_message(struct server *server, struct peer *peer, const struct msg *msg);
int dispatch_event(struct server *server, struct sched_event *event);
void dispatch_used(struct server *server, const struct peer *peer, uint64_t gpu_ns);
void dispatch_gone(struct server *server, struct peer *peer);
void dispatch_gpus(struct server *server);   /* tells the core of new ones */
void dispatch_sample(struct server *server); /* measures what was last measured too long ago */

/*
 * process.c: peer has just connected; its process is watched from now on. watch: false: the
 * process is gone already.
 */
void process_connected(struct server *server, struct peer *peer);
bool process_watch(struct server *server, struct peer *peer);

/*
 * measure.c: what others use of GPU index, for gpus_sample(), which says what came and what is
 * returned; whether all that clients had that have left is free. peer is about to register on
 * peer->gpu, or leaves it.
 */
void measure_wake(struct server *server, uint64_t at_ns); /* if no sample is planned: then */
bool measure_gpu(struct server *server, uint32_t index, uint64_t came);
bool measure_is_settled(const struct server *server, uint32_t index);
void measure_join(struct server *server, const struct peer *peer);
void measure_leave(struct server *server, const struct peer *peer);

/* What peer has on its GPU by its last report, and may have; the GPU's sums follow. */
void server_account(struct server *server, struct peer *peer, uint64_t on_card, uint64_t budget);

/* actions.c: carries them out, in order; the name of an enum nvshare_outcome. */
void actions_init(struct server *server);
void actions_perform(struct server *server, const struct sched_actions *actions);
const char *actions_outcome(uint64_t outcome);

/*
 * halts.c: how peer says that it is stopped, and flags of the same message; what is new is one
 * line in the log.
 */
void halts_note(struct server *server, struct peer *peer, uint32_t halt, uint32_t flags);

/*
 * shares.c: the GPU's time. A client has joined, with peer->claim; has another claim; runs or
 * does not, as the core's other half says (stop: only if it does not); says what it does; has
 * done what it was told; is gone.
 */
void shares_init(struct server *server);
void shares_join(struct server *server, struct peer *peer);
void shares_claim(struct server *server, struct peer *peer);
void shares_follow(struct server *server, struct peer *peer);
void shares_stop(struct server *server, struct peer *peer);
void shares_activity(struct server *server, struct peer *peer, const struct nvshare_activity *a);
void shares_set(struct server *server, struct peer *peer, const struct nvshare_share_set *set);
void shares_gone(struct server *server, struct peer *peer);
void shares_policy(struct server *server); /* it may be another now */
void shares_power(struct server *server);  /* what the GPUs draw, for what it was used */

/*
 * handover.c: sends drop to from, and introduces it to the client in slot to (SCHED_NONE:
 * nobody), if it may hand memory to that. false: it may not, or it failed; nothing was sent to
 * from. note: before GPU index is measured, what may be on its way there.
 */
bool handover_drop(struct server *server, struct peer *from, uint32_t to,
		   const struct nvshare_drop_lock *drop);
void handover_note(struct server *server, uint32_t index);

/*
 * host.c: peer->mem has come into the sums of the node, or is to leave them. Where host memory
 * is short all clients hear what others lack, and who lacks it or takes some what others still
 * have: tell, behind what the reports themselves have led to. others: what that is, for a message
 * to peer, which is to take some from now on, or not. coming: what all but from will give back, if
 * they are asked, when to has come in (SCHED_NONE: nobody comes).
 */
void host_in(struct server *server, struct peer *peer);
void host_tell(struct server *server);
void host_out(struct server *server, const struct peer *peer);
uint64_t host_others(const struct server *server, struct peer *peer, bool is_taker);
uint64_t host_coming(const struct server *server, const struct peer *from, uint32_t to);

/*
 * claims.c: what peer, which registers, is given of its claim (peer->claim); a claim as the
 * core has it; whether a tool may change all; a tool changes one of a client's four settings.
 */
void claims_take(struct server *server, struct peer *peer, const struct nvshare_claim *claim);
struct sched_claim claims_core(const struct nvshare_claim *claim);
bool claims_may_steer(const struct server *server, const struct peer *peer);
bool claims_is_key(uint32_t key);
void claims_set(struct server *server, struct peer *tool, uint32_t seq,
		const struct nvshare_set *set);

/*
 * hearsay.c: what only clients know of a GPU. The GPU of newcomer, which is then peer->gpu; false:
 * it is not known, and not listed on newcomer's word. A client of GPU index is gone, or did not
 * come; true: what the GPU has is another number by now. peer's first report of a context; and
 * what one costs, as peer is told; 0: nobody knows.
 */
bool hearsay_find(struct server *server, struct peer *newcomer, const struct nvshare_register *reg);
bool hearsay_left(struct server *server, uint32_t index);
void hearsay_note_context(const struct server *server, struct peer *peer, uint64_t bytes);
uint64_t hearsay_context(const struct server *server, const struct peer *peer);

/*
 * doubts.c: reports that NVML does not confirm. peer, which had before, has reported, and
 * that is accounted, but the core does not know of it yet. Somebody waits on GPU index, or was
 * refused. init: 0 or -ENOMEM.
 */
int doubts_init(struct server *server);
void doubts_deinit(struct server *server);
void doubts_hear(struct server *server, struct peer *peer, const struct memory_account *before);
void doubts_wake(struct server *server, uint32_t index);

/* tools.c: requests of tools; the next part of a status; one RESULT, with a line in the log. */
void tools_message(struct server *server, struct peer *peer, const struct msg *msg);
void tools_continue(struct server *server, struct peer *peer);
__attribute__((format(printf, 5, 6))) void tools_answer(struct server *server, struct peer *peer,
							uint32_t seq, enum nvshare_result code,
							const char *format, ...);

#endif
