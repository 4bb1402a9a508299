/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/chrome_trace.h"

#include "cli/json.h"
#include "cli/status.h"
#include "ipc/names.h"

#include "util/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
/* The default one falls through a switch, of which clang warns where the macro is used. */
#define HASH_FUNCTION HASH_OAT
#include <uthash.h>

enum doing { DOING_NOTHING, DOING_WAIT, DOING_IN, DOING_RUN, DOING_OUT };

static const char *const doing_names[] = {NULL, "wait", "move in", "run", "move out"};

struct traced_client {
	uint32_t id; /* the key */
	uint32_t gpu, pid;
	enum doing doing, before; /* before DOING_OUT */
	bool is_known;            /* doing is; else the first entry tells what it was */
	bool is_frozen;
	uint64_t value, ns; /* of the slice: bytes, and the time of their copies */
	uint8_t detail;     /* of the slice: why, or the outcome */
	char name[NVSHARE_NAME_LEN];
	UT_hash_handle hh;
};

struct writer {
	FILE *out;
	uint64_t begin_ns;
	bool has_events;
	struct traced_client *clients; /* by ID */
};

/* ---- events ---------------------------------------------------------------- */

/* The beginning of an event. Perfetto takes process 0 for the idle one. */
static void event_open(struct writer *writer, const struct traced_client *client, char phase,
		       uint64_t at_ns)
{
	uint64_t ns = at_ns > writer->begin_ns ? at_ns - writer->begin_ns : 0;

	(void)fprintf(writer->out,
		      "%s{\"ph\": \"%c\", \"pid\": %u, \"tid\": %u, \"ts\": %" PRIu64 ".%03u",
		      writer->has_events ? ",\n" : "\n", phase, client->gpu + 1, client->id,
		      ns / 1000, (unsigned int)(ns % 1000));
	writer->has_events = true;
}

static void slice_begin(struct writer *writer, const struct traced_client *client, const char *name,
			uint64_t at_ns)
{
	event_open(writer, client, 'B', at_ns);
	(void)fprintf(writer->out, ", \"name\": \"%s\"}", name);
}

/* A viewer adds the arguments of the end to those of the begin. */
static void slice_end(struct writer *writer, const struct traced_client *client, uint64_t at_ns)
{
	FILE *out = writer->out;

	event_open(writer, client, 'E', at_ns);
	switch (client->doing) {
	case DOING_WAIT:
		if (client->detail)
			(void)fprintf(out,
				      ", \"args\": {\"why\": \"%s\", \"missing\": %" PRIu64 "}",
				      names_wait[client->detail], client->value);
		break;
	case DOING_RUN:
		if (client->value)
			(void)fprintf(out, ", \"args\": {\"budget\": %" PRIu64 "}", client->value);
		break;
	case DOING_IN:
	case DOING_OUT:
		(void)fprintf(out, ", \"args\": {\"bytes\": %" PRIu64 ", \"copy_ms\": %.3f",
			      client->value, (double)client->ns / 1e6);
		if (client->doing == DOING_OUT)
			(void)fprintf(out, ", \"outcome\": \"%s\"",
				      status_outcome_names[client->detail]);
		(void)fputc('}', out);
		break;
	case DOING_NOTHING:
		break;
	}
	(void)fputc('}', out);
}

static void client_thaw(struct writer *writer, struct traced_client *client, uint64_t at_ns)
{
	if (!client->is_frozen)
		return;
	event_open(writer, client, 'E', at_ns);
	(void)fputc('}', writer->out);
	client->is_frozen = false;
}

static void client_do(struct writer *writer, struct traced_client *client, enum doing doing,
		      uint64_t at_ns)
{
	if (client->doing == doing)
		return;
	client_thaw(writer, client, at_ns);
	if (client->doing != DOING_NOTHING)
		slice_end(writer, client, at_ns);
	client->before = client->doing;
	client->doing = doing;
	client->value = client->ns = client->detail = 0;
	if (doing != DOING_NOTHING)
		slice_begin(writer, client, doing_names[doing], at_ns);
}

/* The doing of a client before the first entry about it. */
static enum doing doing_before(const struct nvshare_trace_entry *entry)
{
	switch ((enum nvshare_trace_kind)entry->kind) {
	case NVSHARE_TRACE_WAIT:
	case NVSHARE_TRACE_BRING:
	case NVSHARE_TRACE_GRANT:
		return DOING_WAIT;
	case NVSHARE_TRACE_BROUGHT:
		return DOING_IN;
	case NVSHARE_TRACE_STOP:
		return entry->detail ? DOING_RUN : DOING_NOTHING;
	case NVSHARE_TRACE_LEAVE:
		return entry->detail ? DOING_RUN : DOING_NOTHING;
	case NVSHARE_TRACE_FREEZE:
	case NVSHARE_TRACE_THAW:
		return DOING_RUN;
	case NVSHARE_TRACE_RELEASE:
		return DOING_OUT;
	case NVSHARE_TRACE_JOIN:
	case NVSHARE_TRACE_NAME:
	case NVSHARE_TRACE_ASK:
	case NVSHARE_TRACE_ORION:
	case NVSHARE_TRACE_COUNT:
		break;
	}
	return DOING_NOTHING;
}

