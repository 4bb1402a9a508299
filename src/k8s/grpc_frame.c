/* SPDX-License-Identifier: Apache-2.0 */
#include "k8s/grpc_frame.h"

#include "util/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MIN 256

int grpc_bytes_add(struct grpc_bytes *bytes, const void *more, size_t len)
{
	if (len > bytes->size - bytes->len) {
		size_t size = bytes->size ? bytes->size : BYTES_MIN;
		uint8_t *at;

		while (size - bytes->len < len)
			size *= 2;
		at = realloc(bytes->at, size);
		if (!at)
			return -ENOMEM;
		bytes->at = at;
		bytes->size = size;
	}
	if (len)
		memcpy(bytes->at + bytes->len, more, len);
	bytes->len += len;
	return 0;
}

void grpc_bytes_free(struct grpc_bytes *bytes)
{
	free(bytes->at);
	*bytes = (struct grpc_bytes){NULL, 0, 0};
}

int grpc_frame_add(struct grpc_bytes *bytes, const void *message, size_t len)
{
	uint8_t prefix[GRPC_PREFIX_LEN] = {0, (uint8_t)(len >> 24), (uint8_t)(len >> 16),
					   (uint8_t)(len >> 8), (uint8_t)len};
	size_t before = bytes->len;
	int r;

	if (len > GRPC_MESSAGE_MAX)
		return -EMSGSIZE;
	r = grpc_bytes_add(bytes, prefix, sizeof(prefix));
	if (!r)
		r = grpc_bytes_add(bytes, message, len);
	if (r)
		bytes->len = before;
	return r;
}

enum grpc_code grpc_frame_take(const struct grpc_bytes *bytes, const uint8_t **ret_message,
			       size_t *ret_len, const char **ret_text)
{
	const uint8_t *p = bytes->at;
	size_t len;

	if (bytes->len < GRPC_PREFIX_LEN) {
		*ret_text = "the message is cut off";
		return GRPC_INTERNAL;
	}
	if (p[0] != 0) {
		*ret_text = "the message is compressed, which this peer does not offer";
		return GRPC_UNIMPLEMENTED;
	}
	len = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
	if (len > GRPC_MESSAGE_MAX) {
		*ret_text = "the message has more than 4 MiB";
		return GRPC_RESOURCE_EXHAUSTED;
	}
	if (bytes->len != GRPC_PREFIX_LEN + len) {
		*ret_text = bytes->len < GRPC_PREFIX_LEN + len ? "the message is cut off"
							       : "there is more than one message";
		return GRPC_INTERNAL;
	}
	*ret_message = p + GRPC_PREFIX_LEN;
	*ret_len = len;
	return GRPC_OK;
}

void grpc_text_encode(const char *text, char *buf, size_t size)
{
	static const char digits[] = "0123456789ABCDEF";
	size_t n = 0;

	for (; *text && n + 4 <= size; text++) {
		unsigned char c = (unsigned char)*text;

		if (c >= 0x20 && c <= 0x7e && c != '%') {
			buf[n++] = (char)c;
		} else {
			buf[n++] = '%';
			buf[n++] = digits[c >> 4];
			buf[n++] = digits[c & 15];
		}
	}
	buf[n] = '\0';
}

/* -1: no hexadecimal digit. */
static int hex_value(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void grpc_text_decode(const uint8_t *encoded, size_t len, char *buf, size_t size)
{
	size_t n = 0;

	for (size_t i = 0; i < len && n + 1 < size; i++) {
		int high = encoded[i] == '%' && len - i > 2 ? hex_value(encoded[i + 1]) : -1;
		int low = high >= 0 ? hex_value(encoded[i + 2]) : -1;

		if (low >= 0) {
			buf[n++] = (char)(high << 4 | low);
			i += 2;
		} else {
			buf[n++] = (char)encoded[i];
		}
	}
	buf[n] = '\0';
	text_sanitize(buf);
}
