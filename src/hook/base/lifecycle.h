/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_LIFECYCLE_H
#define NVS_HOOK_LIFECYCLE_H

/*
 * What becomes of the library when the process forks or exits.
 *
 * fork: the child starts with an open gate, no agent, no connection and nothing
 * counted; CUDA works in it only if it initialises CUDA itself, which the driver refuses
 * when the parent had done so. exec: every descriptor is close-on-exec.
 *
 * exit: our exit handler stops the agent before the driver's own handlers run. The
 * thread that runs the handlers passes the gate from then on, memory is not limited, and
 * the connections stay open until the process is gone, since its memory does. Other
 * threads that stand at the gate go on standing there for a second at most if any of
 * our memory is out (exit handlers may wait for such threads), else they pass at once:
 * evicted memory is not brought back, and a kernel that touched it would get
 * CUDA_ERROR_ILLEGAL_ADDRESS. Frees of evicted memory work. SIGTERM and the like end the
 * process without us.
 *
 * Exit handlers of the program that are younger than ours run before it, with everything
 * as always: they wait at the gate for their turn. Older ones run after it. For them
 * nothing is brought back: memory that is free on the card may be promised to a program
 * that is coming in, which would fail to; and to ask for it would make every exit wait,
 * and stop others, for the few programs that still read.
 *
 * Threading: any thread.
 */

typedef void lifecycle_step(void);

/* What is called then, in this order, NULL at the end. lifecycle_steps.c, above all rooms, has
 * them. */
extern lifecycle_step *const lifecycle_on_fork_child[];
extern lifecycle_step *const lifecycle_on_exit[];

/* Registers the handlers; the first call only. */
void lifecycle_start(void);

/* The driver may have registered exit handlers of its own: ours is to run before them. */
void lifecycle_renew(void);

#endif
