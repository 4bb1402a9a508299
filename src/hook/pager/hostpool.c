/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/pager/hostpool.h"

#include "hook/hook_log.h"
#include "hook/pager/extent.h"
#include "hook/pager/hostmem.h"
#include "hook/table/cuda_real.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLAB_MAX     (1ull << 30)
#define TOUCHERS_MAX 8
#define TOUCH_MIN    (64ull << 20) /* less than this a thread is not worth its start */

struct hostpool_slab {
	struct hostpool_slab *next; /* hostpool::slabs */
	void *addr;
	size_t size;
	CUcontext ctx; /* registered in; NULL: not registered */
	bool is_tried; /* to be registered */
};

static struct {
	pthread_mutex_t lock;
	struct hostpool_slab *slabs;
	struct extent extent;
	uint64_t bytes;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

uint64_t hostpool_bytes(void)
{
	uint64_t bytes;

	pthread_mutex_lock(&pool.lock);
	bytes = pool.bytes;
	pthread_mutex_unlock(&pool.lock);
	return bytes;
}

uint64_t hostpool_unused(void)
{
	uint64_t bytes;

	pthread_mutex_lock(&pool.lock);
	bytes = pool.extent.bytes_free;
	pthread_mutex_unlock(&pool.lock);
	return bytes;
}

static uint64_t round_up(uint64_t bytes, uint64_t align)
{
	return (bytes + align - 1) & ~(align - 1);
}

/* Every unused byte serves, in however small pieces; what grow() adds are whole huge pages. */
bool hostpool_has(uint64_t bytes)
{
	uint64_t unused = hostpool_unused(), missing;

	if (bytes > UINT64_MAX - 2 * HOSTPOOL_ALIGN)
		return false;
	bytes = round_up(bytes, EXTENT_ALIGN);
	if (bytes <= unused)
		return true;
	missing = round_up(bytes - unused, HOSTPOOL_ALIGN);
	return missing <= hostmem_available(hostpool_bytes());
}

struct touch {
	pthread_t thread;
	unsigned char *addr;
	size_t size;
	bool is_started;
};

/* One fault a huge page where there are huge pages; MADV_POPULATE_WRITE is Linux 5.14. */
static void *touch_run(void *arg)
{
	struct touch *touch = arg;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

#ifdef MADV_POPULATE_WRITE
	if (madvise(touch->addr, touch->size, MADV_POPULATE_WRITE) == 0)
		return NULL;
#endif
	for (size_t i = 0; i < touch->size; i += page)
		*(volatile unsigned char *)(touch->addr + i) = 0;
	return NULL;
}

/* First touch is slower than the copies (2 to 7 GiB/s a thread): several threads share it. */
static void touch_all(unsigned char *addr, size_t size)
{
	struct touch touches[TOUCHERS_MAX] = {0};
	long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
	size_t n = size / TOUCH_MIN + 1, share;

	if (n > TOUCHERS_MAX)
		n = TOUCHERS_MAX;
	if (n_cpus > 0 && n > (size_t)n_cpus)
		n = (size_t)n_cpus;
	share = round_up(size / n, HOSTPOOL_ALIGN);
	for (size_t i = 0; i < n && i * share < size; i++) {
		touches[i].addr = addr + i * share;
		touches[i].size = share < size - i * share ? share : size - i * share;
		/* The last share is this thread's own. */
		touches[i].is_started =
			(i + 1) * share < size &&
			pthread_create(&touches[i].thread, NULL, touch_run, &touches[i]) == 0;
		if (!touches[i].is_started)
			touch_run(&touches[i]);
	}
	for (size_t i = 0; i < n; i++) {
		if (touches[i].is_started)
			pthread_join(touches[i].thread, NULL);
	}
}

/* mmap() aligns to pages only: map more, cut the ends off. */
static void *map_aligned(size_t size)
{
	unsigned char *raw, *addr;
	size_t before;

	raw = mmap(NULL, size + HOSTPOOL_ALIGN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		   -1, 0);
	if (raw == MAP_FAILED)
		return NULL;
	before = (size_t)(-(uintptr_t)raw & (HOSTPOOL_ALIGN - 1));
	addr = raw + before;
	if (before)
		munmap(raw, before);
	munmap(addr + size, HOSTPOOL_ALIGN - before);

	/* A fork with gigabytes pinned takes seconds and doubles them. */
	(void)madvise(addr, size, MADV_DONTFORK);
	(void)madvise(addr, size, MADV_DONTDUMP);
	(void)madvise(addr, size, MADV_HUGEPAGE);
	return addr;
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
	pthread_mutex_lock(&pool.lock);
	slab->ctx = ctx;
	pthread_mutex_unlock(&pool.lock);
}

/*
 * What was registered in a context that is dead. Slabs go away by hostpool_trim() alone,
 * which is called by the thread that is here.
 */
static void register_again(void)
{
	struct hostpool_slab *slab;

	do {
		pthread_mutex_lock(&pool.lock);
		for (slab = pool.slabs; slab && (slab->ctx || slab->is_tried); slab = slab->next)
			;
		if (slab)
			slab->is_tried = true;
		pthread_mutex_unlock(&pool.lock);
		if (slab)
			slab_register(slab);
	} while (slab);
}

static int grow(uint64_t bytes)
{
	struct hostpool_slab *slab;
	uint64_t size = round_up(bytes, HOSTPOOL_ALIGN);
	int r;

	if (size > SLAB_MAX)
		size = SLAB_MAX;
	if (size > hostmem_available(hostpool_bytes()))
		return HOSTPOOL_E_NO_MEMORY;
	slab = calloc(1, sizeof(*slab));
	if (!slab)
		return -ENOMEM;
	slab->size = size;
	slab->addr = map_aligned(size);
	if (!slab->addr) {
		free(slab);
		return HOSTPOOL_E_NO_MEMORY;
	}
	touch_all(slab->addr, size);
	slab->is_tried = true;
	slab_register(slab);

	pthread_mutex_lock(&pool.lock);
	r = extent_add(&pool.extent, (uintptr_t)slab->addr, size);
	if (r == 0) {
		slab->next = pool.slabs;
		pool.slabs = slab;
		pool.bytes += size;
	}
	pthread_mutex_unlock(&pool.lock);
	if (r < 0) {
		if (slab->ctx)
			(void)cuda_real.cuMemHostUnregister(slab->addr);
		munmap(slab->addr, size);
		free(slab);
	}
	return r;
}

int hostpool_prepare(uint64_t bytes)
{
	uint64_t unused;
	int r = 0;

	register_again();
	while (r == 0 && (unused = hostpool_unused()) < bytes)
		r = grow(bytes - unused);
	return r;
}

/* As much as there is in one piece, at most bytes. */
static int get_part(uint64_t bytes, struct hostpool_part *part)
{
	uint64_t largest, addr;
	int r;

	pthread_mutex_lock(&pool.lock);
	largest = extent_largest(&pool.extent);
	part->size = bytes < largest ? bytes : largest;
	r = largest ? extent_alloc(&pool.extent, part->size, &addr) : EXTENT_E_FULL;
	pthread_mutex_unlock(&pool.lock);
	if (r == 0)
		part->addr = (void *)(uintptr_t)addr;
	return r;
}

struct hostpool_part *hostpool_get(uint64_t bytes)
{
	struct hostpool_part *parts = NULL, **tail = &parts, *part;
	int r;

