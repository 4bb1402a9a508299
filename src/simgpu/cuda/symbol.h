/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_SYMBOL_H
#define NVS_SIMGPU_CUDA_SYMBOL_H

#include <stdint.h>

/*
 * Finds the address for cuGetProcAddress. Returns 0, CUDA_ERROR_INVALID_VALUE or
 * CUDA_ERROR_NOT_FOUND. ret_status may be NULL; *ret_status is a CUdriverProcAddressQueryResult.
 */
int symbol_find(const char *name, void **ret, int version, uint64_t flags, int *ret_status);

#endif
