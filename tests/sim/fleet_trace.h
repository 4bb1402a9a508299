/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIM_FLEET_TRACE_H
#define NVS_TESTS_SIM_FLEET_TRACE_H

/*
 * The jobs of a fleet, drawn from published distributions. tests/sim/README.md names the source of
 * each figure in fleet_trace.c.
 *
 * A job is a list of steps. In a step the program first has no work for its GPU, then it has some.
 * A job's steps come from its own seed, so they are the same however the fleet shares its GPUs.
 *
 * The same seed gives the same jobs with the same C library.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLEET_S_NS   UINT64_C(1000000000)
#define FLEET_GIB    (UINT64_C(1) << 30)
#define FLEET_CARD   (UINT64_C(796) * FLEET_GIB / 10) /* bytes of an H100 */
#define FLEET_OWNERS 400

enum fleet_kind { FLEET_NOTEBOOK, FLEET_TRAINING, FLEET_INFERENCE, FLEET_KINDS };

struct fleet_job {
	uint64_t at_ns; /* submitted */
	uint64_t seed;  /* of its steps */
	enum fleet_kind kind;
	uint32_t owner;  /* below FLEET_OWNERS */
	uint64_t bytes;  /* that it allocates with its first work */
	double length_s; /* alone on a GPU, from start to end; a server has no end */
	double demand;   /* of its work: part of the time that a GPU computes, if it is alone */
	bool is_often;   /* a notebook whose user computes often; a server that always has work */
};

struct fleet_mix {
	uint64_t seed;
	uint32_t n_gpus;
	double length_s;          /* of the run */
	double load;              /* programs at once for each GPU, if none had to wait */
	double part[FLEET_KINDS]; /* of these programs; the sum is 1 */
};

struct fleet_trace {
	struct fleet_job *jobs; /* by at_ns */
	size_t n_jobs;
};

struct fleet_step {
	double pause_s;
	double work_s; /* alone on a GPU; 0: the job ends after the pause */
	double demand;
};

/* Where a job stands in its steps. */
struct fleet_steps {
	uint64_t rng;
	double left_s; /* of its length */
};

/* At time 0 the programs that a fleet would have in the middle of its life come all at once. Aborts
 * without memory. The caller ends it by fleet_trace_free(). */
void fleet_trace_draw(struct fleet_trace *trace, const struct fleet_mix *mix);
void fleet_trace_free(struct fleet_trace *trace);

void fleet_steps_begin(struct fleet_steps *steps, const struct fleet_job *job);
struct fleet_step fleet_steps_next(struct fleet_steps *steps, const struct fleet_job *job);

#endif
