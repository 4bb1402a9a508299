/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Which GPU of its node a job gets. Under FLEET_NVSHARE the node's own placement decides
 * (core/place/place.h); else the GPU with the fewest jobs, as NVIDIA's device plugin has it.
 */

#include "fleet_node.h"

#define PLACE_RESERVE (FLEET_CARD / 100 * 5)

void fleet_place_init(struct fleet_node *node)
{
	struct place_config config;

	place_config_default(PLACE_PRESET_BALANCED, &config);
	place_init(&node->place, &config);
}

static int place_fewest(const struct fleet_node *node, const struct fleet_job *job)
{
	uint64_t bytes = job->bytes + FLEET_CONTEXT;
	int best = -1;

	for (int i = 0; i < FLEET_NODE_GPUS; i++) {
		const struct fleet_gpu *gpu = &node->gpus[i];

		if (gpu->n_programs == node->replicas ||
		    (node->way == FLEET_FITTING && gpu->placed_bytes + bytes > FLEET_CARD))
			continue;
		if (best < 0 || gpu->n_programs < node->gpus[best].n_programs)
			best = i;
	}
	return best;
}

/* As the daemon asks for jobs: a critical one waits for room, and its memory takes no turns. */
static int place_by_core(struct fleet_node *node, const struct fleet_job *job, uint64_t now_ns)
{
	struct place_request request = {.need = job->bytes + FLEET_CONTEXT,
					.gpu = PLACE_ANY,
					.is_whole = fleet_is_critical(job)};
	struct place_score scores[PLACE_GPUS_MAX];
	uint32_t best;

	for (uint32_t i = 0; i < FLEET_NODE_GPUS; i++) {
		const struct fleet_gpu *gpu = &node->gpus[i];
		bool is_busy = gpu->share > 0;

		node->place.gpu[i].facts = (struct place_gpu){
			.is_known = true,
			.total = FLEET_CARD,
			.reserve = PLACE_RESERVE,
			.others = gpu->placed_bytes,
			.critical = gpu->critical_bytes,
			.n_others = gpu->n_programs,
			.degree = node->replicas,
			.utilization = (uint32_t)(gpu->share * 100),
			.temperature = PLACE_UNKNOWN,
			.idle_ns = is_busy ? 0 : now_ns - gpu->busy_ns,
		};
	}
	best = place_choose(&node->place, &request, now_ns, scores);
	return best == PLACE_NONE ? -1 : (int)best;
}

int fleet_node_choose(struct fleet_node *node, const struct fleet_job *job, uint64_t now_ns)
{
	return node->way == FLEET_NVSHARE ? place_by_core(node, job, now_ns)
					  : place_fewest(node, job);
}
