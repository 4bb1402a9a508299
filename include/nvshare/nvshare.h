/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVSHARE_NVSHARE_H
#define NVSHARE_NVSHARE_H

/*
 * For programs that know more than the library can see: when a request begins and ends, when
 * one is about to, and how much of the GPU they should get. None of it has to be called.
 *
 * The functions are in libnvshare.so and declared weak: in a program that is neither run with
 * the library preloaded nor linked with it they are NULL, which nvshare_is_loaded() says. So
 * nothing has to be linked, and the same program runs with and without:
 *
 *     if (nvshare_is_loaded())
 *             nvshare_hint_prepare(2000);
 *
 * They never wait for the GPU, never change errno, and may be called from any thread, before
 * or after CUDA is first used. In a child of fork() nothing is known of what its parent did.
 *
 * Results: 0 (or what is said), else
 *     -ENOTCONN  no scheduler looks after this process now
 *     -EINVAL    an argument is out of range
 */

#include "nvshare/claim.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow" /* a structure and a function of one name */
#endif

#ifdef NVSHARE_IS_LIBRARY
#define NVSHARE_API __attribute__((visibility("default")))
#else
#define NVSHARE_API __attribute__((weak))
#endif

#define NVSHARE_HINT_US_MAX  1000000u /* nothing that is further off is worth a hint */
#define NVSHARE_REQUESTS_MAX 1024     /* open at a time */

/* nvshare_status::flags */
#define NVSHARE_STATUS_MANAGED    (1u << 0) /* a scheduler looks after the process */
#define NVSHARE_STATUS_RUNNING    (1u << 1) /* it may submit work now */
#define NVSHARE_STATUS_BUSY       (1u << 2) /* it has work on the GPU */
#define NVSHARE_STATUS_HELD       (1u << 3) /* it is kept off the GPU just now, for others */
#define NVSHARE_STATUS_LIMITED    (1u << 4) /* the same, by its own compute limit */
#define NVSHARE_STATUS_CAN_FREEZE (1u << 5) /* its kernels can be taken off while they run */

/* Times in nanoseconds, since the process first used the GPU; sizes in bytes. */
struct nvshare_status {
	uint32_t flags;
	uint32_t client;            /* the scheduler's number for it; 0: none */
	struct nvshare_claim claim; /* as it was given, not as it was asked */
	uint64_t slice_us;          /* its timeslice; 0: the driver's */

	uint64_t busy_ns; /* with work on the GPU */
	uint64_t gpu_ns;  /* of that, what the GPU was its own: the rest went to others */
	uint64_t held_ns; /* kept off the GPU, for others or by its limit */
	uint64_t n_holds;
	uint64_t n_hold_failures;
	uint64_t hold_took_ns_last; /* from the order to the channels being off */
	uint64_t hold_took_ns_max;

	uint64_t n_tasks; /* requests that have ended; where none are told, bursts of work */
	uint64_t n_slo_violations;
	uint64_t n_hints;
	uint64_t task_ns_last;
	uint64_t task_ns_avg; /* of all */
	uint64_t task_ns_p50; /* of the last 256 */
	uint64_t task_ns_p99;
	uint64_t task_ns_max; /* of all */

	uint64_t memory_allocated;
	uint64_t memory_resident; /* on the card, and can be moved */
	uint64_t memory_swapped;  /* in host memory */
	uint64_t memory_pinned;   /* on the card, and can not */
};

/*
 * A request will begin in us microseconds: others are taken off the GPU in time for it. 0: it
 * will not, after all. It lapses by itself 10 ms after others are held for it, some 9 ms after
 * it was due. Only a latency-critical program's hints have an effect; of others they are counted.
 */
NVSHARE_API int nvshare_hint_prepare(uint32_t us);

/*
 * Around a request: what it takes is measured against the service level, and others are kept
 * away until it ends. Several may be open at a time, and one may end in another thread. begin:
 * a number, from 1, for end; or -EAGAIN: NVSHARE_REQUESTS_MAX are open. Where no request was
 * ever told, the library takes each burst of work for one. end: -EINVAL: no such request.
 * Without a scheduler they are measured all the same.
 */
NVSHARE_API int64_t nvshare_request_begin(void);
NVSHARE_API int nvshare_request_end(int64_t request);

/*
 * Claims, as by NVSHARE_PRIORITY, NVSHARE_WEIGHT, NVSHARE_SLO_MS and NVSHARE_COMPUTE_LIMIT. The
 * scheduler decides, and is asked before they return; nvshare_status() shows what was given.
 * -ENOTCONN: it is claimed when there is one. -EACCES: the scheduler refused, and what was
 * claimed before counts. -ETIMEDOUT: it has not answered within a second, and may have heard it or
 * not; the next one will, so what is to count with this one is claimed once more.
 */
NVSHARE_API int nvshare_set_priority(enum nvshare_priority priority);
NVSHARE_API int nvshare_set_weight(uint32_t weight);         /* NVSHARE_WEIGHT_MIN to _MAX */
NVSHARE_API int nvshare_set_slo(uint32_t us);                /* to NVSHARE_SLO_US_MAX; 0: none */
NVSHARE_API int nvshare_set_compute_limit(uint32_t percent); /* 1 to 100; 0: none */

/*
 * How this process fares on a GPU, by its CUDA ordinal; -1: the first that it uses. size is
 * sizeof(*ret): a longer structure of a later header has zeros where this library knows
 * nothing. Answers without a scheduler, too. -ENODEV: the process does not use that GPU.
 */
NVSHARE_API int nvshare_status(int device, struct nvshare_status *ret, size_t size);

#ifndef NVSHARE_IS_LIBRARY
/* 1: the library is there. Wants position independent code, as compilers make it today. */
static inline int nvshare_is_loaded(void)
{
	return nvshare_status != NULL;
}
#endif

#ifdef __cplusplus
#pragma GCC diagnostic pop
}
#endif

#endif
