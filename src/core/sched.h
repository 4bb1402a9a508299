/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_SCHED_H
#define NVS_CORE_SCHED_H

/*
 * The scheduler: who runs on each GPU, who waits, whose memory is where.
 *
 * A pure state machine. The caller feeds one event at a time, with the time it
 * happened, and carries out the actions that come back, in order. Nothing here
 * reads a clock, allocates, logs or touches a file descriptor.
 *
 * Memory model. Every client has a budget: the bytes (resident + pinned) that it may have on its
 * card. A client never exceeds its budget but by what its reports show afterwards (a context costs
 * more than was thought). The core hands out budgets so that their sum, and what others use
 * (external), stays within the usable memory: total * (100 - reserve) / 100. A client could still
 * be asked to give up budget - pinned; its footprint is what it needs to run: resident + pinned +
 * swapped + wanted + wanted_pinned.
 *
 * Reports are believed, unless the caller doubts some of a client's bytes: those are not charged
 * to it. The client itself never hears of that, and its budget is what it was.
 *
 * Ownership: the caller owns struct sched and the array of clients that it names.
 * Threading: none; one caller at a time.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCHED_GPUS_MAX    16
#define SCHED_ACTIONS_MAX 64
#define SCHED_NO_DEADLINE UINT64_MAX
#define SCHED_NONE        UINT32_MAX
#define SCHED_GANG_MAX    256 /* members: a look at a gang is a look at each of them */

enum sched_mode { SCHED_MODE_AUTO, SCHED_MODE_SERIAL, SCHED_MODE_CONCURRENT };
enum sched_switch_mode { SCHED_SWITCH_AUTO, SCHED_SWITCH_FIXED };

/* The order of those that wait when not all fit (core/policy/policy.h). */
enum sched_policy {
	SCHED_POLICY_PRIORITY,
	SCHED_POLICY_FAIR,
	SCHED_POLICY_CREDIT,
	SCHED_POLICY_DEADLINE,
	SCHED_POLICY_COUNT_
};

enum sched_priority {
	SCHED_PRIORITY_LOW,
	SCHED_PRIORITY_NORMAL,
	SCHED_PRIORITY_HIGH,
	SCHED_PRIORITY_CRITICAL,
	SCHED_PRIORITY_COUNT_
};

#define SCHED_WEIGHT_DEFAULT 100
#define SCHED_WEIGHT_MAX     10000
#define SCHED_SLO_NS_MAX     3600000000000ull /* an hour */
#define SCHED_DEGREE_MAX     100000

/* The part of the GPU's time that a client claims, cut to what it may. */
struct sched_claim {
	enum sched_priority priority;
	uint32_t weight; /* to SCHED_WEIGHT_MAX; 0: the default */
	uint64_t slo_ns; /* of a request, to SCHED_SLO_NS_MAX; 0: none */
};

/* Tunables; every one may change at run time by SCHED_EVENT_CONFIG. */
struct sched_config {
	enum sched_mode mode;
	enum sched_switch_mode switch_mode;
	enum sched_policy policy;
	bool anti_thrash;           /* false: nobody is stopped for a turn (nvsharectl -S off) */
	bool fair_users;            /* turns go by owners first; default true */
	uint32_t sharing_degree;    /* mode auto: so many clients on a GPU at once, to
				     * SCHED_DEGREE_MAX; 0, the default: any number */
	uint32_t switch_multiplier; /* auto: swap time * this; default 5 */
	uint32_t reserve_percent;   /* of each card, 0..50; default 5 */
	uint32_t moving_percent;    /* of others' turns, for early switches to clients that have
				     * slept; 0..50; 0: there are none; default 20 */
	uint64_t tq_ns;             /* quantum of concurrent; default 30 s */
	uint64_t switch_fixed_ns;   /* default 30 s */
	uint64_t switch_min_ns;     /* auto: bounds; default 10 s */
	uint64_t switch_max_ns;     /* default 300 s */
	uint64_t max_runtime_ns;    /* longest run while others wait; default 300 s */
	uint64_t wait_bound_ns;     /* of any wait of an owner; default 240 s */
	uint64_t prepare_ns;        /* PREPARE_SWAP_OUT goes out so long before a stop, and before
				     * anybody waits if that is foreseen; default 5 s */
	uint64_t answer_ns;         /* to answer DROP_LOCK with 0 bytes, or a restore; default 15 s;
				     * a second a GiB comes on top */
	uint64_t heartbeat_ns;      /* asked so often; default 10 s */
	uint64_t heartbeat_limit_ns; /* silence after which a client counts as hung; default 30 s */
	uint64_t retry_ns;           /* after a stop that failed; default 10 s */
};

