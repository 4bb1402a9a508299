/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_HOOKS_H
#define NVS_HOOK_HOOKS_H

/*
 * Prototypes of all functions that we export in the driver's place. Bodies of the kind OWN are in
 * the hook_*.c by family, all others in hook_gated.c. Each of these files includes this one. So a
 * body that differs from its entry in cuda_hooks.def does not compile.
 */

#include "abi/cuda_abi.h"

#pragma GCC visibility push(default)
#define CU_HOOK(kind, base, symbol, since, stream, params, args) CUresult symbol params;
#define CU_REAL(base, symbol, since, stream, params)
#include "hook/table/cuda_hooks.def"
#pragma GCC visibility pop

#endif
