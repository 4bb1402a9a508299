/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pool/lending.h"

#include "core/u64.h"
#include "daemon/peers/process.h"
#include "daemon/pool/slab_kind.h"
#include "daemon/server.h"
#include "util/clock.h"
#include "util/container_of.h"
#include "util/fd.h"
#include "util/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define SLAB_BYTES     (256ull << 20)
#define SLAB_BYTES_MIN (2ull << 20)
#define SMALL_CARD     (16ull << 30)
#define SMALL_PART     64

/*
 * Bytes; the kernel doubles the value. An answer to the largest WANT has 34 packets of some 1300
 * bytes, so it fits, and a client that does not read keeps few descriptors on the way.
 */
#define SEND_BUFFER 32768

/* A borrower that sends faster waits: each packet may cost a look into /proc. */
static const struct quota_rate packet_rate = {CLOCK_NS_PER_SEC / 500, 500};

/* A lack is forgotten, unless the slabs are wanted again within this time. */
#define LACK_NS (2 * CLOCK_NS_PER_SEC)

static uint32_t lending_index(const struct lending *lending, const struct lending_link *link)
{
	return (uint32_t)(link - lending->links);
}

/* ---- domains ------------------------------------------------------------------- */

/* A place that no slab and no borrower names any more. LENDING_DOMAINS: there is none. */
static uint32_t lending_free_domain(struct lending *lending)
{
	for (uint32_t i = 0; i < LENDING_DOMAINS; i++) {
		if (lending->is_domain[i] && !pool_has_domain(lending->pool, i))
			lending->is_domain[i] = false;
	}
	for (uint32_t i = 0; i < LENDING_DOMAINS; i++) {
		if (!lending->is_domain[i])
			return i;
	}
	return LENDING_DOMAINS;
}

/* Read each time, because a process may have dropped privileges meanwhile. */
static uint32_t lending_read_domain(struct lending *lending, const struct lending_link *link)
{
	const struct domain_process process = {link->pid, link->pidfd, link->uid};
	struct domain domain;
	uint32_t at;

	if (!domain_read("/proc", &process, &domain))
		return POOL_NONE;
	for (at = 0; at < LENDING_DOMAINS; at++) {
		if (lending->is_domain[at] && domain_is_same(&lending->domains[at], &domain))
			return at;
	}
	at = lending_free_domain(lending);
	if (at == LENDING_DOMAINS)
		return POOL_NONE;
	lending->domains[at] = domain;
	lending->is_domain[at] = true;
	return at;
}

static void lending_note_domain(struct lending *lending, const struct lending_link *link)
{
	pool_domain(lending->pool, lending_index(lending, link),
		    lending_read_domain(lending, link));
}

/* ---- room ------------------------------------------------------------------------ */

static uint64_t lending_lent_in(const void *owner, const char *group)
{
	const struct lending *lending = owner;
	uint64_t n = 0;

	for (uint32_t i = 0; i < POOL_BORROWERS_MAX; i++) {
		const struct pool_borrower *b = &lending->pool->borrowers[i];

		if (lending->links[i].is_used && slab_room_is_in(lending->links[i].group, group))
			n += b->n_lent + b->n_promised;
	}
	return n * lending->slab_bytes;
}

/* Slabs that there may be in all, by the setting; UINT64_MAX: it sets no limit. */
static uint64_t lending_limit(const struct server *server)
{
	uint64_t limit = slab_room_limit("", &server->settings.host_limit);

	if (limit == UINT64_MAX)
		return UINT64_MAX;
	return (limit - u64_min(limit, server->host.bytes)) / server->lending.slab_bytes;
}

/* Promised slabs are not made yet, so the machine's free memory still contains them. */
static void lending_find_room(struct server *server, struct lending_link *link,
			      struct pool_room *ret)
{
	const struct lending *lending = &server->lending;
	uint64_t n_limit = lending_limit(server), n_taken = pool_total(lending->pool), own;

	if (n_limit == UINT64_MAX) {
		n_limit = slab_room_available("") / lending->slab_bytes;
		n_taken = lending->pool->n_promised;
	}
	ret->n_more = (uint32_t)u64_min(n_limit - u64_min(n_limit, n_taken), POOL_SLABS_MAX);
	own = UINT64_MAX;
	if (slab_room_group("", link->pid, link->group))
		own = slab_room_own("", link->group, lending_lent_in, lending);
	ret->n_own = (uint32_t)u64_min(own / lending->slab_bytes, POOL_SLABS_MAX);
}

/* ---- what a borrower is told ---------------------------------------------------- */

