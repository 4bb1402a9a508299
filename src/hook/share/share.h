/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_SHARE_H
#define NVS_HOOK_SHARE_H

/*
 * The process's share of its GPU's time: how long its timeslices are, when it is kept off
 * the GPU for others or by its own limit, and what the scheduler is told of its work.
 *
 * Nothing here moves memory. Kept off is: its compute channels are frozen, with the watchdog
 * behind, or, where that can not be, its gate is closed, so that at least nothing new starts.
 * A stop of the program (agent_halt.c) comes before all of this.
 *
 * While nothing has to be known this costs nothing: an idle program is noticed again by its
 * gate, which is armed then.
 *
 * Threading: the agent's thread, but where it says otherwise.
 */

#include "nvshare/nvshare.h"
#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stdint.h>

struct agent_link;

/* What the scheduler said of a link's GPU; zeroed while there is none. */
struct share_link {
	struct nvshare_claim claim; /* as it was given */
	uint32_t client;
	uint64_t slice_us;
	uint64_t use_ppm;  /* 0: not said */
	bool is_shared;    /* others run beside: what it does is to be told at once */
	bool is_slice_due; /* there was no context yet */
	bool is_told_busy; /* it was told so last; of a program with several GPUs */
	bool can_freeze;   /* as far as was known when it registered */
};

/*
 * admitted: from here on the program's threads tell the scheduler what they claim. false: one
 * has claimed something since link registered, which nobody has told it: once more, then.
 */
bool share_admitted(const struct agent_link *link, const struct nvshare_registered *body);
void share_registered(struct agent_link *link, const struct nvshare_registered *body);
void share_lost(struct agent_link *link);

/*
 * link had the GPU, and was told to stop: whether it has or not, the scheduler knows no more what
 * it was at.
 */
void share_dropped(struct agent_link *link);

/* Does what body asks, and answers it. */
void share_set(struct agent_link *link, const struct nvshare_set_share *body);

/* What the scheduler has set of link is claimed of the next one, too. */
void share_adopt(struct agent_link *link, const struct nvshare_claim *claim);

/* What is due, is done, and what has happened is told; returns when to call it again. */
uint64_t share_tick(uint64_t now_ns);

/* The program's memory stays where it is, and idleness gives no GPU away. */
bool share_is_critical(const struct agent_link *link);

/*
 * Kept off the GPU just now: by a freeze, and by the gate, which must not open before.
 * let_go: it is not any more, whatever the reason was; the gate is the caller's to open.
 * hand_over: the freeze goes on as the caller's, of all channels, for limit_ns. false: there
 * is none any more.
 */
bool share_is_frozen(void);
bool share_bars_gate(void);
void share_let_go(void);
bool share_hand_over(uint64_t limit_ns);

/*
 * From any thread. wanted: what to claim of a scheduler, by the settings or since; claim
 * changes that. claim_now: what counts, which is what was given where there is one.
 */
void share_wanted(struct nvshare_claim *ret);
void share_claim(enum nvshare_key key, uint32_t value);
void share_claim_now(struct nvshare_claim *ret);

/* For the calls of nvshare.h, from any thread: 0, or what those say. */
int share_hint(uint32_t us);
int64_t share_request_begin(void);
int share_request_end(int64_t request);
int share_status(int device, struct nvshare_status *ret);
bool share_client(unsigned int i, uint32_t *ret_client); /* the i-th that is registered */

void share_after_fork_child(void);

#endif
