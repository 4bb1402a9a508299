/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Generated bodies; cuda_hooks.def says what each kind is. All but LOCK ask for room and try again
 * when the driver lacked memory. The driver takes memory by itself: it loads code at the first
 * launch, and a new stream has queues.
 */

#include "hook/freeze/freeze.h"
#include "hook/gate/gate.h"
#include "hook/memory/oom_retry.h"
#include "hook/table/cuda_real.h"
#include "hook/table/hooks.h"

#define HOOK_BODY_OWN(symbol, params, args)
#define HOOK_BODY_ENTER(enter, leave, symbol, params, args)                                    \
	CUresult symbol params                                                                 \
	{                                                                                      \
		CUresult(*real) params = __atomic_load_n(&cuda_real.symbol, __ATOMIC_RELAXED); \
		CUresult res;                                                                  \
                                                                                               \
		if (!real)                                                                     \
			return CUDA_ERROR_NOT_FOUND;                                           \
		enter();                                                                       \
		res = real args;                                                               \
		if (res == CUDA_ERROR_OUT_OF_MEMORY)                                           \
			ROOM_RETRY(res, real args);                                            \
		leave();                                                                       \
		return res;                                                                    \
	}

static void walk_enter(void)
{
	gate_begin_walk();
	gate_enter();
}

static void walk_leave(void)
{
	gate_leave();
	gate_end_walk();
}

#define HOOK_BODY_GATE(symbol, params, args) \
	HOOK_BODY_ENTER(gate_enter, gate_leave, symbol, params, args)
#define HOOK_BODY_COPY(symbol, params, args) \
	HOOK_BODY_ENTER(gate_enter_copy, gate_leave, symbol, params, args)
#define HOOK_BODY_WALK(symbol, params, args) \
	HOOK_BODY_ENTER(walk_enter, walk_leave, symbol, params, args)

/* The second try is inside the gate, so that nothing takes away the room that was made for it. */
#define HOOK_BODY_CONTROL(symbol, params, args)                                                \
	CUresult symbol params                                                                 \
	{                                                                                      \
		CUresult(*real) params = __atomic_load_n(&cuda_real.symbol, __ATOMIC_RELAXED); \
		CUresult res;                                                                  \
                                                                                               \
		if (!real)                                                                     \
			return CUDA_ERROR_NOT_FOUND;                                           \
		res = FREEZE_AROUND(real args);                                                \
		if (res != CUDA_ERROR_OUT_OF_MEMORY)                                           \
			return res;                                                            \
		gate_enter();                                                                  \
		ROOM_RETRY(res, real args);                                                    \
		gate_leave();                                                                  \
		return res;                                                                    \
	}

#define HOOK_BODY_LOCK(symbol, params, args)                                                   \
	CUresult symbol params                                                                 \
	{                                                                                      \
		CUresult(*real) params = __atomic_load_n(&cuda_real.symbol, __ATOMIC_RELAXED); \
                                                                                               \
		return real ? FREEZE_AROUND(real args) : CUDA_ERROR_NOT_FOUND;                 \
	}

#define CU_HOOK(kind, base, symbol, since, stream, params, args) \
	HOOK_BODY_##kind(symbol, params, args)
#define CU_REAL(base, symbol, since, stream, params)
#include "hook/table/cuda_hooks.def"
