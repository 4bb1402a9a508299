/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_SCHED_PRIVATE_H
#define NVS_CORE_SCHED_PRIVATE_H

/*
 * The members of struct sched and struct sched_client. Outside src/core only their size matters:
 * include core/sched.h, and read states through its functions.
 *
 * Clients are linked by their slot numbers, so that the whole state may be copied,
 * compared and hashed as bytes.
 */

#include "core/list.h"

#include <stdbool.h>
#include <stdint.h>

/* The list a client is in by what its memory is good for; fit_place() decides. */
enum sched_place {
	SCHED_PLACE_NONE,
	SCHED_PLACE_IDLE,   /* idle, with bytes on the card that can be asked back; oldest first */
	SCHED_PLACE_QUEUED, /* queued, the same; who was stopped last is last */
	SCHED_PLACE_RUNNING_LOW,    /* can be stopped when its turn is over; oldest turn first */
	SCHED_PLACE_RUNNING_NORMAL, /* the same, by level */
	SCHED_PLACE_RUNNING_HIGH,
	SCHED_PLACE_RUNNING_CRITICAL,
	SCHED_PLACE_BLOCKED, /* runs, but waits for memory, or is_stuck: can be stopped now */
	SCHED_PLACE_BARE,    /* could be stopped, but has nothing to give up */
	SCHED_PLACE_KEPT,    /* runs, and can not be stopped at the moment, or ever */
	SCHED_PLACE_PAUSED,  /* runs, and is to be stopped at once: paused, or its gang is off */
	SCHED_PLACE_COUNT_
};

enum sched_line { SCHED_LINE_NONE, SCHED_LINE_QUEUE, SCHED_LINE_COMING };

/* The order about its memory that a client has not answered. */
enum sched_task {
	SCHED_TASK_NONE,
	SCHED_TASK_DROP,      /* give up drop_bytes; with the grant, if it has one */
	SCHED_TASK_DROP_PART, /* the same, and its reports say that a part is out */
	SCHED_TASK_RESTORE,   /* comes, and brings its memory in, all or a part */
	SCHED_TASK_COUNT_
};

/* Which PREPARE holds for a client. It is in the list of those who have the same. */
enum sched_prepare {
	SCHED_PREPARE_NONE,
	SCHED_PREPARE_SOON, /* somebody may wait soon (forecast.c); nothing was sent since */
	SCHED_PREPARE_NOW,  /* somebody waits, and this run may end (notice.c) */
	SCHED_PREPARE_COUNT_
};

/* Of a waiter: whether it gets the GPU before its usual turn (policy/sleeper.h). */
enum sched_waking {
	SCHED_WAKING_NOT,
	SCHED_WAKING_SOON,  /* a sleeper has woken */
	SCHED_WAKING_SHARE, /* it is one, but it or its owner has had its share */
	SCHED_WAKING_COUNT_
};

/* Some time of the last minute (policy/sleeper.c). */
struct sched_minute {
	uint64_t ns;
	uint64_t tick; /* ns is right for this one, counted from the clock's zero */
};

/*
 * A client is in up to one list by each kind of link, and in one heap by each kind of node. TOLD:
 * sched_gpu::told or sched_forecast::near, for who hears of one is not in the other.
 */
enum sched_link_kind {
	SCHED_LINK_PLACE,
	SCHED_LINK_LINE,
	SCHED_LINK_TOLD,
	SCHED_LINK_WOKEN,
	SCHED_LINK_COPIED,
	SCHED_LINK_GANG, /* its gang's members */
	SCHED_LINK_COUNT_
};
enum sched_node_kind {
	SCHED_NODE_TIMER,
	SCHED_NODE_AGE,   /* waits, and it or its owner has not aged; by policy_waits_ns() */
	SCHED_NODE_VTIME, /* runs or waits; by vtime_ns, or less */
	SCHED_NODE_COUNT_
};

