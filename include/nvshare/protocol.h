/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVSHARE_PROTOCOL_H
#define NVSHARE_PROTOCOL_H

/*
 * The wire between the scheduler and its peers: libnvshare.so, nvsharectl, plugins.
 *
 * The scheduler listens on a SOCK_SEQPACKET Unix socket, $NVSHARE_SOCK_DIR/scheduler.sock
 * (default /run/nvshare). One packet is one message: a header, then exactly the body of its
 * type. Both ends run on one machine, so integers have its byte order. Widths and offsets are
 * fixed (src/ipc/msg.c checks them). Unused bytes are zero. Strings end with a NUL inside
 * their arrays.
 *
 * Four messages alone carry descriptors: DROP_LOCK and HANDOVER, to clients that registered with
 * NVSHARE_REGISTER_HANDOVER; SLABS, to those that have sent BORROW; TICKET_PAIR, to processes that
 * have sent TICKETS: the process's end of a pair (src/ipc/ticket_packet.h). The scheduler takes no
 * descriptors on this socket.
 *
 * A packet with a wrong magic, version, size or type closes the connection. Magic and version
 * keep their offsets in every version. The scheduler answers a packet of another version with
 * a REGISTERED of its own version, so that a log line can name both. A sender's pid, uid and
 * gid come from SO_PEERCRED; no message can override them.
 *
 * One connection is one client: one process on one GPU. A process that uses two
 * GPUs opens two.
 */

#include "nvshare/claim.h"

#include <stdint.h>

#define NVSHARE_PROTOCOL_MAGIC   0x4853564eu /* "NVSH" */
#define NVSHARE_PROTOCOL_VERSION 2
#define NVSHARE_SOCK_DIR_DEFAULT "/run/nvshare"
#define NVSHARE_SOCK_NAME        "scheduler.sock"
#define NVSHARE_MSG_SIZE_MAX     1024 /* bytes, header included */

/* Limits of settings, for the scheduler's options, tools and messages alike. */
#define NVSHARE_TURN_MS_MIN         10u
#define NVSHARE_TURN_MS_MAX         86400000u
#define NVSHARE_MAX_RUNTIME_MS_MIN  10000u
#define NVSHARE_MAX_RUNTIME_MS_MAX  86400000u
#define NVSHARE_RESERVE_PERCENT_MAX 50u
#define NVSHARE_SLICE_US_MIN        100u
#define NVSHARE_SLICE_US_MAX        10000000u
#define NVSHARE_HOLD_US_MAX         60000000u
#define NVSHARE_GANG_SIZE_MAX       100000u /* in messages */
#define NVSHARE_GANG_MEMBERS_MAX    256u    /* clients that a gang can have */

#define NVSHARE_NAME_LEN 64
#define NVSHARE_POD_LEN  128
#define NVSHARE_GANG_LEN 128
#define NVSHARE_TEXT_LEN 256

enum nvshare_msg_type {
#define NVSHARE_MSG(id, NAME, field, body, direction, during) NVSHARE_MSG_##NAME = id,
#include "nvshare/messages.def"
#undef NVSHARE_MSG
};

struct nvshare_msg_header {
	uint32_t magic;
	uint16_t version;
	uint16_t type; /* enum nvshare_msg_type */
	uint32_t size; /* bytes of the whole packet, header included */
	uint32_t seq;  /* a RESULT or STATUS_* repeats the request's number; else 0 */
};

/* Kinds of memory that no eviction can move off the card. */
enum nvshare_pinned {
	NVSHARE_PINNED_CONTEXT, /* the driver's own memory of a context */
	NVSHARE_PINNED_PLAIN,   /* cuMemAlloc with backend none, NVSHARE_IPC or several GPUs */
	NVSHARE_PINNED_ASYNC,   /* stream-ordered and pool allocations */
	NVSHARE_PINNED_VMM,     /* the program's own cuMemCreate */
	NVSHARE_PINNED_ARRAY,
	NVSHARE_PINNED_MANAGED, /* the program's own cuMemAllocManaged */
	NVSHARE_PINNED_GRAPH,   /* graph memory nodes */
	NVSHARE_PINNED_MODULE,  /* code and globals of loaded modules */
	NVSHARE_PINNED_COUNT
};

/*
 * A client's memory on its GPU, in bytes. The pager holds resident + swapped, in whole chunks;
 * pinned[] comes on top. A process on several GPUs has one pool of host memory, of which each of
 * its clients tells a part.
 */
struct nvshare_mem {
	uint64_t allocated;     /* the program's own allocations */
	uint64_t resident;      /* on the card, movable */
	uint64_t swapped;       /* in host memory */
	uint64_t wanted;        /* movable bytes that a blocked allocation lacks; 0: none waits */
	uint64_t wanted_pinned; /* the same, of bytes that will be pinned */
	uint64_t host;          /* host memory for evicted bytes, used or not; no slabs on loan */
	uint64_t host_wanted;   /* host memory that an eviction under way lacks */
	uint64_t pager_context; /* in the reserve, not in the budget */
	uint64_t pinned[NVSHARE_PINNED_COUNT];
};

/* How a client's memory moves. */
enum nvshare_backend { NVSHARE_BACKEND_NONE, NVSHARE_BACKEND_VMM, NVSHARE_BACKEND_MANAGED };

/* nvshare_register::flags */
#define NVSHARE_REGISTER_RUNNING   (1u << 0) /* its gate is open: it ran without a scheduler */
#define NVSHARE_REGISTER_RECONNECT (1u << 1) /* it was registered before */
#define NVSHARE_REGISTER_FIXED     (1u << 2) /* it takes no turns: an older library, several GPUs */
#define NVSHARE_REGISTER_HANDOVER  (1u << 3) /* it hands memory over, and takes it */

struct nvshare_empty {
	uint8_t unused[8];
};

struct nvshare_register {
	uint8_t gpu_uuid[16];     /* from cuDeviceGetUuid; of the MIG instance if it uses one */
	uint64_t gpu_total_bytes; /* from the driver; for a GPU that NVML does not report */
	uint64_t budget;          /* bytes that it may have on the card now; 0 when new */
	struct nvshare_mem mem;
	uint32_t flags;
	uint32_t backend; /* enum nvshare_backend */
	struct nvshare_claim claim;
	char name[NVSHARE_NAME_LEN];
	char pod[NVSHARE_POD_LEN]; /* namespace/name, from its environment; shown if it is in no pod
				    */
};

enum nvshare_register_result {
	NVSHARE_REGISTER_OK,
	NVSHARE_REGISTER_FULL,   /* this user has no room for another client now: try again later */
	NVSHARE_REGISTER_GPU,    /* an unknown GPU, and nobody knows its size */
	NVSHARE_REGISTER_NO_FIT, /* FIXED, but it would have to take turns */
	NVSHARE_REGISTER_VERSION /* the packet had another version of the protocol */
};

/* nvshare_registered::flags. A library does not look at those that it does not know. */
#define NVSHARE_REGISTERED_WATCH  (1u << 0) /* the scheduler takes WATCH */
#define NVSHARE_REGISTERED_ORION  (1u << 1) /* the scheduler takes ORION */
#define NVSHARE_REGISTERED_SLABS  (1u << 2) /* the scheduler takes BORROW */
#define NVSHARE_REGISTERED_CLEAN  (1u << 3) /* the scheduler takes CLEAN */
#define NVSHARE_REGISTERED_BYPASS (1u << 4) /* the scheduler takes NVSHARE_REPORT_BYPASS */
#define NVSHARE_REGISTERED_GANG   (1u << 5) /* the scheduler takes GANG */
/* The scheduler takes TICKET_OBEYS (src/ipc/ticket_packet.h), and sends TICKET_WORD then. */
#define NVSHARE_REGISTERED_TICKETS (1u << 6)

