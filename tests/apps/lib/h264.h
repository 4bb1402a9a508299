/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_APPS_H264_H
#define NVS_APPS_H264_H

/*
 * Makes a stream of H.264 whose decoded pictures are known byte for byte. Each picture stands
 * alone. One of `every` macroblocks has its samples in the stream (I_PCM); those to the right of it
 * repeat its last column, without a residual.
 *
 * Ownership: the caller owns all memory. Thread-safe.
 */

#include <stddef.h>
#include <stdint.h>

struct h264 {
	uint32_t width, height; /* multiples of 16 */
	uint32_t every;
};

size_t h264_bytes_max(const struct h264 *h264); /* of one encoded picture */
/* Encodes a picture; picture 0 comes with the stream's headers. Returns its bytes. */
size_t h264_encode(const struct h264 *h264, uint32_t picture, unsigned char *ret);

size_t h264_bytes_decoded(const struct h264 *h264);
/* The decoded picture as NV12: luma, then interleaved Cb and Cr at half of the resolution. */
void h264_decoded(const struct h264 *h264, uint32_t picture, unsigned char *ret);

#endif
