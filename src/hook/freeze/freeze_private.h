/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_FREEZE_PRIVATE_H
#define NVS_HOOK_FREEZE_PRIVATE_H

/*
 * The parts of freezing: freeze.c moves the word; freeze_switch.c takes channels off and on;
 * freeze_prove.c proves that it works here; freeze_why.c knows whether it may be done here;
 * freeze_watchdog.c is the thread; rm_watch.c sees channels come and go.
 */

#include "hook/freeze/channels.h"
#include "hook/freeze/freeze.h"

/*
 * freeze.c, called by rm_watch.c in any thread. A channel has been made; a freeze that is on takes
 * it off. false: that failed, and the channel must be destroyed.
 */
bool freeze_newborn(const struct channels_batch *channel);

/* freeze.c, called by the watchdog. Thaws the freeze of this epoch, and no later one. */
void freeze_expire(uint64_t epoch);

/* freeze_switch.c. 0, a status of the driver, or -errno. */
int freeze_switch(const struct channels_batch *batch, bool is_off);
/* The program's channels. 0, FREEZE_E_NO_CHANNELS, _REFUSED, or _BUSY: some are going. */
int freeze_switch_off(enum channels_scope scope);
/* 0, or FREEZE_E_REFUSED: some stayed off in several tries; is_again: in one try. */
int freeze_switch_on(enum channels_scope scope, bool is_again);
/* Any thread. The driver has made a group (us is 0), or has set its timeslice to us. */
void freeze_on_group(int fd, uint32_t client, uint32_t group, uint64_t us);

/* freeze_why.c */
enum freeze_why {
	FREEZE_WHY_NONE_,
	FREEZE_WHY_OFF,
	FREEZE_WHY_INJECTED,
	FREEZE_WHY_TRACED,
	FREEZE_WHY_MPS,
	FREEZE_WHY_COHERENT,
	FREEZE_WHY_CONFIDENTIAL,
	FREEZE_WHY_NOT_OFFERED,
	FREEZE_WHY_STAYED_OFF,
	FREEZE_WHY_NO_WRITES,
	FREEZE_WHY_REFUSED,
	FREEZE_WHY_WRITE_FAILED,
	FREEZE_WHY_NEVER_WENT_ON,
	FREEZE_WHY_WENT_ON,
	FREEZE_WHY_LOST,   /* channels_why_lost() */
	FREEZE_WHY_BYPASS, /* bypass.h */
	FREEZE_WHY_COUNT_
};
void freeze_why_set(enum freeze_why reason); /* for good; the first one counts */
void freeze_why_after_fork_child(void);

/* freeze_watchdog.c. start: 0, or -errno. arm: it calls freeze_expire(epoch) at at_ns, once. */
int freeze_watchdog_start(void);
void freeze_watchdog_arm(uint64_t at_ns, uint64_t epoch); /* UINT64_MAX: not at all */
void freeze_watchdog_after_fork_child(void);

void freeze_prove_after_fork_child(void);
void freeze_switch_after_fork_child(void);

#endif
