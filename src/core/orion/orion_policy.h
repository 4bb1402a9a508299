/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_ORION_POLICY_H
#define NVS_CORE_ORION_POLICY_H

/*
 * Orion's policy: which operation of a process's threads may be submitted to the GPU now.
 *
 * Threads are clients. Client 0 is high priority (HP), the others are best effort (BE). A client
 * asks before each operation, a kernel or a copy, and waits until the policy says go. The rules,
 * and the reasons for them, are in core/orion/README.md.
 *
 * A pure state machine. The caller feeds one event at a time, with the time it happened. It learns
 * which waiting clients may go. Nothing here reads a clock, allocates, logs or touches a file
 * descriptor. The state is bytes, without a pointer.
 *
 * Cost: an event takes constant time where no client waits. Else it takes time in proportion to
 * the clients that wait, for each client that goes.
 *
 * Ownership: struct orion_policy is the caller's. Threading: none; one caller at a time.
 */

#include "core/orion/kernel_class.h"

#include <stdbool.h>
#include <stdint.h>

#define ORION_POLICY_CLIENTS_MAX 64
#define ORION_POLICY_HP          0u /* the client that is high priority */
#define ORION_POLICY_NONE        UINT32_MAX
#define ORION_POLICY_NO_DEADLINE UINT64_MAX
#define ORION_POLICY_UNMEASURED  UINT64_MAX       /* COMPLETE: as long as it was taken to be */
#define ORION_POLICY_NS_MIN      1000ull          /* an operation counts at least so long */
#define ORION_POLICY_NS_MAX      3600000000000ull /* and at most so long */
#define ORION_POLICY_PPM         1000000u         /* parts in a whole */
#define ORION_POLICY_HP_DEPTH    1024u            /* HP operations whose class is kept */

struct orion_policy_config {
	uint32_t n_clients;         /* 1 to ORION_POLICY_CLIENTS_MAX; default 1 */
	uint32_t n_sms;             /* multiprocessors of the GPU, 1 to 65535; default 1 */
	uint32_t sm_threshold_ppm;  /* BE's part of n_sms beside HP; default 500000, to 1000000 */
	uint32_t dur_threshold_ppm; /* BE's duration in flight, as a part of hp_latency_ns;
				     * default 25000, to 1000000 */
	uint32_t depth_ppm;         /* the same while HP is idle and present; default 100000, to
				     * 1000000; dur_threshold_ppm, if that is more */
	uint64_t hp_latency_ns;     /* of a request of HP; default 10 ms; _NS_MIN to _NS_MAX */
	bool is_interference_aware; /* classes must differ; default true */
	uint64_t patience_ns;       /* default 0: ten times hp_latency_ns; to _NS_MAX */
	uint64_t unknown_ns;        /* taken duration of an unknown kernel; default 1 ms; _NS_MIN to
				     * _NS_MAX */
	uint64_t lead_ns;           /* BE's last operation in flight counts no more so long before
				     * its expected end; default 20 us; to _NS_MAX */
	uint64_t presence_ns;       /* HP is present for so long after an operation; default 1 s;
				     * to _NS_MAX */
};

struct orion_policy_op {
	uint32_t sms;         /* multiprocessors that it fills; 0: a copy; above n_sms is n_sms */
	bool is_known;        /* it was measured, or can be computed; false: duration_ns is 0 */
	uint64_t duration_ns; /* clipped to _NS_MIN to _NS_MAX */
	enum kernel_class class;
};

enum orion_policy_event_type {
	ORION_POLICY_EVENT_TIME,     /* orion_policy_deadline() has come */
	ORION_POLICY_EVENT_ASK,      /* client, op: may it be submitted? HP may always */
	ORION_POLICY_EVENT_GIVE_UP,  /* client: it waits no more */
	ORION_POLICY_EVENT_COMPLETE, /* client, op as it was in ASK, measured_ns; 0: it was never
				      * submitted. HP's complete in the order of their submission */
	ORION_POLICY_EVENT_LATENCY,  /* hp_latency_ns */
	ORION_POLICY_EVENT_END,      /* client: its thread is gone, and gives up. Operations in
				      * flight complete later. HP is present no more when its last
				      * one has. ASK begins anew */
	ORION_POLICY_EVENT_COUNT_
};

struct orion_policy_event {
	enum orion_policy_event_type type;
	uint32_t client;
	uint64_t now_ns; /* monotonic; a time before the last event's counts as the last event's */
	struct orion_policy_op op;
	uint64_t measured_ns; /* or ORION_POLICY_UNMEASURED */
	uint64_t hp_latency_ns;
};

