/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_AGENT_LINK_H
#define NVS_HOOK_AGENT_LINK_H

/*
 * The connection of each GPU. The agent uses it, and share, which reports over the same connection
 * when the program works.
 *
 * Threading: the agent's thread alone.
 */

#include "core/client/lease.h"
#include "hook/gate/device.h"
#include "hook/pager/pager.h"
#include "hook/share/share.h"
#include "ipc/msg.h"
#include "util/clock.h"

#define AGENT_NEVER          UINT64_MAX
#define AGENT_QUEUE_MAX      8
#define AGENT_BACKOFF_NS_MIN (100 * CLOCK_NS_PER_MS) /* until it is tried again */

enum agent_link_state {
	AGENT_LINK_DOWN, /* no connection */
	AGENT_LINK_BUSY, /* no connection; the scheduler has no time, and is asked again soon */
	AGENT_LINK_REGISTERING, /* REGISTER is sent */
	AGENT_LINK_UP,
};

/* Why a program has no scheduler. */
enum agent_absence {
	AGENT_ABSENCE_NONE,
	AGENT_ABSENCE_NO_SOCKET,   /* nobody listens */
	AGENT_ABSENCE_BUSY,        /* its queue of connections is full */
	AGENT_ABSENCE_TURNED_AWAY, /* it closed the connection without an answer */
	AGENT_ABSENCE_SILENT,      /* it did not answer in time */
	AGENT_ABSENCE_FULL,        /* NVSHARE_REGISTER_FULL */
	AGENT_ABSENCE_GPU,         /* NVSHARE_REGISTER_GPU, or NO_FIT */
	AGENT_ABSENCE_VERSION,     /* it speaks another version of the protocol */
	AGENT_ABSENCE_DESCRIPTORS, /* this process has none left for a connection */
};

/* Copies ahead of an eviction (agent_ahead.c). */
enum agent_ahead {
	AGENT_AHEAD_NONE,
	AGENT_AHEAD_COPYING,
	AGENT_AHEAD_DONE, /* what is copied is kept for as long as the scheduler leaves it so */
};

/* The context that memory of a device is moved in (agent_enter_context()). */
struct agent_place {
	struct device_context *held; /* the program's, which stays meanwhile; NULL: it has none */
	CUcontext ctx;
	bool is_pager_context; /* ctx is the pager's */
};

/* A connection and a lease, for each device that the program uses. Times are of clock_now_ns(). */
struct agent_link {
	CUdevice dev;
	uint8_t uuid[16];
	uint64_t total; /* bytes */

	enum agent_link_state state;
	int fd; /* -1: none */
	struct lease lease;
	bool is_broken; /* to be closed, as soon as nothing uses it */
	bool was_registered;
	bool has_run;                 /* some scheduler has let it run */
	bool is_running;              /* the last REGISTER said that the program runs */
	bool is_refused;              /* the scheduler refused the last REGISTER */
	bool is_missed;               /* the loss of this scheduler has been noted */
	struct nvshare_claim claimed; /* in the last REGISTER */
	enum agent_absence absence;   /* the reason in the answer to REGISTER */
	uint32_t absence_detail;      /* the scheduler's version, if that is the reason */
	bool is_away;                 /* tries to connect failed, and no thread waits any more */
	uint64_t busy_ns;             /* the end of BUSY; 0: it has not begun */
	uint64_t retry_ns;            /* when to connect again */
	uint64_t backoff_ns;          /* the pause before the next try */
	bool is_wrong;                /* closed because the scheduler was wrong, or silent */
	uint64_t up_ns;               /* when it was registered */
	uint64_t mistrust_ns; /* the least pause, since the scheduler failed before it let us run */
	uint64_t register_ns; /* the latest time for the answer to REGISTER */
	uint64_t quiet_ns;    /* it waits, and has heard nothing since then; 0: it does not wait */
	uint64_t ping_ns;     /* when PING was sent, unanswered so far; 0: it was not */
	uint64_t orphan_ns;   /* when LEASE_EVENT_ORPHAN_TIME is due; AGENT_NEVER: not */
	bool is_orphan_late;  /* it has been due before */

