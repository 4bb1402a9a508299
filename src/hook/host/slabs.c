/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/host/slabs.h"

#include "hook/base/descriptors.h"
#include "hook/base/hook_log.h"
#include "hook/base/own_fd.h"
#include "hook/base/random.h"
#include "hook/host/slab_link.h"
#include "hook/host/slab_map.h"
#include "hook/table/cuda_real.h"
#include "ipc/pass.h"
#include "util/clock.h"
#include "util/fd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLAB_GRAIN     (2ull << 20) /* pages of host memory */
#define SLAB_BYTES_MAX (1ull << 40)

/* An answer follows at once. The program may be frozen for HALT_LIMIT_NS meanwhile. */
uint64_t slabs_answer_ns = 100 * CLOCK_NS_PER_MS;

/* After so many failures in a row the driver, or this process, is not able to. */
#define FAILURES_MAX 3

#define RECEIVE_MAX 64 /* packets at a time */

enum slab_state {
	SLAB_HELD,   /* its descriptor is here */
	SLAB_MAPPED, /* it has a place; its descriptor may be here, too */
	SLAB_GONE,   /* unmapped; the scheduler is to hear of it */
};

struct slab {
	struct slab *next; /* slabs::first */
	uint64_t id;
	uint32_t node;
	enum slab_state state;
	bool is_own;   /* made here, so it can be exported */
	bool is_due;   /* MAPPED: it is to be offered */
	bool is_bad;   /* GONE: nobody can use it */
	bool is_stuck; /* MAPPED: the driver does not unmap it */
	int fd;        /* atomic, as a forked child closes it; -1: it is not kept */
	struct slab_place place;
};

static struct {
	struct slab *first;
	uint64_t size; /* of each; 0: there have been none */
	uint32_t node;
	uint32_t n_lent;     /* by state */
	uint32_t n_mapped;   /* atomic, with n_lent: any thread reads them */
	uint32_t n_may_make; /* the scheduler counts them as ours */
	uint32_t n_unmade;   /* of those that it counts, to be told */
	uint32_t n_asked;    /* wanted, without an answer yet */
	uint32_t n_kept;     /* descriptors */
	uint32_t n_wanted;   /* by others */
	uint32_t n_failures; /* in a row */
	bool is_refused;     /* the last answer was no to some */
	bool is_off;         /* too many failures */
	uint64_t told_unused;
	struct pass_many came; /* descriptors that have come with a packet */
} slabs;

/* ---- books --------------------------------------------------------------------- */

static uint32_t count(const uint32_t *n)
{
	return __atomic_load_n(n, __ATOMIC_RELAXED);
}

static void count_add(uint32_t *n, int more)
{
	(void)__atomic_add_fetch(n, (uint32_t)more, __ATOMIC_RELAXED);
}

uint64_t slabs_bytes(void)
{
	return (uint64_t)(count(&slabs.n_lent) + count(&slabs.n_mapped)) * slabs.size;
}

uint64_t slabs_size(void)
{
	return slabs.size;
}

bool slabs_is_open(void)
{
	return slab_link_is_up();
}

int slabs_fd(void)
{
	return slab_link_fd();
}

uint32_t slabs_wanted(void)
{
	return slabs.n_wanted;
}

/* Forgotten before it is closed: by then it may be the number of a file of a child's. */
static void slab_close_descriptor(struct slab *slab)
{
	int fd = __atomic_exchange_n(&slab->fd, -1, __ATOMIC_ACQ_REL);

	slabs.n_kept -= fd >= 0;
	pass_close(own_fd_forget(fd));
}

/* Takes fd. A lent slab. NULL: no memory, and fd is closed. */
static struct slab *slab_new(uint64_t id, uint32_t node, int fd)
{
	struct slab *slab = calloc(1, sizeof(*slab));

	if (!slab) {
		pass_close(own_fd_forget(fd));
		return NULL;
	}
	slab->id = id;
	slab->node = node;
	slab->fd = fd;
	slab->next = slabs.first;
	slabs.n_kept += fd >= 0;
	count_add(&slabs.n_lent, 1);
	__atomic_store_n(&slabs.first, slab, __ATOMIC_RELEASE);
	return slab;
}

static void slab_free(struct slab *slab)
{
	struct slab **link;

	slab_close_descriptor(slab);
	for (link = &slabs.first; *link != slab; link = &(*link)->next)
		;
	__atomic_store_n(link, slab->next, __ATOMIC_RELEASE);
	free(slab);
}

