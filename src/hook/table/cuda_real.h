/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_CUDA_REAL_H
#define NVS_HOOK_CUDA_REAL_H

/*
 * The driver's own functions, one typed member each.
 *
 * A program may call an intercepted function before the driver is loaded. Until then the function's
 * member is a stand-in, which loads the driver and forwards. Afterwards it is the driver's
 * function, or NULL if the installed driver lacks it.
 *
 * Threading: any thread; members change only from stand-in to final.
 */

#include "abi/cuda_abi.h"

#include <stddef.h>

struct cuda_real {
#define CU_HOOK(kind, base, symbol, since, stream, params, args) CUresult(*symbol) params;
#define CU_REAL(base, symbol, since, stream, params)             CUresult(*symbol) params;
#include "hook/table/cuda_hooks.def"
};

extern struct cuda_real cuda_real;

typedef void *(*cuda_real_dlsym_fn)(void *handle, const char *symbol);

/* Fills cuda_real; returns how many symbols libcuda lacks. Two threads may do it at once. */
unsigned int cuda_real_load(cuda_real_dlsym_fn real_dlsym, void *libcuda);

#endif
