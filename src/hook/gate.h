/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_GATE_H
#define NVS_HOOK_GATE_H

/*
 * The gate between the program's threads and the driver: everything that submits work
 * or takes memory passes it. One gate a process.
 *
 * Open: gate_enter() and gate_leave() cost a per-thread store, a fence and a load; no
 * lock, no system call, no shared write. Closed: gate_enter() blocks; the agent hears
 * of it by gate_wanted().
 *
 * Closing has two steps, because a program in the middle of a stream capture must be
 * let finish it: first no new capture starts (gate_close_captures), then, with no
 * capture open, nothing enters (gate_close). gate_quiet() says when nobody is inside.
 *
 * Threading: enter/leave from any thread, nested calls allowed; the rest is the agent's.
 * After fork() the child has an open gate and no other thread inside.
 */

#include <stdbool.h>
#include <stdint.h>

enum gate_state { GATE_OPEN, GATE_NO_CAPTURES, GATE_CLOSED };

void gate_enter(void); /* blocks while closed; never fails; keeps errno */
void gate_leave(void);

/* Around cuStreamBeginCapture*: waits while captures are barred. Counts open captures. */
void gate_enter_capture(void);
/* began: the driver's BeginCapture on stream succeeded. */
void gate_leave_capture(const void *stream, bool began);
/* The capture on stream ended, failed to the end, or its stream is destroyed. */
void gate_capture_ended(const void *stream);
bool gate_capture_open(void); /* any capture of the process open now */

void gate_set(enum gate_state state);
enum gate_state gate_get(void);
bool gate_quiet(void); /* no thread but the caller's is inside */
uint64_t gate_activity(void); /* grows with every gate_enter(); sums threads; for idleness */

/* Called, once per closing, by the first thread that has to wait. Set before the agent starts. */
void gate_set_waker(void (*wake)(void));
bool gate_wanted(void); /* a thread waits at the closed gate now */

void gate_after_fork_child(void);

#endif
