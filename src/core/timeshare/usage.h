/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_USAGE_H
#define NVS_CORE_USAGE_H

/*
 * The GPU time that each client has had.
 *
 * No cheap call tells it, so it is estimated. A client is present if it reports work and is not
 * held. Clients that are present at the same time divide it in proportion to their slices. A client
 * that is present is busy for a part of the time, which its reports show. Up to six clients count
 * as independent of each other, and each subset of them counts by its probability. With more, the
 * average of the others is used.
 *
 * A report corrects the time since the last one.
 *
 * - If the client can find itself on the GPU (ran_ns), that time counts.
 * - Else its busy time counts by the part that the slices gave it. That is wrong for work shorter
 *   than a slice, which waits for the others' whole slices and does not use its own.
 *
 * Clients look only now and then, so ran_ns is right on average. It may exceed the time that has
 * passed; the rest is given later. While a client is being held, no look comes, but the burst is on
 * the GPU already: on an H200 for half a millisecond of each burst. So that time is taken off.
 *
 * The sum over a GPU's clients never exceeds the time that has passed.
 */

#include "core/timeshare/timeshare.h"

void usage_init(struct timeshare *timeshare, uint32_t gpu);
void usage_join(struct timeshare *timeshare, uint32_t client);
void usage_leave(struct timeshare *timeshare, uint32_t client);

/* Sets the state of client from now on, and settles the time until now first. */
void usage_set(struct timeshare *timeshare, uint32_t client, bool is_present, uint64_t slice_us);

/* The reported counters; impossible values are cut. ran_ns 0: not known. */
void usage_report(struct timeshare *timeshare, uint32_t client, uint64_t busy_ns, uint64_t held_ns,
		  uint64_t ran_ns);

/* begins: the first critical client on gpu begins a burst. ends: the last one has no work since
 * end_ns. */
void usage_burst_begins(struct timeshare *timeshare, uint32_t gpu);
void usage_burst_ends(struct timeshare *timeshare, uint32_t gpu, uint64_t end_ns);

/* client is held now, after ns. Its work has stopped some time before. */
void usage_held(struct timeshare *timeshare, uint32_t client, uint64_t ns);

/* client's GPU time until now, estimated. */
uint64_t usage_ns(const struct timeshare *timeshare, uint32_t client);

/*
 * sure: client's time until its last report. class: the same, summed over a GPU's clients, also
 * those that have left. Both never decrease, as counters must not.
 */
uint64_t usage_sure_ns(const struct timeshare *timeshare, uint32_t client);
uint64_t usage_class_ns(const struct timeshare *timeshare, uint32_t gpu, bool is_critical);

/* The time since the GPU's first client joined; 0: none has. */
uint64_t usage_known_ns(const struct timeshare *timeshare, uint32_t gpu);

#endif
