/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_FREEZE_WORD_H
#define NVS_CORE_FREEZE_WORD_H

/*
 * The word that says whether a process's channels are off its GPUs, and how it may change.
 *
 * Pure: a step maps a word to the next one, and whoever shares the word applies it by
 * compare-and-swap. Three parties do: the agent freezes, commits and thaws; the watchdog thaws
 * what is frozen and not committed; a thread that has just made a channel takes it off as long as
 * the others are. Rules that keep them apart:
 *
 *   - a thread first records its channel, then asks (BORN); the freezer first says
 *     FREEZING, then looks at the records: one of the two sees the channel;
 *   - who thaws first says THAWING, which refuses new BORN, then waits until none is under
 *     way (freeze_word_births()), then puts every recorded channel back;
 *   - a thread that does what a freeze must not meet (HOLD) keeps one from beginning, and
 *     waits for one that has begun;
 *   - nobody else thaws while the agent takes channels off, at first (BEGIN) or later (WIDEN).
 *
 * Layout: state in the lowest bits, then the births under way, or the holds when running, then the
 * epoch.
 */

#include <stdint.h>

enum freeze_word_state {
	FREEZE_WORD_RUNNING,
	FREEZE_WORD_FREEZING,
	FREEZE_WORD_FROZEN,    /* every channel is off; the watchdog may thaw */
	FREEZE_WORD_COMMITTED, /* the agent alone may thaw */
	FREEZE_WORD_THAWING,
	FREEZE_WORD_STATE_COUNT_
};

enum freeze_word_event {
	FREEZE_WORD_BEGIN,   /* agent: is going to take the channels off */
	FREEZE_WORD_FAIL,    /* agent: could not; has to put them back */
	FREEZE_WORD_OFF,     /* agent: they are off */
	FREEZE_WORD_WIDEN,   /* agent: is going to take more of them off */
	FREEZE_WORD_COMMIT,  /* agent */
	FREEZE_WORD_END,     /* agent: is going to put them back */
	FREEZE_WORD_EXPIRE,  /* watchdog: is going to put them back */
	FREEZE_WORD_THAWED,  /* who said FAIL, END or EXPIRE: they are back */
	FREEZE_WORD_BORN,    /* any thread: is going to take its new channel off */
	FREEZE_WORD_SETTLED, /* the same: it is off, or gone */
	FREEZE_WORD_HOLD,    /* any thread: no freeze from here on */
	FREEZE_WORD_DROP,    /* the same: is through */
	FREEZE_WORD_EVENT_COUNT_
};

enum {
	FREEZE_WORD_E_SUCCESS_,
	FREEZE_WORD_E_STATE, /* not in this state; for BORN: there is nothing to do */
	FREEZE_WORD_E_COUNT, /* births or holds are in the way, too many, or none */
};

enum { FREEZE_WORD_COUNT_MAX = 4095 };

/* 0 or a FREEZE_WORD_E_*; a refused event leaves *ret_next alone. */
int freeze_word_step(uint64_t word, enum freeze_word_event event, uint64_t *ret_next);

enum freeze_word_state freeze_word_state(uint64_t word);
uint32_t freeze_word_births(uint64_t word); /* when running: holds */
uint64_t freeze_word_epoch(uint64_t word);  /* grows with every THAWED */

#endif
