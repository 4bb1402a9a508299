/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/base/descriptors.h"
#include "hook/base/hook_log.h"
#include "hook/base/hook_options.h"
#include "hook/gate/bell.h"
#include "hook/gate/gate.h"
#include "hook/memory/budget_private.h"
#include "hook/table/cuda_real.h"
#include "util/clock.h"

/* Asked for at once, so that not every small allocation makes a round trip. */
#define BUDGET_STEP_MAX (64ull << 20)

/* In a capture, after a refusal of more bytes than its own. */
#define PRESS_TRIES 4

/* Between tries of the driver, which says out of memory although the budget has room. */
#define PAUSE_NS_MIN    CLOCK_NS_PER_MS
#define PAUSE_NS_MAX    (250 * CLOCK_NS_PER_MS)
#define PAUSED_NS_MAX   (240 * CLOCK_NS_PER_SEC) /* as long as any wait may be */
#define BLIND_NS_MAX    (10 * CLOCK_NS_PER_SEC)  /* where the driver does not tell the room */
#define ROOMY_TRIES_MAX 6                        /* in a row, with room on the card */

static bool want_take_now(struct budget_device *d, uint64_t bytes, int kind)
{
	if (budget_unused(d) < bytes)
		return false;
	*budget_counter(d, kind) += bytes;
	return true;
}

/* For the first in line, lock held: until bytes are free, or one more refusal than that. */
static void want_wait_for_room(CUdevice dev, struct budget_device *d, uint64_t bytes,
			       uint64_t n_refused)
{
	hook_unlock(&budget_state.lock);
	bell_memory_wanted(dev);
	hook_lock(&budget_state.lock);
	while (d->n_refused == n_refused && budget_unused(d) < bytes)
		hook_wait(&budget_state.changed, &budget_state.lock);
}

static void want_stand_in_line(struct budget_device *d)
{
	uint64_t ticket = d->ticket_next++;

	while (d->ticket_served != ticket)
		hook_wait(&budget_state.changed, &budget_state.lock);
}

static void want_leave_line(struct budget_device *d)
{
	d->need = 0;
	d->slack = 0;
	d->is_exact = false;
	d->ticket_served++;
	pthread_cond_broadcast(&budget_state.changed);
}

/*
 * The thread is outside the gate while it waits, so the process can be stopped meanwhile. It is
 * inside again before it takes: taken bytes that are not allocated yet could not be evicted if the
 * gate closed in between. A refusal that comes while it stands at the gate counts. Refused bytes
 * are not wanted any more, and may be why the gate stays closed.
 */
