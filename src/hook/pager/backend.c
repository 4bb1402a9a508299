/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/pager/backend.h"

#include "hook/base/hook_log.h"
#include "hook/base/hook_options.h"
#include "hook/memory/budget.h"
#include "hook/pager/pager.h"
#include "hook/table/cuda_real.h"

#include <stdatomic.h>

/* Prefetching moves managed memory, and needs both. */
static bool managed_supported(CUdevice dev)
{
	int managed = 0, concurrent = 0;

	return cuda_real.cuMemAllocManaged && cuda_real.cuDeviceGetAttribute &&
	       cuda_real.cuDeviceGetAttribute(&managed, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, dev) ==
		       CUDA_SUCCESS &&
	       cuda_real.cuDeviceGetAttribute(&concurrent,
					      CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
					      dev) == CUDA_SUCCESS &&
	       managed && concurrent;
}

static enum nvshare_backend backend_decide(CUdevice dev)
{
	const struct hook_options *options = hook_options();

	if (options->ipc)
		return NVSHARE_BACKEND_NONE;
	switch (options->backend) {
	case HOOK_OPTIONS_BACKEND_AUTO:
		break;
	case HOOK_OPTIONS_BACKEND_VMM:
		if (!pager_supported(dev))
			hook_warn_once("NVSHARE_MEMORY_BACKEND=vmm: GPU %d has no virtual memory "
				       "management; its memory stays where it is",
				       dev);
		break;
	case HOOK_OPTIONS_BACKEND_MANAGED:
		if (managed_supported(dev))
			return NVSHARE_BACKEND_MANAGED;
		hook_warn_once("NVSHARE_MEMORY_BACKEND=managed: GPU %d can not prefetch managed "
			       "memory; its memory stays where it is",
			       dev);
		return NVSHARE_BACKEND_NONE;
	case HOOK_OPTIONS_BACKEND_NONE:
		return NVSHARE_BACKEND_NONE;
	}
	return pager_supported(dev) ? NVSHARE_BACKEND_VMM : NVSHARE_BACKEND_NONE;
}

/* Else a program that counts on it is told that it is out of memory, and not why. */
static void backend_check_oversub(CUdevice dev, enum nvshare_backend backend)
{
	if (hook_options()->single_oversub && backend != NVSHARE_BACKEND_MANAGED)
		hook_warn_once("NVSHARE_ENABLE_SINGLE_OVERSUB needs NVSHARE_MEMORY_BACKEND="
			       "managed; on GPU %d this program stays within the card",
			       dev);
}

enum nvshare_backend backend_of(CUdevice dev)
{
	static _Atomic unsigned int decided[BUDGET_DEVICES]; /* 0: not yet; else backend + 1 */
	unsigned int value;

	if (dev < 0 || dev >= BUDGET_DEVICES)
		return NVSHARE_BACKEND_NONE;
	value = atomic_load_explicit(&decided[dev], memory_order_relaxed);
	if (!value) {
		value = (unsigned int)backend_decide(dev) + 1;
		backend_check_oversub(dev, (enum nvshare_backend)(value - 1));
		atomic_store_explicit(&decided[dev], value, memory_order_relaxed);
	}
	return (enum nvshare_backend)(value - 1);
}
