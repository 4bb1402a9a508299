/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/json.h"

#include "cli/status.h"
#include "ipc/names.h"

#include <inttypes.h>

#define NS  1e9
#define PPM 1e6

static const char *const pinned_names[NVSHARE_PINNED_COUNT] = {
	"context", "plain", "async", "vmm", "array", "managed", "graph", "module",
};

static const char *const preference_names[NVSHARE_PREFERENCE_COUNT] = {
	[NVSHARE_PREFERS_TIMESLICES] = "timeslices",
	[NVSHARE_PREFERS_PREEMPTION] = "preemption",
	[NVSHARE_PREFERS_UNDECIDED] = "undecided",
};

static const char *const warning_names[NVSHARE_WARNING_COUNT] = {
	"unannounced",
	"announced",
	"after_pause",
};

void json_print_string(FILE *out, const char *s)
{
	(void)fputc('"', out);
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (c == '"' || c == '\\')
			(void)fprintf(out, "\\%c", c);
		else if (c < 0x20 || c == 0x7f)
			(void)fprintf(out, "\\u%04x", c);
		else
			(void)fputc(c, out);
	}
	(void)fputc('"', out);
}

static void print_node(FILE *out, const struct status *status)
{
	const struct nvshare_status_node *node = &status->node;

	(void)fprintf(out, "{\n  \"version\": ");
	json_print_string(out, node->version);
	(void)fprintf(
		out,
		",\n  \"pid\": %u,\n  \"time\": %.3f,\n  \"uptime_seconds\": %.3f,\n"
		"  \"mode\": \"%s\",\n  \"sharing_degree\": %u,\n  \"policy\": \"%s\",\n  \"anti_thrash\": %s,\n  \"tq_seconds\": %.3f,\n"
		"  \"switch_time\": {\"mode\": \"%s\", \"fixed_seconds\": %.3f,"
		" \"min_seconds\": %.3f, \"max_seconds\": %.3f, \"multiplier\": %u},\n"
		"  \"jobs_running\": %u,\n  \"jobs_waiting\": %u,\n  \"credit_round_seconds\": %.3f,\n"
		"  \"max_runtime_seconds\": %.3f,\n  \"memory_reserve_percent\": %u,\n",
		node->pid, status->unix_seconds, (double)node->uptime_ns / NS,
		names_mode[node->mode], node->sharing_degree, names_policy[node->policy],
		node->anti_thrash ? "true" : "false", (double)node->tq_ns / NS,
		names_switch_mode[node->switch_mode], (double)node->switch_fixed_ns / NS,
		(double)node->switch_min_ns / NS, (double)node->switch_max_ns / NS,
		node->switch_multiplier, node->n_jobs_running, node->n_jobs_waiting,
		node->credit_round_ms / 1e3, (double)node->max_runtime_ns / NS,
		node->reserve_percent);
}

static void print_pool(FILE *out, const struct nvshare_status_pool *pool)
{
	(void)fprintf(out,
		      "  \"host_memory\": {\"lent_bytes\": %" PRIu64 ", \"ready_bytes\": %" PRIu64
		      ", \"borrowers\": %u, \"limit_bytes\": ",
		      pool->lent, pool->ready, pool->n_borrowers);
	if (pool->limit && pool->limit != UINT64_MAX)
		(void)fprintf(out, "%" PRIu64 "},\n", pool->limit);
	else
		(void)fputs("null},\n", out);
}

/* The scheduler counts all outsiders, but lists only those with most memory. */
static void print_outsiders(FILE *out, const struct status *status,
			    const struct nvshare_status_gpu *gpu)
{
	const char *gap = "";

	(void)fprintf(out,
		      ",\n     \"outsiders_count\": %u, \"outsiders_memory\": %" PRIu64
		      ", \"outsiders\": [",
		      gpu->n_outsiders, gpu->outside);
	for (size_t i = 0; i < status->n_outsiders; i++) {
		const struct nvshare_status_outsider *outsider = &status->outsiders[i];

		if (outsider->gpu != gpu->index)
			continue;
		(void)fprintf(out, "%s{\"pid\": %u, \"name\": ", gap, outsider->pid);
		json_print_string(out, outsider->name);
		(void)fprintf(out, ", \"memory\": %" PRIu64 "}", outsider->bytes);
		gap = ", ";
	}
	(void)fputc(']', out);
}

