/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The thread and its loop. It sleeps in ppoll() without a time-out unless something is due. So a
 * program is never interrupted while nobody waits for it.
 */

#include "hook/agent/agent.h"
#include "core/u64.h"

#include "hook/agent/agent_private.h"
#include "hook/base/hook_log.h"
#include "hook/base/hook_mutex.h"
#include "hook/base/hook_options.h"
#include "hook/base/lifecycle.h"
#include "hook/base/own_fd.h"
#include "hook/base/thread.h"
#include "hook/freeze/freeze.h"
#include "hook/gate/bell.h"
#include "hook/gate/drain.h"
#include "hook/gate/gate.h"
#include "hook/host/hostmem.h"
#include "hook/host/slabs.h"
#include "hook/memory/budget.h"
#include "hook/orion/orion.h"
#include "hook/pager/pager.h"
#include "hook/pager/pager_ops.h"
#include "hook/pager/transfer.h"
#include "hook/share/share.h"
#include "hook/table/cuda_real.h"
#include "hook/tickets/tickets.h"
#include "util/clock.h"
#include "util/thread_name.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/*
 * Driver calls run on it. Below 256 KiB some overflow, since the C library takes the static
 * thread-local storage of all libraries out of it. It costs address space only.
 */
#define AGENT_STACK_SIZE (1u << 20)

/* For so long the threads at the gate of an exiting process are kept from the GPU. */
#define AGENT_LINGER_NS CLOCK_NS_PER_SEC

#define AGENT_SLACK_NS 1000ul

/* How often the agent looks where it cannot have a bell, for want of descriptors. */
#define AGENT_DEAF_NS (20 * CLOCK_NS_PER_MS)

enum agent_ask { AGENT_ASK_NONE, AGENT_ASK_OPEN, AGENT_ASK_SETTLED };

struct agent_device {
	enum agent_ask ask;      /* agent.lock */
	CUresult answer;         /* agent.lock */
	struct agent_link *link; /* the agent's */
};

static struct {
	struct hook_mutex lock;
	pthread_cond_t changed;
	bool is_started;
	bool has_stopped; /* the agent makes no driver call any more */
	struct agent_device devices[DEVICE_COUNT_MAX];
} agent = {.lock = HOOK_MUTEX(HOOK_LOCK_AGENT), .changed = PTHREAD_COND_INITIALIZER};

static struct agent_device *agent_device_of(CUdevice dev)
{
	return dev >= 0 && dev < DEVICE_COUNT_MAX ? &agent.devices[dev] : NULL;
}

/* ---- for the other parts of the agent -------------------------------------- */

struct agent_link *agent_link_of(CUdevice dev)
{
	struct agent_device *d = agent_device_of(dev);

	return d ? d->link : NULL;
}

struct agent_link *agent_link_next(struct agent_link *link)
{
	for (CUdevice dev = link ? link->dev + 1 : 0; dev < DEVICE_COUNT_MAX; dev++) {
		if (agent.devices[dev].link)
			return agent.devices[dev].link;
	}
	return NULL;
}

void agent_settle(CUdevice dev, CUresult res)
{
	struct agent_device *d = agent_device_of(dev);

	hook_lock(&agent.lock);
	if (d->ask == AGENT_ASK_OPEN) {
		d->ask = AGENT_ASK_SETTLED;
		d->answer = res;
		pthread_cond_broadcast(&agent.changed);
	}
	hook_unlock(&agent.lock);
}

/* ---- the loop ---------------------------------------------------------------- */

static struct agent_link *link_make(CUdevice dev)
{
	struct agent_link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	link->dev = dev;
	link->fd = -1;
	link->backoff_ns = AGENT_BACKOFF_NS_MIN;
	link->orphan_ns = AGENT_NEVER;
	link->spare_ns = AGENT_NEVER;
	lease_init(&link->lease);
	if (!device_identify(dev, link->uuid, &link->total)) {
		free(link);
		return NULL;
	}
	agent_device_of(dev)->link = link;
	return link;
}

