/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http/page_json.h"

#include "daemon/http/metrics.h"
#include "daemon/tools/trace.h"
#include "ipc/names.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names are sanitized when they come, so their bytes are UTF-8. len: there may be no NUL. */
static void print_string(FILE *out, const char *s, size_t len)
{
	(void)fputc('"', out);
	for (; len && *s; s++, len--) {
		unsigned char c = (unsigned char)*s;

		if (c == '"' || c == '\\')
			(void)fputc('\\', out);
		if (c < 0x20)
			(void)fprintf(out, "\\u%04x", c);
		else
			(void)fputc(c, out);
	}
	(void)fputc('"', out);
}

#define PRINT_ARRAY(out, array) print_string(out, array, sizeof(array))

/* NAN: null */
static void print_number(FILE *out, const char *key, double value)
{
	if (isnan(value))
		(void)fprintf(out, ",\"%s\":null", key);
	else
		(void)fprintf(out, ",\"%s\":%.3f", key, value);
}

static const char *truth(bool is_true)
{
	return is_true ? "true" : "false";
}

static void print_gpu(FILE *out, const struct metrics_gpu *gpu)
{
	const struct nvshare_status_gpu *status = &gpu->status;

	(void)fprintf(out, "{\"index\":%u,\"name\":", status->index);
	PRINT_ARRAY(out, status->name);
	(void)fprintf(out,
		      ",\"total\":%" PRIu64 ",\"usable\":%" PRIu64 ",\"external\":%" PRIu64
		      ",\"running\":%u,\"waiting\":%u,\"clients\":%u,\"switches\":%" PRIu64
		      ",\"moved_out\":%" PRIu64 ",\"moved_in\":%" PRIu64,
		      status->total, status->usable, status->external, status->n_running,
		      status->n_waiting, status->n_clients, status->n_switches, status->moved_out,
		      status->moved_in);
	print_number(out, "busy", gpu->busy_ratio);
	print_number(out, "next_switch_s", gpu->next_switch_seconds);
	print_number(out, "celsius", gpu->celsius);
	print_number(out, "watts", gpu->watts);
	(void)fprintf(out, ",\"is_out\":%s}", truth(gpu->is_out));
}

static void print_gang(FILE *out, const struct nvshare_status_gang *gang)
{
	if (!gang->gang) {
		(void)fputs(",\"gang\":null", out);
		return;
	}
	(void)fprintf(out,
		      ",\"gang\":{\"number\":%u,\"members\":%u,\"size\":%u,\"gpu\":", gang->gang,
		      gang->n_members, gang->size);
	if (gang->waits_gpu == UINT32_MAX)
		(void)fputs("null", out);
	else
		(void)fprintf(out, "%u", gang->waits_gpu);
	(void)fprintf(out, ",\"lacks\":%s,\"apart\":%s,\"name\":",
		      truth(gang->flags & NVSHARE_GANG_LACKING),
		      truth(gang->flags & NVSHARE_GANG_APART));
	PRINT_ARRAY(out, gang->name);
	(void)fputc('}', out);
}

static void print_wait(FILE *out, const struct nvshare_status_wait *wait)
{
	if (!wait->obstacle) {
		(void)fputs(",\"waits_for\":null", out);
		return;
	}
	(void)fprintf(out, ",\"waits_for\":{\"client\":%u,\"cause\":\"%s\",\"bytes\":%" PRIu64 "}",
		      wait->blocker, names_obstacle[wait->obstacle], wait->bytes);
}

static void print_client(FILE *out, const struct metrics_client *client)
{
	const struct nvshare_status_client *status = &client->status;
	const char *why = names_wait[status->why], *stopped = names_stopped(status->flags);

	(void)fprintf(out, "{\"id\":%u,\"gpu\":%u,\"pid\":%u,\"uid\":%u,\"name\":", status->id,
		      status->gpu, status->pid, status->uid);
	PRINT_ARRAY(out, status->name);
	(void)fputs(",\"pod\":", out);
	PRINT_ARRAY(out, status->pod);
	(void)fprintf(
		out,
		",\"pod_known\":%s,\"state\":%u,\"why\":\"%s\",\"position\":%u,\"hung\":%s,\"held\":%s"
		",\"stopped_by\":\"%s\",\"growing\":%s,\"paused\":%s,\"parking\":%s,\"priority\":\"%s\",\"weight\":%u",
		truth(status->flags & NVSHARE_CLIENT_POD), status->state, why ? why : "",
		status->position, truth(client->is_hung),
		truth(status->flags & NVSHARE_CLIENT_HELD), stopped ? stopped : "",
		truth(status->flags & NVSHARE_CLIENT_GROWING),
		truth(status->flags & NVSHARE_CLIENT_PAUSED),
		truth(status->flags & NVSHARE_CLIENT_PARKING),
		names_priority[status->claim.priority], status->claim.weight);
	(void)fprintf(out,
		      ",\"resident\":%" PRIu64 ",\"pinned\":%" PRIu64 ",\"swapped\":%" PRIu64
		      ",\"wanted\":%" PRIu64 ",\"budget\":%" PRIu64 ",\"switches\":%" PRIu64,
		      status->mem.resident, client->pinned, status->mem.swapped,
		      status->mem.wanted + status->mem.wanted_pinned, status->budget,
		      status->n_switches);
	print_number(out, "state_s", (double)status->since_ns / 1e9);
	print_number(out, "run_s", (double)status->run_ns / 1e9);
	print_number(out, "gpu_s", (double)status->gpu_ns / 1e9);
	print_wait(out, &client->wait);
	print_gang(out, &client->gang);
	(void)fputc('}', out);
}

