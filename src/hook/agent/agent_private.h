/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_AGENT_PRIVATE_H
#define NVS_HOOK_AGENT_PRIVATE_H

/*
 * The parts of the agent: agent.c has the thread and its loop; agent_link.c the connection;
 * agent_message.c takes the scheduler's messages; agent_absence.c copes without a scheduler;
 * agent_lease.c passes events to the lease and carries out its actions; agent_report.c sends memory
 * numbers; agent_moves.c moves memory of all GPUs at once; agent_moving.c talks meanwhile;
 * agent_halt.c stops the program; agent_watch.c looks whether the process is idle; agent_slabs.c
 * borrows host memory; agent_gang.c tells what belongs together; agent_tickets.c has memory that
 * processes share; agent_ahead.c copies memory ahead of evictions; agent_orion.c reports the
 * scheduler inside the process.
 *
 * Threading: the agent's thread alone, unless a function says otherwise.
 */

#include "hook/agent/agent.h"
#include "hook/agent/agent_link.h"
#include "hook/gate/device.h"
#include "hook/pager/pager_ops.h"

/* agent.c */
bool agent_has_memory_out(void);               /* memory of the program is off some card */
void agent_settle(CUdevice dev, CUresult res); /* the answer for agent_use_device() */

/* The pager's calls (pager_ops.h): agent_moving.c; give_host is in agent_spares.c. */
void agent_moved_out(CUdevice dev, uint64_t bytes);
enum pager_more agent_more_budget(CUdevice dev);
bool agent_await_host(CUdevice dev, uint64_t moved, uint64_t bytes);
void agent_give_host(CUdevice dev);
/*
 * beside_eviction: takes messages of all connections that an eviction may hear. beside_moves: the
 * same of those whose memory does not move, and a few of the others. may_begin: also those that
 * begin a further move.
 */
void agent_hear_beside_eviction(void);
void agent_hear_beside_moves(bool may_begin);

/*
 * agent_moves.c. stop: an enum nvshare_outcome; a program that cannot give the bytes is not stopped
 * for them. evict, restore: true: the move has begun; false: it is over, with *ret_outcome. run:
 * carries all moves out to their ends, with those that begin meanwhile, and does nothing while it
 * runs (are_running). end_order: what an order has named, the receiver and the host memory that
 * comes, is for its eviction alone.
 */
uint32_t agent_moves_stop(struct agent_link *link, uint64_t bytes);
bool agent_moves_evict(struct agent_link *link, uint64_t bytes, uint32_t *ret_outcome);
bool agent_moves_restore(struct agent_link *link, uint32_t *ret_outcome);
void agent_moves_run(void);
bool agent_moves_are_running(void);
void agent_moves_end_order(struct agent_link *link);
void agent_moves_sync_coming(void); /* an order's host_coming has changed */
void agent_moves_reset(void);       /* after fork() */

/* agent_link.c. When a message is taken while memory moves (messages.def); bits of a mask. */
enum agent_during {
	AGENT_DURING_NEVER = 0,
	AGENT_DURING_ALWAYS = 1 << 0,
	AGENT_DURING_MOVE = 1 << 1,
	AGENT_DURING_BUDGET = 1 << 2,
	AGENT_DURING_ORDER = 1 << 3,
};
void agent_link_connect(struct agent_link *link);
bool agent_link_is_lost(const struct agent_link *link); /* the program has closed its descriptor */
void agent_link_close(struct agent_link *link); /* the lease hears LOST, if it was registered */
void agent_link_wrong(struct agent_link *link); /* the scheduler is wrong: the connection ends */
void agent_link_receive(struct agent_link *link);
bool agent_link_hear(const struct agent_link *link, int wait_ms); /* something can be read */
/* Takes the next message if its column `during` is in mask. Returns that value, or 0. */
unsigned int agent_link_receive_during(struct agent_link *link, unsigned int mask);
void agent_link_flush(struct agent_link *link);
void agent_link_register_again(struct agent_link *link);
/* The answer to REGISTER was no. */
void agent_link_refused(struct agent_link *link, const struct nvshare_registered *body);
bool agent_link_wants_retry(const struct agent_link *link);
/* Looks whether the scheduler hangs. Returns when to call it again, or AGENT_NEVER. */
uint64_t agent_link_listen(struct agent_link *link, uint64_t now_ns);

