/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_TOKEN_H
#define NVS_SIMGPU_CUDA_TOKEN_H

/*
 * The token of exported memory is a socket. It has sent itself a message with the descriptor of
 * the memory's pages, which stays in its queue.
 */

#include <stdint.h>

/* Fills a new token, once. device: of the node. The caller keeps pages. 0 or -errno. */
int token_fill(int token, int pages, unsigned int device, uint64_t size);

/* Returns a descriptor of the pages, which the caller owns. -EINVAL: it is no token. */
int token_look(int token, unsigned int *ret_device, uint64_t *ret_size);

#endif
