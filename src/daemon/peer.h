/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_PEER_H
#define NVS_DAEMON_PEER_H

/*
 * One connection: a client (a process on a GPU), a tool, or not yet known which.
 *
 * What does not go out at once waits in a queue of fixed size; a peer that lets it
 * overflow is of no use any more and is closed by the caller. A status is not queued:
 * it is made while it is read (cursor).
 *
 * Ownership: the server owns peers, a peer owns its descriptors.
 */

#include "daemon/event_source.h"
#include "daemon/evidence.h"
#include "daemon/gpus.h"
#include "daemon/quota.h"
#include "daemon/users.h"
#include "ipc/msg.h"
#include "ipc/sock.h"
#include "util/clock.h"

#include <stdbool.h>
#include <stdint.h>

#define PEER_QUEUE_BYTES 1024

enum peer_state {
	PEER_STATE_FREE,
	PEER_STATE_NEW,    /* connected, nothing said yet */
	PEER_STATE_TOOL,   /* asks and sets */
	PEER_STATE_CLIENT, /* registered; the core has a client in the same slot */
	PEER_STATE_REAPED, /* gone, but its socket is not closed yet: daemon/reaper.h */
};

enum peer_stage {
	PEER_STAGE_NONE,
	PEER_STAGE_NODE,
	PEER_STAGE_GPUS,
	PEER_STAGE_OUTSIDERS,
	PEER_STAGE_CLIENTS,
	PEER_STAGE_END
};

/* How far the answer to a GET_STATUS has come. */
struct peer_cursor {
	enum peer_stage stage;
	uint32_t seq;
	uint64_t ticket; /* of the request: parts of a snapshot from then on are good */
	uint32_t at;     /* next GPU, outsider or slot */
	uint32_t n_gpus;
	uint32_t n_clients;
};

struct peer {
	enum peer_state state;
	uint32_t slot;
	uint32_t generation; /* of the slot; counts its users */
	int fd;
	int pidfd;                 /* -1: none, the socket alone tells of its end */
	bool is_pidfd_sure;        /* of the process that connected; else of one with its number */
	struct event_source input; /* fd */
	struct event_source end;   /* pidfd */
	struct sock_peer cred;
	struct peer_cursor cursor;
	struct user *user; /* users', of cred.uid */
	bool is_refused;   /* one too many: told so by its first message's answer */

	bool is_fresh;           /* on server::fresh: it has said nothing yet */
	uint64_t came_ns;        /* then */
	struct peer *fresh_prev; /* server::fresh */
	struct peer *fresh_next;

	bool is_unsent;            /* on server::unsent: flushed before the next wait */
	struct peer *unsent_next;  /* server::unsent */
	struct quota_bucket quota; /* of its messages */
	bool is_paused;            /* on server::paused: it is not read until then */
	bool was_paused;
	bool is_due; /* its pause is over, and it was not read since */
	uint64_t resume_ns;
	struct peer *paused_prev; /* server::paused */
	struct peer *paused_next;
	bool is_closing;           /* on server::closing, to be freed after the batch */
	struct peer *closing_next; /* server::closing */

	/* PEER_STATE_CLIENT */
	uint32_t id;
	uint32_t gpu;
	uint32_t backend;
	bool is_second_limited;     /* by the limits of contexts, not by the reserve alone */
	uint64_t promised;          /* bytes of a second context that it may make */
	uint32_t halt;              /* enum nvshare_halt, as it said last */
	uint32_t report_flags;      /* NVSHARE_REPORT_*, the same */
	struct nvshare_claim claim; /* as given */
	bool can_hand_over;         /* NVSHARE_REGISTER_HANDOVER */
	uint64_t gpu_total;         /* bytes that its GPU has, as it says; 0: it does not */
	uint64_t context_bytes; /* of its first context, as far as that is plausible; 0: none yet */
	uint64_t context_told;  /* what it was told that one costs; 0: nobody knew */
	uint64_t gpu_ns;        /* GPU time, as far as the core has been told of it */
	struct memory_account account; /* as accounted with its GPU */
	struct evidence evidence;
	uint64_t doubted;        /* of what it has, or, if it is hung, may have on its GPU */
	uint64_t doubted_second; /* of its second context */
	uint64_t asked_ns;
	uint64_t refused_ns;  /* a refusal was last logged */
	uint32_t n_failed;    /* stops and returns in a row */
	uint32_t last_failed; /* enum nvshare_outcome of the last one */
	uint64_t nonce;
	bool is_beat_asked;  /* a heartbeat is unanswered */
	bool is_growing;     /* held for what it lacks; else for its turn */
	uint64_t held_epoch; /* of the report with that */
	bool is_held;        /* on server::held */
	struct peer *prev;   /* server::held */
	struct peer *next;
	struct nvshare_mem mem;
	struct nvshare_host_memory host; /* as it was told last */
	bool is_host_taker;              /* it may be evicted, and takes host memory for that */
	char name[NVSHARE_NAME_LEN];
	char pod[NVSHARE_POD_LEN];

	uint32_t queue_len;              /* bytes */
	uint8_t queue[PEER_QUEUE_BYTES]; /* whole packets, back to back */
};

enum {
	PEER_E_SUCCESS_,
	PEER_E_OVERFLOW, /* it does not read: the message is lost, close it */
};

/* Takes fd. */
void peer_init(struct peer *peer, int fd, const struct sock_peer *cred);
void peer_deinit(struct peer *peer);

/* Queues, for peer_flush(). 0 or PEER_E_OVERFLOW. */
int peer_queue(struct peer *peer, const struct msg *msg);

/* Sends, or queues what does not go out. 0, PEER_E_OVERFLOW, or -errno: the connection is broken.
 */
int peer_send(struct peer *peer, const struct msg *msg);

/*
 * Sends what is queued and then msg, with a copy of the descriptor passed. 0, or -errno: msg was
 * not sent; -EAGAIN: the peer reads too slowly.
 */
int peer_pass(struct peer *peer, const struct msg *msg, int passed);

/* Sends what is queued, as far as it goes. 0 or -errno. */
int peer_flush(struct peer *peer);

/* The epoll events that it needs now. */
uint32_t peer_events(const struct peer *peer);

#endif