struct nvshare_registered {
	uint32_t result;            /* enum nvshare_register_result; not 0: the scheduler closes */
	uint32_t client;            /* its number, which nvsharectl shows */
	uint64_t context_bytes;     /* size of a context on this GPU, as seen so far */
	struct nvshare_claim claim; /* as granted */
	uint32_t reserve_percent;   /* part of the card that is in no budget */
	uint32_t flags;             /* NVSHARE_REGISTERED_*; of older schedulers 0 */
};

/*
 * The client belongs to this gang from now on, and to no other one. Members run on all of their
 * GPUs together, or on none. Gangs of different users are different ones, whatever their names.
 */
struct nvshare_gang {
	uint32_t size; /* no member runs before there have been so many; 0 or 1: none waits */
	uint32_t unused;
	char name[NVSHARE_GANG_LEN]; /* "": the connections of its process are the gang */
};

struct nvshare_req_lock {
	struct nvshare_mem mem;
};

/*
 * budget: bytes, resident + pinned, that the client may have on the card from now on. epoch
 * numbers this client's budgets; a report repeats the last number that the client has seen.
 */
struct nvshare_lock_ok {
	uint64_t grant;
	uint64_t budget;
	uint64_t epoch;
};

/*
 * Stops a running client. With grant 0 it tells a stopped client to free memory.
 *
 * If hand_bytes is not 0, a descriptor comes along (SCM_RIGHTS): the sending end of a pair
 * for the bytes of this message. The incoming client gets the other end with HANDOVER. The
 * two clients are of one trust domain: they could read each other's memory anyway.
 */
struct nvshare_drop_lock {
	uint64_t grant;
	uint64_t bytes; /* lower charge by at least this; unused bytes go first; may be 0 */
	uint64_t epoch;
	uint64_t host_others; /* nvshare_mem::host of all other clients of the node */
	uint64_t host_coming; /* the part of it that they give back until this eviction is done */
	uint64_t pager_context_max; /* bytes allowed for a pager context; needs more: go without
				       one */
	uint64_t charge;            /* bytes on the card that count as the client's, used or not */
	uint64_t hand_bytes;        /* of the bytes that go, so many may be handed over; 0: none */
};

/* Carries a descriptor: the receiving end of a pair, through which memory may come. */
struct nvshare_handover {
	uint64_t bytes; /* the most that comes */
};

/*
 * Carries a descriptor: the client's end of a pair on which slabs are lent (src/ipc/slab_packet.h).
 * A client sends BORROW once a connection at most, and gets no SLABS where the scheduler cannot
 * tell which process it is.
 */
struct nvshare_slabs {
	uint64_t slab_bytes; /* of each slab; a multiple of 2 MiB */
};

enum nvshare_outcome {
	NVSHARE_OUTCOME_SUCCESS,
	NVSHARE_OUTCOME_TIMEOUT, /* submitted work did not end in time; the gate is open again */
	NVSHARE_OUTCOME_SAVE_FAILED, /* a copy failed; no memory has gone */
	NVSHARE_OUTCOME_NO_HOST_MEMORY,
	NVSHARE_OUTCOME_GPU_HUNG,
	NVSHARE_OUTCOME_INVALID_STATE,
	NVSHARE_OUTCOME_UNSUPPORTED,
	NVSHARE_OUTCOME_PARTIAL, /* a restore has used up its budget, and waits for a larger one */
	NVSHARE_OUTCOME_NO_CARD_MEMORY, /* a restore has a budget, but the card has no room */
	NVSHARE_OUTCOME_COUNT
};

/* How a client can be stopped now. */
enum nvshare_halt {
	NVSHARE_HALT_UNKNOWN,
	NVSHARE_HALT_DRAIN,  /* its submitted work must end first */
	NVSHARE_HALT_FREEZE, /* in the middle of its kernels */
	/* All others drain, too, and give the reason why it cannot freeze. */
	NVSHARE_HALT_OFF,          /* NVSHARE_FREEZE=0 */
	NVSHARE_HALT_INJECTED,     /* the process has loaded a profiler or debugger */
	NVSHARE_HALT_TRACED,       /* a debugger is attached */
	NVSHARE_HALT_MPS,          /* its channels belong to the MPS server */
	NVSHARE_HALT_COHERENT,     /* the GPU works on the processor's page tables */
	NVSHARE_HALT_CONFIDENTIAL, /* confidential computing */
	NVSHARE_HALT_DRIVER,       /* the driver does not offer it, or failed at it */
	NVSHARE_HALT_UNPROVEN,     /* the trial freeze did not keep work off the GPU */
	NVSHARE_HALT_CHANNELS,     /* some of its channels are unknown, or it stops them itself */
	NVSHARE_HALT_FAILED,       /* the last freezes were called off */
	NVSHARE_HALT_MANAGED,      /* managed memory moves only while nothing runs */
	NVSHARE_HALT_NO_ROOM,      /* the reserve has no room for its pager context */
	NVSHARE_HALT_CONTEXTS,     /* the scheduler's limits of contexts leave no second one */
	NVSHARE_HALT_COUNT
};

/* nvshare_lock_released::flags, nvshare_mem_update::flags. By the first three memory stays. */
#define NVSHARE_REPORT_RDMA    (1u << 0) /* the memory may be registered with devices */
#define NVSHARE_REPORT_NO_PROC (1u << 1) /* without /proc the client cannot find that out */
#define NVSHARE_REPORT_BYPASS  (1u << 2) /* some of its calls go past the library */
/* It keeps the GPU for others alone. Only after a word with NVSHARE_TICKET_USED. */
#define NVSHARE_REPORT_RESTS (1u << 3)

/*
 * Three messages in one, told apart by grant and epoch:
 *
 * - The answer to DROP_LOCK. Any outcome but SUCCESS: a client that ran runs on, with its
 *   budget unchanged. A client that has reported bytes as gone answers SUCCESS also when the
 *   rest of the eviction failed: it has freed less, and waits for its next grant.
 * - A holder's early end, because it is idle: grant is that of the last LOCK_OK.
 * - The answer to MEM_AVAILABLE while bytes are still out: grant 0, and its epoch. PARTIAL
 *   keeps the budget and waits for a larger one; any other outcome gives the place up.
 */
struct nvshare_lock_released {
	uint64_t grant;   /* repeated from DROP_LOCK */
	uint64_t budget;  /* bytes that it keeps: resident + pinned, with any rounding */
	uint64_t epoch;   /* repeated from DROP_LOCK */
	uint64_t moved;   /* bytes copied out */
	uint64_t move_ns; /* time that the copies took */
	struct nvshare_mem mem;
	uint32_t outcome; /* enum nvshare_outcome */
	uint32_t wants;   /* 1: it still wants to run, so it joins the queue again */
	uint32_t halt;    /* enum nvshare_halt */
	uint32_t flags;   /* NVSHARE_REPORT_* */
};

struct nvshare_set_tq {
	uint64_t ms; /* NVSHARE_TURN_MS_MIN to _MAX */
};

/*
 * A report. With mem.wanted or mem.wanted_pinned a running client also asks for a larger
 * budget. With a budget below its last one the client returns the difference, if epoch is the
 * last one, too. A client that evicts does so on the way, so that others get these bytes at once.
 */
struct nvshare_mem_update {
	uint64_t budget;
	uint64_t epoch;
	uint64_t moved;   /* bytes copied in since the last report */
	uint64_t move_ns; /* time that the copies took */
	struct nvshare_mem mem;
	uint32_t halt;  /* enum nvshare_halt */
	uint32_t flags; /* NVSHARE_REPORT_* */
};

