/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_USERS_H
#define NVS_DAEMON_USERS_H

/*
 * Connections, clients and descriptors by user, and how many of them a user may have.
 *
 * A user may take another one as long as it has fewer than are free. So a user alone has half of
 * them at the most, two have a third each, and somebody new always finds some. Root and the
 * scheduler's own user are trusted: they have no such bound, and a part is left to them alone.
 * A few connections are kept for those that are turned away, to be told so.
 *
 * Pure but for the allocation of users_init(). A user that has no connection is forgotten.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define USERS_BUCKETS 1024

/* Of one user, that are told at a time that they are turned away. */
#define USERS_REFUSED_MAX 4

struct user {
	uid_t uid;
	uint32_t n_peers;   /* connections, with those that are turned away */
	uint32_t n_refused; /* of these, that are turned away */
	uint32_t n_clients;
	uint32_t n_pidfds;
	uint32_t next; /* in its bucket, or among the free ones: its index and 1 */
};

/* How many there may be at a time, of all users together. */
struct users_limits {
	uint32_t n_peers; /* connections that are admitted */
	uint32_t n_refused;
	uint32_t n_clients;
	uint32_t n_pidfds;
	uint32_t n_trusted; /* of n_peers, for trusted users alone */
};

struct users {
	struct users_limits limits;
	uint32_t n_peers; /* as in struct user, of all */
	uint32_t n_refused;
	uint32_t n_clients;
	uint32_t n_pidfds;
	struct user *at;
	uint32_t n_used;
	uint32_t free;
	uint32_t buckets[USERS_BUCKETS];
};

/* Of n_fds descriptors, and at most n_peers connections of all kinds. */
struct users_limits users_limits(uint64_t n_fds, uint32_t n_peers);

/* users: zeroed. 0 or -ENOMEM. */
int users_init(struct users *users, const struct users_limits *limits);
void users_deinit(struct users *users);

bool users_is_trusted(uid_t uid);

/* uid has one more connection, admitted or turned away; NULL: there is no room for it. */
struct user *users_admit(struct users *users, uid_t uid);
struct user *users_refuse(struct users *users, uid_t uid);
/* That one has ended. user may be gone with it. */
void users_leave(struct users *users, struct user *user, bool is_refused);

/* A client, or the pidfd of one, more or less. False: it has no room for more. */
bool users_add_client(struct users *users, struct user *user);
void users_remove_client(struct users *users, struct user *user);
bool users_add_pidfd(struct users *users, struct user *user);
void users_remove_pidfd(struct users *users, struct user *user);

#endif
