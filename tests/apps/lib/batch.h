/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_APPS_BATCH_H
#define NVS_APPS_BATCH_H

/*
 * A batch of work for one kind of engine. In its middle the program freezes itself, to see whether
 * the engines stop. Two signs tell: looks while it is frozen, and the work that is left after the
 * thaw. For comparison it also freezes nothing, and only the compute channels.
 *
 * Ownership: the caller owns the struct, which borrows app, and keeps it until batch_run() returns.
 * Threading: one caller. A second thread submits and waits, and a third looks, because calls of the
 * driver may block until the thaw.
 */

#include "app.h"

enum batch_look { BATCH_LOOK_FIRST, BATCH_LOOK_SECOND, BATCH_LOOK_COUNT_ };

struct batch {
	struct app *app; /* its context is current for all functions */
	void (*clear)(void);
	void (*submit)(void);
	void (*wait)(void);                /* waits for all work */
	bool (*look)(enum batch_look nth); /* reads the output so far; false: it cannot */
	uint64_t (*n_done)(enum batch_look nth);
	uint64_t (*n_changed)(void); /* pieces that differ between the two looks */
	void (*check)(void);         /* after each batch; ends the program if the output is wrong */
};

/* Opens a library. If the machine does not have it, the program exits with APP_EXIT_SKIPPED. */
void *batch_library(const char *path);
void *batch_symbol(void *library, const char *name);

/*
 * Measures the batch alone, then freezes n_times in each way, and prints a table. Ends the program
 * if engines went on while all was frozen.
 */
void batch_run(const struct batch *batch, uint64_t n_times);

#endif
