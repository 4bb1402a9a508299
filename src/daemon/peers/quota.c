/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/quota.h"

#include "util/clock.h"

#include <stddef.h>

#define PROBES     8
#define PLACE_ROOT QUOTA_USERS
#define PLACE_REST (QUOTA_USERS + 1)

/* The log tells of hidden lines once in so long. */
#define REPORT_NS (10 * CLOCK_NS_PER_SEC)

/*
 * The rate of messages: a library reports at most a hundred times a second. A thousand libraries
 * of one user stay below the rate if one in five is at work. The burst lets ten thousand come
 * back at once after a restart.
 */
static const struct quota_rate rates[QUOTA_KIND_COUNT_] = {
	[QUOTA_LINES] = {CLOCK_NS_PER_SEC / 5, 100},
	[QUOTA_MESSAGES] = {CLOCK_NS_PER_SEC / 20000, 60000},
	[QUOTA_ANSWERS] = {CLOCK_NS_PER_SEC / 20000, 60000},
	[QUOTA_EVENTS] = {2 * CLOCK_NS_PER_SEC, 64},
};

static const struct quota_rate lines_of_all = {CLOCK_NS_PER_SEC / 20, 400};

/* ---- buckets --------------------------------------------------------------- */

/* The earliest time at which the bucket has a token. */
static uint64_t bucket_ready_ns(const struct quota_bucket *bucket, const struct quota_rate *rate)
{
	uint64_t room_ns = (rate->burst - 1) * rate->step_ns;

	return bucket->paid_ns > room_ns ? bucket->paid_ns - room_ns : 0;
}

static void bucket_charge(struct quota_bucket *bucket, const struct quota_rate *rate, uint32_t n,
			  uint64_t now_ns)
{
	uint64_t from_ns = bucket->paid_ns > now_ns ? bucket->paid_ns : now_ns;
	uint64_t most_ns = now_ns + 2 * rate->burst * rate->step_ns;

	bucket->paid_ns = from_ns + n * rate->step_ns;
	/* The bucket owes a burst at most, so a user is served again soon after a flood ends. */
	if (bucket->paid_ns > most_ns)
		bucket->paid_ns = most_ns;
}

uint64_t quota_take(struct quota_bucket *bucket, const struct quota_rate *rate, uint32_t n,
		    uint64_t now_ns)
{
	uint64_t at_ns = bucket_ready_ns(bucket, rate);

	if (at_ns > now_ns)
		return at_ns;
	bucket_charge(bucket, rate, n, now_ns);
	return 0;
}

/* ---- users ----------------------------------------------------------------- */

static bool quota_user_is_idle(const struct quota_user *user, uint64_t now_ns)
{
	if (user->n_hidden)
		return false;
	for (size_t i = 0; i < QUOTA_KIND_COUNT_; i++) {
		if (user->buckets[i].paid_ns > now_ns)
			return false;
	}
	return true;
}

static struct quota_user *quota_user(struct quota *quota, uid_t uid, uint64_t now_ns)
{
	uint32_t hash = (uint32_t)uid * 2654435761u >> 16;
	struct quota_user *idle = NULL;

	if (uid == 0)
		return &quota->users[PLACE_ROOT];
	if (uid == QUOTA_NOBODY)
		return &quota->users[PLACE_REST];
	for (uint32_t i = 0; i < PROBES; i++) {
		struct quota_user *user = &quota->users[(hash + i) % QUOTA_USERS];

		if (user->is_used && user->uid == uid)
			return user;
		if (!idle && (!user->is_used || quota_user_is_idle(user, now_ns)))
			idle = user;
	}
	if (!idle)
		return &quota->users[PLACE_REST];
	*idle = (struct quota_user){.is_used = true, .uid = uid};
	return idle;
}

uint64_t quota_take_of(struct quota *quota, uid_t uid, enum quota_kind kind, uint32_t n,
		       uint64_t now_ns)
{
	struct quota_user *user = quota_user(quota, uid, now_ns);

	return quota_take(&user->buckets[kind], &rates[kind], n, now_ns);
}

void quota_charge(struct quota *quota, uid_t uid, enum quota_kind kind, uint32_t n, uint64_t now_ns)
{
	struct quota_user *user = quota_user(quota, uid, now_ns);

	bucket_charge(&user->buckets[kind], &rates[kind], n, now_ns);
}

/* ---- lines ----------------------------------------------------------------- */

bool quota_line(struct quota *quota, uid_t uid, bool is_trusted, uint64_t now_ns)
{
	struct quota_user *user = quota_user(quota, uid, now_ns);

	if (!quota_take(&user->buckets[QUOTA_LINES], &rates[QUOTA_LINES], 1, now_ns) &&
	    (is_trusted || !quota_take(&quota->lines, &lines_of_all, 1, now_ns)))
		return true;
	if (!quota->n_hidden)
		quota->hidden_ns = now_ns;
	quota->n_hidden++;
	user->n_hidden++;
	return false;
}

uint64_t quota_deadline(const struct quota *quota)
{
	return quota->n_hidden ? quota->hidden_ns + REPORT_NS : QUOTA_NEVER;
}

static uid_t quota_uid(uint32_t place, const struct quota_user *user)
{
	if (place == PLACE_ROOT)
		return 0;
	return place == PLACE_REST ? QUOTA_NOBODY : user->uid;
}

uint32_t quota_reports(struct quota *quota, uint64_t now_ns, bool is_last,
		       struct quota_report ret[QUOTA_TOLD + 1])
{
	uint32_t n = 0;

	if (!quota->n_hidden || (!is_last && quota_deadline(quota) > now_ns))
		return 0;
	for (uint32_t i = 0; i <= PLACE_REST; i++) {
		struct quota_user *user = &quota->users[i];
		/*
		 * A crowd of users could fill the log with reports, so the last report sums them
		 * up.
		 */
		struct quota_report *report = &ret[n < QUOTA_TOLD ? n : QUOTA_TOLD];

		if (!user->n_hidden)
			continue;
		if (n <= QUOTA_TOLD) {
			n++;
			*report = (struct quota_report){
				.uid = n <= QUOTA_TOLD ? quota_uid(i, user) : QUOTA_NOBODY,
				.passed_ns = now_ns - quota->hidden_ns,
			};
		}
		report->n_lines += user->n_hidden;
		user->n_hidden = 0;
	}
	quota->n_hidden = 0;
	return n;
}
