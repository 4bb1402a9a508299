/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_STOP_H
#define NVS_CORE_STOP_H

/* Taking the GPU, or bytes, from a client; its answers; and what if none comes. */

#include "core/sched.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * The next number for a message to client. Odd for one that does not run, even for one
 * that does: a client that has just given up early thus knows a budget for growth, sent
 * before its release arrived, from one to come in with.
 */
uint64_t stop_epoch(struct sched_client *client, bool runs);

/*
 * DROP for a running client; PREPARE before it if it was not told. Three actions at most. to:
 * the client that the room is for, or SCHED_NONE.
 */
void stop_drop(struct sched *sched, uint32_t client, uint64_t bytes, uint32_t to);
/* DROP with grant 0 for a stopped one. */
void stop_evict(struct sched *sched, uint32_t client, uint64_t bytes, uint32_t to);

/*
 * The client has stopped, and keeps what the event says; wants: to the tail of the
 * queue. has_seen: it has seen the DROP, so what it did not free it can not free.
 */
void stop_done(struct sched *sched, const struct sched_event *event, bool has_seen);
/* The client has answered a DROP with grant 0, and keeps what the event says. */
void stop_evicted(struct sched *sched, const struct sched_event *event);
/*
 * A report before the answer has lowered client's charge: so much less of the DROP is still to
 * come. A client that reported so can not take it back: it is stopped for good.
 */
void stop_progress(struct sched *sched, uint32_t client, uint64_t charge_before);
/* client could not bring its memory in: to the tail, and not before retry_ns again. */
void stop_restore_failed(struct sched *sched, uint32_t client, uint32_t outcome);
/* retry_ns has come. */
void stop_retry(struct sched *sched, uint32_t client);
/* A DROP was answered with outcome, not 0. is_short: of sched_event. */
void stop_failed(struct sched *sched, uint32_t client, uint32_t outcome, bool is_short);

/* client has answered its task: it owes nothing. Two actions at most. */
void stop_answered(struct sched *sched, uint32_t client);

/* A sign of life; a hung client that owes no answer is taken back. Two actions at most. */
void stop_client_alive(struct sched *sched, uint32_t client);
/*
 * client's process is stopped, so client is as a hung one; or it goes on, and is taken back unless
 * it is late. Two actions at most.
 */
void stop_client_process(struct sched *sched, uint32_t client, bool is_stopped);
void stop_hung(struct sched *sched, uint32_t client);
/* answer_ns has come. */
void stop_late(struct sched *sched, uint32_t client);

/* Goes to a state; run time and "since" follow. fit_change() follows. */
void stop_set_state(struct sched *sched, uint32_t client, enum sched_client_state state);

#endif
