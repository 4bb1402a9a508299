/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_PEER_H
#define NVS_DAEMON_PEER_H

/*
 * One connection: a client (a process on a GPU), a tool, or not yet known which.
 *
 * Messages that do not go out at once wait in a queue of fixed size. The caller closes a peer
 * whose queue overflows. A status is not queued: it is made while the tool reads it (cursor).
 *
 * Ownership: the server owns peers, a peer owns its descriptors. Threading: the loop's.
 */

#include "daemon/gpu/evidence.h"
#include "daemon/gpu/gpus.h"
#include "daemon/peers/pods.h"
#include "daemon/peers/process_state.h"
#include "daemon/peers/quota.h"
#include "daemon/peers/users.h"
#include "ipc/msg.h"
#include "ipc/sock.h"
#include "util/clock.h"
#include "util/event_source.h"

#include <stdbool.h>
#include <stdint.h>

#define PEER_QUEUE_BYTES 1024

struct job_entry;
struct ticket_process;

enum peer_state {
	PEER_STATE_FREE,
	PEER_STATE_NEW,    /* connected, has sent nothing yet */
	PEER_STATE_TOOL,   /* sends requests */
	PEER_STATE_CLIENT, /* registered; the core has a client in the same slot */
	PEER_STATE_REAPED, /* gone, but the reaper has not closed its socket yet */
};

enum peer_stage {
	PEER_STAGE_NONE,
	PEER_STAGE_NODE,
	PEER_STAGE_POOL,
	PEER_STAGE_GPUS,
	PEER_STAGE_STATES,
	PEER_STAGE_OUTSIDERS,
	PEER_STAGE_CLIENTS,
	PEER_STAGE_ORION,
	PEER_STAGE_CLEAN,
	PEER_STAGE_GANGS,
	PEER_STAGE_WAITS,
	PEER_STAGE_JOBS,  /* GET_JOBS: those that do not wait, by slot */
	PEER_STAGE_ENDED, /* then those that have ended, by their places in the ring */
	PEER_STAGE_QUEUE, /* then the queue, by position */
	PEER_STAGE_END
};

/* How far the answer to a GET_STATUS or GET_JOBS is. */
struct peer_cursor {
	enum peer_stage stage;
	uint32_t seq;
	uint32_t flags;  /* NVSHARE_GET_STATUS_*, or NVSHARE_GET_JOBS_* */
	uint64_t ticket; /* of the request: parts of a snapshot since then serve it */
	uint32_t at;     /* next GPU, outsider or slot */
	uint32_t n_gpus;
	uint32_t n_clients;
	uint32_t first, last; /* positions in the queue, from 0; last is the one behind */
	uint32_t n_jobs;
	uint32_t gang_job; /* its JOB_GANG comes next; 0: none does */
};

struct peer {
	enum peer_state state;
	uint32_t slot;
	uint32_t generation; /* counts the peers that have had this slot */
	int fd;
	int pidfd;          /* -1: none; the socket alone tells of the end */
	bool is_pidfd_sure; /* surely of the process that connected; else of one with its number */
	struct event_source input; /* fd */
	struct event_source end;   /* pidfd */
	struct sock_peer cred;     /* uid and groups mean nothing for a pod: see pod.owner */
	struct pod pod;            /* its name is what the program says, if it is in none */
	struct peer_cursor cursor;
	struct user *user; /* of pod.owner; owned by server::users */
	bool is_refused;   /* one too many: the answer to its first message says so */

	bool is_fresh;           /* on admission::fresh: it has sent nothing yet */
	uint64_t came_ns;        /* when it connected */
	struct peer *fresh_prev; /* admission::fresh */
	struct peer *fresh_next;

	bool is_unsent;            /* on connections::unsent: flushed before the next poll */
	struct peer *unsent_next;  /* connections::unsent */
	struct quota_bucket quota; /* of its messages */
	bool is_paused;            /* on flow::paused: it is not read until resume_ns */
	bool was_paused;
	bool is_due; /* its pause is over, and it has not been read since */
	uint64_t resume_ns;
	struct peer *paused_prev; /* flow::paused */
	struct peer *paused_next;
	bool is_closing;           /* on connections::closing: freed after the batch */
	struct peer *closing_next; /* connections::closing */

	/* PEER_STATE_TOOL */
	bool is_event_waiting;   /* on events::waiting */
	struct peer *event_prev; /* events::waiting */
	struct peer *event_next;
	uint64_t event_after;     /* the last event that it has seen */
	uint32_t event_seq;       /* of its request */
	struct job_entry *job;    /* of its process; NULL: none. job_queue_attach() */
	struct job_entry *awaits; /* the job whose end it waits for; NULL: none */
	struct peer *await_prev;  /* job_entry::awaiting */
	struct peer *await_next;
	uint32_t await_seq; /* of its request */
	uint32_t await_flags;

