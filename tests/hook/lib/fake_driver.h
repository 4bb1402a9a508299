/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_HOOK_FAKE_DRIVER_H
#define NVS_TESTS_HOOK_FAKE_DRIVER_H

/*
 * The few driver functions that the agent calls, and the pager, for tests of the agent
 * and of draining. A program that refers to it has cuda_real, pager_*() and freeze_*() from here,
 * in place of the library's. Counters are atomic: the agent's thread calls.
 */

#include "abi/cuda_abi.h"
#include "hook/pager/pager_ops.h"
#include "hook/table/cuda_real.h"

#include <stdbool.h>
#include <stdint.h>

#define FAKE_TOTAL  (1ull << 30)
#define FAKE_SECOND ((CUcontext)0x5ec0)
#define FAKE_SLAB   (16ull << 20)

struct fake_driver {
	int is_working;   /* submitted work is not done */
	int is_away;      /* others' slice: a time is not written before it ends */
	int answered_us;  /* so long before the end of the work it was, by the events' times */
	int is_gone;      /* both at once: the work is done, and its time is written */
	int is_answered;  /* the last time that was asked for was written, and stays so */
	int n_timed;      /* times asked for on a stream of its own */
	int record_error; /* what cuCtxRecordEvent answers */
	int query_error;  /* what cuEventQuery answers */
	int event_error;  /* what cuEventCreate answers */
	int n_records;
	int n_queries; /* of events */
	int n_synchronizes;
	int n_launches; /* of the kernel that does nothing */
	int n_loads;    /* of its module */
	int load_error; /* what cuModuleLoadData answers */
	int n_evictions;
	int n_restores;
	int n_prepares;
	int n_urgent;     /* of those */
	int n_touches;    /* host memory, and nothing else; */
	uint64_t touched; /* so much, the last time */
	int n_slabs;      /* touched ones that nobody has added yet */
	int register_ms;  /* how long registering one takes */
	int n_trims;
	uint64_t host;      /* what hostpool_bytes() says; of it */
	uint64_t host_used; /* so much can not be given back */
	int n_gives;        /* of FAKE_SLAB at the most */
	int evict_outcome;
	int restore_outcome;
	int can_freeze;
	int freeze_error; /* what freeze_begin() answers */
	int is_frozen;
	int is_committed;
	int is_late;     /* the watchdog has thawed when a freeze is to be committed */
	int is_proven;   /* a bit for each device */
	int proof_fails; /* kernels are in its way */
	int n_proofs;
	int n_holds;            /* freeze_begin_compute() */
	uint64_t hold_limit_ns; /* of the last of them */
	int hold_ms;            /* which takes so long, */
	int n_busy;             /* and finds a thread in the driver so often */
	int n_extends;          /* of a freeze that was on */
	int n_widened;
	uint64_t slice_us;
	int has_no_groups; /* freeze_set_timeslice() finds none */
	int n_freezes;
	int n_thaws;
	int stays_off; /* a thaw has left something off */
	int n_backs;   /* times that the agent tried to put it back */
	int n_seconds; /* asked for a second context */
	int n_second_drops;
	int n_to_copy; /* pieces that can be copied ahead; so many are: */
	int n_copied;
	int n_loose;    /* slabs of the second context, registered nowhere when it is gone */
	int has_second; /* a bit for each device */
	int no_second;  /* the same: none can be had */
	int evict_was_frozen;
	int capture_mode;
	uint64_t evict_bytes; /* asked for */
	uint64_t evict_first; /* so much is gone when on_first is called; then goes the rest */
	bool (*on_first)(CUdevice dev, uint64_t bytes); /* again after a pause while it is true */
	/* Half is in, and there is no budget for more; again after a pause while NOT_YET. */
	enum pager_more (*on_part)(CUdevice dev);
	uint64_t swapped;
	int n_parks;          /* opened_park() */
	int n_returned;       /* tickets_return() */
	int is_ticket_wanted; /* an opener waits for memory that is out */
	int is_ticket_used;   /* tickets_are_used() */
	int is_opened_parked; /* opened memory is not mapped, */
	int is_opened_away;   /* and cannot be yet */
};

extern struct fake_driver fake_driver;

#define fake_get(member)        __atomic_load_n(&fake_driver.member, __ATOMIC_SEQ_CST)
#define fake_set(member, value) __atomic_store_n(&fake_driver.member, value, __ATOMIC_SEQ_CST)
#define fake_count(member)      ((void)__atomic_add_fetch(&fake_driver.member, 1, __ATOMIC_SEQ_CST))

/* As new, and in cuda_real. */
void fake_install(void);

#endif
