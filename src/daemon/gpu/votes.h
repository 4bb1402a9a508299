/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_VOTES_H
#define NVS_DAEMON_VOTES_H

/*
 * Users' votes on a value that the scheduler cannot measure. One user has one vote, however many
 * connections it opens.
 *
 * Pure. Threading: none.
 */

#include <stdint.h>
#include <sys/types.h>

#define VOTES_MAX 64 /* users; further ones have no vote */

struct vote {
	uid_t uid;
	uint64_t value;
};

struct votes {
	uint32_t n;
	struct vote at[VOTES_MAX];
};

/* User uid says value; 0: it says nothing. The largest, or the least, of a user's values stays. */
void votes_most(struct votes *votes, uid_t uid, uint64_t value);
void votes_least(struct votes *votes, uid_t uid, uint64_t value);

/* The value of user uid; 0: none. */
uint64_t votes_of(const struct votes *votes, uid_t uid);

/* The value that most users say; the largest of several such. 0: there is no vote. */
uint64_t votes_majority(const struct votes *votes);

/* The value that fewer than half of the users undercut, and at most half exceed. 0: no vote. */
uint64_t votes_median(const struct votes *votes);

#endif
