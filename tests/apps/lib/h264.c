/* SPDX-License-Identifier: Apache-2.0 */
#include "h264.h"

#include <stdbool.h>
#include <string.h>

/* Names and numbers come from Rec. ITU-T H.264. */
enum { NAL_IDR_SLICE = 5, NAL_SPS = 7, NAL_PPS = 8 };
enum { PROFILE_MAIN = 77, LEVEL_5_1 = 51, POC_AS_DECODED = 2, SLICE_I_ONLY = 7, NO_DEBLOCKING = 1 };
enum { MB_I16X16_HORIZONTAL = 2, MB_I_PCM = 25, CHROMA_HORIZONTAL = 1 };
enum { SIDE = 16, LUMA = SIDE * SIDE, CHROMA = LUMA / 4, MB_BYTES = LUMA + 2 * CHROMA };

/* Writes the bits of one NAL unit. After 0, 0 a small byte gets a 3 before it. */
struct writer {
	unsigned char *p;
	size_t n;
	unsigned int n_zeros; /* zero bytes at the end */
	uint32_t bits;
	unsigned int n_bits; /* bits that make no byte yet */
};

/* The samples of a macroblock, in the order of the stream. */
struct samples {
	unsigned char y[LUMA], cb[CHROMA], cr[CHROMA];
};

_Static_assert(sizeof(struct samples) == MB_BYTES, "nothing in between");

static void put_byte(struct writer *w, unsigned char byte)
{
	if (w->n_zeros == 2 && byte <= 3) {
		w->p[w->n++] = 3;
		w->n_zeros = 0;
	}
	w->p[w->n++] = byte;
	w->n_zeros = byte ? 0 : w->n_zeros + 1;
}

/* At most 24 bits. */
static void put_bits(struct writer *w, uint32_t value, unsigned int n)
{
	w->bits = w->bits << n | value;
	w->n_bits += n;
	while (w->n_bits >= 8) {
		w->n_bits -= 8;
		put_byte(w, (unsigned char)(w->bits >> w->n_bits));
	}
	w->bits &= (1u << w->n_bits) - 1;
}

/* ue(v), of less than 4095. */
static void put_ue(struct writer *w, uint32_t value)
{
	unsigned int n = 0;

	while ((value + 1) >> (n + 1))
		n++;
	put_bits(w, 0, n);
	put_bits(w, value + 1, n + 1);
}

/* ue(v) and se(v) write a zero as the same bit. */
static void put_ue_zeros(struct writer *w, unsigned int n)
{
	put_bits(w, (1u << n) - 1, n);
}

static void put_alignment(struct writer *w)
{
	put_bits(w, 0, (8 - w->n_bits) % 8);
}

static struct writer begin_nal(unsigned char *p, unsigned int type)
{
	const unsigned char start[] = {0, 0, 0, 1, (unsigned char)(3u << 5 | type)};

	memcpy(p, start, sizeof(start));
	return (struct writer){.p = p, .n = sizeof(start)};
}

static size_t end_nal(struct writer *w)
{
	put_bits(w, 1, 1);
	put_alignment(w);
	return w->n;
}

static size_t put_sps(const struct h264 *h, unsigned char *p)
{
	struct writer w = begin_nal(p, NAL_SPS);

	put_bits(&w, PROFILE_MAIN << 16 | LEVEL_5_1, 24); /* no constraints in between */
	put_ue_zeros(&w, 2); /* its number; log2_max_frame_num_minus4 */
	put_ue(&w, POC_AS_DECODED);
	put_ue(&w, 1);      /* max_num_ref_frames */
	put_bits(&w, 0, 1); /* gaps_in_frame_num_value_allowed_flag */
	put_ue(&w, h->width / SIDE - 1);
	put_ue(&w, h->height / SIDE - 1);
	put_bits(&w, 3, 2); /* frame_mbs_only_flag, direct_8x8_inference_flag */
	put_bits(&w, 0, 2); /* no cropping, no VUI */
	return end_nal(&w);
}

static size_t put_pps(unsigned char *p)
{
	struct writer w = begin_nal(p, NAL_PPS);

	put_ue_zeros(&w, 2); /* its number, that of the SPS */
	put_bits(&w, 0, 2);  /* entropy_coding_mode_flag: CAVLC; no order in the slices */
	put_ue_zeros(&w, 3); /* one slice group; references of either list */
	put_bits(&w, 0, 3);  /* no weights */
	put_ue_zeros(&w, 3); /* QP, QS, of chroma */
	put_bits(&w, 4, 3);  /* slices say whether to deblock; nothing else */
	return end_nal(&w);
}

