/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_APPS_BUFFER_H
#define NVS_APPS_BUFFER_H

/*
 * A piece of device memory whose every byte is known at any time. Two sorts:
 *   words   filled by nvs_fill_u32; a pass is `rounds` rounds of nvs_lcg_u32;
 *   floats  the first half, x, is copied from the host, the second, y, is zeroed by a
 *           memset; a pass is y += x by nvs_axpy_f32. Small integers, so exact.
 *
 * Ownership: the caller's struct; buffer_alloc() takes device memory, buffer_free()
 * gives it back. Threading: one thread at a time a buffer. Errors of the driver end
 * the program (app_check).
 */

#include "app.h"

enum buffer_kind {
	BUFFER_PLAIN,
	BUFFER_PITCH,
	BUFFER_ASYNC,
	BUFFER_VMM,
	BUFFER_SHARED, /* the same, exported */
	BUFFER_MANAGED,
};

struct buffer {
	enum buffer_kind kind;
	bool is_float;
	uint32_t seed;
	uint64_t bytes;    /* all of them are used */
	uint64_t n_rounds; /* words: in all so far */
	uint64_t n_passes; /* floats: in all so far */
	CUdeviceptr p;
	CUmemGenericAllocationHandle *handles; /* BUFFER_VMM, BUFFER_SHARED */
};

/* kind, is_float and seed are set; about `bytes` bytes. stream: for BUFFER_ASYNC. */
void buffer_alloc(struct buffer *b, struct app *app, uint64_t bytes, CUstream stream);
void buffer_free(struct buffer *b, CUstream stream);

/* First contents; waits. On the card, words are verified at once. */
void buffer_fill(struct buffer *b, struct app *app, CUstream stream);

/* Submits one pass, without waiting or counting; then count it. (Apart, for graphs.) */
void buffer_submit(const struct buffer *b, struct app *app, uint32_t rounds, CUstream stream);
void buffer_count(struct buffer *b, uint32_t rounds);

/*
 * Compares with what must be there, byte for byte: windows at the start, in the middle
 * and at the end, or everything. stream's work has ended. Returns how many words are
 * wrong; *ret_first is the index of the first.
 */
uint64_t buffer_check_sample(const struct buffer *b, uint64_t *ret_first);
uint64_t buffer_check_all(const struct buffer *b, uint64_t *ret_first);

/*
 * Words only: compares the sums of pieces of 2 MiB, added up on the card, so that large
 * memory takes no time to speak of. As above, but returns how many pieces are wrong.
 */
uint64_t buffer_check_sums(const struct buffer *b, struct app *app, uint64_t *ret_first);

#endif
