/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_RUNTIME_ESTIMATE_H
#define NVS_CORE_RUNTIME_ESTIMATE_H

/*
 * Of the time in which a program has work, what has run: the rest waited for other processes'
 * slices. Whether it is on the GPU is asked with an event (src/hook/share/share_here.c), and
 * what was not answered at once is decided later:
 *
 * - the work ends, and the event was not reached: all of it had been handed over to the GPU
 *   before, as a short graph is, and has run;
 * - it was reached with the end of the work: the same;
 * - it was reached some time before the end: it had waited until then;
 * - it was reached, and the work goes on: it had waited, but for one slice in each two of
 *   such answers that follow each other.
 *
 * Whose answer comes with the end of its work each time shares a queue of the hardware's with
 * that work, and nothing can be told.
 *
 * All times in ns. Pure; not thread-safe. All zero: nobody else is there, and nothing has run.
 */

#include <stdbool.h>
#include <stdint.h>

#define RAN_PPM          1000000u
#define RAN_TOGETHER_MAX 256u /* answers with the end of work, in a row */

struct runtime_estimate {
	uint64_t ns;         /* has run */
	uint64_t maybe_ns;   /* what has not been decided yet */
	bool has_others;     /* somebody else may be there */
	uint64_t use_ppm;    /* then: of the time in which it has work, usually */
	uint32_t n_together; /* times that the end of work came with the answer */
	bool was_late;       /* the last answer came after its look */
	bool was_here;       /* what is not decided was asked right after such an answer */
	bool is_blind;       /* nothing can be told */
};

/* use_ppm: of the time in which there is work its own; 0: nobody else is there. True: news. */
bool runtime_set_use(struct runtime_estimate *ran, uint64_t use_ppm);

/* A look that found work stands for ns; is_here: it was found on the GPU. */
void runtime_count(struct runtime_estimate *ran, uint64_t ns, bool is_here);

/* A new event was recorded: the one before had been reached. */
void runtime_asked(struct runtime_estimate *ran);

/* The event was found reached between two looks, with work still there. */
void runtime_answered(struct runtime_estimate *ran);

/* Found on the GPU at once. */
void runtime_found(struct runtime_estimate *ran);

/*
 * The work is done. is_reached: so is the event; has_waited: some time before that. counts: it
 * tells something of queues, too, if both came together.
 */
void runtime_ended(struct runtime_estimate *ran, bool is_reached, bool has_waited, bool counts);

#endif
