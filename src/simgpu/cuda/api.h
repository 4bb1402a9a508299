/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_API_H
#define NVS_SIMGPU_CUDA_API_H

/*
 * How an exported function begins: is the driver up, is there a context and is it sound,
 * may the call be made while streams are captured, was its failure ordered
 * (NVSHARE_SIM_FAIL), and does another thread keep it out (hold.h). Every export goes through
 * api_enter().
 */

#include "abi/cuda_abi.h"
#include "abi/cuda_structs.h"

#define SIM_EXPORT __attribute__((visibility("default")))

/* Declares and opens an exported function. */
#define API(symbol, params)                \
	SIM_EXPORT CUresult symbol params; \
	CUresult symbol params

/* One body for a function and its twin for per-thread default streams; "zero" is what stream 0
 * means. */
#define API_TWIN(symbol, twin, params, call)                \
	API(symbol, params)                                 \
	{                                                   \
		const CUstream zero = CU_STREAM_LEGACY;     \
		return call;                                \
	}                                                   \
	API(twin, params)                                   \
	{                                                   \
		const CUstream zero = CU_STREAM_PER_THREAD; \
		return call;                                \
	}

enum api_need {
	API_ANYTIME = 0, /* also before cuInit() */
	API_INIT = 1,    /* after cuInit() */
	API_CONTEXT = 3, /* with a current context that has no sticky error */
	API_STACK = 9,   /* after cuInit(); about the thread's own stack of contexts alone */
	API_UNSAFE = 4,  /* forbidden while streams are captured, see capture.h */
};

/* name is __func__: counted for NVSHARE_SIM_FAIL without _v2, _ptsz and the like. */
CUresult api_enter(const char *name, unsigned int need);

#define API_ENTER(need)                                          \
	do {                                                     \
		CUresult api_result = api_enter(__func__, need); \
		if (api_result)                                  \
			return api_result;                       \
	} while (0)

#endif
