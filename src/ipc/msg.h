/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_IPC_MSG_H
#define NVS_IPC_MSG_H

/*
 * Converts bytes to messages (include/nvshare/messages.def) and back. Pure: no descriptors, no
 * allocation, no log. Thread-safe, and safe for any input bytes.
 */

#include "nvshare/protocol.h"

#include <stddef.h>
#include <stdint.h>

struct msg {
	struct nvshare_msg_header header;
	union {
#define NVSHARE_MSG(id, NAME, field, body, direction, during) struct nvshare_##body field;
#include "nvshare/messages.def"
#undef NVSHARE_MSG
		uint8_t bytes[NVSHARE_MSG_SIZE_MAX - sizeof(struct nvshare_msg_header)];
	} body;
};

enum msg_to { MSG_TO_SCHEDULER, MSG_TO_CLIENT, MSG_TO_TOOL };

enum {
	MSG_E_SUCCESS_,
	MSG_E_SHORT,   /* shorter than a header */
	MSG_E_MAGIC,   /* not this protocol */
	MSG_E_VERSION, /* another version of the protocol */
	MSG_E_TYPE,    /* an unknown type, or one for another direction */
	MSG_E_SIZE,    /* not the exact size of its type */
	MSG_E_STRING,  /* a string without its NUL */
	MSG_E_RANGE,   /* an enum or a sum of sizes out of range */
};

/*
 * Checks a packet of len bytes for the receiver to, and copies it to *ret_msg, whose rest
 * becomes zero. Returns 0, or MSG_E_* with *ret_msg untouched.
 */
int msg_decode(const void *bytes, size_t len, enum msg_to to, struct msg *ret_msg);

/* Bytes of a packet of type, header included; 0: no such type. */
size_t msg_size(uint16_t type);

/*
 * Builds a packet of type, which must exist. body: the struct of that type; NULL: all zero.
 * Returns the packet's size in bytes.
 */
size_t msg_encode(uint16_t type, uint32_t seq, const void *body, struct msg *ret_msg);

const char *msg_name(uint16_t type); /* "REQ_LOCK"; "?" if unknown */
const char *msg_error(int msg_e);    /* a phrase for a log line */

#endif
