/* SPDX-License-Identifier: Apache-2.0 */

/* A library is a module of the current context, and a kernel is a function. */

#include "simgpu/cuda/library.h"
#include "simgpu/cuda/api.h"

API(cuLibraryLoadData,
    (CUlibrary * library, const void *code, CUjit_option *jitOptions, void **jitOptionsValues,
     unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
     unsigned int numLibraryOptions))
{
	API_ENTER(API_CONTEXT);
	(void)jitOptions, (void)jitOptionsValues, (void)numJitOptions;
	(void)libraryOptions, (void)libraryOptionValues, (void)numLibraryOptions;
	return cuModuleLoadData((CUmodule *)library, code);
}

API(cuLibraryLoadFromFile,
    (CUlibrary * library, const char *fileName, CUjit_option *jitOptions, void **jitOptionsValues,
     unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
     unsigned int numLibraryOptions))
{
	API_ENTER(API_CONTEXT);
	(void)jitOptions, (void)jitOptionsValues, (void)numJitOptions;
	(void)libraryOptions, (void)libraryOptionValues, (void)numLibraryOptions;
	return cuModuleLoad((CUmodule *)library, fileName);
}

API(cuLibraryUnload, (CUlibrary library))
{
	API_ENTER(API_CONTEXT);
	return cuModuleUnload((CUmodule)library);
}

API(cuLibraryGetModule, (CUmodule * pMod, CUlibrary library))
{
	API_ENTER(API_CONTEXT);
	if (!pMod)
		return CUDA_ERROR_INVALID_VALUE;
	*pMod = (CUmodule)library;
	return CUDA_SUCCESS;
}

API(cuLibraryGetKernel, (CUkernel * pKernel, CUlibrary library, const char *name))
{
	API_ENTER(API_CONTEXT);
	return cuModuleGetFunction((CUfunction *)pKernel, (CUmodule)library, name);
}

API(cuLibraryGetGlobal, (CUdeviceptr * dptr, size_t *bytes, CUlibrary library, const char *name))
{
	API_ENTER(API_CONTEXT);
	return cuModuleGetGlobal_v2(dptr, bytes, (CUmodule)library, name);
}

API(cuKernelGetFunction, (CUfunction * pFunc, CUkernel kernel))
{
	API_ENTER(API_CONTEXT);
	if (!pFunc)
		return CUDA_ERROR_INVALID_VALUE;
	*pFunc = (CUfunction)kernel;
	return kernel ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

API(cuKernelGetName, (const char **name, CUkernel hfunc))
{
	API_ENTER(API_CONTEXT);
	return cuFuncGetName(name, (CUfunction)hfunc);
}
