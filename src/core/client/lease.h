/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_LEASE_H
#define NVS_CORE_LEASE_H

/*
 * The client's side of the lock: may this process use its GPU, and what is owed to
 * the scheduler. One lease a GPU of the process. Pure, like sched.h: the agent feeds
 * events and carries out actions, in order, one event at a time.
 *
 * The agent's own work (drain, evict, restore) takes time; it is started by an action
 * and its end is an event. While it runs, only LOST may come in between, PROGRESS in an
 * eviction, and in a restore PART and after it one BUDGET: all other events wait until the
 * work has ended and its event was fed. An event that is refused (LEASE_E_STATE) has crossed
 * another message on the wire and is dropped; the agent does nothing about it. A LOCK_OK while
 * bytes are out can not have crossed anything (LEASE_E_OUT): the scheduler is wrong about this
 * client, and the agent ends the connection.
 *
 * The gate is open exactly in OFF, HOLDING, and in the first part of DRAINING (the agent
 * closes it). The budget is unlimited in OFF, 0 in IDLE and ASKED: whoever has stopped may
 * take nothing more. Memory reports (SEND_REQ, SEND_RELEASED, SEND_MEMORY) are composed after
 * the actions before them were carried out; LOCK_RELEASED's budget is what is on the
 * card then (resident + pinned), with outcome 0, else lease.budget.
 *
 * Epochs: the scheduler numbers what it sends. Even numbers go to a client that it
 * believes running, odd ones to a stopped one; so a BUDGET for growth that has crossed
 * our early release is not taken for the word to come in.
 */

#include <stdbool.h>
#include <stdint.h>

#define LEASE_UNLIMITED UINT64_MAX /* as a budget */

enum lease_state {
	LEASE_OFF,       /* no scheduler: gate open, memory not limited */
	LEASE_IDLE,      /* registered, gate closed, nobody here wants the GPU */
	LEASE_ASKED,     /* REQ_LOCK sent */
	LEASE_RESTORING, /* memory is being brought in; enum lease_work says what for */
	LEASE_HOLDING,   /* gate open */
	LEASE_DRAINING,  /* gate closing or closed, submitted work is awaited */
	LEASE_EVICTING,  /* gate closed, memory is being moved out, in answer to a DROP */
	LEASE_ORPHAN,    /* scheduler lost while the gate was closed */
	LEASE_STATE_COUNT_
};

/* The purpose of the agent's work. */
enum lease_work {
	LEASE_WORK_NONE,
	LEASE_WORK_DROP,        /* draining, evicting: a DROP of our grant */
	LEASE_WORK_GIVE_UP,     /* draining: idle, somebody else may have the GPU */
	LEASE_WORK_EVICT_IDLE,  /* evicting: a DROP with grant 0 */
	LEASE_WORK_EVICT_ASKED, /* the same, after REQ_LOCK */
	LEASE_WORK_COME,        /* restoring: a budget has come */
	LEASE_WORK_UNDO,        /* restoring: the eviction failed, and nobody was told of it */
	LEASE_WORK_ALONE,       /* restoring: the scheduler has not come back */
	LEASE_WORK_COUNT_
};

enum lease_event_type {
	LEASE_EVENT_REGISTERED, /* the scheduler has taken us (again): running, wanting */
	LEASE_EVENT_LOST,       /* connection gone */
	LEASE_EVENT_WANT,     /* a thread stands at the closed gate, or lacks memory (wanted set) */
	LEASE_EVENT_LOCK_OK,  /* grant, budget, epoch */
	LEASE_EVENT_DROP,     /* grant, bytes, epoch */
	LEASE_EVENT_BUDGET,   /* MEM_AVAILABLE: budget, epoch */
	LEASE_EVENT_REFUSED,  /* MEM_REFUSED */
	LEASE_EVENT_PREPARE,  /* bytes, due_ms; 0: nobody waits (yet) */
	LEASE_EVENT_DRAINED,  /* outcome */
	LEASE_EVENT_PROGRESS, /* of an eviction: enough has gone to be worth a report */
	LEASE_EVENT_EVICTED,  /* outcome */
	LEASE_EVENT_RESTORED, /* outcome */
	LEASE_EVENT_IDLE,     /* no work for the idle time, and somebody waits */
	LEASE_EVENT_ORPHAN_TIME, /* NVSHARE_ORPHAN_TIMEOUT_SEC have passed since LOST */
	LEASE_EVENT_PART,        /* of a restore: its budget is used up, its copies still run */
	LEASE_EVENT_COUNT_
};

