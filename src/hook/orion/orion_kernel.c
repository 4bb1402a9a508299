/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Facts about work: of a function by the driver, of its durations by measuring.
 *
 * A function's handle may mean another one after its module is unloaded, so unloading clears the
 * table. A graph's handle is forgotten when the graph is destroyed.
 */

#include "hook/orion/orion_private.h"

#include "hook/table/cuda_real.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KERNEL_MEASURE_N     8u   /* a kernel's first runs are measured */
#define KERNEL_MEASURE_AGAIN 64u  /* and then one of so many */
#define KERNEL_COPY_NS       2000 /* that a copy takes besides its bytes */
#define KERNEL_BUS_B_NS      20   /* bytes a nanosecond: PCIe 4 */
#define KERNEL_DEVICE_B_NS   1000 /* on the card, reading and writing */

static struct orion_kernel *kernel_slot(const struct orion_work *work)
{
	uint64_t hash = (uintptr_t)work->function >> 4;
	struct orion_kernel *kernel;
	uint32_t i;

	hash = (hash + work->threads * 31u + work->shared) * 0x9e3779b97f4a7c15ull;
	for (i = (uint32_t)(hash >> 32);; i++) {
		kernel = &orion.kernels[i % ORION_KERNELS_MAX];
		if (!kernel->function ||
		    (kernel->function == work->function && kernel->threads == work->threads &&
		     kernel->shared == work->shared))
			return kernel;
	}
}

void orion_kernels_clear(void)
{
	if (!orion.kernels)
		return;
	for (uint32_t i = 0; i < ORION_KERNELS_MAX; i++)
		free(orion.kernels[i].name);
	memset(orion.kernels, 0, ORION_KERNELS_MAX * sizeof(*orion.kernels));
	orion.n_kernels = 0;
}

bool orion_profiles_ready(void)
{
	static const struct kernel_class_card unknown_card;
	struct kernel_profile_entry *entries;

	if (orion.kernels)
		return true;
	entries = calloc(ORION_PROFILES_MAX, sizeof(*entries));
	orion.kernels = calloc(ORION_KERNELS_MAX, sizeof(*orion.kernels));
	if (!entries || !orion.kernels) {
		free(entries);
		free(orion.kernels);
		orion.kernels = NULL;
		return false;
	}
	kernel_profiles_init(&orion.profiles, entries, ORION_PROFILES_MAX, &unknown_card);
	return true;
}

/* Asks the driver. A kernel of a library (CUkernel) may stand for a function. */
static void kernel_ask(struct orion_kernel *kernel, const struct orion_work *work)
{
	CUfunction f = (CUfunction)(uintptr_t)work->function;
	const char *name = NULL;
	int n = 0;

	if (!cuda_real.cuFuncGetName || cuda_real.cuFuncGetName(&name, f) != CUDA_SUCCESS)
		name = NULL;
	if (!name && cuda_real.cuKernelGetName &&
	    cuda_real.cuKernelGetName(&name, (CUkernel)f) != CUDA_SUCCESS)
		name = NULL;
	if (cuda_real.cuOccupancyMaxActiveBlocksPerMultiprocessor &&
	    cuda_real.cuOccupancyMaxActiveBlocksPerMultiprocessor(&n, f, (int)work->threads,
								  work->shared) == CUDA_SUCCESS)
		kernel->blocks_per_sm = (uint32_t)n;
	kernel->name = strdup(name ? name : "unnamed");
	if (kernel->name)
		kernel->hash = kernel_profile_hash(kernel->name, strlen(kernel->name));
}

/* NULL: there is no memory. */
static struct orion_kernel *kernel_get(const struct orion_work *work)
{
	struct orion_kernel *kernel, made = {.function = work->function,
					     .threads = work->threads,
					     .shared = work->shared};

	if (!orion.kernels)
		return NULL;
	kernel = kernel_slot(work);
	if (kernel->function)
		return kernel;
	hook_unlock(&orion.lock);
	if (work->kind == ORION_KERNEL)
		kernel_ask(&made, work);
	hook_lock(&orion.lock);
	if (orion.n_kernels >= ORION_KERNELS_MAX / 2)
		orion_kernels_clear();
	kernel = kernel_slot(work);
	if (kernel->function) {
		free(made.name);
		return kernel;
	}
	*kernel = made;
	orion.n_kernels++;
	return kernel;
}

