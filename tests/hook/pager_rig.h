/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_HOOK_PAGER_RIG_H
#define NVS_TESTS_HOOK_PAGER_RIG_H

/* Memory of the pager's, as a program would see it. After fake_memory.h. */

#include "hook/gate/gate.h"
#include "hook/pager/pager.h"

static inline uint32_t *words(CUdeviceptr ptr)
{
	return (uint32_t *)(uintptr_t)ptr;
}

static inline CUresult allocate(size_t size, CUdeviceptr *ret_ptr)
{
	CUresult res;

	gate_enter();
	res = pager_alloc(0, FAKE_CTX, size, ret_ptr);
	gate_leave();
	return res;
}

#endif
