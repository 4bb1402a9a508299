/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The worker. It chooses a queue whose head may go on, makes one step of it, and chooses again. It
 * sleeps on its wake word in the node's memory. So a submission of this process and a token from
 * another one end the same wait.
 */

#include "simgpu/cuda/run.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "simgpu/cuda/event.h"
#include "simgpu/cuda/graph.h"
#include "util/clock.h"

enum {
	TOKEN_RETRY_NS = 20000000, /* a holder that dies wakes no process */
	POLL_NS = 200000,          /* a write to memory that a stream waits for wakes no worker */
};

struct worker {
	pthread_t thread;
	bool is_started;
	struct op *current; /* under way, so it stays its stream's head */
	uint64_t turn;
	unsigned int n_settling; /* threads in run_settle() */
	bool has_token[NODE_DEVICES_MAX];
	bool is_queued[NODE_DEVICES_MAX];   /* waits for the token */
	bool wants_token[NODE_DEVICES_MAX]; /* in this round */
	uint64_t slice_ns[NODE_DEVICES_MAX];
	uint64_t spent_ns[NODE_DEVICES_MAX]; /* used part of the slice */
	uint64_t sleep_until_ns;
};

static struct worker worker;
static unsigned int n_queues; /* hardware queues of a context; 0: one for each stream */

static struct op *op_free(struct op *op)
{
	if (op->works == &op->single &&
	    (op->single.kind == WORK_RECORD || op->single.kind == WORK_WAIT)) {
		/* A dropped record would leave others waiting for ever. */
		if (op->single.kind == WORK_RECORD)
			op->single.record->is_done = true;
		event_record_unref(op->single.record);
	}
	if (op->progress.call)
		host_call_free(op->progress.call);
	if (op->exec)
		graph_exec_unref(op->exec);
	free(op->staging);
	free(op);
	return NULL;
}

static void pop_op(struct CUstream_st *stream)
{
	struct op *op = stream->head;

	stream->head = op->next;
	if (!stream->head)
		stream->tail = NULL;
	stream->n_queued--;
	op_free(op);
}

void run_drop(struct CUstream_st *stream)
{
	struct op *keep = stream->head == worker.current ? stream->head : NULL, *op, *next;

	for (op = keep ? keep->next : stream->head; op; op = next) {
		next = op->next;
		op_free(op);
	}
	stream->head = stream->tail = keep;
	stream->n_queued = keep ? 1 : 0;
	if (keep)
		keep->next = NULL;
	state_notify();
	/* Other streams may have waited for the dropped work. */
	if (sim.is_worker_asleep)
		node_wake_self();
}

void run_stream_free(struct CUstream_st *stream)
{
	struct CUstream_st **link = &stream->ctx->streams;

	while (*link != stream)
		link = &(*link)->next;
	*link = stream->next;
	free(stream->capture_deps);
	free(stream);
}

void run_stream_reap(struct CUstream_st *stream)
{
	if (stream->is_destroyed && !stream->head && !stream->n_users)
		run_stream_free(stream);
}

bool run_is_idle(const struct CUstream_st *stream)
{
	return !stream->head;
}

/* The legacy stream waits for all earlier work of blocking streams, and they for it. */
static bool is_before_others(const struct CUstream_st *stream, uint64_t seq)
{
	const struct CUstream_st *other;

	if (stream->kind == STREAM_NON_BLOCKING)
		return true;
	if (stream->kind != STREAM_LEGACY) {
		other = stream->ctx->legacy;
		return !other->head || other->head->seq > seq;
	}
	for (other = stream->ctx->streams; other; other = other->next)
		if (other->kind != STREAM_NON_BLOCKING && other->head && other->head->seq < seq)
			return false;
	return true;
}

static bool shares_queue(const struct CUstream_st *stream, const struct CUstream_st *other)
{
	return n_queues && other->queue % n_queues == stream->queue % n_queues;
}

/* In a hardware queue the earliest work goes first, of any stream. Copies have other queues. */
static bool is_first_in_queue(const struct CUstream_st *stream, const struct op *op)
{
	enum work_kind kind = op->works[op->n_done].kind;
	const struct CUstream_st *other;

	if (!n_queues || kind == WORK_COPY || kind == WORK_PREFETCH)
		return true;
	for (other = stream->ctx->streams; other; other = other->next)
		if (other->head && other->head->seq < op->seq && shares_queue(stream, other))
			return false;
	return true;
}

unsigned int run_queued(const struct CUstream_st *stream)
{
	const struct CUstream_st *other;
	unsigned int n = 0;

	if (!n_queues)
		return stream->n_queued;
	for (other = stream->ctx->streams; other; other = other->next)
		n += shares_queue(stream, other) ? other->n_queued : 0;
	return n;
}

static void sleep_until(uint64_t ns)
{
	if (ns < worker.sleep_until_ns)
		worker.sleep_until_ns = ns;
}

