/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_GATE_H
#define NVS_HOOK_GATE_H

/*
 * The gate between the program's threads and the driver: everything that submits work,
 * takes memory, or names memory that the driver looks up at once passes it. One gate a
 * process.
 *
 * Open: gate_enter() and gate_leave() cost a per-thread fenced store and a load; no
 * lock, no system call, no shared write. Closed: gate_enter() blocks; the agent hears
 * of it by gate_wanted().
 *
 * Closing has two steps, because a program in the middle of a stream capture must be
 * let finish it: first no new capture starts (GATE_NO_CAPTURES), then, with no capture
 * open, nothing enters (GATE_CLOSED). gate_quiet() says when nobody is inside. A thread
 * that has a capture open may begin another: it could not finish the first without.
 *
 * An open gate can be armed, so that the agent hears of the next thread that enters, which
 * does not wait for it: gate_arm().
 *
 * Threading: enter/leave from any thread, nested calls allowed; the rest is the agent's.
 * After fork() the child has an open gate and no other thread inside.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum gate_state { GATE_OPEN, GATE_NO_CAPTURES, GATE_CLOSED };

void gate_enter(void);      /* blocks while closed; never fails; keeps errno */
void gate_enter_copy(void); /* the same, for a copy to the GPU: gate_arm() */
void gate_leave(void);

/* Around cuStreamBeginCapture*: waits while captures are barred. Counts open captures. */
void gate_enter_capture(void);
/* began: the driver's BeginCapture on stream, which lives in ctx (or NULL), succeeded. */
void gate_leave_capture(const void *stream, const void *ctx, bool began);
/*
 * The open capture on stream, 0 if none; to be asked before the driver ends it or
 * destroys the stream, since afterwards the handle may already mean another one.
 */
uint64_t gate_find_capture(const void *stream);
void gate_end_capture(uint64_t capture); /* it ended, or failed to the end; 0: nothing */
void gate_context_gone(const void *ctx); /* and with it its streams and their captures */
bool gate_capture_open(void);            /* any capture of the process open now */
bool gate_thread_captures(void);         /* one that the calling thread began is open */

/*
 * Around a synchronise, which would break a capture that begins meanwhile: keeps captures
 * from beginning. false, and nothing is barred: one is open or about to be. Any thread.
 */
bool gate_bar_captures(void);
void gate_allow_captures(void);

void gate_set(enum gate_state state);
enum gate_state gate_get(void);
bool gate_quiet(void); /* no thread but the caller's is inside */
/* Which threads but the caller's are inside: another number when one comes or goes. 0: none. */
uint64_t gate_visits(void);

/*
 * Around a call that does not pass the gate, but is to be seen by who unmaps memory: one
 * that may keep a lock of the driver's while it waits for the GPU. Any thread, nested.
 */
void gate_mark(void);
void gate_unmark(void);

/*
 * Around a visit in which the driver looks addresses up to the end, as it walks through a graph.
 * Any thread, nested.
 */
void gate_begin_walk(void);
void gate_end_walk(void);

/* One visit of a thread. */
struct gate_guest {
	pid_t tid;
	uint64_t n_visits; /* with this one */
	bool is_walking;
};

/* Who is inside or marked but the caller: how many, of which at most n_max are written. */
size_t gate_guests(struct gate_guest *ret, size_t n_max);

uint64_t gate_activity(void); /* grows with every gate_enter(); sums threads */

/*
 * The next thread that enters calls the waker, and disarms the gate; a copy calls it, once,
 * and leaves the gate armed. false: nothing of that, since the gate is not open, or somebody
 * has entered since gate_activity() was activity. gate_get() calls an armed gate open;
 * gate_set() disarms it, and to arm it again is to forget what it told.
 */
bool gate_arm(uint64_t activity);
bool gate_is_armed(void);
uint64_t gate_tripped_ns(void); /* when it was disarmed by who entered; 0: it was not */
uint64_t gate_copied_ns(void);  /* when the first copy came, since it was armed; 0: none */

/*
 * Called, once per gate_set() that bars it, by the first thread that has to wait; from
 * that thread, which is outside. Set before the agent starts.
 */
void gate_set_waker(void (*wake)(void));
bool gate_wanted(void); /* a thread waits at the gate now */

/* At exit: the calling thread passes from now on, whatever the gate's state. */
void gate_pass_always(void);

/*
 * What stands for the calling thread's own default stream, which has the same handle in
 * every thread. Its captures end with the thread.
 */
const void *gate_thread_stream(void);

void gate_after_fork_child(void);

#endif