/* A thread is about to make a context on dev. */
static void agent_take_ask(CUdevice dev)
{
	struct agent_link *link = agent_link_of(dev);

	if (!link)
		link = link_make(dev);
	if (!link || link->state == AGENT_LINK_UP)
		agent_settle(dev, CUDA_SUCCESS);
	else if (link->state == AGENT_LINK_DOWN)
		agent_link_connect(link);
}

static void agent_take_asks(void)
{
	for (CUdevice dev = 0; dev < DEVICE_COUNT_MAX; dev++) {
		bool is_open;

		hook_lock(&agent.lock);
		is_open = agent.devices[dev].ask == AGENT_ASK_OPEN;
		hook_unlock(&agent.lock);
		if (is_open)
			agent_take_ask(dev);
	}
}

/* A process comes in on all of its GPUs at once, or on none. */
static void orphans_go_on(void)
{
	agent_for_each_link (l) {
		if (l->lease.state != LEASE_ORPHAN)
			continue;
		l->orphan_ns = AGENT_NEVER;
		agent_lease_step(l, &(struct lease_event){.type = LEASE_EVENT_ORPHAN_TIME});
	}
}

/* Does what is due for link now. Returns when the next thing is due. */
static uint64_t link_run_timers(struct agent_link *link, uint64_t now)
{
	uint64_t next = AGENT_NEVER;

	if (link->state == AGENT_LINK_REGISTERING && now >= link->register_ns) {
		link->absence = AGENT_ABSENCE_SILENT;
		link->is_broken = true;
	}
	if (agent_link_wants_retry(link) && now >= link->retry_ns)
		agent_link_connect(link);
	if (now >= link->orphan_ns) {
		link->orphan_ns = AGENT_NEVER;
		orphans_go_on();
	}
	if (link->state == AGENT_LINK_UP && now >= link->report_ns)
		agent_report(link, link->is_report_due);

	if (link->state == AGENT_LINK_REGISTERING)
		next = link->register_ns;
	if (agent_link_wants_retry(link))
		next = u64_min(next, link->retry_ns);
	if (link->state == AGENT_LINK_UP && (link->is_report_due || bell_has_changed(link->dev)))
		next = u64_min(next, link->report_ns);
	next = u64_min(next, agent_link_listen(link, now));
	next = u64_min(next, transfer_tick(link->dev, now, !lease_is_open(&link->lease)));
	if (link->is_broken)
		next = 0;
	next = u64_min(next, agent_spares_tick(link, now));
	return u64_min(next, link->orphan_ns);
}

struct awaited {
	struct agent_link *link; /* NULL: the pair for slabs */
	bool is_source;          /* a source of memory; else the connection */
};

/* The bell, for each link its connection and its sources of memory, and the pair for slabs. */
#define AWAITED_MAX (DEVICE_COUNT_MAX * (1 + TRANSFER_SOURCES_MAX) + 2)

/* Fills both from [1] on, and returns how many. */
static nfds_t awaited_list(struct pollfd ret_fds[AWAITED_MAX], struct awaited ret[AWAITED_MAX])
{
	int sources[TRANSFER_SOURCES_MAX];
	nfds_t n = 0;

	for (struct agent_link *l = agent_link_next(NULL); l; l = agent_link_next(l)) {
		size_t n_sources = l->fd < 0 ? 0 : transfer_fds(l->dev, sources);

		for (size_t i = 0; i < n_sources; i++) {
			ret[++n] = (struct awaited){l, true};
			ret_fds[n] = (struct pollfd){.fd = sources[i], .events = POLLIN};
		}
		if (l->fd < 0)
			continue;
		ret[++n] = (struct awaited){l, false};
		ret_fds[n] = (struct pollfd){
			.fd = l->fd,
			.events = (short)(POLLIN | (l->n_queued ? POLLOUT : 0)),
		};
	}
	if (slabs_fd() >= 0) {
		ret[++n] = (struct awaited){NULL, false};
		ret_fds[n] = (struct pollfd){.fd = slabs_fd(), .events = POLLIN};
	}
	return n;
}