/* false: the pair is over. */
static bool lending_send(struct server *server, struct lending_link *link,
			 const struct slab_packet *packet, const int *fds, uint32_t n)
{
	int r = link->pair.fd < 0 ? -EPIPE : slab_packet_send(link->pair.fd, packet, fds, n);

	if (r)
		lending_cut(server, link, r == -EPIPE ? NULL : "it does not read");
	return !r;
}

static void lending_send_number(struct server *server, struct lending_link *link,
				enum slab_type type, uint32_t n, uint32_t node)
{
	struct slab_packet packet;

	slab_packet_init(&packet, type, n, node);
	(void)lending_send(server, link, &packet, NULL, 0);
}

static void lending_send_slabs(struct server *server, struct lending_link *link, uint32_t node,
			       const struct pool_answer *answer)
{
	const struct lending *lending = &server->lending;
	struct slab_packet packet;
	int fds[SLAB_IDS_MAX];
	uint32_t n;

	for (uint32_t at = 0; at < answer->n_lent; at += n) {
		n = (uint32_t)u64_min(answer->n_lent - at, SLAB_IDS_MAX);
		slab_packet_init(&packet, SLAB_LENT, n, node);
		for (uint32_t i = 0; i < n; i++) {
			packet.ids[i] = lending->pool->ids[answer->slabs[at + i]];
			fds[i] = lending->fds[answer->slabs[at + i]];
		}
		if (!lending_send(server, link, &packet, fds, n))
			return;
	}
}

void lending_settle(struct server *server)
{
	struct lending *lending = &server->lending;
	uint32_t at, n;

	while ((at = pool_ask(lending->pool, &n)) != POOL_NONE)
		lending_send_number(server, &lending->links[at], SLAB_WANTED, n, 0);
	while ((at = pool_leaving(lending->pool)) != POOL_NONE) {
		lending_reap_slab(server, lending->fds[at]);
		lending->fds[at] = -1;
	}
	lending_watch(server);
	if (lending_bytes(server) != lending->told_bytes) {
		lending->told_bytes = lending_bytes(server);
		server->host.is_news = true;
	}
}

/* ---- what a borrower says --------------------------------------------------------- */

static void lending_on_want(struct server *server, struct lending_link *link,
			    const struct slab_packet *packet)
{
	struct lending *lending = &server->lending;
	struct pool_answer answer;
	struct pool_room room;

	lending_note_domain(lending, link);
	lending_find_room(server, link, &room);
	pool_want(lending->pool, lending_index(lending, link), packet->n, packet->node, &room,
		  &answer);
	log_debug("slabs-want client=%u n=%u lent=%u make=%u none=%u", link->client, packet->n,
		  answer.n_lent, answer.n_make, answer.n_none);
	lending_send_slabs(server, link, packet->node, &answer);
	if (answer.n_make)
		lending_send_number(server, link, SLAB_MAY_MAKE, answer.n_make, packet->node);
	if (answer.n_none) {
		lending_send_number(server, link, SLAB_NONE, answer.n_none, packet->node);
		deadline_set(&server->deadlines, &lending->lack, server->now_ns + LACK_NS);
	}
}

/* Takes the descriptors of pass. */
static void lending_on_offer(struct server *server, struct lending_link *link,
			     const struct slab_packet *packet, struct pass_many *pass)
{
	struct lending *lending = &server->lending;

	lending_note_domain(lending, link);
	for (uint32_t i = 0; i < packet->n; i++) {
		uint32_t slab = pool_offer(lending->pool, lending_index(lending, link),
					   packet->ids[i], packet->node);

		if (slab == POOL_NONE)
			lending_reap_slab(server, pass->fds[i]);
		else
			lending->fds[slab] = pass->fds[i];
	}
	pass->n = 0;
	/* The borrower that the process was before may have nothing left. */
	deadline_set(&server->deadlines, &lending->ends, server->now_ns);
}

static void lending_on_return(struct server *server, struct lending_link *link,
			      const struct slab_packet *packet, bool is_bad)
{
	struct lending *lending = &server->lending;

	lending_note_domain(lending, link);
	for (uint32_t i = 0; i < packet->n; i++)
		pool_return(lending->pool, lending_index(lending, link), packet->ids[i], is_bad);
	if (lending_limit(server) != UINT64_MAX)
		pool_shrink(lending->pool, (uint32_t)u64_min(lending_limit(server), UINT32_MAX));
}

