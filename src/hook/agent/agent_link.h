/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_AGENT_LINK_H
#define NVS_HOOK_AGENT_LINK_H

/*
 * The connection of each GPU, for the rooms whose code runs in the agent's thread: the agent itself
 * and share, which says over the same connection when the program works.
 *
 * Threading: everything here belongs to the agent's thread.
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
	AGENT_LINK_DOWN,        /* no connection */
	AGENT_LINK_BUSY,        /* none yet: the scheduler is there, and is asked again soon */
	AGENT_LINK_REGISTERING, /* REGISTER sent */
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
	AGENT_ABSENCE_DESCRIPTORS, /* of this process none is left for a connection */
};

/* One a device that the program uses: a connection and a lease. */
struct agent_link {
	CUdevice dev;
	uint8_t uuid[16];
	uint64_t total; /* bytes */

	enum agent_link_state state;
	int fd; /* -1: none */
	struct lease lease;
	bool is_broken; /* to be closed, as soon as nobody is using it */
	bool was_registered;
	bool is_fixed;                /* registers as one that can not take turns */
	bool is_running;              /* it said so as it registered last */
	bool is_refused;              /* the scheduler did not take it as it registered last */
	bool is_missed;               /* it has been noted as lost, since it was there last */
	struct nvshare_claim claimed; /* as it registered last */
	enum agent_absence absence;   /* what the answer to REGISTER said, before it is closed */
	uint32_t absence_detail;      /* the scheduler's version, if that is it */
	bool is_away;                 /* it came to nothing, and nobody waits for it any more */
	uint64_t busy_ns;             /* BUSY ends then; 0: it has not begun */
	uint64_t retry_ns;            /* when to connect again */
	uint64_t backoff_ns;
	bool is_wrong;        /* it is closed because of what the scheduler said, or did not say */
	uint64_t up_ns;       /* it was registered then */
	uint64_t mistrust_ns; /* no less is backed off, since it failed before it let us run */
	uint64_t register_ns; /* an answer to REGISTER is awaited until then */
	uint64_t quiet_ns;    /* waiting, and nothing was heard since then; 0: it does not wait */
	uint64_t ping_ns;     /* PING was sent, and nothing heard since; 0: not */
	uint64_t orphan_ns;   /* LEASE_EVENT_ORPHAN_TIME is due then; AGENT_NEVER: not */
	bool is_orphan_late;  /* it has been due before */

	bool is_watched;     /* somebody waits for this GPU */
	bool is_near;        /* nobody does, but is expected to */
	bool may_hand_over;  /* it said so as it registered last */
	uint64_t hand_bytes; /* of the next eviction, so much goes to another; 0: none */
	uint64_t second_max; /* bytes that a second context may cost, as said last */
	bool lacks_second;   /* there was no room for one as it was needed last */
	uint32_t told_how;   /* enum nvshare_halt, in the log */
	uint64_t spare_ns;   /* what a stop needs is given up then; AGENT_NEVER: it is kept */
	bool is_host_loose;  /* host memory in use may be registered nowhere */
	bool is_report_due;
	uint64_t report_ns; /* no report before then */
	struct nvshare_mem reported;
	uint64_t charge;       /* bytes that the scheduler counted as ours at the last DROP_LOCK */
	struct pager_move out; /* of the last eviction */
	uint64_t out_asked;    /* of the eviction under way, bytes; 0: none */
	uint64_t out_told;     /* of these the scheduler knows */
	uint64_t host_lacked;  /* by the eviction under way, bytes */
	struct pager_move in;  /* since the last report */

	struct share_link share;

	uint32_t n_queued; /* messages that the socket did not take yet */
	struct msg queue[AGENT_QUEUE_MAX];
};

struct agent_link *agent_link_of(CUdevice dev);              /* NULL: not used */
struct agent_link *agent_link_next(struct agent_link *link); /* NULL: the first */
void agent_link_send(struct agent_link *link, uint16_t type, const void *body);

/* The gate, as all leases and share together want it. */
void agent_lease_sync_gate(void);

/* enum nvshare_halt: how the program would be stopped now. */
uint32_t agent_halt_how(struct agent_link *link);

/* That the program can be frozen; perhaps not now. */
void agent_halt_prove(CUdevice dev, bool is_busy);

#endif
