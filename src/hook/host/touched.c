/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/host/touched.h"

#include "hook/base/hook_mutex.h"
#include "hook/host/hostmem.h"
#include "util/clock.h"
#include "util/thread_name.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Small ones: the first copies begin while most of the memory is still on its way. */
#define SLAB_BYTES   (64ull << 20)
#define TOUCHERS_MAX 8
#define TOUCHERS_FEW 2             /* where nobody waits, since the program needs its processors */
#define TOUCH_MIN    (32ull << 20) /* less than this a thread is not worth its start */

/*
 * The pause between two slabs where nobody waits: 6 GiB/s. Registering them takes the driver's
 * locks, which evictions of others need, too. Without a pause these took 100 to 160 ms a GiB on a
 * card, and 48 ms beside nobody.
 */
#define SLOWLY_NS (10 * CLOCK_NS_PER_MS)

struct slab {
	struct slab *next;
	void *addr;
	size_t size;
};

/* All under the lock. */
static struct {
	struct hook_mutex lock;
	pthread_cond_t changed;
	struct slab *first, **last; /* ready */
	uint64_t wanted;            /* bytes that are not begun yet */
	uint64_t ready_bytes;
	uint64_t touching;        /* bytes that are begun and not ready */
	uint64_t asking;          /* the part of them for which it looks whether there is so much */
	uint64_t used;            /* the caller's bytes, by touched_want() */
	uint64_t next_ns;         /* no slab is begun before, unless a thread waits */
	bool is_urgent;           /* a thread waits */
	unsigned int n_running;   /* threads of ours */
	unsigned int n_forgotten; /* grows when the wanted bytes are given up */
	void (*ready)(void);
} touched = {.lock = HOOK_MUTEX(HOOK_LOCK_TOUCHED),
	     .changed = PTHREAD_COND_INITIALIZER,
	     .last = &touched.first};

/* ---- touching ------------------------------------------------------------- */

struct touch {
	pthread_t thread;
	unsigned char *addr;
	size_t size;
	bool is_started;
};

static uint64_t bytes_round_up(uint64_t bytes, uint64_t align)
{
	return (bytes + align - 1) & ~(align - 1);
}

/*
 * It writes, because a page fault locks only the page (before Linux 6.4 the address space, for that
 * page). MADV_POPULATE_WRITE keeps the address space locked as long as it runs. Threads that map
 * memory then wait for it, driver calls and our other threads among them. With eight threads it
 * took 173 to 357 ms a GiB, and 60 to 120 ms for a mapping, against 30 ms and 0.02 ms.
 */
static void *slab_touch_run(void *arg)
{
	struct touch *touch = arg;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	for (size_t i = 0; i < touch->size; i += page)
		*(volatile unsigned char *)(touch->addr + i) = 0;
	return NULL;
}

static unsigned int touchers_wanted(uint64_t bytes, uint64_t each)
{
	long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t n = (bytes + each - 1) / each;

	if (n > TOUCHERS_MAX)
		n = TOUCHERS_MAX;
	if (n_cpus > 0 && n > (uint64_t)n_cpus)
		n = (uint64_t)n_cpus;
	return (unsigned int)n;
}

/* First touch is slower than the copies (2 to 7 GiB/s a thread): several threads share it. */
static void slab_touch_all(unsigned char *addr, size_t size)
{
	struct touch touches[TOUCHERS_MAX] = {0};
	size_t n = touchers_wanted(size, TOUCH_MIN),
	       share = bytes_round_up(size / n, TOUCHED_ALIGN);

	for (size_t i = 0; i < n && i * share < size; i++) {
		touches[i].addr = addr + i * share;
		touches[i].size = share < size - i * share ? share : size - i * share;
		/* The last share is this thread's own. */
		touches[i].is_started =
			(i + 1) * share < size &&
			pthread_create(&touches[i].thread, NULL, slab_touch_run, &touches[i]) == 0;
		if (!touches[i].is_started)
			slab_touch_run(&touches[i]);
	}
	for (size_t i = 0; i < n; i++) {
		if (touches[i].is_started)
			pthread_join(touches[i].thread, NULL);
	}
}

