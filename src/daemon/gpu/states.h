/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_STATES_H
#define NVS_DAEMON_STATES_H

/*
 * How the GPUs are: heat, power, use and errors, as the helper reports them (daemon/gpu/helper.h).
 *
 * The helper is asked once in the poll interval, while clients or viewers are there, or a GPU is
 * out. It is not asked while clients freeze. Errors come unasked. A helper that ends or does not
 * answer is killed and started again, later each time. Nothing here waits.
 *
 * Threading: the loop's.
 */

#include "core/health.h"
#include "core/sched.h"
#include "daemon/deadlines.h"
#include "daemon/gpu/helper.h"
#include "nvshare/protocol.h"
#include "util/event_source.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct peer;
struct server;

struct states_gpu {
	struct health health;
	struct helper_report last; /* as reported last */
	uint64_t told_ns;          /* when; 0: never */
};

struct states {
	int fd;                     /* to the helper; -1: none */
	pid_t pid;                  /* 0: none; it may have been told to end */
	struct event_source source; /* fd */
	struct deadline due;
	uint32_t seq;
	bool lists;          /* the helper knows another number of devices */
	uint32_t n_failures; /* helpers that ended since the last answer */
	uint64_t asked_ns;   /* 0: no answer is owed */
	uint64_t polled_ns;  /* the last question; 0: none yet */
	uint64_t viewed_ns;  /* somebody looked */
	uint64_t ordered_ns; /* a client was told to freeze */
	uint64_t retry_ns;   /* no helper is started before */
	struct states_gpu gpus[SCHED_GPUS_MAX];
};

/* server->states is zeroed. Starts the helper where the node has NVML. */
void states_open(struct server *server);
void states_close(struct server *server);

/* The poll interval may be another one now. */
void states_config(struct server *server);

/* A client or a viewer is there. */
void states_wake(struct server *server);

/* A client was told to go off the GPU. The next question waits until it is off. */
void states_note_order(struct server *server);

/* A client has sent WATCH: it is told if its GPU is out. */
void states_watch(struct server *server, struct peer *peer);

void states_fill(const struct server *server, uint32_t index, struct nvshare_status_state *ret);

#endif
