/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CLI_CHROME_TRACE_H
#define NVS_CLI_CHROME_TRACE_H

/*
 * The events of clients, as JSON in Chrome's trace event format. A GPU is a process, a client is
 * a thread. Each begin of a slice has its end. Pure but for memory and out. Single-threaded.
 */

#include "nvshare/protocol.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct status;

struct chrome_trace {
	const struct nvshare_trace_entry *entries; /* texts are fit for a terminal */
	size_t n;
	uint64_t begin_ns;           /* of the window: no entry is older */
	uint64_t end_ns;             /* no entry is newer */
	const struct status *status; /* taken at the end of the window */
};

/* 0 or -ENOMEM. */
int chrome_trace_print(FILE *out, const struct chrome_trace *trace);

#endif
