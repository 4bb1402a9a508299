/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_GREEN_H
#define NVS_HOOK_GREEN_H

/*
 * Green contexts, which are parts of a device's primary context, and the streams made in them.
 *
 * A green context ends before its streams and their work do. A driver may follow its handle into
 * memory that it has freed, and the streams may only be destroyed. So no other book keeps a green
 * context's handle to give it to the driver: memory and events belong to the primary one. This book
 * answers for such a stream, and the driver is not asked.
 *
 * Threading: any thread. A short lock, which no thread keeps over a driver call. Without green
 * contexts nothing takes it.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>

/* Its fields stay as they are until green_end(). */
struct green {
	struct green *next; /* green.c's list */
	CUgreenCtx handle;
	CUcontext ctx; /* its handle as a context */
	CUcontext primary;
	CUdevice dev;
};

/* The program has made it. false: no memory, and it is not known. */
bool green_add(const struct green *made);

/* Call it before the driver destroys it: its handle may name another one afterwards. NULL: unknown.
 */
struct green *green_take(CUgreenCtx handle);
void green_put_back(struct green *green);   /* the driver has refused */
void green_end(struct green *green);        /* frees it; its streams are detached, captures end */
void green_primary_gone(CUcontext primary); /* the same for all of its green contexts */

/* The primary context of a green one; ctx itself of any other. */
CUcontext green_owner(CUcontext ctx);

/* The program has made a stream: in this green context, or in the current context (NULL). */
void green_stream_made(CUstream stream, CUgreenCtx handle);
void green_stream_gone(CUstream stream); /* before the driver destroys it */

/*
 * The driver's answer for a stream of a green context: that one's handle as a context, or
 * CUDA_ERROR_STREAM_DETACHED. CUDA_ERROR_NOT_FOUND: it is a stream of another context.
 */
CUresult green_stream_context(CUstream stream, CUcontext *ret_ctx);

void green_after_fork_child(void);

#endif