/* Measuring costs two events with times, so it ends when enough is known. */
static bool kernel_is_measured(const struct orion_flight *flight, uint32_t n_measured)
{
	if (orion.is_profiling)
		return true;
	if (flight->client == ORION_POLICY_HP) /* no rule asks how long its work takes */
		return false;
	return n_measured < KERNEL_MEASURE_N || orion.n_since_check++ % KERNEL_MEASURE_AGAIN == 0;
}

static void kernel_describe_kernel(struct orion_flight *flight, const struct orion_kernel *kernel)
{
	const struct orion_work *work = &flight->work;
	const struct kernel_profile *profile;

	flight->key = kernel_profile_key(kernel->hash, work->blocks, work->threads);
	profile = kernel_profiles_find(&orion.profiles, flight->key);
	flight->op.sms = kernel_class_sms(work->blocks, kernel->blocks_per_sm,
					  (uint32_t)orion.config.num_sms);
	if (profile) {
		flight->op.is_known = true;
		flight->op.duration_ns = profile->mean_ns;
		flight->op.class = profile->class;
	}
	flight->is_measured = kernel_is_measured(flight, profile ? profile->count : 0);
}

void orion_kernel_describe(struct orion_flight *flight)
{
	const struct orion_work *work = &flight->work;
	const struct orion_kernel *kernel = NULL;

	flight->op = (struct orion_policy_op){0};
	if (work->kind == ORION_COPY_BUS || work->kind == ORION_COPY_DEVICE) {
		flight->op.is_known = true;
		flight->op.duration_ns =
			KERNEL_COPY_NS + work->bytes / (work->kind == ORION_COPY_BUS
								? KERNEL_BUS_B_NS
								: KERNEL_DEVICE_B_NS);
		return;
	}
	flight->op.sms = (uint32_t)orion.config.num_sms;
	if (work->function)
		kernel = kernel_get(work);
	if (!kernel)
		return;
	if (work->kind == ORION_KERNEL) {
		kernel_describe_kernel(flight, kernel);
		return;
	}
	flight->op.is_known = kernel->n_measured > 0;
	flight->op.duration_ns = kernel->graph_ns;
	flight->is_measured = kernel_is_measured(flight, kernel->n_measured);
}

/* The plain mean of the first ones, and then one that follows changes. */
static void kernel_learn_graph(struct orion_kernel *kernel, uint64_t ns)
{
	uint64_t n = kernel->n_measured < KERNEL_PROFILE_WINDOW ? ++kernel->n_measured
								: KERNEL_PROFILE_WINDOW;

	if (ns > KERNEL_PROFILE_NS_MAX)
		ns = KERNEL_PROFILE_NS_MAX;
	kernel->graph_ns = (kernel->graph_ns * (n - 1) + ns) / n;
}

void orion_kernel_learn(const struct orion_flight *flight, uint64_t ns)
{
	const struct orion_work *work = &flight->work;
	struct kernel_profile_launch launch = {
		.key = flight->key,
		.blocks = work->blocks,
		.threads = work->threads,
		.work = {.duration_ns = ns, .sms = flight->op.sms},
	};
	struct orion_kernel *kernel;

	if (!orion.kernels || !work->function)
		return;
	kernel = kernel_slot(work);
	if (kernel->function != work->function)
		return; /* it was unloaded meanwhile */
	if (work->kind == ORION_GRAPH) {
		kernel_learn_graph(kernel, ns);
	} else if (kernel->name) {
		launch.name = kernel->name;
		launch.name_len = strlen(kernel->name);
		(void)kernel_profiles_learn(&orion.profiles, &launch);
	}
}

void orion_code_gone(void)
{
	if (!__atomic_load_n(&orion_has_books, __ATOMIC_RELAXED))
		return;
	hook_lock(&orion.lock);
	orion_kernels_clear();
	hook_unlock(&orion.lock);
}

/* The slot stays, so that the chains of others through it stay, too. */
void orion_graph_gone(CUgraphExec graph)
{
	struct orion_work work = {.kind = ORION_GRAPH, .function = graph};
	struct orion_kernel *kernel;

	if (!__atomic_load_n(&orion_has_books, __ATOMIC_RELAXED) || !graph)
		return;
	hook_lock(&orion.lock);
	if (orion.kernels) {
		kernel = kernel_slot(&work);
		kernel->n_measured = 0;
		kernel->graph_ns = 0;
	}
	hook_unlock(&orion.lock);
}
