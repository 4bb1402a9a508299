/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_TOUCH_H
#define NVS_CORE_TOUCH_H

/*
 * Who is to be looked at before the step ends: what a client is told is only ever found out
 * there, by comparing what it should have with what it was told last. Those that may be
 * held come first, since somebody waits for it. So many are looked at in one step, and the
 * rest in the next: a step is to be short, however many there are.
 */

#include "core/share/share.h"

void touch(struct share *share, uint32_t client);
void touch_all(struct share *share, uint32_t gpu);     /* all that run on it, one by one */
void touch_none(struct share *share, uint32_t client); /* not any more */

/* It is about to leave its place among those that run. */
void touch_moves(struct share *share, uint32_t client);

/* Whether anybody is left to be looked at. */
bool touch_is_pending(const struct share *share);

/* Whether it has the slice that it is to have, or can not be told of one. */
bool touch_has_slice(const struct share *share, uint32_t client);

/* Whether it may be told something: not while it owes too many answers. */
bool touch_may_tell(const struct share_client *c);

/* Tells those touched what they are to know, as far as the step has room. */
void touch_flush(struct share *share);

void touch_report(struct share *share, uint32_t client, uint32_t gpu, enum share_report report,
		  uint64_t seq);

#endif
