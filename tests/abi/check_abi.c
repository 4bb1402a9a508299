/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Compile-time check of cuda_hooks.def against the toolkit's own headers: name, first
 * version, stream variant and signature of every entry. Compiled, never linked or run.
 *
 * cuda.h renames functions by macro (cuMemAlloc is cuMemAlloc_v2), so names are pasted
 * or stringified in the first macro that sees them, never passed on.
 * __CUDA_API_VERSION_INTERNAL makes the headers declare the older forms too, and turns
 * the renaming off.
 */

#define __CUDA_API_VERSION_INTERNAL

#include <cuda.h>
#include <cudaTypedefs.h>

#define PFN_none(pfn)     pfn
#define PFN_legacy(pfn)   pfn
#define PFN_implicit(pfn) pfn
#define PFN_ptds(pfn)     pfn##_ptds
#define PFN_ptsz(pfn)     pfn##_ptsz

#define CHECK(base, symbol, since, stream, params)                                            \
	_Static_assert(__builtin_types_compatible_p(CUresult(*) params,                       \
						    PFN_##stream(PFN_##base##_v##since)),     \
		       #symbol ": signature differs from cudaTypedefs.h");                    \
	_Static_assert(__builtin_types_compatible_p(CUresult(*) params, __typeof__(&symbol)), \
		       #symbol ": signature differs from cuda.h");

#define CU_HOOK(kind, base, symbol, since, stream, params, args) \
	CHECK(base, symbol, since, stream, params)
#define CU_REAL(base, symbol, since, stream, params) CHECK(base, symbol, since, stream, params)
#include "hook/table/cuda_hooks.def"
