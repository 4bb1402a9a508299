/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVSHARE_PROTOCOL_H
#define NVSHARE_PROTOCOL_H

/*
 * The wire between the scheduler and everybody else: libnvshare.so, nvsharectl, plugins.
 *
 * A SOCK_SEQPACKET Unix socket, $NVSHARE_SOCK_DIR/scheduler.sock (default
 * /run/nvshare). One packet is one message: a header, then exactly the body of its
 * type. Both ends run on one machine, so integers are in its byte order, and their
 * widths and offsets are fixed (checked in src/ipc/msg.c). Unused bytes are zero.
 * Strings are NUL-terminated inside their arrays.
 *
 * Descriptors travel with DROP_LOCK and HANDOVER alone, to clients that said that they take
 * them (NVSHARE_REGISTER_HANDOVER). The scheduler takes none.
 *
 * A packet with a wrong magic, version, size or type closes the connection. Magic and
 * version stay where they are in every version: to a packet of another one the scheduler
 * answers with a REGISTERED of its own, so that both can be named. The sender's pid, uid and gid
 * are those of SO_PEERCRED; nothing in a message can override them.
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
#define NVSHARE_MSG_SIZE_MAX     1024 /* no message is longer, header included */

/* What may be set, by whatever way: an option of the scheduler, a tool, a message. */
#define NVSHARE_TURN_MS_MIN         10u
#define NVSHARE_TURN_MS_MAX         86400000u
#define NVSHARE_MAX_RUNTIME_MS_MIN  10000u
#define NVSHARE_MAX_RUNTIME_MS_MAX  86400000u
#define NVSHARE_RESERVE_PERCENT_MAX 50u
#define NVSHARE_SLICE_US_MIN        100u
#define NVSHARE_SLICE_US_MAX        10000000u
#define NVSHARE_HOLD_US_MAX         60000000u

#define NVSHARE_NAME_LEN 64
#define NVSHARE_POD_LEN  128
#define NVSHARE_TEXT_LEN 256

enum nvshare_msg_type {
#define NVSHARE_MSG(id, NAME, field, body, direction) NVSHARE_MSG_##NAME = id,
#include "nvshare/messages.def"
#undef NVSHARE_MSG
};

struct nvshare_msg_header {
	uint32_t magic;
	uint16_t version;
	uint16_t type; /* enum nvshare_msg_type */
	uint32_t size; /* of the whole packet, header included, bytes */
	uint32_t seq;  /* a RESULT or STATUS_* repeats its request's; else 0 */
};

/* What keeps bytes on the card that no eviction can take. */
enum nvshare_pinned {
	NVSHARE_PINNED_CONTEXT, /* the driver's own, per context */
	NVSHARE_PINNED_PLAIN,   /* cuMemAlloc kept plain: backend none, NVSHARE_IPC, several GPUs */
	NVSHARE_PINNED_ASYNC,   /* stream-ordered and pool allocations */
	NVSHARE_PINNED_VMM,     /* the program's own cuMemCreate */
	NVSHARE_PINNED_ARRAY,
	NVSHARE_PINNED_MANAGED, /* the program's own cuMemAllocManaged */
	NVSHARE_PINNED_GRAPH,   /* graph memory nodes */
	NVSHARE_PINNED_MODULE,  /* code and globals of loaded modules */
	NVSHARE_PINNED_COUNT
};

/*
 * A client's memory on its GPU, bytes. allocated is what the program asked for;
 * resident + swapped is what the pager holds for it (whole chunks); pinned[] comes
 * on top. wanted and wanted_pinned are what a blocked allocation lacks: 0 if none. host is
 * the host memory that its process has taken for evicted bytes, in use or not; host_wanted
 * what an eviction under way lacks of it; pager_context what the library's own context costs, which
 * lives in the reserve and not in the budget.
 */
struct nvshare_mem {
	uint64_t allocated;
	uint64_t resident;
	uint64_t swapped;
	uint64_t wanted;
	uint64_t wanted_pinned;
	uint64_t host;
	uint64_t host_wanted;
	uint64_t pager_context;
	uint64_t pinned[NVSHARE_PINNED_COUNT];
};

/* How a client stops for others. */
enum nvshare_backend { NVSHARE_BACKEND_NONE, NVSHARE_BACKEND_VMM, NVSHARE_BACKEND_MANAGED };