/* May a client that is idle copy its memory out ahead of an eviction (ahead.c)? */
enum sched_ahead {
	SCHED_AHEAD_NONE,
	SCHED_AHEAD_TOLD, /* it copies: sched_gpu::ahead */
	SCHED_AHEAD_DONE, /* it has copied what it can, since it became idle */
	SCHED_AHEAD_COUNT_
};

struct sched_node {
	uint64_t key; /* smallest first */
	uint32_t up, left, right;
	uint32_t rank;
	bool is_in;
};

/* Of the queue as trees, by rank: the owners' fronts, and of each owner the others. */
struct sched_tree {
	uint32_t up, left, right;
	uint32_t n; /* clients from here down */
};

/*
 * All of one owner on one GPU (policy/owner.c). There are no more of them than clients, so each
 * lies in the slot of a client, whoever's that is.
 */
struct sched_owner {
	uint32_t number, gpu;
	uint32_t n_clients; /* 0: not in use */
	uint32_t n_awake;   /* of them: want something or run, and are not hung */
	uint32_t next;      /* slot of the next one in its bucket, or of those not in use */
	uint32_t bucket;    /* not its own: slot of the first one whose hash is this slot */
	uint32_t front;     /* its first in the queue, not resident; SCHED_NONE: none waits */
	uint32_t ranked;    /* the others in the queue, as a tree */
	uint32_t n_queued[SCHED_PRIORITY_COUNT_]; /* both, by level */
	uint64_t turn_ns;                         /* its last turn began; or it came */
	uint64_t since_ns;                        /* it waits since then, or since its last turn */
	bool is_aged;                             /* that is so long that it goes first */
	uint32_t n_on;                            /* of them: run, stop, or come */
	uint64_t on_wanted_ns;      /* n_on > 0: sched_gpu::wanted_ns when that began */
	struct sched_minute minute; /* had in the last minute (policy/sleeper.h) */

	uint32_t least[SCHED_PRIORITY_COUNT_];    /* heaps, by level: SCHED_NODE_VTIME */
	uint64_t vtime_ns[SCHED_PRIORITY_COUNT_]; /* where newcomers begin */
	uint64_t credit_round;
};

/*
 * A gang (gang/gang.c). There are no more of them than clients, so each lies in the slot of a
 * client, whoever's that is.
 */
struct sched_gang {
	struct list members; /* SCHED_LINK_GANG; n 0: not in use */
	uint32_t size;       /* it has so many members before its first turn */
	bool has_had;        /* it has had so many */
	uint32_t n_counted;  /* members that the rules concern */
	bool is_bound;       /* its members run together, or not at all */
	bool is_apart;       /* members on one GPU do not fit there together: each is for itself */
	bool is_lacking;     /* it waits for more members, or for one that is hung and would run */
	bool is_off;         /* no member runs, stops or comes; none is paused and would run */
	bool is_stopping;    /* a member stops, is to, or is paused: nobody is chosen meanwhile */
	bool is_changed;     /* in sched::changed: a member has changed */
	bool is_due;         /* in sched::due: its turn has come on all of its GPUs */
	bool has_drainer;    /* a member that drains runs or stops: the others stop after it */
	bool is_held;        /* its stop has failed: nobody stops before it is tried again */
	bool is_yielding;    /* others need a member's place: those that drain stop first */
	bool makes_way;      /* is_yielding: for a client that comes early */
	uint32_t gpus;       /* is_due: bits, of members that wait */
	uint32_t next;       /* in sched::changed */
	struct list_link due;
};

