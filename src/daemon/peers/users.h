/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_USERS_H
#define NVS_DAEMON_USERS_H

/*
 * Connections, clients, jobs and descriptors by user, and how many of them a user may have. A user
 * is a uid, or the number of a pod's namespace (daemon/peers/pods.h).
 *
 * A user may take another one as long as it has fewer than are free. So one user alone has at
 * most half of them, two have a third each, and a new user always finds some. Root and the
 * scheduler's own user are trusted: they have no such bound, and some connections are theirs
 * alone. A few connections are kept for peers that are turned away, so that they can be told.
 *
 * Pure but for the allocation of users_init(). A user without connections and jobs is
 * forgotten.
 * Threading: none.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define USERS_BUCKETS 1024

/* Connections of one user that wait at a time to be told that they are turned away. */
#define USERS_REFUSED_MAX 4

struct user {
	uid_t uid;
	uint32_t n_peers;   /* connections, also those that are turned away */
	uint32_t n_refused; /* of these, those that are turned away */
	uint32_t n_clients;
	uint32_t n_pidfds;
	uint32_t n_jobs; /* each has a descriptor of its process, which is not in n_pidfds */
	uint32_t next;   /* in its bucket, or among the free ones: its index and 1 */
};

/* The most at a time, of all users together. */
struct users_limits {
	uint32_t n_peers; /* connections that are admitted */
	uint32_t n_refused;
	uint32_t n_clients;
	uint32_t n_pidfds;
	uint32_t n_jobs;
	uint32_t n_trusted; /* of n_peers, for trusted users alone */
};

struct users {
	struct users_limits limits;
	uint32_t n_peers; /* as in struct user, of all */
	uint32_t n_refused;
	uint32_t n_clients;
	uint32_t n_pidfds;
	uint32_t n_jobs;
	struct user *at;
	uint32_t n_used;
	uint32_t free;
	uint32_t buckets[USERS_BUCKETS];
};

/* The limits that follow from n_fds descriptors, and at most n_peers connections of all kinds. */
struct users_limits users_limits(uint64_t n_fds, uint32_t n_peers);

/* users: zeroed. 0 or -ENOMEM. */
int users_init(struct users *users, const struct users_limits *limits);
void users_deinit(struct users *users);

bool users_is_trusted(uid_t uid);

/* uid has one more connection: admitted, or turned away. NULL: there is no room for it. */
struct user *users_admit(struct users *users, uid_t uid);
struct user *users_refuse(struct users *users, uid_t uid);
/* A connection of user has ended. user may be gone with it. */
void users_leave(struct users *users, struct user *user, bool is_refused);

/* user has one more client, or pidfd, or one less. false: there is no room for it. */
bool users_add_client(struct users *users, struct user *user);
void users_remove_client(struct users *users, struct user *user);
/* uid has one more job. NULL: there is no room for it. user may be gone with its last job. */
struct user *users_add_job(struct users *users, uid_t uid);
void users_remove_job(struct users *users, struct user *user);
bool users_add_pidfd(struct users *users, struct user *user);
void users_remove_pidfd(struct users *users, struct user *user);

#endif
