/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_DEVICE_H
#define NVS_HOOK_DEVICE_H

/*
 * The contexts that the program has made, and what a device says of itself.
 *
 * The agent works in the program's contexts. It holds the context meanwhile, and a thread that
 * forgets a context waits until nobody holds it.
 *
 * Threading: any thread. A short lock, which no thread keeps over a driver call.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stdint.h>

#define DEVICE_COUNT_MAX 64 /* devices beyond these are left alone */

struct device_context {
	struct device_context *prev, *next; /* device.c's list */
	CUcontext ctx;
	CUdevice dev;
	uint64_t charged;    /* bytes taken from the budget for it */
	uint32_t n_retained; /* lock; retains of a primary context; 0: it is not primary */
	uint32_t n_attached; /* lock; cuCtxAttach() without their cuCtxDetach() */
	uint32_t n_held;     /* lock */
	bool is_going;       /* lock to write; atomic; a thread waits to forget it */

	/* The rest is the agent's. */
	CUevent event;     /* stands for all work submitted to ctx */
	bool is_recorded;  /* event was recorded, so it can be waited for */
	CUevent end_event; /* as event, with a time */
	bool is_end_recorded;
	bool is_warm_tried; /* to the next one: share_warm.c */
	CUstream warm_stream;
	CUfunction warm_kernel; /* NULL: there is none */
	bool is_here_tried;     /* to the end: share_here.c */
	bool is_here_asked;
	CUstream here_stream;
	CUevent here_event; /* NULL: there is none */
};

#define DEVICE_ANY ((CUdevice)-1)

/*
 * A turn, which one thread has at a time. A thread makes or ends a context in a turn, and updates
 * all books in the same turn. The driver may give the handle of an ended context to a new one at
 * once, and a primary context keeps its handle. So without turns a thread could forget the context
 * that another thread has just made. Turns nest. The agent uses device_turn_try(), which does not
 * wait; false: another thread has the turn.
 */
void device_turn_begin(void);
bool device_turn_try(void);
void device_turn_end(void);

/* false: it was known before, or there is no memory for it. */
bool device_context_add(CUcontext ctx, CUdevice dev, uint64_t charged);

/* Waits until nobody holds it. Returns the bytes that it was charged; 0: it was not known. */
uint64_t device_context_forget(CUcontext ctx);

/* One more, or one less, owner of a primary context. false: not known. */
bool device_context_retained(CUcontext ctx);
bool device_context_released(CUdevice dev, CUcontext *ret_last); /* true: that was the last */
bool device_context_is_last(CUdevice dev); /* the next release would be the last */

/* The same for cuCtxAttach(), of any context. detached returns false: no attach is left. */
void device_context_attached(CUcontext ctx);
bool device_context_detached(CUcontext ctx);

CUdevice device_of(CUcontext ctx);      /* DEVICE_ANY: it is not known */
CUcontext device_primary(CUdevice dev); /* NULL: it is not known */

/*
 * The context that ctx is a part of. A known context is its own owner. The owner of an unknown
 * one, such as a green context, is the primary context of dev.
 */
CUcontext device_owner(CUcontext ctx, CUdevice dev);

/* The first context of dev, or of all devices; NULL: there is none. */
struct device_context *device_context_hold(CUdevice dev);
/* Drops held and holds the next one of dev, or of all devices; NULL: there is none. */
struct device_context *device_context_hold_next(struct device_context *held, CUdevice dev);
void device_context_drop(struct device_context *held); /* NULL is fine */

/*
 * Holds ctx, for a thread that works in it while another one may end it. false: it is being ended,
 * and nobody may enter it until that turn is over. *ret_held is NULL where ctx is not known, as a
 * green context is not.
 */
bool device_context_hold_this(CUcontext ctx, struct device_context **ret_held);
bool device_context_is_going(const struct device_context *held);

/* Pushes it as the calling thread's current context. Makes driver calls. */
bool device_context_enter(const struct device_context *held);
void device_context_leave(void);

bool device_has_context(CUdevice dev); /* or DEVICE_ANY */

/* Makes driver calls. false: the driver does not say, and ret_* are zero. */
bool device_identify(CUdevice dev, uint8_t ret_uuid[16], uint64_t *ret_total);

void device_after_fork_child(void);

#endif