static void slab_set(struct slab *slab, enum slab_state state)
{
	count_add(&slabs.n_lent, (state == SLAB_HELD) - (slab->state == SLAB_HELD));
	count_add(&slabs.n_mapped, (state == SLAB_MAPPED) - (slab->state == SLAB_MAPPED));
	slab->state = state;
}

static struct slab *slab_find(enum slab_state state)
{
	struct slab *slab;

	for (slab = slabs.first; slab && slab->state != state; slab = slab->next)
		;
	return slab;
}

static struct slab *slab_at(uint64_t addr)
{
	struct slab *slab;

	for (slab = slabs.first; slab; slab = slab->next) {
		if (slab->state == SLAB_MAPPED && addr - slab->place.addr < slabs.size)
			break;
	}
	return slab;
}

/* Half of the descriptors that the library may keep: the others are of slabs on their way. */
static uint32_t kept_max(void)
{
	return descriptors_part() / 2;
}

/*
 * A mapped slab needs its descriptor only to be offered to the next scheduler. The driver does not
 * export what it has imported.
 */
static void slab_keep_or_close(struct slab *slab)
{
	if (slabs.n_kept > kept_max())
		slab_close_descriptor(slab);
}

/* ---- what is sent -------------------------------------------------------------- */

static int packet_send(enum slab_type type, uint32_t n)
{
	struct slab_packet packet;

	slab_packet_init(&packet, type, n, 0);
	return slab_link_send(&packet, NULL, 0);
}

static bool slab_offer(struct slab *slab)
{
	struct slab_packet packet;
	int fd = own_fd_of(slab->fd);

	slab_packet_init(&packet, SLAB_OFFER, 1, slab->node);
	packet.ids[0] = slab->id;
	if (fd < 0) {
		slab->is_due = false; /* it cannot be offered, and goes with its mapping */
		return true;
	}
	if (slab_link_send(&packet, &fd, 1))
		return false;
	slab->is_due = false;
	slab_keep_or_close(slab);
	return true;
}

/* A packet of slabs that are gone. false: there are none, or it was not sent. */
static bool gone_send(bool is_bad)
{
	struct slab_packet packet;
	struct slab *sent[SLAB_IDS_MAX];

	slab_packet_init(&packet, is_bad ? SLAB_BAD : SLAB_RETURN, 0, 0);
	for (struct slab *slab = slabs.first; slab && packet.n < SLAB_IDS_MAX; slab = slab->next) {
		if (slab->state != SLAB_GONE || slab->is_bad != is_bad)
			continue;
		sent[packet.n] = slab;
		packet.ids[packet.n++] = slab->id;
	}
	if (!packet.n || slab_link_send(&packet, NULL, 0))
		return false;
	for (uint32_t i = 0; i < packet.n; i++)
		slab_free(sent[i]);
	return true;
}

/* The scheduler is gone: what it was to hear is of no use. */
static void slabs_lost(void)
{
	struct slab *slab;

	slabs.n_may_make = 0;
	slabs.n_unmade = 0;
	slabs.n_asked = 0;
	slabs.n_wanted = 0;
	slabs.told_unused = 0;
	while ((slab = slab_find(SLAB_GONE)))
		slab_free(slab);
}

/* A full socket delays the rest until the next call. */
static void slabs_flush(void)
{
	for (struct slab *slab = slabs.first; slab; slab = slab->next) {
		if (slab->state == SLAB_MAPPED && slab->is_due && !slab_offer(slab))
			break;
	}
	if (slabs.n_unmade && packet_send(SLAB_UNMADE, slabs.n_unmade) == 0)
		slabs.n_unmade = 0;
	while (gone_send(false) || gone_send(true))
		;
	if (!slab_link_is_up())
		slabs_lost();
}

void slabs_tell_unused(uint64_t bytes)
{
	struct slab_packet packet;
	uint64_t change =
		bytes > slabs.told_unused ? bytes - slabs.told_unused : slabs.told_unused - bytes;

	if (!slab_link_is_up() || !change || (change < slabs.size && bytes))
		return;
	slab_packet_init(&packet, SLAB_UNUSED, 0, 0);
	packet.bytes = bytes;
	if (slab_link_send(&packet, NULL, 0) == 0)
		slabs.told_unused = bytes;
}

/* ---- what comes ---------------------------------------------------------------- */

static void packet_lent(const struct slab_packet *packet)
{
	for (uint32_t i = 0; i < packet->n; i++) {
		int fd = own_fd_take(slabs.came.fds[i]);

		slabs.came.fds[i] = -1;
		(void)slab_new(packet->ids[i], packet->node, fd);
	}
	slabs.came.n = 0;
}

