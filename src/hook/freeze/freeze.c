/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/freeze/freeze.h"

#include "core/client/freeze_word.h"
#include "hook/base/hook_log.h"
#include "hook/freeze/freeze_private.h"
#include "hook/gate/gate.h"
#include "util/clock.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Each freeze makes the GPU put its work away and fetch it again: not for nothing. */
#define FREEZE_PAUSE_NS (5 * CLOCK_NS_PER_MS)

/* Controls that others are in take a fraction of a millisecond to some. */
#define FREEZE_POLL_NS 20000

/* Calls that are about to be in the driver, or to be through; others are in there for long. */
#define FREEZE_LEAVE_NS (2 * CLOCK_NS_PER_MS)

/* Between two tries to put back what a thaw could not: ever longer. */
#define FREEZE_AGAIN_NS     (10 * CLOCK_NS_PER_MS)
#define FREEZE_AGAIN_NS_MAX (10 * CLOCK_NS_PER_SEC)

static uint64_t word;     /* freeze_word.h */
static uint32_t n_inside; /* calls within freeze_enter() */
static uint32_t n_news;   /* a futex: of who waits for a thaw */
static uint64_t thawed_ns;
static enum channels_scope scope; /* of the freeze that is on */
static bool has_newborn;          /* taken off meanwhile, whatever the scope */
static bool stays_off;            /* some channel was not put back */
static uint64_t again_ns;         /* the agent's: when that is tried; 0: not said yet */
static uint64_t again_pause_ns;   /* and then after that time */
static bool is_stopped;
static struct freeze_stats stats; /* each member has one writer at a time: who moves the word */

#define stat_add(member, value) ((void)__atomic_add_fetch(&stats.member, (value), __ATOMIC_RELAXED))
#define stat_set(member, value) __atomic_store_n(&stats.member, (value), __ATOMIC_RELAXED)

/* How often the thread has said freeze_hold() and freeze_enter(), and how it was before. */
static __thread unsigned int n_stays __attribute__((tls_model("initial-exec")));
static __thread int cancel_before __attribute__((tls_model("initial-exec")));

#define ANY_EPOCH UINT64_MAX

static int step_in(uint64_t epoch, enum freeze_word_event event)
{
	uint64_t before = __atomic_load_n(&word, __ATOMIC_SEQ_CST), after;
	int r;

	do {
		if (epoch != ANY_EPOCH && epoch != freeze_word_epoch(before))
			return FREEZE_WORD_E_STATE;
		r = freeze_word_step(before, event, &after);
		if (r)
			return r;
	} while (!__atomic_compare_exchange_n(&word, &before, after, false, __ATOMIC_SEQ_CST,
					      __ATOMIC_SEQ_CST));
	return 0;
}

static int step(enum freeze_word_event event)
{
	return step_in(ANY_EPOCH, event);
}

static enum freeze_word_state state(void)
{
	return freeze_word_state(__atomic_load_n(&word, __ATOMIC_SEQ_CST));
}

