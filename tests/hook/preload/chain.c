/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A library that stands in the way too, built three times: in front of ours, behind it,
 * and as the last one, which has nobody behind. Each puts its number before what the
 * next one says, and finds the next one anew on every call.
 *
 * CHAIN_LAST: it is the last. CHAIN_DLSYM: it also interposes dlsym(), found by dlvsym()
 * as such libraries do.
 */

#include "abi/cuda_abi.h"

#include <dlfcn.h>
#include <stddef.h>

#pragma GCC visibility push(default)

unsigned int chain_say(unsigned int so_far);

unsigned int chain_say(unsigned int so_far)
{
	so_far = so_far * 10 + CHAIN_NUMBER;
#ifdef CHAIN_LAST
	return so_far;
#else
	unsigned int (*next)(unsigned int) =
		(unsigned int (*)(unsigned int))dlsym(RTLD_NEXT, "chain_say");

	return next ? next(so_far) : 0;
#endif
}

#ifdef CHAIN_DLSYM
typedef void *(*dlsym_fn)(void *, const char *);

static unsigned int n_asked;
unsigned int chain_n_asked(void);

unsigned int chain_n_asked(void)
{
	return n_asked;
}

void *dlsym(void *handle, const char *name)
{
	static dlsym_fn real;

	if (!real)
		real = (dlsym_fn)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
	if (!real)
		real = (dlsym_fn)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
	n_asked++;
	return real ? real(handle, name) : NULL;
}
#endif

#ifdef CHAIN_ALLOC
/* Wraps a driver function itself, and passes on to whoever comes after it. */
CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t size);
void *chain_next_alloc(void);

void *chain_next_alloc(void)
{
	/* Volatile: a last call would be made a jump, and the caller be ours no more. */
	void *volatile next = dlsym(RTLD_NEXT, "cuMemAlloc_v2");

	return next;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t size)
{
	CUresult (*next)(CUdeviceptr *, size_t) =
		(CUresult(*)(CUdeviceptr *, size_t))chain_next_alloc();

	return next ? next(dptr, size) : CUDA_ERROR_UNKNOWN;
}
#endif
