/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVSHARE_NVSHARE_H
#define NVSHARE_NVSHARE_H

/*
 * Optional calls for programs that know more than the library can see: when a request begins
 * and ends, when the next one is due, and how much of the GPU they should get.
 *
 * The functions live in libnvshare.so and are weak symbols: a program needs no extra library to
 * link. They are NULL unless the library is preloaded or linked; nvshare_is_loaded() tells:
 *
 *     if (nvshare_is_loaded())
 *             nvshare_hint_prepare(2000);
 *
 * Threading: any thread may call them, before or after CUDA is first used. They never wait for
 * the GPU and never change errno. A child of fork() begins anew, without its parent's calls.
 *
 * Unless a function says otherwise, it returns 0 or one of
 *     -ENOTCONN  no scheduler manages this process now
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

#define NVSHARE_HINT_US_MAX  1000000u /* a hint reaches at most one second ahead */
#define NVSHARE_REQUESTS_MAX 1024     /* open requests of a process */

/* nvshare_status::flags */
#define NVSHARE_STATUS_MANAGED    (1u << 0) /* a scheduler manages the process */
#define NVSHARE_STATUS_RUNNING    (1u << 1) /* the process may submit work now */
#define NVSHARE_STATUS_BUSY       (1u << 2) /* the process has work on the GPU */
#define NVSHARE_STATUS_HELD       (1u << 3) /* the scheduler keeps it off the GPU now, for others */
#define NVSHARE_STATUS_LIMITED    (1u << 4) /* its compute limit keeps it off the GPU now */
#define NVSHARE_STATUS_CAN_FREEZE (1u << 5) /* its kernels can be taken off while they run */

/* One process on one GPU. Times count from its first use of the GPU; sizes are bytes. */
struct nvshare_status {
	uint32_t flags;
	uint32_t client;            /* its number at the scheduler; 0: none */
	struct nvshare_claim claim; /* as granted */
	uint64_t slice_us;          /* its timeslice; 0: the driver's default */

	uint64_t busy_ns; /* it had work on the GPU */
	uint64_t gpu_ns;  /* the part of busy_ns in which its own work had the GPU */
	uint64_t held_ns; /* it was kept off the GPU, for others or by its limit */
	uint64_t n_holds;
	uint64_t n_hold_failures;
	uint64_t hold_took_ns_last; /* from the order until its channels were off */
	uint64_t hold_took_ns_max;

	uint64_t n_tasks; /* ended requests; ended bursts of work, if it never began a request */
	uint64_t n_slo_violations;
	uint64_t n_hints;
	uint64_t task_ns_last;
	uint64_t task_ns_avg; /* of all tasks */
	uint64_t task_ns_p50; /* of the last 256 */
	uint64_t task_ns_p99; /* of the last 256 */
	uint64_t task_ns_max; /* of all tasks */

	uint64_t memory_allocated;
	uint64_t memory_resident; /* on the card, movable */
	uint64_t memory_swapped;  /* in host memory */
	uint64_t memory_pinned;   /* on the card, not movable */
};

/*
 * Announces a request that will begin in us microseconds, 0 to NVSHARE_HINT_US_MAX: the
 * scheduler takes other clients off the GPU in time. 0 withdraws the hint. A hint lapses about
 * 9 ms after the request was due, when others have been held for it for 10 ms. It has an effect
 * only if the program is latency-critical; otherwise the scheduler just counts it.
 */
NVSHARE_API int nvshare_hint_prepare(uint32_t us);

/*
 * Mark the begin and the end of a request. The library compares its duration with the SLO, and
 * the scheduler keeps others off the GPU until it ends. Several requests may be open at a time,
 * and another thread may end one. Durations are measured without a scheduler, too. As long as a
 * program never begins a request, each burst of its work counts as one.
 *
 * begin returns a number for end, from 1, or -EAGAIN if NVSHARE_REQUESTS_MAX requests are open.
 * end returns -EINVAL if no such request is open.
 */
NVSHARE_API int64_t nvshare_request_begin(void);
NVSHARE_API int nvshare_request_end(int64_t request);

/*
 * Change a claim of the process, like the variables NVSHARE_PRIORITY, NVSHARE_WEIGHT,
 * NVSHARE_SLO_MS and NVSHARE_COMPUTE_LIMIT. Each call waits for the scheduler's answer, at most
 * one second; nvshare_status() shows the granted values.
 *     -ENOTCONN   the library will claim the value when it reaches a scheduler
 *     -EACCES     the scheduler refused; the former value stays
 *     -ETIMEDOUT  no answer: the scheduler may have set the value or not. Claim it again
 */
NVSHARE_API int nvshare_set_priority(enum nvshare_priority priority);
NVSHARE_API int nvshare_set_weight(uint32_t weight);         /* NVSHARE_WEIGHT_MIN to _MAX */
NVSHARE_API int nvshare_set_slo(uint32_t us);                /* to NVSHARE_SLO_US_MAX; 0: none */
NVSHARE_API int nvshare_set_compute_limit(uint32_t percent); /* 1 to 100; 0: none */

/*
 * Fills ret for the GPU with this CUDA ordinal; -1: the first GPU that the process uses. size
 * is sizeof(*ret): the library zeroes fields that only a later header has. Works without a
 * scheduler, too. -ENODEV: the process does not use that GPU.
 */
NVSHARE_API int nvshare_status(int device, struct nvshare_status *ret, size_t size);

#ifndef NVSHARE_IS_LIBRARY
/* 1 if the library is loaded, else 0. The caller must be position-independent code. */
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
