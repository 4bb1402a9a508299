/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIM_WORLD_CLIENT_H
#define NVS_TESTS_SIM_WORLD_CLIENT_H

/* world.h's second half: what the library does in each process, and the wire between. */

#include "world.h"

#define WORLD_SHORT 3 /* as an outcome of a stop: NVSHARE_OUTCOME_NO_HOST_MEMORY */

/* ---- a client's side ------------------------------------------------------------ */

/* One event of p's lease: its outcome; the actions are done. */
int world_lease(struct world *world, uint32_t p, struct lease_event event);

/* A thread waits, perhaps: the agent looks. */
void world_want(struct world *world, uint32_t p);

/* The program asks for memory; it must not be blocked already. */
void world_alloc(struct world *world, uint32_t p, uint64_t bytes, bool is_pinned);

/* Of what it owns. */
void world_free(struct world *world, uint32_t p, uint64_t bytes);

/* The daemon finds that p's process is stopped, or goes on. */
void world_process(struct world *world, uint32_t p, bool is_stopped);

/* Somebody pauses p, or resumes it. */
void world_pause(struct world *world, uint32_t p, bool is_paused);

/* p claims something else, or is given something else, from now on. */
void world_claim(struct world *world, uint32_t p, struct sched_claim claim);

/* p, which is joined, says of which gang it is. */
void world_tell_gang(struct world *world, uint32_t p);

void world_used_gpu(struct world *world, uint32_t p, uint64_t ns);
void world_report(struct world *world, uint32_t p);

/* Budget that is not used goes back. */
void world_return_slack(struct world *world, uint32_t p);

/* An eviction has come so much further, and says so: what is out counts as moved at its end. */
void world_progress(struct world *world, uint32_t p, uint64_t bytes);

/* A restore has used up its budget, and says so before its copies have ended. false: not so. */
bool world_part(struct world *world, uint32_t p);

/* The work under way ends. An eviction that fails has moved half. */
void world_work_done(struct world *world, uint32_t p, uint32_t outcome);

/* ---- messages arrive -------------------------------------------------------------- */

/* p's process registers; the connection is new, and nothing is on its way. */
void world_register(struct world *world, uint32_t p);

/* The oldest message of p arrives at the scheduler. */
int world_deliver_up(struct world *world, uint32_t p);

/* Whether p reads now: not while work is under way, but for what it has told it needs. */
bool world_may_deliver_down(const struct world *world, uint32_t p);

/* The oldest message for p arrives. */
void world_deliver_down(struct world *world, uint32_t p);

/* p hears that its connection is gone. */
void world_lost(struct world *world, uint32_t p);

void world_spawn(struct world *world, uint32_t p, uint32_t gpu);

/* The process ends; its memory is free at once, the scheduler sees it later (world_gone). */
void world_kill(struct world *world, uint32_t p);

#endif
