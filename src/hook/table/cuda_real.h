/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_CUDA_REAL_H
#define NVS_HOOK_CUDA_REAL_H

/*
 * The driver's own functions, one typed member each.
 *
 * An intercepted function may be called before anybody loaded the driver: until then
 * its member is a stand-in that loads the driver and forwards. After that a member is
 * the driver's function, or NULL where the installed driver lacks it.
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
