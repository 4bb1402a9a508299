/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_TIMESHARE_PRIVATE_H
#define NVS_CORE_TIMESHARE_PRIVATE_H

/*
 * The members of struct timeshare and struct timeshare_client. Outside src/core only their size
 * matters: include core/timeshare/timeshare.h, and read states through its functions.
 *
 * Clients are linked by their slot numbers, so that the whole state may be copied,
 * compared and hashed as bytes.
 */

#include "core/list.h"

#include <stdbool.h>
#include <stdint.h>

#define TIMESHARE_ARM_SAMPLES  32u
#define TIMESHARE_HOLD_SAMPLES 32u
#define TIMESHARE_PREEMPTIONS  128u
#define TIMESHARE_BATCHES      4u
#define TIMESHARE_ONE          1024u /* of a part of the time */

enum timeshare_link_kind {
	TIMESHARE_LINK_RUNNING,
	TIMESHARE_LINK_PRESENT,
	TIMESHARE_LINK_DIRTY,
	TIMESHARE_LINKS_
};

/* weights.c: what its clients are sorted by. */
enum timeshare_order { TIMESHARE_ORDER_WEIGHT, TIMESHARE_ORDER_SLO, TIMESHARE_ORDERS_ };

struct timeshare_tree {
	uint32_t left, right;
};

/*
 * preempt_choice.c: what a critical client's bursts have taken, holding others and not. Those that
 * were announced are others: holding comes before them, not into their middle. So are those after
 * a pause: all that compute are taken off at once for them, or are in long slices still.
 */
enum timeshare_warning {
	TIMESHARE_WARNING_NONE,
	TIMESHARE_WARNING_HINT,
	TIMESHARE_WARNING_PAUSE,
	TIMESHARE_WARNINGS_
};
enum timeshare_arm_kind { TIMESHARE_ARM_HOLD, TIMESHARE_ARM_SLICES, TIMESHARE_ARMS_ };

struct timeshare_arm {
	uint32_t ns[TIMESHARE_ARMS_][TIMESHARE_ARM_SAMPLES]; /* for each call; the last ones */
	uint32_t n[TIMESHARE_ARMS_];                         /* in all */
	uint32_t n_bursts;
	uint32_t n_noted;     /* below ARM_FIRST_BURSTS both are tried in turn */
	uint32_t gap;         /* bursts from one such time to the next, at least; 0: the shortest */
	uint32_t n_steady;    /* of the best, since it is that */
	uint64_t median_then; /* of the best, when it became that */
	uint64_t calls;       /* of a burst, times 256: average */
	enum timeshare_arm_kind best;
};

/* predict.c: how long a critical client prepares after it has given a hint. */
struct timeshare_predict {
	uint64_t said_ns; /* when the hint came; 0: none is open */
	uint64_t value_ns;
	uint64_t expected_ns; /* the preparation, as predicted */
	uint64_t ratio_ppm;   /* of what it took to what was announced: average */
	uint64_t margin_ns;
	uint64_t last_ns;   /* what it took, the last time */
	uint64_t error_ppm; /* of the predictions: average */
	uint32_t n;
};

/* slice_policy.c: how close a critical client's burst is to breaking its SLO. */
enum timeshare_slack {
	TIMESHARE_SLACK_NONE,
	TIMESHARE_SLACK_AMPLE,
	TIMESHARE_SLACK_TIGHT,
	TIMESHARE_SLACK_LATE
};

#define TIMESHARE_LEVELS 6u

struct timeshare_pace {
	uint64_t begin_ns; /* the burst began */
	uint64_t mean_ns;  /* what its bursts take: average; 0: none yet */
	enum timeshare_slack slack;
	uint32_t level;   /* of TIMESHARE_LEVELS, the first is the longest slice */
	uint64_t gpu_ns;  /* when it came to that level */
	uint64_t work_ns; /* with work, since then */
	uint64_t at_ns;   /* its last report */
	bool was_busy;    /* at that */
};

/* slice_policy.c: the controller of the others' slice. */
struct timeshare_pid {
	int64_t sum_ppm, last_ppm; /* errors */
	uint64_t us;               /* what comes out; 0: nothing yet */
	uint32_t slo_us;           /* the shortest that it has heard of an active one; 0: none */
};

/* energy.c */
struct timeshare_energy {
	uint64_t uj;
	uint64_t gpu_ns; /* it is of so much GPU time */
};

/* The last SET of a client, and its answer. */
struct timeshare_told {
	uint64_t seq;
	uint64_t seq_done;
	uint64_t slice_us;
	uint64_t until_ns; /* held until then, unless released; 0: not held */
	uint64_t use_ppm;
	uint64_t hold_seq; /* the SET that took it off; 0: it is on */
	uint64_t asked_ns; /* when that was said */
};

