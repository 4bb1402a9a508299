/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/users.h"

#include "daemon/http/http_address.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/*
 * Descriptors beyond sockets and pidfds: epoll, timer, log, and the driver's own; HTTP's, which
 * strangers may all open.
 */
#define FDS_OTHER (64 + HTTP_FDS_MAX)

/* The divisors of parts of all connections, and the most that the parts come to. */
#define REFUSED_PART 16
#define REFUSED_MAX  64
#define TRUSTED_PART 8
#define TRUSTED_MAX  512
#define JOBS_PART    4
#define TOOLS_PART   8
#define TOOLS_MAX    128

/* Connections that a user's clients leave to its tools. */
#define TOOLS_A_USER 8

static uint32_t users_part(uint32_t n, uint32_t divisor, uint32_t max)
{
	uint32_t value = n / divisor;

	return value > max ? max : value ? value : 1;
}

struct users_limits users_limits(uint64_t n_fds, uint32_t n_peers)
{
	struct users_limits limits;
	uint64_t n = n_fds > (uint64_t)2 * FDS_OTHER ? n_fds - FDS_OTHER : n_fds / 2;
	uint64_t n_pidfds;

	limits.n_jobs = users_part((uint32_t)(n < UINT32_MAX ? n : UINT32_MAX), JOBS_PART, n_peers);
	n -= limits.n_jobs < n ? limits.n_jobs : n;
	n_pidfds = n > n_peers ? n - n_peers : 0;

	/* A pidfd is worth less than a connection: without one the socket tells of the end. */
	if (n_pidfds < n / 4)
		n_pidfds = n / 4;
	limits.n_pidfds = n_pidfds < n_peers ? (uint32_t)n_pidfds : n_peers;
	if (n - limits.n_pidfds < n_peers)
		n_peers = (uint32_t)(n - limits.n_pidfds);
	limits.n_refused = users_part(n_peers, REFUSED_PART, REFUSED_MAX);
	limits.n_peers = n_peers > limits.n_refused ? n_peers - limits.n_refused : 1;
	limits.n_trusted = users_part(limits.n_peers, TRUSTED_PART, TRUSTED_MAX);
	limits.n_clients = limits.n_peers - users_part(limits.n_peers, TOOLS_PART, TOOLS_MAX);
	return limits;
}

int users_init(struct users *users, const struct users_limits *limits)
{
	users->limits = *limits;
	users->at = calloc((size_t)limits->n_peers + limits->n_refused + limits->n_jobs,
			   sizeof(*users->at));
	return users->at ? 0 : -ENOMEM;
}

void users_deinit(struct users *users)
{
	free(users->at);
	users->at = NULL;
}

bool users_is_trusted(uid_t uid)
{
	return uid == 0 || uid == geteuid();
}

static uint32_t *users_bucket(struct users *users, uid_t uid)
{
	return &users->buckets[(uid * 2654435761u) >> 22];
}

static struct user *users_find(struct users *users, uid_t uid)
{
	for (uint32_t i = *users_bucket(users, uid); i; i = users->at[i - 1].next) {
		if (users->at[i - 1].uid == uid)
			return &users->at[i - 1];
	}
	return NULL;
}

/* There are as many places as connections and jobs, so one is free. */
static struct user *users_find_or_make(struct users *users, uid_t uid)
{
	struct user *user = users_find(users, uid);
	uint32_t *bucket = users_bucket(users, uid);
	uint32_t i;

	if (user)
		return user;
	i = users->free;
	if (i)
		users->free = users->at[i - 1].next;
	else
		i = ++users->n_used;
	user = &users->at[i - 1];
	*user = (struct user){.uid = uid, .next = *bucket};
	*bucket = i;
	return user;
}

static void users_forget(struct users *users, struct user *user)
{
	uint32_t i = (uint32_t)(user - users->at) + 1;
	uint32_t *link = users_bucket(users, user->uid);

	while (*link != i)
		link = &users->at[*link - 1].next;
	*link = user->next;
	user->next = users->free;
	users->free = i;
}

/* How many connections all users that are not trusted may still take together. */
static uint32_t users_room(const struct users *users)
{
	uint32_t n_max = users->limits.n_peers - users->limits.n_trusted;
	uint32_t n = users->n_peers - users->n_refused;

	return n < n_max ? n_max - n : 0;
}

struct user *users_admit(struct users *users, uid_t uid)
{
	struct user *user = users_find(users, uid);
	uint32_t n = user ? user->n_peers - user->n_refused : 0;

	if (users->n_peers - users->n_refused >= users->limits.n_peers)
		return NULL;
	if (!users_is_trusted(uid) && n >= users_room(users))
		return NULL;
	user = users_find_or_make(users, uid);
	user->n_peers++;
	users->n_peers++;
	return user;
}

struct user *users_refuse(struct users *users, uid_t uid)
{
	struct user *user = users_find(users, uid);

	if (users->n_refused >= users->limits.n_refused ||
	    (user && user->n_refused >= USERS_REFUSED_MAX))
		return NULL;
	user = users_find_or_make(users, uid);
	user->n_peers++;
	user->n_refused++;
	users->n_peers++;
	users->n_refused++;
	return user;
}

void users_leave(struct users *users, struct user *user, bool is_refused)
{
	user->n_refused -= is_refused;
	users->n_refused -= is_refused;
	users->n_peers--;
	if (--user->n_peers == 0 && user->n_jobs == 0)
		users_forget(users, user);
}

struct user *users_add_job(struct users *users, uid_t uid)
{
	struct user *user = users_find(users, uid);
	uint32_t n_free = users->limits.n_jobs - users->n_jobs;

	if (!n_free || (!users_is_trusted(uid) && user && user->n_jobs >= n_free))
		return NULL;
	user = users_find_or_make(users, uid);
	user->n_jobs++;
	users->n_jobs++;
	return user;
}

void users_remove_job(struct users *users, struct user *user)
{
	users->n_jobs--;
	if (--user->n_jobs == 0 && user->n_peers == 0)
		users_forget(users, user);
}

bool users_add_client(struct users *users, struct user *user)
{
	if (users->n_clients >= users->limits.n_clients)
		return false;
	/* Counted twice: a connection of a tool is also missing in the room. */
	if (!users_is_trusted(user->uid) && users->limits.n_peers > 16 * TOOLS_A_USER &&
	    user->n_clients + 2 * TOOLS_A_USER >= users_room(users))
		return false;
	user->n_clients++;
	users->n_clients++;
	return true;
}

void users_remove_client(struct users *users, struct user *user)
{
	user->n_clients--;
	users->n_clients--;
}

bool users_add_pidfd(struct users *users, struct user *user)
{
	uint32_t n_free = users->limits.n_pidfds - users->n_pidfds;

	if (!n_free || (!users_is_trusted(user->uid) && user->n_pidfds >= n_free))
		return false;
	user->n_pidfds++;
	users->n_pidfds++;
	return true;
}

void users_remove_pidfd(struct users *users, struct user *user)
{
	user->n_pidfds--;
	users->n_pidfds--;
}
