/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_PAGER_PRIVATE_H
#define NVS_HOOK_PAGER_PRIVATE_H

/*
 * The parts of the pager: pager.c has allocations; pager_find.c finds what an address lies in;
 * pager_range.c has address ranges; pager_chunk.c their chunks; pager_memory.c chunks that are the
 * program's own memory; pager_evict.c moves out; pager_restore.c moves back; pager_plan.c chooses
 * chunks; pager_mover.c has the streams of copies.
 *
 * A range is reserved address space, cut into chunks of physical memory. It holds one large
 * allocation, or many small ones. pager.lock guards everything here, and no thread holds it over a
 * driver call. A thread that works on a chunk makes it busy instead. A thread that walks over
 * ranges without the lock holds a reference to each.
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

/* When the driver has answered, a freeze may go on for so long. */
#define PAGER_FREEZE_NS 1000000000ull

/* Memory can be out for a moment although the gate lets pass; a thread looks again after this. */
#define PAGER_LOOK_AGAIN_NS 1000000u

enum pager_state {
	PAGER_BUSY,     /* one thread works on it; pager.changed tells when it is done */
	PAGER_RESIDENT, /* mapped */
	PAGER_SWAPPED,  /* its bytes are in host memory */
	PAGER_DEAD,
};

struct pager_chunk {
	struct pager_range *range;
	CUdeviceptr addr; /* copies read and write there */
	size_t size;
	CUmemGenericAllocationHandle handle;
	struct hostpool_part *host; /* swapped; or resident, with a copy (pager_copy.h) */
	/* The worker's: it has made the chunk busy, frees it (dead), or has not linked it yet. */
	size_t copied;  /* so many bytes from the start are in host, as they were at stamp */
	uint64_t stamp; /* gate_openings() */
	struct digest *digests; /* of all bytes in host; NULL: unknown */
	struct digest *taken;   /* of those on the card, which are being copied; NULL: unknown */
	bool is_mapped;         /* when swapped: it could not be unmapped */
	bool is_stuck;          /* budget_stuck() knows of that */
	bool is_exportable;     /* its memory was made so, here */
	bool is_taken;          /* its memory came from another program */
	unsigned int kept;      /* its descriptor, transfer.h; 0: none */
	/* The lock, once it is linked. */
	enum pager_state state;
	bool is_pinned;
	bool is_pinned_to_share; /* for tickets alone, which may let it move again */
	bool is_shared;          /* other processes may have it mapped, and write to it */
	bool is_blank;           /* never used, so there is nothing to copy */
	bool is_planned;         /* to be evicted, in an eviction under way */
	bool is_host_old;        /* busy while host copies were dropped: its own is to go, too */
	unsigned int n_holds;    /* calls of the program that need it to stay where it is */
	const struct pager_mover *hung_in; /* a copy of it that did not end may still run there */
};

/* How a chunk's memory is made and mapped. The thread that has made the chunk busy calls these. */
struct pager_ops {
	CUresult (*map)(struct pager_chunk *chunk);   /* makes and maps it; an error: did nothing */
	CUresult (*unmap)(struct pager_chunk *chunk); /* takes it away; an error: did nothing */
	CUresult (*reach)(struct pager_chunk *chunk); /* sets addr; NULL: addr is always right */
	int pinned_kind; /* enum nvshare_pinned of chunks that must stay */
};

struct pager_range {
	RB_ENTRY(pager_range) by_addr;    /* pager::ranges; only with addresses of ours */
	struct pager_range *next, **link; /* pager_device::ranges */
	const struct pager_ops *ops;
	struct pager_arena *arena;   /* of a shared range; else NULL */
	struct pager_memory *memory; /* the program's own memory: one chunk; else NULL */
	CUcontext ctx;               /* NULL: it belongs to none */
	CUdevice dev;
	unsigned int n_refs;
	CUdeviceptr addr; /* 0: the addresses are the program's own */
	size_t size;
	size_t chunk_size; /* the last chunk has the rest */
	size_t n_chunks;
	struct pager_chunk chunks[];
};

/* Small allocations of one context. */
struct pager_arena {
	struct pager_arena *next; /* pager::arenas */
	CUcontext ctx;
	CUdevice dev;
	struct extent extent;
	struct pager_range *spare; /* an empty one; loops of one small allocation are common */
	unsigned int n_users;      /* threads that make a range for it */
	bool is_dead;              /* its context has ended; the last release or user frees it */
};

