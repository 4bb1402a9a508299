/* SPDX-License-Identifier: Apache-2.0 */

/* The first step of a call: whose work it is, and whether anybody schedules it. */

#include "hook/orion/orion_private.h"

#include "hook/gate/gate.h"
#include "hook/table/cuda_real.h"

#include <errno.h>
#include <string.h>

struct orion orion = {
	.lock = HOOK_MUTEX(HOOK_LOCK_ORION),
	.changed = PTHREAD_COND_INITIALIZER,
};
bool orion_is_taking, orion_is_started, orion_has_books;

static const void *begin_stream_key(CUstream stream)
{
	if (stream == CU_STREAM_PER_THREAD)
		return gate_thread_stream();
	return stream ? (const void *)stream : (const void *)CU_STREAM_LEGACY;
}

/*
 * A thread without an index belongs to the client that used the stream last. On a default stream,
 * or one of nobody, it is best effort, as the policy's last client. Without a schedule it passes.
 */
static uint32_t begin_client(struct orion_stream *s, bool is_default)
{
	int idx = orion_thread_client();

	if (idx != ORION_NO_CLIENT && (uint32_t)idx < orion.n_clients) {
		s->client = (uint32_t)idx;
		return s->client;
	}
	if (orion.state != ORION_SCHEDULES)
		return ORION_POLICY_NONE;
	return is_default || s->client == ORION_POLICY_NONE ? orion.n_clients : s->client;
}

/* Under the lock; gives it up. NULL: the call passes by. */
static struct orion_flight *begin_flight(CUcontext ctx, CUstream stream,
					 const struct orion_work *work)
{
	struct orion_context *context;
	bool is_default = !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
	struct orion_flight *flight;
	struct orion_stream *s;
	uint32_t client;

	/* The context comes last, since its books may end while the lock is given up. */
	if (!orion_device_ready())
		return NULL;
	context = orion_context_get(ctx);
	if (!context || context->dev != orion.config.device_id || !orion.is_policy_ready ||
	    !orion_is_taking)
		return NULL;
	s = orion_stream_get(context, begin_stream_key(stream));
	client = s ? begin_client(s, is_default) : ORION_POLICY_NONE;
	if (client == ORION_POLICY_NONE || (orion.state == ORION_TAKES && !orion.is_profiling))
		return NULL;
	flight = orion_flight_new();
	if (!flight)
		return NULL;
	flight->stream = s;
	flight->client = client;
	flight->work = *work;
	orion.n_inside++;
	s->n_inside++;
	return flight;
}

void orion_begin(struct orion_call *call, CUstream stream, const struct orion_work *work)
{
	int saved_errno = errno;
	CUcontext ctx = NULL;

	/* A capture stores the call, and the GPU does nothing. */
	if (gate_stream_captures(stream) || cuda_real.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS ||
	    !ctx) {
		errno = saved_errno;
		return;
	}
	/* pthread_cancel() inside the driver would leave the flight with nobody to end it. */
	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &call->cancel_state);
	hook_lock(&orion.lock);
	call->flight = begin_flight(ctx, stream, work);
	if (call->flight) {
		orion_kernel_describe(call->flight);
		if (orion.state == ORION_SCHEDULES)
			orion_ask(call->flight);
	}
	hook_unlock(&orion.lock);
	if (!call->flight)
		(void)pthread_setcancelstate(call->cancel_state, NULL);
	errno = saved_errno;
}

/* ---- fork ---------------------------------------------------------------------------------- */

/* The child has no threads of the parent's, and its driver knows none of the handles. */
void orion_after_fork_child(void)
{
	orion_thread_forget();
	memset(&orion, 0, sizeof(orion));
	hook_mutex_renew(&orion.lock, HOOK_LOCK_ORION);
	(void)pthread_cond_init(&orion.changed, NULL);
	orion_is_taking = false;
	orion_is_started = false;
	orion_has_books = false;
}
