/* SPDX-License-Identifier: Apache-2.0 */
#include "k8s/prefer.h"

#include <stdlib.h>

/* A GPU as a place for the container. */
struct prefer_gpu {
	uint32_t gpu;
	uint32_t n_others, n_musts;
	bool is_healthy, has_room;
	uint64_t load;
	uint32_t n_used;
};

static uint64_t prefer_load(const struct devices *devices, uint32_t gpu, uint32_t n_used)
{
	const struct gpu_load *load = &devices->gpus[gpu].load;
	uint64_t n_coming = n_used > load->n_clients ? n_used - load->n_clients : 0;

	if (!devices->is_live)
		return 0; /* n_used decides */
	return gpu_load_permille(load) + (uint64_t)PREFER_WAITER * load->n_waiting +
	       PREFER_COMING * n_coming;
}

static int compare_u64(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

/* The best place first. */
static int prefer_compare(const void *a, const void *b)
{
	const struct prefer_gpu *left = a, *right = b;

	if (left->n_musts != right->n_musts)
		return left->n_musts > right->n_musts ? -1 : 1;
	if (left->is_healthy != right->is_healthy)
		return left->is_healthy ? -1 : 1;
	if (left->has_room != right->has_room)
		return left->has_room ? -1 : 1;
	if (left->load != right->load)
		return compare_u64(left->load, right->load);
	if (left->n_used != right->n_used)
		return compare_u64(left->n_used, right->n_used);
	return compare_u64(left->gpu, right->gpu);
}

static void prefer_rate(const struct devices *devices, const struct prefer_question *question,
			struct prefer_gpu ret[GPU_LOAD_MAX])
{
	for (uint32_t i = 0; i < devices->n; i++)
		ret[i] = (struct prefer_gpu){.gpu = i};
	for (size_t i = 0; i < question->n_others; i++)
		ret[question->others[i].gpu].n_others++;
	for (size_t i = 0; i < question->n_musts; i++)
		ret[question->musts[i].gpu].n_musts++;
	for (uint32_t i = 0; i < devices->n; i++) {
		struct prefer_gpu *at = &ret[i];

		at->n_used = devices->n_replicas - at->n_others - at->n_musts;
		at->is_healthy = devices_is_healthy(devices, i);
		at->load = prefer_load(devices, i, at->n_used);
		at->has_room = at->n_others >= question->n_wanted - question->n_musts;
	}
	qsort(ret, devices->n, sizeof(ret[0]), prefer_compare);
}

void prefer_choose(const struct devices *devices, const struct prefer_question *question,
		   struct devices_at *ret)
{
	struct prefer_gpu order[GPU_LOAD_MAX];
	size_t n = 0;

	prefer_rate(devices, question, order);
	for (; n < question->n_musts; n++)
		ret[n] = question->musts[n];
	/* The kubelet fills up by itself where no GPU has room; Allocate then says what is wrong.
	 */
	for (uint32_t i = 0; i < devices->n && n < question->n_wanted; i++) {
		for (size_t j = 0; j < question->n_others && n < question->n_wanted; j++) {
			if (question->others[j].gpu == order[i].gpu)
				ret[n++] = question->others[j];
		}
	}
}
