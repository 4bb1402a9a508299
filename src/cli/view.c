/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/view.h"

#include "cli/blame.h"
#include "cli/fold.h"
#include "cli/status.h"
#include "cli/table.h"
#include "cli/view_settings.h"
#include "cli/view_state.h"
#include "ipc/names.h"
#include "util/clock.h"
#include "util/parse.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOLD   "\033[1m"
#define DIM    "\033[2m"
#define RED    "\033[31m"
#define GREEN  "\033[32m"
#define YELLOW "\033[33m"
#define RESET  "\033[0m"

#define NAME_WIDTH 24

static const struct table_column columns[] = {
	{"ID", TABLE_ALIGN_RIGHT, 0},        {"PID", TABLE_ALIGN_RIGHT, 0},
	{"USER", TABLE_ALIGN_LEFT, 5},       {"NAME", TABLE_ALIGN_NAME, 0},
	{"POD", TABLE_ALIGN_NAME, 3},        {"PRIORITY", TABLE_ALIGN_LEFT, 1},
	{"WEIGHT", TABLE_ALIGN_RIGHT, 8},    {"STATE", TABLE_ALIGN_LEFT, 0},
	{"SINCE", TABLE_ALIGN_RIGHT, 1},     {"SCHEDULED", TABLE_ALIGN_RIGHT, 3},
	{"ALLOCATED", TABLE_ALIGN_RIGHT, 6}, {"RESIDENT", TABLE_ALIGN_RIGHT, 0},
	{"SWAPPED", TABLE_ALIGN_RIGHT, 0},   {"PINNED", TABLE_ALIGN_RIGHT, 2},
	{"USES", TABLE_ALIGN_RIGHT, 7},      {"ENERGY", TABLE_ALIGN_RIGHT, 9},
	{"STOPS", TABLE_ALIGN_RIGHT, 7},     {"STOPS BY", TABLE_ALIGN_LEFT, 4},
	{"NOTE", TABLE_ALIGN_NOTE, 0},
};

struct text {
	char s[VIEW_DURATION_LEN];
};

static struct text size_text(uint64_t bytes)
{
	struct text text = {""};

	(void)format_size(bytes, text.s, sizeof(text.s));
	return text;
}

/* In the table most sizes are zero: "-" reads faster. */
static struct text size_cell(uint64_t bytes)
{
	return bytes ? size_text(bytes) : (struct text){"-"};
}

const char *view_duration(uint64_t ns, char ret_text[VIEW_DURATION_LEN])
{
	uint64_t s = ns / CLOCK_NS_PER_SEC;

	if (s < 10)
		(void)snprintf(ret_text, VIEW_DURATION_LEN, "%.1f s",
			       (double)(ns / CLOCK_NS_PER_MS) / 1000);
	else if (s < 60)
		(void)snprintf(ret_text, VIEW_DURATION_LEN, "%u s", (unsigned int)s);
	else if (s < 3600)
		(void)snprintf(ret_text, VIEW_DURATION_LEN, "%u min %u s", (unsigned int)(s / 60),
			       (unsigned int)(s % 60));
	else if (s < 86400)
		(void)snprintf(ret_text, VIEW_DURATION_LEN, "%u h %u min", (unsigned int)(s / 3600),
			       (unsigned int)(s / 60 % 60));
	else
		(void)snprintf(ret_text, VIEW_DURATION_LEN, "%" PRIu64 " d %u h", s / 86400,
			       (unsigned int)(s / 3600 % 24));
	return ret_text;
}

static struct text duration_text(uint64_t ns)
{
	struct text text = {""};

	(void)view_duration(ns, text.s);
	return text;
}

/* For settings: "30 s", not "30.0 s". */
static struct text seconds_text(uint64_t ns)
{
	struct text text;

	(void)snprintf(text.s, sizeof(text.s), "%g s", (double)ns / (double)CLOCK_NS_PER_SEC);
	return text;
}

