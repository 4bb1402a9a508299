/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/status.h"
#include "cli/view_private.h"
#include "cli/view_settings.h"

#include "util/clock.h"

#include <inttypes.h>
#include <stdio.h>

static void print_preemptions(FILE *out, const struct nvshare_status_gpu *gpu)
{
	if (gpu->n_lc_tasks == 0 && gpu->n_preemptions == 0 && gpu->lc_gpu_ns + gpu->be_gpu_ns == 0)
		return;
	(void)fprintf(out, "  time      %s for critical work, %s for the rest",
		      view_lasting(gpu->lc_gpu_ns).s, view_lasting(gpu->be_gpu_ns).s);
	if (gpu->known_ns)
		(void)fprintf(out, ", %.0f %% of %s", status_utilisation(gpu),
			      view_lasting(gpu->known_ns).s);
	if (gpu->n_preemptions)
		(void)fprintf(out, "; %" PRIu64 " preemption%s", gpu->n_preemptions,
			      view_plural(gpu->n_preemptions));
	if (gpu->n_preempted)
		(void)fprintf(out, ", mean %.2f ms, p50 %.2f ms, p99 %.2f ms, longest %.2f ms",
			      status_preempt_mean_ns(gpu) / 1e6, (double)gpu->preempt_ns_p50 / 1e6,
			      (double)gpu->preempt_ns_p99 / 1e6, (double)gpu->preempt_ns_max / 1e6);
	if (gpu->preempt_over_ns_max)
		(void)fprintf(out, ", beyond freezing %.3f and %.3f ms",
			      (double)gpu->preempt_over_ns_p50 / 1e6,
			      (double)gpu->preempt_over_ns_p99 / 1e6);
	if (gpu->n_preempt_failures + gpu->n_preempt_timeouts)
		(void)fprintf(out, ", %" PRIu64 " failed",
			      gpu->n_preempt_failures + gpu->n_preempt_timeouts);
	(void)fputc('\n', out);
}

static void print_rates(FILE *out, const struct nvshare_status_gpu *gpu)
{
	if (gpu->n_lc_tasks + gpu->n_be_tasks == 0)
		return;
	(void)fprintf(
		out,
		"  rates     %.3g tasks/s and %.3g GPU s/s for critical work, %.3g tasks/s and"
		" %.3g GPU s/s for the rest\n",
		status_rate(gpu, gpu->recent_lc_tasks),
		status_rate(gpu, gpu->recent_lc_gpu_ns) / 1e9,
		status_rate(gpu, gpu->recent_be_tasks),
		status_rate(gpu, gpu->recent_be_gpu_ns) / 1e9);
}

static void print_hints(FILE *out, const struct nvshare_status_gpu *gpu)
{
	if (gpu->n_hints == 0)
		return;
	(void)fprintf(out, "  hints     %" PRIu64 ", off by %.2f ms on average", gpu->n_hints,
		      (double)gpu->hint_error_ns / 1e6);
	if (gpu->n_hints_missed)
		(void)fprintf(out, "; %" PRIu64 " in vain", gpu->n_hints_missed);
	(void)fputc('\n', out);
}

/* "1.05 ms"; 0: "not tried". */
static struct view_text tail_text(uint32_t us)
{
	struct view_text text = {"not tried"};

	if (us)
		(void)snprintf(text.s, sizeof(text.s), "%.2f ms", us / 1e3);
	return text;
}

/* A critical client's slowest bursts, with others preempted and with short slices for others. */
static void print_learned(FILE *out, const struct nvshare_status_client *client)
{
	static const char *const bursts[NVSHARE_WARNING_COUNT] = {
		[NVSHARE_WARNING_NONE] = "bursts",
		[NVSHARE_WARNING_HINT] = "announced bursts",
		[NVSHARE_WARNING_PAUSE] = "bursts after a pause",
	};

	for (size_t i = 0; i < NVSHARE_WARNING_COUNT; i++) {
		const struct nvshare_learned *learned = &client->learned[i];

		if (learned->n_bursts == 0)
			continue;
		(void)fprintf(out, "  critical  %s (%u): %s: ", client->name, client->id,
			      bursts[i]);
		if (learned->prefers == NVSHARE_PREFERS_UNDECIDED)
			(void)fprintf(out,
				      "not decided yet (tail when preempting: %s, with short "
				      "timeslices: %s)\n",
				      tail_text(learned->preempt_tail_us).s,
				      tail_text(learned->slices_tail_us).s);
		else if (learned->prefers == NVSHARE_PREFERS_PREEMPTION)
			(void)fprintf(out,
				      "preempting others is best, tail %s (short timeslices: %s)\n",
				      tail_text(learned->preempt_tail_us).s,
				      tail_text(learned->slices_tail_us).s);
		else
			(void)fprintf(
				out,
				"short timeslices for others are best, tail %s (preempting: %s)\n",
				tail_text(learned->slices_tail_us).s,
				tail_text(learned->preempt_tail_us).s);
	}
}

