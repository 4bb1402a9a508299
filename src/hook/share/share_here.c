/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Is the program's work on the GPU, or does it wait for another process's slice to end? An
 * event with a time, on a stream that has nothing else to do, is reached within microseconds
 * if the context is on the GPU, whatever its other streams run, and otherwise when its turn
 * comes. On an H200 beside a process that always has work it was found reached in 0.460 and
 * 0.466 of the looks where the kernels that ran made 0.450 to 0.454 of the time, the rest
 * being what the driver needs to change over. An event without a time says nothing: the host
 * engine signals it for whoever is next, too.
 *
 * One exception was seen there: a short graph. Once the GPU has all of it the host engine
 * turns to the next process, which waits for the graph to end, and what is asked meanwhile is
 * answered only after that one's slice. So who waits may be waiting for itself: if the work
 * is done before the answer comes, or with it, it was on the GPU since it was asked; if the
 * answer comes first, it was not. When the one and the other were is what their events say.
 */

#include "hook/gate/device.h"
#include "hook/share/share_private.h"
#include "hook/table/cuda_real.h"

/*
 * The driver takes the greatest instead. Few streams have it, so that one of the hardware's queues
 * is hardly shared with kernels; where it is, share_meter.c notices.
 */
#define HERE_PRIORITY (-100)

/* An answer so long before the end of the work came before the work. */
#define HERE_BEFORE_MS 0.03f

static bool here_has_driver(void)
{
	return cuda_real.cuStreamCreateWithPriority && cuda_real.cuEventCreate &&
	       cuda_real.cuEventRecord && cuda_real.cuEventQuery;
}

/* Inside the context, whose end is the end of all this. Tried once. */
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

/* Inside the context. The work before the last event is done. */
static bool here_is_idle(const struct device_context *c)
{
	return c->is_recorded && cuda_real.cuEventQuery(c->event) == CUDA_SUCCESS;
}

/* Inside the context. One event at a time: while it is not reached, nothing has changed. */
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

/* Of several contexts with work, the one that tells least: most programs have one. */
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