static bool may_compute(struct CUctx_st *ctx, uint64_t now)
{
	unsigned int device = device_node(ctx->device);

	worker.wants_token[device] = true;
	worker.slice_ns[device] = rm_timeslice_ns(&ctx->rm);
	if (worker.has_token[device] && node_gpu_until(device) > now + WORK_STEP_NS) {
		sleep_until(node_gpu_until(device)); /* the host is faster than the device */
		return false;
	}
	if (worker.has_token[device])
		return true;
	if (!node_token_try(device)) {
		worker.is_queued[device] = true;
		sleep_until(now + TOKEN_RETRY_NS);
		return false;
	}
	worker.is_queued[device] = false;
	worker.has_token[device] = true;
	worker.spent_ns[device] = 0;
	return true;
}

/* The context itself must write an event's time. The host engine signals events without a time. */
static bool needs_context(const struct work *work)
{
	return work_computes(work) || (work->kind == WORK_RECORD && work->record->is_timed);
}

static bool may_step(struct CUstream_st *stream, uint64_t now)
{
	struct op *op = stream->head;
	const struct work *work = &op->works[op->n_done];
	unsigned int device = device_node(stream->ctx->device);

	if (op->progress.ready_ns > now) {
		/* The host has computed it, but in the device's time it runs until then. */
		if (work_computes(work) && op->progress.ready_ns <= node_gpu_until(device))
			worker.wants_token[device] = true;
		sleep_until(op->progress.ready_ns);
		return false;
	}
	if (!is_before_others(stream, op->seq) || !is_first_in_queue(stream, op))
		return false;
	if (work->kind == WORK_WAIT && !work->record->is_done)
		return false;
	if (op->progress.call && !host_call_is_done(op->progress.call))
		return false;
	/* A frozen context stands still here, between two steps. */
	if (!rm_is_running(&stream->ctx->rm, work_engine(work)))
		return false;
	return !needs_context(work) || may_compute(stream->ctx, now);
}

/* The stream to serve: highest priority first, then the one that waited longest. */
static struct CUstream_st *choose_stream(uint64_t now)
{
	struct CUstream_st *stream, *best = NULL;
	struct CUctx_st *ctx;

	for (ctx = sim.contexts; ctx; ctx = ctx->next)
		for (stream = ctx->streams; stream; stream = stream->next) {
			if (!stream->head || !may_step(stream, now))
				continue;
			if (!best || stream->priority < best->priority ||
			    (stream->priority == best->priority && stream->served < best->served))
				best = stream;
		}
	return best;
}

static void finish_record(struct event_record *record, uint64_t time_ns)
{
	record->is_done = true;
	record->time_ns = time_ns;
}

static void finish_work(struct CUstream_st *stream, struct op *op)
{
	const struct work *work = &op->works[op->n_done];

	if (work->kind == WORK_RECORD)
		finish_record(work->record,
			      work->record->is_timed
				      ? node_gpu_spend(device_node(stream->ctx->device), 0)
				      : 0);
	if (op->progress.call)
		host_call_free(op->progress.call);
	op->progress = (struct progress){0};
	if (++op->n_done == op->n_works)
		pop_op(stream);
	state_notify();
}

/* Makes one step of the stream's head, without the lock. */
static void serve_stream(struct CUstream_st *stream)
{
	struct op *op = stream->head;
	struct CUctx_st *ctx = stream->ctx;
	const struct work *work = &op->works[op->n_done];
	CUresult error = CUDA_SUCCESS;
	enum work_step step;

	stream->served = ++worker.turn;
	worker.current = op;
	state_unlock();
	step = work_do(ctx, work, &op->progress, &error);
	node_count(NODE_COUNTER_STEPS, 1);
	state_lock();
	worker.spent_ns[device_node(ctx->device)] += op->progress.step_ns;
	op->progress.step_ns = 0;
	worker.current = NULL;
	switch (step) {
	case WORK_STEP_FAILED:
		context_fail(ctx, error);
		break;
	case WORK_STEP_DONE:
		if (op->progress.ready_ns <= clock_now_ns())
			finish_work(stream, op);
		else
			op->progress.pos = UINT64_MAX; /* only its time has to pass */
		break;
	case WORK_STEP_BLOCKED:
		if (!op->progress.call)
			op->progress.ready_ns = clock_now_ns() + POLL_NS;
		break;
	case WORK_STEP_MORE:
		break;
	}
	/* Another thread may have made the context fail, or be destroying it. */
	if (ctx->error)
		run_drop(stream);
	run_stream_reap(stream);
	if (worker.n_settling)
		state_notify();
}

/* Drops tokens that no stream wants, and yields those whose slice is used up. */
static void mind_tokens(void)
{
	unsigned int i, device;

	for (i = 0; i < sim.n_devices; i++) {
		device = device_node((int)i);
		if (!worker.has_token[device] && !worker.is_queued[device])
			continue;
		if (!worker.wants_token[device]) {
			node_token_drop(device);
			worker.has_token[device] = worker.is_queued[device] = false;
		} else if (worker.has_token[device] &&
			   (worker.spent_ns[device] >= worker.slice_ns[device] ||
			    !node_token_is_mine(device))) {
			worker.has_token[device] = node_token_yield(device);
			worker.is_queued[device] = !worker.has_token[device];
			worker.spent_ns[device] = 0;
		}
	}
}