/* The values that hold on the GPU: the node's, or its own. */
static void print_settings(FILE *out, const struct nvshare_status_gpu *gpu)
{
	(void)fprintf(out,
		      ",\n     \"mode\": \"%s\", \"sharing_degree\": %u, \"tq_seconds\": %.3f"
		      ", \"switch_time\": {\"mode\": \"%s\", \"fixed_seconds\": %.3f}"
		      ", \"max_runtime_seconds\": %.3f, \"memory_reserve_percent\": %u",
		      names_mode[gpu->mode], gpu->sharing_degree, (double)gpu->tq_ns / NS,
		      names_switch_mode[gpu->switch_mode], (double)gpu->switch_fixed_ns / NS,
		      (double)gpu->max_runtime_ns / NS, gpu->reserve_percent);
}

/* Throughput of the last ten seconds. */
static void print_rates(FILE *out, const struct nvshare_status_gpu *gpu)
{
	(void)fprintf(
		out,
		",\n     \"critical_tasks_per_second\": %.6g, \"other_tasks_per_second\": %.6g"
		", \"critical_gpu_seconds_per_second\": %.6g"
		", \"other_gpu_seconds_per_second\": %.6g",
		status_rate(gpu, gpu->recent_lc_tasks), status_rate(gpu, gpu->recent_be_tasks),
		status_rate(gpu, gpu->recent_lc_gpu_ns) / NS,
		status_rate(gpu, gpu->recent_be_gpu_ns) / NS);
}

static const char *truth(bool is_true)
{
	return is_true ? "true" : "false";
}

/* key: with its quotes. A value that NVML does not tell is null. */
static void print_known(FILE *out, bool is_known, const char *key, double value)
{
	if (is_known)
		(void)fprintf(out, ", %s%.3f", key, value);
	else
		(void)fprintf(out, ", %snull", key);
}

static void print_state(FILE *out, const struct nvshare_status_state *state)
{
	bool is_told = state->age_ns != UINT64_MAX;

	(void)fprintf(out, ",\n     \"state\": \"%s\", \"xid\": %u",
		      status_gpu_state_names[state->state], state->xid);
	print_known(out, state->known & NVSHARE_STATE_KNOWS_TEMPERATURE,
		    "\"temperature_celsius\": ", state->celsius);
	print_known(out, state->known & NVSHARE_STATE_KNOWS_UTILIZATION,
		    "\"nvml_utilization_percent\": ", state->utilization_percent);
	print_known(out, state->known & NVSHARE_STATE_KNOWS_POWER,
		    "\"power_watts\": ", (double)state->power_mw / 1e3);
	print_known(out, state->known & NVSHARE_STATE_KNOWS_ENERGY,
		    "\"energy_joules\": ", (double)state->energy_mj / 1e3);
	if (is_told)
		(void)fprintf(out, ", \"used_memory\": %" PRIu64, state->used);
	else
		(void)fputs(", \"used_memory\": null", out);
	if (state->known & NVSHARE_STATE_KNOWS_PROCESSES)
		(void)fprintf(out, ",\n     \"nvml_processes\": %u", state->n_processes);
	else
		(void)fputs(",\n     \"nvml_processes\": null", out);
	(void)fprintf(out, ", \"mig\": %s",
		      state->known & NVSHARE_STATE_KNOWS_MIG ? truth(state->is_mig) : "null");
	print_known(out, is_told, "\"state_age_seconds\": ", (double)state->age_ns / NS);
}

