/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_PREDICT_H
#define NVS_CORE_PREDICT_H

/*
 * When to make room for a burst that has been announced: as late as possible, but before it
 * begins. Two things are learned: how long preparing takes in proportion to what is announced, and
 * how far ahead of that a hold has to begin.
 */

#include "core/timeshare/timeshare.h"

/* A hint: a burst in value_ns. One that is still open is forgotten. */
void predict_hint(struct timeshare_predict *predict, const struct timeshare_config *config,
		  uint64_t now_ns, uint64_t value_ns);

/* When to begin to hold others, which takes preempt_ns; a hint is open. */
uint64_t predict_start(const struct timeshare_predict *predict,
		       const struct timeshare_config *config, uint64_t preempt_ns);

/*
 * The burst begins. Returns whether a hint was open: it is closed, and what it said is
 * compared with what came; ret_error_ns, the difference, is only written then.
 */
bool predict_begin(struct timeshare_predict *predict, const struct timeshare_config *config,
		   uint64_t now_ns, uint64_t *ret_error_ns);

/* A hint is open, and what it announced still to come. */
bool predict_is_ahead(const struct timeshare_predict *predict, uint64_t now_ns);

/* Nothing has come of it. */
void predict_cancel(struct timeshare_predict *predict);

#endif