enum {
	ORION_POLICY_E_SUCCESS_,
	ORION_POLICY_E_CLIENT, /* there is no such client */
	ORION_POLICY_E_STATE,  /* ASK of a client that waits; GIVE_UP of one that does not; COMPLETE
				* of an operation that is not in flight */
	ORION_POLICY_E_VALUE,  /* a class or hp_latency_ns is out of its range */
};

/* Why a client waits. The first one that applies. */
enum orion_policy_reason {
	ORION_POLICY_WAIT_NOT,
	ORION_POLICY_WAIT_SMS,      /* beside HP: BE would fill more than its multiprocessors */
	ORION_POLICY_WAIT_DURATION, /* beside HP: BE would have more than its duration in flight */
	ORION_POLICY_WAIT_CLASS,    /* beside HP: its class is that of HP's current operation */
	ORION_POLICY_WAIT_DEPTH,    /* HP is idle and may come: BE's duration in flight */
	ORION_POLICY_WAIT_TURN,     /* a client with less served time goes first */
	ORION_POLICY_WAIT_DRAIN,    /* patience is over: it goes when nothing of BE is in flight */
	ORION_POLICY_REASON_COUNT_
};

struct orion_policy_load {
	uint64_t n;   /* operations in flight: they were told to go, and have not completed */
	uint64_t sms; /* the sum of their multiprocessors */
	uint64_t ns;  /* the sum of their taken durations */
};

struct orion_policy_client {
	struct orion_policy_load load;
	struct orion_policy_op op; /* that waits; clipped, duration_ns is the taken one */
	uint64_t asked_ns;         /* since when it waits */
	uint64_t tag_ns;           /* virtual time: what BE clients are ordered by */
	uint64_t served_ns;        /* what its completed operations took, in sum */
};

struct orion_policy_counters {
	uint64_t hp_ops_scheduled;
	uint64_t be_ops_scheduled;
	uint64_t be_ops_rejected; /* had to wait; each counts once, and is scheduled later on */
	uint64_t total_wait_ns;   /* of all that had to wait, when their waits have ended */
};

/* Read it freely; only the functions below write. */
struct orion_policy {
	struct orion_policy_config config;
	uint64_t now_ns;
	uint64_t patience_ns;        /* in force */
	uint64_t sms_max, ns_max;    /* the two thresholds, as numbers */
	uint64_t idle_ns_max;        /* and the one while HP is idle */
	uint64_t waiting;            /* mask of clients; HP never waits */
	uint64_t floor_ns;           /* virtual time: no waiting client's tag is below it */
	struct orion_policy_load be; /* of all BE clients */
	uint64_t be_due_ns;          /* when all of them are expected to end */
	uint64_t hp_until_ns;        /* HP is present until then, without operations */
	bool is_hp_ended;
	uint32_t hp_first;                       /* index of HP's current operation in hp_class */
	uint8_t hp_class[ORION_POLICY_HP_DEPTH]; /* a ring; beyond it a later class overwrites */
	struct orion_policy_counters counters;
	struct orion_policy_client clients[ORION_POLICY_CLIENTS_MAX];
};

void orion_policy_config_default(struct orion_policy_config *ret_config);

/* NULL, or the name of the first field that is out of its range. */
const char *orion_policy_config_check(const struct orion_policy_config *config);

/* config: checked. No client waits, nothing is in flight, and HP is not present. */
void orion_policy_init(struct orion_policy *policy, const struct orion_policy_config *config);

/*
 * Returns 0, or one of ORION_POLICY_E_* when the event is refused; a refused event changes nothing.
 * ret_go: mask of the clients that may submit their operation now. It counts as in flight from
 * here on. A client that asked and is not in the mask waits.
 */
int orion_policy_step(struct orion_policy *policy, const struct orion_policy_event *event,
		      uint64_t *ret_go);

/* When the next EVENT_TIME is due; ORION_POLICY_NO_DEADLINE: another event comes first. */
uint64_t orion_policy_deadline(const struct orion_policy *policy);

/* Why client waits, as of the last event. client < config.n_clients. */
enum orion_policy_reason orion_policy_reason_of(const struct orion_policy *policy, uint32_t client);

/* "its class is that of the high-priority operation": for tables, without a full stop. */
const char *orion_policy_reason_text(enum orion_policy_reason reason);

/* HP has operations in flight, or had some within presence_ns, as of the last event. */
bool orion_policy_is_hp_present(const struct orion_policy *policy);

/* Aborts if an invariant is broken. For tests. */
void orion_policy_assert_valid(const struct orion_policy *policy);

#endif
