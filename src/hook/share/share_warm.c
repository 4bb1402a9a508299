/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A GPU that has worked for another process first loads the context. On an H200 the first kernel
 * then starts after 0.1 ms, 0.25 ms in the tail, instead of 0.01 ms. So a kernel that does nothing
 * brings the context there ahead of announced work. Recording an event does not.
 */

#include "hook/base/hook_log.h"
#include "hook/gate/device.h"
#include "hook/share/share_private.h"
#include "hook/table/cuda_real.h"

static const char kernel_ptx[] = ".version 7.0\n"
				 ".target sm_52\n"
				 ".address_size 64\n"
				 ".visible .entry nvs_empty()\n"
				 "{\n"
				 "ret;\n"
				 "}\n";

static bool warm_has_driver(void)
{
	return cuda_real.cuStreamCreate && cuda_real.cuModuleLoadData &&
	       cuda_real.cuModuleGetFunction && cuda_real.cuLaunchKernel;
}

/* Inside the context, whose end is the end of all this. Tried once. */
static void warm_prepare(struct device_context *c)
{
	CUmodule module;
	CUresult res;

	c->is_warm_tried = true;
	res = cuda_real.cuModuleLoadData(&module, kernel_ptx);
	if (res == CUDA_SUCCESS)
		res = cuda_real.cuStreamCreate(&c->warm_stream, CU_STREAM_NON_BLOCKING);
	if (res == CUDA_SUCCESS)
		res = cuda_real.cuModuleGetFunction(&c->warm_kernel, module, "nvs_empty");
	if (res != CUDA_SUCCESS)
		c->warm_kernel = NULL;
	hook_debug("context %p: its first kernels are prepared: %d", (void *)c->ctx, (int)res);
}

void share_warm_prepare(void)
{
	struct device_context *c;

	if (!warm_has_driver())
		return;
	for (c = device_context_hold(DEVICE_ANY); c; c = device_context_hold_next(c, DEVICE_ANY)) {
		if (c->is_warm_tried || !device_context_enter(c))
			continue;
		warm_prepare(c);
		device_context_leave();
	}
}

void share_warm(void)
{
	struct device_context *c;

	for (c = device_context_hold(DEVICE_ANY); c; c = device_context_hold_next(c, DEVICE_ANY)) {
		if (!c->warm_kernel || !device_context_enter(c))
			continue;
		(void)cuda_real.cuLaunchKernel(c->warm_kernel, 1, 1, 1, 1, 1, 1, 0, c->warm_stream,
					       NULL, NULL);
		device_context_leave();
	}
}