static void print_gpu(FILE *out, const struct status *status, const struct nvshare_status_gpu *gpu)
{
	struct status_counts counts = status_count(status, gpu);
	const struct nvshare_status_state *state = status_state(status, gpu->index);
	char uuid[NVSHARE_UUID_LEN];

	(void)fprintf(out, "    {\"index\": %u, \"uuid\": \"%s\", \"name\": ", gpu->index,
		      status_uuid(gpu, uuid));
	json_print_string(out, gpu->name);
	(void)fprintf(out,
		      ",\n     \"total_memory\": %" PRIu64 ", \"usable_memory\": %" PRIu64
		      ", \"external_memory\": %" PRIu64 ", \"available_memory\": %" PRIu64
		      ", \"running_memory_usage\": %" PRIu64
		      ",\n     \"running\": %u, \"waiting\": %u, \"idle\": %u, \"clients\": %u"
		      ", \"switches\": %" PRIu64 ", \"early_switches\": %u"
		      ", \"moved_out_bytes\": %" PRIu64 ", \"moved_in_bytes\": %" PRIu64
		      ", \"bandwidth_bytes_per_second\": %" PRIu64,
		      gpu->total, gpu->usable, gpu->external, gpu->available, gpu->running,
		      counts.running, counts.waiting, counts.idle,
		      counts.running + counts.waiting + counts.idle, gpu->n_switches, gpu->n_early,
		      gpu->moved_out, gpu->moved_in, gpu->bandwidth);
	(void)fprintf(out,
		      ",\n     \"preemptions\": %" PRIu64 ", \"preempt_failures\": %" PRIu64
		      ", \"preempt_timeouts\": %" PRIu64
		      ", \"preempt_seconds\": {\"count\": %" PRIu64
		      ", \"mean\": %.6f, \"total\": %.6f, \"p50\": %.6f, \"p99\": %.6f"
		      ", \"max\": %.6f},\n     \"critical_tasks\": %" PRIu64
		      ", \"other_tasks\": %" PRIu64 ", \"slo_violations\": %" PRIu64
		      ", \"critical_gpu_seconds\": %.6f, \"other_gpu_seconds\": %.6f",
		      gpu->n_preemptions, gpu->n_preempt_failures, gpu->n_preempt_timeouts,
		      gpu->n_preempted, status_preempt_mean_ns(gpu) / NS,
		      (double)gpu->preempt_ns_total / NS, (double)gpu->preempt_ns_p50 / NS,
		      (double)gpu->preempt_ns_p99 / NS, (double)gpu->preempt_ns_max / NS,
		      gpu->n_lc_tasks, gpu->n_be_tasks, gpu->n_slo_violations,
		      (double)gpu->lc_gpu_ns / NS, (double)gpu->be_gpu_ns / NS);
	(void)fprintf(out,
		      ",\n     \"known_seconds\": %.3f, \"utilization_percent\": %.1f"
		      ", \"context_memory\": %" PRIu64 ", \"context_memory_peak\": %" PRIu64,
		      (double)gpu->known_ns / NS, status_utilisation(gpu), gpu->contexts,
		      gpu->contexts_max);
	(void)fprintf(out,
		      ",\n     \"link_bytes_per_second\": %" PRIu64
		      ", \"preempt_overhead_seconds\": {\"p50\": %.6f, \"p99\": %.6f"
		      ", \"max\": %.6f}",
		      gpu->link_bandwidth, (double)gpu->preempt_over_ns_p50 / NS,
		      (double)gpu->preempt_over_ns_p99 / NS, (double)gpu->preempt_over_ns_max / NS);
	(void)fprintf(out,
		      ",\n     \"hints\": %" PRIu64 ", \"hints_missed\": %" PRIu64
		      ", \"hint_error_seconds\": %.6f",
		      gpu->n_hints, gpu->n_hints_missed, (double)gpu->hint_error_ns / NS);
	print_settings(out, gpu);
	print_rates(out, gpu);
	if (state)
		print_state(out, state);
	print_outsiders(out, status, gpu);
	if (gpu->next_switch_ms == UINT64_MAX)
		(void)fprintf(out, ", \"next_switch_seconds\": null}");
	else
		(void)fprintf(out, ", \"next_switch_seconds\": %.3f}",
			      (double)gpu->next_switch_ms / 1000);
}

