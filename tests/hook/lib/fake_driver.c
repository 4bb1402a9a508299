/* SPDX-License-Identifier: Apache-2.0 */

#include "fake_driver.h"

#include "hook/freeze/channels.h"
#include "hook/freeze/freeze.h"
#include "hook/gate/bell.h"
#include "hook/gate/gate.h"
#include "hook/host/hostpool.h"
#include "hook/memory/budget.h"
#include "hook/pager/backend.h"
#include "hook/pager/pager.h"
#include "hook/pager/pager_context.h"
#include "hook/pools/pools.h"
#include "hook/table/bypass.h"
#include "hook/table/reach.h"
#include "hook/tickets/tickets.h"
#include "util/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct cuda_real cuda_real;
struct fake_driver fake_driver;

static __thread CUcontext fake_current;

static CUresult fake_uuid(CUuuid *uuid, CUdevice dev)
{
	memset(uuid->bytes, 0x40 + dev, sizeof(uuid->bytes));
	return CUDA_SUCCESS;
}

static CUresult fake_total(size_t *bytes, CUdevice dev)
{
	*bytes = FAKE_TOTAL;
	return dev < 4 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult fake_push(CUcontext ctx)
{
	fake_current = ctx;
	return CUDA_SUCCESS;
}

static CUresult fake_pop(CUcontext *ret)
{
	*ret = fake_current;
	fake_current = NULL;
	return CUDA_SUCCESS;
}

static CUresult fake_event_create(CUevent *event, unsigned int flags)
{
	if (!fake_current)
		return CUDA_ERROR_INVALID_CONTEXT;
	*event = (CUevent)((uintptr_t)fake_current + (flags == CU_EVENT_DEFAULT));
	return (CUresult)fake_get(event_error);
}

/* With a time, and on a stream of its own: fake_is_timed(). */
static CUresult fake_record_timed(CUevent event, CUstream stream)
{
	if ((uintptr_t)event != (uintptr_t)fake_current + 1 || !stream)
		return CUDA_ERROR_INVALID_HANDLE;
	fake_count(n_timed);
	fake_set(is_answered, 0);
	return CUDA_SUCCESS;
}

static bool fake_is_timed(CUevent event)
{
	return fake_current && (uintptr_t)event == (uintptr_t)fake_current + 1;
}

static CUresult fake_record(CUcontext ctx, CUevent event)
{
	if (fake_is_timed(event))
		return CUDA_SUCCESS; /* as the first of the two has gone */
	fake_count(n_records);
	if ((void *)ctx != (void *)event)
		return CUDA_ERROR_INVALID_HANDLE;
	return (CUresult)fake_get(record_error);
}

static CUresult fake_query(CUevent event)
{
	bool is_gone = fake_get(is_gone);

	fake_count(n_queries);
	if (fake_is_timed(event)) {
		if (!fake_get(is_away) || is_gone)
			fake_set(is_answered, 1);
		return fake_get(is_answered) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
	}
	if ((void *)event != (void *)fake_current)
		return CUDA_ERROR_INVALID_CONTEXT; /* as a driver does for a thread without one */
	if (fake_get(query_error))
		return (CUresult)fake_get(query_error);
	return fake_get(is_working) && !is_gone ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult fake_elapsed(float *ms, CUevent start, CUevent end)
{
	if (!fake_is_timed(start) || !fake_is_timed(end))
		return CUDA_ERROR_INVALID_HANDLE;
	*ms = (float)fake_get(answered_us) / 1000;
	return CUDA_SUCCESS;
}

static CUresult fake_synchronize(void)
{
	fake_count(n_synchronizes);
	return fake_current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult fake_exchange(CUstreamCaptureMode *mode)
{
	fake_set(capture_mode, (int)*mode);
	*mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	return CUDA_SUCCESS;
}

static CUresult fake_load(CUmodule *module, const void *image)
{
	fake_count(n_loads);
	*module = (CUmodule)0x3000;
	return image && fake_current ? (CUresult)fake_get(load_error) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_stream_create(CUstream *stream, unsigned int flags)
{
	*stream = (CUstream)0x3100;
	return flags == CU_STREAM_NON_BLOCKING ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_stream_create_first(CUstream *stream, unsigned int flags, int priority)
{
	return priority < 0 ? fake_stream_create(stream, flags) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_function(CUfunction *function, CUmodule module, const char *name)
{
	*function = (CUfunction)0x3200;
	return module && !strcmp(name, "nvs_empty") ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

static CUresult fake_launch(CUfunction f, unsigned int grid_x, unsigned int grid_y,
			    unsigned int grid_z, unsigned int block_x, unsigned int block_y,
			    unsigned int block_z, unsigned int shared, CUstream stream,
			    void **params, void **extra)
{
	(void)params;
	(void)extra;
	if (!f || !stream || grid_x * grid_y * grid_z * block_x * block_y * block_z != 1 || shared)
		return CUDA_ERROR_INVALID_VALUE;
	fake_count(n_launches);
	return CUDA_SUCCESS;
}

void fake_install(void)
{
	memset(&fake_driver, 0, sizeof(fake_driver));
	cuda_real.cuDeviceGetUuid_v2 = fake_uuid;
	cuda_real.cuDeviceTotalMem_v2 = fake_total;
	cuda_real.cuCtxPushCurrent_v2 = fake_push;
	cuda_real.cuCtxPopCurrent_v2 = fake_pop;
	cuda_real.cuEventCreate = fake_event_create;
	cuda_real.cuEventQuery = fake_query;
	cuda_real.cuEventElapsedTime = fake_elapsed;
	cuda_real.cuCtxRecordEvent = fake_record;
	cuda_real.cuEventRecord = fake_record_timed;
	cuda_real.cuCtxSynchronize = fake_synchronize;
	cuda_real.cuThreadExchangeStreamCaptureMode = fake_exchange;
	cuda_real.cuModuleLoadData = fake_load;
	cuda_real.cuModuleGetFunction = fake_function;
	cuda_real.cuStreamCreate = fake_stream_create;
	cuda_real.cuStreamCreateWithPriority = fake_stream_create_first;
	cuda_real.cuLaunchKernel = fake_launch;
}

/* ---- the pager: moves nothing, keeps the books -------------------------------- */

struct pager_moving {
	CUdevice dev;
	bool is_eviction;
	bool is_frozen;
	bool has_begun;
	uint64_t bytes;
	int outcome;
	struct pager_move moved;
};

struct pager_moving *pager_evict_begin(CUdevice dev, uint64_t bytes, bool is_frozen)
{
	struct pager_moving *move = calloc(1, sizeof(*move));

	*move = (struct pager_moving){
		.dev = dev, .is_eviction = true, .is_frozen = is_frozen, .bytes = bytes};
	return move;
}

struct pager_moving *pager_restore_begin(CUdevice dev)
{
	struct pager_moving *move = calloc(1, sizeof(*move));

	*move = (struct pager_moving){.dev = dev};
	return move;
}

int pager_move_end(struct pager_moving *move, struct pager_move *ret_move)
{
	int outcome = move->outcome;

	*ret_move = move->moved;
	free(move);
	return outcome;
}

static void evict_first(struct pager_moving *move)
{
	uint64_t first = fake_get(evict_first);
	struct nvshare_mem mem;

	fake_count(n_evictions);
	fake_set(evict_was_frozen, move->is_frozen);
	fake_set(evict_bytes, move->bytes);
	budget_read(move->dev, &mem);
	move->bytes = move->bytes < mem.resident ? move->bytes : mem.resident;
	if (first && move->is_frozen && !freeze_commit())
		move->outcome = NVSHARE_OUTCOME_TIMEOUT;
	else
		budget_swapped_out(move->dev, first);
}

/* true: it is not over. */
static bool evict_step(struct pager_moving *move)
{
	uint64_t first = fake_get(evict_first);

	if (!move->has_begun)
		evict_first(move);
	move->has_begun = true;
	if (!move->outcome && fake_driver.on_first && fake_driver.on_first(move->dev, first))
		return true;
	if (!move->outcome)
		move->outcome = fake_get(evict_outcome);
	if (move->outcome)
		return false;
	budget_swapped_out(move->dev, move->bytes - first);
	move->moved = (struct pager_move){.bytes = move->bytes, .copied = move->bytes, .ns = 1000};
	move->outcome = fake_current ? NVSHARE_OUTCOME_SUCCESS : NVSHARE_OUTCOME_INVALID_STATE;
	return false;
}

/* Half is in, and there is no budget for more. true: it is not over. */
static bool restore_rest(struct pager_moving *move)
{
	enum pager_more more =
		fake_driver.on_part ? fake_driver.on_part(move->dev) : PAGER_MORE_LATER;

	if (more == PAGER_MORE_NOT_YET)
		return true;
	if (more == PAGER_MORE_GIVEN && budget_swapped_in(move->dev, move->bytes)) {
		move->moved = (struct pager_move){.bytes = move->bytes, .ns = 1000};
		move->outcome = NVSHARE_OUTCOME_SUCCESS;
	}
	return false;
}

static bool restore_step(struct pager_moving *move)
{
	struct nvshare_mem mem;

	if (move->has_begun)
		return restore_rest(move);
	move->has_begun = true;
	fake_count(n_restores);
	budget_read(move->dev, &mem);
	move->outcome = fake_get(restore_outcome);
	if (move->outcome)
		return false;
	if (budget_swapped_in(move->dev, mem.swapped)) {
		move->moved = (struct pager_move){.bytes = mem.swapped, .ns = 1000};
		return false;
	}
	move->bytes = mem.swapped / 2;
	move->moved = (struct pager_move){.bytes = move->bytes, .ns = 500};
	move->outcome = NVSHARE_OUTCOME_INVALID_STATE;
	if (!budget_swapped_in(move->dev, move->bytes))
		return false;
	move->outcome = NVSHARE_OUTCOME_PARTIAL;
	return restore_rest(move);
}

bool pager_move_step(struct pager_moving *move, uint64_t *ret_pause_ns)
{
	*ret_pause_ns = CLOCK_NS_PER_MS;
	return move->is_eviction ? evict_step(move) : restore_step(move);
}

static int fake_run(struct pager_moving *move, struct pager_move *ret_move)
{
	uint64_t pause_ns;

	while (pager_move_step(move, &pause_ns))
		clock_nap(pause_ns);
	return pager_move_end(move, ret_move);
}

int pager_evict(CUdevice dev, uint64_t bytes, bool is_frozen, struct pager_move *ret_move)
{
	return fake_run(pager_evict_begin(dev, bytes, is_frozen), ret_move);
}

int pager_restore(CUdevice dev, struct pager_move *ret_move)
{
	return fake_run(pager_restore_begin(dev), ret_move);
}

void pager_prepare(CUdevice dev, uint64_t bytes, bool is_urgent)
{
	(void)dev;
	(void)bytes;
	fake_count(n_prepares);
	if (is_urgent)
		fake_count(n_urgent);
}

void pager_touch(CUdevice dev, uint64_t bytes)
{
	(void)dev;
	fake_set(touched, bytes);
	fake_count(n_touches);
}

uint64_t pager_give_host_memory(CUdevice dev)
{
	uint64_t host = fake_get(host), used = fake_get(host_used);
	uint64_t bytes = host > used ? host - used : 0;

	(void)dev;
	if (bytes > FAKE_SLAB)
		bytes = FAKE_SLAB;
	fake_set(host, host - bytes);
	if (bytes)
		fake_count(n_gives);
	return bytes;
}

void pager_pin_all(CUdevice dev)
{
	struct nvshare_mem mem;

	budget_read(dev, &mem);
	budget_pin(dev, mem.resident, NVSHARE_PINNED_PLAIN);
}

struct pager_copies pager_copies_read(CUdevice dev)
{
	(void)dev;
	return (struct pager_copies){.clean = (uint64_t)fake_get(n_copied) * FAKE_SLAB,
				     .copied = (uint64_t)fake_get(n_copied) * FAKE_SLAB};
}

enum pager_ahead pager_copy_ahead(CUdevice dev)
{
	(void)dev;
	if (fake_get(n_copied) >= fake_get(n_to_copy))
		return PAGER_AHEAD_DONE;
	fake_count(n_copied);
	return PAGER_AHEAD_MORE;
}

void pager_context_load_digests(CUdevice dev, uint64_t max)
{
	(void)dev;
	(void)max;
}

void pager_drop_copies(CUdevice dev)
{
	(void)dev;
	fake_set(n_copied, 0);
}

void pager_after_fork_child(void)
{
}

void pools_after_fork_child(void)
{
}

void tickets_renew(bool has_words)
{
	(void)has_words;
}

void tickets_hear(const struct nvshare_ticket_word *word)
{
	(void)word;
}

enum tickets_taken tickets_take(CUdeviceptr addr, size_t size)
{
	(void)addr;
	(void)size;
	return TICKETS_STAY;
}

void tickets_keep(CUdeviceptr addr, size_t size)
{
	(void)addr;
	(void)size;
}

void tickets_return(void)
{
	fake_count(n_returned);
}

bool tickets_are_wanted(void)
{
	return fake_get(is_ticket_wanted);
}

bool tickets_are_used(void)
{
	return fake_get(is_ticket_used);
}

void opened_park(void)
{
	fake_count(n_parks);
}

bool opened_return(CUdevice dev)
{
	(void)dev;
	return !fake_get(is_opened_away);
}

bool opened_is_parked(CUdevice dev)
{
	(void)dev;
	return fake_get(is_opened_parked);
}

bool opened_is_there(CUdevice dev)
{
	(void)dev;
	return false;
}

uint64_t tickets_tick(uint64_t now_ns)
{
	(void)now_ns;
	return UINT64_MAX;
}

void tickets_after_fork_child(void)
{
}

#define fake_has(member, dev) ((fake_get(member) >> (dev)&1) != 0)

/* ---- the second context, and freezing: as the test says ------------------------- */

uint64_t pager_context_bytes(CUdevice dev)
{
	(void)dev;
	return 0;
}

bool pager_context_make(CUdevice dev, uint64_t max)
{
	bool can_be = fake_get(can_freeze) && !fake_has(no_second, dev);

	(void)max;
	fake_count(n_seconds);
	if (can_be)
		fake_set(has_second, fake_get(has_second) | 1 << dev);
	return can_be;
}

CUcontext pager_context_get(CUdevice dev)
{
	return fake_has(has_second, dev) ? FAKE_SECOND : NULL;
}

void pager_context_drop(CUdevice dev)
{
	if (fake_has(has_second, dev))
		fake_count(n_second_drops);
	fake_set(has_second, fake_get(has_second) & ~(1 << dev));
}

uint64_t hostpool_bytes(void)
{
	return fake_get(host);
}

bool hostpool_has_any(void)
{
	return fake_get(host) != 0;
}

bool hostpool_may_return(void)
{
	return false;
}

uint64_t pager_return_slab(CUdevice dev, bool is_wanted)
{
	(void)dev;
	(void)is_wanted;
	return 0;
}

void hostpool_trim(void)
{
	fake_count(n_trims);
}

void hostpool_trim_here(void)
{
	hostpool_trim();
}

bool pager_mover_is_hung(void)
{
	return false;
}

bool pager_mover_is_any_hung(void)
{
	return false;
}

uint64_t pager_mover_tick(uint64_t now_ns)
{
	(void)now_ns;
	return CLOCK_NEVER;
}

void pager_mover_stop(void)
{
}

uint64_t hostpool_give_touched(void)
{
	uint64_t bytes = (uint64_t)fake_get(n_slabs) * FAKE_SLAB;

	fake_set(n_slabs, 0);
	fake_set(host, fake_get(host) - bytes);
	return bytes;
}

bool hostpool_may_add(bool may_register)
{
	return may_register && fake_get(n_slabs) > 0;
}

void hostpool_add_one(bool may_register)
{
	(void)may_register;
	clock_nap((uint64_t)fake_get(register_ms) * CLOCK_NS_PER_MS);
	fake_set(n_slabs, fake_get(n_slabs) - 1);
}

bool hostpool_register_one(void)
{
	int n = fake_get(n_loose);

	clock_nap((uint64_t)fake_get(register_ms) * CLOCK_NS_PER_MS);
	if (n && !fake_get(has_second))
		fake_set(n_loose, n - 1);
	return n != 0;
}

void channels_own_begin(void)
{
}

void channels_own_end(void)
{
}

void freeze_load(void)
{
}

bool reach_look(void)
{
	return bypass_seen();
}

const char *freeze_why_not(void)
{
	return fake_get(can_freeze) ? NULL : "the test says so";
}

uint32_t freeze_halt(void)
{
	return fake_get(can_freeze) ? NVSHARE_HALT_FREEZE : NVSHARE_HALT_DRAIN;
}

int freeze_prove(CUdevice dev, CUcontext ctx)
{
	(void)ctx;
	if (fake_get(can_freeze) && !fake_get(proof_fails))
		fake_set(is_proven, fake_get(is_proven) | 1 << dev);
	return 0;
}

int freeze_prove_busy(CUdevice dev, CUcontext ctx)
{
	fake_count(n_proofs);
	return freeze_prove(dev, ctx);
}

void freeze_context_gone(CUcontext ctx)
{
	(void)ctx;
}

bool freeze_is_proven(CUdevice dev)
{
	return fake_has(is_proven, dev);
}

int freeze_begin(uint64_t limit_ns)
{
	(void)limit_ns;
	fake_count(n_freezes);
	if (!fake_get(freeze_error))
		fake_set(is_frozen, 1);
	return fake_get(freeze_error);
}

int freeze_begin_compute(uint64_t limit_ns)
{
	fake_set(hold_limit_ns, limit_ns);
	fake_count(n_holds);
	clock_nap((uint64_t)fake_get(hold_ms) * CLOCK_NS_PER_MS);
	if (fake_get(n_busy) > 0) {
		fake_set(n_busy, fake_get(n_busy) - 1);
		return FREEZE_E_BUSY;
	}
	if (!fake_get(freeze_error))
		fake_set(is_frozen, 1);
	return fake_get(freeze_error);
}

bool freeze_extend(uint64_t limit_ns)
{
	(void)limit_ns;
	if (fake_get(is_frozen))
		fake_count(n_extends);
	return fake_get(is_frozen) != 0;
}

bool freeze_widen(uint64_t limit_ns)
{
	(void)limit_ns;
	if (fake_get(is_frozen))
		fake_count(n_widened);
	return fake_get(is_frozen) != 0;
}

int freeze_set_timeslice(CUdevice dev, uint64_t us)
{
	(void)dev;
	if (fake_get(has_no_groups))
		return -ENODEV;
	fake_set(slice_us, us);
	return 0;
}

bool freeze_commit(void)
{
	if (fake_get(is_late))
		fake_set(is_frozen, 0);
	fake_set(is_committed, fake_get(is_frozen));
	return fake_get(is_frozen) != 0;
}

int freeze_end(void)
{
	if (fake_get(is_frozen))
		fake_count(n_thaws);
	fake_set(is_frozen, 0);
	return 0;
}

uint64_t freeze_tick(uint64_t now_ns)
{
	if (!fake_get(stays_off))
		return UINT64_MAX;
	fake_count(n_backs);
	return now_ns + 1000000;
}

bool freeze_is_on(void)
{
	return fake_get(is_frozen) != 0;
}

void freeze_stop(void)
{
}

void freeze_after_fork_child(void)
{
}

enum nvshare_backend backend_of(CUdevice dev)
{
	(void)dev;
	return NVSHARE_BACKEND_VMM;
}
