/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_FREEZE_PRIVATE_H
#define NVS_HOOK_FREEZE_PRIVATE_H

/*
 * What the parts of freezing share. freeze.c: the word and its transitions;
 * freeze_switch.c: channels off and on; freeze_prove.c: does it work here; freeze_why.c:
 * may it be done here; freeze_watchdog.c: the thread; rm_watch.c: what comes and goes.
 */

#include "hook/freeze/channels.h"
#include "hook/freeze/freeze.h"

/* rm_watch.c, any thread: false: the new channel could not be taken off and must go. */
bool freeze_newborn(const struct channels_batch *channel);

/* freeze.c, the watchdog's thread. */
void freeze_expire(uint64_t epoch); /* that freeze, not a later one */

/* freeze_switch.c. 0; else a status of the driver, or -errno. */
int freeze_switch(const struct channels_batch *batch, bool is_off);
/* The program's channels. 0, FREEZE_E_NO_CHANNELS, _REFUSED, _BUSY: some are just going. */
int freeze_switch_off(enum channels_scope scope);
/* 0, or FREEZE_E_REFUSED: some would not, in several tries; is_again: in one. */
int freeze_switch_on(enum channels_scope scope, bool is_again);
/* Timeslices: any thread. After the driver has made a group (us is 0), or timed one. */
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
	FREEZE_WHY_LOST, /* channels_why_lost() */
	FREEZE_WHY_COUNT_
};
void freeze_why_set(enum freeze_why why); /* for ever; the first one counts */
void freeze_why_after_fork_child(void);

/* freeze_watchdog.c: calls freeze_expire(epoch) at this time, once. start: 0, or -errno. */
int freeze_watchdog_start(void);
void freeze_watchdog_arm(uint64_t at_ns, uint64_t epoch); /* UINT64_MAX: not */
void freeze_watchdog_after_fork_child(void);

void freeze_prove_after_fork_child(void);
void freeze_switch_after_fork_child(void);

#endif