/*
 * agent_message.c. First take_descriptor: takes the descriptor that came with the message, or -1.
 * Then handle. msg_decode() has refused messages that are not for a client.
 */
void agent_message_take_descriptor(struct agent_link *link, const struct msg *msg, int fd);
void agent_message_handle(struct agent_link *link, const struct msg *msg);

/*
 * agent_absence.c. of: the reason for an error of connect(). tell: prints one line for each reason;
 * detail is the error (NO_SOCKET) or the scheduler's version (VERSION). has_descriptors: there are
 * enough for the agent, and a few for the driver.
 */
enum agent_absence agent_absence_of(int error);
void agent_absence_tell(enum agent_absence why, uint32_t detail);
bool agent_absence_has_descriptors(void);

/*
 * begin: a try to connect has failed; the link is BUSY or gives up. The others are parts of begin,
 * for a connection that has ended. retry: decides when to connect again. mistrust: after a
 * registered connection, decides whether to wait longer. miss: there was a scheduler, so a full
 * card may get room. settle: a thread that makes a context goes on.
 */
void agent_absence_begin(struct agent_link *link, enum agent_absence why, uint32_t detail);
void agent_absence_retry(struct agent_link *link);
void agent_absence_mistrust(struct agent_link *link);
void agent_absence_miss(struct agent_link *link);
void agent_absence_settle(struct agent_link *link);

/*
 * agent_lease.c. host_told: host memory by the last reports of all connections but except (NULL: of
 * all). The process has one pool for all of its GPUs, and each connection tells a part.
 */
struct agent_host {
	uint64_t bytes;
	uint64_t unused; /* of these, without evicted memory in them */
	uint64_t lacked;
};
struct agent_host agent_lease_host_told(const struct agent_link *except);
bool agent_lease_is_out(CUdevice dev); /* memory is, and only a restore brings it back */
void agent_lease_step(struct agent_link *link, const struct lease_event *event);
void agent_lease_want(struct agent_link *link); /* tells the lease if a thread waits */
void agent_lease_memory(CUdevice dev, struct nvshare_mem *ret_mem); /* for a report */
/* The bytes of dev's budget, as the scheduler counts them: at least those on the card. */
uint64_t agent_lease_budget(CUdevice dev, const struct nvshare_mem *mem);
uint64_t agent_lease_on_card(const struct nvshare_mem *mem); /* bytes */

/* agent_report.c. Sends MEM_UPDATE if is_urgent, or if numbers have changed. */
void agent_report(struct agent_link *link, bool is_urgent);
void agent_report_send(struct agent_link *link);    /* MEM_UPDATE */
void agent_report_request(struct agent_link *link); /* REQ_LOCK */
void agent_report_released(struct agent_link *link, const struct lease_action *action);

/*
 * Driver calls of the pager need a current context of the device. enter: false: there is none, of
 * the program's or of ours. pause, go_on: the thread is elsewhere in between, and the context
 * stays.
 */
bool agent_enter_context(CUdevice dev, struct agent_place *ret_place);
void agent_leave_context(const struct agent_place *place);
void agent_pause_context(const struct agent_place *place);
bool agent_go_on_in_context(const struct agent_place *place);

/*
 * agent_halt.c. prepare: gets ready what a halt for bytes needs; is_urgent: it has been ordered.
 * halt: stops the program's work; bytes are to be evicted then. Returns an enum nvshare_outcome; on
 * any but SUCCESS the caller opens the gate again. A process that is halted already stays so, and
 * the answer is SUCCESS at once. resume: undoes it, before the gate opens.
 */
