/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http/metrics.h"

#include "ipc/names.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * A label's value has 128 bytes at most, each of which may become two. So the longest line has two
 * such values, two of 64 bytes, and the names.
 */
#define LINE_MAX_BYTES 2048
#define LABELS_MAX     1024
#define TEXT_FIRST     ((size_t)64 * 1024)

/* ---- text ------------------------------------------------------------------ */

/* true: there is room for a line. */
static bool text_reserve(struct metrics_text *text)
{
	size_t size = text->size ? 2 * text->size : TEXT_FIRST;
	char *at;

	if (text->size - text->len >= LINE_MAX_BYTES)
		return true;
	at = realloc(text->at, size);
	if (!at)
		return false;
	text->at = at;
	text->size = size;
	return true;
}

static void text_append(struct metrics_text *text, const char *s)
{
	size_t len = strlen(s);

	memcpy(text->at + text->len, s, len);
	text->len += len;
}

/* A client has many series, and printf() would take most of the time. */
static void text_append_u64(struct metrics_text *text, uint64_t value)
{
	char digits[24];
	size_t at = sizeof(digits);

	do {
		digits[--at] = (char)('0' + value % 10);
		value /= 10;
	} while (value);
	memcpy(text->at + text->len, digits + at, sizeof(digits) - at);
	text->len += sizeof(digits) - at;
}

/* value / unit, without trailing zeros. unit: a power of ten, at most 10^9. */
static void text_append_decimal(struct metrics_text *text, uint64_t value, uint32_t unit)
{
	text_append_u64(text, value / unit);
	if (value % unit)
		text->at[text->len++] = '.';
	for (uint64_t rest = value % unit; rest; rest = rest * 10 % unit)
		text->at[text->len++] = (char)('0' + rest * 10 / unit);
}

/* ---- labels ---------------------------------------------------------------- */

/* The set of labels of one series, without the braces. */
struct labels {
	char at[LABELS_MAX];
	size_t len;
};

static void label_append_value(struct labels *labels, const char *s, size_t len)
{
	for (size_t i = 0; i < len && s[i]; i++) {
		if (s[i] == '\\' || s[i] == '"' || s[i] == '\n')
			labels->at[labels->len++] = '\\';
		labels->at[labels->len++] = s[i] == '\n' ? 'n' : s[i];
	}
}

/* An empty value is the same as none, and so the label is left out. len: at most 128. */
static void label_append(struct labels *labels, const char *name, const char *s, size_t len)
{
	size_t name_len = strlen(name);

	if (!len || !*s)
		return;
	if (labels->len)
		labels->at[labels->len++] = ',';
	memcpy(labels->at + labels->len, name, name_len);
	labels->len += name_len;
	labels->at[labels->len++] = '=';
	labels->at[labels->len++] = '"';
	label_append_value(labels, s, len);
	labels->at[labels->len++] = '"';
}

static void label_append_u32(struct labels *labels, const char *name, uint32_t value)
{
	char digits[12];
	int len = snprintf(digits, sizeof(digits), "%" PRIu32, value);

	label_append(labels, name, digits, (size_t)len);
}

static void labels_of_gpu(const struct metrics_gpu *gpu, struct labels *ret)
{
	const uint8_t *u = gpu->status.uuid;
	char uuid[48];
	int len;

	/* GPUs and MIG instances have the same bytes; only NVML's name tells them apart. */
	len = snprintf(uuid, sizeof(uuid),
		       "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		       strstr(gpu->status.name, " MIG ") ? "MIG" : "GPU", u[0], u[1], u[2], u[3],
		       u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
		       u[15]);
	ret->len = 0;
	label_append_u32(ret, "gpu", gpu->status.index);
	label_append(ret, "UUID", uuid, (size_t)len);
}

static void labels_of_client(const struct metrics *metrics, const struct metrics_client *client,
			     struct labels *ret)
{
	const char *pod = client->status.pod;
	size_t len = strnlen(pod, sizeof(client->status.pod));
	const char *slash = memchr(pod, '/', len);
	size_t start = slash ? (size_t)(slash - pod) + 1 : 0;