static void agent_wait(uint64_t due_ns)
{
	struct pollfd fds[AWAITED_MAX] = {{.fd = bell_fd(), .events = POLLIN}};
	struct awaited awaited[AWAITED_MAX];
	nfds_t n_fds = awaited_list(fds, awaited);

	if (clock_poll(fds, n_fds + 1, due_ns) < 0)
		return;
	if (fds[0].revents)
		bell_answer();
	for (nfds_t i = 1; i <= n_fds; i++) {
		if (!awaited[i].link && fds[i].revents)
			slabs_receive();
		if (!awaited[i].link)
			continue;
		if (awaited[i].is_source && fds[i].revents)
			transfer_receive(awaited[i].link->dev);
		if (awaited[i].is_source)
			continue;
		if (fds[i].revents & POLLOUT)
			agent_link_flush(awaited[i].link);
		if (fds[i].revents & ~POLLOUT)
			agent_link_receive(awaited[i].link);
	}
}

static uint64_t agent_run_once(void)
{
	uint64_t due = AGENT_NEVER, now;

	if (!bell_renew())
		due = clock_now_ns() + AGENT_DEAF_NS;
	for (struct agent_link *l = agent_link_next(NULL); l; l = agent_link_next(l)) {
		if (l->is_broken || agent_link_is_lost(l))
			agent_link_close(l);
	}
	agent_take_asks();
	agent_lease_sync_gate(); /* a GPU counts from its first context on */
	for (struct agent_link *l = agent_link_next(NULL); l; l = agent_link_next(l)) {
		if (bell_take_wanted(l->dev) || l->lease.state == LEASE_IDLE)
			agent_lease_want(l);
	}
	now = clock_now_ns();
	for (struct agent_link *l = agent_link_next(NULL); l; l = agent_link_next(l))
		due = u64_min(due, link_run_timers(l, now));
	agent_slabs_tick();
	due = u64_min(due, agent_tickets_tick(now));
	due = u64_min(due, agent_watch_tick(now));
	due = u64_min(due, agent_orion_tick(now));
	due = u64_min(due, agent_ahead_tick(now));
	due = u64_min(due, freeze_tick(now));
	due = u64_min(due, pager_mover_tick(now));
	return u64_min(due, share_tick(clock_now_ns()));
}

/* A thread that passes the gate now could touch memory that is not there. */
bool agent_has_memory_out(void)
{
	struct nvshare_mem mem;
	bool is_out = false;

	for (CUdevice dev = 0; dev < DEVICE_COUNT_MAX; dev++) {
		budget_read(dev, &mem);
		is_out = is_out || mem.swapped;
	}
	return is_out || opened_is_parked(DEVICE_ANY);
}

static void agent_let_all_go(void)
{
	agent_resume();
	gate_set(GATE_OPEN);
}

/*
 * The process is exiting, and the agent leaves the driver alone. Calls that would wait for frozen
 * work are refused (FREEZE_AROUND), so most processes are gone within the second. Some exit
 * handlers wait for threads that stand at the gate, or that wait in the driver for frozen work.
 * These threads go on in the end, so that no process waits for ever. Work whose memory is out then
 * fails.
 */
static void agent_linger(void)
{
	bool is_out = agent_has_memory_out();

	for (CUdevice dev = 0; dev < DEVICE_COUNT_MAX; dev++)
		transfer_close(dev);
	pager_mover_stop();
	if (!is_out)
		agent_let_all_go();
	hook_lock(&agent.lock);
	agent.has_stopped = true;
	pthread_cond_broadcast(&agent.changed);
	hook_unlock(&agent.lock);
	if (is_out) {
		clock_nap(AGENT_LINGER_NS);
		agent_let_all_go();
	}
}

static void *agent_main(void *arg)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	uint64_t due = 0;

	(void)arg;
	thread_name("nvshare");
	/* Some waits last tens of microseconds; the usual slack would add 50. */
	(void)prctl(PR_SET_TIMERSLACK, AGENT_SLACK_NS, 0, 0, 0);
	/* In another mode its driver calls would break captures of other threads. */
	if (cuda_real.cuThreadExchangeStreamCaptureMode)
		(void)cuda_real.cuThreadExchangeStreamCaptureMode(&mode);
	while (!bell_is_stopping()) {
		agent_wait(due);
		if (!bell_is_stopping())
			due = agent_run_once();
	}
	agent_linger();
	return NULL;
}

