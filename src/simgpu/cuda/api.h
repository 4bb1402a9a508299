/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_API_H
#define NVS_SIMGPU_CUDA_API_H

/*
 * The begin of each exported function. api_enter() checks that the driver is initialised, that
 * the current context has no sticky error, and that no capture forbids the call. It makes the
 * call fail if NVSHARE_SIM_FAIL says so, and waits while another thread keeps it out (hold.h).
 */

#include "abi/cuda_abi.h"
#include "abi/cuda_structs.h"

#define SIM_EXPORT __attribute__((visibility("default")))

/* Declares an exported function, and begins its definition. */
#define API(symbol, params)                \
	SIM_EXPORT CUresult symbol params; \
	CUresult symbol params

/* One body for a function and its twin for per-thread default streams; "zero" is their stream 0. */
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
	API_STACK = 9,   /* after cuInit(); only touches the thread's own stack of contexts */
	API_UNSAFE = 4,  /* forbidden during captures, see capture.h */
};

/* name: __func__. NVSHARE_SIM_FAIL counts calls by name, without _v2, _ptsz and the like. */
CUresult api_enter(const char *name, unsigned int need);

#define API_ENTER(need)                                          \
	do {                                                     \
		CUresult api_result = api_enter(__func__, need); \
		if (api_result)                                  \
			return api_result;                       \
	} while (0)

#endif
