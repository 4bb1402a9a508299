/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_ASKED_H
#define NVS_CORE_ASKED_H

/*
 * Which bursts of a program in a hurry are asked whether it is on the GPU (ran.h). To ask costs
 * others a switch of the GPU, and requests some of their tail (on an H200, for a graph of 1 ms
 * each 7 ms beside a process that computes all the time: 4.5 % of that one's time; 0.05 to
 * 0.1 ms). So the first bursts are asked, and then one in ASKED_EVERY; the part of their time
 * that they were on the GPU holds for the others.
 *
 * All times in ns, and sums since the start. Pure; not thread-safe. All zero: none yet.
 */

#include <stdbool.h>
#include <stdint.h>

#define ASKED_FIRST 64u
#define ASKED_EVERY 128u
#define ASKED_SUM   32u /* so many bursts make the part */

struct asked {
	uint32_t n;                           /* bursts, since something was learned */
	bool is_now;                          /* this one is asked; */
	uint64_t begin_busy_ns, begin_ran_ns; /* it has begun with that */
	uint64_t busy_ns, ran_ns;             /* of those that were asked */
};

/* A burst begins; is_all: each is asked, as of programs that are in no hurry. */
void asked_begin(struct asked *asked, bool is_all, uint64_t busy_ns, uint64_t ran_ns);

/* It has ended, and counts for what is learned. */
void asked_end(struct asked *asked, uint64_t busy_ns, uint64_t ran_ns);

/* What was learned does not hold any more. The burst under way is to begin again. */
void asked_forget(struct asked *asked);

/* Of ns with work in a burst that is not asked, what has run. All, if nothing was learned. */
uint64_t asked_part(const struct asked *asked, uint64_t ns);

#endif
