/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_ACT_H
#define NVS_CORE_ACT_H

/* The actions of the step under way. */

#include "core/sched.h"

#include <assert.h>

/* The most that one handler, one look at a GPU or one timer adds at a time. */
#define ACT_MARGIN 8

static inline void act_emit(struct sched *sched, struct sched_action action)
{
	assert(sched->out->n < SCHED_ACTIONS_MAX);
	sched->out->at[sched->out->n++] = action;
}

static inline void act_report(struct sched *sched, uint32_t client, enum sched_report report,
			      uint64_t bytes)
{
	act_emit(sched, (struct sched_action){.type = SCHED_ACTION_REPORT,
					      .client = client,
					      .report = report,
					      .bytes = bytes});
}

/* Whether the step may go on, or leaves the rest to the next. */
static inline bool act_has_room(const struct sched *sched)
{
	return sched->out->n + ACT_MARGIN <= SCHED_ACTIONS_MAX;
}

#endif
