/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_PROBE_SCHEDULE_H
#define NVS_CORE_PROBE_SCHEDULE_H

/*
 * Which bursts of a program in a hurry are asked whether it is on the GPU (runtime_estimate.h).
 * To ask costs others a switch of the GPU, and requests some of their tail. On an H200, for a graph
 * of 1 ms each 7 ms beside a process that computes all the time, it was 4.5 % of that one's time
 * and 0.05 to 0.1 ms. So the first bursts are asked, and then one in ASKED_EVERY.
 *
 * Their answer is kept for each call that gave work, and holds for the calls of the others: how
 * long work waits for other processes changes when those come and go, what a request runs does
 * not. No more than there was work in them, but for ASKED_SLACK_NS, since that is known from looks
 * by chance only.
 *
 * All times in ns; times and calls are sums since the start. Pure; not thread-safe. All zero:
 * none yet.
 */

#include <stdbool.h>
#include <stdint.h>

#define ASKED_FIRST    64u
#define ASKED_EVERY    128u
#define ASKED_SUM      32u /* so many bursts make what is learned */
#define ASKED_SLACK_NS 5000000u

/*
 * When so many that were asked, one after the other, ran more than twice or less than half of
 * what their calls had been thought to, the first are asked anew. Chance tells nothing of those
 * thought to run less than ASKED_SURE_NS.
 */
#define ASKED_WRONG   3u
#define ASKED_SURE_NS 1000000u

struct probe_schedule {
	uint32_t n;       /* bursts, since something was learned */
	bool is_now;      /* this one is asked */
	uint64_t n_calls; /* as far as is known what they have run */
	uint32_t n_wrong; /* of those that were asked, the last so many */
	uint64_t begin_ran_ns;
	uint64_t calls, ran_ns; /* of those that were asked; calls << 8 */
	/* Since the last of those: */
	uint64_t rest_busy_ns; /* with work; */
	uint64_t rest_ns;      /* what its calls run; */
	uint64_t rest_ran_ns;  /* what it was given */
};

/* A burst begins; is_all: each is asked, as of programs that are in no hurry. */
void probe_schedule_begin(struct probe_schedule *asked, bool is_all, uint64_t n_calls,
			  uint64_t ran_ns);

/* It has ended, and counts for what is learned: calls since the last end, and what has run. */
void probe_schedule_end(struct probe_schedule *asked, uint64_t n_calls, uint64_t ran_ns);

/* The last answers do not hold any more. The burst under way is to begin again. */
void probe_schedule_forget(struct probe_schedule *asked);

/*
 * The time that a burst which is not asked has run, of busy_ns more with work and the calls since.
 */
uint64_t probe_schedule_part(struct probe_schedule *asked, uint64_t busy_ns, uint64_t n_calls);

#endif
