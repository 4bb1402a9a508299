/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/memory/charge.h"

#include "hook/gate/device.h"
#include "hook/gate/gate.h"
#include "hook/table/cuda_real.h"

/*
 * A thread keeps the handle of a context that has ended, and the driver still names its device. A
 * context in the books lives. Of any other, which may be a green one, only the driver knows.
 */
static CUresult context_check(CUcontext ctx)
{
	unsigned int flags;

	if (device_of(ctx) != DEVICE_ANY || !cuda_real.cuCtxGetFlags)
		return CUDA_SUCCESS;
	return cuda_real.cuCtxGetFlags(&flags);
}

CUresult charge_here(CUcontext *ret_ctx, CUdevice *ret_dev)
{
	CUcontext ctx = NULL;
	CUresult res;

	if (!cuda_real.cuCtxGetCurrent || !cuda_real.cuCtxGetDevice)
		return CUDA_ERROR_NOT_INITIALIZED;
	res = cuda_real.cuCtxGetCurrent(&ctx);
	if (res == CUDA_SUCCESS && !ctx)
		res = CUDA_ERROR_INVALID_CONTEXT;
	if (res == CUDA_SUCCESS)
		res = cuda_real.cuCtxGetDevice(ret_dev);
	if (res == CUDA_SUCCESS)
		res = context_check(ctx);
	if (res == CUDA_SUCCESS)
		*ret_ctx = device_owner(ctx, *ret_dev);
	return res;
}

static CUresult charge_take(struct charge *charge)
{
	CUresult res = budget_ask(charge->dev, charge->bytes);

	if (res != CUDA_SUCCESS)
		return res;
	gate_enter();
	res = budget_take(charge->dev, charge->bytes, charge->kind);
	if (res == CUDA_SUCCESS)
		return res;
	gate_leave();
	budget_allocated(charge->dev, -(int64_t)charge->bytes);
	return res;
}

CUresult charge_begin(struct charge *charge, uint64_t bytes, int kind)
{
	CUresult res;

	*charge = (struct charge){.bytes = bytes, .kind = kind};
	res = charge_here(&charge->ctx, &charge->dev);
	return res == CUDA_SUCCESS ? charge_take(charge) : res;
}

CUresult charge_begin_on(struct charge *charge, CUdevice dev, uint64_t bytes, int kind)
{
	*charge = (struct charge){.dev = dev, .bytes = bytes, .kind = kind};
	return charge_take(charge);
}

bool charge_again(struct charge *charge, CUresult res)
{
	return res == CUDA_ERROR_OUT_OF_MEMORY &&
	       budget_retry(charge->dev, charge->bytes, charge->kind, &charge->tries) ==
		       CUDA_SUCCESS;
}

void charge_give_back(const struct ledger_entry *entry)
{
	budget_give(entry->dev, entry->bytes, entry->kind);
	if (entry->class !=
	    LEDGER_POOL) /* the program did not ask for the bytes that a pool keeps */
		budget_allocated(entry->dev, -(int64_t)entry->bytes);
}

void charge_end(struct charge *charge, CUresult res, enum ledger_class class, uint64_t key)
{
	struct ledger_entry entry = {
		.class = class,
		.key = key,
		.bytes = charge->bytes,
		.owner = charge->owner,
		.ctx = charge->ctx,
		.dev = charge->dev,
		.kind = charge->kind,
	};
	struct ledger_entry stale;
	int r = res == CUDA_SUCCESS ? ledger_add(&entry) : -1;

	/* Something at this address went without our seeing it: the driver knows better. */
	if (r == LEDGER_E_EXISTS && ledger_remove(class, key, &stale)) {
		charge_give_back(&stale);
		r = ledger_add(&entry);
	}
	if (r)
		charge_give_back(&entry);
	gate_leave();
}

void charge_keep(struct charge *charge)
{
	(void)charge;
	gate_leave();
}

bool charge_free_begin(enum ledger_class class, uint64_t key, struct ledger_entry *ret_entry)
{
	return ledger_remove(class, key, ret_entry);
}

void charge_free_end(const struct ledger_entry *entry, CUresult res)
{
	if (res != CUDA_SUCCESS && ledger_add(entry) == 0)
		return;
	charge_give_back(entry);
}
