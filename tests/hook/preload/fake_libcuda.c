/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A libcuda.so.1 that does nothing: every listed function succeeds. Weak, so that
 * fake_lookup.c can define the ones that are tested with it: who answers a look-up.
 */

#include "abi/cuda_abi.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC visibility push(default)

#define FAKE(symbol, params)                         \
	CUresult symbol params;                      \
	__attribute__((weak)) CUresult symbol params \
	{                                            \
		return CUDA_SUCCESS;                 \
	}
#define CU_HOOK(kind, base, symbol, since, stream, params, args) FAKE(symbol, params)
#define CU_REAL(base, symbol, since, stream, params)             FAKE(symbol, params)
#include "hook/table/cuda_hooks.def"