/* A client's part of what its GPU counts. */
struct timeshare_part {
	uint32_t class; /* enum timeshare_class; without classes who is not critical is normal */
	uint32_t weight;
	uint32_t slo_us; /* critical; 0: none */
	uint32_t loose;  /* of TIMESHARE_ONE: critical, at work without a burst for so much of the
			    time */
	bool is_running;
	bool is_active;   /* runs, and has work or had some lately */
	bool is_wanting;  /* runs, is not critical, has work */
	bool is_bursting; /* runs, is critical, is in a burst */
	bool is_holding;  /* runs, is critical, and others are to be held for it */
	bool is_late;     /* is_bursting, and has no slack left */
	bool unused[2];   /* false: parts are compared as bytes, so they may have no padding */
};
_Static_assert(sizeof(struct timeshare_part) == 4 * sizeof(uint32_t) + 8 * sizeof(bool),
	       "no padding");

/* usage.c */
struct timeshare_usage {
	uint64_t busy_ns, held_ns; /* as reported; but what could not be true is to come */
	uint64_t ran_ns;           /* the same */
	uint64_t heard_ns;         /* ran_ns as reported last */
	uint64_t report_ns;        /* when */
	uint64_t gpu_ns;
	uint64_t given_ns;   /* of gpu_ns: since the last report, to be corrected by the next */
	uint64_t present_ns; /* present for so long since the last report */
	uint64_t since_ns;   /* present since then; only while it is */
	uint64_t drawn;      /* timeshare_gpu_usage::drawn when it was last settled */
	uint64_t unseen_ns;  /* a burst's, while it was being held; since the last report */
	uint32_t slice_us;
	uint32_t part; /* of 1024: how much of its presence it is really busy */
	uint32_t use_ppm;
	bool is_present;
	bool is_critical;
};

enum timeshare_client_state {
	TIMESHARE_CLIENT_FREE,    /* slot unused */
	TIMESHARE_CLIENT_STOPPED, /* joined, and sched does not let it in */
	TIMESHARE_CLIENT_RUNNING  /* sched has let it in */
};

/* A client's work, as its reports say. */
enum timeshare_work {
	TIMESHARE_WORK_NONE,
	TIMESHARE_WORK_BUSY,
	TIMESHARE_WORK_SILENT /* was busy, and has said nothing since for burst_ns */
};

/* Where a client is between the announcement of a burst and its end. */
enum timeshare_burst {
	TIMESHARE_BURST_NONE,
	TIMESHARE_BURST_PLANNED, /* announced; arm is chosen, and nobody is held for it yet */
	TIMESHARE_BURST_HINTED,  /* others are held for what was announced */
	TIMESHARE_BURST_REQUEST, /* in a burst whose work may not have come yet */
	TIMESHARE_BURST_WORK     /* in a burst */
};

/* Is a client taken off the GPU? */
enum timeshare_hold {
	TIMESHARE_HOLD_NONE,
	TIMESHARE_HOLD_TOLD,  /* by the SET told.hold_seq */
	TIMESHARE_HOLD_TIMED, /* the same, and it is part of the preemption being timed */
	TIMESHARE_HOLD_FAILED /* could not be; not tried again before retry_ns */
};

struct timeshare_client {
	/* Members that are read of many clients in turn lie together. */
	struct timeshare_part part; /* as counted */
	struct list_link link[TIMESHARE_LINKS_];
	struct timeshare_tree tree[TIMESHARE_ORDERS_];
	enum timeshare_client_state state;
	enum timeshare_work work;
	enum timeshare_burst burst;
	enum timeshare_hold hold;
	bool is_dirty;     /* TIMESHARE_LINK_DIRTY */
	bool is_overdue;   /* the last request was silent for burst_ns, and has no end */
	bool is_claim_new; /* not told yet */
	bool is_stray;     /* held by an order that was given up; to be let go */
	enum timeshare_warning
		warning; /* of this burst, or the one to come; what arm was chosen by */
	enum timeshare_arm_kind arm;
	uint32_t loose; /* of TIMESHARE_ONE: of the time between bursts in which it is busy */
	uint32_t gpu;
	struct timeshare_claim claim;
	struct timeshare_told told;
	struct timeshare_usage usage;

	/* TIMESHARE_NO_DEADLINE when not running. */
	uint64_t linger_ns; /* active until then, without work */
	uint64_t burst_end_ns;
	uint64_t hint_ns; /* the hold of a hint begins, or ends */
	uint64_t answer_ns;
	uint64_t renew_ns;
	uint64_t retry_ns;
	uint64_t pause_ns;  /* until then, the last time; 0: it could be held since */
	uint64_t pace_ns;   /* its slack is another then */
	uint64_t silent_ns; /* TIMESHARE_WORK_BUSY is looked at then: has anything been heard? */
	uint64_t due_ns;    /* the least of them, as in the heap */

