/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Work submitted and not completed. An event behind each piece of work tells. Events of a stream
 * complete in the order in which they were recorded, so it is enough to look at the oldest one.
 */

#include "hook/orion/orion_private.h"

#include "hook/gate/green.h"
#include "hook/table/cuda_real.h"
#include "util/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

/* A thread that only submits looks at events each time that so many flights have gathered. */
#define FLIGHT_GATHER 32u

/* ---- contexts and streams ------------------------------------------------------- */

static struct orion_context *flight_find_context(CUcontext ctx)
{
	struct orion_context *context;

	DL_FOREACH (orion.contexts, context) {
		if (context->ctx == ctx)
			return context;
	}
	return NULL;
}

struct orion_context *orion_context_get(CUcontext ctx)
{
	struct orion_context *context = flight_find_context(ctx), *made;
	struct green_place place, now;
	CUdevice dev = -1;

	if (context)
		return context;
	hook_unlock(&orion.lock);
	place = green_place(ctx);
	made = calloc(1, sizeof(*made));
	if (made && cuda_real.cuCtxGetDevice(&dev) == CUDA_SUCCESS) {
		made->ctx = ctx;
		made->owner = place.owner;
		made->dev = dev;
	}
	hook_lock(&orion.lock);
	context = flight_find_context(ctx);
	/* A thread that ends a green one marks it, and then looks here once. */
	now = green_place(ctx);
	if (context || !made || !made->ctx || now.is_going || now.id != place.id) {
		free(made);
		return context;
	}
	DL_PREPEND(orion.contexts, made);
	return made;
}

struct orion_stream *orion_stream_get(struct orion_context *context, const void *key)
{
	struct orion_stream *s;

	DL_FOREACH (orion.streams, s) {
		if (s->key == key && s->context == context && !s->is_gone)
			return s;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	*s = (struct orion_stream){.context = context, .key = key, .client = ORION_POLICY_NONE};
	DL_APPEND(orion.streams, s);
	return s;
}

/* ---- events ------------------------------------------------------------------------ */

static struct orion_event **flight_events(struct orion_context *context, bool is_stamping)
{
	return is_stamping ? &context->stamping : &context->plain;
}

/* The context is current. */
static struct orion_event *flight_take_event(struct orion_context *context, bool is_stamping)
{
	struct orion_event **list = flight_events(context, is_stamping), *event;

	hook_lock(&orion.lock);
	event = *list;
	if (event)
		LL_DELETE(*list, event);
	hook_unlock(&orion.lock);
	if (event)
		return event;
	event = calloc(1, sizeof(*event));
	if (event &&
	    cuda_real.cuEventCreate(&event->event,
				    is_stamping ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING) !=
		    CUDA_SUCCESS) {
		free(event);
		event = NULL;
	}
	return event;
}

/* NULL: the driver refused, or memory lacked. */
static struct orion_event *flight_record(struct orion_flight *flight, CUstream stream)
{
	struct orion_context *context = flight->stream->context;
	struct orion_event *event = flight_take_event(context, flight->is_measured);

	if (!event || cuda_real.cuEventRecord(event->event, stream) == CUDA_SUCCESS)
		return event;
	hook_lock(&orion.lock);
	LL_PREPEND(*flight_events(context, flight->is_measured), event);
	hook_unlock(&orion.lock);
	return NULL;
}

/* ---- flights ------------------------------------------------------------------------ */

struct orion_flight *orion_flight_new(void)
{
	struct orion_flight *flight = orion.unused;

