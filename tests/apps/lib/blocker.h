/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_APPS_BLOCKER_H
#define NVS_APPS_BLOCKER_H

/*
 * Calls of the driver that may block while the program's work stands still, each with its
 * preparation and clean-up.
 *
 * Threading: one thread prepares and cleans, and another runs the call in between. The context of
 * blocker_init() is current for all. An error of the driver ends the program.
 */

#include "app.h"

enum { BLOCKER_CALLS_MAX = 40 };

struct blocker {
	struct app *app;
	CUstream stream; /* when run is called, it and the null stream have work */
	CUstream busy;
	CUevent event;
	CUgraph graph;
	CUgraphExec exec;
	CUgraph copies; /* one node, which copies within small */
	CUgraphNode copy;
	CUgraphExec copies_exec;
	CUmodule module;
	CUlibrary library;
	CUkernel kernel;
	CUcontext ctx;
	CUdeviceptr small; /* of BLOCKER_SMALL bytes */
	CUdeviceptr other;
	CUmemGenericAllocationHandle handle;
	unsigned char *pageable; /* of BLOCKER_SMALL bytes */
	void *pinned;
};

#define BLOCKER_SMALL (32u << 20)

struct blocker_call {
	const char *name;
	void (*prepare)(struct blocker *b); /* or NULL */
	void (*run)(struct blocker *b);
	void (*clean)(struct blocker *b); /* or NULL; called after the thaw */
	bool is_apart; /* the library begins no freeze while a thread is in the call */
};

void blocker_init(struct blocker *b, struct app *app);
void blocker_deinit(struct blocker *b);

uint64_t blocker_n_calls(void);
const struct blocker_call *blocker_call(uint64_t i);
bool blocker_can(const struct blocker_call *call); /* true: this driver has the call */

#endif
