/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The proof that a freeze freezes: a value that the GPU is to write, into memory that the
 * processor can look at. First without a freeze, so that nothing which the driver does at
 * a first use is taken for one.
 */

#include "hook/device.h"
#include "hook/freeze/freeze_private.h"
#include "hook/hook_log.h"
#include "hook/table/cuda_real.h"
#include "util/clock.h"

#include <string.h>
#include <time.h>

#define PROVE_STILL_NS      (5 * CLOCK_NS_PER_MS)    /* so long nothing may land */
#define PROVE_LAND_NS       (2000 * CLOCK_NS_PER_MS) /* so long it may take to */
#define PROVE_SOON_NS       (30 * CLOCK_NS_PER_MS)   /* where it is not to wait for work */
#define PROVE_LIMIT_NS      (500 * CLOCK_NS_PER_MS)
#define PROVE_PAUSE_NS      50000
#define HOST_DEVICEMAP      2u
#define STREAM_NON_BLOCKING 1u

static bool is_proven[DEVICE_COUNT_MAX];

bool freeze_is_proven(CUdevice dev)
{
	return dev >= 0 && dev < DEVICE_COUNT_MAX &&
	       __atomic_load_n(&is_proven[dev], __ATOMIC_ACQUIRE);
}

static bool lands(const uint32_t *flag, uint32_t value, uint64_t within_ns)
{
	const struct timespec pause = {.tv_nsec = PROVE_PAUSE_NS};
	uint64_t end_ns = clock_now_ns() + within_ns;

	while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != value) {
		if (clock_now_ns() >= end_ns)
			return false;
		(void)nanosleep(&pause, NULL);
	}
	return true;
}

static bool submit(CUstream stream, uint32_t *flag, uint32_t value)
{
	CUresult (*write)(CUstream s, CUdeviceptr addr, cuuint32_t v, unsigned int flags) =
		cuda_real.cuStreamWriteValue32_v2;
	CUresult res = CUDA_ERROR_NOT_SUPPORTED;

	if (write)
		res = write(stream, (CUdeviceptr)(uintptr_t)flag, value, 0);
	if (res != CUDA_SUCCESS && cuda_real.cuStreamWriteValue32)
		res = cuda_real.cuStreamWriteValue32(stream, (CUdeviceptr)(uintptr_t)flag, value,
						     0);
	return res == CUDA_SUCCESS;
}

static int unproven(enum freeze_why why)
{
	freeze_why_set(why);
	return FREEZE_E_UNPROVEN;
}

/* Everything that was submitted has landed when this returns, unless it never will. */
static int prove(CUstream stream, uint32_t *flag, uint64_t patience_ns)
{
	bool is_sent = submit(stream, flag, 1), moved;
	int r;

	if (is_sent && !lands(flag, 1, patience_ns) && patience_ns < PROVE_LAND_NS)
		return FREEZE_E_BUSY;
	if (!is_sent || __atomic_load_n(flag, __ATOMIC_ACQUIRE) != 1)
		return unproven(FREEZE_WHY_NO_WRITES);
	r = freeze_begin(PROVE_LIMIT_NS);
	if (r)
		return r == FREEZE_E_REFUSED ? unproven(FREEZE_WHY_REFUSED) : r;
	if (!submit(stream, flag, 2)) {
		(void)freeze_end();
		return unproven(FREEZE_WHY_WRITE_FAILED);
	}
	moved = lands(flag, 2, PROVE_STILL_NS);
	/* Committed for a moment: a watchdog that has thawed would make a liar of either. */
	if (!freeze_commit()) {
		(void)lands(flag, 2, PROVE_LAND_NS);
		return FREEZE_E_BUSY;
	}
	(void)freeze_end();
	if (!lands(flag, 2, PROVE_LAND_NS))
		return unproven(FREEZE_WHY_NEVER_WENT_ON);
	return moved ? unproven(FREEZE_WHY_WENT_ON) : 0;
}

static int prove_within(CUdevice dev, uint64_t patience_ns)
{
	CUstream stream = NULL;
	void *flag = NULL;
	int r;

	if (freeze_why_not())
		return FREEZE_E_OFF;
	if (freeze_is_proven(dev))
		return 0;
	if (dev < 0 || dev >= DEVICE_COUNT_MAX || !cuda_real.cuMemHostAlloc ||
	    !cuda_real.cuStreamCreate || !cuda_real.cuStreamDestroy_v2 ||
	    cuda_real.cuMemHostAlloc(&flag, sizeof(uint32_t), HOST_DEVICEMAP) != CUDA_SUCCESS)
		return FREEZE_E_BUSY;
	memset(flag, 0, sizeof(uint32_t));
	r = cuda_real.cuStreamCreate(&stream, STREAM_NON_BLOCKING) == CUDA_SUCCESS
		    ? prove(stream, flag, patience_ns)
		    : FREEZE_E_BUSY;
	if (r == 0)
		__atomic_store_n(&is_proven[dev], true, __ATOMIC_RELEASE);
	if (stream)
		(void)cuda_real.cuStreamDestroy_v2(stream);
	/* The flag stays: to free it is to wait for all work. It goes with its context. */
	return r;
}

int freeze_prove(CUdevice dev, CUcontext ctx)
{
	(void)ctx;
	return prove_within(dev, PROVE_LAND_NS);
}

int freeze_prove_busy(CUdevice dev, CUcontext ctx)
{
	(void)ctx;
	return prove_within(dev, PROVE_SOON_NS);
}

void freeze_prove_after_fork_child(void)
{
	memset(is_proven, 0, sizeof(is_proven));
}
