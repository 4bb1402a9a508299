/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CLI_BLAME_H
#define NVS_CLI_BLAME_H

/* Whose memory keeps a waiting client out, when no turn can make room for it. */

#include "cli/status.h"

enum blame_cause {
	BLAME_NOBODY,    /* no client of the GPU explains it */
	BLAME_PINNED,    /* bytes of kind can not be moved, and too many are on the card */
	BLAME_FIXED,     /* the owner takes no turns */
	BLAME_CRITICAL,  /* the owner is latency-critical: its memory stays */
	BLAME_HUNG,      /* the owner does not answer */
	BLAME_UNSTOPPED, /* stopping the owner, or moving its memory, has failed */
};

struct blame {
	enum blame_cause cause;
	const struct nvshare_status_client *owner; /* NULL for BLAME_NOBODY; of the status */
	enum nvshare_pinned kind;                  /* the largest of the owner's; BLAME_PINNED */
	uint64_t bytes;                            /* the owner's of that kind, or on the card */
};

/* Of client, whose wait is NVSHARE_WAIT_STUCK; the one owner that has most in its way. */
struct blame blame_find(const struct status *status, const struct nvshare_status_client *client);

/* One line without its end, into text. Returns text. */
const char *blame_text(const struct blame *blame, char *text, size_t size);

#endif
