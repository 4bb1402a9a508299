/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any bytes to a gRPC connection. The first byte chooses: as a client's bytes to a server, with or
 * without the greeting before them; or as a server's bytes to a client that has asked. The second
 * byte cuts them in two. A call is answered once or is gone, a client hears of its call exactly
 * once, and nothing is left in the account of memory.
 */

#include "k8s/grpc.h"
#include "k8s/methods.h"

#include <stdlib.h>
#include <string.h>

enum { FROM_CLIENT, FROM_CLIENT_BARE, FROM_SERVER, SIDES };

enum kind { REQUEST, STREAM, UNKNOWN_METHOD, CONNECTION_ERROR, ANSWER, ERROR_ANSWER, KINDS };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int fuzz_left_out(void);

static bool was_seen[KINDS];
static uint32_t n_done;

int fuzz_left_out(void)
{
	for (int i = 0; i < KINDS; i++) {
		if (!was_seen[i])
			return i;
	}
	return -1;
}

static void on_request(struct grpc_call *call, const uint8_t *message, size_t len)
{
	enum method method = methods_find(call->path);

	if (len > GRPC_MESSAGE_MAX || (len && !message))
		abort();
	switch (method) {
	case METHOD_WATCH:
		was_seen[STREAM] = true;
		grpc_stream(call);
		if (grpc_push(call, "list", 4))
			abort();
		return;
	case METHOD_COUNT_:
		was_seen[UNKNOWN_METHOD] = true;
		grpc_fail(call, GRPC_UNIMPLEMENTED, "%s", call->path);
		return;
	case METHOD_OPTIONS:
	case METHOD_PREFER:
	case METHOD_ALLOCATE:
	case METHOD_PRE_START:
		break;
	}
	was_seen[REQUEST] = true;
	grpc_reply(call, message, len);
}

static void on_gone(struct grpc_call *call)
{
	if (call->state != GRPC_STREAMING)
		abort(); /* all others were answered at once */
}

static void on_done(void *owner, enum grpc_code code, const char *text, const uint8_t *message,
		    size_t len)
{
	(void)owner;
	if (!text || (len && code != GRPC_OK) || (len && !message))
		abort();
	was_seen[code == GRPC_OK ? ANSWER : ERROR_ANSWER] = true;
	n_done++;
}

/* false: the connection is over. */
static bool drain(struct grpc *grpc)
{
	const uint8_t *bytes;
	ssize_t n;

	do {
		n = grpc_send(grpc, &bytes, 1);
	} while (n > 0);
	return n == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char greeting[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
	static const struct grpc_service service = {on_request, on_gone, NULL};
	struct grpc grpc = {.session = NULL};
	bool is_over = false;
	size_t cut, side;
	int r = 0;

	if (size < 2)
		return 0;
	side = data[0] % SIDES;
	cut = data[1] < size - 2 ? data[1] : size - 2;
	n_done = 0;
	if (side == FROM_SERVER) {
		if (grpc_open_client(&grpc, 0) || grpc_ask(&grpc, "/a", "b", 1, on_done, NULL))
			abort();
	} else if (grpc_open_server(&grpc, &service, 0)) {
		abort();
	}
	if (side == FROM_CLIENT)
		r = grpc_receive(&grpc, (const uint8_t *)greeting, sizeof(greeting) - 1, 0);
	is_over = r || !drain(&grpc) || grpc_receive(&grpc, data + 2, cut, 1) || !drain(&grpc) ||
		  grpc_receive(&grpc, data + 2 + cut, size - 2 - cut, 1) || !drain(&grpc);
	was_seen[CONNECTION_ERROR] |= is_over || grpc_has_ended(&grpc);
	if (!is_over && !grpc_expire(&grpc, GRPC_ANSWER_NS + 1))
		(void)drain(&grpc);
	if (grpc.n_calls > GRPC_STREAMS_MAX)
		abort();
	grpc_close(&grpc);
	if (n_done != (side == FROM_SERVER) || grpc.buffered)
		abort();
	return 0;
}