/* The part of it that each GPU may have for itself; mode to max_runtime_ns as above. */
struct sched_gpu_config {
	enum sched_mode mode;
	enum sched_switch_mode switch_mode;
	uint32_t sharing_degree;
	uint32_t reserve_percent;
	uint64_t tq_ns;
	uint64_t switch_fixed_ns;
	uint64_t max_runtime_ns;
};

/* A client's memory as the core knows it, bytes (struct nvshare_mem, summed). */
struct sched_memory {
	uint64_t resident; /* pageable, on the card */
	uint64_t swapped;  /* pageable, in host memory */
	uint64_t pinned;   /* can not be moved */
	uint64_t wanted;   /* pageable bytes that a blocked allocation lacks beyond the budget */
	uint64_t wanted_pinned; /* the same, bytes that will be pinned */
	uint64_t pager_context; /* ours in the process: of the reserve, and in no budget */
	uint64_t clean; /* of resident: host memory has the same bytes. SCHED_EVENT_AHEAD tells */
};

enum sched_client_state {
	SCHED_CLIENT_FREE,     /* slot unused */
	SCHED_CLIENT_IDLE,     /* joined, wants nothing; may still have memory on the card */
	SCHED_CLIENT_WAITING,  /* in the queue */
	SCHED_CLIENT_INCOMING, /* chosen: room is being made, and its memory comes in */
	SCHED_CLIENT_RUNNING,  /* has a grant */
	SCHED_CLIENT_STOPPING, /* has a grant, and a DROP that it has not answered */
	SCHED_CLIENT_STATE_COUNT_
};

/* How a client would be stopped now, as it says with its memory. */
enum sched_stops {
	SCHED_STOPS_AS_BEFORE, /* it does not say; before it has said anything, by freezing */
	SCHED_STOPS_FREEZING,
	SCHED_STOPS_DRAINING /* its kernels must end first, and may wait for those of its gang */
};

enum sched_event_type {
	SCHED_EVENT_GPU,    /* gpu, bytes = total (to 16 TiB), external, link_bandwidth, is_other,
			     * is_out: first, and on change */
	SCHED_EVENT_CONFIG, /* config, gpu_configs */
	SCHED_EVENT_JOIN,   /* client, gpu, owner, running, fixed, memory, budget, claim, doubted */
	SCHED_EVENT_LEAVE,  /* client: its process or connection is gone, with its memory */
	SCHED_EVENT_REQUEST,  /* client, memory: wants to run */
	SCHED_EVENT_RELEASED, /* client, grant, epoch, budget, memory, outcome, wants, moved... */
	SCHED_EVENT_MEMORY,   /* client, epoch, budget, memory, moved, move_ns, stops */
	SCHED_EVENT_ALIVE,    /* client: a heartbeat was answered */
	SCHED_EVENT_TIME,     /* sched_deadline() has come */
	SCHED_EVENT_CLAIM,    /* client, claim: has changed */
	SCHED_EVENT_USED,     /* client, gpu_ns: so much GPU time since it was told last */
	SCHED_EVENT_DOUBT,    /* client, doubted: from now on */
	SCHED_EVENT_PAUSE,   /* client, is_paused: it may not run until it is resumed. Refused for a
			      * client that takes no turns */
	SCHED_EVENT_AHEAD,   /* client, bytes: it copies ahead, and so many of its bytes on the card
			      * are clean. is_done: it copies no more before it has run again. Also
			      * the answer to SCHED_ACTION_AHEAD with 0 */
	SCHED_EVENT_GANG,    /* client, gang, gang_size: it belongs to this gang from now on */
	SCHED_EVENT_PROCESS, /* client, is_stopped: its process was stopped (a signal, a debugger,
			      * a frozen control group), or goes on */
	SCHED_EVENT_PINNED,  /* client, bytes: of pinned memory, as somebody else has found. It is
			      * no report: the client has said nothing */
	SCHED_EVENT_COUNT_
};