/* mmap() aligns to pages only: map more, cut the ends off. */
static void *slab_map_aligned(size_t size)
{
	unsigned char *raw, *addr;
	size_t before;

	raw = mmap(NULL, size + TOUCHED_ALIGN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		   -1, 0);
	if (raw == MAP_FAILED)
		return NULL;
	before = (size_t)(-(uintptr_t)raw & (TOUCHED_ALIGN - 1));
	addr = raw + before;
	if (before)
		munmap(raw, before);
	munmap(addr + size, TOUCHED_ALIGN - before);

	/* A fork with gigabytes pinned takes seconds and doubles them. */
	(void)madvise(addr, size, MADV_DONTFORK);
	(void)madvise(addr, size, MADV_DONTDUMP);
	(void)madvise(addr, size, MADV_HUGEPAGE);
	return addr;
}

void *touched_map(size_t size)
{
	void *addr = slab_map_aligned(size);

	if (addr)
		slab_touch_all(addr, size);
	return addr;
}

/* ---- ahead ---------------------------------------------------------------- */

/* Lock held. Until the next slab may be begun, or is not wanted. */
static void toucher_keep_pace(void)
{
	while (touched.wanted && !touched.is_urgent && clock_now_ns() < touched.next_ns)
		(void)hook_wait_until(&touched.changed, &touched.lock, touched.next_ns);
	if (touched.wanted)
		touched.next_ns = clock_now_ns() + SLOWLY_NS;
}

/*
 * A begun slab shows in no number of the machine before it is there. So all begun bytes must be
 * available together, and no two threads take the same room. Opens the lock for a while. 0: none is
 * wanted, or may be had.
 */
static size_t slab_begin(void)
{
	uint64_t size = touched.wanted < SLAB_BYTES ? touched.wanted : SLAB_BYTES;
	uint64_t taken = touched.used + touched.ready_bytes, available, needed;

	if (!size)
		return 0;
	touched.wanted -= size;
	size = bytes_round_up(size, TOUCHED_ALIGN);
	touched.asking += size;
	needed = touched.touching + touched.asking;
	hook_unlock(&touched.lock);
	available = hostmem_available(taken); /* reads files */
	hook_lock(&touched.lock);
	touched.asking -= size;
	if (needed > available) {
		touched.wanted = 0;
		return 0;
	}
	touched.touching += size;
	return size;
}

static struct slab *slab_make(size_t size)
{
	struct slab *slab = calloc(1, sizeof(*slab));

	if (!slab)
		return NULL;
	slab->size = size;
	slab->addr = slab_map_aligned(size);
	if (!slab->addr) {
		free(slab);
		return NULL;
	}
	(void)slab_touch_run(&(struct touch){.addr = slab->addr, .size = size});
	return slab;
}

static void slabs_free(struct slab *slab)
{
	struct slab *next;

	for (; slab; slab = next) {
		next = slab->next;
		munmap(slab->addr, slab->size);
		free(slab);
	}
}

/* One thread touches a whole slab: threads that share one are in each other's way in the kernel. */
static void *toucher_run(void *arg)
{
	struct slab *slab, *dead;
	void (*ready)(void);
	unsigned int was;
	size_t size;

	(void)arg;
	thread_name("nvshare-touch");
	hook_lock(&touched.lock);
	for (;;) {
		toucher_keep_pace();
		was = touched.n_forgotten;
		size = slab_begin();
		if (!size)
			break;
		hook_unlock(&touched.lock);
		slab = slab_make(size);
		hook_lock(&touched.lock);
		ready = touched.ready; /* a failure is news, too */
		dead = NULL;
		touched.touching -= size;
		if (!slab) {
			touched.wanted = 0;
		} else if (touched.n_forgotten != was) {
			dead = slab;
		} else {
			touched.ready_bytes += size;
			*touched.last = slab;
			touched.last = &slab->next;
		}
		pthread_cond_broadcast(&touched.changed);
		hook_unlock(&touched.lock);
		slabs_free(dead);
		if (ready)
			ready();
		hook_lock(&touched.lock);
	}
	touched.n_running--;
	pthread_cond_broadcast(&touched.changed);
	hook_unlock(&touched.lock);
	return NULL;
}