/*
 * To an idle client that has sent CLEAN: it may copy so many bytes of its memory to host memory,
 * and keeps them on the card. It copies until it wants to run, is told to move memory, or hears of
 * 0 bytes. Then it stops at once, and answers with CLEAN.
 */
struct nvshare_copy_ahead {
	uint64_t bytes;
};

/*
 * To one connection of a process that has sent TICKET_OBEYS, about GPU memory that processes share
 * (src/ipc/ticket_packet.h). A lost word costs time only: MOVE and OPEN decide.
 */
enum nvshare_ticket {
	NVSHARE_TICKET_MOVES,  /* to the owner: only its gang has it open, so it may leave the card
				*/
	NVSHARE_TICKET_STAYS,  /* to the owner: others have it open, so it must stay */
	NVSHARE_TICKET_PARK,   /* to an opener: unmap it as soon as the process has stopped */
	NVSHARE_TICKET_WANTED, /* to the owner: an opener waits for bytes that are out */
	NVSHARE_TICKET_COUNT
};

/*
 * nvshare_ticket_word::flags of MOVES and STAYS: others are at work, maybe on memory of the owner's
 * tickets. So the owner is not idle, even if it does nothing itself.
 */
#define NVSHARE_TICKET_USED (1u << 0)

struct nvshare_ticket_word {
	uint8_t ticket[16];
	uint32_t word; /* enum nvshare_ticket */
	uint32_t flags;
};

/* The first one says that the client copies ahead; so it may be all zero. */
struct nvshare_clean {
	uint64_t bytes;   /* on the card, with the same bytes in host memory */
	uint64_t copied;  /* ahead, since the start */
	uint64_t saved;   /* that left the card without a copy, since the start */
	uint32_t is_done; /* 1: it copies no more before it has run again */
	uint32_t unused;
};

/* Why a client waits; also in the status. */
enum nvshare_wait {
	NVSHARE_WAIT_NOT,
	NVSHARE_WAIT_TURN,      /* modes serial and concurrent: it is another client's turn */
	NVSHARE_WAIT_MEMORY,    /* it does not fit beside the holders */
	NVSHARE_WAIT_SWAP,      /* others' memory goes out, or its own comes in */
	NVSHARE_WAIT_STUCK,     /* other clients have memory in its way that cannot be moved */
	NVSHARE_WAIT_OUTSIDERS, /* processes outside nvshare have it; only in the status */
	NVSHARE_WAIT_GANG, /* it is its turn here, but not that of its gang elsewhere; only in the
			    * status */
	NVSHARE_WAIT_COUNT
};

struct nvshare_wait_for_mem {
	uint64_t missing;  /* bytes */
	uint32_t position; /* in the queue, from 1 */
	uint32_t why;      /* enum nvshare_wait */
};

/*
 * To a queued client: bring your memory in, as far as budget goes, then report. Larger budgets
 * follow as others make room. To a running client: your blocked allocation may go on.
 */
struct nvshare_mem_available {
	uint64_t budget;
	uint64_t epoch;
};

/*
 * Tells a client what it may soon have to evict. The scheduler repeats it when bytes has
 * changed by more than a quarter.
 *
 *     bytes   due_ms
 *     set     set     a client waits: so many bytes may have to go in due_ms
 *     set     0       no client waits yet: have host memory ready for so many bytes. Stopped
 *                     clients get this, too. It holds until the next PREPARE_SWAP_OUT or
 *                     DROP_LOCK, or until the client asks for the lock
 *     0       0       no client waits any more
 */
struct nvshare_prepare_swap_out {
	uint64_t bytes;
	uint64_t due_ms;
	uint64_t host_others;       /* nvshare_mem::host of all other clients of the node */
	uint64_t pager_context_max; /* bytes allowed for a pager context; needs more: go without
				       one */
};

/*
 * Goes to the clients that take host memory, when others have taken or returned some. Goes to
 * all clients when host memory is short: they give back what they do not use.
 */
struct nvshare_host_memory {
	uint64_t others; /* nvshare_mem::host of all other clients of the node */
	uint64_t wanted; /* nvshare_mem::host_wanted of all other clients; 0: none is short of it */
};

/*
 * A client's use of its GPU. USE, BUSY and IDLE come from each client that shares its GPU's
 * time (its slice is not 0), at most every 10 ms. BEGIN, END and HINT come at once from
 * latency-critical clients, and from others whose program marks requests.
 */
enum nvshare_activity_kind {
	NVSHARE_ACTIVITY_USE,   /* only busy_ns and held_ns have grown */
	NVSHARE_ACTIVITY_BUSY,  /* its work is on the GPU from now on */
	NVSHARE_ACTIVITY_IDLE,  /* its work has left the GPU */
	NVSHARE_ACTIVITY_BEGIN, /* a burst begins; value 1: a request, whose work may come later */
	NVSHARE_ACTIVITY_END,   /* the burst or request has ended; value: its duration, ns */
	NVSHARE_ACTIVITY_HINT,  /* a request will begin in value ns; 0: the hint is withdrawn */
	NVSHARE_ACTIVITY_COUNT
};

struct nvshare_activity {
	uint64_t busy_ns; /* since REGISTER: it had work on the GPU, and was not held */
	uint64_t held_ns; /* since REGISTER: it was kept off, by SET_SHARE or its own limit */
	uint64_t ran_ns;  /* the part of busy_ns without waits for others' slices; 0: not known */
	uint64_t value;
	uint32_t kind;    /* enum nvshare_activity_kind */
	uint32_t n_calls; /* END: calls that submitted work since the last END; 0: not known */
	/*
	 * Requests and bursts that ended since the last ACTIVITY of any kind. Requests that
	 * overlap share one BEGIN and one END, but each of them counts.
	 */
	uint32_t n_tasks;
	uint32_t n_violations; /* those of n_tasks that took longer than the SLO */
};

/*
 * A running client's part of the GPU's time from now on. If hold_us is not 0, its channels go
 * off the GPU until the next SET_SHARE, and for at most hold_us. Its memory does not move.
 */
struct nvshare_set_share {
	uint64_t seq;
	uint64_t slice_us; /* timeslice of its channel groups; 0: the driver's default */
	uint64_t hold_us;  /* 0: it runs. The client cuts it to NVSHARE_HOLD_US_MAX */
	uint64_t use_ppm;  /* the part of its busy time that counts for its compute limit */
	struct nvshare_claim claim;
};

/* The answer to each SET_SHARE, when it is done. */
struct nvshare_share_set {
	uint64_t seq;
	uint64_t took_ns; /* from the message until the channels were off or on */
	uint32_t outcome; /* enum nvshare_outcome; UNSUPPORTED: the client cannot be held */
	uint32_t is_held;
};

#define NVSHARE_ORION_CLIENTS_MAX 64u
#define NVSHARE_ORION_WAIT_US_MAX (UINT64_MAX / 1000) /* in ns it is a uint64_t, too */

/*
 * The scheduler that the program has started inside its process (nvshare/orion.h). Counters begin
 * with that scheduler. A client sends this when a number has changed, at most once a second, on
 * each of its connections.
 */
struct nvshare_orion {
	uint64_t hp_ops;    /* operations of client 0 that were submitted */
	uint64_t be_ops;    /* the same, of the other clients */
	uint64_t be_waits;  /* those of be_ops that had to wait, each once */
	uint64_t wait_us;   /* so long they waited together, to NVSHARE_ORION_WAIT_US_MAX */
	uint32_t n_clients; /* to NVSHARE_ORION_CLIENTS_MAX; 0: it has ended */
	uint32_t n_waiting; /* of n_clients, now */
};

/* HEARTBEAT asks a client, PING asks the scheduler. The answer repeats the packet. */
struct nvshare_heartbeat {
	uint64_t nonce;
};