static void packet_handle(const struct slab_packet *packet)
{
	if (packet->type == SLAB_WANTED) {
		slabs.n_wanted = packet->n;
		return;
	}
	if (packet->n > slabs.n_asked) { /* nobody has asked for that */
		pass_many_close(&slabs.came);
		slab_link_close();
		return;
	}
	slabs.n_asked -= packet->n;
	if (packet->type == SLAB_LENT)
		packet_lent(packet);
	else if (packet->type == SLAB_MAY_MAKE)
		slabs.n_may_make += packet->n;
	else
		slabs.is_refused = true;
}

static int receive_one(uint64_t until_ns)
{
	struct slab_packet packet;
	int r = slab_link_receive(&packet, &slabs.came, until_ns);

	if (r == 0)
		packet_handle(&packet);
	if (!slab_link_is_up())
		slabs_lost();
	return r;
}

void slabs_receive(void)
{
	for (int i = 0; i < RECEIVE_MAX && slab_link_is_up() && receive_one(0) == 0; i++)
		;
	slabs_flush();
}

void slabs_open(int fd, uint64_t slab_bytes, uint32_t node)
{
	if (!slab_bytes || slab_bytes % SLAB_GRAIN || slab_bytes > SLAB_BYTES_MAX ||
	    (slabs.first && slab_bytes != slabs.size)) {
		pass_close(fd);
		return;
	}
	slab_link_close();
	slabs_lost();
	if (slab_bytes != slabs.size)
		slab_map_end();
	slab_link_open(fd);
	slabs.size = slab_bytes;
	slabs.node = node;
	slabs.n_failures = 0;
	slabs.is_refused = false;
	slabs.is_off = false;
	hook_debug("slabs of %llu bytes are lent", (unsigned long long)slab_bytes);
	for (struct slab *slab = slabs.first; slab; slab = slab->next)
		slab->is_due = true;
	slabs_flush();
}

/* ---- borrowing ----------------------------------------------------------------- */

uint64_t slabs_promised(void)
{
	return slabs.is_off ? 0 : (uint64_t)(count(&slabs.n_lent) + slabs.n_may_make) * slabs.size;
}

bool slabs_may_come(void)
{
	return slab_link_is_up() && !slabs.is_off && !slabs.is_refused && !slabs.n_asked &&
	       count(&slabs.n_mapped) + count(&slabs.n_lent) + slabs.n_may_make < SLAB_MAP_MAX;
}

/* So many more may be asked for: each that is lent comes with a descriptor. */
static uint32_t slabs_missing(uint64_t bytes)
{
	uint32_t have = count(&slabs.n_lent) + slabs.n_may_make, max = kept_max();
	uint64_t need = bytes / slabs.size + (bytes % slabs.size != 0);
	uint32_t places = SLAB_MAP_MAX - count(&slabs.n_mapped);

	if (need > max)
		need = max;
	if (need > places)
		need = places;
	return need > have ? (uint32_t)need - have : 0;
}

void slabs_ask(uint64_t bytes)
{
	uint64_t until_ns = clock_now_ns() + slabs_answer_ns;
	struct slab_packet packet;
	uint32_t n;

	if (!slab_link_is_up() || slabs.is_off)
		return;
	slabs_receive();
	n = slabs_missing(bytes);
	if (!n)
		return;
	if (!slabs.n_asked) {
		slab_packet_init(&packet, SLAB_WANT, n, slabs.node);
		if (slab_link_send(&packet, NULL, 0))
			return;
		slabs.n_asked = n;
		slabs.is_refused = false;
	}
	while (slabs.n_asked && slab_link_is_up() && receive_one(until_ns) == 0)
		;
}

/* ---- driver calls -------------------------------------------------------------- */

/* Its bytes are nobody's, so the scheduler may lend it at once, unless is_bad. */
static void slab_go(struct slab *slab, bool is_bad)
{
	slab_close_descriptor(slab);
	slab->is_bad = is_bad;
	slab_set(slab, SLAB_GONE);
}

static void slabs_fail(const char *what, CUresult res)
{
	hook_debug("a slab could not be %s: error %d", what, (int)res);
	if (++slabs.n_failures < FAILURES_MAX)
		return;
	slabs.is_off = true;
	(void)slabs_give_promised(UINT64_MAX);
}

