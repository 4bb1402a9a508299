/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_FREEZE_H
#define NVS_HOOK_FREEZE_H

/*
 * Taking the whole process off its GPUs in the middle of whatever they compute, and
 * putting it back: by the driver's own control over the process's own channels, without
 * privileges. Channels that the library made for itself (channels_own_begin()) go on.
 *
 * RUNNING -> freeze_begin() -> FROZEN -> freeze_commit() -> COMMITTED -> freeze_end().
 * Memory may be taken away only when committed: until then the watchdog, a thread that
 * makes no CUDA call, thaws after a time limit, so that a lock of the driver's which a
 * frozen thread holds can not stop the process for ever.
 *
 * A status of success proves nothing: before a GPU's memory is taken for the first time,
 * freeze_prove() has to show that its work does stand still.
 *
 * Threading: one thread, the agent's, but where it says otherwise.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	FREEZE_E_SUCCESS_,
	FREEZE_E_OFF,         /* freeze_why_not() says why */
	FREEZE_E_BUSY,        /* not running, too soon after the last thaw, channels go: later */
	FREEZE_E_NO_CHANNELS, /* nothing was seen that could be frozen: no context yet */
	FREEZE_E_REFUSED,     /* the driver refused it; everything is as it was */
	FREEZE_E_UNPROVEN,    /* work went on while frozen, or could not be looked at */
};

struct freeze_stats {
	uint64_t n_freezes; /* that succeeded */
	uint64_t n_failures;
	uint64_t n_expired; /* thawed by the watchdog */
	uint64_t freeze_ns_last, freeze_ns_total;
	uint64_t thaw_ns_last, thaw_ns_total;
};

/*
 * A thread of the program, before the first of the rest: loads what that needs. The agent's
 * must not: it would wait for who loads a library, who may be waiting for the agent.
 */
void freeze_load(void);

/*
 * NULL: this process can be frozen, for all that is known by now; else why not, in a few
 * words for status and log. Some reasons go away (a debugger), most do not. The first call
 * makes driver calls, of which none touches a context.
 */
const char *freeze_why_not(void);
uint32_t freeze_halt(void); /* the same, as enum nvshare_halt; _FREEZE when it can be */

/*
 * Once a GPU: freezes, checks that a value written by a stream of ctx (which the caller
 * holds) does not land for 5 ms, or three times as long as one takes that is not held up but
 * by others' turns, and that it does after the thaw. Nothing of the program is at work or comes. 0;
 * FREEZE_E_UNPROVEN: from then on freeze_why_not() says so; FREEZE_E_BUSY, _NO_CHANNELS or -errno:
 * not decided, later again. So is what the driver refuses, twice.
 */
int freeze_prove(CUdevice dev, CUcontext ctx);
/*
 * With work under way, behind a closed gate: FREEZE_E_BUSY when it is not, when somebody leaves
 * it meanwhile, or when something is ahead of the value that is not done soon, as a long kernel
 * of a stream with the same hardware queue. The value stays under way, and the next call is for
 * nothing until it has landed.
 */
int freeze_prove_busy(CUdevice dev, CUcontext ctx);
void freeze_context_gone(CUcontext ctx); /* any thread: nobody holds it any more */
bool freeze_is_proven(CUdevice dev);

/*
 * Takes every channel of the process but our own off its GPU. All or nothing. limit_ns: so
 * long after it the watchdog thaws, unless committed; UINT64_MAX: never. 0, FREEZE_E_OFF,
 * _BUSY, _NO_CHANNELS, _REFUSED, or -errno.
 */
int freeze_begin(uint64_t limit_ns);

/*
 * For keeping the program off for a while, without taking its memory: only what computes,
 * which is a third of the time, and copies go on; without the pause that lies between two of
 * the others, since it is called for by work that waits. Never committed, unless
 * freeze_widen() has taken the rest off, too. Results as freeze_begin().
 */
int freeze_begin_compute(uint64_t limit_ns);
/*
 * A freeze that is on, and not committed, lasts limit_ns from now. widen: and is of every
 * channel. false: it was over, or is in a moment, and nothing is frozen. An extension may
 * come too late without a word, as a commit shows.
 */
bool freeze_extend(uint64_t limit_ns);
bool freeze_widen(uint64_t limit_ns);

/* From here on nothing thaws but freeze_end(); again: nothing. false: the watchdog has thawed. */
bool freeze_commit(void);

/*
 * Thaws; nothing to do when running. 0, or FREEZE_E_REFUSED: the driver left some channel
 * off, in spite of several tries; freeze_why_not() says so.
 */
int freeze_end(void);
/* Tries again to put such channels back. When it is to be called next; UINT64_MAX: never. */
uint64_t freeze_tick(uint64_t now_ns);

/*
 * Around what a freeze must not meet: making or destroying a context. A context that was
 * frozen in the middle of either was seen to hang in its destruction, for good, on a real
 * card (driver 580). Waits while a freeze is on, outside the
 * driver; in between freeze_begin() says FREEZE_E_BUSY, and pthread_cancel() ends nobody: it
 * does when the thread is through. Any thread but the agent's; nests not. false, and there is
 * nothing to drop: the process leaves, and its memory is out; the driver would wait for ever.
 */
bool freeze_hold(void);
void freeze_drop(void);

/*
 * Around calls of the program that may keep a lock of the driver's while they wait for the
 * GPU: none comes into the driver while every channel is off, where it could be in the way of
 * bringing memory back. Who is in already is given a moment, and is no reason not to
 * freeze: whether it is in the way, the eviction's probe shows. Otherwise as freeze_hold().
 */
bool freeze_enter(void);
void freeze_leave(void);

static inline CUresult freeze_left(CUresult res)
{
	freeze_leave();
	return res;
}

/* What a driver says that is going away; the CUDA runtime takes it for the end it is. */
#define FREEZE_AROUND(call) (freeze_enter() ? freeze_left(call) : CUDA_ERROR_DEINITIALIZED)

bool freeze_is_on(void);     /* any thread: not RUNNING */
uint64_t freeze_epoch(void); /* any thread: grows with each thaw */

/*
 * The timeslice of every channel group of the program on dev, microseconds, and of those
 * that appear later; the driver's own setting of one is followed by ours. us 0: as the
 * driver has them. 0, -ENODEV (no context has been made there), or FREEZE_E_REFUSED.
 */
int freeze_set_timeslice(CUdevice dev, uint64_t us);

void freeze_stats(struct freeze_stats *ret);

/*
 * At exit: no more freezes. What is frozen is thawed; what is committed stays, since its
 * memory is out.
 */
void freeze_stop(void);
void freeze_after_fork_child(void);

#endif