/* nvshare_register::flags */
#define NVSHARE_REGISTER_RUNNING   (1u << 0) /* its gate is open: it ran without a scheduler */
#define NVSHARE_REGISTER_RECONNECT (1u << 1) /* it was registered before */
#define NVSHARE_REGISTER_FIXED     (1u << 2) /* can not take turns (it uses several GPUs) */
#define NVSHARE_REGISTER_HANDOVER  (1u << 3) /* hands memory over, and takes it */

struct nvshare_empty {
	uint8_t unused[8];
};

struct nvshare_register {
	uint8_t gpu_uuid[16]; /* as cuDeviceGetUuid gives it; of the MIG instance if it is one */
	uint64_t gpu_total_bytes; /* as the driver says; used when NVML does not */
	uint64_t budget;          /* bytes it may have on the card at the moment; 0 when new */
	struct nvshare_mem mem;
	uint32_t flags;
	uint32_t backend; /* enum nvshare_backend */
	struct nvshare_claim claim;
	char name[NVSHARE_NAME_LEN];
	char pod[NVSHARE_POD_LEN]; /* namespace/name as the environment says; not trusted */
};

enum nvshare_register_result {
	NVSHARE_REGISTER_OK,
	NVSHARE_REGISTER_FULL,   /* no room for another client of this user, now: come back later */
	NVSHARE_REGISTER_GPU,    /* an unknown GPU whose size nobody can tell */
	NVSHARE_REGISTER_NO_FIT, /* FIXED, and it would have to take turns */
	NVSHARE_REGISTER_VERSION /* the packet was of another version of the protocol */
};

struct nvshare_registered {
	uint32_t result;            /* enum nvshare_register_result; not 0: the scheduler closes */
	uint32_t client;            /* id, shown by nvsharectl */
	uint64_t context_bytes;     /* what a context costs on this GPU, as seen so far */
	struct nvshare_claim claim; /* as it was given: not always what was claimed */
	uint32_t reserve_percent;   /* of the card, that no program gets */
	uint32_t unused;
};

struct nvshare_req_lock {
	struct nvshare_mem mem;
};

/*
 * budget: bytes (resident + pinned) the client may have on the card from now on.
 * epoch counts the budgets given to this client; a report repeats the last one seen.
 */
struct nvshare_lock_ok {
	uint64_t grant;
	uint64_t budget;
	uint64_t epoch;
};

/*
 * Sent to a running client, and (grant 0) to a stopped one that is to free memory. With
 * hand_bytes a descriptor comes along (SCM_RIGHTS): the sending end of a pair, whose other end
 * the client that comes in was given by HANDOVER. It is for what this message asks for. Only
 * between clients of one trust domain, which could read each other's memory anyway.
 */
struct nvshare_drop_lock {
	uint64_t grant;
	uint64_t bytes; /* to free of charge, at least; what is not in use goes first; may be 0 */
	uint64_t epoch;
	uint64_t host_others;       /* nvshare_mem::host of all other clients of the node */
	uint64_t host_coming;       /* of that, what they will have given back when this is done */
	uint64_t pager_context_max; /* what its own context may cost; less: do without */
	uint64_t charge;            /* counted as its own on the card: what it has, used or not */
	uint64_t hand_bytes;        /* of what goes, so much may be handed over; 0: nothing */
};

/* Always with a descriptor: the receiving end of a pair, through which memory may come. */
struct nvshare_handover {
	uint64_t bytes; /* at most so many */
};

enum nvshare_outcome {
	NVSHARE_OUTCOME_SUCCESS,
	NVSHARE_OUTCOME_TIMEOUT, /* submitted work did not end in time; the gate is open again */
	NVSHARE_OUTCOME_SAVE_FAILED, /* a copy failed; nothing was given up */
	NVSHARE_OUTCOME_NO_HOST_MEMORY,
	NVSHARE_OUTCOME_GPU_HUNG,
	NVSHARE_OUTCOME_INVALID_STATE,
	NVSHARE_OUTCOME_UNSUPPORTED,
	NVSHARE_OUTCOME_PARTIAL, /* a restore has used up its budget; the rest waits for more */
	NVSHARE_OUTCOME_NO_CARD_MEMORY, /* a restore has a budget, but the card has no room */
	NVSHARE_OUTCOME_COUNT
};

