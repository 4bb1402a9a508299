/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Driver functions that the simulated GPU does not have. They are exported, so that programs can
 * link them and look them up, and return CUDA_ERROR_NOT_SUPPORTED. They read no arguments, so one
 * body without parameters serves every signature of the C ABI.
 */

enum { ERROR_NOT_SUPPORTED = 801 };

#define SIM_REAL(base, symbol, since, stream)
#define SIM_STUB(base, symbol, since, stream)                    \
	__attribute__((visibility("default"))) int symbol(void); \
	int symbol(void)                                         \
	{                                                        \
		return ERROR_NOT_SUPPORTED;                      \
	}
#include "simgpu/cuda/symbols.def"
