/* SPDX-License-Identifier: Apache-2.0 */

/* The ends of borrowers, and of slabs. */

#include "daemon/pool/lending.h"

#include "core/u64.h"
#include "daemon/server.h"
#include "util/clock.h"
#include "util/container_of.h"
#include "util/fd.h"
#include "util/log.h"

#include <errno.h>

/* The driver is asked so often whether it has let go of a process that has ended. */
#define ENDS_NS (20 * CLOCK_NS_PER_MS)

/* Contention is looked for so often while slabs are ready, and they are closed after so many. */
#define LOOK_NS     (5 * CLOCK_NS_PER_SEC)
#define QUIET_LOOKS 6

/* ---- closing ------------------------------------------------------------------ */

/* The last close of a slab takes 35 ms a GiB. */
void lending_reap_slab(struct server *server, int fd)
{
	if (fd < 0)
		return;
	if (server->lending.n_slabs_reaped == 2 * POOL_SLABS_MAX) {
		(void)fd_close(fd); /* of a kind that does not hang */
		return;
	}
	server->lending.n_slabs_reaped++;
	reaper_take(&server->lending.slabs, fd, 0);
}

void lending_reap_strange(struct server *server, int fd)
{
	server->lending.n_strange++;
	reaper_take(&server->lending.strange, fd, 0);
}

static void lending_on_slabs_reaped(void *context, struct event_source *source, uint32_t events)
{
	struct server *server = context;
	uint32_t owner;

	(void)source;
	(void)events;
	while (reaper_done(&server->lending.slabs, &owner))
		server->lending.n_slabs_reaped--;
}

static void lending_on_strange_reaped(void *context, struct event_source *source, uint32_t events)
{
	struct server *server = context;
	uint32_t owner;

	(void)source;
	(void)events;
	while (reaper_done(&server->lending.strange, &owner))
		server->lending.n_strange--;
}

/* ---- borrowers ------------------------------------------------------------------ */

/* Nothing of it is freed before the batch is over: others may hold a pointer to link. */
void lending_cut(struct server *server, struct lending_link *link, const char *reason)
{
	struct lending *lending = &server->lending;
	uint32_t at = (uint32_t)(link - lending->links);
	int fd = packet_pair_cut(server, &link->pair);

	if (fd >= 0)
		lending_reap_strange(server, fd);
	pool_cut(lending->pool, at);
	if (reason)
		server_log(server, link->owner, LOG_LEVEL_WARN,
			   "slabs-end client=%u pid=%d uid=%u: %s", link->client, (int)link->pid,
			   (unsigned int)link->uid, reason);
	deadline_set(&server->deadlines, &lending->ends, server->now_ns);
}

void lending_forget(struct server *server, struct peer *peer)
{
	for (uint32_t i = 0; peer->has_borrowed && i < POOL_BORROWERS_MAX; i++) {
		struct lending_link *link = &server->lending.links[i];

		if (!link->is_used || link->peer != peer->slot)
			continue;
		link->peer = POOL_NONE;
		lending_cut(server, link, NULL);
		lending_settle(server);
	}
}

void lending_on_end(void *context, struct event_source *source, uint32_t events)
{
	struct server *server = context;
	struct lending_link *link = container_of(source, struct lending_link, end);

	(void)events;
	event_source_remove(&link->end);
	link->is_ended = true;
	lending_cut(server, link, NULL);
	lending_settle(server);
}

/* Without NVML, or where it does not tell, nothing says that the driver still has the process. */
static bool lending_driver_has(const struct server *server, pid_t pid)
{
	static struct nvml_process found[OUTSIDERS_FOUND];

	for (uint32_t i = 0; i < server->gpus.n; i++) {
		const struct gpu *gpu = &server->gpus.at[i];
		uint32_t n = 0;

		if (!gpu->device ||
		    !nvml_processes(&server->gpus.nvml, gpu->device, found, OUTSIDERS_FOUND, &n))
			continue;
		for (uint32_t k = 0; k < n; k++) {
			if (found[k].pid == (uint32_t)pid)
				return true;
		}
	}
	return false;
}