/* How a client can be stopped at the moment. */
enum nvshare_halt {
	NVSHARE_HALT_UNKNOWN,
	NVSHARE_HALT_DRAIN,  /* its submitted work must end */
	NVSHARE_HALT_FREEZE, /* in the middle of its work */
	/* The rest drain, too, and say why. */
	NVSHARE_HALT_OFF,          /* NVSHARE_FREEZE=0 */
	NVSHARE_HALT_INJECTED,     /* a profiler or debugger was loaded into it */
	NVSHARE_HALT_TRACED,       /* a debugger is attached */
	NVSHARE_HALT_MPS,          /* its channels are another process's */
	NVSHARE_HALT_COHERENT,     /* the GPU works on the processor's page tables */
	NVSHARE_HALT_CONFIDENTIAL, /* confidential computing */
	NVSHARE_HALT_DRIVER,       /* the driver does not offer it, or failed at it */
	NVSHARE_HALT_UNPROVEN,     /* a freeze was tried and did not do what it should */
	NVSHARE_HALT_CHANNELS,     /* not all its channels are known, or it stops them itself */
	NVSHARE_HALT_FAILED,       /* the last freezes were called off */
	NVSHARE_HALT_MANAGED,      /* managed memory moves only when nothing runs */
	NVSHARE_HALT_NO_ROOM,      /* the reserve has no room for its second context */
	NVSHARE_HALT_CONTEXTS, /* nor do the limits of contexts leave one: the scheduler's word */
	NVSHARE_HALT_COUNT
};

/* nvshare_lock_released::flags, nvshare_mem_update::flags */
#define NVSHARE_REPORT_RDMA    (1u << 0) /* its memory may be registered with devices: it stays */
#define NVSHARE_REPORT_NO_PROC (1u << 1) /* it has no /proc to see that by: it stays */

/*
 * The answer to DROP_LOCK, or (grant of the last LOCK_OK) given up early because idle.
 * Any outcome but SUCCESS: the client still runs if it ran, with budget unchanged. (Who
 * has reported bytes as gone on the way does not run again before it is let in, whatever
 * became of the rest: SUCCESS, with less freed.) Also the answer to MEM_AVAILABLE, with
 * grant 0 and its epoch, when bytes are still out: PARTIAL keeps the budget and waits for
 * a larger one, any other outcome gives the place up.
 */
struct nvshare_lock_released {
	uint64_t grant;   /* repeated from DROP_LOCK */
	uint64_t budget;  /* what it keeps: resident + pinned, rounded as it likes */
	uint64_t epoch;   /* repeated from DROP_LOCK */
	uint64_t moved;   /* bytes copied out */
	uint64_t move_ns; /* time that the copies took */
	struct nvshare_mem mem;
	uint32_t outcome; /* enum nvshare_outcome */
	uint32_t wants;   /* 1: it still wants to run; queue it again */
	uint32_t halt;    /* enum nvshare_halt */
	uint32_t flags;   /* NVSHARE_REPORT_* */
};

struct nvshare_set_tq {
	uint64_t ms; /* NVSHARE_TURN_MS_MIN to _MAX */
};

/*
 * A report, and, with mem.wanted or mem.wanted_pinned, a request of a running client
 * for a larger budget. budget below the last one given returns the difference (only
 * taken when epoch is the last). So does who moves memory out, while it does: what has
 * gone is given to others before the rest has.
 */
struct nvshare_mem_update {
	uint64_t budget;
	uint64_t epoch;
	uint64_t moved;   /* bytes copied in since the last report */
	uint64_t move_ns; /* time that took */
	struct nvshare_mem mem;
	uint32_t halt;  /* enum nvshare_halt */
	uint32_t flags; /* NVSHARE_REPORT_* */
};

/* Why a client waits; also in the status. */
enum nvshare_wait {
	NVSHARE_WAIT_NOT,
	NVSHARE_WAIT_TURN,      /* serial, concurrent: somebody else's turn */
	NVSHARE_WAIT_MEMORY,    /* does not fit beside those that run */
	NVSHARE_WAIT_SWAP,      /* room is being made, or its memory brought in */
	NVSHARE_WAIT_STUCK,     /* what others have in the way can not be moved */
	NVSHARE_WAIT_OUTSIDERS, /* what processes outside nvshare have; in the status only */
	NVSHARE_WAIT_COUNT
};

