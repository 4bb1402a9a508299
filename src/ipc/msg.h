/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_IPC_MSG_H
#define NVS_IPC_MSG_H

/*
 * Bytes to messages and back (include/nvshare/messages.def). Pure: no descriptor, no
 * allocation, no log. Safe for any input bytes.
 */

#include "nvshare/protocol.h"

#include <stddef.h>
#include <stdint.h>

struct msg {
	struct nvshare_msg_header header;
	union {
#define NVSHARE_MSG(id, NAME, field, body, direction) struct nvshare_##body field;
#include "nvshare/messages.def"
#undef NVSHARE_MSG
		uint8_t bytes[NVSHARE_MSG_SIZE_MAX - sizeof(struct nvshare_msg_header)];
	} body;
};

enum msg_to { MSG_TO_SCHEDULER, MSG_TO_CLIENT, MSG_TO_TOOL };

enum {
	MSG_E_SUCCESS_,
	MSG_E_SHORT,   /* less than a header */
	MSG_E_MAGIC,   /* not ours */
	MSG_E_VERSION, /* another version of the protocol */
	MSG_E_TYPE,    /* unknown, or not for this direction */
	MSG_E_SIZE,    /* not the exact size of its type */
	MSG_E_STRING,  /* a string without its NUL */
	MSG_E_RANGE,   /* an enum or a sum of sizes out of range */
};

/* Checks len bytes received; *ret_msg is filled, the rest zeroed. 0 or MSG_E_*. */
int msg_decode(const void *bytes, size_t len, enum msg_to to, struct msg *ret_msg);

/* Bytes of the whole packet of type; 0 if there is no such type. */
size_t msg_size(uint16_t type);

/* Fills the header; body may be NULL for an all-zero body. Returns the packet's size. */
size_t msg_encode(uint16_t type, uint32_t seq, const void *body, struct msg *ret_msg);

const char *msg_name(uint16_t type); /* "REQ_LOCK"; "?" if unknown */
const char *msg_error(int msg_e);    /* a phrase for a log line */

#endif
