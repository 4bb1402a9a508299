/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Each thread says in a slot of its own that it is inside, then looks at the gate; the
 * closer shuts the gate, then looks at the slots. Both sides' first step is sequentially
 * consistent, so at least one sees the other: a thread that misses the closing is seen
 * by gate_quiet() (tests/hook/gate_model.c goes through every interleaving). A relaxed
 * store would stay in the processor's store buffer while the load passes it.
 *
 * Slots are never freed, so that a scan needs no lock; a thread that ends gives its slot
 * to the next one.
 */

#include "hook/gate/gate.h"

#include "util/clock.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

enum gate_inside { GATE_OUTSIDE, GATE_INSIDE, GATE_BEGINNING_CAPTURE };

/* A cache line each: a thread's stores must not slow its neighbours down. */
struct gate_slot {
	uint32_t inside; /* enum gate_inside; written by the owner */
	uint32_t is_owned;
	pid_t tid;          /* of the owner */
	uint64_t n_entered; /* goes on growing with the next owner */
} __attribute__((aligned(64)));

#define GATE_CHUNK_SLOTS 63 /* with the link, a page */

struct gate_chunk {
	struct gate_chunk *next;
	struct gate_slot slots[GATE_CHUNK_SLOTS];
};

struct gate_capture {
	uint64_t id;
	const void *stream;
	const void *ctx;
	const struct gate_slot *owner; /* the thread that began it */
	struct gate_capture *next;     /* gate_captures */
};

/* Only the low bits are the state; the rest counts changes, so that no waiter misses one. */
#define GATE_STATE_BITS 2
#define GATE_BITS(word) ((word) & ((1u << GATE_STATE_BITS) - 1))
#define GATE_STATE(word) \
	(GATE_BITS(word) == GATE_ARMED ? GATE_OPEN : (enum gate_state)GATE_BITS(word))

/* Beside enum gate_state: open, for all but the next thread that enters. */
#define GATE_ARMED    3u
#define GATE_SLOW_BIT 2u /* closed, or armed */

static uint32_t gate_word;
static uint64_t gate_trip_ns;
static uint64_t gate_copy_ns;
static uint32_t gate_woken_word = UINT32_MAX; /* the waker was called for this word */
static uint32_t gate_n_waiting;
static void (*gate_waker)(void);

static struct gate_chunk gate_first_chunk;
static struct gate_chunk *gate_chunks = &gate_first_chunk;

static pthread_mutex_t gate_captures_lock = PTHREAD_MUTEX_INITIALIZER;
static struct gate_capture *gate_captures;
static uint32_t gate_n_captures;
static uint32_t gate_n_bars; /* threads that keep captures from beginning; a futex */
static uint64_t gate_last_capture;

static pthread_once_t gate_once = PTHREAD_ONCE_INIT;
static pthread_key_t gate_key;

static __thread struct {
	struct gate_slot *slot;
	uint32_t depth;
} gate_self __attribute__((tls_model("initial-exec")));

#define gate_for_each_slot(slot)                                                                  \
	for (struct gate_chunk *chunk_ = __atomic_load_n(&gate_chunks, __ATOMIC_ACQUIRE); chunk_; \
	     chunk_ = chunk_->next)                                                               \
		for (struct gate_slot *slot = chunk_->slots;                                      \
		     slot < &chunk_->slots[GATE_CHUNK_SLOTS]; slot++)

