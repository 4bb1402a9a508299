/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_PAGER_PRIVATE_H
#define NVS_HOOK_PAGER_PRIVATE_H

/*
 * What the parts of the pager share: pager.c (allocations), pager_find.c (what an address
 * lies in), pager_range.c (address ranges and their chunks), pager_memory.c (chunks that are the
 * program's own memory), pager_evict.c (out to the host), pager_restore.c (back), pager_plan.c
 * (which chunks), pager_mover.c (what copies run on).
 *
 * A range is reserved address space, cut into chunks of physical memory. It holds one
 * large allocation, or is shared by small ones. Everything here is guarded by pager.lock,
 * which nobody holds over a driver call: who works on a chunk makes it busy instead, and
 * who walks over ranges with the lock open holds a reference to each.
 */

#include "abi/cuda_abi.h"
#include "hook/base/hook_mutex.h"
#include "hook/host/extent.h"
#include "hook/host/hostpool.h"
#include "hook/memory/budget.h"
#include "hook/memory/rbtree.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAGER_LARGE      (1ull << 20) /* requests from here on get a range of their own */
#define PAGER_SHARED_MAX (32ull << 20)
#define PAGER_DEVICES    BUDGET_DEVICES
#define PAGER_IN_FLIGHT  8 /* chunks being copied at once */

/* So long a freeze goes on from a moment at which the driver was seen not to be in the way. */
#define PAGER_FREEZE_NS 1000000000ull

/* What the gate lets pass is on the card but for a moment. */
#define PAGER_LOOK_AGAIN_NS 1000000u

enum pager_state {
	PAGER_BUSY,     /* one thread works on it; pager.changed tells when it is done */
	PAGER_RESIDENT, /* mapped */
	PAGER_SWAPPED,  /* its bytes are in host memory */
	PAGER_DEAD,
};

struct pager_chunk {
	struct pager_range *range;
	CUdeviceptr addr; /* what copies read and write */
	size_t size;
	CUmemGenericAllocationHandle handle;
	struct hostpool_part *host; /* swapped, or resident and just restored: the same bytes */
	/* The worker's own, who made it busy, frees it (dead), or has not linked it yet. */
	bool is_mapped;     /* when swapped: it could not be unmapped, */
	bool is_stuck;      /* and is told so: budget_stuck() */
	bool is_exportable; /* its memory was made so, here */
	bool is_taken;      /* it came from another program */
	unsigned int kept;  /* its descriptor, transfer.h; 0: none */
	/* Written under the lock, once it is linked. */
	enum pager_state state;
	bool is_pinned;
	bool is_blank;        /* nothing was ever in it: there is nothing to copy */
	bool is_host_old;     /* busy, and host copies were dropped: its own goes as well */
	unsigned int n_holds; /* calls of the program that need it to stay where it is */
};

/* What a chunk's memory is and where it is mapped. Called by the one that made it busy. */
struct pager_ops {
	CUresult (*map)(struct pager_chunk *chunk); /* makes it and maps it; or nothing happened */
	CUresult (*unmap)(struct pager_chunk *chunk); /* takes it away; or nothing happened */
	CUresult (*reach)(struct pager_chunk *chunk); /* sets addr; NULL: it is always right */
	int pinned_kind; /* enum nvshare_pinned of those that must stay */
};

struct pager_range {
	struct pager_range *next, **link; /* pager_device::ranges */
	const struct pager_ops *ops;
	struct pager_arena *arena;   /* of a shared range; else NULL */
	struct pager_memory *memory; /* the program's own memory: one chunk; else NULL */
	CUcontext ctx;               /* NULL when it belongs to none */
	CUdevice dev;
	unsigned int n_refs;
	CUdeviceptr addr; /* 0: the addresses are the program's own */
	size_t size;
	size_t chunk_size; /* of all but the last, which has the rest */
	size_t n_chunks;
	struct pager_chunk chunks[];
};

/* Small allocations of one context. */
struct pager_arena {
	struct pager_arena *next; /* pager::arenas */
	CUcontext ctx;
	CUdevice dev;
	struct extent extent;
	struct pager_range *spare; /* empty, kept: a loop of one small allocation is common */
	bool is_dead; /* and its context: goes with the last that a thread is still to release */
};

struct pager_alloc {
	RB_ENTRY(pager_alloc) link;
	struct pager_alloc *next;  /* pager::put_off, or a list being worked on */
	struct pager_arena *arena; /* of a small one */
	struct pager_range *range; /* of a large one */
	CUcontext ctx;
	CUdevice dev;
	CUdeviceptr addr;
	size_t size; /* as asked for */
	uint64_t id;
	bool sync_memops;
	struct pools_block *block; /* of a pool: it decides what a free means; else NULL */
	CUmemoryPool pool;
};

RB_HEAD(pager_tree, pager_alloc);

struct pager_device {
	struct pager_range *ranges;
	size_t n_ranges;
	size_t n_out; /* chunks swapped */
	bool is_known;
	bool is_supported;
	bool is_rdma;       /* plain memory of the device is RDMA-capable, so ours has to be */
	bool is_exportable; /* ours is made so that it can be handed on; atomic */
	size_t granularity;
	unsigned int n_peers[PAGER_DEVICES]; /* contexts of that device that may reach us */
};

/* What a probe has mapped. */
struct pager_scrap {
	CUdeviceptr addr; /* 0: nothing */
	size_t size;
	CUmemGenericAllocationHandle handle;
	bool is_made; /* the handle was made for it */
};

