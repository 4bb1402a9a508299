/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/gangs.h"

#include "daemon/dispatch.h"
#include "daemon/jobs/job_process.h"
#include "daemon/server.h"
#include "util/fd.h"
#include "util/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* A process without a name is looked for in /proc, which takes as long as so many messages. */
#define PROCESS_COST 2

/* ---- the table -------------------------------------------------------------- */

#define PRIME ((1ull << 61) - 1)

/*
 * The words of key are factors of a polynomial, whose value at a secret point is the hash. So two
 * keys that were chosen without knowing the point rarely meet in a bucket.
 */
static uint32_t *gangs_bucket(struct gangs *gangs, const struct gang_key *key)
{
	uint32_t words[sizeof(*key) / sizeof(uint32_t)];
	uint64_t sum = 0;

	memcpy(words, key, sizeof(words));
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		unsigned __int128 product = (unsigned __int128)sum * gangs->point + words[i];

		sum = (uint64_t)(product & PRIME) + (uint64_t)(product >> 61);
		sum = sum >= PRIME ? sum - PRIME : sum;
	}
	return &gangs->buckets[sum % GANGS_BUCKETS];
}

int gangs_init(struct gangs *gangs, uint32_t n)
{
	gangs->at = calloc(n, sizeof(*gangs->at));
	gangs->n_places = n;
	/* Early in a machine's start the kernel has no random bytes, and would wait. */
	if (getrandom(&gangs->point, sizeof(gangs->point), GRND_NONBLOCK) !=
	    (ssize_t)sizeof(gangs->point))
		gangs->point = (uint64_t)(uintptr_t)gangs->at * 0x9e3779b97f4a7c15ull;
	gangs->point %= PRIME;
	return gangs->at ? 0 : -ENOMEM;
}

void gangs_deinit(struct gangs *gangs)
{
	free(gangs->at);
	gangs->at = NULL;
}

bool gangs_is_shown(const struct gang *gang)
{
	return gang->n_members > 1 || (gang->n_members && gang->size > 1);
}

/* The gang gets these values. Sums follow, and it gets a number when people first see it. */
static void gangs_change(struct gangs *gangs, struct gang *gang, uint32_t n_members, uint32_t size)
{
	if (gangs_is_shown(gang)) {
		gangs->n_shown--;
		gangs->n_shown_members -= gang->n_members;
	}
	gang->n_members = n_members;
	gang->size = size;
	gang->n_asked = 0;
	if (!gangs_is_shown(gang))
		return;
	gangs->n_shown++;
	gangs->n_shown_members += n_members;
	if (!gang->number)
		gang->number = ++gangs->last_number;
}

static struct gang *gangs_make(struct gangs *gangs, const struct gang_key *key, uint32_t *bucket)
{
	uint32_t i = gangs->free;
	struct gang *gang;

	if (i)
		gangs->free = gangs->at[i - 1].next;
	else
		i = ++gangs->n_used;
	gang = &gangs->at[i - 1];
	*gang = (struct gang){.key = *key, .next = *bucket};
	memcpy(gang->name, key->name, sizeof(gang->name));
	text_sanitize(gang->name);
	*bucket = i;
	return gang;
}

uint32_t gangs_add(struct gangs *gangs, const struct gang_key *key, uint32_t size)
{
	uint32_t *bucket = gangs_bucket(gangs, key), i = *bucket;
	struct gang *gang;

	while (i && memcmp(&gangs->at[i - 1].key, key, sizeof(*key)) != 0)
		i = gangs->at[i - 1].next;
	gang = i ? &gangs->at[i - 1] : gangs_make(gangs, key, bucket);
	gangs_change(gangs, gang, gang->n_members + 1, size);
	return (uint32_t)(gang - gangs->at);
}

void gangs_remove(struct gangs *gangs, uint32_t place)
{
	struct gang *gang = &gangs->at[place];
	uint32_t *link;

	gangs_change(gangs, gang, gang->n_members - 1, gang->size);
	if (gang->n_members)
		return;
	link = gangs_bucket(gangs, &gang->key);
	while (*link != place + 1)
		link = &gangs->at[*link - 1].next;
	*link = gang->next;
	gang->next = gangs->free;
	gangs->free = place + 1;
}

void gangs_resize(struct gangs *gangs, uint32_t place, uint32_t size)
{
	gangs_change(gangs, &gangs->at[place], gangs->at[place].n_members, size);
}

/* ---- messages --------------------------------------------------------------- */

static void gangs_key_process(struct server *server, struct peer *peer, struct gang_key *key)
{
	struct job_process process;
	int pidfd = job_process_of(peer, &process);

	flow_charge(server, peer, PROCESS_COST);
	if (pidfd < 0) {
		/* It has ended, or is of a pid namespace that is not seen from here. */
		key->alone = peer->id;
		return;
	}
	(void)fd_close(pidfd);
	key->pid = (uint32_t)process.pid;
	key->ticks = process.ticks;
}

static void gangs_key(struct server *server, struct peer *peer, const char *name,
		      struct gang_key *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->owner = peer->pod.owner;
	ret->uid = peer->cred.uid;
	memcpy(ret->pod, peer->pod.group.uid, strlen(peer->pod.group.uid));
	/* Bytes behind the end of the name may be anything. */
	memcpy(ret->name, name, strlen(name));
	if (!*name)
		gangs_key_process(server, peer, ret);
}

