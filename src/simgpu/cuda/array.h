/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_ARRAY_H
#define NVS_SIMGPU_CUDA_ARRAY_H

/* Arrays are pitched device memory. Programs can copy them, but not sample them. */

#include "abi/cuda_structs.h"

#include <stdbool.h>
#include <stdint.h>

/* The array's address, pitch in bytes and rows. false: it is no array. */
bool array_layout(CUarray array, uint64_t *ret_addr, size_t *ret_pitch, size_t *ret_rows);

#endif
