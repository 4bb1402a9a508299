/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "cli/json.h"

#include "ipc/names.h"
#include "util/fd.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct options {
	bool follows;
	bool is_json;
};

/* One line, so that a reader of events that come need not parse a list without an end. */
static void event_print_json(const struct nvshare_event *event)
{
	const char *gap = "";

	(void)printf("{\"id\": %" PRIu64 ", \"time\": %.3f, \"level\": \"%s\", \"type\": \"%s\""
		     ", \"message\": ",
		     event->id, (double)event->unix_ns / 1e9, names_event_level[event->level],
		     names_event[event->type]);
	json_print_string(stdout, event->message);
	(void)fputs(", \"details\": {", stdout);
	if (event->gpu != UINT32_MAX) {
		(void)printf("\"gpu\": %u, \"uuid\": ", event->gpu);
		json_print_string(stdout, event->uuid);
		gap = ", ";
	}
	if (event->xid)
		(void)printf("%s\"xid\": %u", gap, event->xid);
	if (event->client)
		(void)printf("%s\"client\": %u, \"pid\": %u", gap, event->client, event->pid);
	(void)puts("}}");
}

static void event_print(const struct nvshare_event *event)
{
	time_t seconds = (time_t)(event->unix_ns / 1000000000);
	char text[32] = "";
	struct tm tm;

	if (localtime_r(&seconds, &tm))
		(void)strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
	(void)printf("%s  %-7s  %-17s  %s\n", text, names_event_level[event->level],
		     names_event[event->type], event->message);
}

/* Takes "-f" and "--json", each once. */
static int events_options(char *const *args, struct options *ret)
{
	*ret = (struct options){false, false};
	for (; *args; args++) {
		bool *option = !strcmp(*args, "-f")       ? &ret->follows
			       : !strcmp(*args, "--json") ? &ret->is_json
							  : NULL;

		if (!option || *option) {
			(void)fprintf(stderr,
				      "nvsharectl: events takes -f and --json, and nothing else\n");
			return CLI_EXIT_USAGE;
		}
		*option = true;
	}
	return CLI_EXIT_OK;
}

static int event_fetch(int fd, const struct nvshare_get_events *body, struct nvshare_event *ret)
{
	struct msg msg;
	int r = request_send(fd, NVSHARE_MSG_GET_EVENTS, body);

	if (!r)
		r = body->waits ? request_await(fd, &msg) : request_receive(fd, &msg);
	if (r)
		return r;
	if (msg.header.type != NVSHARE_MSG_EVENT) {
		(void)fprintf(stderr, "nvsharectl: the scheduler gives a wrong answer: %s\n",
			      msg_name(msg.header.type));
		return CLI_EXIT_NO_SCHEDULER;
	}
	*ret = msg.body.event;
	return CLI_EXIT_OK;
}

int events_command(char *const *args)
{
	struct nvshare_get_events body = {.after = 0};
	FD_CLEANUP int fd = -1;
	struct options options;
	struct nvshare_event event;
	int r = events_options(args, &options);

	if (!r)
		r = request_open(&fd);
	body.waits = !r && options.follows;
	while (!r && !ferror(stdout)) {
		r = event_fetch(fd, &body, &event);
		if (r || event.type == NVSHARE_EVENT_NONE)
			break;
		if (event.n_missed && body.after)
			(void)fprintf(stderr, "nvsharectl: lost events: %" PRIu64 "\n",
				      event.n_missed);
		if (options.is_json)
			event_print_json(&event);
		else
			event_print(&event);
		(void)fflush(stdout);
		body.after = event.id;
	}
	return r;
}
