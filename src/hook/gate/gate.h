/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_GATE_H
#define NVS_HOOK_GATE_H

/*
 * The gate between the program's threads and the driver. A call passes it that submits work, takes
 * memory, or names memory that the driver looks up at once. A process has one gate.
 *
 * Open: gate_enter() and gate_leave() cost a fenced store of the thread's own, and a load. They
 * take no lock, make no system call and write nothing shared. Closed: gate_enter() blocks, and the
 * agent hears of it by gate_wanted().
 *
 * The agent closes in two steps, because a program must be let finish an open stream capture.
 * First no new capture starts (GATE_NO_CAPTURES). When no capture is open, nothing enters
 * (GATE_CLOSED). gate_quiet() says when all threads are out. A thread with an open capture may
 * begin another one, since it may need that to finish the first.
 *
 * The agent can arm an open gate (gate_arm()). It then hears of the next thread that enters, and
 * that thread does not wait.
 *
 * Threading: any thread may enter and leave, nested, too. The other functions are the agent's,
 * unless they say otherwise. After fork() the child has an open gate and no other thread inside.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum gate_state { GATE_OPEN, GATE_NO_CAPTURES, GATE_CLOSED };

void gate_enter(void);      /* blocks while closed; never fails; keeps errno */
void gate_enter_copy(void); /* gate_enter() for a copy to the GPU; gate_arm() tells them apart */
void gate_leave(void);

/* ---- captures: any thread ---- */

/* Around cuStreamBeginCapture*(): waits while captures are barred, and counts open captures. */
void gate_enter_capture(void);
/*
 * began: the driver has begun a capture on stream. ctx: green_place::id of its context; NULL:
 * unknown.
 */
void gate_leave_capture(const void *stream, const void *ctx, bool began);

/*
 * The number of the open capture on stream; 0: there is none. Ask before the driver ends the
 * capture or destroys the stream, because the handle may mean another stream afterwards.
 */
uint64_t gate_find_capture(const void *stream);
void gate_end_capture(uint64_t capture); /* it has ended, or failed for good; 0: nothing to do */
void gate_context_gone(const void *ctx); /* the same ctx; its captures are gone, too */
bool gate_capture_open(void);            /* some thread of the process has one open */

/*
 * The stream of a call at hand is in a capture, or the driver does not say. It is asked only while
 * some capture is open.
 */
bool gate_stream_captures(CUstream stream);
bool gate_thread_captures(void); /* the calling thread began one that is open */

/*
 * Around a synchronise, which would break a capture: keeps captures from beginning. false: a
 * capture is open or about to be, and nothing is barred.
 */
bool gate_bar_captures(void);
void gate_allow_captures(void);

/* ---- open and closed ---- */

void gate_set(enum gate_state state);
enum gate_state gate_get(void);
/*
 * How often work may have begun to run since the start: the gate has let threads pass, or frozen
 * work goes on. While the gate is closed and the number stays, nothing runs that did not run when
 * it was read.
 */
uint64_t gate_openings(void);
void gate_count_thaw(void); /* before frozen work goes on */

bool gate_quiet(void); /* no thread but the caller is inside */

/* A number for the threads inside without the caller. It changes as one comes or goes. 0: none. */
uint64_t gate_visits(void);

/*
 * Around a call that passes no gate, and that may keep a lock of the driver's while it waits for
 * the GPU. gate_guests() lists its thread, because memory is unmapped only after such calls have
 * settled. Any thread, nested.
 */
void gate_mark(void);
void gate_unmark(void);

/*
 * Around a visit in which the driver looks addresses up until the call returns, as it does for a
 * graph. Any thread, nested.
 */
void gate_begin_walk(void);
void gate_end_walk(void);

/* One visit of a thread. */
struct gate_guest {
	pid_t tid;
	uint64_t n_visits; /* of the thread so far, with this one */
	bool is_walking;   /* gate_begin_walk() */
};

/*
 * The threads that are inside or marked, without the caller. Returns how many there are; writes
 * n_max of them at most.
 */
size_t gate_guests(struct gate_guest *ret, size_t n_max);

/* The sum of all visits since the start. */
uint64_t gate_activity(void);

/* ---- armed ---- */

/*
 * Arms the gate: the next thread that enters disarms it and calls the waker. The first copy calls
 * the waker, too, and leaves the gate armed. false, and the gate is not armed: it is not open, or
 * some thread has entered since gate_activity() returned activity. gate_get() calls an armed gate
 * open. gate_set() disarms it. Arming sets both times below to 0.
 */
bool gate_arm(uint64_t activity);
bool gate_is_armed(void);
uint64_t gate_tripped_ns(void); /* when a thread disarmed it; 0: none has */
uint64_t gate_copied_ns(void);  /* when the first copy came; 0: none has */

/* ---- waiting ---- */

/*
 * The first thread that has to wait calls wake, once for each gate_set(). It is outside then. Set
 * this before the agent starts.
 */
void gate_set_waker(void (*wake)(void));
bool gate_wanted(void); /* a thread stands at the gate */

/* At exit: the calling thread passes from now on, in each state of the gate. */
void gate_pass_always(void);

/*
 * Stands for the calling thread's own default stream, since that has the same handle in all
 * threads. Its captures end with the thread. Any thread.
 */
const void *gate_thread_stream(void);

void gate_after_fork_child(void);

#endif
