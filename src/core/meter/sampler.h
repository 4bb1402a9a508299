/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_SAMPLER_H
#define NVS_CORE_SAMPLER_H

/*
 * When to look whether a program has work, so that the looks that find some are as great a part
 * of all as the work is of the time: stratified sampling. Time goes in steps, the first of which
 * begins with the work; in each there is one look, at a moment of chance, which stands for all
 * of the step. So what is shorter than a step is found as often as its length says, whatever it
 * repeats itself in.
 *
 * All times in ns, of one monotonic clock; a step is never 0; chance is any number, another one
 * each time. Pure; not thread-safe.
 */

#include <stdbool.h>
#include <stdint.h>

#define SAMPLER_LATE_NS_MAX 200000u /* of a look that is later nothing is learned */

struct sampler {
	uint64_t begin_ns; /* of the step that is to be looked at: what was before has been */
	uint64_t step_ns;  /* so long is it; 0: none has been planned */
	uint64_t at_ns;    /* the look in it is of then, */
	uint64_t look_ns;  /* and is due earlier by what looks are usually late */
	uint64_t late_ns;  /* that a look is, usually */
	bool is_ahead;     /* the look was to come when it was planned */
	bool is_behind;    /* its moment had passed then */
	bool is_early;     /* it is not by chance: it stands for what was before it, no more */
};

/* Nothing is known of what was before: now there is a look. */
void sampler_start(struct sampler *sampler, uint64_t now_ns);

/* The look is at at_ns, if that is earlier than planned. */
void sampler_hurry(struct sampler *sampler, uint64_t at_ns);

/*
 * step_ns, here and below: of the next step that is planned; they need not be alike.
 *
 * Work has begun at begin_ns, after there was none. Steps follow each other where work does, or
 * what comes twice in one would be found less often than it should: its look may be to come, or
 * would have found nothing, or has been.
 */
void sampler_resume(struct sampler *sampler, uint64_t begin_ns, uint64_t now_ns, uint64_t step_ns,
		    uint64_t chance);

/* The next step begins with the work that begins next, whatever was planned. */
void sampler_forget(struct sampler *sampler);

/* ns have passed that are none. */
void sampler_skip(struct sampler *sampler, uint64_t ns);

/* The look that is due took its event at at_ns: those that follow are planned so much earlier. */
void sampler_note_late(struct sampler *sampler, uint64_t at_ns);

/* The look is now, at or after look_ns: returns what it stands for; the next one is planned. */
uint64_t sampler_take(struct sampler *sampler, uint64_t now_ns, uint64_t step_ns, uint64_t chance);

#endif