struct nvshare_mem_refused {
	uint64_t wanted;
	uint64_t limit; /* bytes: the largest budget that this client could get */
};

/* nvshare_get_status::flags */
#define NVSHARE_GET_STATUS_STATES (1u << 0) /* STATUS_STATE, too, behind all STATUS_GPU */
#define NVSHARE_GET_STATUS_ORION  (1u << 1) /* STATUS_ORION, too, behind all STATUS_CLIENT */
#define NVSHARE_GET_STATUS_POOL   (1u << 2) /* STATUS_POOL, too, behind STATUS_NODE */
#define NVSHARE_GET_STATUS_CLEAN  (1u << 3) /* STATUS_CLEAN, too, behind STATUS_ORION */
#define NVSHARE_GET_STATUS_GANGS  (1u << 4) /* STATUS_GANG, too, behind STATUS_CLEAN */
#define NVSHARE_GET_STATUS_WAITS  (1u << 5) /* STATUS_WAIT, too, behind STATUS_GANG */

struct nvshare_get_status {
	uint32_t flags; /* NVSHARE_GET_STATUS_*; an older scheduler does not look at them */
	uint32_t unused;
};

enum nvshare_mode {
	NVSHARE_MODE_AUTO,
	NVSHARE_MODE_SERIAL,
	NVSHARE_MODE_CONCURRENT,
	NVSHARE_MODE_COUNT
};

/* The order of the queue, and each client's share of the time. */
enum nvshare_policy {
	NVSHARE_POLICY_PRIORITY, /* by priority, fair within one */
	NVSHARE_POLICY_FAIR,     /* weighted GPU time */
	NVSHARE_POLICY_CREDIT,
	NVSHARE_POLICY_DEADLINE, /* least slack first */
	NVSHARE_POLICY_COUNT
};
enum nvshare_switch_mode { NVSHARE_SWITCH_AUTO, NVSHARE_SWITCH_FIXED, NVSHARE_SWITCH_COUNT };

struct nvshare_status_node {
	uint64_t uptime_ns;
	uint64_t tq_ns;
	uint64_t switch_fixed_ns;
	uint64_t switch_min_ns;
	uint64_t switch_max_ns;
	uint64_t max_runtime_ns;
	uint32_t mode;        /* enum nvshare_mode */
	uint32_t switch_mode; /* enum nvshare_switch_mode */
	uint32_t switch_multiplier;
	uint32_t reserve_percent;
	uint32_t anti_thrash; /* 0: no client takes turns */
	uint32_t policy;      /* enum nvshare_policy */
	uint32_t n_gpus;
	uint32_t n_clients;
	uint32_t pid;
	uint32_t credit_round_ms; /* of a client with the default weight; from older schedulers 0 */
	char version[16];
	uint32_t sharing_degree; /* mode auto: so many clients on a GPU at once; 0: any number */
	uint16_t n_jobs_running; /* they have a GPU; from older schedulers 0 */
	uint16_t n_jobs_waiting; /* the same */
};

struct nvshare_status_gpu {
	uint8_t uuid[16];
	uint64_t total;     /* bytes */
	uint64_t usable;    /* total less the reserve */
	uint64_t external;  /* used outside our clients, by NVML's account */
	uint64_t available; /* usable, less external and the charge of all clients */
	uint64_t running;   /* charged to holders */
	uint64_t n_switches;
	uint64_t moved_out;
	uint64_t moved_in;
	uint64_t bandwidth;      /* measured bytes a second; 0: not measured yet */
	uint64_t next_switch_ms; /* until the next planned switch; UINT64_MAX: none is planned */
	uint64_t n_preemptions;  /* times that clients went off for a latency-critical one */
	uint64_t n_preempt_failures;
	uint64_t n_preempt_timeouts;
	uint64_t preempt_ns_total; /* from the order until the last client was off */
	uint64_t preempt_ns_p50;   /* of the last preemptions */
	uint64_t preempt_ns_p99;
	uint64_t preempt_ns_max;
	uint64_t n_preempted; /* preemptions in preempt_ns_total; one may stop several clients */
	uint64_t n_lc_tasks;  /* requests and bursts of latency-critical clients that ended */
	uint64_t n_be_tasks;  /* the same of best-effort clients */
	uint64_t n_slo_violations;
	uint64_t lc_gpu_ns; /* GPU time of latency-critical clients */
	uint64_t be_gpu_ns; /* GPU time of best-effort clients */
	uint64_t known_ns;  /* since its first client: the time that utilisation is a part of */
	uint64_t contexts;  /* bytes of clients' contexts, pager contexts included */
	uint64_t contexts_max;
	/* A preemption's time without the freeze of its last client: messages, and waking up. */
	uint64_t preempt_over_ns_p50;
	uint64_t preempt_over_ns_p99;
	uint64_t preempt_over_ns_max;
	uint64_t n_hints;        /* hints of latency-critical clients */
	uint64_t n_hints_missed; /* hints that were withdrawn or lapsed after others were held */
	uint64_t hint_error_ns;  /* from a request's predicted begin to the true one: average */
	uint64_t link_bandwidth; /* bytes a second that the link should reach; 0: unknown */
	uint64_t outside;        /* the part of external that NVML lists for n_outsiders */
	/* In the last recent_ns, nine to ten seconds: tasks that ended, and GPU time. */
	uint64_t recent_ns;
	uint64_t recent_lc_tasks;
	uint64_t recent_be_tasks;
	uint64_t recent_lc_gpu_ns;
	uint64_t recent_be_gpu_ns;
	uint32_t index;
	uint32_t n_running;
	uint32_t n_waiting;
	uint32_t n_clients;
	uint32_t n_outsiders; /* processes without nvshare; only some get a STATUS_OUTSIDER */
	uint32_t n_early; /* of n_switches: for programs that had slept; from older schedulers 0 */
	char name[NVSHARE_NAME_LEN];
	/* The values that hold on this GPU: the node's, or its own. */
	uint64_t tq_ns;
	uint64_t switch_fixed_ns;
	uint64_t max_runtime_ns;
	uint32_t mode;        /* enum nvshare_mode */
	uint32_t switch_mode; /* enum nvshare_switch_mode */
	uint32_t reserve_percent;
	uint32_t sharing_degree;
};

enum nvshare_state {
	NVSHARE_STATE_UNKNOWN, /* NVML has not told yet, or cannot be asked now */
	NVSHARE_STATE_GOOD,
	NVSHARE_STATE_ERROR, /* out: a serious error */
	NVSHARE_STATE_LOST,  /* out: it needs a reset, or a restart of the machine */
	NVSHARE_STATE_COUNT
};

/* nvshare_status_state::known */
#define NVSHARE_STATE_KNOWS_TEMPERATURE (1u << 0)
#define NVSHARE_STATE_KNOWS_UTILIZATION (1u << 1)
#define NVSHARE_STATE_KNOWS_POWER       (1u << 2)
#define NVSHARE_STATE_KNOWS_ENERGY      (1u << 3)
#define NVSHARE_STATE_KNOWS_PROCESSES   (1u << 4)
#define NVSHARE_STATE_KNOWS_MIG         (1u << 5)
#define NVSHARE_STATE_KNOWS_ALL         63u

/*
 * To a client that has sent WATCH: its GPU is out, so nobody gets a new grant there, or it is used
 * again. After a WATCH it comes only if the GPU is out.
 */
struct nvshare_gpu_state {
	uint32_t state; /* enum nvshare_state */
	uint32_t xid;   /* of the error; 0: none, or one without an Xid */
};