static const struct pager_agent pager_ops = {
	.moved_out = agent_moved_out,
	.more_budget = agent_more_budget,
	.await_host = agent_await_host,
	.give_host = agent_give_host,
	.take_back = agent_tickets_take_back,
};

/* ---- starting and stopping, by threads of the program ----------------------------- */

/* Lock held. */
static bool agent_start_locked(void)
{
	int r;

	if (agent.is_started)
		return true;
	if (!agent_absence_has_descriptors()) {
		agent_absence_tell(AGENT_ABSENCE_DESCRIPTORS, 0);
		return false;
	}
	r = bell_open();
	if (!r) {
		gate_set_waker(bell_ring);
		pager_set_agent(&pager_ops);
		r = thread_start(agent_main, NULL, AGENT_STACK_SIZE);
	}
	if (r) {
		bell_close();
		hook_warn_once("cannot start a thread (%s); this program runs unmanaged",
			       strerror(-r));
		return false;
	}
	agent.is_started = true;
	return true;
}

CUresult agent_use_device(CUdevice dev)
{
	struct agent_device *d = agent_device_of(dev);
	CUresult res = CUDA_SUCCESS;
	int saved_errno = errno;

	if (!d)
		return CUDA_SUCCESS;
	lifecycle_start();
	freeze_load();
	hostmem_set_limit(hook_options()->host_memory_limit);
	hook_lock(&agent.lock);
	if (!bell_is_stopping() && !agent_start_locked()) {
		if (hook_options()->require_scheduler)
			res = CUDA_ERROR_SYSTEM_NOT_READY;
	} else if (!bell_is_stopping()) {
		d->ask = AGENT_ASK_OPEN; /* threads that ask meanwhile share the answer */
		bell_ring();
		while (d->ask == AGENT_ASK_OPEN && !bell_is_stopping())
			hook_wait(&agent.changed, &agent.lock);
		if (d->ask == AGENT_ASK_SETTLED)
			res = d->answer;
	}
	hook_unlock(&agent.lock);
	errno = saved_errno;
	return res;
}

bool agent_add_context(CUcontext ctx, CUdevice dev, uint64_t charged)
{
	bool is_new = device_context_add(ctx, dev, charged);

	if (is_new)
		bell_ring(); /* with a context it looks for a lost scheduler */
	return is_new;
}

uint64_t agent_forget_context(CUcontext ctx)
{
	orion_context_gone(ctx);
	return device_context_forget(ctx);
}

void agent_stop(void)
{
	uint64_t end_ns = clock_now_ns() + CLOCK_NS_PER_SEC;
	int saved_errno = errno, r = 0;
	bool was_running;

	hook_lock(&agent.lock);
	was_running = bell_stop() && agent.is_started;
	if (was_running) {
		drain_cancel();
		pthread_cond_broadcast(&agent.changed);
		bell_ring();
		while (!agent.has_stopped && r != ETIMEDOUT)
			r = hook_wait_until(&agent.changed, &agent.lock, end_ns);
	}
	hook_unlock(&agent.lock);
	if (was_running) {
		gate_pass_always();
		for (CUdevice dev = 0; dev < DEVICE_COUNT_MAX; dev++)
			budget_set(dev, BUDGET_UNLIMITED);
		/* The agent opens the gate in time, unless it is stuck. */
		if (r == ETIMEDOUT && !agent_has_memory_out())
			gate_set(GATE_OPEN);
	}
	errno = saved_errno;
}

void agent_after_fork_child(void)
{
	/* The scheduler takes the end of a connection for our end, so the child must close them. */
	for (struct agent_link *l = agent_link_next(NULL); l; l = agent_link_next(l))
		(void)own_fd_close(l->fd);
	memset(agent.devices, 0, sizeof(agent.devices));
	agent.is_started = false;
	agent.has_stopped = false;
	hook_mutex_renew(&agent.lock, HOOK_LOCK_AGENT);
	(void)pthread_cond_init(&agent.changed, NULL);
	agent_halt_reset();
	agent_moves_reset();
	agent_spares_reset();
	share_after_fork_child();
}
