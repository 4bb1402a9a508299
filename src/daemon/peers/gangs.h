/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_GANGS_H
#define NVS_DAEMON_GANGS_H

/*
 * Gangs by name. A gang is clients that run on all of their GPUs together, or on none: the core
 * decides that, and knows a gang by its place here.
 *
 * The user, the pod and the name tell a gang from others. So no user can join another user's gang
 * or hold it up. Pods of one namespace are apart, too. A gang without a name is one process.
 *
 * A gang of one member that waits for no others is none for people: it has no number and no line
 * in the log.
 *
 * Each client is in one gang at most, so there is always a free place for another one. Finding a
 * gang takes the same time whatever names strangers choose: the hash has a secret key.
 *
 * Ownership: gangs_init() allocates. Threading: the loop's.
 */

#include "core/sched.h"
#include "daemon/peers/pod_cgroup.h"
#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stdint.h>

struct server;
struct peer;

#define GANGS_BUCKETS 16384

/* Bytes that are not used are zero, because keys are compared and hashed as bytes. */
struct gang_key {
	uint64_t ticks; /* of a gang without a name: when its process started */
	uint32_t pid;   /* of a gang without a name; else 0 */
	uint32_t alone; /* ID of its only client, whose process is not known; else 0 */
	uint32_t owner; /* pod::owner */
	uint32_t uid;
	char pod[POD_UID_LEN]; /* "": in none */
	char name[NVSHARE_GANG_LEN + 3];
};
_Static_assert(sizeof(struct gang_key) == 192, "no padding");

struct gang {
	struct gang_key key;
	uint32_t n_members; /* 0: the place is free */
	uint32_t size;      /* as told last */
	uint32_t number;    /* for people, from 1 on; 0: it has had no need of one */
	uint32_t next;      /* in its bucket, or among the free ones: its place and 1 */
	uint64_t n_asked;   /* snapshot::n_asked when status was made; 0: it was not */
	struct sched_gang_status status;
	char name[NVSHARE_GANG_LEN]; /* as people see it */
};

struct gangs {
	struct gang *at;
	uint32_t n_places;
	uint32_t n_used; /* places that have been used */
	uint32_t free;
	uint32_t last_number;
	uint32_t n_shown, n_shown_members; /* gangs for people */
	uint64_t point;                    /* the secret of the hash */
	uint32_t buckets[GANGS_BUCKETS];
};

/* gangs: zeroed. n: of clients at most, and one more. 0 or -ENOMEM. */
int gangs_init(struct gangs *gangs, uint32_t n);
void gangs_deinit(struct gangs *gangs);

/* The gang of key, which may be made now, has one more member. Returns its place. */
uint32_t gangs_add(struct gangs *gangs, const struct gang_key *key, uint32_t size);
/* The gang of place has one member less. It ends with the last one. */
void gangs_remove(struct gangs *gangs, uint32_t place);
void gangs_resize(struct gangs *gangs, uint32_t place, uint32_t size);

/* Whether it is a gang for people. */
bool gangs_is_shown(const struct gang *gang);

/*
 * GANG from a client: its gang is this one from now on. A gang of jobs waits for those only that
 * have not ended.
 */
void gangs_take(struct server *server, struct peer *peer, const struct nvshare_gang *body);
/* Jobs of peer's gang have ended, perhaps. */
void gangs_look(struct server *server, struct peer *peer);
/* peer ends; the core has heard of it. */
void gangs_forget(struct server *server, struct peer *peer);

/*
 * Fills in what a status tells of a client's gang. ticket: of the request
 * (daemon/tools/snapshot.h). false: the client is in none.
 */
bool gangs_fill(struct server *server, const struct peer *peer, uint64_t ticket,
		struct nvshare_status_gang *ret);

#endif
