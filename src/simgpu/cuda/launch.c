/* SPDX-License-Identifier: Apache-2.0 */

/* Launches, and queries of functions. */

#include <stdlib.h>
#include <string.h>

#include "simgpu/cuda/api.h"
#include "simgpu/cuda/context.h"
#include "simgpu/cuda/module.h"
#include "simgpu/cuda/run.h"

enum { MAX_THREADS = 1024, MAX_SHARED = 232448 };

/* Reads parameters from extra's buffer, where they have their natural alignment. */
static CUresult read_extra(const char *sizes, void **extra, uint64_t *args)
{
	const char *buffer = NULL;
	size_t size = 0, at = 0, n, i;

	for (i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[i + 1];
		else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			size = *(size_t *)extra[i + 1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	for (i = 0; sizes[i]; i++) {
		n = sizes[i] == 'p' ? 8 : 4;
		at = (at + n - 1) / n * n;
		if (!buffer || at + n > size)
			return CUDA_ERROR_INVALID_VALUE;
		memcpy(&args[i], buffer + at, n);
		at += n;
	}
	return CUDA_SUCCESS;
}

static CUresult read_args(const struct kernel *kernel, void **params, void **extra, uint64_t *args)
{
	size_t i;

	if (params && extra)
		return CUDA_ERROR_INVALID_VALUE;
	if (extra)
		return read_extra(kernel->args, extra, args);
	for (i = 0; kernel->args[i]; i++) {
		if (!params || !params[i])
			return CUDA_ERROR_INVALID_VALUE;
		memcpy(&args[i], params[i], kernel->args[i] == 'p' ? 8 : 4);
	}
	return CUDA_SUCCESS;
}

CUresult module_make_work(CUfunction function, const unsigned int grid[3],
			  const unsigned int block[3], unsigned int shared_bytes, void **params,
			  void **extra, struct work *ret)
{
	uint64_t threads = (uint64_t)block[0] * block[1] * block[2];

	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!grid[0] || !grid[1] || !grid[2] || !threads || block[0] > MAX_THREADS ||
	    block[1] > MAX_THREADS || block[2] > 64 || threads > MAX_THREADS ||
	    shared_bytes > MAX_SHARED || grid[1] > 65535 || grid[2] > 65535)
		return CUDA_ERROR_INVALID_VALUE;
	if (!function->kernel) {
		node_debug("there is no host function for the kernel %s", function->name);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	memset(ret, 0, sizeof(*ret));
	ret->kind = WORK_KERNEL;
	ret->kernel.kernel = function->kernel;
	ret->kernel.function = function;
	memcpy(ret->kernel.grid, grid, sizeof(ret->kernel.grid));
	memcpy(ret->kernel.block, block, sizeof(ret->kernel.block));
	ret->kernel.shared_bytes = shared_bytes;
	return read_args(function->kernel, params, extra, ret->kernel.args);
}

static CUresult launch_kernel(const char *name, CUfunction function, const unsigned int dims[7],
			      CUstream handle, void **params, void **extra)
{
	struct CUstream_st *stream;
	struct work work;
	CUresult r = api_enter(name, API_CONTEXT);

	if (!r)
		r = module_make_work(function, dims, dims + 3, dims[6], params, extra, &work);
	if (!r)
		r = stream_lock_room(handle, &stream);
	if (r)
		return r;
	/* A function belongs to the context in which its module was loaded. */
	r = stream->ctx == context_current() ? run_submit(stream, &work, NULL)
					     : CUDA_ERROR_INVALID_CONTEXT;
	state_unlock();
	return r;
}

#define DIMS(...) ((const unsigned int[7]){__VA_ARGS__})

API_TWIN(cuLaunchKernel, cuLaunchKernel_ptsz,
	 (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
	  unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
	  unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra),
	 launch_kernel(__func__, f,
		       DIMS(gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
			    sharedMemBytes),
		       hStream ? hStream : zero, kernelParams, extra))

API_TWIN(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz,
	 (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
	  unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
	  unsigned int sharedMemBytes, CUstream hStream, void **kernelParams),
	 launch_kernel(__func__, f,
		       DIMS(gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
			    sharedMemBytes),
		       hStream ? hStream : zero, kernelParams, NULL))

static CUresult launch_ex(const char *name, const CUlaunchConfig *config, CUfunction function,
			  void **params, void **extra, CUstream zero)
{
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	return launch_kernel(name, function,
			     DIMS(config->gridDimX, config->gridDimY, config->gridDimZ,
				  config->blockDimX, config->blockDimY, config->blockDimZ,
				  config->sharedMemBytes),
			     config->hStream ? config->hStream : zero, params, extra);
}

API_TWIN(cuLaunchKernelEx, cuLaunchKernelEx_ptsz,
	 (const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra),
	 launch_ex(__func__, config, f, kernelParams, extra, zero))

API(cuFuncGetModule, (CUmodule * hmod, CUfunction hfunc))
{
	API_ENTER(API_CONTEXT);
	if (!hmod)
		return CUDA_ERROR_INVALID_VALUE;
	if (!hfunc)
		return CUDA_ERROR_INVALID_HANDLE;
	*hmod = hfunc->module;
	return CUDA_SUCCESS;
}

API(cuFuncGetName, (const char **name, CUfunction hfunc))
{
	API_ENTER(API_CONTEXT);
	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	if (!hfunc)
		return CUDA_ERROR_INVALID_HANDLE;
	*name = hfunc->name;
	return CUDA_SUCCESS;
}

API(cuFuncGetParamInfo,
    (CUfunction func, size_t paramIndex, size_t *paramOffset, size_t *paramSize))
{
	size_t at = 0, n, i;

	API_ENTER(API_CONTEXT);
	if (!paramOffset)
		return CUDA_ERROR_INVALID_VALUE;
	if (!func || !func->kernel)
		return CUDA_ERROR_INVALID_HANDLE;
	if (paramIndex >= strlen(func->kernel->args))
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0;; i++) {
		n = func->kernel->args[i] == 'p' ? 8 : 4;
		at = (at + n - 1) / n * n;
		if (i == paramIndex)
			break;
		at += n;
	}
	*paramOffset = at;
	if (paramSize)
		*paramSize = n;
	return CUDA_SUCCESS;
}

API(cuFuncGetAttribute, (int *pi, CUfunction_attribute attrib, CUfunction hfunc))
{
	static const int values[CU_FUNC_ATTRIBUTE_MAX] = {
		[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = MAX_THREADS,
		[CU_FUNC_ATTRIBUTE_NUM_REGS] = 16,
		[CU_FUNC_ATTRIBUTE_PTX_VERSION] = 70,
		[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = 90,
	};

	API_ENTER(API_CONTEXT);
	if (!pi || (unsigned int)attrib >= CU_FUNC_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (!hfunc)
		return CUDA_ERROR_INVALID_HANDLE;
	*pi = attrib == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? hfunc->max_dynamic_shared
									: values[attrib];
	return CUDA_SUCCESS;
}

API(cuFuncSetAttribute, (CUfunction hfunc, CUfunction_attribute attrib, int value))
{
	API_ENTER(API_CONTEXT);
	if ((unsigned int)attrib >= CU_FUNC_ATTRIBUTE_MAX || value < 0 || value > MAX_SHARED)
		return CUDA_ERROR_INVALID_VALUE;
	if (!hfunc)
		return CUDA_ERROR_INVALID_HANDLE;
	if (attrib == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
		hfunc->max_dynamic_shared = value;
	return CUDA_SUCCESS;
}

API(cuFuncSetCacheConfig, (CUfunction hfunc, int config))
{
	API_ENTER(API_CONTEXT);
	(void)config;
	return hfunc ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

API(cuFuncIsLoaded, (int *state, CUfunction function))
{
	API_ENTER(API_CONTEXT);
	if (!state)
		return CUDA_ERROR_INVALID_VALUE;
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	*state = 1;
	return CUDA_SUCCESS;
}

API(cuFuncLoad, (CUfunction function))
{
	API_ENTER(API_CONTEXT);
	return function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult compute_occupancy(int *n_blocks, CUfunction function, int block_size)
{
	if (!n_blocks || block_size <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	*n_blocks = block_size > MAX_THREADS ? 0 : 2048 / block_size;
	if (*n_blocks > 32)
		*n_blocks = 32;
	return CUDA_SUCCESS;
}

API(cuOccupancyMaxActiveBlocksPerMultiprocessor,
    (int *numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize))
{
	API_ENTER(API_CONTEXT);
	(void)dynamicSMemSize;
	return compute_occupancy(numBlocks, func, blockSize);
}

API(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
    (int *numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize, unsigned int flags))
{
	API_ENTER(API_CONTEXT);
	(void)dynamicSMemSize, (void)flags;
	return compute_occupancy(numBlocks, func, blockSize);
}
