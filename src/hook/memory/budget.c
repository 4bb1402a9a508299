/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/memory/budget.h"

#include "hook/agent/agent.h"
#include "hook/cond.h"
#include "hook/gate/gate.h"
#include "hook/hook_options.h"
#include "hook/table/cuda_real.h"
#include "util/clock.h"
#include "util/parse.h"

#include <pthread.h>

/* Asked for at once, so that not every small allocation makes a round trip. */
#define BUDGET_STEP_MAX (64ull << 20)

/* Between tries of the driver, which says out of memory although the budget has room. */
#define PAUSE_NS_MIN    CLOCK_NS_PER_MS
#define PAUSE_NS_MAX    (250 * CLOCK_NS_PER_MS)
#define PAUSED_NS_MAX   (240 * CLOCK_NS_PER_SEC) /* as long as any wait may be */
#define ROOMY_TRIES_MAX 6                        /* in a row, with room on the card */

struct budget_device {
	bool is_set; /* the agent gave a budget; without one there is no bound */
	uint64_t budget;
	struct nvshare_mem mem; /* wanted and wanted_pinned are worked out on reading */
	bool is_known;          /* total and limit are */
	uint64_t total;
	uint64_t limit;

	/* Those who wait stand in line; the first of them is the one that asks. */
	uint64_t ticket_next;
	uint64_t ticket_served;
	uint64_t need;  /* bytes that must be free for the first one; 0: nobody waits */
	uint64_t slack; /* asked for on top */
	bool is_exact;  /* no more is asked for on top, as it would be waited for */
	int need_kind;
	uint64_t pressing;        /* bytes that threads wait for in captures of their own */
	uint64_t pressing_pinned; /* those of them that are not pageable */
	uint64_t lost_until_ns;   /* a lost scheduler may come back by then; 0: none was lost */
	uint64_t n_refused;       /* refusals */
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct budget_device devices[BUDGET_DEVICES];
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static struct budget_device *device(CUdevice dev)
{
	return dev >= 0 && dev < BUDGET_DEVICES ? &state.devices[dev] : NULL;
}

static uint64_t on_card(const struct budget_device *d)
{
	uint64_t bytes = d->mem.resident;

	for (size_t i = 0; i < NVSHARE_PINNED_COUNT; i++)
		bytes += d->mem.pinned[i];
	return bytes;
}

static uint64_t unused(const struct budget_device *d)
{
	uint64_t used = on_card(d);

	if (!d->is_set)
		return BUDGET_UNLIMITED;
	return d->budget > used ? d->budget - used : 0;
}

static uint64_t *counter(struct budget_device *d, int kind)
{
	return kind == BUDGET_PAGEABLE ? &d->mem.resident : &d->mem.pinned[kind];
}

/* A count can not go below zero whatever the callers do: the program's numbers hang on it. */
static void subtract(uint64_t *count, uint64_t bytes)
{
	*count -= bytes < *count ? bytes : *count;
}

uint64_t budget_limit_of(uint64_t total)
{
	const char *text = hook_options()->memory_limit;
	uint64_t limit;

	if (!*text || parse_size_or_percent(text, total, &limit) || !limit)
		return UINT64_MAX;
	return limit;
}

/* Asked once: neither changes, and every allocation needs them. */
static void learn(CUdevice dev, struct budget_device *d)
{
	size_t total = 0;
	uint64_t limit;
	bool is_known;

	pthread_mutex_lock(&state.lock);
	is_known = d->is_known;
	pthread_mutex_unlock(&state.lock);
	if (is_known || !cuda_real.cuDeviceTotalMem_v2 ||
	    cuda_real.cuDeviceTotalMem_v2(&total, dev) != CUDA_SUCCESS)
		return;
	limit = budget_limit_of(total);
	pthread_mutex_lock(&state.lock);
	d->total = total;
	d->limit = limit;
	d->is_known = true;
	pthread_mutex_unlock(&state.lock);
}

uint64_t budget_total(CUdevice dev)
{
	struct budget_device *d = device(dev);
	uint64_t total;

	if (!d)
		return 0;
	learn(dev, d);
	pthread_mutex_lock(&state.lock);
	total = d->total;
	pthread_mutex_unlock(&state.lock);
	return total;
}

uint64_t budget_limit(CUdevice dev)
{
	struct budget_device *d = device(dev);
	uint64_t limit;

	if (!d)
		return UINT64_MAX;
	learn(dev, d);
	pthread_mutex_lock(&state.lock);
	limit = d->is_known ? d->limit : UINT64_MAX;
	pthread_mutex_unlock(&state.lock);
	return limit;
}

/* Whether asking for more bytes, contexts included, stays within limit. */
static bool within(const struct budget_device *d, uint64_t bytes, uint64_t limit)
{
	uint64_t had = d->mem.allocated + d->mem.pinned[NVSHARE_PINNED_CONTEXT];

	return bytes <= limit && had <= limit - bytes;
}

CUresult budget_ask(CUdevice dev, uint64_t bytes)
{
	struct budget_device *d = device(dev);
	uint64_t limit = budget_limit(dev);
	CUresult res = CUDA_SUCCESS;

	if (!d)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&state.lock);
	if (within(d, bytes, limit))
		d->mem.allocated += bytes;
	else
		res = CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&state.lock);
	return res;
}

