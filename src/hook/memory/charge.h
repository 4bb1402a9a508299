/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_CHARGE_H
#define NVS_HOOK_CHARGE_H

/*
 * How every allocating hook that forwards to the driver is written:
 *
 *	struct charge charge;
 *	CUresult res = charge_begin(&charge, bytes, kind);
 *
 *	if (res != CUDA_SUCCESS)
 *		return res;
 *	do
 *		res = cuda_real.cuSomethingCreate(...);
 *	while (charge_again(&charge, res));
 *	charge_end(&charge, res, class, key);
 *	return res;
 *
 * Between begin and end the thread is inside the gate. Threading: any thread.
 */

#include "abi/cuda_abi.h"
#include "hook/memory/budget.h"
#include "hook/memory/ledger.h"

#include <stdbool.h>
#include <stdint.h>

struct charge {
	CUcontext ctx;
	CUdevice dev;
	uint64_t bytes;
	uint64_t owner; /* ledger_entry::owner; the caller may set it before the end */
	int kind;
	struct budget_tries tries;
};

/*
 * The calling thread's context (of a green one, the primary, whose memory it uses) and its
 * device; else the driver's own error.
 */
CUresult charge_here(CUcontext *ret_ctx, CUdevice *ret_dev);

/* For the current context's device, or for dev and no context. Waits for room. */
CUresult charge_begin(struct charge *charge, uint64_t bytes, int kind);
CUresult charge_begin_on(struct charge *charge, CUdevice dev, uint64_t bytes, int kind);

/* After out of memory: true when there may be room now; budget_retry() tells when not. */
bool charge_again(struct charge *charge, CUresult res);

/* Books what was made, or takes the charge back. */
void charge_end(struct charge *charge, CUresult res, enum ledger_class class, uint64_t key);

/* The same when the caller keeps the books. */
void charge_keep(struct charge *charge);

/*
 * Around a free: the entry leaves the books first, since the driver may give its address
 * or handle to another thread at once, and comes back if the driver refuses.
 */
bool charge_free_begin(enum ledger_class class, uint64_t key, struct ledger_entry *ret_entry);
void charge_free_end(const struct ledger_entry *entry, CUresult res);

/* Gives back what entry was charged. */
void charge_give_back(const struct ledger_entry *entry);

#endif