/* A context's own stream for copies; neither the legacy stream nor ordered with it. */
struct pager_mover {
	struct pager_mover *next; /* pager::movers */
	CUcontext ctx;
	CUstream stream;
	CUevent events[PAGER_IN_FLIGHT];
	bool is_frozen;               /* the program is: who waits for a copy extends that */
	bool is_hung;                 /* a copy did not end in time, and may still */
	struct hostpool_part *parked; /* which it may write to, */
	struct pager_scrap scrap;     /* and this */
};

struct pager {
	struct hook_mutex lock;
	pthread_cond_t changed; /* a chunk is not busy any more */
	struct pager_tree allocs;
	struct pager_alloc *put_off; /* frees that wait for the end of a capture */
	struct pager_arena *arenas;
	struct pager_mover *movers;
	uint64_t last_id;
	struct pager_device devices[PAGER_DEVICES];
};

extern struct pager pager;

/* An allocation that the pager finds from now on, with a new identity. Lock not held. */
void pager_add(struct pager_alloc *alloc);

/*
 * Out of the books, still there. false: ptr is in nothing of the pager's; NULL: in the
 * middle of something. To be ended by pager_add() or, once nothing uses it, pager_release().
 */
bool pager_take(CUdeviceptr ptr, struct pager_alloc **ret_alloc);
void pager_release(struct pager_alloc *alloc);

/* pager_find.c. The live allocation, or the range of dev, that ptr lies in; lock held. */
struct pager_alloc *pager_alloc_at(CUdeviceptr ptr);
struct pager_range *pager_range_at(CUdevice dev, CUdeviceptr ptr); /* O(ranges): rare */

struct pager_device *pager_device(CUdevice dev); /* NULL: not one that we page */

/*
 * Reserves, charges and maps a new range of size bytes (a multiple of the granularity).
 * Inside one gate_enter().
 */
CUresult pager_range_new(CUdevice dev, CUcontext ctx, struct pager_arena *arena, size_t size,
			 struct pager_range **ret_range);

/* Puts it among its device's ranges. */
void pager_range_link(struct pager_range *range);

CUmemAllocationProp pager_properties(CUdevice dev); /* of every chunk of dev */

/* Takes the range's memory and addresses away and gives its bytes back, wherever they are. */
void pager_range_free(struct pager_range *range);

void pager_range_ref(struct pager_range *range); /* lock held */
void pager_range_unref(struct pager_range *range);

/*
 * All ranges of dev at the moment, with a reference to each, in an array to free().
 * false: no memory for it.
 */
bool pager_ranges(CUdevice dev, struct pager_range ***ret_ranges, size_t *ret_n);

/* A chunk's memory: made, mapped, open to its device and peers; or taken away again. */
CUresult pager_chunk_map(struct pager_chunk *chunk);
CUresult pager_chunk_unmap(struct pager_chunk *chunk);
/* What is out is on the card all the same, or not any more. */
void pager_chunk_stuck(struct pager_chunk *chunk, bool is_stuck);
/* Mapped where copies can read and write it. */
CUresult pager_chunk_reach(struct pager_chunk *chunk);

/*
 * In a context that is not frozen: each kind of call that moving memory takes, once, on a
 * little memory of its own, so that a lock of the driver that a frozen thread holds shows
 * before anything is given up (the watchdog thaws then). On a full card it reads chunk, which is
 * to go. copies, by mover, which is not hung: whether any will be made. Where there is host memory
 * it has a page registered and unregistered, too.
 * NVSHARE_OUTCOME_SUCCESS; _NO_HOST_MEMORY, which copies need; _GPU_HUNG: one does not end; or
 * _TIMEOUT: something failed.
 */
int pager_probe(CUdevice dev, struct pager_mover *mover, struct pager_chunk *chunk, bool copies);
/* What a copy that had hung has kept. */
void pager_probe_end(struct pager_scrap *scrap);

void pager_chunk_set(struct pager_chunk *chunk, enum pager_state state);
/* The same with the lock held; what is returned goes to hostpool_put() without it. */
struct hostpool_part *pager_chunk_set_locked(struct pager_chunk *chunk, enum pager_state state);

/* Counts a chunk as out, or not any more; true when no chunk of its device is out. */
bool pager_chunk_out(struct pager_chunk *chunk, bool is_out);

/*
 * The host copies of restored chunks are kept as long as others are still out, so that a
 * restore that is called off costs no second copy. With nothing out the program may run,
 * and they grow stale.
 */
void pager_drop_host_copies(CUdevice dev);

/* The current context's, made at first need; NULL: it can not be had. is_hung is up to date. */
struct pager_mover *pager_mover(void);

/*
 * Until the copies before an event, or all, have ended: what the driver says of them;
 * CUDA_ERROR_NOT_READY: they do not, within NVSHARE_COPY_MAX_MS, and it is hung. Then nothing
 * that they read or write may go: parked is host memory that is given back when they have.
 */
CUresult pager_mover_wait(struct pager_mover *mover, size_t slot);
CUresult pager_mover_settle(struct pager_mover *mover);
/* That one has ended, or failed. */
bool pager_mover_has_ended(const struct pager_mover *mover, size_t slot);
void pager_mover_park(struct pager_mover *mover, struct hostpool_part *parts);

/* Makes ctx current for the caller if it is not; ends with the same pushed flag. */
CUresult pager_push(CUcontext ctx, bool *ret_pushed);
void pager_pop(bool pushed);

#endif