static void print_node(FILE *out, const struct nvshare_status_node *node, bool has_colours)
{
	(void)fprintf(out, "%snvshare-scheduler %s%s, pid %u, up %s\n", has_colours ? BOLD : "",
		      node->version, has_colours ? RESET : "", node->pid,
		      duration_text(node->uptime_ns).s);
	(void)fprintf(out, "mode %s, policy %s", names_mode[node->mode],
		      names_policy[node->policy]);
	if (node->policy == NVSHARE_POLICY_CREDIT && node->credit_round_ms)
		(void)fprintf(out, " (rounds of %s)",
			      seconds_text(node->credit_round_ms * CLOCK_NS_PER_MS).s);
	(void)fputs(", ", out);
	if (node->mode == NVSHARE_MODE_CONCURRENT)
		(void)fprintf(out, "turns of %s (tq)", seconds_text(node->tq_ns).s);
	else if (node->switch_mode == NVSHARE_SWITCH_FIXED)
		(void)fprintf(out, "switch time %s", seconds_text(node->switch_fixed_ns).s);
	else
		(void)fprintf(out, "switch time auto (%u x swap time, %s to %s)",
			      node->switch_multiplier, seconds_text(node->switch_min_ns).s,
			      seconds_text(node->switch_max_ns).s);
	if (node->sharing_degree)
		(void)fprintf(out, ", at most %u programs at once", node->sharing_degree);
	(void)fprintf(out, ", max runtime %s, reserve %u %%, anti-thrash %s\n",
		      seconds_text(node->max_runtime_ns).s, node->reserve_percent,
		      node->anti_thrash ? "on" : "off: nobody takes turns");
}

