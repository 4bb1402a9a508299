/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_GATE_PRIVATE_H
#define NVS_HOOK_GATE_PRIVATE_H

/* gate.c knows the threads inside, gate_captures.c the open captures. Both parts use this. */

#include "hook/gate/gate.h"

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

enum gate_inside { GATE_OUTSIDE, GATE_INSIDE, GATE_BEGINNING_CAPTURE };

/*
 * A thread's place. It fills a cache line, because a thread's stores must not slow its neighbours
 * down. Its owner writes, all threads read; atomic.
 */
struct gate_slot {
	uint32_t inside; /* enum gate_inside */
	uint32_t is_owned;
	pid_t tid;          /* of the owner */
	uint32_t n_marks;   /* gate_mark() without its gate_unmark() yet */
	uint64_t n_entered; /* since the start of the process, by all owners */
	uint64_t n_marked;  /* the same */
	uint32_t n_walks;   /* gate_begin_walk() without its gate_end_walk() yet */
} __attribute__((aligned(64)));

#define GATE_CHUNK_SLOTS 63 /* with the link, a page */

struct gate_chunk {
	struct gate_chunk *next;
	struct gate_slot slots[GATE_CHUNK_SLOTS];
};

/* The low bits of gate.word are the state. The others count changes, so no waiter misses one. */
#define GATE_STATE_BITS 2
#define GATE_BITS(word) ((word) & ((1u << GATE_STATE_BITS) - 1))
#define GATE_STATE(word) \
	(GATE_BITS(word) == GATE_ARMED ? GATE_OPEN : (enum gate_state)GATE_BITS(word))

/* A state beside enum gate_state: the next thread that enters makes it GATE_OPEN. */
#define GATE_ARMED    3u
#define GATE_SLOW_BIT 2u /* set in GATE_CLOSED and GATE_ARMED */

struct gate_self {
	struct gate_slot *slot;
	uint32_t depth;
};

/* All atomic. No lock, so that entering an open gate costs two accesses. */
struct gate {
	uint32_t word;             /* a futex; the gate's state */
	uint32_t woken_word;       /* the word for which the waker was called */
	uint32_t n_waiting;        /* threads that stand at the gate */
	uint64_t tripped_ns;       /* gate_tripped_ns() */
	uint64_t copied_ns;        /* gate_copied_ns() */
	uint64_t n_openings;       /* gate_openings() */
	void (*waker)(void);       /* NULL: there is no agent yet */
	struct gate_chunk *chunks; /* newest first; a chunk stays for good */
};

extern struct gate gate;
extern __thread struct gate_self gate_self __attribute__((tls_model("initial-exec")));

#define gate_for_each_slot(slot)                                                                  \
	for (struct gate_chunk *chunk_ = __atomic_load_n(&gate.chunks, __ATOMIC_ACQUIRE); chunk_; \
	     chunk_ = chunk_->next)                                                               \
		for (struct gate_slot *slot = chunk_->slots;                                      \
		     slot < &chunk_->slots[GATE_CHUNK_SLOTS]; slot++)

static inline long gate_futex_at(uint32_t *word, int op, uint32_t value)
{
	return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

/* Gives the calling thread a slot. Keeps errno. */
struct gate_slot *gate_claim_slot(void);

/* The state keeps a thread out that enters so. */
bool gate_is_barred(enum gate_state state, enum gate_inside how);

/* Waits, outside, until the gate lets the thread in. The thread has said in its slot how it enters.
 */
void gate_wait(struct gate_slot *slot, enum gate_inside how);

/* The slot's thread ends. */
void gate_disown_captures(const struct gate_slot *slot);
void gate_captures_after_fork_child(void);

#endif