struct pager_alloc {
	RB_ENTRY(pager_alloc) link;
	struct pager_alloc *next;  /* pager::put_off, or a list being worked on */
	struct pager_arena *arena; /* of a small allocation */
	struct pager_range *range; /* of a large allocation */
	CUcontext ctx;
	CUdevice dev;
	CUdeviceptr addr;
	size_t size; /* as asked for */
	uint64_t id;
	bool sync_memops;
	struct pools_block *block; /* of a pool, which then decides about frees; else NULL */
	CUmemoryPool pool;
};

RB_HEAD(pager_tree, pager_alloc);

RB_HEAD(pager_range_tree, pager_range);

struct pager_device {
	struct pager_range *ranges;
	size_t n_ranges;
	size_t n_out; /* chunks swapped */
	bool is_known;
	bool is_supported;
	bool is_rdma;       /* the device's plain memory is RDMA-capable, so ours must be */
	bool is_exportable; /* atomic; ours is made so that it can be handed over */
	size_t granularity;
	unsigned int n_peers[PAGER_DEVICES]; /* contexts of each device that may reach this one */
	uint64_t copied_ahead, saved;        /* pager_copies */
};

/* Memory that a probe has mapped. */
struct pager_scrap {
	CUdeviceptr addr; /* 0: nothing */
	size_t size;
	CUmemGenericAllocationHandle handle;
	bool is_made; /* the handle was made for it */
};

/* Our stream for copies in a context. It is not ordered with the legacy stream. */
struct pager_mover {
	struct pager_mover *next; /* pager::movers */
	CUcontext ctx;
	CUstream stream;
	CUstream hash_stream; /* digests do not wait for copies */
	CUevent events[PAGER_IN_FLIGHT];
	bool is_frozen;               /* the program is frozen: waiting for a copy extends that */
	bool is_hung;                 /* a copy did not end in time, and may still land */
	struct hostpool_part *parked; /* the hung copy may write to these, */
	struct pager_scrap scrap;     /* and to this */
};

/* A wait for a copy, which is looked at now and then. */
struct pager_wait {
	uint64_t before_ns; /* the last look; 0: none yet */
	uint64_t waited_ns;
	uint64_t extend_ns; /* of waited_ns: when a freeze is extended again */
};

/* All under the lock. */
struct pager {
	struct hook_mutex lock;
	pthread_cond_t changed; /* a chunk is not busy any more */
	struct pager_tree allocs;
	struct pager_range_tree ranges;
	struct pager_alloc *put_off; /* frees that wait for the end of a capture */
	struct pager_arena *arenas;
	struct pager_mover *movers;
	uint64_t last_id;
	struct pager_device devices[PAGER_DEVICES];
	struct pager_moving *evictions; /* the agent's: those under way, the first one first */
	size_t n_moves;                 /* the same; evictions and restores */
};

extern struct pager pager;

/* Adds the allocation to the books, with a new identity. Call it without the lock. */
void pager_add(struct pager_alloc *alloc);

/*
 * Takes the allocation at ptr out of the books; its memory stays. false: ptr lies in no memory of
 * the pager's. *ret_alloc is NULL: ptr is not the start of an allocation. End it by pager_add(), or
 * by pager_release() once nothing uses the memory.
 */
bool pager_take(CUdeviceptr ptr, struct pager_alloc **ret_alloc);
void pager_release(struct pager_alloc *alloc);

/* pager_find.c. Lock held: the live allocation, or our range, that ptr lies in; or NULL. */
struct pager_alloc *pager_alloc_at(CUdeviceptr ptr);
struct pager_range *pager_range_at(CUdeviceptr ptr);

struct pager_device *pager_device(CUdevice dev); /* NULL: the pager has no such device */

/*
 * Reserves, charges and maps a new range of size bytes (a multiple of the granularity).
 * Inside one gate_enter().
 */
CUresult pager_range_new(CUdevice dev, CUcontext ctx, struct pager_arena *arena, size_t size,
			 struct pager_range **ret_range);

/* Puts it among its device's ranges. */
void pager_range_link(struct pager_range *range);

