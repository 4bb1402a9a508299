/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_TRACE_H
#define NVS_DAEMON_TRACE_H

/*
 * The last things that happened to clients, in a ring of fixed size.
 *
 * Entries have numbers from 0 on, and their times never fall. A new entry overwrites the oldest
 * one: no allocation, no system call, and no look at the clock.
 *
 * Threading: the loop's.
 */

#include "nvshare/protocol.h"

#include <stdint.h>

#define TRACE_ENTRIES 65536 /* a power of two; 2 MiB */

struct server;
struct peer;

struct trace {
	uint64_t n; /* so far; the number of the next one */
	struct nvshare_trace_entry at[TRACE_ENTRIES];
};

void trace_add(struct trace *trace, const struct nvshare_trace_entry *entry);

/* The same for a client. Time, client and GPU are filled in. */
void trace_client(struct server *server, const struct peer *peer,
		  const struct nvshare_trace_entry *entry);

/* Adds the name of a client, in parts. */
void trace_name(struct server *server, const struct peer *peer);

/* The number of the oldest entry that is kept; trace->n: there is none. */
uint64_t trace_oldest(const struct trace *trace);

/* number: from trace_oldest() to trace->n - 1. */
const struct nvshare_trace_entry *trace_at(const struct trace *trace, uint64_t number);

/* The answer to a request of a tool. */
void trace_page(const struct trace *trace, uint64_t now_ns, const struct nvshare_get_trace *get,
		struct nvshare_trace *ret);

#endif
