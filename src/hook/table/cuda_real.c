/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/table/cuda_real.h"

#include "hook/table/load.h"

#define STAND_IN(symbol, params, args)                   \
	static CUresult stand_in_##symbol params         \
	{                                                \
		if (!load_driver() || !cuda_real.symbol) \
			return CUDA_ERROR_NOT_FOUND;     \
		return cuda_real.symbol args;            \
	}

#define CU_HOOK(kind, base, symbol, since, stream, params, args) STAND_IN(symbol, params, args)
#define CU_REAL(base, symbol, since, stream, params)
#include "hook/table/cuda_hooks.def"

struct cuda_real cuda_real = {
#define CU_HOOK(kind, base, symbol, since, stream, params, args) .symbol = stand_in_##symbol,
#define CU_REAL(base, symbol, since, stream, params)
#include "hook/table/cuda_hooks.def"
};

static const struct {
	const char *symbol;
	size_t offset;
} cuda_real_members[] = {
#define CU_HOOK(kind, base, symbol, since, stream, params, args) \
	{#symbol, offsetof(struct cuda_real, symbol)},
#define CU_REAL(base, symbol, since, stream, params) {#symbol, offsetof(struct cuda_real, symbol)},
#include "hook/table/cuda_hooks.def"
};

unsigned int cuda_real_load(cuda_real_dlsym_fn real_dlsym, void *libcuda)
{
	unsigned int n_lacking = 0;

	for (size_t i = 0; i < sizeof(cuda_real_members) / sizeof(cuda_real_members[0]); i++) {
		void *fn = real_dlsym(libcuda, cuda_real_members[i].symbol);
		void **member = (void **)((char *)&cuda_real + cuda_real_members[i].offset);

		if (!fn)
			n_lacking++;
		/* A single store: a reader never sees a mix of both functions. */
		__atomic_store_n(member, fn, __ATOMIC_RELAXED);
	}

	return n_lacking;
}
