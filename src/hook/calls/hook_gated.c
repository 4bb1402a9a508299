/* SPDX-License-Identifier: Apache-2.0 */

/* Bodies of the GATE hooks, all alike: wait for the GPU, then forward. */

#include "hook/gate/gate.h"
#include "hook/table/cuda_real.h"
#include "hook/table/hooks.h"

#define HOOK_BODY_OWN(symbol, params, args)
#define HOOK_BODY_GATE(symbol, params, args)                                                   \
	CUresult symbol params                                                                 \
	{                                                                                      \
		CUresult(*real) params = __atomic_load_n(&cuda_real.symbol, __ATOMIC_RELAXED); \
		CUresult res;                                                                  \
                                                                                               \
		if (!real)                                                                     \
			return CUDA_ERROR_NOT_FOUND;                                           \
		gate_enter();                                                                  \
		res = real args;                                                               \
		gate_leave();                                                                  \
		return res;                                                                    \
	}

#define CU_HOOK(kind, base, symbol, since, stream, params, args) \
	HOOK_BODY_##kind(symbol, params, args)
#define CU_REAL(base, symbol, since, stream, params)
#include "hook/table/cuda_hooks.def"
