/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/host/hostpool.h"

#include "hook/base/hook_log.h"
#include "hook/base/hook_mutex.h"
#include "hook/host/extent.h"
#include "hook/host/hostmem.h"
#include "hook/host/slabs.h"
#include "hook/host/touched.h"
#include "hook/table/cuda_real.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLAB_MAX (1ull << 30)
#define STEP_MAX (256ull << 20) /* the size of a slab that is added by steps */

struct hostpool_slab {
	struct hostpool_slab *next; /* hostpool::slabs */
	void *addr;
	size_t size;
	CUcontext ctx; /* registered in; NULL: not registered */
	bool is_tried; /* to be registered */
};

/* All under the lock. */
static struct {
	struct hook_mutex lock;
	struct hostpool_slab *slabs;
	struct extent extent;
	uint64_t bytes; /* of own memory */
	uint64_t kept;  /* unused slabs of so many bytes do not go back */
} pool = {.lock = HOOK_MUTEX(HOOK_LOCK_HOSTPOOL)};

static uint64_t bytes_added(void)
{
	uint64_t bytes;

	hook_lock(&pool.lock);
	bytes = pool.bytes;
	hook_unlock(&pool.lock);
	return bytes;
}

uint64_t hostpool_bytes(void)
{
	return bytes_added() + touched_bytes();
}

bool hostpool_has_any(void)
{
	return hostpool_bytes() || slabs_promised() || slabs_next(0);
}

uint64_t hostpool_unused(void)
{
	uint64_t bytes;

	hook_lock(&pool.lock);
	bytes = pool.extent.bytes_free;
	hook_unlock(&pool.lock);
	return bytes;
}

static uint64_t bytes_round_up(uint64_t bytes, uint64_t align)
{
	return (bytes + align - 1) & ~(align - 1);
}

/* All unused bytes count, in pieces of any size. slab_grow() adds whole huge pages. */
static uint64_t slab_missing(uint64_t bytes)
{
	uint64_t unused = hostpool_unused() + touched_bytes();

	if (bytes > UINT64_MAX - 2 * HOSTPOOL_ALIGN)
		return UINT64_MAX;
	bytes = bytes_round_up(bytes, EXTENT_ALIGN);
	return bytes <= unused ? 0 : bytes_round_up(bytes - unused, HOSTPOOL_ALIGN);
}

/* The same, without what is borrowed for it. Each look asks anew: others return slabs all the time.
 */
static uint64_t own_missing(uint64_t bytes)
{
	uint64_t more = slab_missing(bytes), promised;

	if (!more)
		return 0;
	slabs_ask(more);
	promised = slabs_promised();
	return more <= promised || slabs_may_come() ? 0 : more - promised;
}

/*
 * The bytes of own_missing(bytes) that are not available. Other threads may begin a slab between
 * the two looks. It would be missing in the first and taken in the second, so both are repeated.
 */
static uint64_t lacks_beyond(uint64_t bytes, uint64_t (*available)(uint64_t used))
{
	uint64_t touched, more, spare;

	do {
		touched = touched_bytes();
		more = own_missing(bytes);
		spare = more ? available(hostpool_bytes()) : 0;
	} while (more > spare && touched_bytes() != touched);
	return more > spare ? more - spare : 0;
}

uint64_t hostpool_lacks(uint64_t bytes)
{
	return lacks_beyond(bytes, hostmem_available);
}

bool hostpool_has(uint64_t bytes)
{
	return hostpool_lacks(bytes) == 0;
}

bool hostpool_may_have(uint64_t bytes)
{
	return lacks_beyond(bytes, hostmem_available_soon) == 0;
}

static void slab_register(struct hostpool_slab *slab)
{
	CUcontext ctx = NULL;

	if (!cuda_real.cuMemHostRegister_v2 || cuda_real.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS)
		return;
	if (cuda_real.cuMemHostRegister_v2(slab->addr, slab->size, CU_MEMHOSTREGISTER_PORTABLE) !=
	    CUDA_SUCCESS) {
		hook_debug("host memory can not be registered; copies will be slower");
		return;
	}
	hook_lock(&pool.lock);
	slab->ctx = ctx;
	hook_unlock(&pool.lock);
}

