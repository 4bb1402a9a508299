/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_TIMESHARE_H
#define NVS_CORE_TIMESHARE_H

/*
 * The time of a GPU: which client computes when, of those that run side by side.
 *
 * sched decides which clients run at all. This is a pure state machine of the same kind. It takes
 * one event at a time, with its time. The caller carries out the actions that come back, in order.
 *
 * - Each client that runs beside others gets a timeslice. Equals have long ones, in proportion to
 *   their weights. Below an active higher class slices are short.
 * - A critical client's work comes in bursts. While a critical client is active, at most one of the
 *   others computes, in turns, and the rest are held. During a burst that one is held too, if
 * holding is fast and has shown the shorter tail (preempt_choice.h).
 * - Critical clients never take more than lc_max_percent of the time from others that want it.
 * Beyond that their slice is cut, and no client is held for their bursts.
 * - Each hold names its own end, so that it ends even if this scheduler does not.
 *
 * A client is active if it has work, or had some within active_ns. GPU time is estimated from
 * clients' reports, and from the slices of clients that were busy together (usage.h).
 *
 * Ownership: the caller owns struct timeshare and the array of clients that it names.
 * Threading: none; one caller at a time.
 */

#include "core/histogram.h"
#include "core/timeshare/recent.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TIMESHARE_GPUS_MAX    16
#define TIMESHARE_ACTIONS_MAX 64
#define TIMESHARE_NO_DEADLINE UINT64_MAX
#define TIMESHARE_NONE        UINT32_MAX
#define TIMESHARE_SLICE_MIN   100u /* us */
#define TIMESHARE_SLICE_MAX   10000000u
#define TIMESHARE_PPM         1000000u

/* In the order of enum nvshare_priority. */
enum timeshare_class {
	TIMESHARE_CLASS_LOW,
	TIMESHARE_CLASS_NORMAL,
	TIMESHARE_CLASS_HIGH,
	TIMESHARE_CLASS_CRITICAL,
	TIMESHARE_CLASS_COUNT_
};

/* The timeslices beside critical clients: slice_policy.h. */
enum timeshare_rule {
	TIMESHARE_RULE_FIXED,
	TIMESHARE_RULE_SLACK,
	TIMESHARE_RULE_EXPONENTIAL,
	TIMESHARE_RULE_FEEDBACK,
	TIMESHARE_RULE_COUNT_
};

#define TIMESHARE_POWER_MAX 10000000u /* mW */

/* Tunables; every one may change at run time by TIMESHARE_EVENT_CONFIG. */
struct timeshare_config {
	enum timeshare_rule slice_rule; /* default fixed */
	bool is_hinting;                /* false: hints are only counted; default true */
	bool has_classes;               /* false: all but the critical are equals; default true */
	bool is_holding;                /* false: slices only, no client is held; default true */
	uint32_t lc_max_percent; /* critical clients' part of the time; 10..100, default 90 */
	uint64_t lc_window_ns;   /* the time over which that counts; default 1 s */
	uint64_t equal_slice_us; /* the shortest slice among equals; default 10,000 */
	uint64_t be_slice_us;    /* slice beside a critical client; default 100 */
	uint64_t slice_us[TIMESHARE_CLASS_COUNT_]; /* below a higher class: 200, 500, 1000; and a
						    * critical one's own: 5,000,000 */
	uint64_t active_ns;                        /* default 1 s */
	uint64_t turn_ns;    /* a turn of the others beside a critical client; default 200 ms */
	uint64_t hold_ns;    /* longest hold without being renewed; default 1 s */
	uint64_t hint_ns;    /* the same for a hint; default 10 ms */
	uint64_t margin_ns;  /* a hint's hold comes so much too early, at first; default 50 us */
	uint64_t prepare_ns; /* for a shorter preparation a hold begins at once; default 100 us */
	uint64_t burst_ns;   /* after such a silence a burst counts as over; default 10 s */
	uint64_t slow_ns;    /* a hold that takes longer is slow, or n holds at once n times that;
			      * default 3 ms */
	uint64_t answer_ns;  /* time to answer a SET; default 1 s */
	bool is_saving;      /* hold only if it is worth its energy: energy.h; default false */
	uint32_t energy_budget_w; /* holds may cost so much beyond slices; default 0: no limit */
	uint64_t retry_ns; /* longest pause after holding failed, or was slow; default 10 s */
};

