/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Off the GPU, and on again. It is frozen while there is a reason to be; each reason has an
 * end, after which the agent thaws, and a little later the watchdog does.
 *
 * A program on several GPUs is off all of them as long as there is a reason on one: its channels
 * are frozen together, and its threads have one gate.
 */

#include "core/u64.h"
#include "hook/base/hook_log.h"
#include "hook/freeze/freeze.h"
#include "hook/gate/device.h"
#include "hook/pager/backend.h"
#include "hook/share/share_private.h"
#include "util/clock.h"

#include <string.h>

#define OFF_GRACE_NS (2 * CLOCK_NS_PER_MS) /* the watchdog is only there in case */

/* A thread makes or destroys a context, or a thaw is under way: milliseconds. */
#define OFF_TRIES    20
#define OFF_PAUSE_NS 100000

/*
 * On an H200 the work of a process stops 0.23 ms before the call that freezes it returns (p99
 * 0.27 ms; a call takes 0.5 to 0.8), and goes on 0.01 ms after the one that thaws it has: the
 * app `freeze`.
 */
#define OFF_STOPS_NS 230000

/* A busy card, mostly: a try may have stopped the program for some milliseconds. */
#define PROVE_TRIES        8 /* then ever less often */
#define PROVE_PAUSE_NS     (200 * CLOCK_NS_PER_MS)
#define PROVE_PAUSE_NS_MAX (30 * CLOCK_NS_PER_SEC)

static struct {
	uint64_t until_ns[SHARE_REASON_COUNT_][DEVICE_COUNT_MAX]; /* 0: no reason */
	bool is_frozen;
	bool is_barred;
	uint64_t since_ns;
	struct share_off_stats stats; /* held_ns: up to since_ns */
	uint32_t n_proofs;
	uint64_t prove_pause_ns;
	uint64_t prove_ns; /* not again before then */
} off;

static uint64_t reason_end_ns(enum share_reason reason)
{
	uint64_t end = 0;

	for (CUdevice dev = 0; dev < DEVICE_COUNT_MAX; dev++) {
		uint64_t until_ns = off.until_ns[reason][dev];

		end = until_ns > end ? until_ns : end;
	}
	return end;
}

static uint64_t off_end_ns(void)
{
	uint64_t end = 0;

	for (int i = 0; i < SHARE_REASON_COUNT_; i++) {
		uint64_t reason_ns = reason_end_ns((enum share_reason)i);

		end = reason_ns > end ? reason_ns : end;
	}
	return end;
}

bool share_off_is(enum share_reason reason)
{
	return reason_end_ns(reason) != 0;
}

bool share_off_is_for(CUdevice dev, enum share_reason reason)
{
	return off.until_ns[reason][dev] != 0;
}

bool share_off_is_on(void)
{
	return off.is_frozen || off.is_barred;
}

bool share_is_frozen(void)
{
	return off.is_frozen;
}

bool share_bars_gate(void)
{
	return off.is_barred;
}

/* A frozen process of the managed backend could not have its page faults served. */
static bool off_can_freeze(void)
{
	agent_for_each_link (l) {
		if (backend_of(l->dev) == NVSHARE_BACKEND_MANAGED)
			return false;
	}
	return !freeze_why_not();
}

/* On dev, and on each other GPU that the program computes on. */
static bool off_is_proven(CUdevice dev)
{
	return freeze_is_proven(dev) && agent_halt_is_proven();
}

void share_off_prove(CUdevice dev)
{
	uint64_t now_ns = clock_now_ns();

	if (off_is_proven(dev) || now_ns < off.prove_ns || share_off_is_on() ||
	    agent_lease_is_stopped() || !off_can_freeze())
		return;
	if (off.n_proofs++ < PROVE_TRIES)
		off.prove_pause_ns = PROVE_PAUSE_NS;
	else
		off.prove_pause_ns = u64_min(2 * off.prove_pause_ns, PROVE_PAUSE_NS_MAX);
	agent_halt_prove_all(true);
	off.prove_ns = clock_now_ns() + off.prove_pause_ns;
}

/* now_ns may be of before the last time: it is when a tick began. */
static void off_account(uint64_t now_ns)
{
	if (now_ns <= off.since_ns)
		return;
	if (share_off_is_on())
		off.stats.held_ns += now_ns - off.since_ns;
	off.since_ns = now_ns;
}

static uint32_t off_bar(CUdevice dev)
{
	hook_debug("device %d: can not be held; nothing new starts", (int)dev);
	off.since_ns = clock_now_ns();
	off.is_barred = true;
	agent_lease_sync_gate();
	return NVSHARE_OUTCOME_UNSUPPORTED;
}

/* ret_ns: the time of the try that counts. */
static int off_freeze(uint64_t until_ns, uint64_t *ret_ns)
{
	int r = FREEZE_E_BUSY;

	for (int i = 0; i < OFF_TRIES && r == FREEZE_E_BUSY; i++) {
		uint64_t now_ns;

		if (i > 0)
			clock_nap(OFF_PAUSE_NS);
		now_ns = clock_now_ns();
		if (now_ns >= until_ns)
			break;
		r = freeze_begin_compute(until_ns - now_ns + OFF_GRACE_NS);
		*ret_ns = clock_now_ns() - now_ns;
	}
	return r;
}