/* Sums over the clients of a GPU, and one client's part of them; fit.c keeps them. */
struct sched_sums {
	uint64_t charged;       /* what they may have on the card now */
	uint64_t load;          /* what stays there once all is out that is told, or free, to go */
	uint64_t pinned;        /* what no eviction takes */
	uint64_t running;       /* of load: goes when SCHED_PLACE_RUNNING_* are stopped */
	uint64_t blocked;       /* of load: goes when SCHED_PLACE_BLOCKED is stopped */
	uint64_t later;         /* of load: can go, but not just now */
	uint64_t asked;         /* DROP sent for so much, not yet answered */
	uint64_t reserved;      /* promised to those that come, beyond what they are charged */
	uint64_t holder_bytes;  /* charged to those that run or stop */
	uint64_t pager_context; /* of the reserve: contexts of ours */
	uint64_t out;           /* swapped or wanted: comes on top of charged to make footprints */
	uint32_t n_on;          /* run, or come */
	uint32_t n_fast;        /* of n_on: can not be stopped just now */
	uint32_t n_never;       /* of n_on: can never be stopped */
	uint32_t n_holding;     /* run, or stop */
	uint32_t n_guests;      /* of n_holding: with a guest's turn */
	uint32_t n_displaced;   /* stop, and the GPU is kept for their gangs */
	uint32_t n_blocked;     /* run, and wait in the queue for memory */
	uint32_t n_busy;        /* run, or stop, and lack no memory: they may get done */
};

struct sched_client {
	enum sched_client_state state;
	enum sched_place place;
	enum sched_line line;
	enum sched_task task;
	enum sched_prepare prepare;
	enum sched_ahead ahead; /* only while it is idle; else NONE */
	uint32_t gpu;
	struct sched_claim claim; /* weight: not 0 */
	struct sched_memory memory;
	struct sched_sums counted; /* as added to its GPU's sums */

	uint64_t promised; /* of its budget: given to be pinned, since the last report */
	uint64_t doubted;  /* of its budget, or reports where these are more: it is not there */
	uint64_t budget;
	uint64_t epoch;
	uint64_t grant;         /* the last one's number */
	uint64_t kept_budget;   /* is_ready: the budget that it has been told of */
	uint64_t budget_target; /* of a client that comes or grows: the budget it is to get */
	uint64_t load_bytes;    /* of a client that comes: what it adds to the load */
	uint64_t drop_bytes;    /* of the DROP not yet answered */
	uint64_t drop_epoch;

	bool is_hung;
	bool is_fixed;
	bool copies_ahead; /* it has said so */
	bool drains;       /* the same: it stops by draining */
	bool is_paused;    /* may not run; idle as soon as it is stopped */
	bool is_asking;    /* is_paused, idle: wants to run, and waits once it is resumed */
	bool is_not_preemptible;
	bool is_growing;    /* runs, and an allocation waits */
	bool is_retrying;   /* a stop or an eviction failed: not asked again before retry_ns */
	bool is_resting;    /* its restore failed: not chosen again before retry_ns */
	bool is_ahead_owed; /* it was told to copy no more, and has not answered */
	bool is_warned;     /* SCHED_PREPARE_NOW was sent, in this run or before; not taken back */
	bool is_wait_told;  /* WAIT sent since it was queued */
	bool has_switched;  /* others were stopped for its sake: a new turn begins */
	uint64_t told_bytes;
	uint32_t n_failed; /* stops in a row */
	uint32_t n_short;  /* of those, for want of what others have */
	uint32_t last_outcome;

	uint64_t since_ns;   /* of its state */
	uint64_t turn_ns;    /* its turn began */
	uint64_t granted_ns; /* the last GRANT; SCHED_NO_DEADLINE: never */
	uint64_t run_ns;     /* up to granted_ns */
	uint64_t used_ns;    /* GPU time */
	uint64_t n_switches;
	uint64_t due_ns;   /* as first in the queue: when its victims' turns are over */
	uint64_t ready_ns; /* and all of them have had something of theirs: room is made */

	/* Of a client that comes: turns that began before it can be ended for it (plan.c). */
	uint64_t ends_ns;
	uint64_t ends_blocked_ns; /* the same, of those that wait for memory */
	uint64_t spared_ns;       /* it was put back, since no more turns could be ended */

