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
#define TIMESHARE_ONE          1024u /* the whole, of which parts of the time are given */

enum timeshare_link_kind {
	TIMESHARE_LINK_RUNNING,
	TIMESHARE_LINK_PRESENT,
	TIMESHARE_LINK_DIRTY,
	TIMESHARE_LINKS_
};

/* weights.c: the key by which clients are sorted. */
enum timeshare_order { TIMESHARE_ORDER_WEIGHT, TIMESHARE_ORDER_SLO, TIMESHARE_ORDERS_ };

struct timeshare_tree {
	uint32_t left, right;
};

/*
 * preempt_choice.c learns from a critical client's bursts with holding and without. Three kinds of
 * bursts are learned apart. For announced ones the hold comes before the burst, not into its
 * middle. For those after a pause all that compute are taken off at once, or are still in long
 * slices.
 */
enum timeshare_warning {
	TIMESHARE_WARNING_NONE,
	TIMESHARE_WARNING_HINT,
	TIMESHARE_WARNING_PAUSE,
	TIMESHARE_WARNINGS_
};
enum timeshare_arm_kind { TIMESHARE_ARM_HOLD, TIMESHARE_ARM_SLICES, TIMESHARE_ARMS_ };

struct timeshare_arm {
	uint32_t ns[TIMESHARE_ARMS_][TIMESHARE_ARM_SAMPLES]; /* the last ones, for each call */
	uint32_t n[TIMESHARE_ARMS_];                         /* samples in all */
	uint32_t n_bursts;
	uint32_t n_noted;     /* below ARM_FIRST_BURSTS both are tried in turn */
	uint32_t gap;         /* least number of bursts between such trials; 0: the shortest gap */
	uint32_t n_steady;    /* samples of best since it became best, or since the last check */
	uint64_t median_then; /* median of best when it became best */
	uint64_t calls;       /* average calls of a burst, times 256 */
	enum timeshare_arm_kind best;
};

/* predict.c: how long a critical client prepares after it has given a hint. */
struct timeshare_predict {
	uint64_t said_ns; /* when the hint came; 0: none is open */
	uint64_t value_ns;
	uint64_t expected_ns; /* the preparation, as predicted */
	uint64_t ratio_ppm;   /* average of the time that it took to the announced time */
	uint64_t margin_ns;
	uint64_t last_ns;   /* the last preparation */
	uint64_t error_ppm; /* average error of the predictions */
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
	uint64_t mean_ns;  /* average time of its bursts; 0: none yet */
	enum timeshare_slack slack;
	uint32_t level;   /* below TIMESHARE_LEVELS; 0 has the longest slice */
	uint64_t gpu_ns;  /* its GPU time when it came to that level */
	uint64_t work_ns; /* time with work since then */
	uint64_t at_ns;   /* its last report */
	bool was_busy;    /* at its last report */
};

/* slice_policy.c: the controller of the others' slice. */
struct timeshare_pid {
	int64_t sum_ppm, last_ppm; /* errors */
	uint64_t us;               /* the output; 0: none yet */
	uint32_t slo_us; /* the shortest SLO that it has seen of an active client; 0: none */
};

/* energy.c */
struct timeshare_energy {
	uint64_t uj;
	uint64_t gpu_ns; /* the GPU time that uj covers */
};

/* The last SET of a client, and its answer. */
struct timeshare_told {
	uint64_t seq;
	uint64_t seq_done;
	uint64_t slice_us;
	uint64_t until_ns; /* held until then, unless released; 0: not held */
	uint64_t use_ppm;
	uint64_t hold_seq; /* the SET that took it off; 0: it is on */
	uint64_t asked_ns; /* when that SET was sent */
};

/* A client's entry in the counts of its GPU. */
struct timeshare_part {
	uint32_t class; /* enum timeshare_class; without classes all but critical are normal */
	uint32_t weight;
	uint32_t slo_us; /* of a critical client; 0: none */
	uint32_t loose;  /* of a critical client outside bursts: the part of the time with work, in
			    TIMESHARE_ONE */
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
	uint64_t busy_ns, held_ns; /* as reported, less the time that is to be given later */
	uint64_t ran_ns;           /* the same */
	uint64_t heard_ns;         /* ran_ns as reported last */
	uint64_t report_ns;        /* time of the last report */
	uint64_t gpu_ns;
	uint64_t given_ns;   /* part of gpu_ns since the last report; the next one corrects it */
	uint64_t present_ns; /* time present since the last report */
	uint64_t since_ns;   /* while it is present: since when */
	uint64_t drawn;      /* timeshare_gpu_usage::drawn when it was last settled */
	uint64_t unseen_ns;  /* time of bursts while it was being held, since the last report */
	uint32_t slice_us;
	uint32_t part; /* the part of its presence in which it is really busy, in 1024ths */
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
	TIMESHARE_HOLD_TOLD,  /* told to be off by the SET told.hold_seq */
	TIMESHARE_HOLD_TIMED, /* the same, and it is part of the preemption being timed */
	TIMESHARE_HOLD_FAILED /* cannot be held; tried again at retry_ns */
};