static void tell_waiters(void)
{
	__atomic_add_fetch(&n_news, 1, __ATOMIC_SEQ_CST);
	(void)syscall(SYS_futex, &n_news, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* The word says THAWING by our doing. */
static int thaw(void)
{
	enum channels_scope all = CHANNELS_ALL;
	uint64_t start_ns = clock_now_ns(), now_ns;
	int r;

	while (freeze_word_births(__atomic_load_n(&word, __ATOMIC_SEQ_CST)) > 0)
		clock_nap(FREEZE_POLL_NS);
	if (!__atomic_exchange_n(&has_newborn, false, __ATOMIC_ACQ_REL))
		all = __atomic_load_n(&scope, __ATOMIC_ACQUIRE);
	r = freeze_switch_on(all, false);
	if (r) {
		__atomic_store_n(&stays_off, true, __ATOMIC_RELEASE);
		freeze_why_set(FREEZE_WHY_STAYED_OFF);
		hook_warn_once("the driver left a channel stopped; this program may hang");
	}
	now_ns = clock_now_ns();
	stat_set(thaw_ns_last, now_ns - start_ns);
	stat_add(thaw_ns_total, now_ns - start_ns);
	__atomic_store_n(&thawed_ns, now_ns, __ATOMIC_RELAXED);
	(void)step(FREEZE_WORD_THAWED);
	tell_waiters();
	return r;
}

static bool is_too_soon(uint64_t now_ns)
{
	uint64_t last_ns = __atomic_load_n(&thawed_ns, __ATOMIC_RELAXED);

	return last_ns && now_ns - last_ns < FREEZE_PAUSE_NS;
}

/* What only keeps from computing for a while takes no memory: nobody is in its way. */
static bool is_keeping_out(void)
{
	return freeze_is_on() && __atomic_load_n(&scope, __ATOMIC_SEQ_CST) == CHANNELS_ALL;
}

/* Nobody enters any more: first the word and the scope said so, then they are counted. */
static void let_leave(uint64_t end_ns)
{
	while (__atomic_load_n(&n_inside, __ATOMIC_SEQ_CST) > 0 && clock_now_ns() < end_ns)
		clock_nap(FREEZE_POLL_NS);
}

static uint64_t end_of(uint64_t start_ns, uint64_t limit_ns)
{
	return start_ns + limit_ns < start_ns ? UINT64_MAX : start_ns + limit_ns;
}

/* FREEZING by our doing. What is lacking is off, or all is as it was before the freeze. */
static int take_off(enum channels_scope what, uint64_t start_ns, uint64_t limit_ns)
{
	uint64_t epoch = freeze_epoch();
	int r;

	if (scope == CHANNELS_ALL)
		let_leave(start_ns + FREEZE_LEAVE_NS);
	r = freeze_switch_off(what);
	if (r && (r != FREEZE_E_NO_CHANNELS || what != CHANNELS_REST)) {
		(void)step(FREEZE_WORD_FAIL);
		(void)thaw();
		return r;
	}
	(void)step(FREEZE_WORD_OFF);
	freeze_watchdog_arm(end_of(start_ns, limit_ns), epoch);
	return 0;
}

static int begin(enum channels_scope what, uint64_t limit_ns, bool has_pause)
{
	uint64_t start_ns, took_ns;
	int r;

	if (__atomic_load_n(&is_stopped, __ATOMIC_ACQUIRE) || freeze_why_not())
		return FREEZE_E_OFF;
	start_ns = clock_now_ns();
	/* Whoever thaws looks at the scope: it may change when nobody does. */
	if (state() != FREEZE_WORD_RUNNING || (has_pause && is_too_soon(start_ns)))
		return FREEZE_E_BUSY;
	__atomic_store_n(&scope, what, __ATOMIC_RELEASE);
	r = limit_ns == UINT64_MAX ? 0 : freeze_watchdog_start();
	if (r < 0)
		return r;
	if (step(FREEZE_WORD_BEGIN))
		return FREEZE_E_BUSY;
	r = take_off(what, start_ns, limit_ns);
	if (r) {
		stat_add(n_failures, 1);
		return r;
	}
	took_ns = clock_now_ns() - start_ns;
	stat_set(freeze_ns_last, took_ns);
	stat_add(freeze_ns_total, took_ns);
	stat_add(n_freezes, 1);
	return 0;
}

int freeze_begin(uint64_t limit_ns)
{
	return begin(CHANNELS_ALL, limit_ns, true);
}

int freeze_begin_compute(uint64_t limit_ns)
{
	return begin(CHANNELS_COMPUTE, limit_ns, false);
}

bool freeze_extend(uint64_t limit_ns)
{
	uint64_t before = __atomic_load_n(&word, __ATOMIC_SEQ_CST);

	if (freeze_word_state(before) != FREEZE_WORD_FROZEN)
		return false;
	freeze_watchdog_arm(clock_now_ns() + limit_ns, freeze_word_epoch(before));
	return state() == FREEZE_WORD_FROZEN;
}

/* The watchdog waits meanwhile: nothing may be off when the word says that all is on. */
bool freeze_widen(uint64_t limit_ns)
{
	if (scope == CHANNELS_ALL)
		return freeze_extend(limit_ns);
	if (step(FREEZE_WORD_WIDEN))
		return false;
	__atomic_store_n(&scope, CHANNELS_ALL, __ATOMIC_SEQ_CST);
	return take_off(CHANNELS_REST, clock_now_ns(), limit_ns) == 0;
}

bool freeze_commit(void)
{
	if (state() == FREEZE_WORD_COMMITTED)
		return true;
	if (step(FREEZE_WORD_COMMIT))
		return false;
	freeze_watchdog_arm(UINT64_MAX, 0);
	return true;
}

int freeze_end(void)
{
	int r = 0;

	if (step(FREEZE_WORD_END) == 0) {
		freeze_watchdog_arm(UINT64_MAX, 0);
		r = thaw();
	}
	/* Or the watchdog is at it. */
	while (state() == FREEZE_WORD_THAWING)
		clock_nap(FREEZE_POLL_NS);
	return r;
}

void freeze_expire(uint64_t epoch)
{
	if (step_in(epoch, FREEZE_WORD_EXPIRE))
		return;
	stat_add(n_expired, 1);
	(void)thaw();
	hook_debug("freeze: thawed by the watchdog");
}

/*
 * The channel is in the book. Whoever freezes from now on finds it there; whoever is at it
 * or has done it may not have.
 */
bool freeze_newborn(const struct channels_batch *channel)
{
	bool is_off = false;
	int r;

	do {
		r = step(FREEZE_WORD_BORN);
		if (r == FREEZE_WORD_E_STATE)
			return true;
		if (r)
			clock_nap(FREEZE_POLL_NS);
	} while (r);
	__atomic_store_n(&has_newborn, true, __ATOMIC_RELEASE);
	for (unsigned int i = 0; i < 3 && !is_off; i++)
		is_off = freeze_switch(channel, true) == 0;
	if (!is_off)
		hook_debug("freeze: a new channel could not be stopped");
	(void)step(FREEZE_WORD_SETTLED);
	return is_off;
}

/* false: that is not to come. The process leaves, and nobody brings its memory in any more. */
static bool wait_for_thaw(bool (*is_waited_for)(void))
{
	uint32_t news = __atomic_load_n(&n_news, __ATOMIC_SEQ_CST);
	int saved_errno = errno;

	if (!is_waited_for())
		return true;
	if (__atomic_load_n(&is_stopped, __ATOMIC_ACQUIRE) && state() == FREEZE_WORD_COMMITTED)
		return false;
	(void)syscall(SYS_futex, &n_news, FUTEX_WAIT_PRIVATE, news, NULL, NULL, 0);
	errno = saved_errno;
	return true;
}

/*
 * The driver polls, reads and writes files: a thread that pthread_cancel() ended in there would
 * be counted for ever, and nothing be frozen any more. It ends when it is through.
 */
static void stay_begin(void)
{
	if (n_stays++ == 0)
		(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_before);
}

static void stay_end(void)
{
	if (--n_stays == 0)
		(void)pthread_setcancelstate(cancel_before, NULL);
}

bool freeze_hold(void)
{
	int r;

	stay_begin();
	while ((r = step(FREEZE_WORD_HOLD))) {
		if (r == FREEZE_WORD_E_COUNT) {
			clock_nap(FREEZE_POLL_NS);
		} else if (!wait_for_thaw(freeze_is_on)) {
			stay_end();
			return false;
		}
	}
	return true;
}

void freeze_drop(void)
{
	(void)step(FREEZE_WORD_DROP);
	stay_end();
}

bool freeze_enter(void)
{
	for (;;) {
		stay_begin();
		gate_mark();
		__atomic_add_fetch(&n_inside, 1, __ATOMIC_SEQ_CST);
		if (!is_keeping_out())
			return true;
		freeze_leave();
		if (!wait_for_thaw(is_keeping_out))
			return false;
	}
}

void freeze_leave(void)
{
	__atomic_sub_fetch(&n_inside, 1, __ATOMIC_SEQ_CST);
	gate_unmark();
	stay_end();
}

uint64_t freeze_tick(uint64_t now_ns)
{
	if (!__atomic_load_n(&stays_off, __ATOMIC_ACQUIRE))
		return UINT64_MAX;
	if (!again_ns) {
		again_pause_ns = FREEZE_AGAIN_NS;
		again_ns = now_ns + again_pause_ns;
	}
	if (now_ns < again_ns || freeze_is_on())
		return again_ns;
	if (freeze_switch_on(CHANNELS_ALL, true) == 0) {
		__atomic_store_n(&stays_off, false, __ATOMIC_RELEASE);
		again_ns = 0;
		hook_debug("freeze: what the driver had left stopped goes on");
		return UINT64_MAX;
	}
	again_pause_ns *= 2;
	if (again_pause_ns > FREEZE_AGAIN_NS_MAX)
		again_pause_ns = FREEZE_AGAIN_NS_MAX;
	again_ns = now_ns + again_pause_ns;
	return again_ns;
}

bool freeze_is_on(void)
{
	return state() != FREEZE_WORD_RUNNING;
}

uint64_t freeze_epoch(void)
{
	return freeze_word_epoch(__atomic_load_n(&word, __ATOMIC_SEQ_CST));
}

void freeze_stats(struct freeze_stats *ret)
{
	ret->n_freezes = __atomic_load_n(&stats.n_freezes, __ATOMIC_RELAXED);
	ret->n_failures = __atomic_load_n(&stats.n_failures, __ATOMIC_RELAXED);
	ret->n_expired = __atomic_load_n(&stats.n_expired, __ATOMIC_RELAXED);
	ret->freeze_ns_last = __atomic_load_n(&stats.freeze_ns_last, __ATOMIC_RELAXED);
	ret->freeze_ns_total = __atomic_load_n(&stats.freeze_ns_total, __ATOMIC_RELAXED);
	ret->thaw_ns_last = __atomic_load_n(&stats.thaw_ns_last, __ATOMIC_RELAXED);
	ret->thaw_ns_total = __atomic_load_n(&stats.thaw_ns_total, __ATOMIC_RELAXED);
}

void freeze_stop(void)
{
	int saved_errno = errno;

	__atomic_store_n(&is_stopped, true, __ATOMIC_RELEASE);
	freeze_expire(ANY_EPOCH);
	tell_waiters();
	errno = saved_errno;
}

void freeze_after_fork_child(void)
{
	word = 0;
	n_inside = 0;
	thawed_ns = 0;
	has_newborn = false;
	stays_off = false;
	again_ns = 0;
	is_stopped = false;
	stats = (struct freeze_stats){0};
	freeze_watchdog_after_fork_child();
	freeze_prove_after_fork_child();
	freeze_switch_after_fork_child();
	freeze_why_after_fork_child();
	channels_after_fork_child();
}