/* In the order of struct nvshare_claim. */
struct timeshare_claim {
	enum timeshare_class class;
	uint32_t weight; /* 1..10000 */
	uint32_t slo_us; /* 0: none */
	uint32_t limit;  /* percent, 1..100; 0: none */
};

/* In the order of enum nvshare_activity_kind. */
enum timeshare_activity {
	TIMESHARE_ACTIVITY_USE,
	TIMESHARE_ACTIVITY_BUSY,
	TIMESHARE_ACTIVITY_IDLE,
	TIMESHARE_ACTIVITY_BEGIN,
	TIMESHARE_ACTIVITY_END,
	TIMESHARE_ACTIVITY_HINT,
	TIMESHARE_ACTIVITY_COUNT_
};

enum timeshare_event_type {
	TIMESHARE_EVENT_CONFIG,   /* config */
	TIMESHARE_EVENT_JOIN,     /* client, gpu, claim */
	TIMESHARE_EVENT_LEAVE,    /* client */
	TIMESHARE_EVENT_CLAIM,    /* client, claim: its new claim */
	TIMESHARE_EVENT_RUN,      /* client, running: sched has let it in, or stops it */
	TIMESHARE_EVENT_ACTIVITY, /* client, activity, busy_ns, held_ns, ran_ns, value,
				   * n_calls, n_tasks, n_violations */
	TIMESHARE_EVENT_DONE,     /* client, seq, outcome, took_ns, is_held: the answer to a SET */
	TIMESHARE_EVENT_POWER,    /* gpu, value: its power in mW */
	TIMESHARE_EVENT_TIME,     /* timeshare_deadline() has come */
	TIMESHARE_EVENT_GPU,      /* gpu: the index stands for another GPU than before */
	TIMESHARE_EVENT_COUNT_
};

struct timeshare_event {
	enum timeshare_event_type type;
	uint32_t client; /* slot */
	uint32_t gpu;
	uint64_t now_ns; /* monotonic, never before the previous event's */
	struct timeshare_claim claim;
	bool running;
	enum timeshare_activity activity;
	uint64_t busy_ns;
	uint64_t held_ns;
	uint64_t ran_ns; /* 0: not known */
	uint64_t value;
	uint32_t n_calls; /* END: calls that gave work; 0: not known */
	uint32_t n_tasks; /* tasks that ended since the last report */
	uint32_t n_violations;
	uint64_t seq;
	uint64_t took_ns;
	uint32_t outcome; /* 0: success */
	bool is_held;
	const struct timeshare_config *config;
};

enum timeshare_action_type {
	TIMESHARE_ACTION_SET, /* SET_SHARE: seq, slice_us, hold_us, use_ppm, the client's claim */
	TIMESHARE_ACTION_REPORT, /* for the log: report, of client or of gpu */
};

enum timeshare_report {
	TIMESHARE_REPORT_MUTE,     /* client: has not answered a SET in time */
	TIMESHARE_REPORT_NOT_HELD, /* client: could not be held; outcome in seq */
	TIMESHARE_REPORT_SLOW, /* gpu: holding takes too long, so bursts hold nobody for a while */
	TIMESHARE_REPORT_FAST, /* gpu: holding is tried again */
	TIMESHARE_REPORT_CAPPED,    /* gpu: critical clients have had their part of the time */
	TIMESHARE_REPORT_NOT_CAPPED /* gpu */
};

struct timeshare_action {
	enum timeshare_action_type type;
	uint32_t client;
	uint32_t gpu;
	enum timeshare_report report;
	uint64_t seq;
	uint64_t slice_us; /* 0: it is alone, keeps the driver's slice, and need not report */
	uint64_t hold_us;
	uint64_t use_ppm;
};

struct timeshare_actions {
	uint32_t n;
	struct timeshare_action at[TIMESHARE_ACTIONS_MAX];
};

