/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_MODULE_H
#define NVS_SIMGPU_CUDA_MODULE_H

/*
 * Modules: PTX text whose entry names choose the kernels and whose global variables get
 * memory. Nothing else of the text is read, and nothing but text can be loaded.
 */

#include "abi/cuda_abi.h"
#include "simgpu/cuda/state.h"
#include "simgpu/cuda/work.h"

struct CUfunc_st {
	struct CUmod_st *module;
	struct CUfunc_st *next;
	const struct kernel *kernel; /* NULL: a name that we have no kernel for */
	char name[128];
	int max_dynamic_shared;
};

/* Lock held: the modules' memory is freed with the context's. */
void module_context_gone(struct CUctx_st *ctx);

/* Fills work from the parameters in either of their two forms. INVALID_VALUE, NOT_SUPPORTED,
 * INVALID_HANDLE. */
CUresult module_make_work(CUfunction function, const unsigned int grid[3],
			  const unsigned int block[3], unsigned int shared_bytes, void **params,
			  void **extra, struct work *ret);

#endif