/* The program's signals are for the program's threads. */
static bool toucher_start(void)
{
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	if (pthread_attr_init(&attr))
		return false;
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&thread, &attr, toucher_run, NULL);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&attr);
	return r == 0;
}

void touched_want(uint64_t bytes, uint64_t used, bool is_urgent, void (*ready)(void))
{
	unsigned int n;
	uint64_t begun;

	hook_lock(&touched.lock);
	touched.used = used;
	touched.ready = ready;
	touched.is_urgent = is_urgent;
	begun = touched.ready_bytes + touched.touching + touched.asking;
	touched.wanted = bytes > begun ? bytes - begun : 0;
	n = touchers_wanted(touched.wanted, SLAB_BYTES);
	if (!is_urgent && n > TOUCHERS_FEW)
		n = TOUCHERS_FEW;
	while (touched.n_running < n && toucher_start())
		touched.n_running++;
	if (!touched.n_running)
		touched.wanted = 0; /* it is touched when it is needed, then */
	pthread_cond_broadcast(&touched.changed);
	hook_unlock(&touched.lock);
}

uint64_t touched_give_back(void)
{
	struct slab *all;
	uint64_t bytes;

	hook_lock(&touched.lock);
	touched.wanted = 0;
	pthread_cond_broadcast(&touched.changed);
	touched.n_forgotten++;
	all = touched.first;
	touched.first = NULL;
	touched.last = &touched.first;
	bytes = touched.ready_bytes;
	touched.ready_bytes = 0;
	hook_unlock(&touched.lock);
	slabs_free(all);
	return bytes;
}

/* Lock held. */
static struct slab *slab_take(void)
{
	struct slab *slab = touched.first;

	if (!slab)
		return NULL;
	touched.first = slab->next;
	if (!touched.first)
		touched.last = &touched.first;
	touched.ready_bytes -= slab->size;
	touched.used += slab->size;
	return slab;
}

static bool slab_give(struct slab *slab, void **ret_addr, size_t *ret_size)
{
	if (!slab)
		return false;
	*ret_addr = slab->addr;
	*ret_size = slab->size;
	free(slab);
	return true;
}

bool touched_is_ready(void)
{
	bool is_ready;

	hook_lock(&touched.lock);
	is_ready = touched.first != NULL;
	hook_unlock(&touched.lock);
	return is_ready;
}

bool touched_take(void **ret_addr, size_t *ret_size)
{
	struct slab *slab;

	hook_lock(&touched.lock);
	slab = slab_take();
	hook_unlock(&touched.lock);
	return slab_give(slab, ret_addr, ret_size);
}

bool touched_wait(void **ret_addr, size_t *ret_size)
{
	struct slab *slab;

	hook_lock(&touched.lock);
	touched.is_urgent = true;
	pthread_cond_broadcast(&touched.changed);
	while (!touched.first && touched.n_running)
		hook_wait(&touched.changed, &touched.lock);
	slab = slab_take();
	hook_unlock(&touched.lock);
	return slab_give(slab, ret_addr, ret_size);
}

uint64_t touched_bytes(void)
{
	uint64_t bytes;

	hook_lock(&touched.lock);
	bytes = touched.ready_bytes + touched.touching;
	hook_unlock(&touched.lock);
	return bytes;
}

void touched_after_fork_child(void)
{
	hook_mutex_renew(&touched.lock, HOOK_LOCK_TOUCHED);
	pthread_cond_init(&touched.changed, NULL);
	touched.first = NULL;
	touched.last = &touched.first;
	touched.wanted = 0;
	touched.ready_bytes = 0;
	touched.touching = 0;
	touched.asking = 0;
	touched.n_running = 0;
	touched.n_forgotten++;
	touched.next_ns = 0;
}
