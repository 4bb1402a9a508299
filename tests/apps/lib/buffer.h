/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_APPS_BUFFER_H
#define NVS_APPS_BUFFER_H

/*
 * Device memory with known contents at any time. Two kinds:
 *   words   filled by nvs_fill_u32; a pass is `rounds` rounds of nvs_lcg_u32;
 *   floats  the first half, x, is copied from the host, the second, y, is zeroed by a
 *           memset; a pass is y += x by nvs_axpy_f32. Small integers, so exact.
 *
 * Ownership: the caller owns the struct; buffer_alloc() takes device memory, and buffer_free()
 * returns it. Threading: one thread at a time may use a buffer. An error of the driver ends the
 * program (app_check).
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
	uint64_t bytes;    /* size; all bytes are used */
	uint64_t n_rounds; /* words: rounds so far */
	uint64_t n_passes; /* floats: passes so far */
	CUdeviceptr p;
	CUmemGenericAllocationHandle *handles; /* BUFFER_VMM, BUFFER_SHARED */
};

/* Allocates about `bytes` bytes; kind, is_float and seed are set. stream: for BUFFER_ASYNC. */
void buffer_alloc(struct buffer *b, struct app *app, uint64_t bytes, CUstream stream);
void buffer_free(struct buffer *b, CUstream stream);

/* Writes the first contents, and waits. The card verifies words at once. */
void buffer_fill(struct buffer *b, struct app *app, CUstream stream);

/* Submits one pass, without waiting. buffer_count() counts it; the two are apart for graphs. */
void buffer_submit(const struct buffer *b, struct app *app, uint32_t rounds, CUstream stream);
void buffer_count(struct buffer *b, uint32_t rounds);

/*
 * Compares the contents with the expected ones, byte for byte: windows at the start, in the middle
 * and at the end, or all. The buffer's work must have ended. Returns the number of wrong words;
 * *ret_first is the index of the first.
 */
uint64_t buffer_check_sample(const struct buffer *b, uint64_t *ret_first);
uint64_t buffer_check_all(const struct buffer *b, uint64_t *ret_first);

/*
 * Words only, for large memory: compares sums of pieces of 2 MiB, which the card adds up. Returns
 * the number of wrong pieces; *ret_first is the index of the first.
 */
uint64_t buffer_check_sums(const struct buffer *b, struct app *app, uint64_t *ret_first);

#endif
