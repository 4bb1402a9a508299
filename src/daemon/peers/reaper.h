/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_REAPER_H
#define NVS_DAEMON_REAPER_H

/*
 * Closes connections whose close() may wait. Kernels before Linux 6.16 let a peer send
 * descriptors to a socket that takes none. close() drops packets that nobody has received. The
 * last close of a descriptor in them may wait as long as its sender likes: SO_LINGER, or a file
 * whose server does not answer.
 *
 * So a thread receives all packets, takes SO_LINGER off each descriptor, closes it, and then
 * closes the connection. If a thread waits all the same, another one is started, up to
 * REAPER_THREADS_MAX. Beyond those, connections stay open and count for their owners until a
 * thread is free. Nothing waits for a thread, not even the end of the process.
 *
 * Threading: one thread calls all of it. The threads block all signals.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define REAPER_THREADS_MAX 16

struct reaper_item {
	int fd;
	uint32_t owner;
	bool is_shared;
};

struct reaper {
	pthread_mutex_t mutex; /* guards all below */
	pthread_cond_t cond;   /* a connection waits */
	uint32_t n_threads;
	uint32_t n_idle;
	struct reaper_item *waiting; /* a ring of n_max */
	uint32_t first;
	uint32_t n_waiting;
	uint32_t *done; /* owners, n_max of them */
	uint32_t n_done;
	uint32_t n_max;
	int event_fd; /* readable: reaper_done() has something */
};

/* n_max: the most connections at a time. 0 or -errno. A reaper lives as long as the process. */
int reaper_init(struct reaper *reaper, uint32_t n_max);
/* Frees nothing once there are threads: they go on until the process ends. */
void reaper_deinit(struct reaper *reaper);

/*
 * Takes fd: a socket with SO_PASSCRED to which nobody can send any more, or a stranger's descriptor
 * of any kind. owner: the caller's, for
 * reaper_done(). At most n_max connections may be under way.
 */
void reaper_take(struct reaper *reaper, int fd, uint32_t owner);

/*
 * The same for a descriptor that strangers have, too: nothing is received from it, since that would
 * be taken from them.
 */
void reaper_take_shared(struct reaper *reaper, int fd, uint32_t owner);

/* true: the connection of *ret_owner is closed now. */
bool reaper_done(struct reaper *reaper, uint32_t *ret_owner);

#endif