	/* PEER_STATE_CLIENT */
	uint32_t id;
	uint32_t gpu;
	uint32_t backend;
	bool is_second_limited;     /* its pager context is limited by the limits of contexts */
	uint64_t promised;          /* bytes of a pager context that it may make */
	uint32_t halt;              /* enum nvshare_halt, as it told last */
	uint32_t report_flags;      /* NVSHARE_REPORT_*, the same */
	struct nvshare_claim claim; /* as granted */
	bool can_hand_over;         /* NVSHARE_REGISTER_HANDOVER */
	bool is_watching;           /* it has sent WATCH */
	bool has_borrowed;          /* it has sent BORROW */
	struct ticket_process *ticket_process;  /* NULL: it shares no memory by tickets */
	struct peer *ticket_prev, *ticket_next; /* ticket_process::clients */
	bool is_at_work;                        /* as tickets/ticket_work.c saw it last */
	uint32_t pauses;        /* enum pause, bits: for whose sake it must not run */
	uint32_t gang;          /* its place among server::gangs, and 1; 0: of none */
	uint32_t gang_claim;    /* the size that it has told */
	uint64_t gpu_total;     /* bytes of its GPU, as it tells; 0: it does not */
	uint64_t context_bytes; /* of its first context, cut to what is plausible; 0: none yet */
	uint64_t context_told;  /* bytes of a context, as it was told; 0: nobody knew */
	bool is_frozen;         /* kept off the GPU, by its last SHARE_SET: shares.c */
	uint64_t gpu_ns;        /* GPU time that core/sched has been told of */
	struct memory_account account; /* as accounted with its GPU */
	struct evidence evidence;
	uint64_t doubted;        /* doubted bytes of its report, or of its budget if it is hung */
	uint64_t doubted_second; /* doubted bytes of its pager context */
	uint64_t asked_ns;       /* when it asked for its next grant; 0: it has not */
	uint64_t dropped_ns;     /* when it was told to stop; 0: it was not, or has stopped */
	uint64_t refused_ns;     /* when a refusal was logged last */
	uint32_t energy_j;       /* as metrics said last: an estimate may fall, a counter may not */
	uint32_t n_failed;       /* stops and returns in a row */
	uint32_t last_failed;    /* enum nvshare_outcome of the last one */
	uint64_t nonce;
	bool is_beat_asked;           /* a heartbeat is unanswered */
	uint64_t beat_ns;             /* when it was asked last */
	enum process_state stopped;   /* GOES_ON: the core counts on it; never UNSEEN: stopped.c */
	uint64_t looked_ns;           /* when its process was looked at last */
	bool is_down;                 /* an event has told that it hangs */
	struct job_entry *program_of; /* the job that it is a program of; NULL: none */
	struct peer *program_prev;    /* job_entry::programs */
	struct peer *program_next;
	bool is_growing;     /* held because it wants to grow; else because it wants to run */
	uint64_t held_epoch; /* epoch of the report that wants to grow */
	bool is_held;        /* on grace::held */
	struct peer *prev;   /* grace::held */
	struct peer *next;
	struct nvshare_mem mem;
	struct nvshare_orion orion;      /* as it told last */
	struct nvshare_clean clean;      /* the same */
	struct nvshare_host_memory host; /* as it was told last */
	bool is_host_taker;              /* it may be evicted, and takes host memory then */
	bool is_host_late;               /* it did not read when it was to be told */
	struct peer *host_next;          /* host::ready */
	char name[NVSHARE_NAME_LEN];

	uint32_t queue_len;              /* bytes */
	uint8_t queue[PEER_QUEUE_BYTES]; /* whole packets, one after the other */
};

enum {
	PEER_E_SUCCESS_,
	PEER_E_OVERFLOW, /* the peer does not read: the message is lost; close the peer */
};

/* Takes fd. */
void peer_init(struct peer *peer, int fd, const struct sock_peer *cred);
void peer_deinit(struct peer *peer);

/* Queues msg for peer_flush(). 0 or PEER_E_OVERFLOW. */
int peer_queue(struct peer *peer, const struct msg *msg);

/*
 * Sends msg, or queues it if it does not go out. 0, PEER_E_OVERFLOW, or -errno: the connection is
 * broken.
 */
int peer_send(struct peer *peer, const struct msg *msg);

/*
 * Sends the queue and then msg, with a copy of the descriptor passed. 0, or -errno: msg was not
 * sent; -EAGAIN: the peer reads too slowly.
 */
int peer_pass(struct peer *peer, const struct msg *msg, int passed);

/* Sends the queue, as far as it goes. 0 or -errno. */
int peer_flush(struct peer *peer);

/* The epoll events that peer needs now. */
uint32_t peer_events(const struct peer *peer);

#endif