struct sched_event {
	enum sched_event_type type;
	uint32_t client; /* slot */
	uint32_t gpu;
	uint64_t now_ns; /* monotonic, never before the previous event's */
	uint64_t bytes;
	uint64_t external;
	uint64_t link_bandwidth; /* bytes a second that its link to the host should reach; 0:
				  * unknown. It counts until a switch has measured some */
	uint64_t grant;
	uint64_t epoch;
	uint64_t budget;
	uint64_t moved;
	uint64_t move_ns;
	uint64_t gpu_ns;
	uint64_t doubted; /* JOIN, DOUBT: of what it may have on the card, bytes that are not there,
			   * and so do not count for others */
	uint32_t owner;   /* JOIN: any number, the same for all clients of a user */
	uint32_t outcome; /* 0 success, else why the client did not stop */
	bool is_part;     /* RELEASED with an outcome: its budget is used up, the rest waits */
	bool is_short;    /* the same: it lacks what others may give back at any time */
	bool wants;
	enum sched_stops stops; /* RELEASED, MEMORY */
	bool running;           /* JOIN: it has run until now without us */
	bool fixed;             /* JOIN: can not take turns */
	bool is_paused;
	bool is_stopped; /* PROCESS */
	bool is_done;    /* AHEAD */
	bool is_other;   /* GPU: the index stands for another GPU than before */
	struct sched_memory memory;
	struct sched_claim claim;
	bool is_out;   /* GPU: it has an error; nobody gets a new grant there, or is stopped */
	uint32_t gang; /* GANG: any number below n_clients, the same for all members; SCHED_NONE:
			* of no gang any more */
	uint32_t gang_size; /* GANG: nobody of it runs before it has had so many members */
	const struct sched_config *config;
	const struct sched_gpu_config *gpu_configs; /* SCHED_GPUS_MAX of them, known or not; NULL:
						     * all as config has it */
};

enum sched_action_type {
	SCHED_ACTION_GRANT,  /* LOCK_OK: grant, budget, epoch; woke_ns */
	SCHED_ACTION_DROP,   /* DROP_LOCK: grant (0: was not running), bytes of budget, epoch, to */
	SCHED_ACTION_WAIT,   /* WAIT_FOR_MEM: bytes = missing, position, why */
	SCHED_ACTION_BUDGET, /* MEM_AVAILABLE: budget, epoch */
	SCHED_ACTION_REFUSE, /* MEM_REFUSED: bytes = wanted, budget = the most it could have */
	SCHED_ACTION_PREPARE, /* PREPARE_SWAP_OUT: bytes, due_ms; 0: nobody waits yet, both 0: any
			       * more */
	SCHED_ACTION_BEAT,    /* HEARTBEAT */
	SCHED_ACTION_AHEAD,  /* COPY_AHEAD: bytes that it may copy out while it is idle; 0: it stops
			      * at once, and answers */
	SCHED_ACTION_REPORT, /* for the log: report */
};

enum sched_report {
	SCHED_REPORT_HUNG,            /* a holder did not answer; its grant no longer counts */
	SCHED_REPORT_BACK,            /* a hung client has answered after all; once for each HUNG */
	SCHED_REPORT_LATE,            /* an answer's deadline has passed */
	SCHED_REPORT_STOP_FAILED,     /* outcome in bytes */
	SCHED_REPORT_NOT_PREEMPTIBLE, /* three stops failed in a row */
	SCHED_REPORT_OVERCOMMITTED,   /* of a GPU (client is its index): reports add up to more
				       * than usable; bytes in all. Once, until it is resolved;
				       * for a moment, a switch may do that */
};

