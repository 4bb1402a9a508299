/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CLI_VIEW_PRIVATE_H
#define NVS_CLI_VIEW_PRIVATE_H

/* The parts of view.h: each prints its lines of a GPU, or makes text of a number. */

#include "cli/view.h"

#define VIEW_BOLD   "\033[1m"
#define VIEW_DIM    "\033[2m"
#define VIEW_RED    "\033[31m"
#define VIEW_GREEN  "\033[32m"
#define VIEW_YELLOW "\033[33m"
#define VIEW_RESET  "\033[0m"

struct nvshare_status_gpu;

/* ---- view_text.c ---- */

struct view_text {
	char s[VIEW_DURATION_LEN];
};

struct view_text view_size(uint64_t bytes);
struct view_text view_lasting(uint64_t ns); /* as view_duration() */
struct view_text view_seconds(uint64_t ns); /* of settings: "30 s", not "30.0 s" */

/* ---- view_gpu.c, view_state.c, view_clients.c ---- */

/* All lines of the GPU but the table of its clients. gpu is one of status. */
void view_gpu_print(FILE *out, const struct status *status, const struct nvshare_status_gpu *gpu,
		    bool has_colours);

/* How the GPU is. Prints nothing where NVML has told nothing yet. */
void view_state_print(FILE *out, const struct status *status, uint32_t gpu, bool has_colours);

void view_clients_print(FILE *out, const struct status *status, uint32_t gpu, size_t width,
			bool has_colours);

/* ---- view_gangs.c: clients that run on all of their GPUs together ---- */

/* A line for each gang. */
void view_gangs_print(FILE *out, const struct status *status);

/* ---- view_outsiders.c: processes that use the GPU without nvshare ---- */

struct view_outsiders {
	char s[192];
};

void view_outsiders_print(FILE *out, const struct status *status,
			  const struct nvshare_status_gpu *gpu);

/* "python3 (pid 123) and 2 more, outside nvshare, have 5.0 GiB". */
struct view_outsiders view_outsiders(const struct status *status, uint32_t gpu);

#endif