	if (flight)
		LL_DELETE(orion.unused, flight);
	else
		flight = malloc(sizeof(*flight));
	if (flight)
		*flight = (struct orion_flight){.generation = orion.generation};
	return flight;
}

void orion_flight_free(struct orion_flight *flight)
{
	struct orion_context *context = flight->stream ? flight->stream->context : NULL;

	if (flight->start)
		LL_PREPEND(*flight_events(context, true), flight->start);
	if (flight->end)
		LL_PREPEND(*flight_events(context, flight->is_measured), flight->end);
	LL_PREPEND(orion.unused, flight);
}

/* measured_ns: 0: it was never submitted; ORION_POLICY_UNMEASURED. */
static void flight_complete(struct orion_flight *flight, uint64_t measured_ns)
{
	struct orion_policy_event event = {
		.type = ORION_POLICY_EVENT_COMPLETE,
		.client = flight->client,
		.now_ns = clock_now_ns(),
		.op = flight->op,
		.measured_ns = measured_ns,
	};

	if (flight->generation == orion.generation) {
		if (flight->is_asked)
			(void)orion_step(&event);
		if (measured_ns > 0 && measured_ns != ORION_POLICY_UNMEASURED)
			orion_kernel_learn(flight, measured_ns);
	}
	orion_flight_free(flight);
}

/* Without the lock. */
static uint64_t flight_measure(const struct orion_flight *flight)
{
	float ms = 0;

	if (!flight->start || cuda_real.cuEventElapsedTime(&ms, flight->start->event,
							   flight->end->event) != CUDA_SUCCESS)
		return ORION_POLICY_UNMEASURED;
	return ms > 0 ? (uint64_t)((double)ms * 1e6) : 1;
}

/* The polling thread, under the lock. false: the oldest flight of s is not completed. */
static bool flight_poll_one(struct orion_stream *s)
{
	struct orion_flight *flight = s->flights;
	uint64_t ns = ORION_POLICY_UNMEASURED;
	CUresult res;

	hook_unlock(&orion.lock);
	res = cuda_real.cuEventQuery(flight->end->event);
	if (res == CUDA_SUCCESS)
		ns = flight_measure(flight);
	hook_lock(&orion.lock);
	/* After any error the work goes on no more. */
	if (res == CUDA_ERROR_NOT_READY)
		return false;
	DL_DELETE(s->flights, flight);
	orion.n_flights--;
	flight_complete(flight, ns);
	return true;
}

static void flight_poll_stream(struct orion_stream *s)
{
	CUcontext popped;
	bool is_pushed;

	hook_unlock(&orion.lock);
	is_pushed = cuda_real.cuCtxPushCurrent_v2(s->context->ctx) == CUDA_SUCCESS;
	hook_lock(&orion.lock);
	while (s->flights && flight_poll_one(s))
		continue;
	hook_unlock(&orion.lock);
	if (is_pushed)
		(void)cuda_real.cuCtxPopCurrent_v2(&popped);
	hook_lock(&orion.lock);
}

static void flight_exchange_mode(CUstreamCaptureMode *mode)
{
	if (!cuda_real.cuThreadExchangeStreamCaptureMode)
		return;
	hook_unlock(&orion.lock);
	(void)cuda_real.cuThreadExchangeStreamCaptureMode(mode);
	hook_lock(&orion.lock);
}

/* Nobody polls. Streams that are gone, and whose flights are, leave the list. */
static void flight_reap_streams(void)
{
	struct orion_stream *s, *next;

	DL_FOREACH_SAFE (orion.streams, s, next) {
		if (s->is_gone && !s->flights && s->n_inside == 0) {
			DL_DELETE(orion.streams, s);
			free(s);
		}
	}
}

/* In mode relaxed: else a look at an event would break captures of other threads. */
void orion_poll(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	struct orion_stream *s;
	int cancel_state;

	if (orion.is_polling || orion.n_flights == 0)
		return;
	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	orion.is_polling = true;
	flight_exchange_mode(&mode);
	DL_FOREACH (orion.streams, s) {
		if (s->flights)
			flight_poll_stream(s);
	}
	flight_exchange_mode(&mode);
	flight_reap_streams();
	orion.is_polling = false;
	(void)pthread_cond_broadcast(&orion.changed);
	(void)pthread_setcancelstate(cancel_state, NULL);
}

void orion_drop_flights(void)
{
	struct orion_stream *s, *next;
	struct orion_flight *flight;

	DL_FOREACH_SAFE (orion.streams, s, next) {
		while ((flight = s->flights)) {
			DL_DELETE(s->flights, flight);
			orion.n_flights--;
			orion_flight_free(flight);
		}
		DL_DELETE(orion.streams, s);
		free(s);
	}
}

/* ---- around the driver's function ---------------------------------------------------- */

void orion_mark_now(struct orion_call *call)
{
	int saved_errno = errno;

	if (call->flight->is_measured)
		call->flight->start = flight_record(call->flight, call->stream);
	errno = saved_errno;
}

static void flight_submitted(struct orion_flight *flight, CUresult res)
{
	struct orion_stream *s = flight->stream;

	orion.n_inside--;
	s->n_inside--;
	if (orion.is_ending || s->is_gone)
		(void)pthread_cond_broadcast(&orion.changed);
	if (!flight->end || flight->generation != orion.generation) {
		flight_complete(flight, res == CUDA_SUCCESS ? ORION_POLICY_UNMEASURED : 0);
		return;
	}
	DL_APPEND(s->flights, flight);
	orion.n_flights++;
	if (orion.has_poller && orion.n_flights == 1)
		(void)pthread_cond_broadcast(&orion.changed);
	/* A thread that waits looks at events soon. Else nobody may look for long. */
	if (!orion.has_poller && orion.n_flights % FLIGHT_GATHER == 0)
		orion_poll();
}

void orion_end_now(struct orion_call *call, CUresult res)
{
	struct orion_flight *flight = call->flight;
	int saved_errno = errno;

	if (res == CUDA_SUCCESS && (flight->is_asked || flight->is_measured))
		flight->end = flight_record(flight, call->stream);
	hook_lock(&orion.lock);
	flight_submitted(flight, res);
	hook_unlock(&orion.lock);
	(void)pthread_setcancelstate(call->cancel_state, NULL);
	errno = saved_errno;
}

/* ---- what the program ends -------------------------------------------------------------- */

void orion_stream_gone(CUstream stream)
{
	int saved_errno = errno;
	struct orion_stream *s;

	if (!__atomic_load_n(&orion_has_books, __ATOMIC_RELAXED))
		return;
	hook_lock(&orion.lock);
	DL_FOREACH (orion.streams, s)
		s->is_gone = s->is_gone || s->key == stream;
	if (!orion.is_polling)
		flight_reap_streams();
	hook_unlock(&orion.lock);
	errno = saved_errno;
}

static void flight_destroy_events(struct orion_event *list)
{
	struct orion_event *event, *next;

	LL_FOREACH_SAFE (list, event, next) {
		(void)cuda_real.cuEventDestroy_v2(event->event);
		free(event);
	}
}

/* Under the lock. The context's work is over, or its end makes it so. */
static void flight_end_stream(struct orion_stream *s)
{
	struct orion_flight *flight;

	while ((flight = s->flights)) {
		DL_DELETE(s->flights, flight);
		orion.n_flights--;
		flight_complete(flight, ORION_POLICY_UNMEASURED);
	}
	DL_DELETE(orion.streams, s);
	free(s);
}

static uint32_t flight_count_inside(const struct orion_context *context)
{
	struct orion_stream *s;
	uint32_t n = 0;

	DL_FOREACH (orion.streams, s)
		n += s->context == context ? s->n_inside : 0;
	return n;
}

/* Under the lock; gives it up. */
static void flight_end_context(struct orion_context *context)
{
	struct orion_stream *s, *next;

	DL_FOREACH_SAFE (orion.streams, s, next) {
		if (s->context == context)
			flight_end_stream(s);
	}
	DL_DELETE(orion.contexts, context);
	hook_unlock(&orion.lock);
	flight_destroy_events(context->plain);
	flight_destroy_events(context->stamping);
	free(context);
	hook_lock(&orion.lock);
}

static struct orion_context *flight_find_part(CUcontext ctx)
{
	struct orion_context *context;

	DL_FOREACH (orion.contexts, context) {
		if (context->ctx == ctx || context->owner == ctx)
			return context;
	}
	return NULL;
}

void orion_context_gone(CUcontext ctx)
{
	int saved_errno = errno;
	struct orion_context *context;
	struct orion_stream *s;

	hook_lock(&orion.lock);
	/* While it waits, another thread may end the same context. */
	while ((context = flight_find_part(ctx))) {
		DL_FOREACH (orion.streams, s)
			s->is_gone = s->is_gone || s->context == context;
		if (orion.is_polling || flight_count_inside(context) > 0)
			hook_wait(&orion.changed, &orion.lock);
		else
			flight_end_context(context);
	}
	hook_unlock(&orion.lock);
	errno = saved_errno;
}
