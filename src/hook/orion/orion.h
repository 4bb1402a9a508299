/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_ORION_H
#define NVS_HOOK_ORION_H

/*
 * The scheduler inside the process, as the intercepted functions see it. Each call that submits
 * work goes through these steps:
 *
 *     ORION_BEGIN(&call, stream, work);  waits until the policy lets the work go
 *     the gate
 *     orion_mark(&call);                 an event before work that is measured
 *     the driver's function
 *     orion_end(&call, res);             an event behind the work
 *
 * The first step is outside the gate: a client that waits for another one keeps nobody from
 * draining. A call that is not scheduled passes through the steps untouched. Without a scheduler
 * in the process they cost a load of one word.
 *
 * Threading: any thread. errno stays as it was.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum orion_kind {
	ORION_KERNEL,
	ORION_GRAPH,
	ORION_COPY_BUS, /* it may cross the bus */
	ORION_COPY_DEVICE,
};

/* The work of one call. */
struct orion_work {
	enum orion_kind kind;
	const void *function; /* CUfunction, CUkernel or CUgraphExec; NULL: a copy */
	uint64_t blocks;      /* of a kernel's grid in all */
	uint32_t threads;     /* of a block in all */
	uint32_t shared;      /* dynamic shared memory of a block, bytes */
	uint64_t bytes;       /* of a copy */
};

struct orion_flight;

/* One call, on the caller's stack. */
struct orion_call {
	struct orion_flight *flight; /* NULL: it is not scheduled */
	CUstream stream;             /* that the work goes to */
	int cancel_state;            /* of the thread, before the call */
};

/* Written under the lock of orion_private.h. */
extern bool orion_is_taking;

/* stream: for the driver's functions without suffix. NULL is the legacy default stream. */
void orion_begin(struct orion_call *call, CUstream stream, const struct orion_work *work);
void orion_mark_now(struct orion_call *call);
void orion_end_now(struct orion_call *call, CUresult res);

/* work is evaluated only where somebody takes it. */
#define ORION_BEGIN(call, its_stream, work)                                               \
	do {                                                                              \
		(call)->flight = NULL;                                                    \
		(call)->stream = (its_stream);                                            \
		if (__builtin_expect(__atomic_load_n(&orion_is_taking, __ATOMIC_RELAXED), \
				     false)) {                                            \
			struct orion_work work_ = work;                                   \
                                                                                          \
			orion_begin(call, (call)->stream, &work_);                        \
		}                                                                         \
	} while (0)

static inline void orion_mark(struct orion_call *call)
{
	if (__builtin_expect(call->flight != NULL, false))
		orion_mark_now(call);
}

static inline void orion_end(struct orion_call *call, CUresult res)
{
	if (__builtin_expect(call->flight != NULL, false))
		orion_end_now(call, res);
}

/* ---- what the program ends ---- */

/* Before the driver destroys it: the handle may mean another one afterwards. */
void orion_stream_gone(CUstream stream);
void orion_context_gone(CUcontext ctx); /* with its green ones */
void orion_graph_gone(CUgraphExec graph);
void orion_code_gone(void); /* a module or a library, with its functions */

void orion_after_fork_child(void);

#endif