static void print_memory(FILE *out, const struct nvshare_mem *mem)
{
	(void)fprintf(out,
		      "\"memory_allocated\": %" PRIu64 ", \"memory_resident\": %" PRIu64
		      ", \"memory_swapped\": %" PRIu64 ", \"memory_wanted\": %" PRIu64
		      ",\n     \"memory_host\": %" PRIu64 ", \"memory_second_context\": %" PRIu64
		      ",\n     \"memory_pinned\": %" PRIu64 ", \"memory_pinned_by_kind\": {",
		      mem->allocated, mem->resident, mem->swapped, mem->wanted + mem->wanted_pinned,
		      mem->host, mem->pager_context, status_pinned(mem));
	for (size_t i = 0; i < NVSHARE_PINNED_COUNT; i++)
		(void)fprintf(out, "%s\"%s\": %" PRIu64, i ? ", " : "", pinned_names[i],
			      mem->pinned[i]);
	(void)fputs("},\n     ", out);
}

static void print_learned(FILE *out, const struct nvshare_status_client *client)
{
	(void)fputs(",\n     \"learned\": {", out);
	for (size_t i = 0; i < NVSHARE_WARNING_COUNT; i++) {
		const struct nvshare_learned *learned = &client->learned[i];

		(void)fprintf(out,
			      "%s\"%s\": {\"bursts\": %u, \"prefers\": \"%s\""
			      ", \"preempt_tail_seconds\": %.6f, \"slices_tail_seconds\": %.6f}",
			      i ? ",\n      " : "", warning_names[i], learned->n_bursts,
			      preference_names[learned->prefers], learned->preempt_tail_us / 1e6,
			      learned->slices_tail_us / 1e6);
	}
	(void)fputc('}', out);
}

/* The client's claim to the GPU's time, and the time that it had. */
static void print_claim(FILE *out, const struct nvshare_status_client *client)
{
	const struct nvshare_claim *claim = &client->claim;

	(void)fprintf(out, ",\n     \"priority\": \"%s\", \"weight\": %u, \"slo_seconds\": ",
		      names_priority[claim->priority], claim->weight);
	if (claim->slo_us)
		(void)fprintf(out, "%.6f", (double)claim->slo_us / 1e6);
	else
		(void)fputs("null", out);
	if (claim->compute_limit)
		(void)fprintf(out, ", \"compute_limit_percent\": %u", claim->compute_limit);
	else
		(void)fputs(", \"compute_limit_percent\": null", out);
	(void)fprintf(out,
		      ",\n     \"gpu_seconds\": %.6f, \"held_seconds\": %.6f"
		      ", \"slice_microseconds\": %" PRIu64 ", \"tasks\": %" PRIu64
		      ", \"slo_violations\": %" PRIu64,
		      (double)client->gpu_ns / NS, (double)client->held_ns / NS, client->slice_us,
		      client->n_tasks, client->n_slo_violations);
	(void)fprintf(out,
		      ",\n     \"hints\": %" PRIu64 ", \"hint_margin_seconds\": %.6f"
		      ", \"hint_prepare_seconds\": %.6f, \"hint_ratio\": %.3f"
		      ", \"hint_error_ratio\": %.3f",
		      client->n_hints, (double)client->hint_margin_ns / NS,
		      (double)client->hint_prepare_ns / NS, (double)client->hint_ratio_ppm / PPM,
		      (double)client->hint_error_ppm / PPM);
	print_learned(out, client);
	if (client->energy_j)
		(void)fprintf(out, ", \"energy_joules\": %u", client->energy_j);
	else
		(void)fputs(", \"energy_joules\": null", out);
}

