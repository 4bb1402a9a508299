/* SPDX-License-Identifier: Apache-2.0 */
#include "k8s/grpc_private.h"

#include "util/parse.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define HEADER_OVERHEAD 32 /* of each header, in HTTP/2's own account (RFC 9113, 6.5.2) */

/* ---- calls ------------------------------------------------------------------- */

static struct grpc_call *grpc_call_new(struct grpc *grpc, int32_t stream)
{
	struct grpc_call *call = calloc(1, sizeof(*call));

	if (!call)
		return NULL;
	call->grpc = grpc;
	call->stream = stream;
	call->due_ns = grpc->now_ns + GRPC_REQUEST_NS;
	call->code = grpc->service ? GRPC_OK : GRPC_CODE_MAX + 1; /* a client has no status yet */
	DL_APPEND(grpc->calls, call);
	grpc->n_calls++;
	return call;
}

void grpc_release_input(struct grpc_call *call)
{
	call->grpc->buffered -= call->in.len;
	grpc_bytes_free(&call->in);
}

static void grpc_call_free(struct grpc_call *call)
{
	struct grpc *grpc = call->grpc;

	DL_DELETE(grpc->calls, call);
	if (--grpc->n_calls == 0)
		grpc->idle_ns = grpc->now_ns + GRPC_IDLE_NS;
	grpc_release_input(call);
	grpc_bytes_free(&call->out);
	free(call);
}

/* A client's call is over: tells its maker. */
static void grpc_call_done(struct grpc_call *call, bool is_reset)
{
	const char *text = call->text;
	enum grpc_code code = (enum grpc_code)call->code;
	const uint8_t *message = NULL;
	size_t len = 0;

	if (is_reset && call->code > GRPC_CODE_MAX) {
		code = GRPC_UNAVAILABLE;
		text = call->is_reset ? "there is no answer" : "the connection or the call ended";
	} else if (call->code > GRPC_CODE_MAX || !call->is_grpc) {
		code = GRPC_UNKNOWN;
		text = "the answer is not gRPC";
	} else if (code == GRPC_OK) {
		code = grpc_frame_take(&call->in, &message, &len, &text);
	}
	call->on_done(call->owner, code, text, message, len);
}

static void grpc_call_end(struct grpc_call *call, bool is_reset)
{
	const struct grpc_service *service = call->grpc->service;

	if (!service)
		grpc_call_done(call, is_reset);
	else if (call->state == GRPC_ASKED || call->state == GRPC_STREAMING)
		service->on_gone(call);
	grpc_call_free(call);
}

/* ---- what nghttp2 tells ------------------------------------------------------ */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
	struct grpc *grpc = user;
	struct grpc_call *call;

	if (!grpc->service || frame->hd.type != NGHTTP2_HEADERS ||
	    frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	call = grpc_call_new(grpc, frame->hd.stream_id);
	if (!call)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	return nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call);
}

struct header {
	const uint8_t *name, *value;
	size_t name_len, value_len;
};

static bool header_is(const struct header *header, const char *name)
{
	return header->name_len == strlen(name) && !memcmp(header->name, name, header->name_len);
}

static bool header_has(const struct header *header, const char *value)
{
	return header->value_len == strlen(value) &&
	       !memcmp(header->value, value, header->value_len);
}

/* A value that does not fit, or that has a NUL inside, becomes "". */
static void header_copy(const struct header *header, char *buf, size_t size)
{
	bool fits = header->value_len < size && !memchr(header->value, 0, header->value_len);
	size_t len = fits ? header->value_len : 0;

	memcpy(buf, header->value, len);
	buf[len] = '\0';
}

/* "application/grpc", alone or before '+' or ';'. */
static bool header_is_grpc(const struct header *header)
{
	static const char type[] = "application/grpc";
	size_t len = sizeof(type) - 1;

	return header->value_len >= len && !memcmp(header->value, type, len) &&
	       (header->value_len == len || header->value[len] == '+' || header->value[len] == ';');
}

