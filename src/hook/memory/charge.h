/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_CHARGE_H
#define NVS_HOOK_CHARGE_H

/*
 * The form of each hook that allocates by the driver:
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
 * From begin to end the thread is inside the gate. Threading: any thread.
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
 * The calling thread's context and its device, or the driver's error. A green context stands for
 * the primary one, because it uses that one's memory.
 */
CUresult charge_here(CUcontext *ret_ctx, CUdevice *ret_dev);

/* Takes budget of the current context's device, or of dev without a context. Waits for room. */
CUresult charge_begin(struct charge *charge, uint64_t bytes, int kind);
CUresult charge_begin_on(struct charge *charge, CUdevice dev, uint64_t bytes, int kind);

/* After out of memory. true: call the driver again (budget_retry()). */
bool charge_again(struct charge *charge, CUresult res);

/* Enters the new object into the ledger, or gives the budget back if res is an error. */
void charge_end(struct charge *charge, CUresult res, enum ledger_class class, uint64_t key);

/* The same for an object of which the caller keeps the books; call it after success. */
void charge_keep(struct charge *charge);

/*
 * Around a free. The entry must leave the ledger first, because the driver may give its address or
 * handle to another thread at once. It comes back if the driver refuses.
 */
bool charge_free_begin(enum ledger_class class, uint64_t key, struct ledger_entry *ret_entry);
void charge_free_end(const struct ledger_entry *entry, CUresult res);

/* Gives the entry's bytes back to the budget. */
void charge_give_back(const struct ledger_entry *entry);

#endif
