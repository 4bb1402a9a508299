/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_GATE_PRIVATE_H
#define NVS_HOOK_GATE_PRIVATE_H

/* What gate.c (who is inside) and gate_captures.c (captures that are open) share. */

#include "hook/gate/gate.h"

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

enum gate_inside { GATE_OUTSIDE, GATE_INSIDE, GATE_BEGINNING_CAPTURE };

/* A cache line each: a thread's stores must not slow its neighbours down. */
struct gate_slot {
	uint32_t inside; /* enum gate_inside; written by the owner */
	uint32_t is_owned;
	pid_t tid; /* of the owner */
	uint32_t n_marks;
	uint64_t n_entered; /* goes on growing with the next owner */
	uint64_t n_marked;  /* the same */
	uint32_t n_walks;
} __attribute__((aligned(64)));

#define GATE_CHUNK_SLOTS 63 /* with the link, a page */

struct gate_chunk {
	struct gate_chunk *next;
	struct gate_slot slots[GATE_CHUNK_SLOTS];
};

/* Only the low bits are the state; the rest counts changes, so that no waiter misses one. */
#define GATE_STATE_BITS 2
#define GATE_BITS(word) ((word) & ((1u << GATE_STATE_BITS) - 1))
#define GATE_STATE(word) \
	(GATE_BITS(word) == GATE_ARMED ? GATE_OPEN : (enum gate_state)GATE_BITS(word))

/* Beside enum gate_state: open, for all but the next thread that enters. */
#define GATE_ARMED    3u
#define GATE_SLOW_BIT 2u /* closed, or armed */

struct gate_self {
	struct gate_slot *slot;
	uint32_t depth;
};

extern uint32_t gate_word;
extern struct gate_chunk *gate_chunks;
extern __thread struct gate_self gate_self __attribute__((tls_model("initial-exec")));

#define gate_for_each_slot(slot)                                                                  \
	for (struct gate_chunk *chunk_ = __atomic_load_n(&gate_chunks, __ATOMIC_ACQUIRE); chunk_; \
	     chunk_ = chunk_->next)                                                               \
		for (struct gate_slot *slot = chunk_->slots;                                      \
		     slot < &chunk_->slots[GATE_CHUNK_SLOTS]; slot++)

static inline long gate_futex_at(uint32_t *word, int op, uint32_t value)
{
	return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

struct gate_slot *gate_claim_slot(void); /* the calling thread's; keeps errno */
bool gate_is_barred(enum gate_state state, enum gate_inside how);
/* The thread has said that it is inside, and found itself barred. */
void gate_wait(struct gate_slot *slot, enum gate_inside how);

void gate_disown_captures(const struct gate_slot *slot); /* its thread ends */
void gate_captures_after_fork_child(void);

#endif
