/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CLI_VIEW_H
#define NVS_CLI_VIEW_H

/* A status for people. Single-threaded. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define VIEW_NOTE_LEN     256
#define VIEW_DURATION_LEN 32

struct nvshare_status_client;
struct status;

/* The end of a word that n goes before. */
static inline const char *view_plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

/* In lines of at most width columns; 0: lines of any length. */
void view_print(FILE *out, const struct status *status, size_t width, bool has_colours);

/* "0.3 s", "3 min 20 s", "2 d 5 h". Returns ret_text. */
const char *view_duration(uint64_t ns, char ret_text[VIEW_DURATION_LEN]);

/*
 * Why the client waits, its claims, and its faults, in one line; "": nothing to say. client is one
 * of status. Returns whether something is wrong.
 */
bool view_note(const struct status *status, const struct nvshare_status_client *client,
	       char ret_note[VIEW_NOTE_LEN]);

#endif
