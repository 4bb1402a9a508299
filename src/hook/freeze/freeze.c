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
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Between two freezes: each one makes the GPU put its work away and fetch it again. */
#define FREEZE_PAUSE_NS (5 * CLOCK_NS_PER_MS)

/* A control by another thread takes from a fraction of a millisecond to some milliseconds. */
#define FREEZE_POLL_NS 20000

/* Most calls leave the driver within this time; the others stay for long. */
#define FREEZE_LEAVE_NS (2 * CLOCK_NS_PER_MS)

/* Between two tries to put back channels that a thaw could not. It doubles each time. */
#define FREEZE_AGAIN_NS     (10 * CLOCK_NS_PER_MS)
#define FREEZE_AGAIN_NS_MAX (10 * CLOCK_NS_PER_SEC)

/* No lock: the word is the state, and a thread that moves it owns the step that follows. */
static struct {
	uint64_t word;     /* atomic; freeze_word.h */
	uint32_t n_inside; /* atomic; calls within freeze_enter() */
	uint32_t n_news;   /* atomic, a futex: it grows when waiting threads should look again */
	enum channels_scope scope; /* atomic; of the freeze that is on */
	bool has_newborn;          /* atomic; a new channel was taken off, in each scope */
	bool stays_off;            /* atomic; some channel was not put back */
	bool is_stopped;           /* atomic; the process exits */
	uint64_t thawed_ns;        /* atomic; the end of the last thaw */
	uint64_t again_ns;         /* the agent's; the next try to put back; 0: not decided */
	uint64_t again_pause_ns;   /* the agent's; the pause before that try */
	struct freeze_stats stats; /* atomic; the thread that moves the word writes */
} freeze;

#define stat_add(member, value) \
	((void)__atomic_add_fetch(&freeze.stats.member, (value), __ATOMIC_RELAXED))
#define stat_set(member, value) __atomic_store_n(&freeze.stats.member, (value), __ATOMIC_RELAXED)

/* The thread's freeze_hold() and freeze_enter(), and whether it could be cancelled before. */
static __thread struct {
	unsigned int n;
	int cancel_before;
} stays __attribute__((tls_model("initial-exec")));

#define ANY_EPOCH UINT64_MAX

static int freeze_step_in(uint64_t epoch, enum freeze_word_event event)
{
	uint64_t before = __atomic_load_n(&freeze.word, __ATOMIC_SEQ_CST), after;
	int r;

	do {
		if (epoch != ANY_EPOCH && epoch != freeze_word_epoch(before))
			return FREEZE_WORD_E_STATE;
		r = freeze_word_step(before, event, &after);
		if (r)
			return r;
	} while (!__atomic_compare_exchange_n(&freeze.word, &before, after, false, __ATOMIC_SEQ_CST,
					      __ATOMIC_SEQ_CST));
	return 0;
}

static int freeze_step(enum freeze_word_event event)
{
	return freeze_step_in(ANY_EPOCH, event);
}

static enum freeze_word_state freeze_state(void)
{
	return freeze_word_state(__atomic_load_n(&freeze.word, __ATOMIC_SEQ_CST));
}

