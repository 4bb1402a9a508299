/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_TOKEN_H
#define NVS_SIMGPU_CUDA_TOKEN_H

/*
 * What lies in the token of memory that was exported: the descriptor of its pages, in a
 * message that the socket has sent to itself and that nobody takes out.
 */

#include <stdint.h>

/* Once a token; 0 or -errno. pages stays the caller's. */
int token_fill(int token, int pages, uint64_t size);

/* A descriptor of the pages, the caller's; -EINVAL: this is no token. */
int token_look(int token, uint64_t *ret_size);

#endif