	/* Of sleepers, and of those that make way for them (policy/sleeper.h). */
	enum sched_waking waking;
	bool has_slept;         /* its last use was short, and it was idle after that */
	bool is_early;          /* was chosen before its usual turn, as a sleeper */
	bool is_guest;          /* comes or holds: its turn is short, since a displaced one waits */
	bool is_displaced;      /* stopped for an early one: its turn goes on when it is back */
	uint64_t had_ns;        /* of its turn, before that */
	uint64_t use_ns;        /* GPU time since it was idle */
	uint64_t early_cost_ns; /* SOON or is_early: time of its moves, there and back; estimated */
	uint64_t on_wanted_ns;  /* sched_gpu::wanted_ns when it was chosen */
	struct sched_minute used_minute; /* GPU time */
	struct sched_minute had_minute;  /* the same as its owner's */

	uint64_t asked_ns; /* this wait began */
	bool is_aged;      /* it has lasted so long that it goes first, of its owner's */

	/* Its owner (owner.c). */
	uint32_t owner_number;
	bool is_awake;                        /* as counted there */
	bool has_turn;                        /* chosen: its owner's turn began with that */
	enum sched_priority queued_level;     /* as counted there */
	uint64_t kept_turn_ns, kept_since_ns; /* has_turn: its owner's before */

	/* Kept by the policies (policy*.c). */
	enum sched_priority level; /* of its claim, as far as the policy looks at it */
	bool is_resident;          /* critical: once granted its memory stays, and so does it */
	bool is_metered;           /* used time is told; else its time with a grant counts */
	uint64_t charged_ns;       /* if not: the time up to which it counts already */
	uint64_t vtime_ns;         /* fair: time had, by weight */
	enum sched_priority vtime_level; /* and among whom */
	int64_t credit_ns;               /* credit: left of this round */
	uint64_t credit_round;
	bool is_boosted;
	uint64_t turn_used_ns; /* deadline: in this run */
	uint64_t run_mean_ns;  /* of such runs */

	/* SCHED_NO_DEADLINE when not running. */
	uint64_t answer_ns;
	uint64_t retry_ns;
	uint64_t ready_until_ns; /* is_ready: then its gang is put back */
	uint64_t bound_ns;       /* of a wait for memory */
	uint64_t kept_bound_ns;  /* the same while it comes: it may be put back */
	uint64_t beat_ns;
	uint64_t silent_ns; /* not a timer: of the first BEAT not answered */

	struct sched_node node[SCHED_NODE_COUNT_];
	struct list_link link[SCHED_LINK_COUNT_];

	/* Its rank, since it entered the queue: smallest first, then by ticket (rank.c). Together,
	 * since a look for a place reads this of many. */
	struct sched_tree tree;
	uint32_t front_band; /* where its owner stands, of the front; 0 of the others */
	uint32_t band;
	uint64_t front_key, key;
	uint64_t ticket; /* grows with each wait */
	uint32_t owner;  /* slot of its struct sched_owner */
	bool is_front;

	/* Of its gang (gang/gang.h). */
	uint32_t gang;  /* slot of its struct sched_gang; SCHED_NONE: of none */
	bool is_called; /* waits: its turn has come here, perhaps not on the gang's other GPUs */
	bool is_called_off; /* runs: another member does not, so it is stopped at once */
	bool is_behind;     /* runs: a member that drains stops before it */
	bool is_held;       /* runs: sched_gang::is_held, and its own stop has not failed */
	bool is_stuck;      /* runs: turns are off, and a member on another GPU waits for memory */
	bool is_ready;      /* comes, and has all; runs as soon as all others that come have */

	struct sched_owner own; /* not its own: outlives it in the slot, as the next one does */
	struct sched_gang gang_here;
};

/* The signs that somebody will lack memory soon, and who knows (forecast.c). */
struct sched_forecast {
	uint64_t grown, before; /* bytes given on top: in the second under way, and the last one */
	uint64_t second_ns;     /* that second began */
	uint32_t grower, newcomer; /* the last ones, until then: */
	uint64_t growth_ends_ns, newcomer_ends_ns;
	struct list near;
};

