/* SPDX-License-Identifier: Apache-2.0 */

/* How a call's bytes go out: replies, errors and streams. */

#include "k8s/grpc_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define CODE_LEN    12
#define ENCODED_LEN (3 * GRPC_TEXT_LEN)

/* grpc-status and, unless it is empty, grpc-message. Returns their number. */
static size_t status_headers(const struct grpc_call *call, nghttp2_nv ret[2], char code[CODE_LEN],
			     char encoded[ENCODED_LEN])
{
	(void)snprintf(code, CODE_LEN, "%u", call->code);
	grpc_text_encode(call->text, encoded, ENCODED_LEN);
	ret[0] = GRPC_HEADER("grpc-status", code);
	ret[1] = GRPC_HEADER("grpc-message", encoded);
	return encoded[0] ? 2 : 1;
}

ssize_t grpc_on_read(nghttp2_session *session, int32_t stream, uint8_t *buf, size_t size,
		     uint32_t *ret_flags, nghttp2_data_source *source, void *user)
{
	char code[CODE_LEN], encoded[ENCODED_LEN];
	struct grpc_call *call = source->ptr;
	size_t n = call->out.len - call->out_at;
	nghttp2_nv trailers[2];

	(void)user;
	if (n == 0 && call->state == GRPC_STREAMING)
		return NGHTTP2_ERR_DEFERRED;
	if (n > size)
		n = size;
	if (n)
		memcpy(buf, call->out.at + call->out_at, n);
	call->out_at += n;
	if (call->out_at < call->out.len || call->state == GRPC_STREAMING)
		return (ssize_t)n;
	*ret_flags |= NGHTTP2_DATA_FLAG_EOF;
	if (call->grpc->service) {
		*ret_flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
		if (nghttp2_submit_trailer(session, stream, trailers,
					   status_headers(call, trailers, code, encoded)))
			return NGHTTP2_ERR_CALLBACK_FAILURE;
	}
	return (ssize_t)n;
}

/* Without memory for an answer the call ends at once: the peer does not wait for nothing. */
static void call_check(struct grpc_call *call, int r)
{
	if (r)
		(void)nghttp2_submit_rst_stream(call->grpc->session, NGHTTP2_FLAG_NONE,
						call->stream, NGHTTP2_INTERNAL_ERROR);
}

static void call_begin_answer(struct grpc_call *call)
{
	const nghttp2_nv headers[] = {
		GRPC_HEADER(":status", "200"),
		GRPC_HEADER("content-type", "application/grpc"),
	};
	nghttp2_data_provider provider = {.source.ptr = call, .read_callback = grpc_on_read};

	grpc_release_input(call);
	call_check(call, nghttp2_submit_response(call->grpc->session, call->stream, headers, 2,
						 &provider));
}

void grpc_reply(struct grpc_call *call, const void *message, size_t len)
{
	int r = grpc_frame_add(&call->out, message, len);

	if (r) {
		grpc_fail(call, GRPC_RESOURCE_EXHAUSTED, "the answer has more than 4 MiB");
		return;
	}
	call->state = GRPC_ANSWERED;
	call->due_ns = call->grpc->now_ns + GRPC_ANSWER_NS;
	call_begin_answer(call);
}

/* The whole answer is one block of headers. */
static void call_answer_short(struct grpc_call *call, const char *http_status)
{
	char code[CODE_LEN], encoded[ENCODED_LEN];
	nghttp2_nv headers[4] = {
		GRPC_HEADER(":status", http_status),
		GRPC_HEADER("content-type", "application/grpc"),
	};
	size_t n = 2 + status_headers(call, headers + 2, code, encoded);

	call->state = GRPC_ANSWERED;
	call->due_ns = call->grpc->now_ns + GRPC_ANSWER_NS;
	grpc_release_input(call);
	call_check(call,
		   nghttp2_submit_response(call->grpc->session, call->stream, headers, n, NULL));
}

void grpc_refuse_media(struct grpc_call *call)
{
	call->code = GRPC_INTERNAL;
	(void)snprintf(call->text, sizeof(call->text), "only POST of application/grpc is taken");
	call_answer_short(call, "415");
}

void grpc_fail(struct grpc_call *call, enum grpc_code code, const char *format, ...)
{
	bool is_stream = call->state == GRPC_STREAMING;
	va_list args;

	va_start(args, format);
	(void)vsnprintf(call->text, sizeof(call->text), format, args);
	va_end(args);
	call->code = code;
	if (!is_stream) {
		call_answer_short(call, "200");
		return;
	}
	call->state = GRPC_ANSWERED;
	call->due_ns = call->grpc->now_ns + GRPC_ANSWER_NS;
	(void)nghttp2_session_resume_data(call->grpc->session, call->stream);
}

void grpc_stream(struct grpc_call *call)
{
	call->state = GRPC_STREAMING;
	call->due_ns = UINT64_MAX;
	call_begin_answer(call);
}

bool grpc_is_drained(const struct grpc_call *call)
{
	return call->out_at == call->out.len;
}

int grpc_push(struct grpc_call *call, const void *message, size_t len)
{
	int r;

	call->out.len = call->out_at = 0;
	r = grpc_frame_add(&call->out, message, len);
	if (!r)
		(void)nghttp2_session_resume_data(call->grpc->session, call->stream);
	return r;
}
