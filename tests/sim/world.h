/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIM_WORLD_H
#define NVS_TESTS_SIM_WORLD_H

/*
 * The scheduler's core and the leases of its clients in one closed loop, with the
 * messages between them and the memory of the cards: what the daemon and the library
 * do, without sockets, threads or a GPU. Nothing here decides when things happen: that
 * is the driver's (sim_sched.c: a seed; exhaustive.c: every order).
 *
 * Its size is that of its program, so that exhaustive.c copies no more than it needs. No pointers
 * inside but those to itself, so that a world can be copied (world_copy) and hashed.
 */

#include "core/client/lease.h"
#include "core/sched.h"

#if defined(WORLD_GANGS) /* of exhaustive.c with gangs */
enum { WORLD_PROCS = 5, WORLD_GPUS = 2, WORLD_QUEUE = 12 };
#elif defined(WORLD_WIDE)  /* of sim_sched.c on a node of eight cards */
enum { WORLD_PROCS = 96, WORLD_GPUS = 8, WORLD_QUEUE = 48 };
#elif defined(WORLD_SMALL) /* of exhaustive.c */
enum { WORLD_PROCS = 3, WORLD_GPUS = 1, WORLD_QUEUE = 12 };
#else
enum { WORLD_PROCS = 160, WORLD_GPUS = 3, WORLD_QUEUE = 48 };
#endif

#define WORLD_OWNERS 8

enum world_work { WORLD_WORK_NONE, WORLD_WORK_DRAIN, WORLD_WORK_EVICT, WORLD_WORK_RESTORE };

/* type: a client's message is enum sched_event_type, the scheduler's enum sched_action_type. */
struct world_msg {
	uint32_t type;
	uint32_t outcome;
	uint64_t grant, epoch, budget, bytes, due_ms, moved;
	struct sched_memory memory;
	bool wants, is_running, is_part, is_done;
	enum sched_stops stops;
};

struct world_queue {
	uint32_t n;
	struct world_msg at[WORLD_QUEUE];
};

struct world_proc {
	bool is_alive;
	bool is_joined;  /* the scheduler has it */
	bool is_linked;  /* it believes to be connected: REGISTERED came, LOST did not */
	bool is_watched; /* PREPARE said that somebody waits */
	bool is_at_gate; /* a thread wants to submit work */
	bool has_begun;  /* it has used the GPU */
	bool is_open;    /* the gate, as the actions have left it */
	enum world_work work;
	uint32_t gpu;
	uint32_t owner; /* below WORLD_OWNERS */
	uint32_t gang;  /* SCHED_NONE: of none */
	uint32_t gang_size;
	bool drains; /* it says that its kernels must end before it stops */
	struct lease lease;
	struct sched_claim claim;
	uint64_t budget;
	uint64_t resident, swapped, pinned; /* the truth */
	uint64_t second;                    /* the library's own context, made for an eviction */
	uint64_t owned;                     /* pageable bytes that the program has allocated */
	uint64_t lack;                      /* size of the allocation that is blocked */
	bool is_lack_pinned;
	bool is_cut;         /* stopped before it had a turn, and lacks what it lacked then */
	uint64_t charge;     /* what the DROP under way counts as its own */
	uint64_t work_bytes; /* of an eviction, still to go */
	uint64_t moved;      /* since the last report */
	struct world_queue up, down;
};

/* Who waits, as world_users.h looks at it after each step. */
struct world_users {
	int able[WORLD_GPUS][WORLD_OWNERS]; /* class of those that could come; -1: nobody */
	int all[WORLD_GPUS][WORLD_OWNERS];  /* class of all that wait; -1: nobody */
	enum sched_line line[WORLD_PROCS];
	enum sched_client_state state[WORLD_PROCS];
};

struct world {
	struct sched sched;
	struct sched_client clients[WORLD_PROCS];
	struct sched_config config;
	struct sched_gpu_config own[WORLD_GPUS]; /* of each card, if has_own */
	bool has_own;
	struct world_proc procs[WORLD_PROCS];
	uint64_t total[WORLD_GPUS];
	uint64_t external[WORLD_GPUS]; /* as the scheduler was told last */
	uint64_t now;
	bool is_strict;   /* nobody runs unmanaged: what is within a budget is on the card */
	bool has_users;   /* programs are of several owners */
	bool has_gangs;   /* some programs are in gangs */
	bool may_overlap; /* the mode has changed, or a hung one has come back */
	uint64_t hash;    /* of all that the scheduler asked for */
	uint64_t n_grants, n_drops, n_hung, n_refused, n_steps;
	uint64_t n_progress, n_parts; /* reports from within an eviction; restores in part */
	uint64_t n_ahead;             /* restores that began before others were to stop */
	uint64_t n_early;             /* grants before a usual turn, to those that had slept */
	uint64_t n_told;              /* restores that told so before they had ended */
	struct world_users users;
	/* While the first owner waits the second one had so many turns (world_users.h). */
	uint32_t n_passed[WORLD_GPUS][WORLD_OWNERS][WORLD_OWNERS];
	/* The driver's: something is in the queue, or work has begun. May be NULL. */
	void (*on_up)(struct world *world, uint32_t p);
	void (*on_down)(struct world *world, uint32_t p);
	void (*on_work)(struct world *world, uint32_t p);
};

void world_copy(struct world *to, const struct world *from);

/* Bytes of it on the card. */
uint64_t world_used(const struct world_proc *proc);

/* Of all processes, known to the scheduler or not. */
uint64_t world_on_card(const struct world *world, uint32_t gpu);

/* ---- what must always be true ------------------------------------------------ */

void world_check(const struct world *world);

/* p waits, and others' pinned bytes are why. */
bool world_is_locked_out(const struct world *world, uint32_t p);

/* ---- the scheduler's side ------------------------------------------------------ */

void world_push(struct world_queue *queue, const struct world_msg *msg);

/* The queue is not empty. */
struct world_msg world_pop(struct world_queue *queue);

/* One event of the scheduler at world->now: its outcome; the actions go into the queues. */
int world_step(struct world *world, struct sched_event *event);

/* Tells the scheduler, if others' memory on the GPU has changed. */
void world_refresh_external(struct world *world, uint32_t gpu);

/* The scheduler sees the end of p's connection; its process may live on. */
void world_gone(struct world *world, uint32_t p);

void world_init(struct world *world, const struct sched_config *config, const uint64_t *total);

/* The scheduler hears of the configuration, and of the cards' own. */
void world_configure(struct world *world);

/* A new scheduler; all connections have ended. */
void world_restart(struct world *world);

#endif
