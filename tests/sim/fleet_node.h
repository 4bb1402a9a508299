/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIM_FLEET_NODE_H
#define NVS_TESTS_SIM_FLEET_NODE_H

/*
 * A node of a simulated fleet: its GPUs, and the programs of the jobs that were placed there. Under
 * FLEET_NVSHARE the node has the daemon's own core (core/sched.h), and each program the library's
 * lease (core/client/lease.h). The modelled parts are computing (fleet_share.c) and copies.
 *
 * The slot of a program is gpu * replicas + i. Times are ns of the run, and work is in seconds of a
 * program that is alone on its GPU.
 */

#include "core/client/lease.h"
#include "core/place/place.h"
#include "core/sched.h"
#include "fleet_stats.h"
#include "fleet_trace.h"

#define FLEET_NODE_GPUS    8
#define FLEET_REPLICAS_MAX 8
#define FLEET_SLOTS        (FLEET_NODE_GPUS * FLEET_REPLICAS_MAX)
#define FLEET_NEVER        UINT64_MAX
#define FLEET_MESSAGES     16
#define FLEET_CONTEXT      (UINT64_C(529) << 20) /* pinned: tests/gpu/results/switch-h100.txt */

enum fleet_way {
	FLEET_WHOLE,   /* one job a GPU */
	FLEET_SLICES,  /* several jobs a GPU, the driver's timeslices; an allocation may fail */
	FLEET_FITTING, /* the same, but a job is placed only where its memory fits */
	FLEET_NVSHARE,
	FLEET_WAYS
};

enum fleet_end { FLEET_DONE, FLEET_OUT_OF_MEMORY };

/* Of the library: what moves or is waited for before the gate opens. */
enum fleet_move { FLEET_MOVE_NONE, FLEET_MOVE_DRAIN, FLEET_MOVE_EVICT, FLEET_MOVE_RESTORE };

struct fleet_program {
	bool is_used;
	uint32_t job, gpu;
	struct fleet_steps steps;
	struct fleet_step step;

	/* Computing. */
	bool is_working; /* the step's work has begun, and has not ended */
	bool is_open;    /* it may compute */
	double left_s, weight, speed, share;
	bool has_begun;             /* the step's work has had its first turn */
	uint64_t step_ns;           /* the step's work was asked for */
	uint64_t start_ns;          /* it was placed here */
	uint64_t pause_ns, done_ns; /* when the pause, or the work at this speed, ends */
	uint64_t bytes, lack;       /* on the card or in host memory; to be allocated */

	/* Of FLEET_NVSHARE only. */
	struct lease lease;
	enum fleet_move move;
	uint64_t move_ns; /* it ends */
	uint64_t move_began_ns, move_bytes;
	uint64_t move_part, move_rest; /* of an eviction: each part; behind this one */
	uint64_t idle_ns;              /* it gives up, if it still has no work */
	bool is_watched;
	uint64_t resident, swapped, pinned, pager, lack_pinned, budget, charge;
	uint64_t moved, moved_ns; /* since the last report */
	double told_s;            /* GPU time of this run that the scheduler does not know */
	uint32_t n_messages;
	struct sched_action messages[FLEET_MESSAGES]; /* that it has not read */
};

struct fleet_gpu {
	uint64_t counted_ns; /* its programs' work is counted up to here */
	double share;        /* of its time, in which programs compute */
	uint64_t busy_ns;    /* programs last computed */
	uint32_t n_programs;
	uint64_t placed_bytes;   /* of all jobs that were placed here */
	uint64_t critical_bytes; /* of critical jobs among them */
	bool is_changed;         /* speeds are to be computed anew */
};

struct fleet_ended {
	uint32_t job;
	enum fleet_end end;
};