struct nvshare_wait_for_mem {
	uint64_t missing;  /* bytes */
	uint32_t position; /* in the queue, from 1 */
	uint32_t why;      /* enum nvshare_wait */
};

/*
 * To a queued client: bring your memory in, within budget, then report. Perhaps not all of
 * it at first: larger ones follow as others make room. To a running one: go on.
 */
struct nvshare_mem_available {
	uint64_t budget;
	uint64_t epoch;
};

/*
 * Somebody waits. bytes may have to go in due_ms; both 0: nobody waits any more. Again
 * when bytes has changed by more than a quarter.
 *
 * due_ms 0, and bytes not: nobody waits yet, but soon somebody may. Host memory for so much
 * should be there then; that is all, and goes to stopped clients that want nothing, too. It
 * holds until the next PREPARE_SWAP_OUT or DROP_LOCK, or until the client asks for the lock.
 */
struct nvshare_prepare_swap_out {
	uint64_t bytes;
	uint64_t due_ms;
	uint64_t host_others;       /* nvshare_mem::host of all other clients of the node */
	uint64_t pager_context_max; /* what its own context may cost; less: do without */
};

/*
 * Host memory has changed hands, for who takes some; or it is short, for all. wanted: the sum of
 * nvshare_mem::host_wanted of all other clients, who wait for what is taken and not in use to be
 * given back; 0: nobody does (any more).
 */
struct nvshare_host_memory {
	uint64_t others; /* nvshare_mem::host of all other clients of the node */
	uint64_t wanted;
};

/*
 * What a client does with its GPU. BUSY, IDLE and USE are told by every client that shares
 * its GPU's time (its slice is not 0), not more often than every 10 ms; BEGIN, END and HINT
 * by latency-critical ones at once, and by others when requests are told to the library.
 */
enum nvshare_activity_kind {
	NVSHARE_ACTIVITY_USE,   /* busy_ns and held_ns have grown, no more */
	NVSHARE_ACTIVITY_BUSY,  /* work is on the GPU from now on */
	NVSHARE_ACTIVITY_IDLE,  /* none is */
	NVSHARE_ACTIVITY_BEGIN, /* a burst begins; value 1: a request, whose work may come later */
	NVSHARE_ACTIVITY_END,   /* it has ended; value: it took so many ns */
	NVSHARE_ACTIVITY_HINT,  /* one will begin in value ns; 0: not after all */
	NVSHARE_ACTIVITY_COUNT
};

struct nvshare_activity {
	uint64_t busy_ns; /* since REGISTER: with work on the GPU, and not held */
	uint64_t held_ns; /* since REGISTER: kept off it, by SET_SHARE or its own limit */
	uint64_t ran_ns;  /* of busy_ns, that it did not wait for others' slices; 0: not known */
	uint64_t value;
	uint32_t kind;    /* enum nvshare_activity_kind */
	uint32_t n_calls; /* END: that submitted work, since the last END; 0: not known */
	/*
	 * Requests and bursts that ended since the last message, whatever that was. Requests that
	 * overlap have one BEGIN and one END, but each of them counts.
	 */
	uint32_t n_tasks;
	uint32_t n_violations; /* of those, that took longer than the SLO */
};

/*
 * How much of the GPU's time a running client may take from now on. hold: its channels are
 * taken off the GPU, until the next SET_SHARE, or for hold_us at most, whichever is first.
 * Its memory stays where it is.
 */
struct nvshare_set_share {
	uint64_t seq;
	uint64_t slice_us; /* of its channel groups; 0: as the driver has it, for it is alone */
	uint64_t hold_us;  /* 0: it runs; more than NVSHARE_HOLD_US_MAX counts as that */
	uint64_t use_ppm;  /* of the time in which it is busy, so much is its own; for its limit */
	struct nvshare_claim claim;
};

/* The answer to each SET_SHARE, when it is done. */
struct nvshare_share_set {
	uint64_t seq;
	uint64_t took_ns; /* from the message to the channels being off or on */
	uint32_t outcome; /* enum nvshare_outcome; UNSUPPORTED: it can not be held */
	uint32_t is_held;
};

/* Of HEARTBEAT, which the scheduler asks, and PING, which a client asks. */
struct nvshare_heartbeat {
	uint64_t nonce; /* an answer repeats it */
};

