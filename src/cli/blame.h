/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CLI_BLAME_H
#define NVS_CLI_BLAME_H

/* Finds the client whose memory keeps a waiter out, when no turn can make room for the waiter. */

#include "cli/status.h"

enum blame_cause {
	BLAME_NOBODY,    /* no client of the GPU explains the wait */
	BLAME_PINNED,    /* too many bytes of kind are on the card, and they cannot be moved */
	BLAME_FIXED,     /* the owner takes no turns */
	BLAME_CRITICAL,  /* the owner is latency-critical, so its memory stays */
	BLAME_HUNG,      /* the owner does not answer */
	BLAME_UNSTOPPED, /* the owner could not be stopped, or its memory could not be moved */
};

struct blame {
	enum blame_cause cause;
	const struct nvshare_status_client *owner; /* borrowed from status; BLAME_NOBODY: NULL */
	enum nvshare_pinned kind;                  /* BLAME_PINNED: the owner's largest kind */
	uint64_t bytes; /* BLAME_PINNED: the owner's of kind; else all of the owner's on the card */
};

/*
 * client: a waiter with NVSHARE_WAIT_STUCK, out of status. Several owners may be in its way:
 * the result names the one with most bytes.
 */
struct blame blame_find(const struct status *status, const struct nvshare_status_client *client);

/* Writes one line, without a newline, into text, and returns text. */
const char *blame_text(const struct blame *blame, char *text, size_t size);

#endif
