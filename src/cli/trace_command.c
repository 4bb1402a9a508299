/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/chrome_trace.h"
#include "cli/cli.h"
#include "cli/status.h"
#include "util/clock.h"
#include "util/fd.h"
#include "util/parse.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_NS_MAX (UINT32_MAX * CLOCK_NS_PER_SEC)

/* As they came from the scheduler. */
struct fetched {
	struct nvshare_trace_entry *entries; /* malloc() */
	size_t n, size;
	uint64_t now_ns;
};

static int fetched_take(struct fetched *fetched, const struct nvshare_trace *page)
{
	size_t size = fetched->size ? 2 * fetched->size : 1024;
	struct nvshare_trace_entry *entries;

	if (fetched->n + page->n > fetched->size) {
		entries = realloc(fetched->entries, size * sizeof(*entries));
		if (!entries) {
			(void)fprintf(stderr, "nvsharectl: out of memory\n");
			return CLI_EXIT_REFUSED;
		}
		fetched->entries = entries;
		fetched->size = size;
	}
	memcpy(fetched->entries + fetched->n, page->entries, page->n * sizeof(*page->entries));
	fetched->n += page->n;
	fetched->now_ns = page->now_ns;
	return CLI_EXIT_OK;
}

/* All up to what had happened when it began: so that a busy scheduler cannot keep it for ever. */
static int trace_fetch(uint64_t window_ns, struct fetched *fetched)
{
	struct nvshare_get_trace body = {.window_ns = window_ns};
	FD_CLEANUP int fd = -1;
	uint64_t end = UINT64_MAX;
	struct msg msg;
	int r = request_open(&fd);

	do {
		if (!r)
			r = request_send(fd, NVSHARE_MSG_GET_TRACE, &body);
		if (!r)
			r = request_receive(fd, &msg);
		if (r)
			return r;
		if (msg.header.type != NVSHARE_MSG_TRACE) {
			(void)fprintf(stderr,
				      "nvsharectl: the scheduler gives a wrong answer: %s\n",
				      msg_name(msg.header.type));
			return CLI_EXIT_NO_SCHEDULER;
		}
		r = fetched_take(fetched, &msg.body.trace);
		end = end == UINT64_MAX ? msg.body.trace.end : end;
		body.since = msg.body.trace.first + msg.body.trace.n;
		body.window_ns = 0;
	} while (!r && msg.body.trace.n && body.since < end);
	return r;
}

static int trace_write(const char *path, const struct chrome_trace *trace)
{
	FILE *out = path ? fopen(path, "we") : stdout;
	int r = out ? chrome_trace_print(out, trace) : -errno;

	if (path && out && fclose(out) != 0 && !r)
		r = -errno;
	if (!r)
		return CLI_EXIT_OK;
	(void)fprintf(stderr, "nvsharectl: cannot write '%s': %s\n", path ? path : "-",
		      strerror(-r));
	return CLI_EXIT_UNWRITTEN;
}

static int trace_print(const char *path, uint64_t window_ns)
{
	struct status status = {.gpus = NULL};
	struct fetched fetched = {.entries = NULL};
	int r = trace_fetch(window_ns, &fetched);

	if (!r)
		r = status_fetch(&status);
	if (!r) {
		struct chrome_trace trace = {
			.entries = fetched.entries,
			.n = fetched.n,
			.begin_ns = fetched.now_ns,
			.end_ns = fetched.now_ns,
			.status = &status,
		};

		if (fetched.n)
			trace.begin_ns = fetched.entries[0].at_ns;
		if (window_ns && window_ns < fetched.now_ns)
			trace.begin_ns = fetched.now_ns - window_ns;
		r = trace_write(path, &trace);
	}
	status_deinit(&status);
	free(fetched.entries);
	return r;
}

int trace_command(char *const *args)
{
	const char *path = NULL;
	uint64_t window_ns = 0;

	for (; *args; args += 2) {
		bool is_path = !strcmp(args[0], "-o");

		if (!is_path && strcmp(args[0], "--seconds") != 0) {
			(void)fprintf(stderr,
				      "nvsharectl: trace takes -o FILE and --seconds SECONDS, not"
				      " '%s'\n",
				      args[0]);
			return CLI_EXIT_USAGE;
		}
		if (!args[1] ||
		    (!is_path && parse_seconds(args[1], 1, WINDOW_NS_MAX, &window_ns))) {
			(void)fprintf(stderr, "nvsharectl: %s\n",
				      is_path ? "-o needs a file" : "--seconds needs seconds");
			return CLI_EXIT_USAGE;
		}
		if (is_path)
			path = args[1];
	}
	return trace_print(path, window_ns);
}