/* How a GPU is, as NVML told last. Of a MIG instance, heat and power are the whole card's. */
struct nvshare_status_state {
	uint64_t age_ns;    /* of the values; UINT64_MAX: there are none yet */
	uint64_t since_ns;  /* in its state for so long; UINT64_MAX: always */
	uint64_t used;      /* bytes, of clients and others together */
	uint64_t power_mw;  /* now */
	uint64_t energy_mj; /* since the driver was loaded */
	uint32_t gpu;       /* status_gpu::index */
	uint32_t state;     /* enum nvshare_state */
	uint32_t xid;       /* of its last serious error; 0: none, or one without an Xid */
	uint32_t known;     /* NVSHARE_STATE_KNOWS_* */
	uint32_t celsius;
	uint32_t utilization_percent; /* time with work of anybody, by NVML */
	uint32_t n_processes;         /* that compute there, clients or not */
	uint32_t is_mig;              /* 1: it is an instance of a card in MIG mode */
};

/* A process that uses the GPU without nvshare. The one with most memory comes first. */
struct nvshare_status_outsider {
	uint64_t bytes; /* on the GPU, from NVML; 0: unknown */
	uint32_t gpu;   /* status_gpu::index */
	uint32_t pid;
	char name[NVSHARE_NAME_LEN]; /* the program's own name; "": unknown */
};

enum nvshare_client_state {
	NVSHARE_CLIENT_IDLE,     /* registered; wants nothing */
	NVSHARE_CLIENT_WAITING,  /* in the queue */
	NVSHARE_CLIENT_INCOMING, /* chosen from the queue; its memory comes in */
	NVSHARE_CLIENT_RUNNING,
	NVSHARE_CLIENT_STOPPING, /* has a DROP_LOCK that it has not answered */
	NVSHARE_CLIENT_STATE_COUNT
};

/* nvshare_status_client::flags */
#define NVSHARE_CLIENT_HUNG            (1u << 0)  /* did not answer in time */
#define NVSHARE_CLIENT_NOT_PREEMPTIBLE (1u << 1)  /* three stops in a row failed */
#define NVSHARE_CLIENT_FIXED           (1u << 2)  /* takes no turns */
#define NVSHARE_CLIENT_GROWING         (1u << 3)  /* runs, but an allocation waits for room */
#define NVSHARE_CLIENT_HELD            (1u << 4)  /* runs, but is kept off the GPU now */
#define NVSHARE_CLIENT_BUSY            (1u << 5)  /* has work on the GPU */
#define NVSHARE_CLIENT_SLICES_ONLY     (1u << 6)  /* holds no others: freezing them was too slow */
#define NVSHARE_CLIENT_RDMA            (1u << 7)  /* its memory stays: NVSHARE_REPORT_RDMA */
#define NVSHARE_CLIENT_NO_PROC         (1u << 8)  /* its memory stays: NVSHARE_REPORT_NO_PROC */
#define NVSHARE_CLIENT_DOUBTED         (1u << 9)  /* it reports more than is on the card */
#define NVSHARE_CLIENT_PAUSED          (1u << 10) /* NVSHARE_KEY_PAUSE; idle once it has stopped */
#define NVSHARE_CLIENT_POD             (1u << 11) /* the kernel tells its pod, not its environment */
/* A program that has slept may come before its turn (NVSHARE_MOVING_PERCENT). One of them at most:
 */
#define NVSHARE_CLIENT_SOON     (1u << 12) /* waits: it is to get the GPU before its turn */
#define NVSHARE_CLIENT_MOVES    (1u << 13) /* waits: others that came so have moved too much */
#define NVSHARE_CLIENT_SHARED   (1u << 14) /* waits for its turn: it, or its user, had its share */
#define NVSHARE_CLIENT_EARLY    (1u << 15) /* has the GPU, or gets it now: it came so */
#define NVSHARE_CLIENT_MADE_WAY (1u << 16) /* was stopped for one that came so, and is next */
#define NVSHARE_CLIENT_BYPASS   (1u << 17) /* its memory stays: NVSHARE_REPORT_BYPASS */
#define NVSHARE_CLIENT_PARKING  (1u << 18) /* stopped while memory that it has open moves out */
#define NVSHARE_CLIENT_STOPPED  (1u << 19) /* its process is: by a signal or a debugger */
#define NVSHARE_CLIENT_FROZEN   (1u << 20) /* its process is: by a frozen control group */

/* Kinds of a latency-critical client's bursts. The scheduler learns about each kind apart. */
enum nvshare_warning {
	NVSHARE_WARNING_NONE,  /* no hint, and the others had short slices already */
	NVSHARE_WARNING_HINT,  /* a hint came in time */
	NVSHARE_WARNING_PAUSE, /* no hint, after a pause in which the others got long slices */
	NVSHARE_WARNING_COUNT
};

enum nvshare_preference {
	NVSHARE_PREFERS_TIMESLICES,
	NVSHARE_PREFERS_PREEMPTION,
	NVSHARE_PREFERS_UNDECIDED, /* too few bursts with one of the two so far */
	NVSHARE_PREFERENCE_COUNT
};

/* Durations of bursts of one kind, with others preempted and with short slices for others. */
struct nvshare_learned {
	uint32_t n_bursts;        /* with either, since the last new trial */
	uint32_t prefers;         /* enum nvshare_preference: the one with the shorter tail */
	uint32_t preempt_tail_us; /* mean of the 2nd to 4th longest of the last 32; 0: none */
	uint32_t slices_tail_us;  /* the same, with short slices */
};

struct nvshare_status_client {
	uint64_t budget;
	uint64_t since_ns;          /* since it entered its state */
	uint64_t last_scheduled_ns; /* since its last grant; UINT64_MAX: it had none */
	uint64_t run_ns;            /* time with a grant, in all */
	uint64_t n_switches;        /* times that it was stopped for others */
	uint64_t gpu_ns;            /* GPU time that it had */
	uint64_t held_ns;           /* kept off the GPU for others, or by its limit */
	uint64_t slice_us;          /* timeslice of its channel groups; 0: the driver's default */
	uint64_t n_tasks;           /* requests or bursts that ended */
	uint64_t n_slo_violations;
	uint64_t n_hints;
	uint64_t hint_margin_ns;  /* others are held so long before its request; 0: no hint yet */
	uint64_t hint_prepare_ns; /* from the last hint to its request; 0: none came yet */
	uint32_t hint_ratio_ppm;  /* hint_prepare_ns by the announced time: average */
	uint32_t hint_error_ppm;  /* error of a prediction by the true time: average */
	struct nvshare_learned learned[NVSHARE_WARNING_COUNT];
	struct nvshare_mem mem;
	struct nvshare_claim claim;
	uint32_t id;
	uint32_t gpu; /* status_gpu::index */
	uint32_t pid;
	uint32_t uid;
	uint32_t state;    /* enum nvshare_client_state */
	uint32_t why;      /* enum nvshare_wait */
	uint32_t position; /* in the queue, from 1; 0: not in it */
	uint32_t backend;
	uint32_t flags;
	uint32_t last_outcome; /* enum nvshare_outcome of its last stop */
	uint32_t halt;         /* enum nvshare_halt */
	uint32_t energy_j;     /* joules, estimated from GPU time and the GPU's power; 0: unknown */
	char name[NVSHARE_NAME_LEN];
	char pod[NVSHARE_POD_LEN];
};

/* Only of clients with a scheduler in their process. */
struct nvshare_status_orion {
	struct nvshare_orion orion; /* as the client told last */
	uint32_t client;            /* status_client::id */
	uint32_t unused;
};

/* Only of clients that have told of clean bytes, or of copies. */
struct nvshare_status_clean {
	struct nvshare_clean clean; /* as the client told last */
	uint32_t client;            /* status_client::id */
	uint32_t unused;
};

/* nvshare_status_gang::flags */
#define NVSHARE_GANG_APART                                                     \
	(1u << 0) /* its members on one GPU do not fit there together, so each \
		   * takes its own turns */
