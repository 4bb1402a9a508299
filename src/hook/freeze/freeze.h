/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_FREEZE_H
#define NVS_HOOK_FREEZE_H

/*
 * Takes the whole process off its GPUs in the middle of its work, and puts it back. It uses the
 * driver's control of the process's own channels, which needs no privileges. The library's own
 * channels (channels_own_begin()) go on.
 *
 * RUNNING -> freeze_begin() -> FROZEN -> freeze_commit() -> COMMITTED -> freeze_end().
 *
 * Memory may be taken away only when the freeze is committed. Until then the watchdog thaws after a
 * time limit. It is a thread that makes no CUDA call. So a frozen thread that holds a lock of the
 * driver's cannot stop the process for ever.
 *
 * The driver's success proves nothing. Before memory of a GPU is taken for the first time,
 * freeze_prove() has to show that the work stands still.
 *
 * Threading: the agent's thread alone, unless a function says otherwise.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	FREEZE_E_SUCCESS_,
	FREEZE_E_OFF,         /* freeze_why_not() says why */
	FREEZE_E_BUSY,        /* try later: not running, just thawed, or channels are going */
	FREEZE_E_NO_CHANNELS, /* there is nothing to freeze: no context yet */
	FREEZE_E_REFUSED,     /* the driver refused; all is as before */
	FREEZE_E_UNPROVEN,    /* work went on while frozen, or it could not be told */
};

struct freeze_stats {
	uint64_t n_freezes; /* the ones that succeeded */
	uint64_t n_failures;
	uint64_t n_expired; /* thawed by the watchdog */
	uint64_t freeze_ns_last, freeze_ns_total;
	uint64_t thaw_ns_last, thaw_ns_total;
};

/*
 * Loads libraries that the other functions need. A thread of the program calls it first. The agent
 * must not, because it would wait for a thread that loads a library and waits for the agent.
 */
void freeze_load(void);

/*
 * NULL: this process can be frozen, as far as is known. Else the reason in a few words, for status
 * and log. A few reasons pass, like a debugger; most do not. The first call makes driver calls that
 * touch no context.
 */
const char *freeze_why_not(void);
uint32_t freeze_halt(
	void); /* the same as enum nvshare_halt; NVSHARE_HALT_FREEZE: it can be frozen */

/*
 * Proves, once a GPU, that freezing works. The program has no work, and no thread brings any. The
 * caller holds ctx. A stream of ctx writes a value while all is frozen. The value must not land
 * before the thaw, and must land after it. The freeze lasts 5 ms, or three times the wait for the
 * turns of other processes.
 *
 * 0: proven. FREEZE_E_UNPROVEN: it does not work, and freeze_why_not() says so from then on.
 * FREEZE_E_BUSY, FREEZE_E_NO_CHANNELS, -errno: undecided, try later. The driver's first two
 * refusals are undecided, too.
 */
int freeze_prove(CUdevice dev, CUcontext ctx);

/*
 * The same while work is under way, behind a closed gate. FREEZE_E_BUSY: the gate is open, a thread
 * has left it meanwhile, or work ahead of the value takes long, as a kernel in the same hardware
 * queue does. The value then stays under way, and calls return FREEZE_E_BUSY until it has landed.
 */
int freeze_prove_busy(CUdevice dev, CUcontext ctx);
void freeze_context_gone(CUcontext ctx); /* any thread; nobody holds ctx any more */
bool freeze_is_proven(CUdevice dev);

/*
 * Takes all channels of the process but our own off the GPUs, or none. The watchdog thaws after
 * limit_ns, unless the freeze is committed; UINT64_MAX: it does not. 0, FREEZE_E_OFF, _BUSY,
 * _NO_CHANNELS, _REFUSED, or -errno.
 */
int freeze_begin(uint64_t limit_ns);

/*
 * Keeps the program from computing for a while, and takes no memory. Only channels that compute go
 * off, which takes a third of the time, and copies go on. Work of another client waits for it, so
 * no pause lies between two of these. It cannot be committed, unless freeze_widen() has taken the
 * rest off. Results as freeze_begin().
 */
int freeze_begin_compute(uint64_t limit_ns);

/*
 * A freeze that is on, and not committed, lasts limit_ns from now on. freeze_widen() takes the
 * other channels off, too. false: the freeze has ended or is ending. An extension may come too late
 * and return true; freeze_commit() shows it.
 */
bool freeze_extend(uint64_t limit_ns);
bool freeze_widen(uint64_t limit_ns);

/* From here on only freeze_end() thaws. false: the watchdog has thawed. Again: nothing, true. */
bool freeze_commit(void);

/*
 * Thaws; does nothing when running. FREEZE_E_REFUSED: the driver left a channel off, in several
 * tries, and freeze_why_not() says so.
 */
int freeze_end(void);

/* Tries again to put such channels back. Returns when to call it again; UINT64_MAX: never. */
uint64_t freeze_tick(uint64_t now_ns);

/*
 * Around the making or destroying of a context, which a freeze must not meet: on a real card
 * (driver 580) a context that was frozen in either hung in its destruction, for good. Waits,
 * outside the driver, while a freeze is on. Until the drop freeze_begin() returns FREEZE_E_BUSY,
 * and pthread_cancel() does not end the thread. Any thread but the agent's. Does not nest. false,
 * and there is nothing to drop: the process exits with its memory out, where the driver would wait
 * for ever.
 */
bool freeze_hold(void);
void freeze_drop(void);

/*
 * Around calls of the program that may keep a lock of the driver's while they wait for the GPU.
 * They wait while all channels are off, because such a call could be in the way of bringing memory
 * back. A freeze gives calls that are inside a moment, and then goes on: the eviction's probe shows
 * whether they are in the way. Otherwise as freeze_hold().
 */
bool freeze_enter(void);
void freeze_leave(void);

static inline CUresult freeze_left(CUresult res)
{
	freeze_leave();
	return res;
}

/* A driver that is going away answers so, and the CUDA runtime knows what it means. */
#define FREEZE_AROUND(call) (freeze_enter() ? freeze_left(call) : CUDA_ERROR_DEINITIALIZED)

bool freeze_is_on(void);     /* any thread; not RUNNING */
uint64_t freeze_epoch(void); /* any thread; grows with each thaw */

/*
 * Sets the timeslice, in microseconds, of all channel groups of the program on dev, now and later.
 * Where the driver sets one, ours follows. us 0: back to the driver's own. 0, -ENODEV (dev has had
 * no context), or FREEZE_E_REFUSED.
 */
int freeze_set_timeslice(CUdevice dev, uint64_t us);

void freeze_stats(struct freeze_stats *ret);

/* At exit: no more freezes. Thaws, unless committed: the memory is out then. */
void freeze_stop(void);
void freeze_after_fork_child(void);

#endif
