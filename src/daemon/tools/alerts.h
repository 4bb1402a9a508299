/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_ALERTS_H
#define NVS_DAEMON_ALERTS_H

/*
 * The administrator's command, run for events: without a shell, as the scheduler's user, with what
 * it needs to know in its environment.
 *
 * Few run at a time, and each for a bounded time. Each type of event has a rate of its own, so
 * that clients, which cause events as they like, cannot suppress those of GPUs.
 *
 * Threading: the loop's.
 */

#include "daemon/deadlines.h"
#include "daemon/peers/quota.h"
#include "nvshare/protocol.h"

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

struct server;

#define ALERTS_RUNS_MAX         8
#define ALERTS_RUNS_CLIENTS_MAX 4 /* of them, for events of clients */

struct alerts {
	struct deadline due; /* runs are looked after */
	struct quota_bucket rates[NVSHARE_EVENT_COUNT];
	uint32_t n_suppressed[NVSHARE_EVENT_COUNT]; /* since the last run of the type */
	struct {
		pid_t pid; /* 0: none */
		uint64_t ends_ns;
		enum nvshare_event_type type;
	} runs[ALERTS_RUNS_MAX];
};

void alerts_init(struct server *server);

/* Starts the command for event, if there is one and its rate allows it. */
void alerts_run(struct server *server, const struct nvshare_event *event);

#endif
