/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_CORE_TIME_RIG_H
#define NVS_TESTS_CORE_TIME_RIG_H

/*
 * A share machine with a few client slots on two GPUs. Time stands still but for
 * time_rig_at(). Every step is checked with timeshare_assert_valid(). What clients were told is
 * kept: time_rig_slice(), time_rig_is_held(); what they do with it is up to the test, but by
 * default they answer at once that it is done.
 */

#include "core/timeshare/timeshare.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define TIME_RIG_CLIENTS 1200
#define US               1000ull
#define MS               1000000ull
#define S                1000000000ull

struct time_rig_client {
	struct timeshare_action last; /* told; seq 0: nothing yet */
	uint64_t until_ns;            /* held until then by what it was told last */
	uint32_t n_told;
	bool is_mute;
};

struct time_rig {
	/* How a step is made: timeshare_step(), unless a test looks at each. */
	int (*step)(struct timeshare *share, const struct timeshare_event *event,
		    struct timeshare_actions *ret_actions);
	struct timeshare share;
	struct timeshare_client clients[TIME_RIG_CLIENTS];
	struct time_rig_client at[TIME_RIG_CLIENTS];
	struct timeshare_config config;
	uint64_t now;
	uint64_t took_ns; /* by each hold, as answered */
	uint32_t outcome; /* of each hold */
	uint32_t n_told;
	uint32_t reports[8]; /* by enum timeshare_report */
};

int time_rig_step(struct time_rig *rig, struct timeshare_event event);

/* Goes to time, with every TIMESHARE_EVENT_TIME that is due on the way. */
void time_rig_at(struct time_rig *rig, uint64_t time);

void time_rig_in(struct time_rig *rig, uint64_t ns);
int time_rig_config(struct time_rig *rig);
void time_rig_init(struct time_rig *rig);
void time_rig_run(struct time_rig *rig, uint32_t client, bool is_running);

/* Joins, and is let in. */
void time_rig_join(struct time_rig *rig, uint32_t client, enum timeshare_class class,
		   uint32_t weight);

void time_rig_leave(struct time_rig *rig, uint32_t client);

/* The end of a burst is that of one request. */
void time_rig_does(struct time_rig *rig, uint32_t client, enum timeshare_activity activity,
		   uint64_t value);

void time_rig_busy(struct time_rig *rig, uint32_t client);
void time_rig_idle(struct time_rig *rig, uint32_t client);

/* A burst of ns, now. */
void time_rig_burst(struct time_rig *rig, uint32_t client, uint64_t ns);

bool time_rig_is_held(const struct time_rig *rig, uint32_t client);
uint64_t time_rig_slice(const struct time_rig *rig, uint32_t client);

/* Its next hundred bursts will hold others, or will not. */
void time_rig_arm(struct time_rig *rig, uint32_t client, enum timeshare_arm_kind kind);

#endif
