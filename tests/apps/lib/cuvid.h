/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_APPS_CUVID_H
#define NVS_APPS_CUVID_H

/*
 * The part of NVIDIA's video decoder, libnvcuvid.so.1, that decodes H.264 to NV12, after nvcuvid.h
 * and cuviddec.h. All reserved fields must be zero.
 */

#include "abi/cuda_abi.h"

#include <stdint.h>

enum {
	CUVID_CODEC_H264 = 4,
	CUVID_CHROMA_420 = 1,
	CUVID_CREATE_PREFER_CUVID = 4, /* the engines */
	CUVID_SURFACE_NV12 = 0,
	CUVID_DEINTERLACE_WEAVE = 0,
	CUVID_STATUS_IN_PROGRESS = 1,
	CUVID_STATUS_SUCCESS = 2,
	CUVID_PACKET_END_OF_STREAM = 1,
	CUVID_PACKET_END_OF_PICTURE = 8, /* the packet is exactly one picture */
};

typedef void *cuvid_parser;
typedef void *cuvid_decoder;

struct cuvid_caps {
	uint32_t eCodecType, eChromaFormat, nBitDepthMinus8, reserved1[3];
	uint8_t bIsSupported, nNumNVDECs;
	uint16_t nOutputFormatMask;
	uint32_t nMaxWidth, nMaxHeight, nMaxMBCount;
	uint16_t nMinWidth, nMinHeight;
	uint32_t histogram, reserved3[10];
};

struct cuvid_rect {
	int16_t left, top, right, bottom;
};

struct cuvid_create_info {
	unsigned long ulWidth, ulHeight, ulNumDecodeSurfaces;
	uint32_t CodecType, ChromaFormat;
	unsigned long ulCreationFlags, bitDepthMinus8, ulIntraDecodeOnly, ulMaxWidth, ulMaxHeight;
	unsigned long Reserved1;
	struct cuvid_rect display_area;
	uint32_t OutputFormat, DeinterlaceMode;
	unsigned long ulTargetWidth, ulTargetHeight, ulNumOutputSurfaces;
	void *vidLock;
	struct cuvid_rect target_rect;
	unsigned long enableHistogram, Reserved2[4];
};

/* The parser passes it to the decoder. The codec's own part stays opaque. */
struct cuvid_picture {
	int32_t PicWidthInMbs, FrameHeightInMbs;
	int32_t CurrPicIdx; /* the surface of the decoded picture */
	int32_t field_pic_flag, bottom_field_flag, second_field;
	uint32_t nBitstreamDataLen;
	const unsigned char *pBitstreamData;
	uint32_t nNumSlices;
	const uint32_t *pSliceDataOffsets;
	int32_t ref_pic_flag, intra_pic_flag;
	uint32_t Reserved[30];
	uint64_t CodecSpecific[512];
};

struct cuvid_packet {
	unsigned long flags, payload_size;
	const unsigned char *payload;
	int64_t timestamp;
};

struct cuvid_parser_params {
	uint32_t CodecType, ulMaxNumDecodeSurfaces, ulClockRate, ulErrorThreshold;
	uint32_t ulMaxDisplayDelay, flags, uReserved1[4];
	void *pUserData;
	int (*pfnSequenceCallback)(void *user, void *format);
	int (*pfnDecodePicture)(void *user, struct cuvid_picture *picture);
	int (*pfnDisplayPicture)(void *user, void *display);
	void *pfnGetOperatingPoint, *pvReserved2[6], *pExtVideoInfo;
};

struct cuvid_map_params {
	int32_t progressive_frame, second_field, top_field_first, unpaired_field;
	uint32_t raw[10]; /* only for output that is not decoded */
	CUstream output_stream;
	uint32_t Reserved[46];
	void *histogram_dptr, *Reserved2[1];
};

struct cuvid_status {
	uint32_t decodeStatus, reserved[31];
	void *pReserved[8];
};

_Static_assert(sizeof(struct cuvid_caps) == 88, "CUVIDDECODECAPS");
_Static_assert(sizeof(struct cuvid_create_info) == 176, "CUVIDDECODECREATEINFO");
_Static_assert(sizeof(struct cuvid_picture) == 4280, "CUVIDPICPARAMS");
_Static_assert(sizeof(struct cuvid_packet) == 32, "CUVIDSOURCEDATAPACKET");
_Static_assert(sizeof(struct cuvid_parser_params) == 136, "CUVIDPARSERPARAMS");
_Static_assert(sizeof(struct cuvid_map_params) == 264, "CUVIDPROCPARAMS");
_Static_assert(sizeof(struct cuvid_status) == 192, "CUVIDGETDECODESTATUS");

#endif