/* Slabs go away by hostpool_trim() alone, which is called by the thread that is here. */
bool hostpool_register_one(void)
{
	struct hostpool_slab *slab;

	hook_lock(&pool.lock);
	for (slab = pool.slabs; slab && (slab->ctx || slab->is_tried); slab = slab->next)
		;
	if (slab)
		slab->is_tried = true;
	hook_unlock(&pool.lock);
	if (slab)
		slab_register(slab);
	return slab != NULL;
}

/* Takes addr, and unmaps it after a failure. */
static bool slab_add(void *addr, size_t size)
{
	struct hostpool_slab *slab = calloc(1, sizeof(*slab));
	int r;

	if (!slab) {
		munmap(addr, size);
		return false;
	}
	slab->addr = addr;
	slab->size = size;
	slab->is_tried = true;
	slab_register(slab);

	hook_lock(&pool.lock);
	r = extent_add(&pool.extent, (uintptr_t)slab->addr, size);
	if (r == 0) {
		slab->next = pool.slabs;
		pool.slabs = slab;
		pool.bytes += size;
	}
	hook_unlock(&pool.lock);
	if (r == 0)
		return true;
	if (slab->ctx)
		(void)cuda_real.cuMemHostUnregister(slab->addr);
	munmap(slab->addr, size);
	free(slab);
	return false;
}

/* Adds a promised slab of the node's. */
static bool slab_borrow(void)
{
	uint64_t addr;
	int r;

	if (!slabs_map_one(&addr))
		return false;
	hook_lock(&pool.lock);
	r = extent_add(&pool.extent, addr, slabs_size());
	hook_unlock(&pool.lock);
	if (r)
		slabs_return(addr);
	return r == 0;
}

/*
 * Adds a slab of the node's; else the memory that is being touched, of any size; else a piece of
 * bytes, made at once.
 */
static bool slab_grow(uint64_t bytes)
{
	size_t size = bytes_round_up(bytes < SLAB_MAX ? bytes : SLAB_MAX, HOSTPOOL_ALIGN);
	void *addr;

	if (!slabs_promised() && slabs_may_come())
		slabs_ask(bytes);
	if (slab_borrow())
		return true;
	if (touched_wait(&addr, &size))
		return slab_add(addr, size);
	if (size > hostmem_available(hostpool_bytes()))
		return false;
	addr = touched_map(size);
	return addr && slab_add(addr, size);
}

/*
 * The results do not matter, so these calls may fail. They must not wait for a lock. A page takes
 * 0.1 ms for both on an H100 (driver 580), and 2 MiB take 0.9 ms.
 */
void hostpool_probe(void)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	void *addr;

	slabs_probe();
	if (!hostpool_bytes() || !cuda_real.cuMemHostRegister_v2 || !cuda_real.cuMemHostUnregister)
		return;
	addr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (addr == MAP_FAILED)
		return;
	(void)madvise(addr, size, MADV_DONTFORK);
	if (cuda_real.cuMemHostRegister_v2(addr, size, CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS)
		(void)cuda_real.cuMemHostUnregister(addr);
	munmap(addr, size);
}

bool hostpool_grow(uint64_t bytes)
{
	uint64_t unused = hostpool_unused(), more = bytes > unused ? bytes - unused : 0;

	return more && slab_grow(more < STEP_MAX ? more : STEP_MAX);
}

static void kept_set(uint64_t bytes)
{
	hook_lock(&pool.lock);
	pool.kept = bytes;
	hook_unlock(&pool.lock);
}

static uint64_t kept_get(void)
{
	uint64_t bytes;

	hook_lock(&pool.lock);
	bytes = pool.kept;
	hook_unlock(&pool.lock);
	return bytes;
}

