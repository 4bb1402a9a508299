/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_MODULE_H
#define NVS_SIMGPU_CUDA_MODULE_H

/*
 * Modules: PTX text. Its entry names choose kernels (kernel.c), and its global variables get
 * memory; the rest of the text is ignored. Only PTX text can be loaded.
 */

#include "abi/cuda_abi.h"
#include "simgpu/cuda/state.h"
#include "simgpu/cuda/work.h"

struct CUfunc_st {
	struct CUmod_st *module;
	struct CUfunc_st *next;
	const struct kernel *kernel; /* NULL: no kernel has the name */
	char name[128];
	int max_dynamic_shared;
};

/* Frees the context's modules; their memory goes with the context's. Lock held. */
void module_context_gone(struct CUctx_st *ctx);

/*
 * Fills work from the parameters in either of their two forms. Errors: INVALID_VALUE,
 * NOT_SUPPORTED, INVALID_HANDLE.
 */
CUresult module_make_work(CUfunction function, const unsigned int grid[3],
			  const unsigned int block[3], unsigned int shared_bytes, void **params,
			  void **extra, struct work *ret);

#endif
