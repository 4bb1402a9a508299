/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_HOOK_VIRTUAL_CLOCK_H
#define NVS_TESTS_HOOK_VIRTUAL_CLOCK_H

/*
 * Virtual time, in place of util/clock.h. Time stands still while any thread of the process can
 * run. When all wait, it jumps to the end of the wait that ends first. So a test takes no decision
 * by how fast the machine is, and waits of minutes take none.
 *
 * One thread, the hand, moves the time. It sees in /proc that all others sleep. Waits that are no
 * calls of util/clock.h (a gate, a lock, pthread_join(), waitpid()) count as sleep, too: a test
 * must not sleep by the real clock. A thread that stays awake until a time (it reads the clock
 * again and again) lets time pass with that.
 *
 * A program that refers to one of these functions has the virtual clock linked in. Until it is
 * started, and in a forked child until it is started there, time is real. Thread-safe.
 */

#include <stdint.h>

/* It ends the process with a message when nothing moves any more, or too long. */
void virtual_clock_start(void);

/* Time is real again: the process ends, and a sanitizer may sleep before it does. */
void virtual_clock_stop(void);

/* Until all other threads wait; no time passes. */
void virtual_clock_settle(void);

/* So much time passes in which no thread gets to run, as on a machine that stands still. */
void virtual_clock_skip(uint64_t ns);

#endif