#define NVSHARE_GANG_LACKING (1u << 1) /* it waits for members that have not come yet */

/* Only of clients in a gang of more than one member, or of a size above one. */
struct nvshare_status_gang {
	uint32_t client;    /* status_client::id */
	uint32_t gang;      /* its number, from 1 on; no other gang ever has it */
	uint32_t size;      /* nvshare_gang::size */
	uint32_t n_members; /* now */
	uint32_t waits_gpu; /* a GPU for which this client's gang waits; UINT32_MAX: for none */
	uint32_t flags;     /* NVSHARE_GANG_* */
	char name[NVSHARE_GANG_LEN]; /* "": the GPUs of one process */
};

/* Reasons that keep a client out, beyond the turns of others. */
enum nvshare_obstacle {
	NVSHARE_OBSTACLE_NONE,
	NVSHARE_OBSTACLE_PINNED,      /* a client's bytes that cannot be moved */
	NVSHARE_OBSTACLE_FIXED,       /* a client that takes no turns; and so on */
	NVSHARE_OBSTACLE_CRITICAL,    /* is latency-critical, so its memory stays */
	NVSHARE_OBSTACLE_HUNG,        /* does not answer */
	NVSHARE_OBSTACLE_NOT_STOPPED, /* could not be stopped, or its memory could not be moved */
	NVSHARE_OBSTACLE_TURNS_OFF,   /* status_node::anti_thrash is 0; no client is in the way */
	NVSHARE_OBSTACLE_STOPPED,     /* its process is: NVSHARE_CLIENT_STOPPED, _FROZEN */
	NVSHARE_OBSTACLE_COUNT
};

/* Only of clients that wait for more than a turn. The one with most in the way is named. */
struct nvshare_status_wait {
	uint64_t bytes;    /* of blocker, in the way; PINNED: those of kind */
	uint32_t client;   /* status_client::id */
	uint32_t blocker;  /* status_client::id; 0: none */
	uint32_t obstacle; /* enum nvshare_obstacle */
	uint32_t kind;     /* PINNED: enum nvshare_pinned, the blocker's largest; else 0 */
};

/* Host memory that programs lend each other (BORROW), in bytes. */
struct nvshare_status_pool {
	uint64_t lent;
	uint64_t ready;       /* kept, and lent to nobody */
	uint64_t limit;       /* NVSHARE_HOST_MEMORY_LIMIT; UINT64_MAX: none */
	uint32_t n_borrowers; /* that have some */
	uint32_t unused;
};

struct nvshare_status_end {
	uint32_t n_gpus;
	uint32_t n_clients;
};

/* nvshare_set::key */
enum nvshare_key {
	NVSHARE_KEY_MODE,        /* enum nvshare_mode */
	NVSHARE_KEY_TQ,          /* ms, NVSHARE_TURN_MS_MIN to _MAX */
	NVSHARE_KEY_SWITCH_TIME, /* the same; 0: auto */
	NVSHARE_KEY_RESERVE,     /* percent, to NVSHARE_RESERVE_PERCENT_MAX */
	NVSHARE_KEY_MAX_RUNTIME, /* ms, NVSHARE_MAX_RUNTIME_MS_MIN to _MAX */
	NVSHARE_KEY_POLICY,      /* enum nvshare_policy */
	NVSHARE_KEY_PRIORITY,    /* from here on: of a client, as in struct nvshare_claim */
	NVSHARE_KEY_WEIGHT,
	NVSHARE_KEY_SLO,
	NVSHARE_KEY_COMPUTE_LIMIT,
	NVSHARE_KEY_PAUSE, /* 1: the client may not run until this is 0 */
	NVSHARE_KEY_COUNT
};

struct nvshare_set {
	uint64_t value;
	uint32_t key;    /* enum nvshare_key */
	uint32_t client; /* 0: the node */
};

#define NVSHARE_SETTING_LEN   96
#define NVSHARE_VALUE_LEN     512
#define NVSHARE_VALUE_ALL_MAX 4096
#define NVSHARE_ORIGIN_LEN    256

#define NVSHARE_SET_SAVE 1u

struct nvshare_set_text {
	uint32_t flags; /* NVSHARE_SET_SAVE: also for the next start and reload */
	uint32_t unused;
	char name[NVSHARE_SETTING_LEN];
	char value[NVSHARE_VALUE_LEN];
};

/* A tool asks for row 0, 1 and so on, up to n_rows of the answers. Of a value that is too long for
 * one answer, it asks for the next part. */
struct nvshare_get_config {
	uint32_t row;
	uint32_t value_at; /* bytes of the value that are known */
};

/* One setting. Rows may move from one version to the next, so a tool goes by the name. */
struct nvshare_config {
	uint32_t row;
	uint32_t n_rows;
	uint32_t is_fixed;  /* 1: it changes with a restart only */
	uint32_t value_len; /* of the whole value, below NVSHARE_VALUE_ALL_MAX */
	char name[NVSHARE_SETTING_LEN];
	char value[NVSHARE_VALUE_LEN];   /* the part from value_at on */
	char origin[NVSHARE_ORIGIN_LEN]; /* a file with its line, a variable, an option, a tool */
};

/* An event of a client. value is in bytes, unless the comment says otherwise. */
enum nvshare_trace_kind {
	NVSHARE_TRACE_JOIN,    /* value: its pid; detail 1: it runs already. Its name follows */
	NVSHARE_TRACE_NAME,    /* text: a part of its name, of whole characters; detail: from 0 */
	NVSHARE_TRACE_LEAVE,   /* detail 1: it had a grant. Its name came before */
	NVSHARE_TRACE_ASK,     /* it wants to run */
	NVSHARE_TRACE_WAIT,    /* detail: enum nvshare_wait; value: missing */
	NVSHARE_TRACE_BRING,   /* it is to bring its memory in; value: its budget */
	NVSHARE_TRACE_BROUGHT, /* value: copied in; ns: time of the copies */
	NVSHARE_TRACE_GRANT,   /* it may run; value: its budget */
	NVSHARE_TRACE_STOP,    /* value: must go; detail 1: it ran, 0: it only gives memory up */
	NVSHARE_TRACE_RELEASE, /* detail: enum nvshare_outcome; value: copied out; ns: the same */
	NVSHARE_TRACE_FREEZE,  /* off the GPU for a moment, for others; ns: time that it took */
	NVSHARE_TRACE_THAW,    /* back on the GPU; ns: the same */
	NVSHARE_TRACE_ORION,   /* in its process; value: clients that it begins with, 0: it ends */
	NVSHARE_TRACE_COUNT
};

#define NVSHARE_TRACE_TEXT_LEN 16

struct nvshare_trace_entry {
	uint64_t at_ns; /* CLOCK_MONOTONIC */
	uint32_t client;
	uint16_t gpu;   /* status_gpu::index */
	uint8_t kind;   /* enum nvshare_trace_kind */
	uint8_t detail; /* 0, unless the kind says otherwise */
	union {
		struct {
			uint64_t value, ns;
		};
		char text[NVSHARE_TRACE_TEXT_LEN]; /* NAME; a NUL ends it if there is room */
	};
};

#define NVSHARE_TRACE_PAGE 30 /* entries of one message */

/* Entries have numbers from 0 on. The scheduler keeps the last ones. */
struct nvshare_get_trace {
	uint64_t since;     /* the first number wanted */
	uint64_t window_ns; /* entries that are older are left out; 0: none is */
};

/* A page that is not full ends at the newest entry. */
struct nvshare_trace {
	uint64_t first;  /* number of entries[0]; more than asked for: those before are gone */
	uint64_t end;    /* number of the next thing that happens */
	uint64_t now_ns; /* CLOCK_MONOTONIC */
	uint32_t n;      /* of entries */
	uint32_t unused;
	struct nvshare_trace_entry entries[NVSHARE_TRACE_PAGE];
};

