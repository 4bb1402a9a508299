/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/job_facts.h"

#include "core/u64.h"
#include "daemon/jobs/job_gpus.h"
#include "daemon/server.h"

#include <string.h>
#include <utlist.h>

void job_facts_config(struct server *server)
{
	const struct settings_jobs *settings = &server->settings.jobs;
	struct jobs_config config;
	struct jobs_event event = {.type = JOBS_EVENT_CONFIG, .config = &config};
	uint32_t mask;

	settings_jobs_config(settings, &config);
	config.fair_users = server->settings.config.fair_users;
	/* A GPU that is not there yet is looked for again when GPUs change. */
	config.place.allowed = UINT32_MAX;
	if (*settings->gpus) {
		(void)job_gpus_mask(server, settings->gpus, &mask);
		config.place.allowed = mask;
	}
	(void)job_gpus_mask(server, settings->reserved, &config.place.reserved);
	(void)job_queue_step(server, NULL, &event);
}

/* When a client has computed there last. */
static void facts_note_use(struct server *server, uint32_t index)
{
	struct job_queue *queue = &server->jobs;
	struct timeshare_gpu_status share;
	uint64_t gpu_ns;

	timeshare_gpu_status(&server->shares.timeshare, index, &share);
	gpu_ns = share.lc_gpu_ns + share.be_gpu_ns;
	if (gpu_ns != queue->gpu_ns[index])
		queue->busy_ns[index] = server->now_ns;
	queue->gpu_ns[index] = gpu_ns;
}

/* The programs of a critical job count in its charge. */
static uint64_t facts_critical(const struct server *server, uint32_t index)
{
	uint64_t of_jobs = 0;
	const struct job_entry *entry;

	DL_FOREACH (server->jobs.started, entry) {
		if (entry->gpu == index && entry->submit.priority == NVSHARE_PRIORITY_CRITICAL)
			of_jobs += entry->footprint;
	}
	return u64_excess(server->gpus.at[index].critical, of_jobs);
}

static void facts_fill(struct server *server, uint32_t index, struct place_gpu *ret)
{
	const struct job_queue *queue = &server->jobs;
	const struct gpu *gpu = &server->gpus.at[index];
	struct nvshare_status_state state;
	struct sched_gpu_status status;
	uint64_t idle_from_ns, others;

	*ret = (struct place_gpu){.is_known = false};
	if (index >= server->gpus.n || !gpu->total || !gpu->is_told)
		return;
	sched_gpu_status(&server->sched, index, &status);
	states_fill(server, index, &state);
	facts_note_use(server, index);
	idle_from_ns = queue->busy_ns[index] ? queue->busy_ns[index] : server->started_ns;
	others = u64_min(u64_excess(gpu->footprint, queue->footprints[index]), PLACE_BYTES_MAX);
	*ret = (struct place_gpu){
		.is_known = true,
		.is_out = gpu->is_out || grace_is_on(server) || queue->is_restoring,
		.total = u64_min(gpu->total, PLACE_BYTES_MAX),
		.reserve = u64_excess(status.total, status.usable),
		.external = u64_min(gpu->external, PLACE_BYTES_MAX),
		.others = others,
		.critical = u64_min(facts_critical(server, index), others),
		.n_others = (uint32_t)u64_excess(gpu->n_clients, queue->n_programs[index]),
		.degree = status.config.mode == SCHED_MODE_AUTO ? status.config.sharing_degree : 1,
		.utilization = state.known & NVSHARE_STATE_KNOWS_UTILIZATION
				       ? state.utilization_percent
				       : PLACE_UNKNOWN,
		.temperature = state.known & NVSHARE_STATE_KNOWS_TEMPERATURE ? state.celsius
									     : PLACE_UNKNOWN,
		.idle_ns = u64_excess(server->now_ns, idle_from_ns),
	};
}

void job_facts_look(struct server *server)
{
	struct job_queue *queue = &server->jobs;
	bool has_other = false;

	for (uint32_t i = 0; i < SCHED_GPUS_MAX; i++) {
		struct jobs_event event = {.type = JOBS_EVENT_GPU, .gpu = i};
		struct place_gpu *known = &queue->facts[i];

		facts_fill(server, i, &event.facts);
		if (memcmp(known, &event.facts, sizeof(*known)) == 0)
			continue;
		event.is_other =
			memcmp(queue->uuids[i], server->gpus.at[i].uuid, sizeof(queue->uuids[i]));
		has_other |= event.is_other || known->is_known != event.facts.is_known;
		memcpy(queue->uuids[i], server->gpus.at[i].uuid, sizeof(queue->uuids[i]));
		*known = event.facts;
		(void)job_queue_step(server, NULL, &event);
	}
	if (has_other)
		job_facts_config(server); /* settings may name it */
}