/* The doing after its answer. If it wants to run again, an ASK follows. */
static enum doing doing_after_release(const struct traced_client *client, uint8_t outcome)
{
	if (client->doing == DOING_OUT) {
		bool is_over = outcome == NVSHARE_OUTCOME_SUCCESS && client->before == DOING_RUN;

		return is_over ? DOING_NOTHING : client->before;
	}
	if (client->doing == DOING_IN)
		return outcome == NVSHARE_OUTCOME_PARTIAL ? DOING_IN : DOING_WAIT;
	return outcome == NVSHARE_OUTCOME_SUCCESS ? DOING_NOTHING : client->doing;
}

static void client_released(struct writer *writer, struct traced_client *client,
			    const struct nvshare_trace_entry *entry)
{
	if (client->doing == DOING_OUT) {
		client->value = entry->value;
		client->ns = entry->ns;
		client->detail = entry->detail;
	}
	client_do(writer, client, doing_after_release(client, entry->detail), entry->at_ns);
}

static void client_frozen(struct writer *writer, struct traced_client *client, uint64_t at_ns)
{
	if (client->doing != DOING_RUN || client->is_frozen)
		return;
	slice_begin(writer, client, "frozen", at_ns);
	client->is_frozen = true;
}

/* A moment, because a slice may cross those of the client. */
static void client_orion(struct writer *writer, const struct traced_client *client,
			 const struct nvshare_trace_entry *entry)
{
	event_open(writer, client, 'i', entry->at_ns);
	if (entry->value)
		(void)fprintf(writer->out,
			      ", \"s\": \"t\", \"name\": \"orion begins\""
			      ", \"args\": {\"clients\": %" PRIu64 "}}",
			      entry->value);
	else
		(void)fputs(", \"s\": \"t\", \"name\": \"orion ends\"}", writer->out);
}

static void client_name_part(struct traced_client *client, const struct nvshare_trace_entry *entry)
{
	size_t len = entry->detail ? strlen(client->name) : 0;

	(void)snprintf(client->name + len, sizeof(client->name) - len, "%.*s",
		       NVSHARE_TRACE_TEXT_LEN, entry->text);
	text_sanitize(client->name); /* as texts of a status are */
}

static void client_entry(struct writer *writer, struct traced_client *client,
			 const struct nvshare_trace_entry *entry)
{
	switch ((enum nvshare_trace_kind)entry->kind) {
	case NVSHARE_TRACE_JOIN:
		client->pid = (uint32_t)entry->value;
		client_do(writer, client, entry->detail ? DOING_RUN : DOING_NOTHING, entry->at_ns);
		break;
	case NVSHARE_TRACE_NAME:
		client_name_part(client, entry);
		break;
	case NVSHARE_TRACE_LEAVE:
		client_do(writer, client, DOING_NOTHING, entry->at_ns);
		break;
	case NVSHARE_TRACE_ASK:
		client_do(writer, client, DOING_WAIT, entry->at_ns);
		break;
	case NVSHARE_TRACE_WAIT:
		client_do(writer, client, DOING_WAIT, entry->at_ns);
		client->value = entry->value;
		client->detail = entry->detail;
		break;
	case NVSHARE_TRACE_BRING:
		client_do(writer, client, DOING_IN, entry->at_ns);
		break;
	case NVSHARE_TRACE_BROUGHT:
		if (client->doing == DOING_IN) {
			client->value += entry->value;
			client->ns += entry->ns;
		}
		break;
	case NVSHARE_TRACE_GRANT:
		client_do(writer, client, DOING_RUN, entry->at_ns);
		client->value = entry->value;
		break;
	case NVSHARE_TRACE_STOP:
		client_do(writer, client, DOING_OUT, entry->at_ns);
		break;
	case NVSHARE_TRACE_RELEASE:
		client_released(writer, client, entry);
		break;
	case NVSHARE_TRACE_FREEZE:
		client_frozen(writer, client, entry->at_ns);
		break;
	case NVSHARE_TRACE_THAW:
		client_thaw(writer, client, entry->at_ns);
		break;
	case NVSHARE_TRACE_ORION:
		client_orion(writer, client, entry);
		break;
	case NVSHARE_TRACE_COUNT:
		break;
	}
}

