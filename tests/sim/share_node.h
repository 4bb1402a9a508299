/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIM_SHARE_NODE_H
#define NVS_TESTS_SIM_SHARE_NODE_H

/*
 * share and three clients on one GPU, as exhaustive_share.c explores them: what the clients
 * are, are told and do with it, and what must be true of every state. No pointer inside but
 * the one that node_copy() sets.
 */

#include "core/timeshare/timeshare.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define S  UINT64_C(1000000000)

#define CLIENTS 3
#define QUEUE   12

struct run {
	const char *name;
	enum timeshare_class class[CLIENTS];
	enum timeshare_arm_kind arm; /* TIMESHARE_ARMS_: learns */
	bool is_not_holding;
	uint32_t n_faults;
	uint64_t lc_window_ns; /* 0: the default */
	enum timeshare_rule rule;
	uint32_t slo_us;
	bool is_saving;   /* and then arm is not the last word */
	bool is_uncapped; /* then the others may wait as long as it wants */
};

struct order { /* a SET_SHARE, or the answer to it, on its way */
	uint64_t seq, slice_us, hold_us, told_ns;
	uint32_t outcome;
	bool is_done;
};

struct client {
	bool is_joined, is_running, is_busy, is_bursting;
	bool is_asked; /* one that is not critical has a request; its work may come later, or never
			*/
	uint64_t slice_us; /* as done, not as told */
	uint64_t until_ns;
	uint64_t late_ns;   /* of that: because it was told late */
	uint64_t active_ns; /* had work last */
	uint64_t said_ns;   /* said anything last */
	uint64_t hint_ns;   /* node::lc_ns, for the hint that is open; 0: none is */
	uint64_t busy_ns, held_ns;
	uint64_t used_ns; /* computed; of check_served() */
	uint32_t n;
	struct order queue[QUEUE];
};

struct node {
	struct timeshare share;
	struct timeshare_client slots[CLIENTS];
	struct client clients[CLIENTS];
	uint64_t now_ns;
	uint64_t lc_ns; /* some critical client needed room last; may be ahead, for a hint */
	uint32_t turn;  /* who had it last, while a critical one is active */
	uint32_t n_faults;
	uint32_t n_at_once;
};

/* What is explored now. */
extern const struct run *node_run;

void node_copy(struct node *to, const struct node *from);

/* ---- the clients ----------------------------------------------------------- */

/* Of node_run. */
bool node_is_critical(uint32_t client);
bool node_is_at_work(const struct client *c);
bool node_computes(const struct node *node, uint32_t client);

/* What a client does with an order that has arrived. */
void node_obey(struct node *node, uint32_t client, struct order *order);

/* What sched sends takes the same way as our orders, and comes after them. */
void node_obey_all(struct node *node, uint32_t client);

/* ---- what it is told --------------------------------------------------------- */

/* One event of the machine; what it asks for is checked and queued. */
int node_step(struct node *node, struct timeshare_event event);

/* ---- what is true of every state ---------------------------------------------- */

void node_check(const struct node *node);

#endif
