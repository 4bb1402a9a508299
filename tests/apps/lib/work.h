/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_APPS_WORK_H
#define NVS_APPS_WORK_H

/*
 * Kernels of a chosen length, which is an amount of work: a clock would go on while other programs
 * have the GPU.
 */

#include "app.h"

struct work {
	struct app *app;
	CUdeviceptr area;
	uint64_t n;
	uint32_t rounds;
};

#define WORK_N_LARGE (1u << 20) /* fills a large card */
#define WORK_N_SMALL (1u << 15)

/*
 * rounds 0: measures the rounds for kernels of ns, while no other program computes. To compare
 * programs, measure once, and pass the same rounds to all.
 */
void work_init(struct work *work, struct app *app, uint64_t n, uint64_t ns, uint32_t rounds);
void work_deinit(struct work *work);
void work_launch(struct work *work, CUstream stream);

#endif