static void call_take_header(struct grpc_call *call, const struct header *header)
{
	bool is_client = !call->grpc->service;
	char text[8];
	uint64_t code;

	if (header_is(header, "content-type")) {
		call->is_grpc = header_is_grpc(header);
	} else if (header_is(header, "grpc-encoding")) {
		call->is_encoded = !header_has(header, "identity");
	} else if (header_is(header, ":path")) {
		header_copy(header, call->path, sizeof(call->path));
	} else if (header_is(header, ":method")) {
		call->is_post = header_has(header, "POST");
	} else if (is_client && header_is(header, "grpc-status")) {
		header_copy(header, text, sizeof(text));
		call->code = parse_u64(text, 0, GRPC_CODE_MAX, &code) ? GRPC_UNKNOWN
								      : (unsigned int)code;
	} else if (is_client && header_is(header, "grpc-message")) {
		grpc_text_decode(header->value, header->value_len, call->text, sizeof(call->text));
	}
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
		     void *user)
{
	struct header header = {name, value, name_len, value_len};
	struct grpc_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

	(void)flags;
	(void)user;
	if (!call)
		return 0;
	call->headers_len += name_len + value_len + HEADER_OVERHEAD;
	if (call->headers_len > GRPC_HEADERS_MAX)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* resets the stream */
	if (call->state == GRPC_READING)
		call_take_header(call, &header);
	return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *bytes,
		   size_t len, void *user)
{
	struct grpc_call *call = nghttp2_session_get_stream_user_data(session, stream);
	struct grpc *grpc = user;

	(void)flags;
	if (!call || call->state != GRPC_READING)
		return 0;
	if (call->in.len + len > GRPC_MESSAGE_MAX + GRPC_PREFIX_LEN ||
	    grpc->buffered + len > GRPC_BUFFERED_MAX) {
		if (grpc->service)
			grpc_fail(call, GRPC_RESOURCE_EXHAUSTED,
				  "the message has more than 4 MiB, or those of all calls"
				  " together have more than 8 MiB");
		else
			(void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, stream,
							NGHTTP2_CANCEL);
		return 0;
	}
	if (grpc_bytes_add(&call->in, bytes, len))
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	grpc->buffered += len;
	return 0;
}

/* The request is whole. */
static void call_dispatch(struct grpc_call *call)
{
	const struct grpc_service *service = call->grpc->service;
	const uint8_t *message;
	const char *text;
	enum grpc_code code;
	size_t len;

	if (!call->is_post || !call->is_grpc) {
		grpc_refuse_media(call);
		return;
	}
	if (call->is_encoded) {
		grpc_fail(call, GRPC_UNIMPLEMENTED, "messages are not taken compressed");
		return;
	}
	code = grpc_frame_take(&call->in, &message, &len, &text);
	if (code != GRPC_OK) {
		grpc_fail(call, code, "%s", text);
		return;
	}
	call->state = GRPC_ASKED;
	call->due_ns = call->grpc->now_ns + GRPC_ANSWER_NS;
	service->on_request(call, message, len);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
	struct grpc *grpc = user;
	struct grpc_call *call;

	if (!grpc->service || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM) ||
	    (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS))
		return 0;
	call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	if (call && call->state == GRPC_READING)
		call_dispatch(call);
	return 0;
}

static int on_close(nghttp2_session *session, int32_t stream, uint32_t error, void *user)
{
	struct grpc_call *call = nghttp2_session_get_stream_user_data(session, stream);

	(void)user;
	if (call)
		grpc_call_end(call, error != NGHTTP2_NO_ERROR);
	return 0;
}

/* ---- the connection ---------------------------------------------------------- */

static int grpc_open(struct grpc *grpc)
{
	const nghttp2_settings_entry settings[] = {
		{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, GRPC_STREAMS_MAX},
		{NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, GRPC_HEADERS_MAX},
		{NGHTTP2_SETTINGS_ENABLE_PUSH, 0}, /* a client's last one */
	};
	nghttp2_session_callbacks *callbacks = NULL;
	nghttp2_option *option = NULL;
	int r;

	if (nghttp2_session_callbacks_new(&callbacks))
		return -ENOMEM;
	if (nghttp2_option_new(&option)) {
		nghttp2_session_callbacks_del(callbacks);
		return -ENOMEM;
	}
	nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
	/*
	 * A kubelet before 1.26 sends the socket's path as :authority. nghttp2 takes that for a
	 * broken request. call_dispatch() checks what matters instead.
	 */
	nghttp2_option_set_no_http_messaging(option, 1);
	nghttp2_option_set_no_closed_streams(option, 1);
	r = grpc->service ? nghttp2_session_server_new2(&grpc->session, callbacks, grpc, option)
			  : nghttp2_session_client_new2(&grpc->session, callbacks, grpc, option);
	nghttp2_option_del(option);
	nghttp2_session_callbacks_del(callbacks);
	if (!r)
		r = nghttp2_submit_settings(grpc->session, NGHTTP2_FLAG_NONE, settings,
					    grpc->service ? 2 : 3);
	if (!r)
		return 0;
	grpc_close(grpc);
	return -ENOMEM;
}

