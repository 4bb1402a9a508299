/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIM_PROGRAM_H
#define NVS_TESTS_SIM_PROGRAM_H

/* What the simulated programs do: compute, allocate, free, idle, end, as a seed decides. */

#include "sim_queue.h"
#include "world_client.h"

#define MS    UINT64_C(1000000)
#define S     UINT64_C(1000000000)
#define MIB   (1ull << 20)
#define GIB   (1ull << 30)
#define NEVER UINT64_MAX

/* What kinds of faults a seed has. */
enum { FAULT_DEATHS = 1, FAULT_ANSWERS = 2, FAULT_LINKS = 4, FAULT_CONFIG = 8 };

enum sim_op { OP_START, OP_COMPUTE, OP_ALLOC, OP_IDLE, OP_END };

struct sim_program {
	enum sim_op op;
	bool is_computing;
	bool is_reporting;
	bool is_metered; /* its GPU time is told */
	uint32_t life;   /* of the slot; an event of an earlier life is void */
	uint32_t n_ops;
	uint32_t linked; /* grows with each connection */
	uint64_t left_ns, since_ns;
	uint64_t asked_ns; /* NEVER: does not wait */
	uint64_t up_ns, down_ns;
	uint64_t work_ns;    /* when the work under way ends */
	uint64_t short_ns;   /* until then its stops lack host memory */
	uint64_t drain_ns;   /* when its last drain began */
	uint32_t n_failed;   /* drains in a row that have */
	uint64_t stopped_ns; /* its process is stopped until then */
	bool has_kernel;     /* a kernel has begun, and has not ended: perhaps it is frozen */
};

struct sim {
	struct world world;
	struct sim_program programs[WORLD_PROCS];
	uint64_t seed;
	int faults;
	bool has_claims;   /* weights and classes differ */
	bool has_critical; /* and some stay once they run, so that others may wait longer */
	bool has_gangs;    /* some run together with others, whose kernels wait for each other */
	bool has_drainers; /* some of them must drain */
	bool has_stops;    /* processes are stopped, and go on */
	uint64_t stops;    /* draws of these: other runs stay what they were */
	bool is_calm;
	uint32_t n_slots;
	uint32_t n_owners;
	uint64_t grace_ns;
	uint64_t wait_max_ns, n_spawned, n_drains, n_stuck, n_stops;
	struct sim_queue queue;
};

/* The simulation that a world's callback belongs to. */
struct sim *sim_of(struct world *world);

/* From the seed; both ends are included. */
uint64_t sim_between(struct sim *sim, uint64_t min, uint64_t max);
bool sim_one_in(struct sim *sim, uint64_t n);

/* life: of p's slot, or of its connection. */
void sim_schedule(struct sim *sim, uint64_t time, enum sim_what what, uint32_t p, uint32_t life);
uint64_t sim_later(uint64_t a, uint64_t b);
struct sched_claim sim_any_claim(struct sim *sim);

/* ---- programs ----------------------------------------------------------------- */

void sim_end(struct sim *sim, uint32_t p);

/* The next program of p's gang, all around; p itself if there is no other. */
uint32_t sim_mate(const struct sim *sim, uint32_t p);

/* p drains, and has a kernel that waits for one of its gang that is frozen. */
bool sim_drain_is_stuck(const struct sim *sim, uint32_t p);

/* Follows what the gate and the budget allow, after anything that touched p. */
void sim_follow(struct sim *sim, uint32_t p);

void sim_on_op(struct sim *sim, uint32_t p);
void sim_spawn(struct sim *sim, uint32_t p);

#endif