/* The scheduler in a client's process. */
static void print_orion(FILE *out, const struct nvshare_status_client *client,
			const struct nvshare_orion *orion)
{
	(void)fprintf(out,
		      "  orion     %s (%u): %u in-process client%s, %u waiting; %" PRIu64
		      " high-priority and %" PRIu64 " best-effort operations",
		      client->name, client->id, orion->n_clients, view_plural(orion->n_clients),
		      orion->n_waiting, orion->hp_ops, orion->be_ops);
	if (orion->be_waits)
		(void)fprintf(out, ", %" PRIu64 " had to wait, %s in all", orion->be_waits,
			      view_lasting(orion->wait_us * 1000).s);
	(void)fputc('\n', out);
}

/* Bytes that host memory has already can leave the card without a copy. */
static void print_clean(FILE *out, const struct status *status,
			const struct nvshare_status_gpu *gpu)
{
	struct nvshare_clean sum = {0};

	for (size_t i = 0; i < status->n_clients; i++) {
		const struct nvshare_clean *clean = status_clean(status, status->clients[i].id);

		if (status->clients[i].gpu != gpu->index || !clean)
			continue;
		sum.bytes += clean->bytes;
		sum.copied += clean->copied;
		sum.saved += clean->saved;
	}
	if (!sum.bytes && !sum.copied && !sum.saved)
		return;
	(void)fprintf(out, "  clean     %s can leave without a copy", view_size(sum.bytes).s);
	(void)fprintf(out, "; so far %s copied ahead", view_size(sum.copied).s);
	(void)fprintf(out, ", %s not copied again\n", view_size(sum.saved).s);
}

static void print_counts(FILE *out, struct status_counts counts, uint64_t running_bytes)
{
	uint32_t n = counts.running + counts.waiting + counts.idle;

	if (n == 0) {
		(void)fprintf(out, "none");
		return;
	}
	(void)fprintf(out, "%u: %u running", n, counts.running);
	if (running_bytes)
		(void)fprintf(out, " with %s", view_size(running_bytes).s);
	(void)fprintf(out, ", %u waiting", counts.waiting);
	if (counts.idle)
		(void)fprintf(out, ", %u idle", counts.idle);
}

void view_gpu_print(FILE *out, const struct status *status, const struct nvshare_status_gpu *gpu,
		    bool has_colours)
{
	char uuid[NVSHARE_UUID_LEN];

	(void)fprintf(out, "\n%sGPU %u%s  %s%s%s\n", has_colours ? VIEW_BOLD : "", gpu->index,
		      has_colours ? VIEW_RESET : "", gpu->name, gpu->name[0] ? "  " : "",
		      status_uuid(gpu, uuid));
	(void)fprintf(out, "  memory    %s total, %s usable, %s available", view_size(gpu->total).s,
		      view_size(gpu->usable).s, view_size(gpu->available).s);
	if (gpu->external)
		(void)fprintf(out, ", %s used by others", view_size(gpu->external).s);
	if (gpu->contexts_max)
		(void)fprintf(out, ", %s in contexts (%s at the most)", view_size(gpu->contexts).s,
			      view_size(gpu->contexts_max).s);
	(void)fputc('\n', out);
	view_settings_print(out, &status->node, gpu);
	view_state_print(out, status, gpu->index, has_colours);
	(void)fprintf(out, "  clients   ");
	print_counts(out, status_count(status, gpu), gpu->running);
	(void)fprintf(out, "\n  switches  %" PRIu64, gpu->n_switches);
	if (gpu->moved_out || gpu->moved_in)
		(void)fprintf(out, ", %s moved out, %s in", view_size(gpu->moved_out).s,
			      view_size(gpu->moved_in).s);
	if (gpu->bandwidth)
		(void)fprintf(out, ", at %s/s", view_size(gpu->bandwidth).s);
	else if (gpu->link_bandwidth)
		(void)fprintf(out, ", at %s/s (assumed)", view_size(gpu->link_bandwidth).s);
	if (gpu->next_switch_ms != UINT64_MAX)
		(void)fprintf(out, "; next in %s",
			      view_lasting(gpu->next_switch_ms * CLOCK_NS_PER_MS).s);
	(void)fputc('\n', out);
	print_clean(out, status, gpu);
	print_preemptions(out, gpu);
	print_rates(out, gpu);
	print_hints(out, gpu);
	view_outsiders_print(out, status, gpu);
	for (size_t i = 0; i < status->n_clients; i++) {
		const struct nvshare_orion *orion = status_orion(status, status->clients[i].id);

		if (status->clients[i].gpu != gpu->index)
			continue;
		print_learned(out, &status->clients[i]);
		if (orion)
			print_orion(out, &status->clients[i], orion);
	}
}
