/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_GONE_H
#define NVS_HOOK_GONE_H

/*
 * true: the program has no memory at all of the bytes that a call names, though they lie in
 * addresses of the pager's: they were freed, or lie behind an end. The driver refuses such bytes of
 * plain memory. Of ours it knows only chunks, which hold freed bytes, too.
 *
 * The program's structures may be anything, also NULL: then the driver is to say so. Threading: any
 * thread.
 */

#include "abi/cuda_structs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool gone_bytes(CUdeviceptr ptr, uint64_t size);
bool gone_area(CUdeviceptr ptr, uint64_t pitch, uint64_t width, uint64_t height);
bool gone_rect(const CUDA_MEMCPY2D *copy);
bool gone_box(const CUDA_MEMCPY3D *copy);
bool gone_box_peer(const CUDA_MEMCPY3D_PEER *copy);
bool gone_fill(const CUDA_MEMSET_NODE_PARAMS *fill);

/* Of one of many. */
bool gone_batch(const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes,
		size_t count);
bool gone_boxes(const CUDA_MEMCPY3D_BATCH_OP *copies, size_t count);
bool gone_words(const CUstreamBatchMemOpParams *ops, unsigned int count);

#endif