CUmemAllocationProp pager_properties(CUdevice dev); /* of every chunk of dev */

/* Frees the range's memory and addresses, and gives its bytes back, in or out. */
void pager_range_free(struct pager_range *range);

void pager_range_ref(struct pager_range *range); /* lock held */
void pager_range_unref(struct pager_range *range);

/* All ranges of dev, with a reference to each, in an array that the caller frees. false: no memory.
 */
bool pager_ranges(CUdevice dev, struct pager_range ***ret_ranges, size_t *ret_n);

/* pager_chunk.c. The ops of chunks that hold allocations. */
extern const struct pager_ops pager_chunk_ops;

/* A chunk's memory: made, mapped, open to its device and peers; or taken away again. */
CUresult pager_chunk_map(struct pager_chunk *chunk);
CUresult pager_chunk_unmap(struct pager_chunk *chunk);
/* A chunk that is out is still on the card, or is not any more. */
void pager_chunk_stuck(struct pager_chunk *chunk, bool is_stuck);
/* Makes it mapped where copies can read and write it. */
CUresult pager_chunk_reach(struct pager_chunk *chunk);

/*
 * In a context that is not frozen, makes each kind of call once that moving memory takes, on a
 * little memory of its own. A lock of the driver that a frozen thread holds shows so before
 * anything is given up: the watchdog thaws then. On a full card it reads chunk, which is to go.
 * copies: it copies by mover, which is not hung. Where there is host memory, it registers and
 * unregisters a page.
 *
 * NVSHARE_OUTCOME_SUCCESS; _NO_HOST_MEMORY, which copies need; _GPU_HUNG: a copy does not end;
 * _TIMEOUT: a call failed.
 */
int pager_probe(CUdevice dev, struct pager_mover *mover, struct pager_chunk *chunk, bool copies);
/* Frees the memory that a hung copy has kept; the copy has ended. */
void pager_probe_end(struct pager_scrap *scrap);

/* Makes chunk busy if it is still in state, and may move. */
bool pager_claim(struct pager_chunk *chunk, enum pager_state state);
void pager_chunk_set(struct pager_chunk *chunk, enum pager_state state);

/*
 * A thread works on the chunk, or a hung copy may. The memory must stay mapped until pager.changed
 * tells of the end. Lock held.
 */
static inline bool pager_chunk_is_in_work(const struct pager_chunk *chunk)
{
	return chunk->state == PAGER_BUSY || chunk->hung_in;
}

/* The same with the lock held. Pass the result to hostpool_put() without the lock; NULL: nothing.
 */
struct hostpool_part *pager_chunk_set_locked(struct pager_chunk *chunk, enum pager_state state);

/* Counts a chunk as out, or not any more. true: no chunk of its device is out. */
bool pager_chunk_out(struct pager_chunk *chunk, bool is_out);

/* The current context's mover, made at first need; NULL: it cannot be had. Updates is_hung. */
struct pager_mover *pager_mover(void);

/*
 * poll looks whether the copies before an event have ended; *ret_pause_ns: when to look again, or
 * 0. The others wait for all copies, or for digests. All return the driver's result.
 * CUDA_ERROR_NOT_READY (poll: without a pause): they do not end within NVSHARE_COPY_MAX_MS, and the
 * mover is hung. No memory of theirs may go then. Parked host memory is given back when they have
 * ended.
 */
CUresult pager_mover_poll(struct pager_mover *mover, size_t slot, struct pager_wait *wait,
			  uint64_t *ret_pause_ns);
CUresult pager_mover_settle(struct pager_mover *mover);
CUresult pager_mover_wait_hash(struct pager_mover *mover);
/* The copies before the event have ended, or failed. */
bool pager_mover_has_ended(const struct pager_mover *mover, size_t slot);

/*
 * The mover is hung. Keeps chunk (NULL: none) mapped and parts (NULL: none) in host memory until
 * the copies under way have ended.
 */
void pager_mover_park(struct pager_mover *mover, struct pager_chunk *chunk,
		      struct hostpool_part *parts);

/* Makes ctx current for the caller, if it is not. pager_pop() takes the same flag. */
CUresult pager_push(CUcontext ctx, bool *ret_pushed);
void pager_pop(bool pushed);

#endif