	uint64_t heard_ns; /* anything */
	uint64_t n_tasks;
	uint64_t n_slo_violations;
	uint64_t n_hints;
	uint32_t heap_at;   /* its place in the heap of timers */
	uint32_t heap_slot; /* not its own: whose timer is at the place of this slot's number */
	struct timeshare_predict predict;
	struct timeshare_pace pace;
	struct timeshare_energy energy;
	struct timeshare_arm arms[TIMESHARE_WARNINGS_];
};

static inline bool timeshare_is_in_burst(const struct timeshare_client *client)
{
	return client->burst >= TIMESHARE_BURST_REQUEST;
}

/* Slices of a class: base_us * weight / base_weight; base_weight 0: base_us for each. */
struct timeshare_slices {
	uint64_t base_us[4];
	uint64_t base_weight[4];
};

/* weights.c; without anybody min and max say nothing. */
struct timeshare_weights {
	enum timeshare_order order;
	uint32_t root;
	uint32_t min, max;
};

/* burst.c: so many clients were told at once to be off. */
struct timeshare_batch {
	uint64_t asked_ns;
	uint32_t n;
};

struct timeshare_gpu_usage {
	uint64_t at_ns; /* settled up to then */
	uint64_t wall_ns;
	uint64_t given_ns;
	uint64_t class_ns[2];  /* [1]: of the critical; */
	uint64_t unsure_ns[2]; /* of that, since the last report of those that have had it */
	uint64_t drawn;        /* GPU time a unit of weight has had, while many are present */
	uint64_t weights;      /* slice * part of all that are present */
	uint64_t rests;        /* slice * (1024 - part) of the same */
	uint64_t burst_ns;     /* critical clients' bursts, as one: the last began then, */
	uint64_t burst_end_ns; /* and had no work any more then; UINT64_MAX: it has */
	struct list present;
};

struct timeshare_gpu {
	bool is_dirty;   /* to be planned before the step ends */
	bool is_shared;  /* two or more run: everybody has a slice and reports */
	bool is_taking;  /* a critical client is active: the others take turns */
	bool is_holding; /* the one whose turn it is is held too */
	bool is_brief;   /* is_holding, but for hints only */
	bool is_capped;
	bool is_slow;          /* no bursts' holds for a while */
	uint32_t turn;         /* whom the critical leave to compute; TIMESHARE_NONE */
	uint32_t leaving;      /* had its turn, and has not answered yet that it is off */
	uint64_t turn_left_ns; /* beside a burst; else it ends a little sooner */
	uint64_t credit;       /* ns * percent that the critical may still take from others */
	uint64_t at_ns;        /* credit and turn_left_ns are of then */
	uint64_t wake_ns;
	uint64_t slow_ns;     /* slices only until then */
	uint64_t pause_ns;    /* and for so long; 0: never yet */
	uint64_t hint_end_ns; /* of the last hint's hold */
	struct list running;
	uint32_t n_sweep;  /* timeshare_update.c: so many of them are to be looked at, */
	uint32_t sweep_at; /* from this one on; TIMESHARE_NONE: from the first */
	uint32_t n_active[4];
	struct timeshare_weights weights[4]; /* of the active */
	struct timeshare_weights slos;       /* of the active that are critical and have one */
	uint32_t n_wanting, n_bursting, n_holders, n_late;
	uint64_t loose; /* of all that have it */
	struct timeshare_pid pid;
	uint64_t power_mw;             /* 0: not known */
	uint64_t budget_uj, budget_ns; /* what holds may cost; and when it was that much */
	struct timeshare_slices slices;
	struct timeshare_gpu_usage usage;

	uint32_t took_us[TIMESHARE_HOLD_SAMPLES]; /* by the last holds */
	uint32_t n_took;
	struct timeshare_batch batches[TIMESHARE_BATCHES]; /* the last ones */
	uint32_t n_batches;
	uint32_t n_pending;  /* of the preemption being timed, not yet off */
	uint64_t preempt_ns; /* it began */
	uint32_t preempt_us[TIMESHARE_PREEMPTIONS];
	uint64_t n_preempted;                    /* preemptions that are complete */
	uint32_t over_ns[TIMESHARE_PREEMPTIONS]; /* timeshare_events.c: what was not holding; of
						    n_over */
	uint64_t n_over, over_ns_max;
	uint64_t n_preemptions, n_failures, n_timeouts, preempt_ns_total, preempt_ns_max;
	uint64_t n_lc_tasks, n_be_tasks, n_slo_violations;
	uint64_t n_hints, n_hints_missed, hint_error_ns;
};

struct timeshare {
	struct timeshare_config config;
	uint64_t now_ns;
	struct timeshare_client *clients; /* the caller's */
	uint32_t n_clients;
	uint32_t n_timers;
	uint32_t n_stale; /* timeshare.c: the last slots, whose class may be of another
			     configuration */
	struct list dirty;
	struct timeshare_actions *out; /* of the step under way, else NULL */
	struct timeshare_gpu gpus[TIMESHARE_GPUS_MAX];
};

#endif