struct timeshare_client {
	/* A sweep over many clients reads these members, so they lie together. */
	struct timeshare_part part; /* as counted */
	struct list_link link[TIMESHARE_LINKS_];
	struct timeshare_tree tree[TIMESHARE_ORDERS_];
	enum timeshare_client_state state;
	enum timeshare_work work;
	enum timeshare_burst burst;
	enum timeshare_hold hold;
	bool is_dirty;     /* TIMESHARE_LINK_DIRTY */
	bool is_overdue;   /* the last request was silent for burst_ns, and has no end */
	bool is_claim_new; /* the client has not been told of it yet */
	bool is_stray;     /* held by an order that was given up; to be let go */
	enum timeshare_warning
		warning; /* of this burst, or the one to come; arm was chosen by it */
	enum timeshare_arm_kind arm;
	uint32_t loose; /* busy part of the time between bursts, in TIMESHARE_ONE */
	uint32_t gpu;
	struct timeshare_claim claim;
	struct timeshare_told told;
	struct timeshare_usage usage;

	/* TIMESHARE_NO_DEADLINE when not running. */
	uint64_t linger_ns; /* active until then, without work */
	uint64_t burst_end_ns;
	uint64_t hint_ns; /* the hold of a hint begins then, or ends */
	uint64_t answer_ns;
	uint64_t renew_ns;
	uint64_t retry_ns;
	uint64_t pause_ns;  /* length of the last pause before retry_ns; 0: it was held since */
	uint64_t pace_ns;   /* its slack changes then */
	uint64_t silent_ns; /* while BUSY: when to check that it has reported something */
	uint64_t due_ns;    /* the least of the timers, as in the heap */

	uint64_t heard_ns; /* its last report or answer */
	uint64_t n_tasks;
	uint64_t n_slo_violations;
	uint64_t n_hints;
	uint32_t heap_at;   /* its place in the heap of timers */
	uint32_t heap_slot; /* the client at the heap's place with this slot's number */
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

/* weights.c; of an empty tree min and max mean nothing. */
struct timeshare_weights {
	enum timeshare_order order;
	uint32_t root;
	uint32_t min, max;
};

/* burst.c: n clients were told to be off at the same time. */
struct timeshare_batch {
	uint64_t asked_ns;
	uint32_t n;
};

struct timeshare_gpu_usage {
	uint64_t at_ns; /* settled up to then */
	uint64_t wall_ns;
	uint64_t given_ns;
	uint64_t class_ns[2];  /* [1]: of critical clients */
	uint64_t unsure_ns[2]; /* the part of class_ns that the clients' next reports may correct */
	uint64_t drawn;        /* GPU time for each unit of weight, while many are present */
	uint64_t weights;      /* slice * part, summed over all that are present */
	uint64_t rests;        /* slice * (1024 - part), summed over the same */
	uint64_t burst_ns;     /* begin of the last burst; overlapping ones count as one */
	uint64_t burst_end_ns; /* the end of its work; UINT64_MAX: it has work */
	struct list present;
};

struct timeshare_gpu {
	bool is_dirty;   /* to be planned before the step ends */
	bool is_shared;  /* two or more run: each has a slice and reports */
	bool is_taking;  /* a critical client is active: the others take turns */
	bool is_holding; /* the client that has the turn is held, too */
	bool is_brief;   /* is_holding, but for hints only */
	bool is_capped;
	bool is_slow;          /* bursts hold nobody for a while */
	uint32_t turn;         /* the client that has the turn, or TIMESHARE_NONE */
	uint32_t leaving;      /* had its turn, and has not answered yet that it is off */
	uint64_t turn_left_ns; /* rest of the turn beside a burst; else it ends TURN_LATE_NS sooner
				*/
	uint64_t credit;       /* ns * percent that critical clients may still take from others */
	uint64_t at_ns;        /* time of credit and turn_left_ns */
	uint64_t wake_ns;
	uint64_t slow_ns;     /* is_slow ends then */
	uint64_t pause_ns;    /* length of its last pause; 0: none yet */
	uint64_t hint_end_ns; /* end of the last hint's hold */
	struct list running;
	uint32_t n_sweep;  /* timeshare_update.c: how many of running are still to be looked at */
	uint32_t sweep_at; /* the next of them; TIMESHARE_NONE: the first */
	uint32_t n_active[4];
	struct timeshare_weights weights[4]; /* active clients by weight */
	struct timeshare_weights slos;       /* active critical clients with an SLO */
	uint32_t n_wanting, n_bursting, n_holders, n_late;
	uint64_t loose; /* sum over all clients */
	struct timeshare_pid pid;
	uint64_t power_mw;             /* 0: not known */
	uint64_t budget_uj, budget_ns; /* energy that holds may cost; time of that figure */
	struct timeshare_slices slices;
	struct timeshare_gpu_usage usage;

	uint32_t took_us[TIMESHARE_HOLD_SAMPLES]; /* times of the last holds */
	uint32_t n_took;
	struct timeshare_batch batches[TIMESHARE_BATCHES]; /* the last ones */
	uint32_t n_batches;
	uint32_t n_pending;  /* clients of the preemption being timed that are not off yet */
	uint64_t preempt_ns; /* begin of that preemption */
	uint32_t preempt_us[TIMESHARE_PREEMPTIONS];
	uint64_t n_preempted;                    /* preemptions that are complete */
	struct histogram preempt;                /* their times */
	uint32_t over_ns[TIMESHARE_PREEMPTIONS]; /* the last n_over overheads, see
						    timeshare_events.c */
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
	uint32_t n_stale; /* timeshare.c: so many of the last slots may have the class of an older
			     configuration */
	struct list dirty;
	struct timeshare_actions *out; /* during a step; else NULL */
	struct timeshare_gpu gpus[TIMESHARE_GPUS_MAX];
};

#endif
