/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_EVENT_H
#define NVS_SIMGPU_CUDA_EVENT_H

/*
 * Events. Each cuEventRecord makes a new record. So a wait keeps its record when the event is
 * recorded again. sim.lock guards all of it.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_record {
	unsigned int refs;
	bool is_done;
	bool is_timed; /* it was made with a time */
	uint64_t time_ns;
};

struct CUevent_st {
	uint64_t magic;
	struct CUctx_st *ctx;
	unsigned int flags;
	struct event_record *last; /* a reference; NULL: never recorded */
	/* Recorded in a capture: a wait for the event depends on these nodes. */
	uint64_t capture_id;
	struct CUgraphNode_st **capture_deps;
	size_t n_capture_deps;
};

struct event_record *event_record_ref(struct event_record *record);
void event_record_unref(struct event_record *record);
bool event_is_valid(CUevent event);

/* A new record as the event's last one, with a reference for the caller; NULL: no memory. */
struct event_record *event_new_record(CUevent event);

#endif