static void print_preemptions(FILE *out, const struct nvshare_status_gpu *gpu)
{
	if (gpu->n_lc_tasks == 0 && gpu->n_preemptions == 0 && gpu->lc_gpu_ns + gpu->be_gpu_ns == 0)
		return;
	(void)fprintf(out, "  time      %s for critical work, %s for the rest",
		      duration_text(gpu->lc_gpu_ns).s, duration_text(gpu->be_gpu_ns).s);
	if (gpu->known_ns)
		(void)fprintf(out, ", %.0f %% of %s", status_utilisation(gpu),
			      duration_text(gpu->known_ns).s);
	if (gpu->n_preemptions)
		(void)fprintf(out, "; %" PRIu64 " preemptions", gpu->n_preemptions);
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
	if (gpu->n_lc_tasks + gpu->n_be_tasks == 0 || gpu->known_ns == 0)
		return;
	(void)fprintf(
		out,
		"  rates     %.3g tasks/s and %.3g GPU s/s for critical work, %.3g tasks/s and"
		" %.3g GPU s/s for the rest\n",
		status_rate(gpu, (double)gpu->n_lc_tasks),
		status_rate(gpu, (double)gpu->lc_gpu_ns / 1e9),
		status_rate(gpu, (double)gpu->n_be_tasks),
		status_rate(gpu, (double)gpu->be_gpu_ns / 1e9));
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
static struct text tail_text(uint32_t us)
{
	struct text text = {"not tried"};

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

static void print_counts(FILE *out, struct status_counts counts, uint64_t running_bytes)
{
	uint32_t n = counts.running + counts.waiting + counts.idle;

	if (n == 0) {
		(void)fprintf(out, "none");
		return;
	}
	(void)fprintf(out, "%u: %u running", n, counts.running);
	if (running_bytes)
		(void)fprintf(out, " with %s", size_text(running_bytes).s);
	(void)fprintf(out, ", %u waiting", counts.waiting);
	if (counts.idle)
		(void)fprintf(out, ", %u idle", counts.idle);
}

static void print_gpu(FILE *out, const struct status *status, const struct nvshare_status_gpu *gpu,
		      bool has_colours)
{
	char uuid[STATUS_UUID_LEN];

	(void)fprintf(out, "\n%sGPU %u%s  %s%s%s\n", has_colours ? BOLD : "", gpu->index,
		      has_colours ? RESET : "", gpu->name, gpu->name[0] ? "  " : "",
		      status_uuid(gpu, uuid));
	(void)fprintf(out, "  memory    %s total, %s usable, %s available", size_text(gpu->total).s,
		      size_text(gpu->usable).s, size_text(gpu->available).s);
	if (gpu->external)
		(void)fprintf(out, ", %s used by others", size_text(gpu->external).s);
	if (gpu->contexts_max)
		(void)fprintf(out, ", %s in contexts (%s at the most)", size_text(gpu->contexts).s,
			      size_text(gpu->contexts_max).s);
	(void)fputc('\n', out);
	view_settings_print(out, &status->node, gpu);
	view_state_print(out, status, gpu->index, has_colours);
	(void)fprintf(out, "  clients   ");
	print_counts(out, status_count(status, gpu), gpu->running);
	(void)fprintf(out, "\n  switches  %" PRIu64, gpu->n_switches);
	if (gpu->moved_out || gpu->moved_in)
		(void)fprintf(out, ", %s moved out, %s in", size_text(gpu->moved_out).s,
			      size_text(gpu->moved_in).s);
	if (gpu->bandwidth)
		(void)fprintf(out, ", at %s/s", size_text(gpu->bandwidth).s);
	else if (gpu->link_bandwidth)
		(void)fprintf(out, ", at %s/s (assumed)", size_text(gpu->link_bandwidth).s);
	if (gpu->next_switch_ms != UINT64_MAX)
		(void)fprintf(out, "; next in %s",
			      duration_text(gpu->next_switch_ms * CLOCK_NS_PER_MS).s);
	(void)fputc('\n', out);
	print_preemptions(out, gpu);
	print_rates(out, gpu);
	print_hints(out, gpu);
}

struct process_text {
	char s[NVSHARE_NAME_LEN + sizeof(" (pid 4294967295)")];
};

struct outsiders_text {
	char s[192];
};

/* "python3 (pid 123)", or "pid 123" without a name. */
static struct process_text process_text(const struct nvshare_status_outsider *outsider)
{
	struct process_text named;

	if (outsider->name[0])
		(void)snprintf(named.s, sizeof(named.s), "%s (pid %u)", outsider->name,
			       outsider->pid);
	else
		(void)snprintf(named.s, sizeof(named.s), "pid %u", outsider->pid);
	return named;
}

static void print_outsiders(FILE *out, const struct status *status,
			    const struct nvshare_status_gpu *gpu)
{
	uint32_t n_more = gpu->n_outsiders;
	uint64_t more = gpu->outside;
	const char *gap = "  outside   nvshare: ";

	for (size_t i = 0; i < status->n_outsiders; i++) {
		const struct nvshare_status_outsider *outsider = &status->outsiders[i];

		if (outsider->gpu != gpu->index)
			continue;
		(void)fprintf(out, "%s%s", gap, process_text(outsider).s);
		if (outsider->bytes)
			(void)fprintf(out, " with %s", size_text(outsider->bytes).s);
		gap = ", ";
		n_more -= n_more > 0;
		more -= outsider->bytes < more ? outsider->bytes : more;
	}
	if (n_more)
		(void)fprintf(out, "%s%u %s with %s", gap, n_more,
			      n_more < gpu->n_outsiders ? "more" : "unnamed", size_text(more).s);
	if (gpu->n_outsiders)
		(void)fputc('\n', out);
}

/* "python3 (pid 123) and 2 more, outside nvshare, have 5.0 GiB". */
static struct outsiders_text outsiders_text(const struct status *status, uint32_t index)
{
	const struct nvshare_status_outsider *first = NULL;
	const struct nvshare_status_gpu *gpu = NULL;
	struct outsiders_text text;

	for (size_t i = 0; i < status->n_gpus; i++)
		gpu = status->gpus[i].index == index ? &status->gpus[i] : gpu;
	for (size_t i = status->n_outsiders; i > 0; i--)
		first = status->outsiders[i - 1].gpu == index ? &status->outsiders[i - 1] : first;
	if (!gpu || !first)
		(void)snprintf(text.s, sizeof(text.s), "others, outside nvshare, have %s",
			       size_text(gpu ? gpu->external : 0).s);
	else if (gpu->n_outsiders > 1)
		(void)snprintf(text.s, sizeof(text.s), "%s and %u more, outside nvshare, have %s",
			       process_text(first).s, gpu->n_outsiders - 1,
			       size_text(gpu->outside).s);
	else
		(void)snprintf(text.s, sizeof(text.s), "%s, outside nvshare, has %s",
			       process_text(first).s, size_text(gpu->outside).s);
	return text;
}

static const char *state_colour(const struct nvshare_status_client *client)
{
	if (client->flags & NVSHARE_CLIENT_HUNG)
		return RED;
	switch ((enum nvshare_client_state)client->state) {
	case NVSHARE_CLIENT_RUNNING:
		return GREEN;
	case NVSHARE_CLIENT_WAITING:
	case NVSHARE_CLIENT_INCOMING:
	case NVSHARE_CLIENT_STOPPING:
		return YELLOW;
	case NVSHARE_CLIENT_IDLE:
	case NVSHARE_CLIENT_STATE_COUNT:
		break;
	}
	return DIM;
}

/* Why the client did not stop or its memory did not move; "" after a success. */
static const char *failure_words(const struct nvshare_status_client *client)
{
	static const char *const words[NVSHARE_OUTCOME_COUNT] = {
		[NVSHARE_OUTCOME_SUCCESS] = "",
		[NVSHARE_OUTCOME_TIMEOUT] = "its work or a capture did not end in time",
		[NVSHARE_OUTCOME_SAVE_FAILED] = "a copy to the host failed",
		[NVSHARE_OUTCOME_NO_HOST_MEMORY] = "no host memory for it",
		[NVSHARE_OUTCOME_GPU_HUNG] = "the GPU does not answer",
		[NVSHARE_OUTCOME_INVALID_STATE] = "not all of it came back",
		[NVSHARE_OUTCOME_UNSUPPORTED] = "not supported",
		[NVSHARE_OUTCOME_PARTIAL] = "only a part of it came back",
		[NVSHARE_OUTCOME_NO_CARD_MEMORY] = "the card had no room for all of it",
	};

	return client->last_outcome < NVSHARE_OUTCOME_COUNT ? words[client->last_outcome] : "?";
}

struct note {
	char s[VIEW_NOTE_LEN];
};

/* Appends words to the note, after a comma. */
__attribute__((format(printf, 2, 3))) static void add_words(struct note *note, const char *format,
							    ...)
{
	size_t len = strlen(note->s);
	char words[sizeof(struct outsiders_text)];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(words, sizeof(words), format, args);
	va_end(args);
	(void)snprintf(note->s + len, sizeof(note->s) - len, "%s%s", len ? ", " : "", words);
}

/* The client waits because an administrator has switched turns off: nothing is wrong. */
static bool lacks_turns(const struct nvshare_status_node *node,
			const struct nvshare_status_client *client)
{
	return !node->anti_thrash &&
	       (client->why == NVSHARE_WAIT_STUCK || client->why == NVSHARE_WAIT_MEMORY);
}

static void add_wait(struct note *note, const struct status *status,
		     const struct nvshare_status_client *client)
{
	static const char *const reasons[] = {
		[NVSHARE_WAIT_NOT] = "",
		[NVSHARE_WAIT_TURN] = "waits for its turn",
		[NVSHARE_WAIT_MEMORY] = "waits for memory",
		[NVSHARE_WAIT_SWAP] = "memory is being moved",
		[NVSHARE_WAIT_STUCK] = "",
		[NVSHARE_WAIT_OUTSIDERS] = "waits for memory",
	};
	const char *reason = reasons[client->why];
	struct blame blame;
	char text[112];

	if (client->why != NVSHARE_WAIT_NOT && status_is_out(status, client->gpu)) {
		reason = "waits for its GPU, which has an error";
	} else if (lacks_turns(&status->node, client)) {
		reason = "waits for memory: turns are off (nvsharectl -S on)";
	} else if (client->why == NVSHARE_WAIT_STUCK) {
		blame = blame_find(status, client);
		reason = blame_text(&blame, text, sizeof(text));
	}

	if (client->position)
		add_words(note, "#%u%s%s", client->position, reason[0] ? " " : "", reason);
	else if (reason[0])
		add_words(note, "%s", reason);
	if (client->why == NVSHARE_WAIT_OUTSIDERS)
		add_words(note, "%s", outsiders_text(status, client->gpu).s);
}

bool view_note(const struct status *status, const struct nvshare_status_client *client,
	       char ret_note[VIEW_NOTE_LEN])
{
	uint64_t wanted = client->mem.wanted + client->mem.wanted_pinned;
	const char *failed = failure_words(client);
	struct note note = {""};
	bool is_wrong;

	if (client->flags & NVSHARE_CLIENT_HUNG) {
		(void)snprintf(ret_note, VIEW_NOTE_LEN, "hung: does not answer");
		return true;
	}
	if (client->flags & NVSHARE_CLIENT_DOUBTED)
		add_words(&note, "reports more than is on the card");
	if (client->flags & NVSHARE_CLIENT_PAUSED)
		add_words(&note, "paused");
	add_wait(&note, status, client);
	if (wanted)
		add_words(&note, "needs %s more", size_text(wanted).s);
	if (client->flags & NVSHARE_CLIENT_FIXED)
		add_words(&note, "takes no turns");
	if (client->flags & NVSHARE_CLIENT_RDMA)
		add_words(&note, "stays on the card: rdma");
	if (client->flags & NVSHARE_CLIENT_NO_PROC)
		add_words(&note, "stays on the card: it sees no /proc (NVSHARE_RDMA=ignore)");
	if (client->claim.slo_us)
		add_words(&note, "slo %g ms", (double)client->claim.slo_us / 1000);
	if (client->claim.compute_limit)
		add_words(&note, "at most %u %% of the time%s", client->claim.compute_limit,
			  client->flags & NVSHARE_CLIENT_FIXED ? ": not kept on several GPUs" : "");
	if (client->flags & NVSHARE_CLIENT_HELD)
		add_words(&note, "held for others");
	if (client->n_slo_violations)
		add_words(&note, "%" PRIu64 " of %" PRIu64 " too late", client->n_slo_violations,
			  client->n_tasks);
	if (client->flags & NVSHARE_CLIENT_SLICES_ONLY)
		add_words(&note, "its bursts hold no others: freezing was too slow");
	if (client->flags & NVSHARE_CLIENT_NOT_PREEMPTIBLE)
		add_words(&note, "can not be stopped%s%s", failed[0] ? ": " : "", failed);
	else if (failed[0] && status_is_running(client))
		add_words(&note, "did not stop: %s", failed);
	else if (failed[0])
		add_words(&note, "did not move: %s", failed);
	if (status_drain_reason(client))
		add_words(&note, "can not be frozen: %s", status_drain_reason(client));
	is_wrong = client->why == NVSHARE_WAIT_OUTSIDERS ||
		   (client->why == NVSHARE_WAIT_STUCK && !lacks_turns(&status->node, client));
	(void)snprintf(ret_note, VIEW_NOTE_LEN, "%s", note.s);
	return is_wrong || failed[0];
}

static void add_note(struct table *table, const struct status *status,
		     const struct nvshare_status_client *client)
{
	char note[VIEW_NOTE_LEN];
	bool is_wrong = view_note(status, client, note);

	table_add(table, is_wrong ? RED : NULL, "%s", note);
}

/* Defaults are empty cells, so a column disappears if all clients have the default. */
static void add_claim(struct table *table, const struct nvshare_claim *claim)
{
	if (claim->priority != NVSHARE_PRIORITY_NORMAL)
		table_add(table, NULL, "%s", names_priority[claim->priority]);
	else
		table_add(table, NULL, "%s", "");
	if (claim->weight != NVSHARE_WEIGHT_DEFAULT)
		table_add(table, NULL, "%u", claim->weight);
	else
		table_add(table, NULL, "%s", "");
}

/* Its part of the GPU's time while it ran; "" if the client has not reported any. */
static struct text time_part_text(const struct nvshare_status_client *client)
{
	struct text text = {""};

	if (client->gpu_ns && client->run_ns)
		(void)snprintf(text.s, sizeof(text.s), "%.0f %%",
			       100.0 * (double)client->gpu_ns / (double)client->run_ns);
	return text;
}

static struct text energy_text(const struct nvshare_status_client *client)
{
	struct text text = {""};
	double j = client->energy_j;

	if (j >= 3.6e6)
		(void)snprintf(text.s, sizeof(text.s), "%.2f kWh", j / 3.6e6);
	else if (j >= 10000)
		(void)snprintf(text.s, sizeof(text.s), "%.0f kJ", j / 1000);
	else if (j > 0)
		(void)snprintf(text.s, sizeof(text.s), "%.0f J", j);
	return text;
}

static void add_client(struct table *table, const struct status *status,
		       const struct nvshare_status_client *client)
{
	const struct passwd *user = getpwuid(client->uid);

	table_add(table, NULL, "%u", client->id);
	table_add(table, NULL, "%u", client->pid);
	if (user)
		table_add(table, NULL, "%s", user->pw_name);
	else
		table_add(table, NULL, "%u", client->uid);
	table_add(table, NULL, "%.*s", NAME_WIDTH, client->name);
	table_add(table, NULL, "%s", client->pod);
	add_claim(table, &client->claim);
	table_add(table, state_colour(client), "%s", status_state_names[client->state]);
	table_add(table, NULL, "%s", duration_text(client->since_ns).s);
	if (client->last_scheduled_ns == UINT64_MAX)
		table_add(table, NULL, "%s", "");
	else
		table_add(table, NULL, "%s", duration_text(client->last_scheduled_ns).s);
	table_add(table, NULL, "%s", size_cell(client->mem.allocated).s);
	table_add(table, NULL, "%s", size_cell(client->mem.resident).s);
	table_add(table, NULL, "%s", size_cell(client->mem.swapped).s);
	table_add(table, NULL, "%s", size_cell(status_pinned(&client->mem)).s);
	table_add(table, NULL, "%s", time_part_text(client).s);
	table_add(table, NULL, "%s", energy_text(client).s);
	table_add(table, NULL, "%" PRIu64, client->n_switches);
	table_add(table, NULL, "%s", client->halt ? status_stops_by(client) : "");
	add_note(table, status, client);
}

static void print_clients(FILE *out, const struct status *status, uint32_t gpu, size_t width,
			  bool has_colours)
{
	struct table table;

	table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < status->n_clients; i++) {
		if (status->clients[i].gpu == gpu)
			add_client(&table, status, &status->clients[i]);
	}
	if (table.n_cells) {
		(void)fputc('\n', out);
		table_print(&table, out, "  ", width, has_colours);
	}
	table_deinit(&table);
}

/* Collects lines, to fold and print them together. */
struct lines {
	FILE *file;
	char *text;
	size_t len;
};

static bool lines_begin(struct lines *lines)
{
	*lines = (struct lines){0};
	lines->file = open_memstream(&lines->text, &lines->len);
	return lines->file != NULL;
}

static void lines_end(struct lines *lines, FILE *out, size_t width)
{
	if (fclose(lines->file) == 0)
		fold_print(out, lines->text, width);
	free(lines->text);
}

void view_print(FILE *out, const struct status *status, size_t width, bool has_colours)
{
	struct lines lines;

	if (lines_begin(&lines)) {
		print_node(lines.file, &status->node, has_colours);
		lines_end(&lines, out, width);
	}
	if (status->n_gpus == 0)
		(void)fprintf(out,
			      "\nNo GPU yet: NVML lists none, and no program has registered.\n");
	for (size_t i = 0; i < status->n_gpus; i++) {
		if (lines_begin(&lines)) {
			print_gpu(lines.file, status, &status->gpus[i], has_colours);
			print_outsiders(lines.file, status, &status->gpus[i]);
			for (size_t k = 0; k < status->n_clients; k++) {
				if (status->clients[k].gpu == status->gpus[i].index)
					print_learned(lines.file, &status->clients[k]);
			}
			lines_end(&lines, out, width);
		}
		print_clients(out, status, status->gpus[i].index, width, has_colours);
	}
}