	bool is_watched;     /* a client waits for this GPU */
	bool is_near;        /* none does, and one is expected */
	bool may_hand_over;  /* the last REGISTER said so */
	bool may_borrow;     /* the driver can, and the scheduler may send descriptors */
	bool takes_slabs;    /* so can the scheduler */
	bool has_borrowed;   /* BORROW was sent on this connection */
	uint32_t slab_node;  /* the GPU's NUMA node */
	uint64_t hand_bytes; /* so many bytes of the next eviction are handed over; 0: none */
	uint64_t pager_context_max; /* bytes that a pager context may cost, by the last message */
	bool lacks_pager_context;   /* there was no room for one when it was needed */
	uint32_t told_how;          /* enum nvshare_halt, in the log */
	uint64_t spare_ns;          /* when to give up what a stop needs; AGENT_NEVER: keep it */
	bool is_host_loose;         /* host memory in use may be unregistered */
	bool is_report_due;
	uint64_t report_ns;          /* no report before this time */
	struct nvshare_mem reported; /* by the last report */
	uint64_t charge;       /* bytes that the scheduler counted as ours at the last DROP_LOCK */
	struct pager_move out; /* the last eviction */
	uint64_t out_asked;    /* bytes that the eviction under way is to move; 0: there is none */
	uint64_t out_told;     /* the part of them that the scheduler knows to be out */
	uint64_t host_lacked;  /* bytes of host memory that the eviction under way lacks */
	uint64_t host_coming;  /* bytes of it that others will give back, by the last order */

	struct pager_moving *moving; /* memory is on its way; NULL: none is */
	struct agent_place place;    /* where it is moved */
	uint64_t step_ns;            /* when the move goes on */
	bool was_wanting;            /* when the work of the lease that is under way began */
	bool was_holding;
	bool was_dropped;     /* the work began by an order */
	struct pager_move in; /* restored since the last report */

	struct share_link share;

	bool takes_orion;           /* the scheduler takes ORION */
	uint64_t orion_ns;          /* no ORION before this time */
	struct nvshare_orion orion; /* the last one of this connection */

	bool takes_gang;   /* the scheduler takes GANG */
	bool is_in_gang;   /* GANG was sent on this connection */
	bool takes_bypass; /* the scheduler takes NVSHARE_REPORT_BYPASS */
	bool takes_clean;  /* the scheduler takes CLEAN, and this program copies ahead */
	enum agent_ahead ahead;
	uint64_t ahead_ns;    /* no piece before this time; AGENT_NEVER: when the bell rings */
	uint64_t ahead_saved; /* pager_copies::saved by the last report */
	uint64_t ahead_clean; /* pager_copies::clean by it */

	uint32_t n_queued; /* messages that the socket has not taken yet */
	struct msg queue[AGENT_QUEUE_MAX];
};

struct agent_link *agent_link_of(CUdevice dev);              /* NULL: dev is not used */
struct agent_link *agent_link_next(struct agent_link *link); /* of NULL: the first one */
#define agent_for_each_link(l) \
	for (struct agent_link *l = agent_link_next(NULL); l; l = agent_link_next(l))
void agent_link_send(struct agent_link *link, uint16_t type, const void *body);

/*
 * sync_gate: opens or closes the gate, as all leases and share want it together. counts: the gate
 * depends on the lease of link. is_stopped: such a lease is not open.
 */
void agent_lease_sync_gate(void);
bool agent_lease_counts(const struct agent_link *link);
bool agent_lease_is_stopped(void);

/* How the program would be stopped now: enum nvshare_halt. */
uint32_t agent_halt_how(struct agent_link *link);

/*
 * Proves that freezing works on dev, or on all GPUs with a context, if that can be done now.
 * is_busy: work is under way. is_proven: of all of them.
 */
void agent_halt_prove(CUdevice dev, bool is_busy);
void agent_halt_prove_all(bool is_busy);
bool agent_halt_is_proven(void);

#endif