void budget_allocated(CUdevice dev, int64_t delta)
{
	struct budget_device *d = device(dev);

	if (!d)
		return;
	pthread_mutex_lock(&state.lock);
	if (delta < 0)
		subtract(&d->mem.allocated, -(uint64_t)delta);
	else
		d->mem.allocated += (uint64_t)delta;
	pthread_mutex_unlock(&state.lock);
	agent_memory_changed(dev);
}

static bool take_now(struct budget_device *d, uint64_t bytes, int kind)
{
	if (unused(d) < bytes)
		return false;
	*counter(d, kind) += bytes;
	return true;
}

/*
 * One round of waiting for the first in line, lock held: until need bytes are free, or
 * a refusal.
 */
static bool wait_for_room(CUdevice dev, struct budget_device *d)
{
	uint64_t n_refused = d->n_refused;

	pthread_mutex_unlock(&state.lock);
	agent_want_memory(dev);
	pthread_mutex_lock(&state.lock);
	while (n_refused == d->n_refused && unused(d) < d->need)
		cond_wait(&state.changed, &state.lock);
	return n_refused == d->n_refused;
}

static void stand_in_line(struct budget_device *d)
{
	uint64_t ticket = d->ticket_next++;

	while (d->ticket_served != ticket)
		cond_wait(&state.changed, &state.lock);
}

static void leave_line(struct budget_device *d)
{
	d->need = 0;
	d->slack = 0;
	d->is_exact = false;
	d->ticket_served++;
	pthread_cond_broadcast(&state.changed);
}

/*
 * Outside the gate while it waits, so that this process can be switched out meanwhile;
 * inside again before it takes, since what is taken but not yet allocated could not be
 * evicted if the gate closed in between.
 */
static CUresult take_waiting(CUdevice dev, struct budget_device *d, uint64_t bytes, int kind)
{
	uint64_t total = budget_total(dev), step = total / 16;
	bool has_room = true, is_done = false;

	if (step > BUDGET_STEP_MAX)
		step = BUDGET_STEP_MAX;
	if (kind != BUDGET_PAGEABLE || bytes >= step)
		step = 0;

	gate_leave();
	pthread_mutex_lock(&state.lock);
	stand_in_line(d);
	while (!is_done) {
		d->need = bytes;
		d->need_kind = kind;
		d->slack = step && !d->is_exact ? step - bytes : 0;
		if (unused(d) < bytes)
			has_room = wait_for_room(dev, d);
		if (!has_room && step) {
			step = 0; /* refused with the slack; perhaps not without */
			has_room = true;
			continue;
		}
		pthread_mutex_unlock(&state.lock);
		gate_enter();
		pthread_mutex_lock(&state.lock);
		is_done = !has_room || take_now(d, bytes, kind);
		if (!is_done) {
			pthread_mutex_unlock(&state.lock);
			gate_leave();
			pthread_mutex_lock(&state.lock);
		}
	}
	leave_line(d);
	pthread_mutex_unlock(&state.lock);
	return has_room ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/*
 * In a capture of the calling thread. A stop that drains does not close the gate before it
 * ends, so there is nothing to leave; but then this process can not be switched out to
 * break a deadlock, so the wait has an end: as long as a stop would wait for the capture.
 * A stop that freezes closes the gate around us: then we have all the time there is.
 */
static CUresult take_pressing(CUdevice dev, struct budget_device *d, uint64_t bytes, int kind)
{
	uint64_t pinned = kind == BUDGET_PAGEABLE ? 0 : bytes, n_refused;
	uint64_t end_ns = clock_now_ns() + hook_options()->drain_max_ns;
	bool is_taken;
	int r = 0;

	pthread_mutex_lock(&state.lock);
	d->pressing += bytes;
	d->pressing_pinned += pinned;
	n_refused = d->n_refused;
	pthread_mutex_unlock(&state.lock);
	agent_want_memory(dev);
	pthread_mutex_lock(&state.lock);
	while (!(is_taken = take_now(d, bytes, kind)) && n_refused == d->n_refused && !r) {
		r = cond_wait_until(&state.changed, &state.lock, end_ns);
		if (r && gate_get() == GATE_CLOSED) {
			end_ns = clock_now_ns() + hook_options()->drain_max_ns;
			r = 0;
		}
	}
	d->pressing -= bytes;
	d->pressing_pinned -= pinned;
	pthread_mutex_unlock(&state.lock);
	return is_taken ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult budget_take(CUdevice dev, uint64_t bytes, int kind)
{
	struct budget_device *d = device(dev);
	uint64_t limit = kind == NVSHARE_PINNED_CONTEXT ? budget_limit(dev) : UINT64_MAX;
	bool may_wait = !gate_thread_captures(), is_first, is_taken, is_over;
	CUresult res = CUDA_SUCCESS;

	if (!d)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&state.lock);
	is_over = limit != UINT64_MAX && !within(d, bytes, limit);
	/* Nobody passes those who wait, except who may not wait. */
	is_first = d->ticket_next == d->ticket_served || !may_wait;
	is_taken = !is_over && is_first && take_now(d, bytes, kind);
	pthread_mutex_unlock(&state.lock);

	if (is_over)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!is_taken)
		res = may_wait ? take_waiting(dev, d, bytes, kind)
			       : take_pressing(dev, d, bytes, kind);
	if (res == CUDA_SUCCESS)
		agent_memory_changed(dev);
	return res;
}