static bool slab_open(struct slab *slab)
{
	CUresult res = slab_map_open(slab->fd, slabs.size, &slab->place);

	if (res == CUDA_SUCCESS) {
		hook_debug("a slab was mapped");
		slab_set(slab, SLAB_MAPPED);
		slab_keep_or_close(slab);
		return true;
	}
	slab_go(slab, true);
	slabs_fail("mapped", res);
	return false;
}

/* 0: there is none. */
static uint64_t random_id(void)
{
	uint64_t id;

	return random_fill(&id, sizeof(id)) ? id : 0;
}

/* The scheduler has promised that the node has the memory. If it has not, none is made for now. */
static struct slab *slab_make(void)
{
	struct slab_place place;
	struct slab *slab;
	uint64_t id = random_id();
	CUresult res;
	int fd = -1;

	slabs.n_may_make--;
	res = slab_map_make(slabs.size, slabs.node, &place, &fd);
	if (res == CUDA_SUCCESS && id) {
		slab = slab_new(id, slabs.node, fd);
		fd = -1;
		if (slab) {
			slab->place = place;
			slab->is_own = true;
			slab->is_due = true;
			hook_debug("a slab was made");
			slab_set(slab, SLAB_MAPPED);
			return slab;
		}
	}
	if (res == CUDA_SUCCESS)
		(void)slab_map_close(&place, slabs.size);
	(void)own_fd_close(fd);
	slabs.n_unmade += 1 + slabs.n_may_make;
	slabs.n_may_make = 0;
	slabs.is_refused = true;
	slabs_fail("made", res);
	return NULL;
}

bool slabs_map_one(uint64_t *ret_addr)
{
	struct slab *slab;
	bool is_there = false;

	while (!is_there && slabs_promised()) {
		slab = slab_find(SLAB_HELD);
		if (slab)
			is_there = slab_open(slab);
		else
			is_there = (slab = slab_make()) != NULL;
	}
	slabs_flush();
	if (!is_there)
		return false;
	slabs.n_failures = 0;
	*ret_addr = slab->place.addr;
	return true;
}

void slabs_return(uint64_t addr)
{
	struct slab *slab = slab_at(addr);

	if (!slab || slab->is_stuck)
		return;
	if (slab_map_close(&slab->place, slabs.size))
		slab_go(slab, false);
	else
		slab->is_stuck = true;
	slabs.n_wanted -= slabs.n_wanted > 0;
	slabs_flush();
}

uint64_t slabs_give_promised(uint64_t bytes)
{
	uint64_t given = 0;
	struct slab *slab;

	if (slabs.n_may_make && bytes) {
		uint64_t n = bytes / slabs.size + (bytes % slabs.size != 0);

		n = n < slabs.n_may_make ? n : slabs.n_may_make;
		slabs.n_may_make -= (uint32_t)n;
		slabs.n_unmade += (uint32_t)n;
		given = n * slabs.size;
	}
	while (given < bytes && (slab = slab_find(SLAB_HELD))) {
		slab_go(slab, false);
		slabs.n_wanted -= slabs.n_wanted > 0;
		given += slabs.size;
	}
	slabs_flush();
	return given;
}

uint64_t slabs_next(uint64_t addr)
{
	uint64_t next = 0;

	for (const struct slab *slab = slabs.first; slab; slab = slab->next) {
		if (slab->state == SLAB_MAPPED && !slab->is_stuck && slab->place.addr > addr &&
		    (!next || slab->place.addr < next))
			next = slab->place.addr;
	}
	return next;
}

bool slabs_contain(const void *addr)
{
	return slab_at((uintptr_t)addr) != NULL;
}

CUresult slabs_reach(const void *addr)
{
	struct slab *slab = slab_at((uintptr_t)addr);
	CUdevice dev;
	CUresult res = cuda_real.cuCtxGetDevice(&dev);

	if (!slab)
		return CUDA_ERROR_INVALID_VALUE;
	return res == CUDA_SUCCESS ? slab_map_reach(&slab->place, slabs.size, dev) : res;
}

void slabs_probe(void)
{
	if (slab_link_is_up() || slabs.first)
		slab_map_probe(slabs.node);
}

/* The slabs were not inherited; their bookkeeping was, and is left behind. */
void slabs_after_fork_child(void)
{
	for (struct slab *slab = slabs.first, *next; slab; slab = next) {
		next = slab->next;
		(void)own_fd_close(slab->fd);
		free(slab);
	}
	for (size_t i = 0; i < slabs.came.n; i++)
		(void)fd_close(slabs.came.fds[i]);
	memset(&slabs, 0, sizeof(slabs));
	slab_link_after_fork_child();
	slab_map_after_fork_child();
}