	while (bytes) {
		part = calloc(1, sizeof(*part));
		if (!part)
			return hostpool_put(parts);
		r = get_part(bytes, part);
		if (r == EXTENT_E_FULL && grow(bytes) == 0) {
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

	pthread_mutex_lock(&pool.lock);
	for (struct hostpool_part *part = parts; part; part = part->next)
		(void)extent_free(&pool.extent, (uintptr_t)part->addr, NULL);
	pthread_mutex_unlock(&pool.lock);
	for (; parts; parts = next) {
		next = parts->next;
		free(parts);
	}
	return NULL;
}

void hostpool_trim(void)
{
	struct hostpool_slab **link, *slab, *gone = NULL, *next;

	pthread_mutex_lock(&pool.lock);
	for (link = &pool.slabs; (slab = *link);) {
		if (extent_remove(&pool.extent, (uintptr_t)slab->addr) != 0) {
			link = &slab->next;
			continue;
		}
		*link = slab->next;
		pool.bytes -= slab->size;
		slab->next = gone;
		gone = slab;
	}
	pthread_mutex_unlock(&pool.lock);

	for (slab = gone; slab; slab = next) {
		next = slab->next;
		if (slab->ctx)
			(void)cuda_real.cuMemHostUnregister(slab->addr);
		munmap(slab->addr, slab->size);
		free(slab);
	}
}

void hostpool_context_gone(CUcontext ctx)
{
	pthread_mutex_lock(&pool.lock);
	for (struct hostpool_slab *slab = pool.slabs; slab; slab = slab->next) {
		if (slab->ctx != ctx)
			continue;
		slab->ctx = NULL;
		slab->is_tried = false;
	}
	pthread_mutex_unlock(&pool.lock);
}

/* The slabs were not inherited; their bookkeeping was, and is left behind. */
void hostpool_after_fork_child(void)
{
	pthread_mutex_init(&pool.lock, NULL);
	pool.slabs = NULL;
	pool.bytes = 0;
	extent_init(&pool.extent);
}