	labels_of_gpu(&metrics->gpus[client->place], ret);
	label_append_u32(ret, "client", client->status.id);
	if (slash)
		label_append(ret, "namespace", pod, start - 1);
	label_append(ret, "pod", pod + start, len - start);
}

static void labels_add_node_info(const struct metrics_node *node, struct labels *labels)
{
	const struct nvshare_status_node *status = &node->status;

	label_append(labels, "version", status->version, sizeof(status->version));
	label_append(labels, "mode", names_mode[status->mode], SIZE_MAX);
	label_append(labels, "policy", names_policy[status->policy], SIZE_MAX);
	label_append(labels, "switch_time", names_switch_mode[status->switch_mode], SIZE_MAX);
}

static void labels_add_client_info(const struct metrics_client *client, struct labels *labels)
{
	const struct nvshare_status_client *status = &client->status;

	label_append_u32(labels, "pid", status->pid);
	label_append_u32(labels, "uid", status->uid);
	label_append(labels, "name", status->name, sizeof(status->name));
	if (status->pod[0])
		label_append(labels, "pod_known",
			     status->flags & NVSHARE_CLIENT_POD ? "true" : "false", SIZE_MAX);
	label_append(labels, "priority", names_priority[status->claim.priority], SIZE_MAX);
	label_append_u32(labels, "weight", status->claim.weight);
}

/* ---- series ---------------------------------------------------------------- */

static void print_value(struct metrics_text *text, const struct metrics_row *row, const void *field)
{
	switch (row->form) {
	case METRICS_INFO:
		text_append(text, "1");
		break;
	case METRICS_BOOL:
		text_append(text, *(const bool *)field ? "1" : "0");
		break;
	case METRICS_U32:
		text_append_u64(text, *(const uint32_t *)field);
		break;
	case METRICS_U64:
		text_append_u64(text, *(const uint64_t *)field);
		break;
	case METRICS_NS:
		text_append_decimal(text, *(const uint64_t *)field, 1000000000);
		break;
	case METRICS_SLICE:
		text_append_decimal(text, *(const uint64_t *)field, 1000000);
		break;
	case METRICS_PERCENT:
		text_append_decimal(text, *(const uint32_t *)field, 100);
		break;
	case METRICS_DOUBLE:
		/* Fewer digits would round large counters. */
		text->len +=
			(size_t)snprintf(text->at + text->len, 32, "%.15g", *(const double *)field);
		break;
	case METRICS_BUCKETS:
		break; /* print_buckets() */
	}
	text_append(text, "\n");
}

static void print_head(struct metrics_text *text, const struct metrics_row *row)
{
	static const char *const types[] = {"gauge", "counter", "histogram"};

	text->len += (size_t)snprintf(text->at + text->len, LINE_MAX_BYTES,
				      "# HELP %s %s\n# TYPE %s %s\n", row->name, row->help,
				      row->name, types[row->type]);
}

/* label: beside labels; NULL: none. */
static void print_name(struct metrics_text *text, const char *name, const char *suffix,
		       const struct labels *labels, const char *label)
{
	text_append(text, name);
	text_append(text, suffix);
	if (labels->len || label) {
		text_append(text, "{");
		memcpy(text->at + text->len, labels->at, labels->len);
		text->len += labels->len;
		if (label) {
			text_append(text, labels->len ? "," : "");
			text_append(text, label);
		}
		text_append(text, "}");
	}
	text_append(text, " ");
}

static int print_buckets(struct metrics_text *text, const struct metrics_row *row,
			 const struct labels *labels, const struct histogram *histogram)
{
	uint64_t n = 0;
	char label[40];

	for (uint32_t i = 0; i <= HISTOGRAM_BOUNDS; i++) {
		if (!text_reserve(text))
			return -ENOMEM;
		n += histogram->n[i];
		if (i < HISTOGRAM_BOUNDS)
			(void)snprintf(label, sizeof(label), "le=\"%g\"",
				       (double)histogram_bounds_ns[i] / 1e9);
		else
			(void)snprintf(label, sizeof(label), "le=\"+Inf\"");
		print_name(text, row->name, "_bucket", labels, label);
		text_append_u64(text, n);
		text_append(text, "\n");
	}
	if (!text_reserve(text))
		return -ENOMEM;
	print_name(text, row->name, "_sum", labels, NULL);
	text_append_decimal(text, histogram->sum_ns, 1000000000);
	text_append(text, "\n");
	print_name(text, row->name, "_count", labels, NULL);
	text_append_u64(text, n);
	text_append(text, "\n");
	return 0;
}