struct fleet_node {
	enum fleet_way way;
	uint32_t replicas; /* of each GPU */
	const struct fleet_trace *trace;
	struct fleet_stats *stats;
	struct fleet_gpu gpus[FLEET_NODE_GPUS];
	struct fleet_program *programs; /* FLEET_NODE_GPUS * replicas */
	struct sched sched;
	struct sched_client *clients;
	struct place place;             /* of FLEET_NVSHARE */
	uint64_t host_bytes, host_most; /* of programs, in host memory: now, and the most ever */
	uint64_t due_ns[FLEET_SLOTS]; /* of each program; those that are touched may be due earlier
				       */
	uint64_t touched, unread;     /* bit for each slot: due_ns is old; it has messages */
	uint32_t n_ended;
	struct fleet_ended ended[FLEET_SLOTS]; /* since the caller last set n_ended to 0 */
};

/* config: of the scheduler of FLEET_NVSHARE. */
void fleet_node_init(struct fleet_node *node, enum fleet_way way, uint32_t replicas,
		     const struct sched_config *config, const struct fleet_trace *trace,
		     struct fleet_stats *stats);
void fleet_node_free(struct fleet_node *node);

/* The GPU for the job, or -1 if the node has none. */
int fleet_node_choose(struct fleet_node *node, const struct fleet_job *job, uint64_t now_ns);
void fleet_node_start(struct fleet_node *node, uint32_t gpu, uint32_t job, uint64_t now_ns);

/* When it is to be run next; FLEET_NEVER: only when a job starts. */
uint64_t fleet_node_next(const struct fleet_node *node);

/* All that is due, and nothing is due earlier. */
void fleet_node_run(struct fleet_node *node, uint64_t now_ns);

/* The work of all programs is counted up to now. */
void fleet_node_count(struct fleet_node *node, uint64_t now_ns);

/* Asserts what must always be true: memory, and what the core says of its own state. */
void fleet_node_check(const struct fleet_node *node);

/* ---- between the parts of a node -------------------------------------------------------- */

static inline uint32_t fleet_slot(const struct fleet_node *node,
				  const struct fleet_program *program)
{
	return (uint32_t)(program - node->programs);
}

static inline void fleet_touch(struct fleet_node *node, const struct fleet_program *program)
{
	node->touched |= UINT64_C(1) << fleet_slot(node, program);
}

static inline const struct fleet_job *fleet_job_of(const struct fleet_node *node,
						   const struct fleet_program *program)
{
	return &node->trace->jobs[program->job];
}

/* Under FLEET_NVSHARE servers are of class critical. */
static inline bool fleet_is_critical(const struct fleet_job *job)
{
	return job->kind == FLEET_INFERENCE;
}

/* fleet_place.c. */
void fleet_place_init(struct fleet_node *node);

/* fleet_share.c: to be called before a program of the GPU changes, and after. */
void fleet_share_count(struct fleet_node *node, uint32_t gpu, uint64_t now_ns);
void fleet_share_compute(struct fleet_node *node, uint32_t gpu, uint64_t now_ns);

/* fleet_turns.c: the program of FLEET_NVSHARE. */
void fleet_turns_init(struct fleet_node *node, const struct sched_config *config);
void fleet_turns_join(struct fleet_node *node, struct fleet_program *program, uint64_t now_ns);
void fleet_turns_leave(struct fleet_node *node, struct fleet_program *program, uint64_t now_ns);
void fleet_turns_want(struct fleet_node *node, struct fleet_program *program, uint64_t now_ns);
void fleet_turns_rest(struct fleet_node *node, struct fleet_program *program, uint64_t now_ns);
void fleet_turns_due(struct fleet_node *node, struct fleet_program *program, uint64_t now_ns);
void fleet_turns_time(struct fleet_node *node, uint64_t now_ns);
void fleet_turns_check(const struct fleet_node *node);

/* fleet_node.c: the step's work has its first turn, if it has not had one. */
void fleet_node_note_begin(struct fleet_node *node, struct fleet_program *program, uint64_t now_ns);

/* fleet_node.c: the program ends; its slot is free. */
void fleet_node_end(struct fleet_node *node, struct fleet_program *program, enum fleet_end end,
		    uint64_t now_ns);

#endif