static void lending_on_packet(struct server *server, struct lending_link *link,
			      const struct slab_packet *packet, struct pass_many *pass)
{
	struct pool *pool = server->lending.pool;
	uint32_t index = lending_index(&server->lending, link);

	switch ((enum slab_type)packet->type) {
	case SLAB_WANT:
		lending_on_want(server, link, packet);
		break;
	case SLAB_OFFER:
		lending_on_offer(server, link, packet, pass);
		break;
	case SLAB_RETURN:
	case SLAB_BAD:
		lending_on_return(server, link, packet, packet->type == SLAB_BAD);
		break;
	case SLAB_UNMADE:
		pool_unmade(pool, index, packet->n);
		break;
	case SLAB_UNUSED:
		pool_unused(pool, index,
			    (uint32_t)u64_min(packet->bytes / server->lending.slab_bytes,
					      POOL_SLABS_MAX));
		break;
	case SLAB_LENT:
	case SLAB_MAY_MAKE:
	case SLAB_NONE:
	case SLAB_WANTED:
	case SLAB_TYPE_COUNT_:
		break; /* slab_packet_check() takes none of these from a client */
	}
}

static bool lending_may_read(struct server *server, struct lending_link *link)
{
	if (server->lending.n_strange + PASS_FDS_MAX < POOL_SLABS_MAX)
		return packet_pair_admit(server, &link->pair, &packet_rate, link->owner);
	packet_pair_pause(server, &link->pair);
	return false;
}

/* One packet a turn, so that others are heard in between. */
static void lending_on_input(void *context, struct event_source *source, uint32_t events)
{
	struct server *server = context;
	struct lending_link *link = container_of(source, struct lending_link, pair.input);
	struct slab_packet packet;
	struct pass_many pass;
	bool is_good;
	int r;

	/* A paused borrower that has hung up is not waited for. */
	if (link->pair.is_paused && events & (EPOLLHUP | EPOLLERR)) {
		lending_cut(server, link, NULL);
		lending_settle(server);
		return;
	}
	if (!lending_may_read(server, link))
		return;
	r = slab_packet_recv(link->pair.fd, SLAB_FROM_CLIENT, &packet, &pass);
	is_good = !r;
	for (size_t i = 0; is_good && i < pass.n; i++)
		is_good = slab_kind_is_memory(pass.fds[i]);
	if (is_good)
		lending_on_packet(server, link, &packet, &pass);
	for (size_t i = 0; i < pass.n; i++)
		lending_reap_strange(server, pass.fds[i]);
	if (!is_good && r != -EAGAIN)
		lending_cut(server, link,
			    r == -EBADMSG || !r ? "a wrong packet about slabs" : NULL);
	lending_settle(server);
}

/* ---- a new borrower ---------------------------------------------------------------- */

/* A size for all cards of the node, so that all programs have slabs of one size. */
static uint64_t lending_size(const struct server *server)
{
	uint64_t largest = 0, size;

	for (uint32_t i = 0; i < server->gpus.n; i++)
		largest = server->gpus.at[i].total > largest ? server->gpus.at[i].total : largest;
	if (largest >= SMALL_CARD)
		return SLAB_BYTES;
	size = largest / SMALL_PART / SLAB_BYTES_MIN * SLAB_BYTES_MIN;
	return size ? size : SLAB_BYTES_MIN;
}

/* The number of the process among all that have been borrowers; another connection may be its. */
static uint64_t lending_process(struct lending *lending, pid_t pid)
{
	for (uint32_t i = 0; i < POOL_BORROWERS_MAX; i++) {
		const struct lending_link *link = &lending->links[i];

		if (link->is_used && link->pid == pid && process_is_alive(link->pidfd))
			return lending->pool->borrowers[i].process;
	}
	return ++lending->last_process;
}

/* false: it did not come about; link is to be cut. */
static bool lending_introduce(struct server *server, struct peer *peer, struct lending_link *link)
{
	const struct nvshare_slabs slabs = {.slab_bytes = server->lending.slab_bytes};
	FD_CLEANUP int theirs = -1;
	struct msg msg;

	link->pidfd = fcntl(peer->pidfd, F_DUPFD_CLOEXEC, 0);
	if (link->pidfd < 0 ||
	    event_source_add(&server->poller, &link->end, link->pidfd, EPOLLIN, lending_on_end) ||
	    packet_pair_open(server, &link->pair, SEND_BUFFER, lending_on_input, &theirs))
		return false;
	(void)msg_encode(NVSHARE_MSG_SLABS, 0, &slabs, &msg);
	return peer_pass(peer, &msg, theirs) == 0;
}