/* There is a scheduler to ask, or one was lost a short while ago and may be back soon. */
static bool may_ask(const struct budget_device *d)
{
	return d->is_set || clock_now_ns() < d->lost_until_ns;
}

/* As far as the driver says: only a thread with a context of the device can ask. */
static bool has_room(CUdevice dev, uint64_t bytes)
{
	size_t bytes_free = 0, total;
	CUdevice here;

	return cuda_real.cuCtxGetDevice && cuda_real.cuMemGetInfo_v2 &&
	       cuda_real.cuCtxGetDevice(&here) == CUDA_SUCCESS && here == dev &&
	       cuda_real.cuMemGetInfo_v2(&bytes_free, &total) == CUDA_SUCCESS &&
	       bytes_free >= bytes;
}

/* Whether to try once more, and after what pause. */
static bool next_try(struct budget_tries *tries, bool is_roomy)
{
	tries->n_roomy = is_roomy ? tries->n_roomy + 1 : 0;
	if (tries->n_roomy == ROOMY_TRIES_MAX || tries->paused_ns >= PAUSED_NS_MAX)
		return false;
	tries->paused_ns += tries->pause_ns;
	tries->pause_ns = tries->pause_ns ? 2 * tries->pause_ns : PAUSE_NS_MIN;
	if (tries->pause_ns > PAUSE_NS_MAX)
		tries->pause_ns = PAUSE_NS_MAX;
	return true;
}

/*
 * The first try is to learn the scheduler's mind, and costs a round trip; the next ones
 * are for the card to become what the scheduler believes it is.
 */
static void pause_retry(struct budget_device *d, uint64_t pause_ns)
{
	uint64_t end_ns = clock_now_ns() + pause_ns;

	while (cond_wait_until(&state.changed, &state.lock, end_ns) == 0 && may_ask(d))
		;
}

