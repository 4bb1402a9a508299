/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_SHARE_H
#define NVS_HOOK_SHARE_H

/*
 * The process's share of its GPU's time: the length of its timeslices, the times when it is kept
 * off the GPU (for other clients, or by its own limit), and its reports of work.
 *
 * Nothing here moves memory. To keep the program off, its compute channels are frozen, and the
 * watchdog stands behind that. Where freezing cannot be had, its gate is closed, so that no new
 * work starts. A stop of the program (agent_halt.c) comes before all of this.
 *
 * An idle program costs nothing: its gate is armed, and tells when it works again.
 *
 * Threading: the agent's thread, unless a function says otherwise.
 */

#include "nvshare/nvshare.h"
#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stdint.h>

struct agent_link;

/* The scheduler's settings for a link's GPU. All zero while there is no scheduler. */
struct share_link {
	struct nvshare_claim claim; /* the claim that was given */
	uint32_t client;
	uint64_t slice_us;
	uint64_t use_ppm;  /* 0: unknown */
	bool is_shared;    /* others run beside it, so its work is reported at once */
	bool is_slice_due; /* slice_us is to be set as soon as there is a context */
	bool is_told_busy; /* the last report said busy; of a program with several GPUs */
	bool can_freeze;   /* as far as was known at registration */
};

/*
 * admitted: from here on the program's threads send their claims to the scheduler. false: a thread
 * has claimed something since link registered, so it must register again.
 */
bool share_admitted(const struct agent_link *link, const struct nvshare_registered *body);
void share_registered(struct agent_link *link, const struct nvshare_registered *body);
void share_lost(struct agent_link *link);

/* The scheduler has told link to stop, and has forgotten its activity, even if the stop failed. */
void share_dropped(struct agent_link *link);

/* Carries out SET_SHARE, and answers it. */
void share_set(struct agent_link *link, const struct nvshare_set_share *body);

/* Keeps a claim that the scheduler has set, for the next scheduler, too. */
void share_adopt(struct agent_link *link, const struct nvshare_claim *claim);

/* Does what is due, and reports news. Returns when to call it again. */
uint64_t share_tick(uint64_t now_ns);

/* The program's memory stays where it is, and idleness gives no GPU away. */
bool share_is_critical(const struct agent_link *link);

/*
 * The program is kept off the GPU now, by a freeze or by the gate, which must stay closed. let_go
 * ends all reasons; the caller opens the gate. hand_over: the freeze goes on as the caller's, of
 * all channels, for limit_ns; false: it has ended.
 */
bool share_is_frozen(void);
bool share_bars_gate(void);
void share_let_go(void);
bool share_hand_over(uint64_t limit_ns);

/*
 * Any thread. wanted: the claim for the next scheduler, from settings and share_claim(). claim_now:
 * the claim that counts: the given one, where there is a scheduler.
 */
void share_wanted(struct nvshare_claim *ret);
void share_claim(enum nvshare_key key, uint32_t value);
void share_claim_now(struct nvshare_claim *ret);

/* The calls of nvshare.h, for any thread, with their results. */
int share_hint(uint32_t us);
int64_t share_request_begin(void);
int share_request_end(int64_t request);
int share_status(int device, struct nvshare_status *ret);
bool share_client(unsigned int i, uint32_t *ret_client); /* the i-th registered client */

void share_after_fork_child(void);

#endif