static CUresult want_take_waiting(CUdevice dev, struct budget_device *d, uint64_t bytes, int kind)
{
	uint64_t total = budget_total(dev), step = total / 16, n_refused;
	bool is_taken;

	if (step > BUDGET_STEP_MAX)
		step = BUDGET_STEP_MAX;
	if (kind != BUDGET_PAGEABLE || bytes >= step)
		step = 0;

	gate_leave();
	hook_lock(&budget_state.lock);
	want_stand_in_line(d);
	for (;;) {
		n_refused = d->n_refused;
		d->need = bytes;
		d->need_kind = kind;
		d->slack = step && !d->is_exact ? step - bytes : 0;
		if (budget_unused(d) < bytes)
			want_wait_for_room(dev, d, bytes, n_refused);
		if (d->n_refused != n_refused && step) {
			step = 0; /* refused with the slack; perhaps not without */
			continue;
		}
		hook_unlock(&budget_state.lock);
		gate_enter();
		hook_lock(&budget_state.lock);
		is_taken = want_take_now(d, bytes, kind);
		if (is_taken || (d->n_refused != n_refused && !step))
			break;
		step = d->n_refused == n_refused ? step : 0;
		hook_unlock(&budget_state.lock);
		gate_leave();
		hook_lock(&budget_state.lock);
	}
	want_leave_line(d);
	hook_unlock(&budget_state.lock);
	return is_taken ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Out of line. Lock held. */
static void line_press(struct budget_device *d, uint64_t bytes, int kind)
{
	d->pressing += bytes;
	d->pressing_pinned += kind == BUDGET_PAGEABLE ? 0 : bytes;
}

/*
 * n_refused: the count when it began. Bytes that were refused since then are not wanted any more.
 */
static void line_press_no_more(struct budget_device *d, uint64_t bytes, int kind,
			       uint64_t n_refused)
{
	if (d->n_refused != n_refused)
		return;
	d->pressing -= bytes;
	d->pressing_pinned -= kind == BUDGET_PAGEABLE ? 0 : bytes;
}

/*
 * In a capture of the calling thread. A stop that drains does not close the gate before it
 * ends, so there is nothing to leave; but then this process can not be switched out to
 * break a deadlock, so the wait has an end: as long as a stop would wait for the capture.
 * A stop that freezes closes the gate around us: then we have all the time there is.
 * Lock held. 0, or it is over.
 */
static int want_wait_in_capture(uint64_t *end_ns)
{
	int r = hook_wait_until(&budget_state.changed, &budget_state.lock, *end_ns);

	if (!r || gate_get() != GATE_CLOSED)
		return r;
	*end_ns = clock_now_ns() + hook_options()->drain_max_ns;
	return 0;
}

/* Until there is room, a refusal, whose bytes go to ret_refused, or the end. */
static bool line_press_once(CUdevice dev, struct budget_device *d, uint64_t bytes, int kind,
			    uint64_t *end_ns, uint64_t *ret_refused)
{
	uint64_t n_refused;
	bool is_taken;
	int r = 0;

	hook_lock(&budget_state.lock);
	line_press(d, bytes, kind);
	n_refused = d->n_refused;
	hook_unlock(&budget_state.lock);
	bell_memory_wanted(dev);
	hook_lock(&budget_state.lock);
	while (!(is_taken = want_take_now(d, bytes, kind)) && n_refused == d->n_refused && !r)
		r = want_wait_in_capture(end_ns);
	line_press_no_more(d, bytes, kind, n_refused);
	*ret_refused = n_refused == d->n_refused ? 0 : d->refused;
	hook_unlock(&budget_state.lock);
	return is_taken;
}

/* Waits until the first one in line has its bytes or has given up, or until there is room. */
static void want_let_first(struct budget_device *d, uint64_t bytes, uint64_t *end_ns)
{
	uint64_t served;
	int r = 0;

	hook_lock(&budget_state.lock);
	served = d->ticket_served;
	while (!r && d->ticket_next != served && d->ticket_served == served &&
	       budget_unused(d) < bytes)
		r = want_wait_in_capture(end_ns);
	hook_unlock(&budget_state.lock);
}

/*
 * Bytes that were refused together with others' may be available alone. But a thread in line gives
 * up at its second refusal, so to ask again at once might end its wait, and not ours.
 */
static CUresult want_take_pressing(CUdevice dev, struct budget_device *d, uint64_t bytes, int kind)
{
	uint64_t end_ns = clock_now_ns() + hook_options()->drain_max_ns, refused;

	for (int i = 0; i < PRESS_TRIES; i++) {
		if (line_press_once(dev, d, bytes, kind, &end_ns, &refused))
			return CUDA_SUCCESS;
		if (refused <= bytes)
			break;
		want_let_first(d, bytes, &end_ns);
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult budget_take(CUdevice dev, uint64_t bytes, int kind)
{
	struct budget_device *d = budget_device(dev);
	uint64_t limit = kind == NVSHARE_PINNED_CONTEXT ? budget_limit(dev) : UINT64_MAX;
	bool may_wait = !gate_thread_captures(), is_first, is_taken, is_over;
	CUresult res = CUDA_SUCCESS;

	if (!d)
		return CUDA_SUCCESS;
	hook_lock(&budget_state.lock);
	is_over = limit != UINT64_MAX && !budget_within(d, bytes, limit);
	/* No thread passes the ones in line, unless it must not wait. */
	is_first = d->ticket_next == d->ticket_served || !may_wait;
	is_taken = !is_over && is_first && want_take_now(d, bytes, kind);
	hook_unlock(&budget_state.lock);

	if (is_over) {
		hook_warn_once(
			"a context of %llu MiB is more than NVSHARE_GPU_MEMORY_LIMIT, %llu bytes, leaves",
			(unsigned long long)(bytes >> 20), (unsigned long long)limit);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!is_taken)
		res = may_wait ? want_take_waiting(dev, d, bytes, kind)
			       : want_take_pressing(dev, d, bytes, kind);
	if (res == CUDA_SUCCESS)
		bell_memory_changed(dev);
	return res;
}

/* There is a scheduler to ask, or one was lost a short while ago and may be back soon. */
static bool budget_may_ask(const struct budget_device *d)
{
	return d->is_set || clock_now_ns() < d->lost_until_ns;
}

/*
 * As far as the driver says: only a thread with a context of the device can ask, and so not
 * one that makes the first. false: not known.
 */
static bool driver_find_room(CUdevice dev, uint64_t bytes, bool *ret_has)
{
	size_t bytes_free = 0, total;
	CUdevice here;

	if (!cuda_real.cuCtxGetDevice || !cuda_real.cuMemGetInfo_v2 ||
	    cuda_real.cuCtxGetDevice(&here) != CUDA_SUCCESS || here != dev ||
	    cuda_real.cuMemGetInfo_v2(&bytes_free, &total) != CUDA_SUCCESS)
		return false;
	*ret_has = bytes_free >= bytes;
	return true;
}

/* true: try once more. It sets the pause before that. */
static bool tries_next(struct budget_tries *tries, CUdevice dev, uint64_t bytes)
{
	bool has_room = false, is_known = driver_find_room(dev, bytes, &has_room);

	tries->n_roomy = has_room ? tries->n_roomy + 1 : 0;
	if (tries->n_roomy == ROOMY_TRIES_MAX ||
	    tries->paused_ns >= (is_known ? PAUSED_NS_MAX : BLIND_NS_MAX))
		return false;
	tries->paused_ns += tries->pause_ns;
	tries->pause_ns = tries->pause_ns ? 2 * tries->pause_ns : PAUSE_NS_MIN;
	if (tries->pause_ns > PAUSE_NS_MAX)
		tries->pause_ns = PAUSE_NS_MAX;
	return true;
}

/*
 * The first try asks the scheduler, which costs a round trip. The next ones wait until the card is
 * as the scheduler believes. All end with a refusal.
 */
static void tries_pause(struct budget_device *d, uint64_t pause_ns, uint64_t n_refused)
{
	uint64_t end_ns = clock_now_ns() + pause_ns;

	while (hook_wait_until(&budget_state.changed, &budget_state.lock, end_ns) == 0 &&
	       budget_may_ask(d) && d->n_refused == n_refused)
		;
}

CUresult budget_retry(CUdevice dev, uint64_t bytes, int kind, struct budget_tries *tries)
{
	struct budget_device *d = budget_device(dev);
	uint64_t pause_ns = tries->pause_ns, n_refused;
	bool can_ask, is_wanted, is_refused;
	CUresult res = CUDA_ERROR_OUT_OF_MEMORY;

	if (!d || gate_thread_captures())
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!tries_next(tries, dev, bytes)) {
		if (descriptors_are_short())
			hook_warn_once("the driver is out of memory although there is room; file "
				       "descriptors are short (RLIMIT_NOFILE)");
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	hook_debug("device %d: the driver has no room for %llu bytes that the budget has", dev,
		   (unsigned long long)bytes);
	hook_lock(&budget_state.lock);
	n_refused = d->n_refused;
	can_ask = budget_may_ask(d);
	is_wanted = can_ask && d->is_set;
	if (can_ask)
		budget_subtract(budget_counter(d, kind), bytes);
	if (is_wanted) {
		if (budget_unused(d))
			d->budget = budget_on_card(d);
		/* Else threads behind in line would get it. */
		line_press(d, bytes, kind);
	}
	hook_unlock(&budget_state.lock);
	if (!can_ask)
		return CUDA_ERROR_OUT_OF_MEMORY;

	gate_leave();
	if (is_wanted)
		bell_memory_wanted(dev);
	else
		bell_memory_changed(dev);
	hook_lock(&budget_state.lock);
	tries_pause(d, pause_ns, n_refused);
	hook_unlock(&budget_state.lock);
	gate_enter();
	hook_lock(&budget_state.lock);
	if (is_wanted)
		line_press_no_more(d, bytes, kind, n_refused);
	/* Together with the bytes that others lacked it may have been too much. */
	is_refused = is_wanted && d->n_refused != n_refused && d->refused == bytes;
	hook_unlock(&budget_state.lock);
	if (!is_refused)
		res = budget_take(dev, bytes, kind);
	if (res != CUDA_SUCCESS)
		budget_force(dev, bytes, kind);
	return res;
}
