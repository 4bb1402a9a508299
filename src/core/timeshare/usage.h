/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_USAGE_H
#define NVS_CORE_USAGE_H

/*
 * How much GPU time each client has had.
 *
 * Nothing can be asked for it cheaply, so it is computed: of those that are present at the same
 * time (they say that they have work, and are not held), each has a part of the time in proportion
 * to its slice. A client that is present need not be busy all the time; the part in which it is
 * comes from its own reports, and up to six clients are taken as independent of each other: every
 * subset of them that may be busy counts by its probability. With more an average of the others
 * will do. A report corrects what was given since the last one: by what the client has found of
 * itself on the GPU, where it can tell. Else that part of the time in which it was busy stands
 * which it was thought to have, which is wrong for work that is shorter than a slice: it waits for
 * the others' whole slices, and does not use its own.
 *
 * Clients look only now and then. It is right on average, and may be more than the time that has
 * passed: the rest is given later. No look falls into the time in which a client is being held,
 * while the burst that it is held for is on the GPU already: on an H200 half a millisecond of each
 * burst. So that time is taken off what it finds.
 *
 * The sum over a GPU's clients never exceeds the time that has passed.
 */

#include "core/timeshare/timeshare.h"

void usage_init(struct timeshare *timeshare, uint32_t gpu);
void usage_join(struct timeshare *timeshare, uint32_t client);
void usage_leave(struct timeshare *timeshare, uint32_t client);

/* The state of client from now on; what has been until now is settled first. */
void usage_set(struct timeshare *timeshare, uint32_t client, bool is_present, uint64_t slice_us);

/* Counters as reported; what can not be true of them is cut. ran_ns 0: not known. */
void usage_report(struct timeshare *timeshare, uint32_t client, uint64_t busy_ns, uint64_t held_ns,
		  uint64_t ran_ns);

/* The first of the critical clients on gpu begins a burst, with work; the last had none since
 * end_ns. */
void usage_burst_begins(struct timeshare *timeshare, uint32_t gpu);
void usage_burst_ends(struct timeshare *timeshare, uint32_t gpu, uint64_t end_ns);

/* client is held now, which took ns. Its work has stopped some time before. */
void usage_held(struct timeshare *timeshare, uint32_t client, uint64_t ns);

/* Its GPU time until now, estimated. */
uint64_t usage_ns(const struct timeshare *timeshare, uint32_t client);

/*
 * The same until its last report, and the sum over a GPU's clients, those that have left with
 * them: these never go back, as what counters are made of must not.
 */
uint64_t usage_sure_ns(const struct timeshare *timeshare, uint32_t client);
uint64_t usage_class_ns(const struct timeshare *timeshare, uint32_t gpu, bool is_critical);

/* Since the first client of a GPU has joined; 0: none has. */
uint64_t usage_known_ns(const struct timeshare *timeshare, uint32_t gpu);

#endif
