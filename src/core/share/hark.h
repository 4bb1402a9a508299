/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_HARK_H
#define NVS_CORE_HARK_H

/* What share hears: what clients do, what they answer, and what they do not. */

#include "core/share/share.h"

/* The most reports that one timer causes. */
#define HARK_REPORTS_MAX 8u

/* What claim counts as: without classes all but the critical are normal. */
enum share_class hark_class(const struct share *share, const struct share_claim *claim);

/* Counts client as what it is now; it is touched, and its GPU is planned anew. */
void hark_refresh(struct share *share, uint32_t client);

/* It runs from now on. What it announced before, and is still to come, counts. */
void hark_run(struct share *share, uint32_t client);

/* It does not run any more: whatever it did is over. */
void hark_stop(struct share *share, uint32_t client);

int hark_activity(struct share *share, const struct share_event *event);
int hark_done(struct share *share, const struct share_event *event);

/* One of client's timers is due. */
void hark_timer(struct share *share, uint32_t client);

#endif