static long gate_futex_at(uint32_t *word, int op, uint32_t value)
{
	return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static long gate_futex(int op, uint32_t value)
{
	return gate_futex_at(&gate_word, op, value);
}

/* ---- slots ---------------------------------------------------------------- */

static void gate_on_thread_end(void *arg)
{
	struct gate_slot *slot = arg;

	gate_end_capture(gate_find_capture(gate_thread_stream()));
	gate_self.slot = NULL;
	gate_self.depth = 0;
	__atomic_store_n(&slot->inside, GATE_OUTSIDE, __ATOMIC_RELEASE);
	__atomic_store_n(&slot->is_owned, 0, __ATOMIC_RELEASE);
}

static void gate_make_key(void)
{
	/* Without a key slots are not given back: they cost memory, nothing else. */
	if (pthread_key_create(&gate_key, gate_on_thread_end) != 0)
		gate_key = (pthread_key_t)-1;
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
		/* Not to enter unseen: wait for memory, like a page fault would. */
		(void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		return;
	}

	chunk->next = __atomic_load_n(&gate_chunks, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&gate_chunks, &chunk->next, chunk, false,
					    __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		continue;
}

static struct gate_slot *gate_claim_slot(void)
{
	int saved_errno = errno;
	struct gate_slot *slot;

	(void)pthread_once(&gate_once, gate_make_key);
	while (!(slot = gate_find_slot()))
		gate_add_chunk();

	__atomic_store_n(&slot->tid, gettid(), __ATOMIC_RELAXED);
	gate_self.slot = slot;
	if (gate_key != (pthread_key_t)-1)
		(void)pthread_setspecific(gate_key, slot);

	errno = saved_errno;
	return slot;
}

const void *gate_thread_stream(void)
{
	return &gate_self;
}

/* ---- entering and leaving ------------------------------------------------- */

static bool gate_is_barred(enum gate_state state, enum gate_inside how)
{
	return state == GATE_CLOSED || (state == GATE_NO_CAPTURES && how == GATE_BEGINNING_CAPTURE);
}

static void gate_call_waker(void)
{
	void (*wake)(void) = __atomic_load_n(&gate_waker, __ATOMIC_ACQUIRE);

	if (wake)
		wake();
}

/* The thread has said that it is inside, and found itself barred. */
static __attribute__((noinline)) void gate_wait(struct gate_slot *slot, enum gate_inside how)
{
	int saved_errno = errno;
	uint32_t word;

	do {
		__atomic_store_n(&slot->inside, GATE_OUTSIDE, __ATOMIC_RELEASE);
		__atomic_add_fetch(&gate_n_waiting, 1, __ATOMIC_SEQ_CST);
		for (;;) {
			word = __atomic_load_n(&gate_word, __ATOMIC_SEQ_CST);
			if (!gate_is_barred(GATE_STATE(word), how))
				break;
			if (__atomic_exchange_n(&gate_woken_word, word, __ATOMIC_ACQ_REL) != word)
				gate_call_waker();
			(void)gate_futex(FUTEX_WAIT, word);
		}
		__atomic_sub_fetch(&gate_n_waiting, 1, __ATOMIC_SEQ_CST);
		__atomic_store_n(&slot->inside, how, __ATOMIC_SEQ_CST);
		word = __atomic_load_n(&gate_word, __ATOMIC_SEQ_CST);
	} while (gate_is_barred(GATE_STATE(word), how));

	errno = saved_errno;
}

/* Inside an armed gate, of this word. false: it has changed; to be looked at again. */
static bool gate_trip(uint32_t word, bool is_copy)
{
	uint32_t open = ((word >> GATE_STATE_BITS) + 1) << GATE_STATE_BITS | GATE_OPEN;
	uint64_t none = 0, now_ns = clock_now_ns();
	int saved_errno = errno;

	if (is_copy) {
		if (__atomic_compare_exchange_n(&gate_copy_ns, &none, now_ns, false,
						__ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			gate_call_waker();
		errno = saved_errno;
		return true;
	}
	if (!__atomic_compare_exchange_n(&gate_word, &word, open, false, __ATOMIC_SEQ_CST,
					 __ATOMIC_SEQ_CST))
		return false;
	__atomic_store_n(&gate_trip_ns, now_ns, __ATOMIC_RELEASE);
	gate_call_waker();
	errno = saved_errno;
	return true;
}

static __attribute__((noinline)) void gate_enter_slowly(struct gate_slot *slot, bool is_copy)
{
	uint32_t word;

	for (;;) {
		word = __atomic_load_n(&gate_word, __ATOMIC_SEQ_CST);
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
	if (__builtin_expect(__atomic_load_n(&gate_word, __ATOMIC_SEQ_CST) & GATE_SLOW_BIT, 0))
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

/* ---- captures ------------------------------------------------------------- */

static bool gate_has_capture_of(const struct gate_slot *slot)
{
	struct gate_capture *capture;
	bool has = false;

	(void)pthread_mutex_lock(&gate_captures_lock);
	LL_FOREACH (gate_captures, capture)
		has = has || capture->owner == slot;
	(void)pthread_mutex_unlock(&gate_captures_lock);

	return has;
}

/*
 * The one says that it begins and then looks for bars, the other bars and then looks for
 * beginnings: at least one of them sees the other. Who bars gives up, so nobody starves.
 */
static void gate_wait_for_bars(struct gate_slot *slot)
{
	int saved_errno = errno;
	uint32_t n;

	while (__atomic_load_n(&gate_n_bars, __ATOMIC_SEQ_CST) > 0) {
		__atomic_store_n(&slot->inside, gate_self.depth > 0 ? GATE_INSIDE : GATE_OUTSIDE,
				 __ATOMIC_RELEASE);
		while ((n = __atomic_load_n(&gate_n_bars, __ATOMIC_SEQ_CST)) > 0)
			(void)gate_futex_at(&gate_n_bars, FUTEX_WAIT, n);
		__atomic_store_n(&slot->inside, GATE_BEGINNING_CAPTURE, __ATOMIC_SEQ_CST);
	}
	errno = saved_errno;
}

bool gate_bar_captures(void)
{
	__atomic_add_fetch(&gate_n_bars, 1, __ATOMIC_SEQ_CST);
	if (!gate_capture_open())
		return true;
	gate_allow_captures();
	return false;
}

void gate_allow_captures(void)
{
	int saved_errno = errno;

	__atomic_sub_fetch(&gate_n_bars, 1, __ATOMIC_SEQ_CST);
	(void)gate_futex_at(&gate_n_bars, FUTEX_WAKE, INT_MAX);
	errno = saved_errno;
}

void gate_enter_capture(void)
{
	struct gate_slot *slot = gate_self.slot;
	enum gate_state state;

	if (!slot)
		slot = gate_claim_slot();

	__atomic_store_n(&slot->n_entered, slot->n_entered + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&slot->inside, GATE_BEGINNING_CAPTURE, __ATOMIC_SEQ_CST);
	gate_wait_for_bars(slot);
	if (gate_self.depth++ > 0)
		return;

	for (;;) {
		state = GATE_STATE(__atomic_load_n(&gate_word, __ATOMIC_SEQ_CST));
		if (!gate_is_barred(state, GATE_BEGINNING_CAPTURE))
			return;
		if (state == GATE_NO_CAPTURES && gate_has_capture_of(slot))
			return;
		gate_wait(slot, GATE_BEGINNING_CAPTURE);
		if (__atomic_load_n(&gate_n_bars, __ATOMIC_SEQ_CST) == 0)
			return;
		gate_self.depth--;
		gate_wait_for_bars(slot);
		gate_self.depth++;
	}
}

void gate_leave_capture(const void *stream, const void *ctx, bool began)
{
	struct gate_slot *slot = gate_self.slot;
	struct gate_capture *capture;
	int saved_errno = errno;

	/* Without memory it goes uncounted: a drain may then spoil this capture. */
	capture = began ? malloc(sizeof(*capture)) : NULL;
	if (capture) {
		*capture = (struct gate_capture){.stream = stream, .ctx = ctx, .owner = slot};
		(void)pthread_mutex_lock(&gate_captures_lock);
		capture->id = ++gate_last_capture;
		LL_PREPEND(gate_captures, capture);
		__atomic_add_fetch(&gate_n_captures, 1, __ATOMIC_SEQ_CST);
		(void)pthread_mutex_unlock(&gate_captures_lock);
	}

	/* After it is counted, so that gate_capture_open() sees the one or the other. */
	__atomic_store_n(&slot->inside, --gate_self.depth > 0 ? GATE_INSIDE : GATE_OUTSIDE,
			 __ATOMIC_RELEASE);
	errno = saved_errno;
}

uint64_t gate_find_capture(const void *stream)
{
	struct gate_capture *capture;
	uint64_t id = 0;

	/* Most programs capture nothing, and destroy many streams. */
	if (__atomic_load_n(&gate_n_captures, __ATOMIC_SEQ_CST) == 0)
		return 0;

	(void)pthread_mutex_lock(&gate_captures_lock);
	LL_SEARCH_SCALAR(gate_captures, capture, stream, stream);
	if (capture)
		id = capture->id;
	(void)pthread_mutex_unlock(&gate_captures_lock);

	return id;
}

static void gate_drop_captures(uint64_t id, const void *ctx)
{
	struct gate_capture *capture, *next, *gone = NULL;

	(void)pthread_mutex_lock(&gate_captures_lock);
	LL_FOREACH_SAFE (gate_captures, capture, next) {
		if (id ? capture->id != id : capture->ctx != ctx)
			continue;
		LL_DELETE(gate_captures, capture);
		LL_PREPEND(gone, capture);
		__atomic_sub_fetch(&gate_n_captures, 1, __ATOMIC_SEQ_CST);
	}
	(void)pthread_mutex_unlock(&gate_captures_lock);

	LL_FOREACH_SAFE (gone, capture, next)
		free(capture);
}

void gate_end_capture(uint64_t capture)
{
	if (capture)
		gate_drop_captures(capture, NULL);
}

void gate_context_gone(const void *ctx)
{
	if (ctx && __atomic_load_n(&gate_n_captures, __ATOMIC_SEQ_CST) > 0)
		gate_drop_captures(0, ctx);
}

bool gate_thread_captures(void)
{
	return gate_self.slot && gate_has_capture_of(gate_self.slot);
}

bool gate_capture_open(void)
{
	/* Slots first: a capture that begins is counted before its slot says it is done. */
	gate_for_each_slot (slot) {
		if (__atomic_load_n(&slot->inside, __ATOMIC_SEQ_CST) == GATE_BEGINNING_CAPTURE)
			return true;
	}

	return __atomic_load_n(&gate_n_captures, __ATOMIC_SEQ_CST) > 0;
}

/* ---- the agent's side ----------------------------------------------------- */

void gate_set(enum gate_state state)
{
	uint32_t word = __atomic_load_n(&gate_word, __ATOMIC_RELAXED);
	int saved_errno = errno;

	word = ((word >> GATE_STATE_BITS) + 1) << GATE_STATE_BITS | (uint32_t)state;
	__atomic_store_n(&gate_word, word, __ATOMIC_SEQ_CST);
	(void)gate_futex(FUTEX_WAKE, INT_MAX);
	errno = saved_errno;
}

enum gate_state gate_get(void)
{
	return GATE_STATE(__atomic_load_n(&gate_word, __ATOMIC_SEQ_CST));
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

size_t gate_guests(struct gate_guest *ret, size_t n_max)
{
	size_t n = 0;

	gate_for_each_slot (slot) {
		if (slot == gate_self.slot ||
		    __atomic_load_n(&slot->inside, __ATOMIC_SEQ_CST) == GATE_OUTSIDE)
			continue;
		if (n < n_max)
			ret[n] = (struct gate_guest){
				.tid = __atomic_load_n(&slot->tid, __ATOMIC_RELAXED),
				.n_entered = __atomic_load_n(&slot->n_entered, __ATOMIC_RELAXED),
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
	uint32_t word = __atomic_load_n(&gate_word, __ATOMIC_RELAXED);

	if (GATE_STATE(word) != GATE_OPEN)
		return false;
	__atomic_store_n(&gate_trip_ns, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&gate_copy_ns, 0, __ATOMIC_RELAXED);
	word = ((word >> GATE_STATE_BITS) + 1) << GATE_STATE_BITS;
	__atomic_store_n(&gate_word, word | GATE_ARMED, __ATOMIC_SEQ_CST);
	/* Who has counted itself before this, and found the gate open, shows from here on. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (gate_activity() == activity)
		return true;
	gate_set(GATE_OPEN);
	return false;
}

bool gate_is_armed(void)
{
	return GATE_BITS(__atomic_load_n(&gate_word, __ATOMIC_SEQ_CST)) == GATE_ARMED;
}

uint64_t gate_tripped_ns(void)
{
	return __atomic_load_n(&gate_trip_ns, __ATOMIC_ACQUIRE);
}

uint64_t gate_copied_ns(void)
{
	return __atomic_load_n(&gate_copy_ns, __ATOMIC_ACQUIRE);
}

void gate_set_waker(void (*wake)(void))
{
	__atomic_store_n(&gate_waker, wake, __ATOMIC_RELEASE);
}

bool gate_wanted(void)
{
	return __atomic_load_n(&gate_n_waiting, __ATOMIC_SEQ_CST) > 0;
}

/* As if it were inside, which it is not: nobody waits for it. */
void gate_pass_always(void)
{
	if (!gate_self.slot)
		(void)gate_claim_slot();
	gate_self.depth++;
}

void gate_after_fork_child(void)
{
	/* The parent's other threads are not here: what they held or said is void. */
	(void)pthread_mutex_init(&gate_captures_lock, NULL);
	gate_captures = NULL;
	gate_n_captures = 0;
	gate_n_bars = 0;
	gate_n_waiting = 0;
	gate_for_each_slot (slot) {
		if (slot == gate_self.slot)
			continue;
		slot->inside = GATE_OUTSIDE;
		slot->is_owned = 0;
	}
	if (gate_self.slot)
		gate_self.slot->tid = gettid();
	gate_set(GATE_OPEN);
}
