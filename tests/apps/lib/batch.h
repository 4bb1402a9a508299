/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_APPS_BATCH_H
#define NVS_APPS_BATCH_H

/*
 * A batch of work for one kind of engine, in the middle of which the program freezes itself:
 * whether the engines stop, as looks while it is frozen tell, and how much is left to do
 * after the thaw. For comparison, the same with nothing frozen, and with only what computes.
 *
 * Ownership: the caller's struct, which borrows app; it outlives everything here.
 * Threading: one caller; submit and wait run in a second thread, looks in a third, since
 * whatever asks the driver may wait until the thaw.
 */

#include "app.h"

enum batch_look { BATCH_LOOK_FIRST, BATCH_LOOK_SECOND, BATCH_LOOK_COUNT_ };

struct batch {
	struct app *app; /* whose context is current for all of them */
	void (*clear)(void);
	void (*submit)(void);
	void (*wait)(void);                /* until all of it is done */
	bool (*look)(enum batch_look nth); /* at what is there; false: nothing to be seen */
	uint64_t (*n_done)(enum batch_look nth);
	uint64_t (*n_changed)(void); /* pieces that were other ones at the second look */
	void (*check)(void); /* after each time; ends the program when what came out is wrong */
};

/* A library that is there on some machines; else the program skips. */
void *batch_library(const char *path);
void *batch_symbol(void *library, const char *name);

/*
 * Measures the batch alone, then freezes in each way n_times, and prints a table. Ends the
 * program when engines went on while all was frozen.
 */
void batch_run(const struct batch *batch, uint64_t n_times);

#endif
