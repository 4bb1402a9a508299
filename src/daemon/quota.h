/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_QUOTA_H
#define NVS_DAEMON_QUOTA_H

/*
 * What the peers of each user may cause: lines in the log, messages that are read, work for
 * tools. Each is a token bucket of a user; lines have one of all users besides.
 *
 * Pure: the caller gives the time, in nanoseconds, which never goes back. The table has a
 * fixed size. A user whose buckets are full again is forgotten at no loss; users who find no
 * place share one. Root has a place of its own, so that no crowd of users takes it away.
 *
 * Ownership: struct quota is the caller's, and zeroed at first. Threading: none.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define QUOTA_USERS  1024        /* beside root's place, and the shared one */
#define QUOTA_NOBODY ((uid_t)-1) /* the shared place; also peers whose user is unknown */
#define QUOTA_NEVER  UINT64_MAX
#define QUOTA_TOLD   16 /* users that a report names one by one */

enum quota_kind {
	QUOTA_LINES,    /* in the log */
	QUOTA_MESSAGES, /* of clients, and new connections */
	QUOTA_ANSWERS,  /* packets to tools, and what tools set */
	QUOTA_KIND_COUNT_
};

struct quota_rate {
	uint64_t step_ns; /* one more each */
	uint64_t burst;   /* so many at once */
};

/* A token bucket. Zeroed it is full. */
struct quota_bucket {
	uint64_t paid_ns; /* the bucket is full again then */
};

struct quota_user {
	bool is_used;
	uid_t uid;
	struct quota_bucket buckets[QUOTA_KIND_COUNT_];
	uint64_t n_hidden; /* lines that were not logged, and that no report has told */
};

struct quota {
	struct quota_user users[QUOTA_USERS + 2];
	struct quota_bucket lines; /* of all users but root and the scheduler's own */
	uint64_t hidden_ns;        /* the first of the hidden lines came then */
	uint64_t n_hidden;         /* of all users */
};

struct quota_report {
	uid_t uid; /* QUOTA_NOBODY: all who are not named */
	uint64_t n_lines;
	uint64_t passed_ns; /* since the first hidden line, of whomever */
};

/*
 * Takes n; the bucket may come to owe, a burst at most. 0, or nothing is taken: the bucket has
 * something again at that time.
 */
uint64_t quota_take(struct quota_bucket *bucket, const struct quota_rate *rate, uint32_t n,
		    uint64_t now_ns);

/* The same of uid's bucket of that kind, by its rate. */
uint64_t quota_take_of(struct quota *quota, uid_t uid, enum quota_kind kind, uint32_t n,
		       uint64_t now_ns);

/* Takes n in any case: what is over is paid by those who take next. */
void quota_charge(struct quota *quota, uid_t uid, enum quota_kind kind, uint32_t n,
		  uint64_t now_ns);

/* Whether a line that uid caused may be logged. is_trusted: the bucket of all is not asked. */
bool quota_line(struct quota *quota, uid_t uid, bool is_trusted, uint64_t now_ns);

/* When hidden lines are to be told; QUOTA_NEVER: there are none. */
uint64_t quota_deadline(const struct quota *quota);

/*
 * The reports that are due (is_last: or would be later), at most QUOTA_TOLD users' and one of all
 * others; their number. Each hidden line is in one report.
 */
uint32_t quota_reports(struct quota *quota, uint64_t now_ns, bool is_last,
		       struct quota_report ret[QUOTA_TOLD + 1]);

#endif