bool agent_halt_prepare(struct agent_link *link, uint64_t bytes, bool is_urgent);
uint32_t agent_halt(struct agent_link *link, uint64_t bytes, bool is_idle);
bool agent_halt_is_frozen(void);  /* the last stop ended in a freeze */
bool agent_halt_stands(void);     /* the process is halted */
void agent_halt_committed(void);  /* memory has gone, so nothing thaws the process by itself */
bool agent_halt_is_drained(void); /* it is, and its work has ended */
/* After an eviction: its outcome, or TIMEOUT where the watchdog has thawed. */
uint32_t agent_halt_evicted(uint32_t outcome);
void agent_resume(void);
void agent_halt_reset(void); /* after fork() */

/*
 * agent_spares.c. The pager context and host memory make a stop quick. They are kept for a while
 * after they were needed. An idle program needs neither before it has run again.
 *
 * touch: touches host memory only, while nobody waits yet; 0: none. wanted: others lack bytes of
 * host memory; may_grow: they lack none. keep: looks whether spares may be needed. tick: gives them
 * up in time, and returns when to call it again. reset: after fork().
 */
void agent_spares_touch(const struct agent_link *link, uint64_t bytes);
void agent_spares_wanted(uint64_t bytes);
bool agent_spares_may_grow(void);
void agent_spares_keep(struct agent_link *link);
uint64_t agent_spares_tick(struct agent_link *link, uint64_t now_ns);
void agent_spares_reset(void);

/*
 * agent_watch.c. tick: returns when to call it again, AGENT_NEVER while nobody waits. rests:
 * NVSHARE_REPORT_RESTS.
 */
uint64_t agent_watch_tick(uint64_t now_ns);
bool agent_watch_rests(void);

/*
 * agent_slabs.c. may_borrow: the driver can. begin: link is registered. lent: takes fd, which came
 * with SLABS. tick: after each event. give_one: returns a slab that is not needed here, or that
 * others want. false: there is none.
 */
bool agent_slabs_may_borrow(struct agent_link *link);
void agent_slabs_begin(struct agent_link *link, const struct nvshare_registered *body);
void agent_slabs_lent(const struct agent_link *link, const struct nvshare_slabs *body, int fd);
void agent_slabs_tick(void);
bool agent_slabs_give_one(const struct agent_link *link);

/*
 * agent_tickets.c. take_back: pager_agent's. hear: TICKET_WORD has come. park: the process may have
 * been halted. come_back: it may run; false: not before memory that it has open is back. tick:
 * returns when to call it again.
 */
enum pager_back agent_tickets_take_back(CUdeviceptr addr, size_t size, bool is_late);
void agent_tickets_hear(const struct nvshare_ticket_word *word);
void agent_tickets_park(void);
bool agent_tickets_come_back(void);
uint64_t agent_tickets_tick(uint64_t now_ns);

/* agent_orion.c. begin: link is registered. tick: reports, and returns when to call it again. */
void agent_orion_begin(struct agent_link *link, const struct nvshare_registered *body);
uint64_t agent_orion_tick(uint64_t now_ns);

/*
 * agent_ahead.c. begin: link is registered. hear: COPY_AHEAD has come. end: the program is not idle
 * any more. evicted: an eviction has ended. tick: copies a piece, and returns when to call it
 * again.
 */
void agent_ahead_begin(struct agent_link *link, const struct nvshare_registered *body);
void agent_ahead_hear(struct agent_link *link, uint64_t bytes);
void agent_ahead_end(struct agent_link *link);
void agent_ahead_evicted(struct agent_link *link);
void agent_ahead_dropped(struct agent_link *link);
uint64_t agent_ahead_tick(uint64_t now_ns);

/* agent_gang.c. begin: link is registered. */
void agent_gang_begin(struct agent_link *link, const struct nvshare_registered *body);

#endif
