/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_REAPER_H
#define NVS_DAEMON_REAPER_H

/*
 * Closes connections whose close() may wait: for kernels before Linux 6.16, which let a peer
 * send descriptors to a socket that takes none. close() drops what nobody has received, and the
 * last close of what is dropped may wait for as long as its sender likes (SO_LINGER, or a file
 * whose server does not answer).
 *
 * So a thread receives what is there, takes SO_LINGER off each descriptor, closes it, and then
 * closes the connection. One that waits all the same waits alone: another thread is started, up
 * to REAPER_THREADS_MAX. Beyond those, connections stay open, and their owners stay counted,
 * until a thread is free again. Nothing waits for a thread, not even the end of the process.
 *
 * Threading: one thread calls all of it. Threads block all signals.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define REAPER_THREADS_MAX 16

struct reaper_item {
	int fd;
	uint32_t owner;
};

struct reaper {
	pthread_mutex_t mutex; /* of all below */
	pthread_cond_t cond;   /* something waits */
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

/* n_max: connections at a time, at the most. 0 or -errno. It lives as long as the process. */
int reaper_init(struct reaper *reaper, uint32_t n_max);

/*
 * Takes fd, a socket with SO_PASSCRED to which nobody can send any more. owner: the caller's, for
 * reaper_done(). Not more than n_max that are not done.
 */
void reaper_take(struct reaper *reaper, int fd, uint32_t owner);

/* True: *ret_owner's connection is closed now. */
bool reaper_done(struct reaper *reaper, uint32_t *ret_owner);

#endif
