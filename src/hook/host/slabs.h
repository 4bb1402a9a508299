/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_SLABS_H
#define NVS_HOOK_SLABS_H

/*
 * Slabs of host memory that the programs of a node use in turn (host/README.md). This keeps the
 * books of those that are on loan here, borrows and makes them, and gives them back.
 *
 * A slab is lent (it may be mapped), then mapped, then returned. Without a scheduler a client keeps
 * what it has on loan, and borrows nothing.
 *
 * Threading: the agent's thread, but for slabs_bytes() and slabs_after_fork_child(). Errors: none
 * but "no": a failure leaves fewer slabs than hoped.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stdint.h>

/* How long slabs_ask() waits for an answer; a test that expects one waits for as long as it takes.
 */
extern uint64_t slabs_answer_ns;

/* The scheduler lends slabs of slab_bytes over fd, which this takes. node: our GPU's NUMA node. */
void slabs_open(int fd, uint64_t slab_bytes, uint32_t node);
bool slabs_is_open(void);
int slabs_fd(void);          /* for poll(), then slabs_receive(); -1: none */
void slabs_receive(void);    /* takes what has come, and sends what waits */
uint32_t slabs_wanted(void); /* others lack so many */

/* Asks for slabs until bytes may be mapped. Waits for the answer, for a short time at most. */
void slabs_ask(uint64_t bytes);
uint64_t slabs_promised(void); /* bytes that slabs_map_one() may still map */
/* The last answer was yes to all, so that slabs_ask() may give more than is promised now. */
bool slabs_may_come(void);

/* Maps a promised slab, in milliseconds; makes it, if it must. Needs a current context. */
bool slabs_map_one(uint64_t *ret_addr);
uint64_t slabs_size(void); /* of each */

/* Unmaps the slab at addr, which nothing uses, and returns it. */
void slabs_return(uint64_t addr);
/* Gives back promised slabs, bytes of them at least or all. Returns how many bytes. */
uint64_t slabs_give_promised(uint64_t bytes);

/* The addresses of mapped slabs: of the first one above addr (0: of all); 0: none. */
uint64_t slabs_next(uint64_t addr);

bool slabs_contain(const void *addr); /* a part of a slab */
/* Lets the current context's device copy the slab of addr. */
CUresult slabs_reach(const void *addr);

/* Tells the scheduler how much of what is on loan could be given back. */
void slabs_tell_unused(uint64_t bytes);

uint64_t slabs_bytes(void); /* on loan here, mapped or not */

/* Makes each driver call of a slab once, if there are slabs. Needs a current context. */
void slabs_probe(void);

void slabs_after_fork_child(void);

#endif