static inline bool sched_has_drop(const struct sched_client *client)
{
	return client->task == SCHED_TASK_DROP || client->task == SCHED_TASK_DROP_PART;
}

/* It was chosen before its turn, and others are stopped for that. */
static inline bool sched_comes_early(const struct sched_client *client)
{
	return client->is_early && client->state == SCHED_CLIENT_INCOMING;
}

struct sched_gpu {
	bool is_known;
	bool is_dirty;       /* to be looked at before the step ends, or in the next one */
	bool is_recheck_due; /* the same, since a GPU has changed of which this one is a watcher */
	bool is_out;         /* it has an error: nobody is let in, or stopped for others */
	bool is_overcommitted; /* and reported */
	bool is_prepared;      /* the victims of head know */
	bool is_ahead;         /* head has been given what can come in before they stop */
	uint32_t head;         /* whom room is planned for, by due_ns */
	uint64_t head_ns;      /* it is head since then */
	uint32_t jammed;       /* head's gang, if none can be stopped for it, or is on its way */
	uint32_t in_doubt;     /* asked last by gang_asks_first(); SCHED_NONE: nobody was */
	uint32_t restoring;    /* the one client with SCHED_TASK_RESTORE */
	uint64_t total, external;
	uint64_t wake_ns;        /* to prepare or to switch */
	uint64_t bandwidth;      /* bytes a second, as switches measured it; 0: none has */
	uint64_t link_bandwidth; /* the same, as told; 0: unknown */
	uint64_t n_switches, moved_out, moved_in;
	uint64_t still_ns; /* since when no memory moved, and nobody was busy, let in or refused */
	uint64_t n_tickets;
	uint32_t n_clients;
	struct sched_gpu_config config;
	struct sched_sums sums;
	struct list place[SCHED_PLACE_COUNT_];
	struct list queue, coming; /* SCHED_LINK_LINE; queue: by rank, fronts first */
	uint32_t ranked;           /* the tree of the owners' fronts */
	uint32_t oldest;           /* heap: SCHED_NODE_AGE */
	uint32_t n_owners;         /* of which somebody is awake */
	struct list told;
	struct list woken;  /* SCHED_WAKING_SOON, in the order in which they asked */
	struct list copied; /* SCHED_AHEAD_DONE */
	int64_t moving_ns;  /* account for early switches; below 0: the last ones took more */
	uint64_t filled_ns; /* up to then */
	uint64_t wanted_ns; /* time in which somebody waited, up to then */
	uint64_t early_ns;  /* when the next sleeper may come early; SCHED_NO_DEADLINE */
	uint64_t n_early;   /* switches for sleepers */
	uint32_t watchers;  /* bits: GPUs whose sleepers wait for a gang that is here, too */
	struct sched_forecast forecast;
	uint32_t ahead;          /* the one client with SCHED_AHEAD_TOLD, or SCHED_NONE */
	uint64_t ahead_until_ns; /* then it is another one's turn to copy */
};

static inline bool sched_gpu_is_due(const struct sched_gpu *gpu)
{
	return gpu->is_dirty || gpu->is_recheck_due;
}

struct sched {
	struct sched_config config;
	uint64_t now_ns;
	uint64_t n_grants;
	struct sched_client *clients; /* the caller's */
	uint32_t n_clients;
	uint32_t timers;           /* heap: SCHED_NODE_TIMER */
	uint32_t free_owner;       /* the first slot whose struct sched_owner is not in use */
	uint32_t changed;          /* gangs to look at before the step ends, or in the next one */
	struct list due;           /* gangs, in the order in which they get their GPUs */
	struct sched_actions *out; /* of the step under way, else NULL */
	struct sched_gpu gpus[SCHED_GPUS_MAX];
};

#endif