/* The scheduler in the client's process. */
static void print_orion(FILE *out, const struct nvshare_orion *orion)
{
	if (!orion) {
		(void)fputs(",\n     \"orion\": null", out);
		return;
	}
	(void)fprintf(out,
		      ",\n     \"orion\": {\"clients\": %u, \"waiting\": %u"
		      ", \"high_priority_operations\": %" PRIu64
		      ", \"best_effort_operations\": %" PRIu64 ", \"best_effort_waits\": %" PRIu64
		      ", \"wait_seconds\": %.6f}",
		      orion->n_clients, orion->n_waiting, orion->hp_ops, orion->be_ops,
		      orion->be_waits, (double)orion->wait_us / 1e6);
}

/* Copies in host memory of what the client has on the card. */
static void print_clean(FILE *out, const struct nvshare_clean *clean)
{
	static const struct nvshare_clean none;

	clean = clean ? clean : &none;
	(void)fprintf(out,
		      ",\n     \"memory_clean\": %" PRIu64 ", \"memory_copied_ahead\": %" PRIu64
		      ", \"memory_not_copied\": %" PRIu64,
		      clean->bytes, clean->copied, clean->saved);
}

static void print_gang(FILE *out, const struct nvshare_status_gang *gang)
{
	if (!gang) {
		(void)fputs(",\n     \"gang\": null", out);
		return;
	}
	(void)fprintf(out, ",\n     \"gang\": {\"number\": %u, \"name\": ", gang->gang);
	json_print_string(out, gang->name);
	(void)fprintf(out, ", \"members\": %u, \"size\": %u, \"waits_for_gpu\": ", gang->n_members,
		      gang->size);
	if (gang->waits_gpu == UINT32_MAX)
		(void)fputs("null", out);
	else
		(void)fprintf(out, "%u", gang->waits_gpu);
	(void)fprintf(out, ", \"lacks_members\": %s, \"apart\": %s}",
		      truth(gang->flags & NVSHARE_GANG_LACKING),
		      truth(gang->flags & NVSHARE_GANG_APART));
}

/* The client whose memory stays in this one's way. */
static void print_blocker(FILE *out, const struct nvshare_status_wait *wait)
{
	if (!wait || !wait->blocker) {
		(void)fputs(", \"waits_for\": null", out);
		return;
	}
	(void)fprintf(out,
		      ", \"waits_for\": {\"client\": %u, \"cause\": \"%s\", \"bytes\": %" PRIu64
		      ", \"kind\": ",
		      wait->blocker, names_obstacle[wait->obstacle], wait->bytes);
	if (wait->obstacle == NVSHARE_OBSTACLE_PINNED)
		(void)fprintf(out, "\"%s\"}", pinned_names[wait->kind]);
	else
		(void)fputs("null}", out);
}

/* How a program that has slept, or that made way for one, stands to its usual turn. */
static void print_early(FILE *out, const struct nvshare_status_client *client)
{
	static const struct {
		uint32_t flag;
		const char *word;
	} words[] = {
		{NVSHARE_CLIENT_SOON, "soon"},         {NVSHARE_CLIENT_MOVES, "moved-enough"},
		{NVSHARE_CLIENT_SHARED, "had-share"},  {NVSHARE_CLIENT_EARLY, "came"},
		{NVSHARE_CLIENT_MADE_WAY, "made-way"},
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		if (client->flags & words[i].flag) {
			(void)fprintf(out, ", \"early\": \"%s\"", words[i].word);
			return;
		}
	}
	(void)fputs(", \"early\": null", out);
}