/* Where strangers' descriptors wait to be closed, no more of them are taken. */
static bool lending_is_open_to(const struct server *server, const struct peer *peer)
{
	const struct lending *lending = &server->lending;

	return peer->is_pidfd_sure && peer->cred.pid > 0 &&
	       lending->n_strange < POOL_SLABS_MAX / 2 && lending->n_slabs_reaped < POOL_SLABS_MAX;
}

void lending_borrow(struct server *server, struct peer *peer)
{
	struct lending *lending = &server->lending;
	struct lending_link *link;
	uint32_t at;

	if (peer->has_borrowed) {
		server_close(server, peer, "it asks for slabs twice");
		return;
	}
	peer->has_borrowed = true;
	if (!pool_total(lending->pool) && !lending->pool->n_borrowers)
		lending->slab_bytes = lending_size(server);
	if (!lending_is_open_to(server, peer) ||
	    pool_join(lending->pool, lending_process(lending, peer->cred.pid), peer->pod.owner,
		      users_is_trusted(peer->pod.owner), &at)) {
		log_debug("slabs-refused client=%u gpu=%u", peer->id, peer->gpu);
		return;
	}
	link = &lending->links[at];
	*link = (struct lending_link){
		.pair.fd = -1,
		.pidfd = -1,
		.is_used = true,
		.pid = peer->cred.pid,
		.uid = peer->cred.uid,
		.owner = peer->pod.owner,
		.client = peer->id,
		.peer = peer->slot,
	};
	if (!lending_introduce(server, peer, link))
		lending_cut(server, link, NULL);
	log_debug("slabs client=%u gpu=%u bytes=%llu", peer->id, peer->gpu,
		  (unsigned long long)lending->slab_bytes);
}

/* ---- all of it ------------------------------------------------------------------------ */

static void lending_on_lack(struct server *server, struct deadline *deadline)
{
	(void)deadline;
	pool_forget_lacks(server->lending.pool);
	lending_settle(server);
}

/*
 * Half of the descriptors are for slabs, a quarter for borrowers (two each), and the rest are on
 * the way for a moment.
 */
#define FDS_MAX (2 * POOL_SLABS_MAX)

uint64_t lending_fds(uint64_t n_fds)
{
	return u64_min(n_fds / 16, FDS_MAX);
}

int lending_open(struct server *server)
{
	struct lending *lending = &server->lending;

	lending->lack.on_due = lending_on_lack;
	lending->pool = calloc(1, sizeof(*lending->pool));
	lending->fds = calloc(POOL_SLABS_MAX, sizeof(*lending->fds));
	lending->links = calloc(POOL_BORROWERS_MAX, sizeof(*lending->links));
	lending->domains = calloc(LENDING_DOMAINS, sizeof(*lending->domains));
	if (!lending->pool || !lending->fds || !lending->links || !lending->domains)
		return -ENOMEM;
	pool_init(lending->pool, lending->n_fds / 2, lending->n_fds / 8);
	for (uint32_t i = 0; i < POOL_SLABS_MAX; i++)
		lending->fds[i] = -1;
	return lending_open_ends(server);
}

void lending_close(struct server *server)
{
	reaper_deinit(&server->lending.slabs);
	reaper_deinit(&server->lending.strange);
	free(server->lending.domains);
	free(server->lending.links);
	free(server->lending.fds);
	free(server->lending.pool);
}

uint64_t lending_bytes(const struct server *server)
{
	return pool_total(server->lending.pool) * server->lending.slab_bytes;
}

uint64_t lending_coming_bytes(const struct server *server, uint32_t from, uint32_t to)
{
	const struct lending *lending = &server->lending;
	uint64_t n = lending->pool->n_ready;

	for (uint32_t i = 0; i < POOL_BORROWERS_MAX; i++) {
		const struct pool_borrower *borrower = &lending->pool->borrowers[i];
		uint32_t peer = lending->links[i].peer;

		if (!lending->links[i].is_used || peer == from)
			continue;
		n += peer == to ? borrower->n_lent : borrower->n_unused;
	}
	return n * lending->slab_bytes;
}

void lending_sums(const struct server *server, struct lending_sums *ret)
{
	const struct pool *pool = server->lending.pool;

	*ret = (struct lending_sums){
		.lent = pool->n_lent * server->lending.slab_bytes,
		.ready = pool->n_ready * server->lending.slab_bytes,
		.limit = slab_room_limit("", &server->settings.host_limit),
	};
	for (uint32_t i = 0; i < POOL_BORROWERS_MAX; i++)
		ret->n_borrowers += pool->borrowers[i].n_lent > 0;
}