int grpc_open_server(struct grpc *grpc, const struct grpc_service *service, uint64_t now_ns)
{
	grpc->service = service;
	grpc->now_ns = now_ns;
	grpc->idle_ns = now_ns + GRPC_REQUEST_NS;
	return grpc_open(grpc);
}

int grpc_open_client(struct grpc *grpc, uint64_t now_ns)
{
	grpc->now_ns = now_ns;
	grpc->idle_ns = now_ns + GRPC_IDLE_NS;
	return grpc_open(grpc);
}

void grpc_close(struct grpc *grpc)
{
	while (grpc->calls)
		grpc_call_end(grpc->calls, true);
	nghttp2_session_del(grpc->session);
	*grpc = (struct grpc){.session = NULL};
}

static int grpc_errno(ssize_t r)
{
	return r == NGHTTP2_ERR_NOMEM ? -ENOMEM : -EPROTO;
}

int grpc_receive(struct grpc *grpc, const uint8_t *bytes, size_t len, uint64_t now_ns)
{
	ssize_t n;

	grpc->now_ns = now_ns;
	n = nghttp2_session_mem_recv(grpc->session, bytes, len);
	return n < 0 ? grpc_errno(n) : 0;
}

ssize_t grpc_send(struct grpc *grpc, const uint8_t **ret_bytes, uint64_t now_ns)
{
	ssize_t n;

	grpc->now_ns = now_ns;
	n = nghttp2_session_mem_send(grpc->session, ret_bytes);
	return n < 0 ? grpc_errno(n) : n;
}

bool grpc_wants_to_send(const struct grpc *grpc)
{
	return nghttp2_session_want_write(grpc->session);
}

bool grpc_has_ended(const struct grpc *grpc)
{
	return !nghttp2_session_want_read(grpc->session) &&
	       !nghttp2_session_want_write(grpc->session);
}

uint64_t grpc_due(const struct grpc *grpc)
{
	uint64_t due_ns = grpc->n_calls ? UINT64_MAX : grpc->idle_ns;
	const struct grpc_call *call;

	DL_FOREACH (grpc->calls, call) {
		if (call->due_ns < due_ns)
			due_ns = call->due_ns;
	}
	return due_ns;
}

int grpc_expire(struct grpc *grpc, uint64_t now_ns)
{
	struct grpc_call *call;

	grpc->now_ns = now_ns;
	if (!grpc->n_calls)
		return grpc->idle_ns <= now_ns ? -ETIMEDOUT : 0;
	DL_FOREACH (grpc->calls, call) {
		if (call->due_ns > now_ns)
			continue;
		if (call->is_reset)
			return -ETIMEDOUT; /* the peer does not even read that its call is over */
		call->is_reset = true;
		call->due_ns = now_ns + GRPC_REQUEST_NS;
		if (nghttp2_submit_rst_stream(grpc->session, NGHTTP2_FLAG_NONE, call->stream,
					      NGHTTP2_CANCEL))
			return -ETIMEDOUT;
	}
	return 0;
}

void grpc_goodbye(struct grpc *grpc)
{
	(void)nghttp2_session_terminate_session(grpc->session, NGHTTP2_NO_ERROR);
}

int grpc_ask(struct grpc *grpc, const char *path, const void *message, size_t len,
	     grpc_done_fn *on_done, void *owner)
{
	const nghttp2_nv headers[] = {
		GRPC_HEADER(":method", "POST"),
		GRPC_HEADER(":scheme", "http"),
		GRPC_HEADER(":path", path),
		GRPC_HEADER(":authority", "localhost"),
		GRPC_HEADER("content-type", "application/grpc"),
		GRPC_HEADER("te", "trailers"),
		GRPC_HEADER("user-agent", "nvshare-device-plugin"),
	};
	nghttp2_data_provider provider = {.read_callback = grpc_on_read};
	struct grpc_call *call = grpc_call_new(grpc, 0);
	int r = call ? grpc_frame_add(&call->out, message, len) : -ENOMEM;

	if (r) {
		if (call)
			grpc_call_free(call);
		return r;
	}
	call->on_done = on_done;
	call->owner = owner;
	provider.source.ptr = call;
	call->stream =
		nghttp2_submit_request(grpc->session, NULL, headers,
				       sizeof(headers) / sizeof(headers[0]), &provider, call);
	if (call->stream >= 0)
		return 0;
	grpc_call_free(call);
	return -ENOMEM;
}