static void *work_loop(void *arg)
{
	struct CUstream_st *stream;
	uint32_t seen;
	uint64_t now, until;
	unsigned int i;

	(void)arg;
	state_lock();
	while (__atomic_load_n(&sim.phase, __ATOMIC_ACQUIRE) == SIM_UP) {
		seen = __atomic_load_n(&node_view.self->wake, __ATOMIC_SEQ_CST);
		now = clock_now_ns();
		worker.sleep_until_ns = UINT64_MAX;
		for (i = 0; i < NODE_DEVICES_MAX; i++)
			worker.wants_token[i] = false;
		stream = choose_stream(now);
		mind_tokens();
		if (stream) {
			serve_stream(stream);
			continue;
		}
		sim.is_worker_asleep = true;
		until = worker.sleep_until_ns;
		state_unlock();
		node_wait(seen, until);
		state_lock();
		sim.is_worker_asleep = false;
	}
	state_unlock();
	return NULL;
}

int run_start(void)
{
	sigset_t all, old;
	int r = 0;

	state_lock();
	if (!worker.is_started) {
		n_queues = node_connections();
		/* The program's threads are to handle the program's signals. */
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old);
		r = -pthread_create(&worker.thread, NULL, work_loop, NULL);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
		worker.is_started = r == 0;
	}
	state_unlock();
	return r;
}

void run_stop(void)
{
	struct timespec until;

	/* The worker must not wait for itself. A host function that calls exit() has another
	 * thread. */
	if (!worker.is_started || pthread_equal(worker.thread, pthread_self()))
		return;
	node_wake_self();
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec++;
	pthread_timedjoin_np(worker.thread, NULL, &until);
}

void run_settle(void)
{
	uint64_t turn;

	state_lock();
	turn = worker.turn;
	worker.n_settling++;
	while (worker.current && worker.turn == turn)
		state_wait();
	worker.n_settling--;
	state_notify();
	state_unlock();
	node_wake_self();
}

static void append_op(struct CUstream_st *stream, struct op *op)
{
	op->seq = ++stream->ctx->last_seq;
	stream->last_seq = op->seq;
	stream->ctx->is_used = true;
	if (stream->tail)
		stream->tail->next = op;
	else
		stream->head = op;
	stream->tail = op;
	stream->n_queued++;
	if (sim.is_worker_asleep) {
		sim.is_worker_asleep = false;
		node_wake_self();
	}
}

/* true: the context is on the GPU and can write the event's time beside other streams' kernels. */
static bool is_at_once(const struct CUstream_st *stream, const struct work *work)
{
	const struct CUctx_st *ctx = stream->ctx;
	const struct CUstream_st *other;

	for (other = ctx->streams; other; other = other->next)
		if (other->head && shares_queue(stream, other))
			return false;
	return work->kind == WORK_RECORD && work->record->is_timed && !stream->head &&
	       stream->kind == STREAM_NON_BLOCKING && !ctx->error &&
	       worker.has_token[device_node(ctx->device)] && rm_is_running(&ctx->rm, RM_COMPUTE);
}

CUresult run_submit(struct CUstream_st *stream, const struct work *work, void *staging)
{
	struct op *op;
	CUresult r;

	if (stream->capture) {
		r = graph_capture_work(stream, work);
		free(staging);
		return r;
	}
	if (is_at_once(stream, work)) {
		finish_record(work->record, node_gpu_time(device_node(stream->ctx->device)));
		event_record_unref(work->record);
		return CUDA_SUCCESS;
	}
	op = calloc(1, sizeof(*op));
	if (!op) {
		free(staging);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	op->single = *work;
	op->works = &op->single;
	op->n_works = 1;
	op->staging = staging;
	append_op(stream, op);
	if (work->kind == WORK_KERNEL)
		node_count(NODE_COUNTER_LAUNCHES, 1);
	return CUDA_SUCCESS;
}

CUresult run_submit_exec(struct CUstream_st *stream, struct CUgraphExec_st *exec,
			 const struct work *works, size_t n_works)
{
	struct op *op = calloc(1, sizeof(*op));

	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	op->works = works;
	op->n_works = n_works;
	op->exec = exec;
	append_op(stream, op);
	return CUDA_SUCCESS;
}

CUresult run_sync(struct CUstream_st *stream)
{
	struct CUctx_st *ctx = stream->ctx;
	uint64_t seq = stream->last_seq;

	/* Later work of the queue is not waited for. */
	stream->n_users++;
	while (!ctx->error && ctx->is_alive && stream->head && stream->head->seq <= seq)
		state_wait();
	if (--stream->n_users == 0)
		state_notify();
	run_stream_reap(stream);
	return ctx->error;
}
