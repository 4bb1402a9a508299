/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tools/trace.h"

#include "daemon/server.h"

#include <string.h>

void trace_add(struct trace *trace, const struct nvshare_trace_entry *entry)
{
	trace->at[trace->n++ % TRACE_ENTRIES] = *entry;
}

void trace_client(struct server *server, const struct peer *peer,
		  const struct nvshare_trace_entry *entry)
{
	struct nvshare_trace_entry full = *entry;

	full.at_ns = server->now_ns;
	full.client = peer->id;
	full.gpu = (uint16_t)peer->gpu;
	trace_add(&server->trace, &full);
}

/* So many bytes of s are whole characters. max: at least 4. */
static size_t name_part_len(const char *s, size_t max)
{
	size_t len = strnlen(s, max + 1);

	if (len <= max)
		return len;
	len = max;
	while (len > 1 && (s[len] & 0xc0) == 0x80)
		len--;
	return len;
}

void trace_name(struct server *server, const struct peer *peer)
{
	struct nvshare_trace_entry entry = {.kind = NVSHARE_TRACE_NAME};
	const char *s = peer->name;

	while (*s) {
		size_t len = name_part_len(s, sizeof(entry.text));

		memset(entry.text, 0, sizeof(entry.text));
		memcpy(entry.text, s, len);
		trace_client(server, peer, &entry);
		entry.detail++;
		s += len;
	}
}

uint64_t trace_oldest(const struct trace *trace)
{
	return trace->n > TRACE_ENTRIES ? trace->n - TRACE_ENTRIES : 0;
}

const struct nvshare_trace_entry *trace_at(const struct trace *trace, uint64_t number)
{
	return &trace->at[number % TRACE_ENTRIES];
}

/* The number of the first entry from `low` on that is not older than ns. */
static uint64_t trace_find(const struct trace *trace, uint64_t low, uint64_t ns)
{
	uint64_t high = trace->n;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (trace_at(trace, middle)->at_ns < ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void trace_page(const struct trace *trace, uint64_t now_ns, const struct nvshare_get_trace *get,
		struct nvshare_trace *ret)
{
	uint64_t oldest = trace_oldest(trace);
	uint64_t first = get->since > oldest ? get->since : oldest;

	if (first > trace->n)
		first = trace->n;
	if (get->window_ns && get->window_ns < now_ns)
		first = trace_find(trace, first, now_ns - get->window_ns);
	*ret = (struct nvshare_trace){.first = first, .end = trace->n, .now_ns = now_ns};
	while (ret->n < NVSHARE_TRACE_PAGE && first < trace->n)
		ret->entries[ret->n++] = *trace_at(trace, first++);
}