enum sched_wait {
	SCHED_WAIT_NOT,
	SCHED_WAIT_TURN,
	SCHED_WAIT_MEMORY,
	SCHED_WAIT_SWAP,
	SCHED_WAIT_STUCK,
	SCHED_WAIT_GANG /* for the members of its gang: sched_client_status::gang_gpu */
};

/* Of a client that has slept, or made way for one: how it stands to its usual turn. */
enum sched_early {
	SCHED_EARLY_NOT,
	SCHED_EARLY_SOON,    /* waits: it is to get the GPU before its turn */
	SCHED_EARLY_MOVES,   /* waits: early switches have used up moving_percent for now */
	SCHED_EARLY_SHARE,   /* waits for its turn: it or its owner has had its share */
	SCHED_EARLY_CAME,    /* has the GPU, or is about to: it came before its turn */
	SCHED_EARLY_MADE_WAY /* stopped for one that came; it is next */
};

struct sched_action {
	enum sched_action_type type;
	uint32_t client;
	uint32_t to; /* DROP: whom room is made for, the first of them; SCHED_NONE: nobody */
	uint64_t grant;
	uint64_t epoch;
	uint64_t budget;
	uint64_t bytes;
	uint64_t due_ms;
	uint64_t woke_ns; /* GRANT: since it was chosen from the queue */
	uint32_t position;
	enum sched_wait why;
	enum sched_report report;
};

struct sched_actions {
	uint32_t n;
	struct sched_action at[SCHED_ACTIONS_MAX];
};

enum {
	SCHED_E_SUCCESS_,
	SCHED_E_EXISTS,    /* JOIN of a slot in use */
	SCHED_E_NO_CLIENT, /* any other event of a free slot */
	SCHED_E_NO_GPU,    /* a GPU that no SCHED_EVENT_GPU has announced */
	SCHED_E_NO_FIT,    /* JOIN of a fixed client that would have to take turns */
	SCHED_E_STATE,     /* event not allowed in the client's state */
	SCHED_E_STALE,     /* an answer to something older: ignored */
	SCHED_E_CONFIG,    /* a value of a config or a claim is out of its range; a gang is full */
};

#include "core/sched_private.h" /* struct sched, struct sched_client: for their size only */

void sched_config_default(struct sched_config *ret_config);

/* Returns 0, or SCHED_E_CONFIG if a value is out of its range. */
int sched_config_check(const struct sched_config *config);
int sched_gpu_config_check(const struct sched_gpu_config *config);

/* The values of a GPU for which nothing is set alone. */
struct sched_gpu_config sched_gpu_config_of(const struct sched_config *config);

/* clients: n_clients slots, all free; kept, and used, until the last call. */
void sched_init(struct sched *sched, struct sched_client *clients, uint32_t n_clients,
		const struct sched_config *config);

/*
 * Returns 0, or one of SCHED_E_* when the event is refused; a refused event changes
 * nothing but the time and yields no action. If there is more to do than fits into
 * ret_actions, sched_deadline() is at once now: step again with SCHED_EVENT_TIME.
 */
int sched_step(struct sched *sched, const struct sched_event *event,
	       struct sched_actions *ret_actions);

/* When the next SCHED_EVENT_TIME is due; SCHED_NO_DEADLINE if none is. */
uint64_t sched_deadline(const struct sched *sched);

/* Aborts if an invariant is broken. For tests, and after every step in debug builds. */
void sched_assert_valid(const struct sched *sched);

struct sched_gpu_status {
	uint64_t total, usable; /* bytes; usable: total less the reserve */
	uint64_t external;      /* as SCHED_EVENT_GPU told it */
	uint64_t available;     /* usable, less external and the charges of all clients */
	uint64_t running;       /* charged to holders */
	uint64_t spare;         /* of the reserve, that pinned bytes take now */
	uint64_t n_switches, moved_out, moved_in; /* bytes */
	uint64_t n_early;        /* of n_switches: for clients that had slept, before their turns */
	uint64_t bandwidth;      /* bytes a second, measured; 0: not yet */
	uint64_t link_bandwidth; /* as SCHED_EVENT_GPU told it */
	uint64_t overcommitted;  /* charged beyond usable less external, if that was reported and is
				    so */
	uint64_t next_switch_ns; /* monotonic; SCHED_NO_DEADLINE: none planned */
	uint32_t head;           /* the client that the switch is planned for; SCHED_NONE: none */
	uint32_t n_queued;  /* in the queue: those that wait, and those that run and lack memory */
	uint32_t n_running; /* run, or stop */
	uint32_t n_waiting; /* of n_queued: do not run */
	uint32_t n_clients;
	struct sched_gpu_config config;
};

