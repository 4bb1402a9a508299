/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_AGENT_PRIVATE_H
#define NVS_HOOK_AGENT_PRIVATE_H

/*
 * What the parts of the agent share. agent.c: thread and loop; agent_link.c: the
 * connection; agent_absence.c: there is none; agent_lease.c: events into the lease, its actions
 * out; agent_moving.c: what is said and heard meanwhile; agent_halt.c: stopping the program;
 * agent_watch.c: is the process idle; agent_pair.c: a second GPU.
 *
 * Threading: everything here belongs to the agent's thread, but what says otherwise.
 */

#include "core/client/lease.h"
#include "hook/agent/agent.h"
#include "hook/device.h"
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

/* agent.c */
struct agent_link *agent_link_of(CUdevice dev);              /* NULL: not used */
struct agent_link *agent_link_next(struct agent_link *link); /* NULL: the first */
void agent_link_remove(CUdevice dev);                        /* as if it had never been used */
void agent_settle(CUdevice dev, CUresult res);               /* the answer for agent_use_device() */
void agent_set_context_bytes(CUdevice dev, uint64_t bytes);
bool agent_take_wanted(CUdevice dev);  /* a thread lacks memory, and this was not told yet */
bool agent_take_changed(CUdevice dev); /* memory changed since the last call */

/* agent_link.c */
void agent_link_connect(struct agent_link *link);
void agent_link_close(struct agent_link *link); /* LOST, if it was registered */
void agent_link_wrong(struct agent_link *link); /* what the scheduler says can not be: it ends */
void agent_link_receive(struct agent_link *link);
bool agent_link_hear(const struct agent_link *link, int wait_ms);       /* something has come */
bool agent_link_receive_if(struct agent_link *link, uint16_t msg_type); /* only if that is next */
void agent_link_flush(struct agent_link *link);
void agent_link_send(struct agent_link *link, uint16_t type, const void *body);
bool agent_link_wants_retry(const struct agent_link *link);
uint64_t agent_link_listen(struct agent_link *link, uint64_t now_ns); /* due again; NEVER */

/* It is asked, or is about to be, and has not answered. */
bool agent_link_is_coming(const struct agent_link *link);

/*
 * agent_absence.c. of: what connect() failed with. tell: one line a process and reason; detail:
 * NO_SOCKET: the error, VERSION: the scheduler's version. has_descriptors: enough for ours, and
 * some for the driver's.
 */
enum agent_absence agent_absence_of(int error);
void agent_absence_tell(enum agent_absence why, uint32_t detail);
bool agent_absence_has_descriptors(void);

/*
 * begin: a try to connect has come to nothing; BUSY, or what follows. The rest of them are its
 * parts, for a connection that has ended otherwise. retry: when to connect again. mistrust: after
 * one that was registered: whether to be slower about it. miss: there was a scheduler, so a full
 * card may get room. settle: whoever makes a context goes on.
 */
void agent_absence_begin(struct agent_link *link, enum agent_absence why, uint32_t detail);
void agent_absence_retry(struct agent_link *link);
void agent_absence_mistrust(struct agent_link *link);
void agent_absence_miss(struct agent_link *link);
void agent_absence_settle(struct agent_link *link);

/* agent_lease.c */
void agent_lease_step(struct agent_link *link, const struct lease_event *event);
void agent_lease_want(struct agent_link *link); /* a thread waits, perhaps: tells the lease */
void agent_lease_report(struct agent_link *link, bool is_urgent);
void agent_lease_sync_gate(void);
void agent_lease_memory(CUdevice dev, struct nvshare_mem *ret_mem); /* for a report */
uint64_t agent_lease_budget(CUdevice dev, const struct nvshare_mem *mem);

/*
 * Driver calls of the pager need a context of the device, current for the agent. false:
 * there is none, of the program's or of ours.
 */
struct agent_place {
	struct device_context *held; /* of the program's: stays meanwhile; NULL: it has none */
	bool is_second;              /* it is ours that is current */
};
bool agent_enter_context(CUdevice dev, struct agent_place *ret_place);
void agent_leave_context(const struct agent_place *place);

/*
 * agent_halt.c. prepare: what a halt needs, ahead of it; is_urgent: it has been ordered. touch:
 * of that no more than host memory, as nobody waits yet; 0: none.
 * halt: nothing of the program runs and nothing new starts; bytes are to be evicted then. Returns
 * an enum nvshare_outcome; on any but SUCCESS the caller opens the gate again. resume: undoes it,
 * before the gate opens.
 */
bool agent_halt_prepare(struct agent_link *link, uint64_t bytes, bool is_urgent);
void agent_halt_touch(const struct agent_link *link, uint64_t bytes);
void agent_halt_wanted(const struct agent_link *link,
		       uint64_t bytes); /* of host memory, by others */
uint32_t agent_halt(struct agent_link *link, uint64_t bytes, bool is_idle);
uint32_t agent_halt_how(struct agent_link *link); /* enum nvshare_halt */
bool agent_halt_is_frozen(void);                  /* the last stop ended in a freeze */
uint32_t agent_halt_evicted(uint32_t outcome);    /* what it comes to: TIMEOUT: thawed */
void agent_resume(void);
void agent_halt_prove(CUdevice dev, bool is_busy); /* that it can be frozen; perhaps not now */
void agent_halt_reset(void);                       /* after fork() */

/*
 * What makes a stop quick (the second context, host memory) is kept for a while after it
 * was needed; who is idle, its memory out or not, needs neither before it has run again. keep: it
 * may be needed, or not any more. tick: returns when to call it again.
 */
void agent_halt_keep(struct agent_link *link);
uint64_t agent_halt_tick(struct agent_link *link, uint64_t now_ns);

/* agent_watch.c: returns when to call it again, AGENT_NEVER while nobody waits. */
uint64_t agent_watch_tick(uint64_t now_ns);

/*
 * agent_pair.c. begin: true when dev is not the process's only GPU, so that it is added
 * by agent_pair_step(), called whenever anything has happened.
 */
bool agent_pair_begin(struct agent_link *link);
void agent_pair_step(void);
bool agent_pair_owns(const struct agent_link *link); /* it settles what link asked for */
void agent_pair_reset(void);

#endif
