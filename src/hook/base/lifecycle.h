/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_LIFECYCLE_H
#define NVS_HOOK_LIFECYCLE_H

/*
 * The library when the process forks or exits.
 *
 * fork: the child starts with an open gate, no agent, no connection and nothing counted. CUDA works
 * in it only if it initialises CUDA itself, and the driver refuses that if the parent had done so.
 * exec: every descriptor is close-on-exec.
 *
 * exit: our exit handler stops the agent before the driver's own handlers run.
 *
 * - The thread that runs the handlers passes the gate from then on, and memory is not limited.
 * - The connections stay open until the process is gone, because its memory stays until then, too.
 * - Evicted memory is not brought back, and a kernel that touched it would get
 *   CUDA_ERROR_ILLEGAL_ADDRESS. So if memory is out, other threads go on waiting at the gate. They
 *   wait a second at most, because exit handlers may wait for them. Else they pass at once.
 * - Frees of evicted memory work.
 *
 * SIGTERM and the like end the process without us.
 *
 * The program's exit handlers that are younger than ours run before it. Nothing is different for
 * them: they wait at the gate for their turn. Older ones run after it, without the memory that is
 * out. To restore it would take memory that may be promised to an incoming program. To ask for it
 * would make every exit wait, and stop others, for the few programs that still read.
 *
 * Threading: any thread.
 */

typedef void lifecycle_step(void);

/* The functions to call, in order, NULL at the end; in lifecycle_steps.c, above all rooms. */
extern lifecycle_step *const lifecycle_on_fork_child[];
extern lifecycle_step *const lifecycle_on_exit[];

/* Registers the handlers; the first call only. */
void lifecycle_start(void);

/* Registers the exit handler again, so that it runs before those that the driver has registered. */
void lifecycle_renew(void);

#endif
