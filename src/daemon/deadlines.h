/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_DEADLINES_H
#define NVS_DAEMON_DEADLINES_H

/*
 * All that the loop does at a given time. A deadline is a struct in its owner; the callback finds
 * the owner by container_of(). The deadlines that are set form one heap, and the loop arms its
 * timer for the earliest.
 *
 * A deadline fires once and is then not set; its callback may set it again. The loop takes all
 * due deadlines in one pass. A deadline that is set during a pass fires in a later pass, so a
 * callback that is due again at once does not keep the loop from its events.
 *
 * Many things of one kind (peers that are paused) share one deadline: their owner keeps them in a
 * list and sets the deadline for the first of them.
 *
 * Times are clock_now_ns(). Each call takes O(log n). Ownership: the owner's memory must stay
 * while its deadline is set. Threading: none.
 */

#include <stdbool.h>
#include <stdint.h>

#define DEADLINE_NEVER UINT64_MAX
#define DEADLINES_MAX  64 /* that can be set at a time: more than there are in the server */

struct server;
struct deadline;

typedef void deadline_fn(struct server *server, struct deadline *deadline);

/* Only on_due is the owner's. Zeroed but for on_due: not set. */
struct deadline {
	deadline_fn *on_due;
	uint64_t at_ns;
	uint32_t place; /* in the heap, from 1; 0: not set */
};

/* Zeroed: empty. */
struct deadlines {
	uint64_t pass_ns; /* the time of the pass under way; 0: none is */
	uint32_t n;
	struct deadline *at[DEADLINES_MAX];
};

/* Sets or moves deadline. at_ns: DEADLINE_NEVER: clears it. */
void deadline_set(struct deadlines *deadlines, struct deadline *deadline, uint64_t at_ns);

/* Nothing happens if deadline is not set. */
void deadline_clear(struct deadlines *deadlines, struct deadline *deadline);

/* DEADLINE_NEVER: not set. */
uint64_t deadline_at(const struct deadline *deadline);
bool deadline_is_set(const struct deadline *deadline);

/* The time of the earliest; DEADLINE_NEVER: none is set. */
uint64_t deadlines_next(const struct deadlines *deadlines);

/*
 * The earliest one that is due at now_ns, which is then not set; the caller calls it. NULL: there
 * is no other one, and the pass ends.
 */
struct deadline *deadlines_take(struct deadlines *deadlines, uint64_t now_ns);

#endif
