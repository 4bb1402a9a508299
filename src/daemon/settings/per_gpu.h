/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_PER_GPU_H
#define NVS_DAEMON_PER_GPU_H

/*
 * Settings of single GPUs: the section `per_gpu` of the files, by a GPU's UUID or by its index in
 * the status. The value of a GPU wins over the node's, wherever that one comes from. A value by
 * UUID wins over one by index. The table in per_gpu.c has the settings that a GPU can have.
 *
 * Ownership: the values are part of struct settings, and borrow nothing.
 * Threading: none.
 */

#include "core/sched.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define PER_GPU_SECTION    "per_gpu"
#define PER_GPU_VALUES_MAX 128u
#define PER_GPU_ORIGIN_LEN 256

struct config_file;
struct settings;
struct settings_report;

struct per_gpu_name {
	uint32_t index; /* SCHED_NONE: by UUID */
	uint8_t uuid[16];
	char text[48]; /* "0", "GPU-..." or "MIG-..." */
};

struct per_gpu_value {
	struct per_gpu_name gpu;
	uint32_t key;   /* a row of the table */
	uint64_t value; /* in its first bytes, as the setting's field has it */
	char origin[PER_GPU_ORIGIN_LEN];
};

struct per_gpu {
	uint32_t n;
	struct per_gpu_value at[PER_GPU_VALUES_MAX];
};

/* The values that hold on one GPU. */
struct per_gpu_limits {
	struct sched_gpu_config config;
	uint64_t context_bytes_max;
	uint32_t n_contexts_max;
};

/* Puts the section at `at` of the file into settings. name: the file's. Errors are in report. */
void per_gpu_take(struct settings *settings, const char *name, const struct config_file *file,
		  size_t at, struct settings_report *report);

/* Says that values of one GPU do not go together; NULL: they do. */
const char *per_gpu_check(const struct settings *settings);

/* The limits of the GPU that has this index and UUID. */
void per_gpu_of(const struct settings *settings, uint32_t index, const uint8_t uuid[16],
		struct per_gpu_limits *ret);

/* The value of the same setting for a GPU that is called so; NULL: there is none. */
const struct per_gpu_value *per_gpu_find(const struct per_gpu *values,
					 const struct per_gpu_name *gpu, uint32_t key);

/* "per_gpu.0.quantum_sec", and its value as a file may have it. */
void per_gpu_print_name(const struct per_gpu_value *value, char *buf, size_t size);
void per_gpu_print(const struct per_gpu_value *value, char *buf, size_t size);

/* All values with their origins, as the section of a file that sets the same. */
void per_gpu_print_config(FILE *out, const struct per_gpu *values);

#endif
