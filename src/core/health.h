/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_HEALTH_H
#define NVS_CORE_HEALTH_H

/*
 * Whether a GPU can be trusted with work, by what NVML tells of it.
 *
 * A GPU with an error is out: no client gets a new grant there. It is back when it has answered for
 * a while without another error. A GPU that was lost, and answers again, is back at once.
 *
 * Pure: the caller gives the time. Ownership: struct health is the caller's, and zeroed at first.
 * Threading: none.
 */

#include <stdbool.h>
#include <stdint.h>

enum health_state {
	HEALTH_UNKNOWN, /* nobody has told yet, or nobody tells any more */
	HEALTH_GOOD,
	HEALTH_ERROR, /* out: a serious error */
	HEALTH_LOST,  /* out: it does not come back without a reset */
	HEALTH_STATE_COUNT_
};

enum health_input {
	HEALTH_POLL_GOOD,   /* it answers */
	HEALTH_POLL_LOST,   /* it is off the bus, or waits for a reset */
	HEALTH_POLL_FAILED, /* the question failed for another reason */
	HEALTH_XID,         /* an error of the driver; xid 0: an uncorrectable ECC error */
	HEALTH_BLIND,       /* nobody can ask it now */
	HEALTH_INPUT_COUNT_
};

enum health_news {
	HEALTH_NEWS_NONE,
	HEALTH_NEWS_PROGRAM, /* an Xid that a program has caused */
	HEALTH_NEWS_ERROR,   /* a serious error; the GPU is out */
	HEALTH_NEWS_LOST,    /* it is out, and needs a reset; again with the Xid that tells why */
	HEALTH_NEWS_BACK,
	HEALTH_NEWS_COUNT_
};

/* An error without a loss is over when the GPU has answered for so long after it. */
#define HEALTH_QUIET_NS 30000000000ull
/* A lost GPU is back when it has answered so often. */
#define HEALTH_GOOD_POLLS 2

struct health {
	enum health_state state;
	bool was_lost; /* a poll has found it lost since its last error */
	bool is_told;  /* that it is out */
	uint32_t xid;  /* of the last serious error; 0: an ECC error, or a loss without an Xid */
	uint32_t n_good;
	uint64_t error_ns; /* the last serious error */
	uint64_t since_ns; /* of its state */
};

/* xid: of HEALTH_XID. */
enum health_news health_step(struct health *health, enum health_input input, uint32_t xid,
			     uint64_t now_ns);

bool health_is_out(const struct health *health);

enum health_xid { HEALTH_XID_PROGRAM, HEALTH_XID_SERIOUS, HEALTH_XID_FATAL };

enum health_xid health_xid_kind(uint32_t xid);
/* "the GPU has fallen off the bus"; of an Xid that the table lacks, "an error of the driver". */
const char *health_xid_text(uint32_t xid);

#endif