struct nvshare_mem_refused {
	uint64_t wanted;
	uint64_t limit; /* the most that this client could have */
};

struct nvshare_get_status {
	uint8_t unused[8];
};

enum nvshare_mode {
	NVSHARE_MODE_AUTO,
	NVSHARE_MODE_SERIAL,
	NVSHARE_MODE_CONCURRENT,
	NVSHARE_MODE_COUNT
};

/* Who is next, and who gets how much of the time. */
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
	uint32_t anti_thrash; /* 0: everybody runs */
	uint32_t policy;      /* enum nvshare_policy */
	uint32_t n_gpus;
	uint32_t n_clients;
	uint32_t pid;
	uint32_t unused;
	char version[16];
};

struct nvshare_status_gpu {
	uint8_t uuid[16];
	uint64_t total;     /* bytes */
	uint64_t usable;    /* total less the reserve */
	uint64_t external;  /* used by others than our clients, as NVML says */
	uint64_t available; /* usable - external - what clients hold */
	uint64_t running;   /* held by clients that run */
	uint64_t n_switches;
	uint64_t moved_out;
	uint64_t moved_in;
	uint64_t bandwidth;      /* bytes a second, measured; 0: not yet */
	uint64_t next_switch_ms; /* until the next planned switch; UINT64_MAX: none */
	uint64_t n_preemptions;  /* clients taken off for a latency-critical one */
	uint64_t n_preempt_failures;
	uint64_t n_preempt_timeouts;
	uint64_t preempt_ns_total; /* from the request to the last one being off */
	uint64_t preempt_ns_p50;   /* of the last ones */
	uint64_t preempt_ns_p99;
	uint64_t preempt_ns_max;
	uint64_t n_preempted; /* preempt_ns_total is of so many: several go at once */
	uint64_t n_lc_tasks;  /* requests and bursts that ended, of latency-critical clients */
	uint64_t n_be_tasks;  /* the same of others */
	uint64_t n_slo_violations;
	uint64_t lc_gpu_ns; /* GPU time that latency-critical clients had */
	uint64_t be_gpu_ns; /* and the others */
	uint64_t known_ns;  /* since its first client: over which the two are its utilisation */
	uint64_t contexts;  /* bytes of clients' contexts, and the library's own beside them */
	uint64_t contexts_max;
	/* Of a preemption, what was not the freeze of the last one: messages, and waking up. */
	uint64_t preempt_over_ns_p50;
	uint64_t preempt_over_ns_p99;
	uint64_t preempt_over_ns_max;
	uint64_t n_hints;        /* requests announced by latency-critical clients */
	uint64_t n_hints_missed; /* others held in vain: taken back, or lapsed */
	uint64_t hint_error_ns;  /* how far off the predicted beginning was: average */
	uint64_t link_bandwidth; /* bytes a second that the link should reach; 0: unknown */
	uint64_t outside;        /* of external, what NVML lists for processes outside nvshare */
	uint32_t index;
	uint32_t n_running;
	uint32_t n_waiting;
	uint32_t n_clients;
	uint32_t n_outsiders; /* those processes, also the ones that no STATUS_OUTSIDER tells of */
	uint32_t unused;
	char name[NVSHARE_NAME_LEN];
};

/* A process that uses the GPU without nvshare; those with most memory, most first. */
struct nvshare_status_outsider {
	uint64_t bytes; /* on the GPU, as NVML says; 0: it does not */
	uint32_t gpu;   /* status_gpu::index */
	uint32_t pid;
	char name[NVSHARE_NAME_LEN]; /* of the program, as it calls itself; "": unknown */
};

enum nvshare_client_state {
	NVSHARE_CLIENT_IDLE,     /* registered; wants nothing */
	NVSHARE_CLIENT_WAITING,  /* in the queue */
	NVSHARE_CLIENT_INCOMING, /* next; its memory is being brought in */
	NVSHARE_CLIENT_RUNNING,
	NVSHARE_CLIENT_STOPPING, /* told to stop; its answer is awaited */
	NVSHARE_CLIENT_STATE_COUNT
};

