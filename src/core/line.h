/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_LINE_H
#define NVS_CORE_LINE_H

/*
 * The two lines of a GPU. In the queue stand those that want to run, and those that run
 * and want to grow, first come first served. Chosen ones stand among the coming: their
 * need is counted, room is being made for them.
 */

#include "core/sched.h"

#include <stdbool.h>
#include <stdint.h>

#define LINE_LOOK_AHEAD 128 /* how deep into the queue a decision looks */

/*
 * These are called between fit_out() and fit_in() of the client. Entering the
 * queue starts the clock of a wait for memory; leaving it stops it.
 */
void line_push_back(struct sched *sched, uint32_t client);
void line_push_front(struct sched *sched, uint32_t client);
void line_push_coming(struct sched *sched, uint32_t client);
/* What client wants has changed: the clock of its wait for memory starts, stops, or runs on. */
void line_bound(const struct sched *sched, struct sched_client *client);
void line_leave(struct sched *sched, uint32_t client); /* whichever it is in; none: nothing */

/* From 1; 0: not in the queue. Far from the front an upper bound. */
uint32_t line_position(const struct sched *sched, uint32_t client);

enum sched_wait line_why(const struct sched *sched, uint32_t client);
void line_tell(struct sched *sched, uint32_t client); /* WAIT */

#endif