struct sched_client_status {
	enum sched_client_state state;
	enum sched_wait why;
	enum sched_early early;
	uint32_t gpu, position;
	uint32_t last_outcome;
	bool hung; /* does not answer, or its process is stopped */
	bool not_preemptible, fixed, growing, paused;
	struct sched_claim claim;
	struct sched_memory memory;
	uint64_t budget, since_ns, last_scheduled_ns, run_ns, used_ns, n_switches;
	uint32_t gang;     /* SCHED_NONE: of none */
	uint32_t gang_gpu; /* SCHED_WAIT_GANG: where a member is paused, or which is out; else where
			    * a member's turn has not come, while it has come here; SCHED_NONE: it
			    * waits for members that have not come yet */
	uint64_t outside;  /* bytes of external in the way of what it waits for; 0: it waits for
			    * other reasons, or waits for nothing */
};

/*
 * gpu < SCHED_GPUS_MAX and announced; client < n_clients. since_ns: in its state for so
 * long; last_scheduled_ns: so long ago, SCHED_NO_DEADLINE: never. used_ns: GPU time, as
 * SCHED_EVENT_USED tells.
 */
void sched_gpu_status(const struct sched *sched, uint32_t gpu, struct sched_gpu_status *ret);
enum sched_client_state sched_client_state(const struct sched *sched, uint32_t client);
void sched_client_status(const struct sched *sched, uint32_t client, uint64_t now_ns,
			 struct sched_client_status *ret);

/* Reasons that keep a client of the same GPU out. */
enum sched_obstacle {
	SCHED_OBSTACLE_NONE,
	SCHED_OBSTACLE_PINNED,      /* a client's bytes that can not be moved */
	SCHED_OBSTACLE_FIXED,       /* a client that takes no turns; and so on */
	SCHED_OBSTACLE_CRITICAL,    /* is critical: its memory stays */
	SCHED_OBSTACLE_HUNG,        /* does not answer */
	SCHED_OBSTACLE_NOT_STOPPED, /* could not be stopped, or its memory not be moved */
	SCHED_OBSTACLE_TURNS_OFF,   /* sched_config::anti_thrash; no client */
	SCHED_OBSTACLE_COUNT_
};

struct sched_blocker {
	enum sched_obstacle obstacle;
	uint32_t client; /* SCHED_NONE: of none */
	uint64_t bytes;  /* of the client, that are in the way */
};

/*
 * The clients of a GPU with most in the way of others: in pinned bytes, and in those that would go
 * if the client could be stopped. Two of each, since nobody is in its own way. All zero at first.
 */
struct sched_blockers {
	struct sched_blocker pinned[2], kept[2];
};

/* Takes client into account, of blockers' GPU; a free slot changes nothing. */
void sched_blockers_add(const struct sched *sched, uint32_t client,
			struct sched_blockers *blockers);

/*
 * The reason that keeps client out, once all clients of its GPU are in blockers. NONE: a turn will
 * do.
 */
struct sched_blocker sched_blocker_of(const struct sched *sched, uint32_t client,
				      const struct sched_blockers *blockers);

struct sched_gang_status {
	uint32_t n_members; /* 0: nobody is in it */
	uint32_t size;      /* as told last */
	uint32_t n_running; /* members with a grant, stopping or not */
	uint32_t n_waiting; /* members that wait, or come */
	bool is_apart; /* members on one GPU do not fit there together: each takes its own turns */
};

/* gang < n_clients. */
void sched_gang_status(const struct sched *sched, uint32_t gang, struct sched_gang_status *ret);
/* The same, of sched_gang_status::is_apart alone; it takes the same time for any gang. */
bool sched_gang_is_apart(const struct sched *sched, uint32_t gang);

#endif
