/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Is the program's work on the GPU, or does it wait for another process's slice to end? To ask,
 * the library records an event with a time on a stream that has nothing else to do. The GPU reaches
 * it within microseconds if the context is on the GPU, whatever its other streams run. Otherwise it
 * reaches it when the context's turn comes. An event without a time says nothing, because the host
 * engine signals it also for a process that is not on the GPU.
 *
 * On an H200, beside a process that always had work, 0.460 and 0.466 of the looks found the event
 * reached. The kernels ran for 0.450 to 0.454 of the time; switches took the rest.
 *
 * A short graph is an exception, as seen there. When the GPU has all of the graph, the host engine
 * turns to the next process, which waits for the graph to end. Our event is then reached only after
 * that process's slice. So a late answer does not prove that the program waited. If the work ended
 * before the answer or with it, it was on the GPU since the question. If the answer came first, it
 * was not. The times of both events show the order.
 */

#include "hook/gate/device.h"
#include "hook/share/share_private.h"
#include "hook/table/cuda_real.h"

/*
 * Higher than any, so the driver uses the highest priority. Few streams have that, so the stream
 * hardly shares a hardware queue with kernels. If it does, runtime_estimate.h notices.
 */
#define HERE_PRIORITY (-100)

/* If the answer came so long before the end of the work, it came first. */
#define HERE_BEFORE_MS 0.03f

static bool here_has_driver(void)
{
	return cuda_real.cuStreamCreateWithPriority && cuda_real.cuEventCreate &&
	       cuda_real.cuEventRecord && cuda_real.cuEventQuery;
}

/* Inside the context. Makes the stream and the event, which end with the context. Tried once. */
static void here_prepare(struct device_context *c)
{
	CUresult res = cuda_real.cuEventCreate(&c->here_event, CU_EVENT_DEFAULT);

	c->is_here_tried = true;
	if (res != CUDA_SUCCESS) {
		c->here_event = NULL;
		return;
	}
	res = cuda_real.cuStreamCreateWithPriority(&c->here_stream, CU_STREAM_NON_BLOCKING,
						   HERE_PRIORITY);
	if (res == CUDA_SUCCESS)
		return;
	if (cuda_real.cuEventDestroy_v2)
		(void)cuda_real.cuEventDestroy_v2(c->here_event);
	c->here_event = NULL;
}

/* Inside the context. All work before the meter's last event is done. */
static bool here_is_idle(const struct device_context *c)
{
	return c->is_recorded && cuda_real.cuEventQuery(c->event) == CUDA_SUCCESS;
}

/* Inside the context. There is one event at a time: until it is reached, the answer is the same. */
static enum share_here here_ask(struct device_context *c)
{
	if (!c->is_here_tried)
		here_prepare(c);
	if (!c->here_event)
		return SHARE_HERE_BLIND;
	if (c->is_here_asked && cuda_real.cuEventQuery(c->here_event) == CUDA_ERROR_NOT_READY)
		return SHARE_HERE_WAITING;
	c->is_here_asked = cuda_real.cuEventRecord(c->here_event, c->here_stream) == CUDA_SUCCESS;
	return c->is_here_asked ? SHARE_HERE_ASKED : SHARE_HERE_WAITING;
}

/* Asks all contexts with work, and returns the worst answer. Most programs have one context. */
enum share_here share_here_ask(CUdevice dev, bool knows_work)
{
	enum share_here all = SHARE_HERE_ASKED, one;
	struct device_context *c;

	if (!here_has_driver())
		return SHARE_HERE_BLIND;
	for (c = device_context_hold(dev); c; c = device_context_hold_next(c, dev)) {
		if (!device_context_enter(c))
			continue;
		if (!knows_work || !here_is_idle(c)) {
			one = here_ask(c);
			all = one < all ? one : all;
		}
		device_context_leave();
	}
	return all;
}

bool share_here_is(CUdevice dev, bool knows_work)
{
	struct device_context *c;
	bool is_here = false;

	for (c = device_context_hold(dev); c; c = device_context_hold_next(c, dev)) {
		if (is_here || !c->is_here_asked || !device_context_enter(c))
			continue;
		if (!knows_work || !here_is_idle(c))
			is_here = cuda_real.cuEventQuery(c->here_event) == CUDA_SUCCESS;
		device_context_leave();
	}
	return is_here;
}

void share_here_forget(CUdevice dev)
{
	struct device_context *c;

	for (c = device_context_hold(dev); c; c = device_context_hold_next(c, dev)) {
		if (!c->is_here_asked || !device_context_enter(c))
			continue;
		if (cuda_real.cuEventQuery(c->here_event) != CUDA_ERROR_NOT_READY)
			c->is_here_asked = false;
		device_context_leave();
	}
}

bool share_here_waited(CUdevice dev)
{
	struct device_context *c;
	bool has_waited = false;
	float ms;

	if (!cuda_real.cuEventElapsedTime)
		return false;
	for (c = device_context_hold(dev); c; c = device_context_hold_next(c, dev)) {
		if (has_waited || !c->is_here_asked || !c->is_end_recorded ||
		    !device_context_enter(c))
			continue;
		has_waited = cuda_real.cuEventElapsedTime(&ms, c->here_event, c->end_event) ==
				     CUDA_SUCCESS &&
			     ms > HERE_BEFORE_MS;
		device_context_leave();
	}
	return has_waited;
}
