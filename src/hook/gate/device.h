/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_DEVICE_H
#define NVS_HOOK_DEVICE_H

/*
 * The contexts that the program has made, and what a device says of itself.
 *
 * The agent works in the program's contexts; a context that it works in is held, and
 * forgetting one waits for that. Threading: any thread; a short internal lock, never
 * held over a driver call.
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
	uint32_t n_retained; /* primary: retains that were not released; 0: not primary */
	uint32_t n_attached; /* cuCtxAttach() that were not detached */
	uint32_t n_held;
	bool is_going;     /* being forgotten: whoever holds it should hurry */
	CUevent event;     /* the agent's own: stands for all work submitted to ctx */
	bool is_recorded;  /* the agent's own: event is to be waited for */
	CUevent end_event; /* the agent's own: as event, with a time */
	bool is_end_recorded;
	bool is_warm_tried; /* share_warm.c's, as what follows */
	CUstream warm_stream;
	CUfunction warm_kernel; /* NULL: there is none */
	bool is_here_tried;     /* share_here.c's, as what follows */
	bool is_here_asked;
	CUstream here_stream;
	CUevent here_event; /* NULL: there is none */
};

#define DEVICE_ANY ((CUdevice)-1)

/*
 * Around what makes or ends a context, with the books of it: a turn, which one thread has at a
 * time. As soon as the driver has ended a context its handle may be a new one's, and that of a
 * primary context always is the same; so what one thread still has to forget would be what
 * another has made. Nests. try, which the agent uses, waits for nobody: false: not now.
 */
void device_turn_begin(void);
bool device_turn_try(void);
void device_turn_end(void);

/* false when it was known before, or there is no memory for it. */
bool device_context_add(CUcontext ctx, CUdevice dev, uint64_t charged);

/* Waits until nobody holds it. Returns what it was charged; 0 when it was not known. */
uint64_t device_context_forget(CUcontext ctx);

/* One more, or one less, owner of a primary context. false: not known. */
bool device_context_retained(CUcontext ctx);
bool device_context_released(CUdevice dev, CUcontext *ret_last); /* true: that was the last */
bool device_context_is_last(CUdevice dev); /* the next release of the primary one would be */

/* The same by cuCtxAttach(), of any context; detached: false: none is left, or not known. */
void device_context_attached(CUcontext ctx);
bool device_context_detached(CUcontext ctx);

CUdevice device_of(CUcontext ctx);      /* DEVICE_ANY: not known */
CUcontext device_primary(CUdevice dev); /* NULL: not known */

/*
 * The one that ctx, of dev, is a part of: itself; for one that was not seen being made, as
 * a green one is not, the primary context of dev.
 */
CUcontext device_owner(CUcontext ctx, CUdevice dev);

/* The first context of dev, or of all devices; NULL: there is none. */
struct device_context *device_context_hold(CUdevice dev);
/* Lets go of held and holds the next of dev, or of all; NULL at the end. */
struct device_context *device_context_hold_next(struct device_context *held, CUdevice dev);
void device_context_drop(struct device_context *held); /* NULL is fine */

/*
 * For working in a context that another thread may end. false: it is being ended, and until
 * that turn is over nobody may enter it. NULL: it is not known, as a green one is not.
 */
bool device_context_hold_this(CUcontext ctx, struct device_context **ret_held);
bool device_context_is_going(const struct device_context *held);

/* Makes it the calling thread's current one, above the one before. Driver calls. */
bool device_context_enter(const struct device_context *held);
void device_context_leave(void);

bool device_has_context(CUdevice dev); /* or DEVICE_ANY */

/* Makes driver calls. false: the driver does not say; ret_* are zero then. */
bool device_identify(CUdevice dev, uint8_t ret_uuid[16], uint64_t *ret_total);

void device_after_fork_child(void);

#endif
