/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIM_SHARE_WORLD_H
#define NVS_TESTS_SIM_SHARE_WORLD_H

/*
 * share in a closed loop with simulated clients on one GPU: critical ones whose bursts need
 * GPU time, and who in some seeds work between them too, others that compute when they can,
 * messages that take their time, freezes that do. What the clients really get follows from the
 * slices and holds that they were told.
 *
 * A program has one world.
 */

#include "core/timeshare/timeshare.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define S  UINT64_C(1000000000)

#define CLIENTS    9
#define RUN_NS     (20 * S)
#define REPORT_NS  (10 * MS)
#define WIRE_MAX   (100 * US)
#define FREEZE_MAX (2 * MS)
#define ENOUGH     (3 * WIRE_MAX + FREEZE_MAX) /* for a message and a freeze */
#define QUEUE      16
#define SLO_US     5000u

struct order { /* a SET_SHARE on its way, then being done */
	struct timeshare_action set;
	uint64_t at_ns;
	bool is_answer;
	uint32_t outcome;
	uint64_t took_ns;
};

struct client {
	bool is_alive;
	bool is_critical;
	bool is_at_work;
	bool is_told_busy; /* as its last report says */
	bool is_greedy;    /* always at work */
	bool is_bursting;
	bool is_asked;   /* one that is not critical has a request, with work or without */
	bool was_capped; /* in this burst */
	uint32_t weight;
	uint64_t slice_us;
	uint64_t until_ns;  /* held until then */
	uint64_t next_ns;   /* it begins or ends its work; a critical one: its next burst */
	uint64_t hint_ns;   /* it gives a hint then; 0: none */
	uint64_t report_ns; /* not before */
	uint64_t need_ns;   /* GPU time of the burst */
	uint64_t left_ns;   /* what it still lacks of it */
	uint64_t begun_ns;  /* the burst */
	uint64_t told_ns;   /* it said so that it has work */
	uint64_t last_ns;   /* it computed last, or wanted nothing */
	uint64_t busy_ns, held_ns, got_ns;
	uint64_t half_ns; /* got_ns in the middle of the run */
	struct order queue[QUEUE];
	uint32_t n_queued;
};

struct world {
	struct timeshare share;
	struct timeshare_client slots[CLIENTS];
	struct client clients[CLIENTS];
	uint64_t seed, rng, now_ns, hash;
	bool has_faults;
	bool has_deaths;
	bool has_requests;   /* of those in no hurry, too */
	bool are_equals;     /* none is critical, all are greedy; weights from 1 to 8 */
	bool is_overloaded;  /* the critical never rest */
	bool is_loose;       /* the critical work between bursts, too */
	bool is_blind;       /* clients can not tell how much of their time they were on the GPU */
	bool is_saving;      /* energy */
	bool is_pinned;      /* their bursts hold others, whatever they learn */
	uint32_t n_lc, n_be; /* the critical are the first; the next one is greedy and lives */
	uint32_t lc_max_percent;
	enum timeshare_rule rule;
	uint64_t be_ns;   /* GPU time of the others, while one of them is greedy */
	uint64_t need_ns; /* a burst, or a hint of one, asked for room last */
	uint64_t start_ns;
	uint64_t last_ns, n_at_once; /* steps within a microsecond */
	uint64_t n_steps, n_told, n_bursts;
};

extern struct world world;

/* A signal's handler: names the seed. */
void share_on_abort(int number);

/* Unless is_good, says what of which client, and aborts. */
void share_check(bool is_good, const char *what, uint32_t client);

/* From the seed. */
uint64_t share_below(uint64_t n);

/* ---- the machine ----------------------------------------------------------- */

/* One event of the machine at world.now_ns, and what it asks for. */
void share_step(struct timeshare_event event);

/* ---- the clients ----------------------------------------------------------- */

bool share_is_held(const struct client *c);
bool share_computes(const struct client *c);
void share_die(uint32_t client);
void share_give_hint(uint32_t client);

/* The first order has arrived, or has been done. */
void share_on_order(uint32_t client);

void share_end_burst(uint32_t client);
void share_on_next(uint32_t client);
void share_on_report(uint32_t client);

/* ---- time ------------------------------------------------------------------ */

/* When anything happens next. */
uint64_t share_next_event(void);

/* Nothing happens until then; who computes gets its part. */
void share_pass(uint64_t at_ns);

#endif