/*
 * For the first reason; the others find it done. A program that cannot be frozen yet, since its
 * kernels are in the way of the proof, is not held. A limit is kept as well as possible, and the
 * proof follows behind the closed gate: off_open().
 */
static uint32_t off_begin(CUdevice dev, enum share_reason reason)
{
	uint64_t start_ns, took_ns, call_ns = 0;
	int r;

	if (!off_can_freeze())
		return off_bar(dev);
	if (!off_is_proven(dev) && reason == SHARE_REASON_HOLD)
		share_off_prove(dev);
	if (!off_is_proven(dev))
		return freeze_why_not() || reason == SHARE_REASON_LIMIT
			       ? off_bar(dev)
			       : (uint32_t)NVSHARE_OUTCOME_TIMEOUT;
	start_ns = clock_now_ns();
	r = off_freeze(off_end_ns(), &call_ns);
	if (r == FREEZE_E_BUSY)
		return NVSHARE_OUTCOME_TIMEOUT;
	if (r == FREEZE_E_OFF || r == FREEZE_E_NO_CHANNELS)
		return off_bar(dev);
	if (r) {
		hook_debug("device %d: hold: error %d", (int)dev, r);
		return NVSHARE_OUTCOME_INVALID_STATE;
	}
	off.is_frozen = true;
	took_ns = clock_now_ns() - start_ns;
	off.since_ns = start_ns + took_ns - u64_min(OFF_STOPS_NS, call_ns / 2);
	off.stats.n_holds++;
	off.stats.took_ns_last = took_ns;
	if (took_ns > off.stats.took_ns_max)
		off.stats.took_ns_max = took_ns;
	return NVSHARE_OUTCOME_SUCCESS;
}

uint32_t share_off_begin(CUdevice dev, enum share_reason reason, uint64_t until_ns)
{
	uint64_t now_ns = clock_now_ns(), end;
	uint32_t outcome = NVSHARE_OUTCOME_SUCCESS;

	if (agent_lease_is_stopped())
		return NVSHARE_OUTCOME_INVALID_STATE; /* it is off already, by a stop */
	off.until_ns[reason][dev] = until_ns;
	end = off_end_ns();
	if (off.is_frozen && !freeze_extend(end > now_ns ? end - now_ns + OFF_GRACE_NS : 0)) {
		(void)freeze_end();
		off_account(now_ns);
		off.is_frozen = false;
	}
	if (off.is_barred)
		outcome = NVSHARE_OUTCOME_UNSUPPORTED;
	else if (!off.is_frozen)
		outcome = off_begin(dev, reason);
	if (!share_off_is_on()) {
		memset(off.until_ns, 0, sizeof(off.until_ns));
		off.stats.n_failures++;
	}
	return outcome;
}

/*
 * Behind a gate that was closed for a while, work has mostly ended, and is not in the way of the
 * proof.
 */
static void off_open(void)
{
	const struct agent_link *first = agent_link_next(NULL);

	if (first)
		share_off_prove(first->dev);
	agent_lease_sync_gate();
}

static void off_go_on(void)
{
	bool was_barred = off.is_barred;

	if (off.is_frozen && freeze_end())
		hook_log_warn("the GPU does not let this program go on");
	off_account(clock_now_ns());
	memset(off.until_ns, 0, sizeof(off.until_ns));
	off.is_frozen = false;
	off.is_barred = false;
	if (was_barred)
		off_open();
}

void share_off_end(CUdevice dev, enum share_reason reason)
{
	off.until_ns[reason][dev] = 0;
	if (!off_end_ns() && share_off_is_on())
		off_go_on();
}

void share_let_go(void)
{
	if (off.is_frozen)
		(void)freeze_end();
	off_account(clock_now_ns());
	memset(off.until_ns, 0, sizeof(off.until_ns));
	off.is_frozen = false;
	off.is_barred = false;
}

bool share_hand_over(uint64_t limit_ns)
{
	bool is_on;

	if (!off.is_frozen)
		return false;
	off_account(clock_now_ns());
	is_on = freeze_widen(limit_ns);
	if (!is_on)
		(void)freeze_end(); /* the watchdog may be at it */
	memset(off.until_ns, 0, sizeof(off.until_ns));
	off.is_frozen = false;
	return is_on;
}

uint64_t share_off_tick(uint64_t now_ns)
{
	if (!share_off_is_on())
		return SHARE_NEVER;
	for (int i = 0; i < SHARE_REASON_COUNT_ * DEVICE_COUNT_MAX; i++) {
		CUdevice dev = i % DEVICE_COUNT_MAX;
		enum share_reason reason = (enum share_reason)(i / DEVICE_COUNT_MAX);

		if (share_off_is_for(dev, reason) && now_ns >= off.until_ns[reason][dev])
			share_off_end(dev, reason);
	}
	return share_off_is_on() ? off_end_ns() : SHARE_NEVER;
}

void share_off_stats(uint64_t now_ns, struct share_off_stats *ret)
{
	off_account(now_ns);
	*ret = off.stats;
}

void share_off_reset(void)
{
	memset(&off, 0, sizeof(off));
}
