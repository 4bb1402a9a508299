/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_APPS_H264_H
#define NVS_APPS_H264_H

/*
 * A stream of H.264, made here, whose decoded pictures are known byte for byte: every one
 * stands alone, and of its macroblocks one in `every` has its samples written out (I_PCM);
 * those to the right of it repeat its last column, without any residual.
 *
 * Ownership: memory is the caller's.
 */

#include <stddef.h>
#include <stdint.h>

struct h264 {
	uint32_t width, height; /* multiples of 16 */
	uint32_t every;
};

size_t h264_bytes_max(const struct h264 *h264); /* of one picture, encoded */
/* With what describes the stream ahead of picture 0. Returns how many bytes it is. */
size_t h264_encode(const struct h264 *h264, uint32_t picture, unsigned char *ret);

size_t h264_bytes_decoded(const struct h264 *h264);
/* As NV12: the brightness, then Cb and Cr by turns at half of the resolution. */
void h264_decoded(const struct h264 *h264, uint32_t picture, unsigned char *ret);

#endif