/* Closes out. 0 or -ENOMEM. */
static int text_close(FILE *out, struct page_text *text)
{
	int is_failed = ferror(out);

	if (fclose(out) == 0 && !is_failed)
		return 0;
	free(text->at);
	return -ENOMEM;
}

int page_json_status(const struct metrics *metrics, struct page_text *ret)
{
	const struct nvshare_status_node *node = &metrics->node.status;
	struct page_text text = {.at = NULL};
	FILE *out = open_memstream(&text.at, &text.len);
	int r;

	if (!out)
		return -ENOMEM;
	(void)fprintf(out,
		      "{\"version\":\"%s\",\"pid\":%u,\"mode\":\"%s\",\"policy\":\"%s\""
		      ",\"unlisted\":%u,\"jobs_running\":%u,\"jobs_waiting\":%u",
		      node->version, node->pid, names_mode[node->mode], names_policy[node->policy],
		      metrics->node.n_unlisted, metrics->node.n_jobs_running,
		      metrics->node.n_jobs_waiting);
	print_number(out, "uptime_s", (double)node->uptime_ns / 1e9);
	(void)fputs(",\"gpus\":[", out);
	for (uint32_t i = 0; i < metrics->n_gpus; i++) {
		(void)fputs(i ? ",\n" : "\n", out);
		print_gpu(out, &metrics->gpus[i]);
	}
	(void)fputs("],\"clients\":[", out);
	for (uint32_t i = 0; i < metrics->n_clients; i++) {
		(void)fputs(i ? ",\n" : "\n", out);
		print_client(out, &metrics->clients[i]);
	}
	(void)fputs("]}\n", out);
	r = text_close(out, &text);
	if (!r)
		*ret = text;
	return r;
}

/* ---- what has happened ------------------------------------------------------ */

static void print_entry(FILE *out, const struct nvshare_trace_entry *entry)
{
	(void)fprintf(out, "[%" PRIu64 ",%u,%u,\"%s\",%u,", entry->at_ns / 1000, entry->client,
		      entry->gpu, names_trace[entry->kind], entry->detail);
	if (entry->kind == NVSHARE_TRACE_NAME)
		PRINT_ARRAY(out, entry->text);
	else
		(void)fprintf(out, "%" PRIu64, entry->value);
	(void)fputc(']', out);
}

int page_trace_make(struct page_trace *page, const struct trace *trace, uint64_t now_ns)
{
	uint64_t oldest = trace_oldest(trace);
	uint64_t first = trace->n > PAGE_TRACE_MAX ? trace->n - PAGE_TRACE_MAX : 0;
	struct page_text text = {.at = NULL};
	FILE *out = open_memstream(&text.at, &text.len);
	int r;

	if (!out)
		return -ENOMEM;
	if (first < oldest)
		first = oldest;
	for (uint64_t i = first; i < trace->n; i++) {
		page->starts[i - first] = (size_t)ftello(out);
		print_entry(out, trace_at(trace, i));
		(void)fputs(i + 1 < trace->n ? ",\n" : "", out);
	}
	page->starts[trace->n - first] = (size_t)ftello(out);
	page->first = page->next = 0; /* the old text has other starts */
	r = text_close(out, &text);
	if (r)
		return r;
	free(page->text.at);
	page->text = text;
	page->first = first;
	page->next = trace->n;
	page->made_ns = now_ns;
	return 0;
}

void page_trace_deinit(struct page_trace *page)
{
	free(page->text.at);
}

int page_trace_since(const struct page_trace *page, uint64_t since, struct page_text *ret)
{
	uint64_t first = since > page->first ? since : page->first;
	size_t start;
	char *at;
	int len;

	if (first > page->next)
		first = page->next;
	start = page->starts[first - page->first];
	len = asprintf(&at,
		       "{\"first\":%" PRIu64 ",\"next\":%" PRIu64 ",\"now_us\":%" PRIu64
		       ",\"entries\":[%.*s]}\n",
		       first, page->next, page->made_ns / 1000,
		       (int)(page->starts[page->next - page->first] - start),
		       page->text.at ? page->text.at + start : "");
	if (len < 0)
		return -ENOMEM;
	*ret = (struct page_text){at, (size_t)len};
	return 0;
}