/* Other threads touch the rest, which the scheduler neither lends nor lets us make. */
static void hostpool_want(uint64_t bytes, bool is_urgent, void (*ready)(void))
{
	uint64_t unused = hostpool_unused(), more = unused < bytes ? bytes - unused : 0, promised;

	kept_set(bytes);
	slabs_ask(more);
	promised = slabs_may_come() ? more : slabs_promised();
	touched_want(promised < more ? more - promised : 0, bytes_added(), is_urgent, ready);
}

void hostpool_begin(uint64_t bytes, bool is_urgent, void (*ready)(void))
{
	while (hostpool_register_one())
		;
	hostpool_want(bytes, is_urgent, ready);
}

void hostpool_touch(uint64_t bytes, void (*ready)(void))
{
	hostpool_want(bytes, false, ready);
}

static bool slab_is_due(void)
{
	return slabs_promised() && hostpool_unused() < kept_get();
}

bool hostpool_may_add(bool may_register)
{
	return (may_register && touched_is_ready()) || slab_is_due();
}

void hostpool_add_one(bool may_register)
{
	size_t size;
	void *addr;

	if (may_register && touched_take(&addr, &size))
		(void)slab_add(addr, size);
	else if (slab_is_due())
		(void)slab_borrow();
}

/* As much as there is in one piece, at most bytes. */
static int hostpool_get_part(uint64_t bytes, struct hostpool_part *part)
{
	uint64_t largest, addr;
	int r;

	hook_lock(&pool.lock);
	largest = extent_largest(&pool.extent);
	part->size = bytes < largest ? bytes : largest;
	r = largest ? extent_alloc(&pool.extent, part->size, &addr) : EXTENT_E_FULL;
	if (r == 0)
		pool.kept -= part->size < pool.kept ? part->size : pool.kept;
	hook_unlock(&pool.lock);
	if (r)
		return r;
	part->addr = (void *)(uintptr_t)addr;
	part->is_slab = slabs_contain(part->addr);
	return 0;
}

struct hostpool_part *hostpool_get(uint64_t bytes)
{
	struct hostpool_part *parts = NULL, **tail = &parts, *part;
	int r;

	while (bytes) {
		part = calloc(1, sizeof(*part));
		if (!part)
			return hostpool_put(parts);
		r = hostpool_get_part(bytes, part);
		if (r == EXTENT_E_FULL && slab_grow(bytes)) {
			free(part);
			continue;
		}
		if (r) {
			free(part);
			return hostpool_put(parts);
		}
		bytes -= part->size;
		*tail = part;
		tail = &part->next;
	}
	return parts;
}

struct hostpool_part *hostpool_put(struct hostpool_part *parts)
{
	struct hostpool_part *next;

	hook_lock(&pool.lock);
	for (struct hostpool_part *part = parts; part; part = part->next)
		(void)extent_free(&pool.extent, (uintptr_t)part->addr, NULL);
	hook_unlock(&pool.lock);
	for (; parts; parts = next) {
		next = parts->next;
		free(parts);
	}
	return NULL;
}

CUresult hostpool_copy_out(const struct hostpool_part *part, CUdeviceptr src, CUstream stream)
{
	CUresult res;

	if (!part->is_slab)
		return cuda_real.cuMemcpyDtoHAsync_v2(part->addr, src, part->size, stream);
	res = slabs_reach(part->addr);
	return res == CUDA_SUCCESS
		       ? cuda_real.cuMemcpyAsync((uintptr_t)part->addr, src, part->size, stream)
		       : res;
}

CUresult hostpool_copy_in(CUdeviceptr dst, const struct hostpool_part *part, CUstream stream)
{
	CUresult res;

	if (!part->is_slab)
		return cuda_real.cuMemcpyHtoDAsync_v2(dst, part->addr, part->size, stream);
	res = slabs_reach(part->addr);
	return res == CUDA_SUCCESS
		       ? cuda_real.cuMemcpyAsync(dst, (uintptr_t)part->addr, part->size, stream)
		       : res;
}