static void freeze_wake_waiters(void)
{
	__atomic_add_fetch(&freeze.n_news, 1, __ATOMIC_SEQ_CST);
	(void)syscall(SYS_futex, &freeze.n_news, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* The calling thread has moved the word to THAWING. */
static int freeze_thaw(void)
{
	enum channels_scope all = CHANNELS_ALL;
	uint64_t start_ns = clock_now_ns(), now_ns;
	int r;

	gate_count_thaw(); /* copies of memory are old from here on, also behind a closed gate */
	while (freeze_word_births(__atomic_load_n(&freeze.word, __ATOMIC_SEQ_CST)) > 0)
		clock_nap(FREEZE_POLL_NS);
	if (!__atomic_exchange_n(&freeze.has_newborn, false, __ATOMIC_ACQ_REL))
		all = __atomic_load_n(&freeze.scope, __ATOMIC_ACQUIRE);
	r = freeze_switch_on(all, false);
	if (r) {
		__atomic_store_n(&freeze.stays_off, true, __ATOMIC_RELEASE);
		freeze_why_set(FREEZE_WHY_STAYED_OFF);
		hook_warn_once("the driver left a channel stopped; this program may hang");
	}
	now_ns = clock_now_ns();
	stat_set(thaw_ns_last, now_ns - start_ns);
	stat_add(thaw_ns_total, now_ns - start_ns);
	__atomic_store_n(&freeze.thawed_ns, now_ns, __ATOMIC_RELAXED);
	(void)freeze_step(FREEZE_WORD_THAWED);
	freeze_wake_waiters();
	return r;
}

static bool freeze_is_too_soon(uint64_t now_ns)
{
	uint64_t last_ns = __atomic_load_n(&freeze.thawed_ns, __ATOMIC_RELAXED);

	return last_ns && now_ns - last_ns < FREEZE_PAUSE_NS;
}

/* A freeze of CHANNELS_COMPUTE takes no memory away, so no call is in its way. */
static bool freeze_keeps_out(void)
{
	return freeze_is_on() && __atomic_load_n(&freeze.scope, __ATOMIC_SEQ_CST) == CHANNELS_ALL;
}

/* The word and the scope keep new calls out already. The calls inside get time to leave. */
static void freeze_let_leave(uint64_t end_ns)
{
	while (__atomic_load_n(&freeze.n_inside, __ATOMIC_SEQ_CST) > 0 && clock_now_ns() < end_ns)
		clock_nap(FREEZE_POLL_NS);
}

static uint64_t limit_end_ns(uint64_t start_ns, uint64_t limit_ns)
{
	return start_ns + limit_ns < start_ns ? UINT64_MAX : start_ns + limit_ns;
}

/*
 * The calling thread has moved the word to FREEZING. 0: the channels of what are off. Else all
 * channels are on again.
 */
static int freeze_take_off(enum channels_scope what, uint64_t start_ns, uint64_t limit_ns)
{
	uint64_t epoch = freeze_epoch();
	int r;

	if (freeze.scope == CHANNELS_ALL)
		freeze_let_leave(start_ns + FREEZE_LEAVE_NS);
	r = freeze_switch_off(what);
	if (r && (r != FREEZE_E_NO_CHANNELS || what != CHANNELS_REST)) {
		(void)freeze_step(FREEZE_WORD_FAIL);
		(void)freeze_thaw();
		return r;
	}
	(void)freeze_step(FREEZE_WORD_OFF);
	freeze_watchdog_arm(limit_end_ns(start_ns, limit_ns), epoch);
	return 0;
}

static int freeze_begin_scope(enum channels_scope what, uint64_t limit_ns, bool has_pause)
{
	uint64_t start_ns, took_ns;
	int r;

	if (__atomic_load_n(&freeze.is_stopped, __ATOMIC_ACQUIRE) || freeze_why_not())
		return FREEZE_E_OFF;
	start_ns = clock_now_ns();
	/* The thread that thaws reads the scope, so it changes only while RUNNING. */
	if (freeze_state() != FREEZE_WORD_RUNNING || (has_pause && freeze_is_too_soon(start_ns)))
		return FREEZE_E_BUSY;
	__atomic_store_n(&freeze.scope, what, __ATOMIC_RELEASE);
	r = limit_ns == UINT64_MAX ? 0 : freeze_watchdog_start();
	if (r < 0)
		return r;
	if (freeze_step(FREEZE_WORD_BEGIN))
		return FREEZE_E_BUSY;
	r = freeze_take_off(what, start_ns, limit_ns);
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
	return freeze_begin_scope(CHANNELS_ALL, limit_ns, true);
}

int freeze_begin_compute(uint64_t limit_ns)
{
	return freeze_begin_scope(CHANNELS_COMPUTE, limit_ns, false);
}

bool freeze_extend(uint64_t limit_ns)
{
	uint64_t before = __atomic_load_n(&freeze.word, __ATOMIC_SEQ_CST);

	if (freeze_word_state(before) != FREEZE_WORD_FROZEN)
		return false;
	freeze_watchdog_arm(clock_now_ns() + limit_ns, freeze_word_epoch(before));
	return freeze_state() == FREEZE_WORD_FROZEN;
}

/* The word moves to FREEZING, so the watchdog cannot thaw while the rest is taken off. */
bool freeze_widen(uint64_t limit_ns)
{
	if (freeze.scope == CHANNELS_ALL)
		return freeze_extend(limit_ns);
	if (freeze_step(FREEZE_WORD_WIDEN))
		return false;
	__atomic_store_n(&freeze.scope, CHANNELS_ALL, __ATOMIC_SEQ_CST);
	return freeze_take_off(CHANNELS_REST, clock_now_ns(), limit_ns) == 0;
}

bool freeze_commit(void)
{
	if (freeze_state() == FREEZE_WORD_COMMITTED)
		return true;
	if (freeze_step(FREEZE_WORD_COMMIT))
		return false;
	freeze_watchdog_arm(UINT64_MAX, 0);
	return true;
}

int freeze_end(void)
{
	int r = 0;

	if (freeze_step(FREEZE_WORD_END) == 0) {
		freeze_watchdog_arm(UINT64_MAX, 0);
		r = freeze_thaw();
	}
	/* Else the watchdog may be thawing. */
	while (freeze_state() == FREEZE_WORD_THAWING)
		clock_nap(FREEZE_POLL_NS);
	return r;
}

void freeze_expire(uint64_t epoch)
{
	if (freeze_step_in(epoch, FREEZE_WORD_EXPIRE))
		return;
	stat_add(n_expired, 1);
	(void)freeze_thaw();
	hook_debug("freeze: thawed by the watchdog");
}

/*
 * The channel is in the book, so each later freeze finds it there. A freeze that is under way or on
 * may have missed it.
 */
bool freeze_newborn(const struct channels_batch *channel)
{
	bool is_off = false;
	int r;

	do {
		r = freeze_step(FREEZE_WORD_BORN);
		if (r == FREEZE_WORD_E_STATE)
			return true;
		if (r)
			clock_nap(FREEZE_POLL_NS);
	} while (r);
	__atomic_store_n(&freeze.has_newborn, true, __ATOMIC_RELEASE);
	for (unsigned int i = 0; i < 3 && !is_off; i++)
		is_off = freeze_switch(channel, true) == 0;
	if (!is_off)
		hook_debug("freeze: a new channel could not be stopped");
	(void)freeze_step(FREEZE_WORD_SETTLED);
	return is_off;
}

/* false: no thaw will come. The process exits, and its memory stays out. */
static bool freeze_wait(bool (*is_waited_for)(void))
{
	uint32_t news = __atomic_load_n(&freeze.n_news, __ATOMIC_SEQ_CST);
	int saved_errno = errno;

	if (!is_waited_for())
		return true;
	if (__atomic_load_n(&freeze.is_stopped, __ATOMIC_ACQUIRE) &&
	    freeze_state() == FREEZE_WORD_COMMITTED)
		return false;
	(void)syscall(SYS_futex, &freeze.n_news, FUTEX_WAIT_PRIVATE, news, NULL, NULL, 0);
	errno = saved_errno;
	return true;
}

/*
 * The driver polls, reads and writes files, where pthread_cancel() ends a thread. That thread would
 * be counted for ever, and no freeze would succeed any more. So it ends after the call.
 */
static void stays_begin(void)
{
	if (stays.n++ == 0)
		(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &stays.cancel_before);
}

static void stays_end(void)
{
	if (--stays.n == 0)
		(void)pthread_setcancelstate(stays.cancel_before, NULL);
}

bool freeze_hold(void)
{
	int r;

	stays_begin();
	while ((r = freeze_step(FREEZE_WORD_HOLD))) {
		if (r == FREEZE_WORD_E_COUNT) {
			clock_nap(FREEZE_POLL_NS);
		} else if (!freeze_wait(freeze_is_on)) {
			stays_end();
			return false;
		}
	}
	return true;
}

void freeze_drop(void)
{
	(void)freeze_step(FREEZE_WORD_DROP);
	stays_end();
}

bool freeze_enter(void)
{
	for (;;) {
		stays_begin();
		gate_mark();
		__atomic_add_fetch(&freeze.n_inside, 1, __ATOMIC_SEQ_CST);
		if (!freeze_keeps_out())
			return true;
		freeze_leave();
		if (!freeze_wait(freeze_keeps_out))
			return false;
	}
}

void freeze_leave(void)
{
	__atomic_sub_fetch(&freeze.n_inside, 1, __ATOMIC_SEQ_CST);
	gate_unmark();
	stays_end();
}

uint64_t freeze_tick(uint64_t now_ns)
{
	if (!__atomic_load_n(&freeze.stays_off, __ATOMIC_ACQUIRE))
		return UINT64_MAX;
	if (!freeze.again_ns) {
		freeze.again_pause_ns = FREEZE_AGAIN_NS;
		freeze.again_ns = now_ns + freeze.again_pause_ns;
	}
	if (now_ns < freeze.again_ns || freeze_is_on())
		return freeze.again_ns;
	if (freeze_switch_on(CHANNELS_ALL, true) == 0) {
		__atomic_store_n(&freeze.stays_off, false, __ATOMIC_RELEASE);
		freeze.again_ns = 0;
		hook_debug("freeze: what the driver had left stopped goes on");
		return UINT64_MAX;
	}
	freeze.again_pause_ns *= 2;
	if (freeze.again_pause_ns > FREEZE_AGAIN_NS_MAX)
		freeze.again_pause_ns = FREEZE_AGAIN_NS_MAX;
	freeze.again_ns = now_ns + freeze.again_pause_ns;
	return freeze.again_ns;
}

bool freeze_is_on(void)
{
	return freeze_state() != FREEZE_WORD_RUNNING;
}

uint64_t freeze_epoch(void)
{
	return freeze_word_epoch(__atomic_load_n(&freeze.word, __ATOMIC_SEQ_CST));
}

void freeze_stats(struct freeze_stats *ret)
{
	ret->n_freezes = __atomic_load_n(&freeze.stats.n_freezes, __ATOMIC_RELAXED);
	ret->n_failures = __atomic_load_n(&freeze.stats.n_failures, __ATOMIC_RELAXED);
	ret->n_expired = __atomic_load_n(&freeze.stats.n_expired, __ATOMIC_RELAXED);
	ret->freeze_ns_last = __atomic_load_n(&freeze.stats.freeze_ns_last, __ATOMIC_RELAXED);
	ret->freeze_ns_total = __atomic_load_n(&freeze.stats.freeze_ns_total, __ATOMIC_RELAXED);
	ret->thaw_ns_last = __atomic_load_n(&freeze.stats.thaw_ns_last, __ATOMIC_RELAXED);
	ret->thaw_ns_total = __atomic_load_n(&freeze.stats.thaw_ns_total, __ATOMIC_RELAXED);
}

void freeze_stop(void)
{
	int saved_errno = errno;

	__atomic_store_n(&freeze.is_stopped, true, __ATOMIC_RELEASE);
	freeze_expire(ANY_EPOCH);
	freeze_wake_waiters();
	errno = saved_errno;
}

void freeze_after_fork_child(void)
{
	memset(&freeze, 0, sizeof(freeze));
	freeze_watchdog_after_fork_child();
	freeze_prove_after_fork_child();
	freeze_switch_after_fork_child();
	freeze_why_after_fork_child();
	channels_after_fork_child();
}