static void put_slice_header(struct writer *w, uint32_t picture)
{
	put_ue_zeros(w, 1); /* first_mb_in_slice */
	put_ue(w, SLICE_I_ONLY);
	put_ue_zeros(w, 1);      /* the PPS */
	put_bits(w, 0, 4);       /* frame_num */
	put_ue(w, picture % 16); /* idr_pic_id: must differ from the one before */
	put_bits(w, 0, 2);       /* earlier pictures may go, and this is no long-term reference */
	put_ue_zeros(w, 1);      /* slice_qp_delta */
	put_ue(w, NO_DEBLOCKING);
}

/* Noise with a seed for each macroblock and picture. Has no 0, which old decoders may refuse. */
static void fill_samples(uint32_t picture, uint32_t mb, struct samples *ret)
{
	uint32_t x = (picture + 1) * 0x9e3779b9u ^ (mb + 1) * 0x85ebca6bu;
	unsigned char *p = (unsigned char *)ret;

	for (size_t i = 0; i < MB_BYTES; i++) {
		x = x * 1664525u + 1013904223u;
		p[i] = (unsigned char)(1 + (x >> 16) % 255);
	}
}

static void put_raw(struct writer *w, const struct samples *samples)
{
	const unsigned char *p = (const unsigned char *)samples;

	put_ue(w, MB_I_PCM);
	put_alignment(w);
	for (size_t i = 0; i < MB_BYTES; i++)
		put_byte(w, p[i]);
}

/*
 * A macroblock with horizontal prediction, also of chroma, without a change of QP and without
 * coefficients. Its bits depend on the neighbours' coefficients; a raw neighbour counts as full.
 */
static void put_repeated(struct writer *w, bool is_after_raw)
{
	put_ue(w, MB_I16X16_HORIZONTAL);
	put_ue(w, CHROMA_HORIZONTAL);
	put_ue_zeros(w, 1);
	put_bits(w, is_after_raw ? 3 : 1, is_after_raw ? 6 : 1);
}

size_t h264_bytes_max(const struct h264 *h)
{
	/* Half as much again is room for all inserted bytes, and for headers. */
	return (size_t)(h->width / SIDE) * (h->height / SIDE) * MB_BYTES * 3 / 2 + 1024;
}

size_t h264_encode(const struct h264 *h, uint32_t picture, unsigned char *ret)
{
	uint32_t columns = h->width / SIDE, n = columns * (h->height / SIDE);
	struct samples samples;
	struct writer w;
	size_t at = 0;

	if (picture == 0) {
		at += put_sps(h, ret);
		at += put_pps(ret + at);
	}
	w = begin_nal(ret + at, NAL_IDR_SLICE);
	put_slice_header(&w, picture);
	for (uint32_t mb = 0; mb < n; mb++) {
		uint32_t since_raw = mb % columns % h->every;

		if (since_raw == 0) {
			fill_samples(picture, mb, &samples);
			put_raw(&w, &samples);
		} else {
			put_repeated(&w, since_raw == 1);
		}
	}
	return at + end_nal(&w);
}

size_t h264_bytes_decoded(const struct h264 *h)
{
	return (size_t)h->width * h->height * 3 / 2;
}

/* Writes a macroblock's samples, and those that repeat them to its right, n bytes wide in all. */
static void put_decoded(const struct samples *s, unsigned char *y, unsigned char *uv, size_t pitch,
			size_t n)
{
	for (size_t row = 0; row < SIDE; row++, y += pitch) {
		memcpy(y, s->y + row * SIDE, SIDE);
		memset(y + SIDE, y[SIDE - 1], n - SIDE);
	}
	for (size_t row = 0; row < SIDE / 2; row++, uv += pitch) {
		for (size_t i = 0; i < n / 2; i++) {
			size_t from = row * SIDE / 2 + (i < SIDE / 2 ? i : SIDE / 2 - 1);

			uv[2 * i] = s->cb[from];
			uv[2 * i + 1] = s->cr[from];
		}
	}
}

void h264_decoded(const struct h264 *h, uint32_t picture, unsigned char *ret)
{
	uint32_t columns = h->width / SIDE, rows = h->height / SIDE;
	struct samples samples;

	for (uint32_t row = 0; row < rows; row++) {
		unsigned char *y = ret + (size_t)row * SIDE * h->width;
		unsigned char *uv = ret + (size_t)h->width * (h->height + row * SIDE / 2);

		for (uint32_t column = 0; column < columns; column += h->every) {
			uint32_t left = columns - column;
			size_t n = (size_t)SIDE * (left < h->every ? left : h->every);

			fill_samples(picture, row * columns + column, &samples);
			put_decoded(&samples, y + column * SIDE, uv + column * SIDE, h->width, n);
		}
	}
}
