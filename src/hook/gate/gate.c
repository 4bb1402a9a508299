/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Each thread says in a slot of its own that it is inside, then looks at the gate. The agent shuts
 * the gate, then looks at the slots. Both first steps are sequentially consistent, so at least one
 * side sees the other: gate_quiet() finds each thread that missed the closing. A relaxed store
 * could stay in the processor's store buffer while the load passes it. tests/hook/test_gate_model.c
 * goes through every interleaving.
 *
 * Slots are never freed, so a scan needs no lock. A thread that ends gives its slot to the next
 * one.
 */

#include "hook/gate/gate.h"
#include "hook/gate/gate_private.h"

#include "util/clock.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Static, so that the first threads need no memory. */
static struct gate_chunk first_chunk;
struct gate gate = {.woken_word = UINT32_MAX, .chunks = &first_chunk};

/* The key's destructor gives a thread's slot back. pthread_once() guards it. */
static struct {
	pthread_once_t once;
	pthread_key_t key; /* GATE_NO_KEY: slots are not given back */
} slot_key = {.once = PTHREAD_ONCE_INIT};

#define GATE_NO_KEY ((pthread_key_t)-1)

__thread struct gate_self gate_self __attribute__((tls_model("initial-exec")));

static long gate_futex(int op, uint32_t value)
{
	return gate_futex_at(&gate.word, op, value);
}

/* ---- slots ---------------------------------------------------------------- */

static void gate_on_thread_end(void *arg)
{
	struct gate_slot *slot = arg;

	gate_end_capture(gate_find_capture(gate_thread_stream()));
	gate_disown_captures(slot);
	gate_self.slot = NULL;
	gate_self.depth = 0;
	__atomic_store_n(&slot->inside, GATE_OUTSIDE, __ATOMIC_RELEASE);
	__atomic_store_n(&slot->n_marks, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&slot->n_walks, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&slot->is_owned, 0, __ATOMIC_RELEASE);
}

static void gate_make_key(void)
{
	/* Slots that are not given back cost memory, and nothing else. */
	if (pthread_key_create(&slot_key.key, gate_on_thread_end) != 0)
		slot_key.key = GATE_NO_KEY;
}