CUresult budget_retry(CUdevice dev, uint64_t bytes, int kind, struct budget_tries *tries)
{
	struct budget_device *d = device(dev);
	uint64_t pause_ns = tries->pause_ns;
	bool can_ask;
	CUresult res;

	if (!d || gate_thread_captures() || !next_try(tries, has_room(dev, bytes)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&state.lock);
	can_ask = may_ask(d);
	if (can_ask) {
		subtract(counter(d, kind), bytes);
		if (d->is_set && unused(d))
			d->budget = on_card(d);
	}
	pthread_mutex_unlock(&state.lock);
	if (!can_ask)
		return CUDA_ERROR_OUT_OF_MEMORY;

	gate_leave();
	agent_memory_changed(dev);
	pthread_mutex_lock(&state.lock);
	pause_retry(d, pause_ns);
	pthread_mutex_unlock(&state.lock);
	gate_enter();
	res = budget_take(dev, bytes, kind);
	if (res != CUDA_SUCCESS)
		budget_force(dev, bytes, kind);
	return res;
}

/* The waker of those who wait, too: what one frees may be what another lacks. */
static void add(CUdevice dev, uint64_t bytes, int kind, bool is_more)
{
	struct budget_device *d = device(dev);

	if (!d)
		return;
	pthread_mutex_lock(&state.lock);
	if (is_more)
		*counter(d, kind) += bytes;
	else
		subtract(counter(d, kind), bytes);
	if (d->ticket_next != d->ticket_served)
		pthread_cond_broadcast(&state.changed);
	pthread_mutex_unlock(&state.lock);
	agent_memory_changed(dev);
}

void budget_give(CUdevice dev, uint64_t bytes, int kind)
{
	add(dev, bytes, kind, false);
}

void budget_force(CUdevice dev, uint64_t bytes, int kind)
{
	add(dev, bytes, kind, true);
}

void budget_swapped_out(CUdevice dev, uint64_t bytes)
{
	struct budget_device *d = device(dev);

	if (!d)
		return;
	pthread_mutex_lock(&state.lock);
	subtract(&d->mem.resident, bytes);
	d->mem.swapped += bytes;
	pthread_mutex_unlock(&state.lock);
	agent_memory_changed(dev);
}

bool budget_swapped_in(CUdevice dev, uint64_t bytes)
{
	struct budget_device *d = device(dev);
	bool fits;

	if (!d)
		return true;
	pthread_mutex_lock(&state.lock);
	fits = unused(d) >= bytes;
	if (fits) {
		subtract(&d->mem.swapped, bytes);
		d->mem.resident += bytes;
	}
	pthread_mutex_unlock(&state.lock);
	if (fits)
		agent_memory_changed(dev);
	return fits;
}

void budget_swapped_freed(CUdevice dev, uint64_t bytes)
{
	struct budget_device *d = device(dev);

	if (!d)
		return;
	pthread_mutex_lock(&state.lock);
	subtract(&d->mem.swapped, bytes);
	pthread_mutex_unlock(&state.lock);
	agent_memory_changed(dev);
}

static uint64_t lacking(const struct budget_device *d)
{
	uint64_t have = unused(d), need = d->need + d->pressing;

	return need > have ? need - have : 0;
}

void budget_read(CUdevice dev, struct nvshare_mem *ret_mem)
{
	struct budget_device *d = device(dev);
	uint64_t lack;

	*ret_mem = (struct nvshare_mem){0};
	if (!d)
		return;
	pthread_mutex_lock(&state.lock);
	*ret_mem = d->mem;
	lack = lacking(d);
	if (lack && (d->pressing ? !d->pressing_pinned : d->need_kind == BUDGET_PAGEABLE))
		ret_mem->wanted = lack + d->slack;
	else
		ret_mem->wanted_pinned = lack;
	pthread_mutex_unlock(&state.lock);
}

uint64_t budget_get(CUdevice dev)
{
	struct budget_device *d = device(dev);
	uint64_t budget = BUDGET_UNLIMITED;

	if (!d)
		return budget;
	pthread_mutex_lock(&state.lock);
	if (d->is_set)
		budget = d->budget;
	pthread_mutex_unlock(&state.lock);
	return budget;
}

void budget_set(CUdevice dev, uint64_t bytes)
{
	struct budget_device *d = device(dev);

	if (!d)
		return;
	pthread_mutex_lock(&state.lock);
	d->is_set = bytes != BUDGET_UNLIMITED;
	if (d->is_set)
		d->lost_until_ns = 0;
	d->budget = bytes;
	pthread_cond_broadcast(&state.changed);
	pthread_mutex_unlock(&state.lock);
}

void budget_lost(CUdevice dev)
{
	struct budget_device *d = device(dev);

	if (!d)
		return;
	pthread_mutex_lock(&state.lock);
	d->lost_until_ns = clock_now_ns() + hook_options()->orphan_ns;
	pthread_mutex_unlock(&state.lock);
}

void budget_refuse(CUdevice dev)
{
	struct budget_device *d = device(dev);

	if (!d)
		return;
	pthread_mutex_lock(&state.lock);
	d->n_refused++;
	pthread_cond_broadcast(&state.changed);
	pthread_mutex_unlock(&state.lock);
}

bool budget_drop_slack(CUdevice dev)
{
	struct budget_device *d = device(dev);
	bool had_any;

	if (!d)
		return false;
	pthread_mutex_lock(&state.lock);
	had_any = d->slack && lacking(d);
	if (had_any) {
		d->slack = 0;
		d->is_exact = true;
	}
	pthread_mutex_unlock(&state.lock);
	return had_any;
}

bool budget_wanting(CUdevice dev)
{
	struct budget_device *d = device(dev);
	bool wanting;

	if (!d)
		return false;
	pthread_mutex_lock(&state.lock);
	wanting = lacking(d) != 0;
	pthread_mutex_unlock(&state.lock);
	return wanting;
}

uint64_t budget_return_slack(CUdevice dev, uint64_t keep)
{
	struct budget_device *d = device(dev);
	uint64_t budget = BUDGET_UNLIMITED;

	if (!d)
		return budget;
	pthread_mutex_lock(&state.lock);
	if (d->is_set) {
		if (d->ticket_next == d->ticket_served && unused(d) > keep)
			d->budget -= unused(d) - keep;
		budget = d->budget;
	}
	pthread_mutex_unlock(&state.lock);
	return budget;
}

void budget_after_fork_child(void)
{
	pthread_mutex_init(&state.lock, NULL);
	pthread_cond_init(&state.changed, NULL);
	for (size_t i = 0; i < BUDGET_DEVICES; i++)
		state.devices[i] = (struct budget_device){0};
}
