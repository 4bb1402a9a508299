/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_K8S_GRPC_FRAME_H
#define NVS_K8S_GRPC_FRAME_H

/*
 * gRPC's own bytes within HTTP/2: the five bytes before each message, and the text of grpc-message
 * (github.com/grpc/grpc doc/PROTOCOL-HTTP2.md). Pure, but for the memory of a buffer.
 */

#include <stddef.h>
#include <stdint.h>

#define GRPC_MESSAGE_MAX (4u << 20) /* bytes; the limit that gRPC's own libraries have */
#define GRPC_PREFIX_LEN  5          /* a flag, and four bytes of length */
#define GRPC_TEXT_LEN    512        /* of a status, with its NUL */

/* Status codes of gRPC. */
enum grpc_code {
	GRPC_OK = 0,
	GRPC_UNKNOWN = 2,
	GRPC_INVALID_ARGUMENT = 3,
	GRPC_DEADLINE_EXCEEDED = 4,
	GRPC_RESOURCE_EXHAUSTED = 8,
	GRPC_FAILED_PRECONDITION = 9,
	GRPC_UNIMPLEMENTED = 12,
	GRPC_INTERNAL = 13,
	GRPC_UNAVAILABLE = 14,
	GRPC_CODE_MAX = 16,
};

/* Zeroed: empty. */
struct grpc_bytes {
	uint8_t *at;
	size_t len, size;
};

/* 0 or -ENOMEM. */
int grpc_bytes_add(struct grpc_bytes *bytes, const void *more, size_t len);
void grpc_bytes_free(struct grpc_bytes *bytes);

/* Adds a message with its prefix. 0, -ENOMEM or -EMSGSIZE. */
int grpc_frame_add(struct grpc_bytes *bytes, const void *message, size_t len);

/*
 * The one message that bytes hold as a whole. GRPC_OK, or the code of the fault, with its reason in
 * *ret_text; *ret_message points into bytes.
 */
enum grpc_code grpc_frame_take(const struct grpc_bytes *bytes, const uint8_t **ret_message,
			       size_t *ret_len, const char **ret_text);

/* Text as grpc-message carries it. A text that does not fit is cut. */
void grpc_text_encode(const char *text, char *buf, size_t size);

/* The way back, from len bytes of anybody. The result is fit for a log. */
void grpc_text_decode(const uint8_t *encoded, size_t len, char *buf, size_t size);

#endif
