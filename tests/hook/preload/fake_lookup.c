/* SPDX-License-Identifier: Apache-2.0 */

/* The fake driver's cuGetProcAddress(), which chooses as the real one does. */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <string.h>

enum stream_kind { STREAM_none, STREAM_legacy, STREAM_implicit, STREAM_ptds, STREAM_ptsz };

#pragma GCC visibility push(default)

#define CU_HOOK(kind, base, symbol, since, stream, params, args) CUresult symbol params;
#define CU_REAL(base, symbol, since, stream, params)             CUresult symbol params;
#include "hook/table/cuda_hooks.def"

unsigned int fake_n_launches(void);

static const struct entry {
	const char *base;
	int since;
	enum stream_kind stream;
	void *fn;
} entries[] = {
#define CU_HOOK(kind, base, symbol, since, stream, params, args) \
	{#base, since, STREAM_##stream, (void *)symbol},
#define CU_REAL(base, symbol, since, stream, params) \
	{#base, since, STREAM_##stream, (void *)symbol},
#include "hook/table/cuda_hooks.def"
};

static bool is_variant(enum stream_kind stream, cuuint64_t flags)
{
	bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

	return stream == STREAM_none ||
	       (stream == STREAM_legacy || stream == STREAM_implicit) != per_thread;
}

static CUresult look_up(const char *name, void **pfn, int version, cuuint64_t flags)
{
	const struct entry *best = NULL;

	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		const struct entry *entry = &entries[i];

		if (strcmp(entry->base, name) == 0 && entry->since <= version &&
		    is_variant(entry->stream, flags) && (!best || entry->since >= best->since))
			best = entry;
	}

	*pfn = best ? best->fn : NULL;
	return best ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *name, void **pfn, int version, cuuint64_t flags)
{
	return look_up(name, pfn, version, flags);
}

CUresult cuGetProcAddress_v2(const char *name, void **pfn, int version, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *status)
{
	CUresult res = look_up(name, pfn, version, flags);

	if (status)
		*status = res == CUDA_SUCCESS ? CU_GET_PROC_ADDRESS_SUCCESS
					      : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return res;
}

static unsigned int n_launches;

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	(void)exec;
	(void)stream;
	n_launches++;
	return CUDA_SUCCESS;
}

unsigned int fake_n_launches(void)
{
	return n_launches;
}