static void gangs_log(struct server *server, const struct peer *peer, const char *what)
{
	const struct gang *gang = &server->gangs.at[peer->gang - 1];

	server_log(server, peer->pod.owner, LOG_LEVEL_INFO,
		   "%s gang=%u client=%u gpu=%u members=%u size=%u name=%s", what, gang->number,
		   peer->id, peer->gpu, gang->n_members, gang->size, TEXT_QUOTED(gang->name));
}

/* peer is no member any more. */
static void gangs_leave(struct server *server, const struct peer *peer, uint32_t place)
{
	struct gang *gang = &server->gangs.at[place];
	uint32_t number = gang->number;

	gangs_remove(&server->gangs, place);
	if (number && !gang->n_members)
		server_log(server, peer->pod.owner, LOG_LEVEL_INFO, "gang-end gang=%u", number);
}

_Static_assert(NVSHARE_GANG_MEMBERS_MAX == SCHED_GANG_MAX, "users are told how many there may be");

/* The gang has as many members as the core takes. The client is in none, here and in the core. */
static void gangs_refuse(struct server *server, struct peer *peer)
{
	struct sched_event event = {
		.type = SCHED_EVENT_GANG,
		.client = peer->slot,
		.gang = SCHED_NONE,
	};

	(void)dispatch_event(server, &event);
	gangs_forget(server, peer);
	server_log(server, peer->pod.owner, LOG_LEVEL_WARN,
		   "gang-full client=%u gpu=%u members=%u: it takes its own turns", peer->id,
		   peer->gpu, SCHED_GANG_MAX);
}

/*
 * A member whose job has ended does not come any more. Where a gang has other programs than one for
 * each job, its size says so.
 */
static uint32_t gangs_size(const struct server *server, const struct peer *peer,
			   const struct nvshare_gang *body)
{
	const struct job_entry *entry = peer->program_of;
	uint32_t size = body->size, n;

	if (!entry || entry->gang.size != size || strcmp(entry->gang.name, body->name) != 0)
		return size;
	n = jobs_gang_together(&server->jobs.core, job_queue_slot(server, entry));
	return n < size ? n : size;
}

void gangs_look(struct server *server, struct peer *peer)
{
	struct nvshare_gang body = {.size = peer->gang_claim};

	if (!peer->gang)
		return;
	memcpy(body.name, server->gangs.at[peer->gang - 1].key.name, sizeof(body.name));
	if (*body.name)
		gangs_take(server, peer, &body);
}

void gangs_take(struct server *server, struct peer *peer, const struct nvshare_gang *body)
{
	uint32_t size = gangs_size(server, peer, body);
	struct sched_event event = {
		.type = SCHED_EVENT_GANG,
		.client = peer->slot,
		.gang_size = size,
	};
	struct gangs *gangs = &server->gangs;
	uint32_t before = peer->gang, last_number = gangs->last_number;
	struct gang_key key;
	const char *what;
	bool is_same;
	int r;

	peer->gang_claim = body->size;
	gangs_key(server, peer, body->name, &key);
	is_same = before && !memcmp(&gangs->at[before - 1].key, &key, sizeof(key));
	if (is_same && gangs->at[before - 1].size == size)
		return;
	if (is_same)
		gangs_resize(gangs, before - 1, size);
	else
		peer->gang = gangs_add(gangs, &key, size) + 1;
	what = is_same ? "gang-size" : "gang-grow";
	if (gangs->last_number != last_number)
		what = "gang-begin";
	event.gang = peer->gang - 1;
	r = dispatch_event(server, &event);
	tickets_client_changed(server, peer);
	if (before && !is_same)
		gangs_leave(server, peer, before - 1);
	if (r == SCHED_E_CONFIG) {
		gangs_refuse(server, peer);
		return;
	}
	if (gangs_is_shown(&gangs->at[event.gang]))
		gangs_log(server, peer, what);
}

void gangs_forget(struct server *server, struct peer *peer)
{
	if (peer->gang)
		gangs_leave(server, peer, peer->gang - 1);
	peer->gang = 0;
	tickets_client_changed(server, peer);
}

bool gangs_fill(struct server *server, const struct peer *peer, uint64_t ticket,
		struct nvshare_status_gang *ret)
{
	struct gang *gang = peer->gang ? &server->gangs.at[peer->gang - 1] : NULL;
	struct sched_client_status client;

	if (!gang || !gangs_is_shown(gang))
		return false;
	/* The core walks over all members, so it is asked once for all of them. */
	if (gang->n_asked < ticket) {
		sched_gang_status(&server->sched, peer->gang - 1, &gang->status);
		gang->n_asked = server->tools.snapshot.n_asked;
	}
	sched_client_status(&server->sched, peer->slot, server->now_ns, &client);
	*ret = (struct nvshare_status_gang){
		.client = peer->id,
		.gang = gang->number,
		.size = gang->size,
		.n_members = gang->n_members,
		.waits_gpu = UINT32_MAX,
		.flags = gang->status.is_apart ? NVSHARE_GANG_APART : 0,
	};
	if (client.why == SCHED_WAIT_GANG && client.gang_gpu == SCHED_NONE)
		ret->flags |= NVSHARE_GANG_LACKING;
	else if (client.why == SCHED_WAIT_GANG)
		ret->waits_gpu = client.gang_gpu;
	memcpy(ret->name, gang->name, sizeof(ret->name));
	return true;
}