#define NVSHARE_UUID_LEN 48

enum nvshare_event_level {
	NVSHARE_EVENT_INFO,
	NVSHARE_EVENT_WARNING,
	NVSHARE_EVENT_ERROR,
	NVSHARE_EVENT_LEVEL_COUNT
};

enum nvshare_event_type {
	NVSHARE_EVENT_NONE,              /* the answer where there is no event */
	NVSHARE_EVENT_WORKER_DOWN,       /* a client does not answer */
	NVSHARE_EVENT_WORKER_BACK,       /* it answers again */
	NVSHARE_EVENT_GPU_ERROR,         /* a GPU is out */
	NVSHARE_EVENT_GPU_UNRECOVERABLE, /* a GPU is out, and needs a reset */
	NVSHARE_EVENT_GPU_BACK,          /* a GPU is used again */
	NVSHARE_EVENT_GPU_XID,           /* a program has caused an Xid */
	NVSHARE_EVENT_MONITOR_DOWN,      /* NVML cannot be asked */
	NVSHARE_EVENT_COUNT
};

/* A tool asks for the first event behind the one that it has seen last. */
struct nvshare_get_events {
	uint64_t after; /* event::id; 0: from the oldest that is kept */
	uint32_t waits; /* 1: the answer may come later, with the next event */
	uint32_t unused;
};

struct nvshare_event {
	uint64_t id;                 /* from 1, since the scheduler began; NONE: 0 */
	uint64_t unix_ns;            /* since 1970 */
	uint64_t n_missed;           /* events between after and this one that are forgotten */
	uint32_t level;              /* enum nvshare_event_level */
	uint32_t type;               /* enum nvshare_event_type */
	uint32_t gpu;                /* status_gpu::index; UINT32_MAX: of none */
	uint32_t xid;                /* 0: none */
	uint32_t client;             /* its number; 0: of none */
	uint32_t pid;                /* of the client */
	char uuid[NVSHARE_UUID_LEN]; /* of the GPU: "GPU-..." or "MIG-..." */
	char message[NVSHARE_TEXT_LEN];
};

enum nvshare_result {
	NVSHARE_RESULT_OK,
	NVSHARE_RESULT_DENIED,  /* only root, the daemon's user and the group nvshare may do it */
	NVSHARE_RESULT_INVALID, /* text names the value, and why */
	NVSHARE_RESULT_BUSY, /* to any request: this user has no room for another connection now */
	NVSHARE_RESULT_COUNT
};

struct nvshare_result_msg {
	uint32_t code; /* enum nvshare_result */
	char text[NVSHARE_TEXT_LEN];
};

/*
 * ---- jobs --------------------------------------------------------------------
 *
 * A job is a command that waits for a GPU. Its place in the queue belongs to the process that sent
 * SUBMIT: the kernel tells the scheduler which process that is (SO_PEERPIDFD, SO_PEERCRED). The
 * place ends with that process, or by JOB_ENDED. A lost connection ends nothing: the same process
 * may connect again, also to a scheduler that has restarted, and sends ATTACH_JOB.
 *
 *     process                             scheduler
 *     SUBMIT ───────────────────────────▶
 *     (or SUBMIT_GANG)
 *            ◀─────────────────────────── JOB: WAITING, its number and position. Or RESULT: refused
 *            ◀─────────────────────────── JOB: RUNNING, the GPU. The command may start
 *            ◀─────────────────────────── JOB: STOPPING, a signal for the command
 *     JOB_ENDED ────────────────────────▶
 *            ◀─────────────────────────── JOB: DONE. Or WAITING, because it is tried again
 *
 * All but the first JOB come unasked, with seq 0. Each of them holds all of the job's values, so
 * the last one is enough.
 */
#define NVSHARE_JOB_TYPE_LEN    32
#define NVSHARE_JOB_GPUS_LEN    448
#define NVSHARE_JOB_UNITS_MAX   1000000000u
#define NVSHARE_JOB_LIMIT_MAX   (365u * 86400u)
#define NVSHARE_JOB_NO_LIMIT    (NVSHARE_JOB_LIMIT_MAX + 1)
#define NVSHARE_JOB_RETRIES_MAX 1000u

/* nvshare_submit::flags */
#define NVSHARE_SUBMIT_WHOLE   (1u << 0) /* it waits until its memory fits beside all others */
#define NVSHARE_SUBMIT_NO_WAIT (1u << 1) /* it is refused if it cannot start at once */
/* The process becomes the command itself, and closes the connection. It has no time limit, and
 * nobody tells how it ended. */
#define NVSHARE_SUBMIT_SELF (1u << 2)

struct nvshare_submit {
	uint64_t memory;   /* bytes of GPU memory that it needs; 0: estimated */
	uint64_t units;    /* of work, for the estimate, to NVSHARE_JOB_UNITS_MAX; 0: unknown */
	uint32_t flags;    /* NVSHARE_SUBMIT_* */
	uint32_t priority; /* enum nvshare_priority */
	/* Of running time, to NVSHARE_JOB_LIMIT_MAX; 0: as the scheduler has it;
	 * NVSHARE_JOB_NO_LIMIT, which an older scheduler does not know. */
	uint32_t limit_sec;
	uint32_t n_retries; /* so often it starts again when it fails, to NVSHARE_JOB_RETRIES_MAX */
	char name[NVSHARE_NAME_LEN];      /* for people */
	char model[NVSHARE_NAME_LEN];     /* "": none */
	char type[NVSHARE_JOB_TYPE_LEN];  /* of the work; "": none */
	char apart[NVSHARE_JOB_TYPE_LEN]; /* jobs with the same word get no GPU together; "": none
					   */
	/* As CUDA_VISIBLE_DEVICES: indices of the status, UUIDs, or the beginning of one, with
	 * commas. The job gets one of these. "": any */
	char gpus[NVSHARE_JOB_GPUS_LEN];
};

/*
 * A SUBMIT of a job that starts together with others, or not at all: gang.size jobs of its user
 * with this name. The size is 2 to NVSHARE_GANG_SIZE_MAX, and the name is not empty. An older
 * scheduler does not know this message, and closes the connection.
 */
struct nvshare_submit_gang {
	struct nvshare_submit submit;
	struct nvshare_gang gang;
};

struct nvshare_job_ref {
	uint32_t job;
	uint32_t unused;
};

/* nvshare_job_ended::flags */
#define NVSHARE_ENDED_BEGUN (1u << 0) /* the command was started */
#define NVSHARE_ENDED_FINAL (1u << 1) /* the job is not tried again, whatever retries it has */

struct nvshare_job_ended {
	uint32_t job;
	uint32_t exit_code; /* of the command; with a signal: 0 */
	uint32_t signal;    /* that ended it; 0: none */
	uint32_t flags;     /* NVSHARE_ENDED_* */
};

enum nvshare_job_state {
	NVSHARE_JOB_WAITING,
	NVSHARE_JOB_RUNNING,  /* it has its GPU */
	NVSHARE_JOB_STOPPING, /* the same, and it has been told to end */
	NVSHARE_JOB_DONE,
	NVSHARE_JOB_STATE_COUNT
};

