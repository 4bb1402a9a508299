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

#include "hook/agent/agent.h"
#include "hook/agent/agent_link.h"
#include "hook/gate/device.h"
#include "hook/pager/pager_ops.h"

/* agent.c */
void agent_link_remove(CUdevice dev);          /* as if it had never been used */
void agent_settle(CUdevice dev, CUresult res); /* the answer for agent_use_device() */
/* agent_moving.c, and give_host of agent_halt.c: what the pager asks for (pager_ops.h). */
void agent_moved_out(CUdevice dev, uint64_t bytes);
enum pager_more agent_more_budget(CUdevice dev, int wait_ms);
bool agent_await_host(CUdevice dev, uint64_t moved, uint64_t bytes, int wait_ms);
void agent_give_host(CUdevice dev);

/* agent_link.c */
void agent_link_connect(struct agent_link *link);
void agent_link_close(struct agent_link *link); /* LOST, if it was registered */
void agent_link_wrong(struct agent_link *link); /* what the scheduler says can not be: it ends */
void agent_link_receive(struct agent_link *link);
bool agent_link_hear(const struct agent_link *link, int wait_ms);       /* something has come */
bool agent_link_receive_if(struct agent_link *link, uint16_t msg_type); /* only if that is next */
void agent_link_flush(struct agent_link *link);
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
bool agent_halt_is_frozen(void);               /* the last stop ended in a freeze */
uint32_t agent_halt_evicted(uint32_t outcome); /* what it comes to: TIMEOUT: thawed */
void agent_resume(void);
void agent_halt_reset(void); /* after fork() */

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