static struct gate_slot *gate_find_slot(void)
{
	gate_for_each_slot (slot) {
		uint32_t expected = 0;

		if (__atomic_load_n(&slot->is_owned, __ATOMIC_RELAXED) == 0 &&
		    __atomic_compare_exchange_n(&slot->is_owned, &expected, 1, false,
						__ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			return slot;
	}

	return NULL;
}

static void gate_add_chunk(void)
{
	struct gate_chunk *chunk;

	chunk = mmap(NULL, sizeof(*chunk), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		     0);
	if (chunk == MAP_FAILED) {
		/* The thread must not enter unseen. It waits for memory, as in a page fault. */
		clock_nap(CLOCK_NS_PER_MS);
		return;
	}

	chunk->next = __atomic_load_n(&gate.chunks, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&gate.chunks, &chunk->next, chunk, false,
					    __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		continue;
}

/* gettid() is younger than the oldest C library that the library runs with. */
static pid_t gate_tid(void)
{
	return (pid_t)syscall(SYS_gettid);
}

struct gate_slot *gate_claim_slot(void)
{
	int saved_errno = errno;
	struct gate_slot *slot;

	(void)pthread_once(&slot_key.once, gate_make_key);
	while (!(slot = gate_find_slot()))
		gate_add_chunk();

	__atomic_store_n(&slot->tid, gate_tid(), __ATOMIC_RELAXED);
	gate_self.slot = slot;
	if (slot_key.key != GATE_NO_KEY)
		(void)pthread_setspecific(slot_key.key, slot);

	errno = saved_errno;
	return slot;
}

const void *gate_thread_stream(void)
{
	return &gate_self;
}

/* ---- entering and leaving ------------------------------------------------- */

bool gate_is_barred(enum gate_state state, enum gate_inside how)
{
	return state == GATE_CLOSED || (state == GATE_NO_CAPTURES && how == GATE_BEGINNING_CAPTURE);
}

static void gate_call_waker(void)
{
	void (*wake)(void) = __atomic_load_n(&gate.waker, __ATOMIC_ACQUIRE);

	if (wake)
		wake();
}

__attribute__((noinline)) void gate_wait(struct gate_slot *slot, enum gate_inside how)
{
	int saved_errno = errno;
	uint32_t word;

	do {
		__atomic_store_n(&slot->inside, GATE_OUTSIDE, __ATOMIC_RELEASE);
		__atomic_add_fetch(&gate.n_waiting, 1, __ATOMIC_SEQ_CST);
		for (;;) {
			word = __atomic_load_n(&gate.word, __ATOMIC_SEQ_CST);
			if (!gate_is_barred(GATE_STATE(word), how))
				break;
			if (__atomic_exchange_n(&gate.woken_word, word, __ATOMIC_ACQ_REL) != word)
				gate_call_waker();
			(void)gate_futex(FUTEX_WAIT, word);
		}
		__atomic_sub_fetch(&gate.n_waiting, 1, __ATOMIC_SEQ_CST);
		__atomic_store_n(&slot->inside, how, __ATOMIC_SEQ_CST);
		word = __atomic_load_n(&gate.word, __ATOMIC_SEQ_CST);
	} while (gate_is_barred(GATE_STATE(word), how));

	errno = saved_errno;
}

/* The thread has entered an armed gate. false: the word has changed; look at it again. */
static bool gate_trip(uint32_t word, bool is_copy)
{
	uint32_t open = ((word >> GATE_STATE_BITS) + 1) << GATE_STATE_BITS | GATE_OPEN;
	uint64_t none = 0, now_ns = clock_now_ns();
	int saved_errno = errno;

	if (is_copy) {
		if (__atomic_compare_exchange_n(&gate.copied_ns, &none, now_ns, false,
						__ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			gate_call_waker();
		errno = saved_errno;
		return true;
	}
	if (!__atomic_compare_exchange_n(&gate.word, &word, open, false, __ATOMIC_SEQ_CST,
					 __ATOMIC_SEQ_CST))
		return false;
	__atomic_store_n(&gate.tripped_ns, now_ns, __ATOMIC_RELEASE);
	gate_call_waker();
	errno = saved_errno;
	return true;
}

static __attribute__((noinline)) void gate_enter_slowly(struct gate_slot *slot, bool is_copy)
{
	uint32_t word;

	for (;;) {
		word = __atomic_load_n(&gate.word, __ATOMIC_SEQ_CST);
		if (GATE_BITS(word) == GATE_CLOSED)
			gate_wait(slot, GATE_INSIDE);
		else if (GATE_BITS(word) != GATE_ARMED || gate_trip(word, is_copy))
			return;
	}
}

static inline __attribute__((always_inline)) void gate_enter_as(bool is_copy)
{
	struct gate_slot *slot = gate_self.slot;

	if (gate_self.depth++ > 0)
		return;
	if (__builtin_expect(!slot, 0))
		slot = gate_claim_slot();

	__atomic_store_n(&slot->n_entered, slot->n_entered + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&slot->inside, GATE_INSIDE, __ATOMIC_SEQ_CST);
	if (__builtin_expect(__atomic_load_n(&gate.word, __ATOMIC_SEQ_CST) & GATE_SLOW_BIT, 0))
		gate_enter_slowly(slot, is_copy);
}

void gate_enter(void)
{
	gate_enter_as(false);
}

void gate_enter_copy(void)
{
	gate_enter_as(true);
}

void gate_leave(void)
{
	if (--gate_self.depth == 0)
		__atomic_store_n(&gate_self.slot->inside, GATE_OUTSIDE, __ATOMIC_RELEASE);
}

void gate_mark(void)
{
	struct gate_slot *slot = gate_self.slot;

	if (!slot)
		slot = gate_claim_slot();
	__atomic_store_n(&slot->n_marked, slot->n_marked + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&slot->n_marks, slot->n_marks + 1, __ATOMIC_SEQ_CST);
}

void gate_unmark(void)
{
	struct gate_slot *slot = gate_self.slot;

	__atomic_store_n(&slot->n_marks, slot->n_marks - 1, __ATOMIC_RELEASE);
}

/* The thread says so before it enters: each thread that sees it inside sees this, too. */
void gate_begin_walk(void)
{
	struct gate_slot *slot = gate_self.slot;

	if (!slot)
		slot = gate_claim_slot();
	__atomic_store_n(&slot->n_walks, slot->n_walks + 1, __ATOMIC_RELAXED);
}

void gate_end_walk(void)
{
	struct gate_slot *slot = gate_self.slot;

	__atomic_store_n(&slot->n_walks, slot->n_walks - 1, __ATOMIC_RELAXED);
}

/* ---- the agent's side ----------------------------------------------------- */

void gate_set(enum gate_state state)
{
	uint32_t word = __atomic_load_n(&gate.word, __ATOMIC_RELAXED);
	int saved_errno = errno;

	word = ((word >> GATE_STATE_BITS) + 1) << GATE_STATE_BITS | (uint32_t)state;
	if (state != GATE_CLOSED)
		__atomic_fetch_add(&gate.n_openings, 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&gate.word, word, __ATOMIC_SEQ_CST);
	(void)gate_futex(FUTEX_WAKE, INT_MAX);
	errno = saved_errno;
}

enum gate_state gate_get(void)
{
	return GATE_STATE(__atomic_load_n(&gate.word, __ATOMIC_SEQ_CST));
}

uint64_t gate_openings(void)
{
	return __atomic_load_n(&gate.n_openings, __ATOMIC_SEQ_CST);
}

void gate_count_thaw(void)
{
	(void)__atomic_fetch_add(&gate.n_openings, 1, __ATOMIC_SEQ_CST);
}

bool gate_quiet(void)
{
	gate_for_each_slot (slot) {
		if (slot != gate_self.slot &&
		    __atomic_load_n(&slot->inside, __ATOMIC_SEQ_CST) != GATE_OUTSIDE)
			return false;
	}

	return true;
}

uint64_t gate_visits(void)
{
	uint64_t sum = 0;

	gate_for_each_slot (slot) {
		if (slot != gate_self.slot &&
		    __atomic_load_n(&slot->inside, __ATOMIC_SEQ_CST) != GATE_OUTSIDE)
			sum += (uint64_t)(uint32_t)__atomic_load_n(&slot->tid, __ATOMIC_RELAXED)
				       << 32 |
			       (uint32_t)__atomic_load_n(&slot->n_entered, __ATOMIC_RELAXED);
	}

	return sum;
}

size_t gate_guests(struct gate_guest *ret, size_t n_max)
{
	size_t n = 0;

	gate_for_each_slot (slot) {
		if (slot == gate_self.slot ||
		    (__atomic_load_n(&slot->inside, __ATOMIC_SEQ_CST) == GATE_OUTSIDE &&
		     __atomic_load_n(&slot->n_marks, __ATOMIC_SEQ_CST) == 0))
			continue;
		if (n < n_max)
			ret[n] = (struct gate_guest){
				.tid = __atomic_load_n(&slot->tid, __ATOMIC_RELAXED),
				.n_visits = __atomic_load_n(&slot->n_entered, __ATOMIC_RELAXED) +
					    __atomic_load_n(&slot->n_marked, __ATOMIC_RELAXED),
				.is_walking = __atomic_load_n(&slot->n_walks, __ATOMIC_RELAXED) > 0,
			};
		n++;
	}
	return n;
}

uint64_t gate_activity(void)
{
	uint64_t n = 0;

	gate_for_each_slot (slot)
		n += __atomic_load_n(&slot->n_entered, __ATOMIC_RELAXED);

	return n;
}

bool gate_arm(uint64_t activity)
{
	uint32_t word = __atomic_load_n(&gate.word, __ATOMIC_RELAXED);

	if (GATE_STATE(word) != GATE_OPEN)
		return false;
	__atomic_store_n(&gate.tripped_ns, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&gate.copied_ns, 0, __ATOMIC_RELAXED);
	word = ((word >> GATE_STATE_BITS) + 1) << GATE_STATE_BITS;
	__atomic_store_n(&gate.word, word | GATE_ARMED, __ATOMIC_SEQ_CST);
	/* A thread that found the gate open counted itself before. Its count shows from here on. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (gate_activity() == activity)
		return true;
	gate_set(GATE_OPEN);
	return false;
}

bool gate_is_armed(void)
{
	return GATE_BITS(__atomic_load_n(&gate.word, __ATOMIC_SEQ_CST)) == GATE_ARMED;
}

uint64_t gate_tripped_ns(void)
{
	return __atomic_load_n(&gate.tripped_ns, __ATOMIC_ACQUIRE);
}

uint64_t gate_copied_ns(void)
{
	return __atomic_load_n(&gate.copied_ns, __ATOMIC_ACQUIRE);
}

void gate_set_waker(void (*wake)(void))
{
	__atomic_store_n(&gate.waker, wake, __ATOMIC_RELEASE);
}

bool gate_wanted(void)
{
	return __atomic_load_n(&gate.n_waiting, __ATOMIC_SEQ_CST) > 0;
}

/* The depth says inside, so the thread passes. Its slot says outside, so nobody waits for it. */
void gate_pass_always(void)
{
	if (!gate_self.slot)
		(void)gate_claim_slot();
	gate_self.depth++;
}

void gate_after_fork_child(void)
{
	/* The parent's other threads are not here, so their slots and captures are void. */
	gate_captures_after_fork_child();
	gate.n_waiting = 0;
	gate_for_each_slot (slot) {
		if (slot == gate_self.slot)
			continue;
		slot->inside = GATE_OUTSIDE;
		slot->n_marks = 0;
		slot->n_walks = 0;
		slot->is_owned = 0;
	}
	if (gate_self.slot)
		gate_self.slot->tid = gate_tid();
	gate_set(GATE_OPEN);
}