enum nvshare_job_why {
	NVSHARE_JOB_WHY_NOT,    /* it does not wait */
	NVSHARE_JOB_WHY_BEHIND, /* other jobs are before it */
	NVSHARE_JOB_WHY_GRACE,  /* the scheduler has restarted, and waits for running programs */
	NVSHARE_JOB_WHY_MEMORY, /* no GPU that it may have has room; missing says how much */
	NVSHARE_JOB_WHY_DEGREE, /* no such GPU takes another program now */
	NVSHARE_JOB_WHY_APART,  /* jobs that it must be apart from have all such GPUs */
	NVSHARE_JOB_WHY_BOOKED, /* such a GPU is kept for a job that has waited for long */
	NVSHARE_JOB_WHY_OUT,    /* all such GPUs have an error */
	NVSHARE_JOB_WHY_NEVER,  /* no such GPU is there: one must come, or settings must change */
	NVSHARE_JOB_WHY_REST,   /* it has failed, and rests before it is tried again */
	/* Only of jobs that came by SUBMIT_GANG. */
	NVSHARE_JOB_WHY_MEMBERS, /* more jobs of its gang must come */
	NVSHARE_JOB_WHY_GANG,    /* all of its gang are there, but not places for all */
	NVSHARE_JOB_WHY_COUNT
};

enum nvshare_job_end {
	NVSHARE_JOB_END_NOT,
	NVSHARE_JOB_END_EXIT,    /* exit_code and signal say how */
	NVSHARE_JOB_END_CANCEL,  /* by CANCEL_JOB */
	NVSHARE_JOB_END_LIMIT,   /* it ran longer than its time limit */
	NVSHARE_JOB_END_GAVE_UP, /* its process ended, or gave up, before the command began */
	NVSHARE_JOB_END_LOST,    /* its process ended without a word */
	NVSHARE_JOB_END_GONE,    /* NVSHARE_SUBMIT_SELF: the command has ended; how is not known */
	NVSHARE_JOB_END_NEVER,   /* a member was refused, because its gang could never start */
	NVSHARE_JOB_END_COUNT
};

#define NVSHARE_JOB_NO_GPU UINT32_MAX

/* nvshare_job::flags */
#define NVSHARE_JOB_WHOLE     (1u << 0) /* NVSHARE_SUBMIT_WHOLE */
#define NVSHARE_JOB_SELF      (1u << 1) /* NVSHARE_SUBMIT_SELF */
#define NVSHARE_JOB_RESERVES  (1u << 2) /* memory is kept free for its programs */
#define NVSHARE_JOB_OOM       (1u << 3) /* the scheduler had to refuse memory to a program of it */
#define NVSHARE_JOB_FLAGS_ALL 15u

struct nvshare_job {
	uint64_t memory;  /* bytes that it needs, as asked or estimated */
	uint64_t peak;    /* bytes that its programs had at most, on the card and off it */
	uint64_t missing; /* bytes that the best GPU lacks for it; 0: none, or unknown */
	uint64_t submitted_unix_ns; /* since 1970 */
	uint64_t waited_ns;         /* until it started, or ended, or so far */
	uint64_t ran_ns;            /* since it started, until it ended, or so far */
	uint64_t counted_ns;        /* the part of ran_ns that counts for its time limit */
	uint64_t limit_ns;          /* 0: none */
	uint32_t job;               /* its number, from 1; 0: this is no job */
	uint32_t pid;
	uint32_t uid;
	uint32_t state;      /* enum nvshare_job_state */
	uint32_t why;        /* enum nvshare_job_why */
	uint32_t position;   /* in the queue, from 1; 0: not in it */
	uint32_t n_queued;   /* jobs in the queue */
	uint32_t gpu;        /* status_gpu::index; NVSHARE_JOB_NO_GPU */
	uint32_t priority;   /* enum nvshare_priority */
	uint32_t flags;      /* NVSHARE_JOB_* */
	uint32_t signal_now; /* STOPPING: the process sends this signal to the command */
	uint32_t end;        /* enum nvshare_job_end; STOPPING: why it was told to end */
	uint32_t exit_code;
	uint32_t signal;
	uint32_t n_programs;             /* its clients now */
	uint32_t n_retries;              /* that are left */
	char gpu_uuid[NVSHARE_UUID_LEN]; /* for CUDA_VISIBLE_DEVICES */
	char name[NVSHARE_NAME_LEN];
	char model[NVSHARE_NAME_LEN];
	char type[NVSHARE_JOB_TYPE_LEN];
	char text[NVSHARE_TEXT_LEN]; /* why it waits, or ended, for people */
};

/* The gang of a job that came by SUBMIT_GANG. */
struct nvshare_job_gang {
	uint32_t job;
	uint32_t size;      /* so many start together */
	uint32_t n_members; /* jobs of it that have not ended */
	uint32_t n_on;      /* those of them that have a GPU */
	char name[NVSHARE_GANG_LEN];
};

/* nvshare_get_jobs::flags */
#define NVSHARE_GET_JOBS_AWAIT_END (1u << 0) /* with job: the answer comes when it has ended */
#define NVSHARE_GET_JOBS_ENDED     (1u << 1) /* also those that have ended, as far as they are kept */
#define NVSHARE_GET_JOBS_GANGS     (1u << 2) /* JOB_GANG, too, behind the JOB of a job with a gang */

/* Answered by JOBs and JOBS_END; or by RESULT: there is no such job. */
struct nvshare_get_jobs {
	uint32_t job;   /* this one alone; 0: all */
	uint32_t first; /* of those that wait, only positions from this on; 0: from 1 */
	uint32_t last;  /* and up to this; 0: all */
	uint32_t flags; /* NVSHARE_GET_JOBS_* */
};

struct nvshare_jobs_end {
	uint32_t n;        /* JOBs of this answer */
	uint32_t n_queued; /* of the node */
	uint32_t n_running;
	uint32_t unused;
};

/* Whether a job can start on a GPU now; else the first reason that applies. */
enum nvshare_verdict {
	NVSHARE_VERDICT_FITS,       /* yes: its memory fits beside all others */
	NVSHARE_VERDICT_SHARES,     /* yes, in turns with others */
	NVSHARE_VERDICT_NOT_ASKED,  /* nvshare_submit::gpus does not name it */
	NVSHARE_VERDICT_NOT_IN_SET, /* a setting names the GPUs for jobs, and it is none of them */
	NVSHARE_VERDICT_RESERVED,   /* a setting keeps it from jobs */
	NVSHARE_VERDICT_TOO_SMALL,  /* the card has not so much memory */
	NVSHARE_VERDICT_OUT,        /* it has an error */
	NVSHARE_VERDICT_APART,      /* a job that this one must be apart from is there */
	NVSHARE_VERDICT_DEGREE,     /* as many programs as its sharing degree allows */
	NVSHARE_VERDICT_MEMORY,     /* no room now */
	NVSHARE_VERDICT_BOOKED,     /* it is kept for a job that has waited for long */
	NVSHARE_VERDICT_COUNT
};

/* The parts of its score are thousandths of a point, and 0 where it cannot be scored. */
struct nvshare_gpu_score {
	uint8_t uuid[16];
	uint64_t free;   /* bytes that no program has, and no job has reserved */
	uint8_t gpu;     /* status_gpu::index */
	uint8_t verdict; /* enum nvshare_verdict */
	uint16_t n_on;   /* programs and jobs there; 65535: or more */
	uint32_t degree; /* so many may be on it at once; 0: any number */
	uint32_t affinity;
	uint32_t memory;
	uint32_t utilization;
	uint32_t temperature;
	uint32_t idle;
	uint32_t total;
};

#define NVSHARE_PLACEMENT_GPUS 16

/* A question is no job: nothing is reserved, and nobody's place changes. */
struct nvshare_placement {
	uint64_t memory;   /* bytes, as asked or estimated */
	uint32_t gpu;      /* where the job would start now; NVSHARE_JOB_NO_GPU: it would wait */
	uint32_t n;        /* of gpus, in the order of the status */
	uint32_t n_queued; /* jobs that wait, and would be before it */
	uint32_t is_estimated; /* 1: memory is an estimate */
	struct nvshare_gpu_score gpus[NVSHARE_PLACEMENT_GPUS];
};

#endif