struct lease_event {
	enum lease_event_type type;
	uint64_t grant;
	uint64_t budget;
	uint64_t epoch;
	uint64_t bytes;
	uint64_t due_ms;
	uint32_t outcome; /* enum nvshare_outcome; 0 success */
	bool wanting;     /* a thread waits, at the gate or for memory; also at the work's end */
	bool running;     /* REGISTERED: our REGISTER said so (lease_is_open(), and it has begun) */
	bool is_out;      /* LOCK_OK: bytes are out that only a restore brings back */
};

enum lease_action_type {
	LEASE_ACTION_SEND_REQ,      /* REQ_LOCK with the memory report */
	LEASE_ACTION_SEND_RELEASED, /* LOCK_RELEASED: grant, epoch, outcome, wants */
	LEASE_ACTION_SEND_MEMORY,   /* MEM_UPDATE now */
	LEASE_ACTION_SET_BUDGET,    /* budget (UINT64_MAX: none), epoch */
	LEASE_ACTION_REFUSE,        /* blocked allocations fail: out of memory */
	LEASE_ACTION_OPEN,          /* open the gate */
	LEASE_ACTION_DRAIN,         /* close the gate, wait for submitted work; then DRAINED */
	LEASE_ACTION_EVICT,         /* move bytes out; then EVICTED */
	LEASE_ACTION_RESTORE,       /* bring everything in, within the budget; then RESTORED */
	LEASE_ACTION_PREPARE, /* get host memory for bytes ready; due_ms: watch for idleness, 0: not
			       */
	LEASE_ACTION_ORPHAN_TIMER, /* start it */
	LEASE_ACTION_CLOSE,        /* close the gate at once: nothing has begun yet */
};

struct lease_action {
	enum lease_action_type type;
	uint64_t grant;
	uint64_t budget;
	uint64_t epoch;
	uint64_t bytes;
	uint64_t due_ms;
	uint32_t outcome;
	bool wants;
};

#define LEASE_ACTIONS_MAX 8
struct lease_actions {
	uint32_t n;
	struct lease_action at[LEASE_ACTIONS_MAX];
};

struct lease {
	enum lease_state state;
	enum lease_work work; /* under way; LEASE_WORK_NONE: none */
	bool is_connected;
	uint32_t outcome;    /* LEASE_WORK_UNDO: why */
	uint64_t grant;      /* the last LOCK_OK's while it is ours, else 0 */
	uint64_t budget;     /* the last SET_BUDGET's */
	uint64_t epoch;      /* of the last message that was taken */
	uint64_t drop_bytes; /* of the DROP being answered */
	bool has_freed;      /* EVICTING: told so, and others may have the room by now */
	bool is_used_up;     /* RESTORING: told so, and given no other budget since */
};

enum {
	LEASE_E_SUCCESS_,
	LEASE_E_STATE, /* not allowed in this state: ignored, nothing changed */
	LEASE_E_OUT,   /* the gate would open with bytes out: nothing changed */
};

void lease_init(struct lease *lease);
int lease_step(struct lease *lease, const struct lease_event *event,
	       struct lease_actions *ret_actions);
bool lease_is_open(const struct lease *lease);      /* for REGISTER: NVSHARE_REGISTER_RUNNING */
void lease_assert_valid(const struct lease *lease); /* aborts: for tests */

#endif