/* nvshare_status_client::flags */
#define NVSHARE_CLIENT_HUNG            (1u << 0) /* did not answer in time */
#define NVSHARE_CLIENT_NOT_PREEMPTIBLE (1u << 1) /* could not be stopped three times */
#define NVSHARE_CLIENT_FIXED           (1u << 2)
#define NVSHARE_CLIENT_GROWING         (1u << 3) /* runs, but an allocation waits for room */
#define NVSHARE_CLIENT_HELD            (1u << 4) /* runs, but is kept off the GPU just now */
#define NVSHARE_CLIENT_BUSY            (1u << 5) /* has work on the GPU */
#define NVSHARE_CLIENT_SLICES_ONLY     (1u << 6) /* freezing others was too slow for it */
#define NVSHARE_CLIENT_RDMA            (1u << 7) /* its memory stays: NVSHARE_REPORT_RDMA */
#define NVSHARE_CLIENT_NO_PROC         (1u << 8) /* the same: NVSHARE_REPORT_NO_PROC */
#define NVSHARE_CLIENT_DOUBTED         (1u << 9) /* some of what it reports is not on the card */

/* Which of a latency-critical client's bursts something was learned of. */
enum nvshare_warning {
	NVSHARE_WARNING_NONE,  /* not announced, and the others were in short slices already */
	NVSHARE_WARNING_HINT,  /* announced in time */
	NVSHARE_WARNING_PAUSE, /* not announced, after a pause: the others were in long slices */
	NVSHARE_WARNING_COUNT
};

enum nvshare_preference {
	NVSHARE_PREFERS_TIMESLICES,
	NVSHARE_PREFERS_PREEMPTION,
	NVSHARE_PREFERS_UNDECIDED, /* too few bursts of the one or the other so far */
	NVSHARE_PREFERENCE_COUNT
};

/* What they took with the others taken off the GPU, and with short slices for them. */
struct nvshare_learned {
	uint32_t n_bursts;        /* of the two together, since they were last tried anew */
	uint32_t prefers;         /* enum nvshare_preference: what has shown the shorter tail */
	uint32_t preempt_tail_us; /* of the last 32 the mean of the 2nd to 4th longest; 0: none */
	uint32_t slices_tail_us;  /* the same */
};

struct nvshare_status_client {
	uint64_t budget;
	uint64_t since_ns;          /* in its state for so long */
	uint64_t last_scheduled_ns; /* ago; UINT64_MAX: never */
	uint64_t run_ns;            /* in all, running */
	uint64_t n_switches;        /* times it was stopped for others */
	uint64_t gpu_ns;            /* GPU time that it had */
	uint64_t held_ns;           /* kept off the GPU for others, or by its limit */
	uint64_t slice_us;          /* of its channel groups; 0: the driver's */
	uint64_t n_tasks;           /* requests or bursts that ended */
	uint64_t n_slo_violations;
	uint64_t n_hints;         /* requests announced */
	uint64_t hint_margin_ns;  /* that others are held too early for one; 0: no hint yet */
	uint64_t hint_prepare_ns; /* from the last hint to its request; 0: none came yet */
	uint32_t hint_ratio_ppm;  /* of that to what was announced: average */
	uint32_t hint_error_ppm;  /* how far off the predictions were, of what it took: average */
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
	uint32_t energy_j;     /* joules, by GPU time and the GPU's power; 0: not known */
	char name[NVSHARE_NAME_LEN];
	char pod[NVSHARE_POD_LEN];
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
	NVSHARE_KEY_PRIORITY,    /* these four of a client: as in struct nvshare_claim */
	NVSHARE_KEY_WEIGHT,
	NVSHARE_KEY_SLO,
	NVSHARE_KEY_COMPUTE_LIMIT,
	NVSHARE_KEY_COUNT
};

struct nvshare_set {
	uint64_t value;
	uint32_t key;    /* enum nvshare_key */
	uint32_t client; /* 0: the node */
};

enum nvshare_result {
	NVSHARE_RESULT_OK,
	NVSHARE_RESULT_DENIED,  /* neither root, nor the daemon's user, nor of the group nvshare */
	NVSHARE_RESULT_INVALID, /* text names what and why */
	NVSHARE_RESULT_BUSY, /* to any request: no room for another connection of this user, now */
	NVSHARE_RESULT_COUNT
};

struct nvshare_result_msg {
	uint32_t code; /* enum nvshare_result */
	char text[NVSHARE_TEXT_LEN];
};

#endif