enum {
	TIMESHARE_E_SUCCESS_,
	TIMESHARE_E_EXISTS,    /* JOIN of a slot in use; GPU of an index that has clients */
	TIMESHARE_E_NO_CLIENT, /* any other event of a free slot */
	TIMESHARE_E_NO_GPU,    /* gpu >= TIMESHARE_GPUS_MAX */
	TIMESHARE_E_VALUE,     /* a claim, an activity or a configuration out of its range */
	TIMESHARE_E_STALE,     /* an answer to a SET that is not open */
};

/* Struct timeshare and struct timeshare_client are there for their size only. */
#include "core/timeshare/timeshare_private.h"

void timeshare_config_default(struct timeshare_config *ret_config);

/* Returns 0, or TIMESHARE_E_VALUE if a value is out of its range. */
int timeshare_config_check(const struct timeshare_config *config);

/* clients: n_clients zeroed slots, which are used until the last call. */
void timeshare_init(struct timeshare *timeshare, struct timeshare_client *clients,
		    uint32_t n_clients, const struct timeshare_config *config);

/*
 * Returns 0, or a TIMESHARE_E_* if the event is refused. A refused event changes only the time, and
 * yields no action. A step does a limited amount of work. If some is left, timeshare_deadline() is
 * now: step again with TIMESHARE_EVENT_TIME.
 */
int timeshare_step(struct timeshare *timeshare, const struct timeshare_event *event,
		   struct timeshare_actions *ret_actions);

/* When the next TIMESHARE_EVENT_TIME is due; TIMESHARE_NO_DEADLINE if none is. */
uint64_t timeshare_deadline(const struct timeshare *timeshare);

/* Aborts if an invariant is broken. For tests, and after every step in debug builds. */
void timeshare_assert_valid(const struct timeshare *timeshare);

struct timeshare_gpu_status {
	uint64_t n_preemptions, n_failures, n_timeouts;
	uint64_t preempt_ns_total, preempt_ns_p50, preempt_ns_p99, preempt_ns_max;
	struct histogram preempt;                       /* times of all preemptions */
	uint64_t over_ns_p50, over_ns_p99, over_ns_max; /* the part beyond holding itself */
	uint64_t n_preempted; /* preemptions in preempt_ns_total; each may hold several clients */
	uint64_t n_lc_tasks, n_be_tasks, n_slo_violations;
	uint64_t lc_gpu_ns, be_gpu_ns, known_ns;         /* known: time since the first client */
	uint64_t n_hints, n_hints_missed, hint_error_ns; /* the average error */
	bool is_slow, is_capped;
};

/* preempt_choice.h, for the bursts of one enum timeshare_warning. */
struct timeshare_learned {
	uint32_t n_bursts;
	uint32_t hold_us, slices_us; /* tails; 0: none yet */
	bool is_holding;
	bool is_decided; /* both kinds have enough samples */
};

struct timeshare_client_status {
	struct timeshare_claim claim;
	uint64_t gpu_ns, held_ns, slice_us, n_tasks, n_slo_violations;
	uint64_t busy_ns;
	uint64_t energy_uj;                      /* 0 while its GPU's power is not known */
	uint64_t n_hints, margin_ns, prepare_ns; /* prepare_ns: the last preparation */
	uint32_t ratio_ppm, error_ppm;           /* predict.h; 0 until a burst followed a hint */
	struct timeshare_learned learned[TIMESHARE_WARNINGS_];
	bool is_held, is_busy, is_slices_only;
};

/* gpu < TIMESHARE_GPUS_MAX; client < n_clients, and joined. */
void timeshare_gpu_status(const struct timeshare *timeshare, uint32_t gpu,
			  struct timeshare_gpu_status *ret);
void timeshare_client_status(const struct timeshare *timeshare, uint32_t client,
			     struct timeshare_client_status *ret);

/* A GPU's totals: those of its status, at less cost. */
void timeshare_gpu_totals(const struct timeshare *timeshare, uint32_t gpu,
			  uint64_t ret[RECENT_TOTAL_COUNT_]);

/* client's GPU time up to the last event: an estimate, which a report may correct downwards. */
uint64_t timeshare_gpu_ns(const struct timeshare *timeshare, uint32_t client);

#endif