static void lending_release(struct server *server, uint32_t at)
{
	struct lending_link *link = &server->lending.links[at];
	uint32_t n = server->lending.pool->borrowers[at].n_lent;

	if (n)
		server_log(server, link->owner, LOG_LEVEL_INFO,
			   "slabs-back client=%u pid=%d slabs=%u: its process is gone",
			   link->client, (int)link->pid, n);
	event_source_remove(&link->end);
	link->pidfd = fd_close(link->pidfd);
	link->is_used = false;
	pool_gone(server->lending.pool, at);
}

/* A process that lives may still use its slabs, whatever it says. */
static void lending_on_ends(struct server *server, struct deadline *deadline)
{
	struct lending *lending = &server->lending;
	bool is_any = false;

	for (uint32_t i = 0; i < POOL_BORROWERS_MAX; i++) {
		const struct lending_link *link = &lending->links[i];
		const struct pool_borrower *b = &lending->pool->borrowers[i];

		if (!link->is_used || b->state != POOL_BORROWER_CUT)
			continue;
		if (!b->n_lent || (link->is_ended && !lending_driver_has(server, link->pid)))
			lending_release(server, i);
		else
			is_any |= link->is_ended;
	}
	if (is_any)
		deadline_set(&server->deadlines, deadline, server->now_ns + ENDS_NS);
	lending_settle(server);
}

/* ---- contention ------------------------------------------------------------------- */

/* Somebody waits, or the programs of a card together need more than it has. */
static bool lending_is_contended(const struct server *server)
{
	for (uint32_t i = 0; i < server->gpus.n; i++) {
		struct sched_gpu_status status;

		if (!server->gpus.at[i].total)
			continue;
		sched_gpu_status(&server->sched, i, &status);
		if (status.n_queued ||
		    server->gpus.at[i].footprint + status.external > status.usable)
			return true;
	}
	return false;
}

static void lending_on_look(struct server *server, struct deadline *deadline)
{
	struct lending *lending = &server->lending;

	(void)deadline;
	if (lending_is_contended(server))
		lending->n_quiet = 0;
	else
		lending->n_quiet++;
	if (lending->n_quiet > QUIET_LOOKS) {
		log_debug("slabs-closed slabs=%u: nobody needs them", lending->pool->n_ready);
		pool_shrink(lending->pool, 0);
	}
	lending_settle(server);
}

void lending_watch(struct server *server)
{
	struct lending *lending = &server->lending;

	if (!lending->pool->n_ready)
		lending->n_quiet = 0;
	else if (!deadline_is_set(&lending->look))
		deadline_set(&server->deadlines, &lending->look, server->now_ns + LOOK_NS);
}

/* Slabs that nobody has on loan are the first to go. */
void lending_update(struct server *server)
{
	struct lending *lending = &server->lending;
	uint64_t n = POOL_SLABS_MAX, n_lacked;
	uint64_t limit = slab_room_limit("", &server->settings.host_limit);

	if (!lending->slab_bytes)
		return;
	if (limit != UINT64_MAX)
		n = (limit - u64_min(limit, server->host.bytes)) / lending->slab_bytes;
	n_lacked = (server->host.wanted + lending->slab_bytes - 1) / lending->slab_bytes;
	n = u64_min(n, pool_total(lending->pool));
	pool_shrink(lending->pool, (uint32_t)(n - u64_min(n, n_lacked)));
	lending_settle(server);
}

int lending_open_ends(struct server *server)
{
	struct lending *lending = &server->lending;
	int r;

	lending->ends.on_due = lending_on_ends;
	lending->look.on_due = lending_on_look;
	r = reaper_init(&lending->slabs, 2 * POOL_SLABS_MAX);
	if (!r)
		r = reaper_init(&lending->strange, POOL_SLABS_MAX + POOL_BORROWERS_MAX);
	if (!r)
		r = event_source_add(&server->poller, &lending->slabs_reaped,
				     lending->slabs.event_fd, EPOLLIN, lending_on_slabs_reaped);
	if (!r)
		r = event_source_add(&server->poller, &lending->strange_reaped,
				     lending->strange.event_fd, EPOLLIN, lending_on_strange_reaped);
	return r;
}