/* ---- clients --------------------------------------------------------------- */

/* NULL: no memory. */
static struct traced_client *writer_client(struct writer *writer, uint32_t id, uint32_t gpu)
{
	struct traced_client *client;

	HASH_FIND(hh, writer->clients, &id, sizeof(id), client);
	if (client)
		return client;
	client = calloc(1, sizeof(*client));
	if (!client)
		return NULL;
	client->id = id;
	client->gpu = gpu;
	HASH_ADD(hh, writer->clients, id, sizeof(client->id), client);
	return client;
}

static int writer_entries(struct writer *writer, const struct chrome_trace *trace)
{
	for (size_t i = 0; i < trace->n; i++) {
		const struct nvshare_trace_entry *entry = &trace->entries[i];
		struct traced_client *client = writer_client(writer, entry->client, entry->gpu);

		if (!client)
			return -ENOMEM;
		if (!client->is_known && entry->kind != NVSHARE_TRACE_NAME &&
		    entry->kind != NVSHARE_TRACE_ORION) {
			client_do(writer, client, doing_before(entry), trace->begin_ns);
			client->is_known = true;
		}
		client_entry(writer, client, entry);
	}
	return 0;
}

/* Clients that nothing has happened to, and names of those that have not joined of late. */
static int writer_status(struct writer *writer, const struct chrome_trace *trace)
{
	static const enum doing doings[NVSHARE_CLIENT_STATE_COUNT] = {
		[NVSHARE_CLIENT_IDLE] = DOING_NOTHING, [NVSHARE_CLIENT_WAITING] = DOING_WAIT,
		[NVSHARE_CLIENT_INCOMING] = DOING_IN,  [NVSHARE_CLIENT_RUNNING] = DOING_RUN,
		[NVSHARE_CLIENT_STOPPING] = DOING_OUT,
	};

	for (size_t i = 0; i < trace->status->n_clients; i++) {
		const struct nvshare_status_client *from = &trace->status->clients[i];
		struct traced_client *client = writer_client(writer, from->id, from->gpu);

		if (!client)
			return -ENOMEM;
		client->pid = from->pid;
		(void)snprintf(client->name, sizeof(client->name), "%s", from->name);
		if (!client->is_known) {
			uint64_t since_ns = trace->end_ns - trace->begin_ns > from->since_ns
						    ? trace->end_ns - from->since_ns
						    : trace->begin_ns;

			client_do(writer, client, doings[from->state], since_ns);
		}
	}
	return 0;
}

/* ---- the whole ------------------------------------------------------------- */

static void print_metadata(struct writer *writer, const struct chrome_trace *trace)
{
	char text[NVSHARE_NAME_LEN + 64];

	for (size_t i = 0; i < trace->status->n_gpus; i++) {
		const struct nvshare_status_gpu *gpu = &trace->status->gpus[i];

		(void)snprintf(text, sizeof(text), "GPU %u: %s", gpu->index, gpu->name);
		(void)fprintf(
			writer->out,
			"%s{\"ph\": \"M\", \"pid\": %u, \"tid\": 0, \"name\": \"process_name\","
			" \"args\": {\"name\": ",
			writer->has_events ? ",\n" : "\n", gpu->index + 1);
		json_print_string(writer->out, text);
		(void)fputs("}}", writer->out);
		writer->has_events = true;
	}
	for (const struct traced_client *client = writer->clients; client;
	     client = client->hh.next) {
		(void)snprintf(text, sizeof(text), "%s (client %u, pid %u)",
			       *client->name ? client->name : "?", client->id, client->pid);
		event_open(writer, client, 'M', 0);
		(void)fputs(", \"name\": \"thread_name\", \"args\": {\"name\": ", writer->out);
		json_print_string(writer->out, text);
		(void)fputs("}}", writer->out);
	}
}

int chrome_trace_print(FILE *out, const struct chrome_trace *trace)
{
	struct writer writer = {.out = out, .begin_ns = trace->begin_ns};
	struct traced_client *client;
	int r;

	(void)fputs("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [", out);
	r = writer_entries(&writer, trace);
	if (!r)
		r = writer_status(&writer, trace);
	for (client = writer.clients; client; client = client->hh.next)
		client_do(&writer, client, DOING_NOTHING, trace->end_ns);
	print_metadata(&writer, trace);
	(void)fputs("\n]}\n", out);
	while ((client = writer.clients)) {
		HASH_DEL(writer.clients, client);
		free(client);
	}
	return r;
}
