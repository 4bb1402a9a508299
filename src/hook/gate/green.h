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
	struct green *next;  /* green.c's list */
	struct green *taken; /* the next one that was taken together with it */
	CUgreenCtx handle;
	CUcontext ctx; /* its handle as a context */
	CUcontext primary;
	CUdevice dev;
	const void *id; /* green_add() sets it: struct green_place */
	bool is_going;  /* green.c's lock */
};

/* Where a stream is, or a call is made. */
struct green_place {
	CUcontext ctx;   /* may be a green one: good for the call at hand */
	CUcontext owner; /* the primary context of a green one; ctx itself of any other */
	const void *id;  /* of a green one: no address, and never used again; else ctx */
	bool is_going;   /* a green one that is being ended */
};

/* The program has made it. false: no memory, and it is not known. */
bool green_add(const struct green *made);

/*
 * Call these before the driver ends it, or the primary context with all of its green ones. From
 * then on its streams are detached. The handle may name another one as soon as the driver has ended
 * it, so the caller has what was taken. NULL: none is known.
 */
struct green *green_take(CUgreenCtx handle);
struct green *green_take_all(CUcontext primary);
void green_put_back(struct green *taken); /* the driver has refused */
void green_end(struct green *taken);      /* frees them; their captures end */

struct green_place green_place(CUcontext ctx);

/* The program has made a stream: in this green context, or in the current context (NULL). */
void green_stream_made(CUstream stream, CUgreenCtx handle);
void green_stream_gone(CUstream stream); /* before the driver destroys it */

/*
 * The driver's answer for a stream of a green context: CUDA_SUCCESS, or CUDA_ERROR_STREAM_DETACHED.
 * Then the green context is going, or has ended, and *ret is zero. CUDA_ERROR_NOT_FOUND: it is a
 * stream of another context, and *ret stays.
 */
CUresult green_stream_place(CUstream stream, struct green_place *ret);

void green_after_fork_child(void);

#endif