/* Returns the bytes of a slab that is unused; 0: none is. */
static uint64_t slab_return_unused(void)
{
	bool is_unused;

	for (uint64_t addr = slabs_next(0); addr; addr = slabs_next(addr)) {
		hook_lock(&pool.lock);
		is_unused = extent_remove(&pool.extent, addr) == 0;
		hook_unlock(&pool.lock);
		if (!is_unused)
			continue;
		slabs_return(addr);
		return slabs_size();
	}
	return 0;
}

/* Bytes that may go. Unused bytes of slabs in use cannot. */
static uint64_t slabs_spare(uint64_t kept)
{
	uint64_t unused = hostpool_unused() + slabs_promised();

	return unused > kept ? unused - kept : 0;
}

bool hostpool_may_return(void)
{
	uint64_t size = slabs_size();

	return size && slabs_spare(kept_get()) >= size;
}

uint64_t hostpool_return_one(bool of_all)
{
	uint64_t spare = slabs_spare(of_all ? 0 : kept_get()), given;

	if (!spare || spare < slabs_size())
		return 0;
	given = slabs_give_promised(of_all ? slabs_size() : spare);
	return given ? given : slab_return_unused();
}

static void slabs_return_all(void)
{
	kept_set(0);
	(void)slabs_give_promised(UINT64_MAX);
	while (slab_return_unused())
		;
}

/*
 * Takes unused slabs out of the pool: n of them, or as many as there are. ctx: only slabs that are
 * registered there or nowhere; NULL: all.
 */
static struct hostpool_slab *hostpool_take_unused(uint64_t n, CUcontext ctx)
{
	struct hostpool_slab **link, *slab, *taken = NULL;

	hook_lock(&pool.lock);
	for (link = &pool.slabs; n && (slab = *link);) {
		if ((ctx && slab->ctx && slab->ctx != ctx) ||
		    extent_remove(&pool.extent, (uintptr_t)slab->addr) != 0) {
			link = &slab->next;
			continue;
		}
		*link = slab->next;
		pool.bytes -= slab->size;
		slab->next = taken;
		taken = slab;
		n--;
	}
	hook_unlock(&pool.lock);
	return taken;
}

/* Returns how many bytes that were. */
static uint64_t slabs_free(struct hostpool_slab *slab)
{
	struct hostpool_slab *next;
	uint64_t bytes = 0;

	for (; slab; slab = next) {
		next = slab->next;
		bytes += slab->size;
		if (slab->ctx)
			(void)cuda_real.cuMemHostUnregister(slab->addr);
		munmap(slab->addr, slab->size);
		free(slab);
	}
	return bytes;
}

void hostpool_trim(void)
{
	(void)touched_give_back();
	slabs_return_all();
	(void)slabs_free(hostpool_take_unused(UINT64_MAX, NULL));
}

void hostpool_trim_here(void)
{
	CUcontext ctx = NULL;

	(void)touched_give_back();
	slabs_return_all();
	if (cuda_real.cuCtxGetCurrent(&ctx) == CUDA_SUCCESS)
		(void)slabs_free(hostpool_take_unused(UINT64_MAX, ctx));
}

uint64_t hostpool_give_some(void)
{
	uint64_t bytes = touched_give_back();
	CUcontext ctx = NULL;

	if (bytes || cuda_real.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS)
		return bytes;
	return slabs_free(hostpool_take_unused(1, ctx));
}

uint64_t hostpool_give_touched(void)
{
	return touched_give_back();
}

void hostpool_context_gone(CUcontext ctx)
{
	hook_lock(&pool.lock);
	for (struct hostpool_slab *slab = pool.slabs; slab; slab = slab->next) {
		if (slab->ctx != ctx)
			continue;
		slab->ctx = NULL;
		slab->is_tried = false;
	}
	hook_unlock(&pool.lock);
}

/* The slabs were not inherited; their bookkeeping was, and is left behind. */
void hostpool_after_fork_child(void)
{
	hook_mutex_renew(&pool.lock, HOOK_LOCK_HOSTPOOL);
	pool.slabs = NULL;
	pool.bytes = 0;
	pool.kept = 0;
	extent_init(&pool.extent);
	touched_after_fork_child();
	slabs_after_fork_child();
}
