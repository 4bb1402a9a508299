/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/gate/drain.h"

#include "hook/base/hook_log.h"
#include "hook/gate/device.h"
#include "hook/gate/gate.h"
#include "hook/table/cuda_real.h"
#include "nvshare/protocol.h"
#include "util/clock.h"

#include <sched.h>

/*
 * Most work ends within microseconds, so a short spin pays. After that the waits grow: a long
 * kernel costs about a thousand wake-ups a second.
 */
#define DRAIN_SPIN_NS      50000
#define DRAIN_PAUSE_NS_MIN 20000
#define DRAIN_PAUSE_NS_MAX 1000000

struct drain_wait {
	uint64_t begin_ns;
	uint64_t end_ns;
	uint64_t pause_ns;
};

static struct {
	bool is_cancelled; /* atomic */
} drain;

/* Lets some time pass. false: there is none left. */
static bool drain_pause(struct drain_wait *wait)
{
	uint64_t now = clock_now_ns();

	if (now >= wait->end_ns || __atomic_load_n(&drain.is_cancelled, __ATOMIC_ACQUIRE))
		return false;
	if (now - wait->begin_ns < DRAIN_SPIN_NS) {
		(void)sched_yield();
		return true;
	}
	clock_nap(wait->pause_ns);
	wait->pause_ns += wait->pause_ns / 2;
	if (wait->pause_ns > DRAIN_PAUSE_NS_MAX)
		wait->pause_ns = DRAIN_PAUSE_NS_MAX;
	return true;
}

bool drain_has_limit(void)
{
	return cuda_real.cuCtxRecordEvent && cuda_real.cuEventCreate && cuda_real.cuEventQuery;
}

/*
 * Inside the context. Waits in the driver, without a limit. After each result nothing runs any
 * more, because a sticky error stops all work of its context.
 */
static void context_synchronize(struct device_context *c)
{
	CUresult res = cuda_real.cuCtxSynchronize();

	if (res != CUDA_SUCCESS)
		hook_debug("drain: context %p: error %d", (void *)c->ctx, (int)res);
}

/* Inside the context. Records *event behind all its work, and makes the event at its first use. */
static bool context_record_event(const struct device_context *c, CUevent *event, unsigned int flags)
{
	if (!*event && cuda_real.cuEventCreate(event, flags) != CUDA_SUCCESS) {
		*event = NULL;
		return false;
	}
	return cuda_real.cuCtxRecordEvent(c->ctx, *event) == CUDA_SUCCESS;
}

/* Inside the context. Afterwards c->is_recorded says whether its event stands for its work. */
static void context_record(struct device_context *c)
{
	c->is_recorded = context_record_event(c, &c->event, CU_EVENT_DISABLE_TIMING);
}

/* Inside the context, after context_record(). */
static void context_record_time(struct device_context *c)
{
	if (c->is_recorded)
		c->is_end_recorded = context_record_event(c, &c->end_event, CU_EVENT_DEFAULT);
}

/* Inside the context. An unexpected answer proves nothing, so the driver is made to wait. */
static bool context_is_done(struct device_context *c)
{
	CUresult res = cuda_real.cuEventQuery(c->event);

	if (res == CUDA_ERROR_NOT_READY)
		return false;
	if (res != CUDA_SUCCESS)
		context_synchronize(c);
	return true;
}

/*
 * A capture that was just beginning when captures were barred shows only when its thread is out.
 * The loop then begins anew, so that the program can finish the capture.
 */
static bool drain_close_gate(struct drain_wait *wait)
{
	do {
		if (gate_get() != GATE_CLOSED) /* closed: another GPU's memory may be out */
			gate_set(GATE_NO_CAPTURES);
		while (gate_capture_open()) {
			if (!drain_pause(wait))
				return false;
		}
		gate_set(GATE_CLOSED);
		while (!gate_quiet()) {
			if (!drain_pause(wait))
				return false;
		}
	} while (gate_capture_open());
	return true;
}

static bool drain_wait_context(struct device_context *c, struct drain_wait *wait)
{
	bool is_over = true;

	if (!device_context_enter(c))
		return true;
	if (!c->is_recorded)
		context_synchronize(c);
	else
		while (is_over && !device_context_is_going(c) && !context_is_done(c))
			is_over = drain_pause(wait);
	device_context_leave();
	return is_over;
}

/* Records all contexts before it waits for one, so their work ends side by side. */
static bool drain_wait_work(struct drain_wait *wait)
{
	struct device_context *c;

	for (c = device_context_hold(DEVICE_ANY); c; c = device_context_hold_next(c, DEVICE_ANY)) {
		c->is_recorded = false;
		if (drain_has_limit() && device_context_enter(c)) {
			context_record(c);
			device_context_leave();
		}
	}
	for (c = device_context_hold(DEVICE_ANY); c; c = device_context_hold_next(c, DEVICE_ANY)) {
		if (!drain_wait_context(c, wait)) {
			device_context_drop(c);
			return false;
		}
	}
	return true;
}

int drain_run(uint64_t max_ns)
{
	uint64_t now = clock_now_ns();
	struct drain_wait wait = {
		.begin_ns = now,
		.end_ns = now + max_ns,
		.pause_ns = DRAIN_PAUSE_NS_MIN,
	};

	if (!drain_close_gate(&wait) || !drain_wait_work(&wait)) {
		hook_debug("drain: not within %llu ms%s",
			   (unsigned long long)(max_ns / CLOCK_NS_PER_MS),
			   gate_capture_open() ? " (a stream capture is open)" : "");
		return NVSHARE_OUTCOME_TIMEOUT;
	}
	hook_debug("drain: %llu us", (unsigned long long)((clock_now_ns() - now) / 1000));
	return NVSHARE_OUTCOME_SUCCESS;
}

void drain_cancel(void)
{
	__atomic_store_n(&drain.is_cancelled, true, __ATOMIC_RELEASE);
}

/*
 * Captures are barred while it records, because cuCtxRecordEvent() breaks an open capture. Where
 * the driver lacks that function, only a synchronise could tell, which must not be with an open
 * gate. There a quiet gate counts as idle, and the drain waits for the rest.
 */
static bool drain_record_all(CUdevice dev, void (*record_one)(struct device_context *c))
{
	struct device_context *c;
	bool may_record;

	gate_set(GATE_NO_CAPTURES);
	may_record = !gate_capture_open();
	c = may_record ? device_context_hold(dev) : NULL;
	for (; c; c = device_context_hold_next(c, dev)) {
		if (!device_context_enter(c))
			continue;
		record_one(c);
		device_context_leave();
	}
	gate_set(GATE_OPEN);
	return may_record;
}

static void context_record_probe(struct device_context *c)
{
	c->is_recorded = false;
	c->is_end_recorded = false;
	if (drain_has_limit())
		context_record(c);
}

bool drain_probe_start(CUdevice dev)
{
	return drain_record_all(dev, context_record_probe);
}

void drain_probe_time(CUdevice dev)
{
	(void)drain_record_all(dev, context_record_time);
}

bool drain_probe_done(CUdevice dev)
{
	struct device_context *c;
	bool is_idle = true;

	for (c = device_context_hold(dev); c; c = device_context_hold_next(c, dev)) {
		if (!c->is_recorded || !device_context_enter(c))
			continue;
		is_idle = is_idle && cuda_real.cuEventQuery(c->event) == CUDA_SUCCESS;
		device_context_leave();
	}
	return is_idle;
}
