/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gpu/votes.h"

#include <stddef.h>

static const struct vote *votes_find(const struct votes *votes, uid_t uid)
{
	for (uint32_t i = 0; i < votes->n; i++) {
		if (votes->at[i].uid == uid)
			return &votes->at[i];
	}
	return NULL;
}

/* The vote of uid; a new one, if uid had none. NULL: there is no place, or uid says nothing. */
static struct vote *votes_enter(struct votes *votes, uid_t uid, uint64_t value)
{
	const struct vote *vote = votes_find(votes, uid);

	if (vote)
		return &votes->at[vote - votes->at];
	if (value == 0 || votes->n == VOTES_MAX)
		return NULL;
	votes->at[votes->n] = (struct vote){uid, value};
	return &votes->at[votes->n++];
}

void votes_most(struct votes *votes, uid_t uid, uint64_t value)
{
	struct vote *vote = votes_enter(votes, uid, value);

	if (vote && value > vote->value)
		vote->value = value;
}

void votes_least(struct votes *votes, uid_t uid, uint64_t value)
{
	struct vote *vote = votes_enter(votes, uid, value);

	if (vote && value && value < vote->value)
		vote->value = value;
}

uint64_t votes_of(const struct votes *votes, uid_t uid)
{
	const struct vote *vote = votes_find(votes, uid);

	return vote ? vote->value : 0;
}

uint64_t votes_majority(const struct votes *votes)
{
	uint64_t value = 0;
	uint32_t n_most = 0;

	for (uint32_t i = 0; i < votes->n; i++) {
		uint32_t n = 0;

		for (uint32_t j = 0; j < votes->n; j++)
			n += votes->at[j].value == votes->at[i].value;
		if (n > n_most || (n == n_most && votes->at[i].value > value)) {
			n_most = n;
			value = votes->at[i].value;
		}
	}
	return value;
}

uint64_t votes_median(const struct votes *votes)
{
	for (uint32_t i = 0; i < votes->n; i++) {
		uint32_t n_less = 0, n_more = 0;

		for (uint32_t j = 0; j < votes->n; j++) {
			n_less += votes->at[j].value < votes->at[i].value;
			n_more += votes->at[j].value > votes->at[i].value;
		}
		if (2 * n_less < votes->n && 2 * n_more <= votes->n)
			return votes->at[i].value;
	}
	return 0;
}
