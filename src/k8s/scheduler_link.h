/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_K8S_SCHEDULER_LINK_H
#define NVS_K8S_SCHEDULER_LINK_H

/*
 * The plugin's connection to the scheduler. It waits for events, and asks for the status when a GPU
 * has got an error or is back, when the owner wants it, and once in the poll interval. So news come
 * at once, and an idle node is asked rarely.
 *
 * Nothing blocks. A scheduler that is lost is tried again, at most every LINK_RETRY_MAX_NS.
 *
 * Ownership: the link owns its descriptor; strings are borrowed. Threading: none.
 */

#include "k8s/gpu_load.h"
#include "k8s/loop.h"

#include <stdbool.h>

#define LINK_RETRY_MIN_NS 200000000ull
#define LINK_RETRY_MAX_NS 5000000000ull
#define LINK_ANSWER_NS    10000000000ull /* a status that takes longer ends the connection */

struct scheduler_link;

struct scheduler_link_owner {
	/* A status that was asked for when number was scheduler_link::n_asked. */
	void (*on_status)(struct scheduler_link *link, const struct gpu_loads *loads,
			  uint64_t number);
	/* The connection is lost, or could not be made. Comes again with each try. */
	void (*on_lost)(struct scheduler_link *link);
};

struct scheduler_link {
	const struct scheduler_link_owner *owner;
	struct loop *loop;
	const char *sock_dir;
	uint64_t poll_ns;
	int fd; /* -1: lost */
	struct event_source source;
	struct loop_timer timer;  /* lost: the next try; else the next poll */
	struct loop_timer answer; /* a status is overdue then */
	uint64_t retry_ns;
	bool is_told; /* that the scheduler is lost, in the log */
	bool is_asked, is_wanted;
	uint64_t n_asked; /* statuses so far */
	uint64_t event_after;
	struct gpu_loads reading;
};

/* link: zeroed. Makes the first try in the loop's next round. */
void scheduler_link_open(struct scheduler_link *link, struct loop *loop, const char *sock_dir,
			 uint64_t poll_ns, const struct scheduler_link_owner *owner);
void scheduler_link_close(struct scheduler_link *link);

bool scheduler_link_is_up(const struct scheduler_link *link);

/*
 * Asks for a new status, as soon as one that is under way has come. Returns the number that
 * on_status() tells of it. A lost link loses the question.
 */
uint64_t scheduler_link_ask(struct scheduler_link *link);

#endif
