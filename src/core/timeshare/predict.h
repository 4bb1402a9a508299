/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_PREDICT_H
#define NVS_CORE_PREDICT_H

/*
 * When to hold others for an announced burst: as late as possible, but before it begins. Two values
 * are learned: how long a client prepares, in proportion to the announced time, and how far ahead
 * of the burst a hold must begin.
 */

#include "core/timeshare/timeshare.h"

/* A hint announces a burst in value_ns. It replaces a hint that is still open. */
void predict_hint(struct timeshare_predict *predict, const struct timeshare_config *config,
		  uint64_t now_ns, uint64_t value_ns);

/* When to begin to hold others. A hint must be open; a hold takes preempt_ns. */
uint64_t predict_start(const struct timeshare_predict *predict,
		       const struct timeshare_config *config, uint64_t preempt_ns);

/*
 * The burst begins. true: a hint was open; it is closed, and *ret_error_ns is the error of its
 * prediction. false: *ret_error_ns is not written.
 */
bool predict_begin(struct timeshare_predict *predict, const struct timeshare_config *config,
		   uint64_t now_ns, uint64_t *ret_error_ns);

/* A hint is open, and its burst is still to come. */
bool predict_is_ahead(const struct timeshare_predict *predict, uint64_t now_ns);

/* Closes the hint, if one is open: no burst has come of it. */
void predict_cancel(struct timeshare_predict *predict);

#endif
