/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_DAEMON_LINGER_H
#define NVS_TESTS_DAEMON_LINGER_H

/* Descriptors whose last close() waits until linger_end(). */

struct linger_pair {
	int fd;  /* the last close() of it waits */
	int far; /* until this one is closed */
};

/* Negative descriptors: there is no TCP here. */
struct linger_pair linger_begin(void);

/* Ends the wait. */
void linger_end(struct linger_pair *pair);

/*
 * One whose close() waits although nobody can take SO_LINGER off: a socket in whose queue the
 * lingering one lies. Takes pair->fd. -1: not to be had.
 */
int linger_nested(struct linger_pair *pair);

#endif
