/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_VOTES_H
#define NVS_DAEMON_VOTES_H

/*
 * What users say of a thing that the scheduler cannot measure. One user has one vote,
 * however many connections it opens.
 */

#include <stdint.h>
#include <sys/types.h>

#define VOTES_MAX 64 /* users; more are not heard */

struct vote {
	uid_t uid;
	uint64_t value;
};

struct votes {
	uint32_t n;
	struct vote at[VOTES_MAX];
};

/* User uid says value, 0: nothing. Of several values of one user the largest, or least, stays. */
void votes_most(struct votes *votes, uid_t uid, uint64_t value);
void votes_least(struct votes *votes, uid_t uid, uint64_t value);

/* The value of user uid; 0: none. */
uint64_t votes_of(const struct votes *votes, uid_t uid);

/* The value that most users name, of several such values the largest; 0: there is no vote. */
uint64_t votes_majority(const struct votes *votes);

/* Fewer than half of the users name less, and at most half name more; 0: there is no vote. */
uint64_t votes_median(const struct votes *votes);

#endif
