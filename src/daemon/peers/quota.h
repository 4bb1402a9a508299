/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_QUOTA_H
#define NVS_DAEMON_QUOTA_H

/*
 * How much the peers of each user may cause: lines in the log, messages that are read, work for
 * tools, events. Each of these is a token bucket of the user. Lines also take from one bucket of
 * all users.
 *
 * Pure: the caller gives the time, in nanoseconds, which never goes back. The table has a fixed
 * size. A user whose buckets are full is forgotten at no loss. Users who find no place share one.
 * Root has a place of its own, which no crowd of users can take.
 *
 * Ownership: struct quota is the caller's, and zeroed at first. Threading: none.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define QUOTA_USERS  1024        /* beside the place of root and the shared one */
#define QUOTA_NOBODY ((uid_t)-1) /* the shared place; also peers whose user is unknown */
#define QUOTA_NEVER  UINT64_MAX
#define QUOTA_TOLD   16 /* users that one report names */

enum quota_kind {
	QUOTA_LINES,    /* in the log */
	QUOTA_MESSAGES, /* of clients, and new connections */
	QUOTA_ANSWERS,  /* packets to tools, and what tools set */
	QUOTA_EVENTS,   /* of clients and programs, for tools and the alert command */
	QUOTA_KIND_COUNT_
};

struct quota_rate {
	uint64_t step_ns; /* one more token each */
	uint64_t burst;   /* tokens of a full bucket */
};

/* A token bucket. Zeroed: full. */
struct quota_bucket {
	uint64_t paid_ns; /* the bucket is full again then */
};

struct quota_user {
	bool is_used;
	uid_t uid;
	struct quota_bucket buckets[QUOTA_KIND_COUNT_];
	uint64_t n_hidden; /* lines that were not logged, and are in no report yet */
};

struct quota {
	struct quota_user users[QUOTA_USERS + 2];
	struct quota_bucket lines; /* of all users but the trusted ones */
	uint64_t hidden_ns;        /* the first of the hidden lines came then */
	uint64_t n_hidden;         /* of all users */
};

struct quota_report {
	uid_t uid; /* QUOTA_NOBODY: all who are not named */
	uint64_t n_lines;
	uint64_t passed_ns; /* since the first hidden line of all users */
};

/*
 * Takes n tokens; the bucket may owe a burst at most afterwards. 0; or nothing is taken, and the
 * bucket has a token again at the time returned.
 */
uint64_t quota_take(struct quota_bucket *bucket, const struct quota_rate *rate, uint32_t n,
		    uint64_t now_ns);

/* The same for the bucket of uid and kind, by the rate of kind. */
uint64_t quota_take_of(struct quota *quota, uid_t uid, enum quota_kind kind, uint32_t n,
		       uint64_t now_ns);

/* Takes n tokens in any case. The next takers wait for what is owed. */
void quota_charge(struct quota *quota, uid_t uid, enum quota_kind kind, uint32_t n,
		  uint64_t now_ns);

/*
 * Whether a line that uid caused may be logged. is_trusted: the bucket of all users is not asked.
 */
bool quota_line(struct quota *quota, uid_t uid, bool is_trusted, uint64_t now_ns);

/* When a report of hidden lines is due; QUOTA_NEVER: no line is hidden. */
uint64_t quota_deadline(const struct quota *quota);

/*
 * The reports that are due (is_last: or will be): of QUOTA_TOLD users at most, and one of all
 * others. Returns their number. Each hidden line is in one report.
 */
uint32_t quota_reports(struct quota *quota, uint64_t now_ns, bool is_last,
		       struct quota_report ret[QUOTA_TOLD + 1]);

#endif