static void print_client(FILE *out, const struct status *status,
			 const struct nvshare_status_client *client)
{
	(void)fprintf(out, "    {\"id\": %u, \"gpu\": %u, \"pid\": %u, \"uid\": %u, \"name\": ",
		      client->id, client->gpu, client->pid, client->uid);
	json_print_string(out, client->name);
	(void)fputs(", \"pod\": ", out);
	json_print_string(out, client->pod);
	(void)fprintf(out, ", \"pod_known\": %s", truth(client->flags & NVSHARE_CLIENT_POD));
	(void)fprintf(out, ",\n     \"state\": \"%s\", \"is_running\": %s, \"wait_reason\": ",
		      status_state_names[client->state], truth(status_is_running(client)));
	if (client->why != NVSHARE_WAIT_NOT && status_is_out(status, client->gpu))
		(void)fputs("\"gpu\"", out);
	else if (names_wait[client->why])
		json_print_string(out, names_wait[client->why]);
	else
		(void)fputs("null", out);
	if (client->position)
		(void)fprintf(out, ", \"queue_position\": %u", client->position);
	else
		(void)fputs(", \"queue_position\": null", out);
	print_blocker(out, status_wait(status, client->id));
	print_early(out, client);
	(void)fputs(",\n     ", out);
	print_memory(out, &client->mem);
	(void)fprintf(out,
		      "\"budget\": %" PRIu64 ", \"state_seconds\": %.3f, \"run_seconds\": %.3f"
		      ", \"switches\": %" PRIu64 ", \"last_scheduled_time\": ",
		      client->budget, (double)client->since_ns / NS, (double)client->run_ns / NS,
		      client->n_switches);
	if (client->last_scheduled_ns == UINT64_MAX)
		(void)fputs("null", out);
	else
		(void)fprintf(out, "%.3f",
			      status->unix_seconds - (double)client->last_scheduled_ns / NS);
	print_claim(out, client);
	print_clean(out, status_clean(status, client->id));
	print_orion(out, status_orion(status, client->id));
	print_gang(out, status_gang(status, client->id));
	(void)fprintf(out, ",\n     \"busy\": %s, \"held\": %s, \"slices_only\": %s",
		      truth(client->flags & NVSHARE_CLIENT_BUSY),
		      truth(client->flags & NVSHARE_CLIENT_HELD),
		      truth(client->flags & NVSHARE_CLIENT_SLICES_ONLY));
	(void)fputs(",\n     \"stopped_by\": ", out);
	if (names_stopped(client->flags))
		json_print_string(out, names_stopped(client->flags));
	else
		(void)fputs("null", out);
	(void)fprintf(
		out,
		",\n     \"backend\": \"%s\", \"hung\": %s, \"preemptible\": %s"
		", \"fixed\": %s, \"growing\": %s, \"paused\": %s, \"parking\": %s, \"rdma\": %s, \"no_proc\": %s, \"bypass\": %s, \"doubted\": %s"
		", \"last_outcome\": \"%s\""
		", \"stops_by\": \"%s\", \"drains_because\": ",
		status_backend_names[client->backend], truth(client->flags & NVSHARE_CLIENT_HUNG),
		truth(!(client->flags & NVSHARE_CLIENT_NOT_PREEMPTIBLE)),
		truth(client->flags & NVSHARE_CLIENT_FIXED),
		truth(client->flags & NVSHARE_CLIENT_GROWING),
		truth(client->flags & NVSHARE_CLIENT_PAUSED),
		truth(client->flags & NVSHARE_CLIENT_PARKING),
		truth(client->flags & NVSHARE_CLIENT_RDMA),
		truth(client->flags & NVSHARE_CLIENT_NO_PROC),
		truth(client->flags & NVSHARE_CLIENT_BYPASS),
		truth(client->flags & NVSHARE_CLIENT_DOUBTED),
		status_outcome_names[client->last_outcome], status_stops_by(client));
	if (status_drain_reason(client))
		(void)fprintf(out, "\"%s\"}", status_drain_reason(client));
	else
		(void)fputs("null}", out);
}

void json_print(FILE *out, const struct status *status)
{
	print_node(out, status);
	print_pool(out, &status->pool);
	(void)fputs("  \"gpus\": [", out);
	for (size_t i = 0; i < status->n_gpus; i++) {
		(void)fputs(i ? ",\n" : "\n", out);
		print_gpu(out, status, &status->gpus[i]);
	}
	(void)fputs("\n  ],\n  \"clients\": [", out);
	for (size_t i = 0; i < status->n_clients; i++) {
		(void)fputs(i ? ",\n" : "\n", out);
		print_client(out, status, &status->clients[i]);
	}
	(void)fputs("\n  ]\n}\n", out);
}