/* owner: the struct of the row's scope. */
static int print_series(struct metrics_text *text, const struct metrics_row *row,
			const struct labels *labels, const void *owner)
{
	const void *field = (const char *)owner + row->offset;

	if (row->form == METRICS_BUCKETS)
		return print_buckets(text, row, labels, field);
	if (row->form == METRICS_DOUBLE && isnan(*(const double *)field))
		return 0;
	if (!text_reserve(text))
		return -ENOMEM;
	print_name(text, row->name, "", labels, row->label);
	print_value(text, row, field);
	return 0;
}

static int print_row_of_gpus(struct metrics_text *text, const struct metrics_row *row,
			     const struct metrics *metrics)
{
	for (uint32_t i = 0; i < metrics->n_gpus; i++) {
		const struct metrics_gpu *gpu = &metrics->gpus[i];
		struct labels labels;
		int r;

		labels_of_gpu(gpu, &labels);
		if (row->form == METRICS_INFO)
			label_append(&labels, "name", gpu->status.name, sizeof(gpu->status.name));
		r = print_series(text, row, &labels, gpu);
		if (r)
			return r;
	}
	return 0;
}

/* Escaped once: a client has some twenty series. */
struct client_labels {
	uint32_t at, len;
};

struct client_label_cache {
	struct metrics_text text;
	struct client_labels clients[METRICS_CLIENTS_MAX];
};

static int cache_fill(struct client_label_cache *cache, const struct metrics *metrics)
{
	struct labels labels;

	for (uint32_t i = 0; i < metrics->n_clients; i++) {
		if (!text_reserve(&cache->text))
			return -ENOMEM;
		labels_of_client(metrics, &metrics->clients[i], &labels);
		cache->clients[i] =
			(struct client_labels){(uint32_t)cache->text.len, (uint32_t)labels.len};
		memcpy(cache->text.at + cache->text.len, labels.at, labels.len);
		cache->text.len += labels.len;
	}
	return 0;
}

static int print_row_of_clients(struct metrics_text *text, const struct metrics_row *row,
				const struct metrics *metrics,
				const struct client_label_cache *cache)
{
	for (uint32_t i = 0; i < metrics->n_clients; i++) {
		const struct metrics_client *client = &metrics->clients[i];
		struct labels labels;
		int r;

		labels.len = cache->clients[i].len;
		memcpy(labels.at, cache->text.at + cache->clients[i].at, labels.len);
		if (row->form == METRICS_INFO)
			labels_add_client_info(client, &labels);
		r = print_series(text, row, &labels, client);
		if (r)
			return r;
	}
	return 0;
}

static int print_row(struct metrics_text *text, const struct metrics_row *row,
		     const struct metrics *metrics, const struct client_label_cache *cache)
{
	struct labels labels = {.len = 0};

	if (!text_reserve(text))
		return -ENOMEM;
	if (row->help) /* the first one of its name */
		print_head(text, row);
	switch (row->scope) {
	case METRICS_OF_NODE:
		if (row->form == METRICS_INFO)
			labels_add_node_info(&metrics->node, &labels);
		return print_series(text, row, &labels, &metrics->node);
	case METRICS_OF_GPU:
		return print_row_of_gpus(text, row, metrics);
	case METRICS_OF_CLIENT:
		return print_row_of_clients(text, row, metrics, cache);
	}
	return 0;
}

int metrics_print(const struct metrics *metrics, struct metrics_text *ret_text)
{
	struct client_label_cache *cache = calloc(1, sizeof(*cache));
	int r = cache ? cache_fill(cache, metrics) : -ENOMEM;

	*ret_text = (struct metrics_text){.at = NULL};
	for (size_t i = 0; !r && i < metrics_table_len; i++)
		r = print_row(ret_text, &metrics_table[i], metrics, cache);
	if (cache)
		free(cache->text.at);
	free(cache);
	if (r) {
		free(ret_text->at);
		*ret_text = (struct metrics_text){.at = NULL};
	}
	return r;
}
