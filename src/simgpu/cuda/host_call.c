/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One thread runs the host functions, one after the other. So a slow function stops its stream,
 * but not the GPU.
 */

#include <signal.h>
#include <stdlib.h>

#include "simgpu/cuda/run.h"

struct host_call {
	struct host_call *next;
	struct work_host host;
	CUresult status;
	bool is_done;
	bool is_orphan; /* no op waits for it, so the thread frees it */
};

/* sim.lock guards all state of this file. */
static struct host_call *first, *last;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static bool is_started;
static __thread bool is_inside;

bool host_call_is_inside(void)
{
	return is_inside;
}

static void run_function(const struct host_call *c)
{
	is_inside = true;
	if (c->host.fn)
		c->host.fn(c->host.arg);
	else
		c->host.callback(c->host.stream, c->status, c->host.arg);
	is_inside = false;
}

static void *call_loop(void *arg)
{
	struct host_call *c;

	(void)arg;
	state_lock();
	for (;;) {
		while (!first)
			pthread_cond_wait(&more, &sim.lock);
		c = first;
		first = c->next;
		if (!first)
			last = NULL;
		if (!c->is_orphan) {
			state_unlock();
			run_function(c);
			state_lock();
		}
		c->is_done = true;
		if (c->is_orphan)
			free(c);
		node_wake_self();
	}
	return NULL;
}

static bool start_thread(void)
{
	sigset_t all, old;
	pthread_t thread;

	if (is_started)
		return true;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	is_started = pthread_create(&thread, NULL, call_loop, NULL) == 0;
	if (is_started)
		pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return is_started;
}

struct host_call *host_call_new(const struct work_host *host, CUresult status)
{
	struct host_call *c = calloc(1, sizeof(*c));

	state_lock();
	if (!c || !start_thread()) {
		state_unlock();
		free(c);
		return NULL;
	}
	c->host = *host;
	c->status = status;
	if (last)
		last->next = c;
	else
		first = c;
	last = c;
	pthread_cond_signal(&more);
	state_unlock();
	return c;
}

bool host_call_is_done(const struct host_call *call_)
{
	return call_->is_done;
}

void host_call_free(struct host_call *call_)
{
	if (call_->is_done)
		free(call_);
	else
		call_->is_orphan = true;
}
