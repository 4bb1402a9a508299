/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Freezes itself while one of the card's video engines (NVDEC) decodes a batch of pictures by
 * libnvcuvid, to see whether it stops. Two signs tell: the decoder's status of each picture, and
 * the work that is left after the thaw. The program makes the stream, so every byte of the output
 * is known.
 */
#include "lib/app.h"
#include "lib/batch.h"
#include "lib/cuvid.h"
#include "lib/h264.h"
#include "lib/self.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
	"usage: video [OPTION]...\n"
	"  --library FILE  NVIDIA's decoder (libnvcuvid.so.1)\n"
	"  --size N        width and height, as far as the decoder takes it (4096)\n"
	"  --raw N         one macroblock in N is written out, the others repeat it (8)\n"
	"  --batch N       pictures in a batch (16)\n"
	"  --times N       of each row of the table (3)\n"
	"  --write FILE    write the stream, H.264, and stop; takes no GPU\n"
	"Exit: 0 stopped where all was frozen, 1 it went on or the pictures are wrong, 77 no\n"
	"libnvcuvid, no engine for this, or no freezing here.\n";

enum { BATCH_MIN = 2, BATCH_MAX = 32, TIMES_MAX = 100, SIDE_MIN = 64, SIDE_MAX = 8192, MB = 16 };
enum { POLL_US = 100 };

static struct {
	CUresult (*caps)(struct cuvid_caps *caps);
	CUresult (*create_parser)(cuvid_parser *parser, struct cuvid_parser_params *params);
	CUresult (*parse)(cuvid_parser parser, struct cuvid_packet *packet);
	CUresult (*destroy_parser)(cuvid_parser parser);
	CUresult (*create)(cuvid_decoder *decoder, struct cuvid_create_info *info);
	CUresult (*decode)(cuvid_decoder decoder, struct cuvid_picture *picture);
	CUresult (*status)(cuvid_decoder decoder, int picture, struct cuvid_status *status);
	CUresult (*map)(cuvid_decoder decoder, int picture, unsigned long long *p,
			unsigned int *pitch, struct cuvid_map_params *params);
	CUresult (*unmap)(cuvid_decoder decoder, unsigned long long p);
} cuvid;
#define CUVID_CALL(call) app_check(cuvid.call, "cuvid " #call)

static struct {
	const char *cuvid_path, *write_path;
	uint64_t size, every, batch, n_times;
} options = {.cuvid_path = "libnvcuvid.so.1", .size = 4096, .every = 8, .batch = 16, .n_times = 3};

static struct app app;
static struct h264 stream;
static size_t n_bytes; /* of all pictures, encoded */
static struct cuvid_picture pictures[BATCH_MAX];
static uint64_t n_pictures;
static cuvid_decoder decoder;

/* Changes each time, so that an old picture is wrong. */
static uint64_t shift;
static uint64_t n_submitted;
static uint64_t seen[BATCH_LOOK_COUNT_];
static unsigned char *frame, *expected;

static void load_library(void)
{
	void *library = batch_library(options.cuvid_path);

	*(void **)&cuvid.caps = batch_symbol(library, "cuvidGetDecoderCaps");
	*(void **)&cuvid.create_parser = batch_symbol(library, "cuvidCreateVideoParser");
	*(void **)&cuvid.parse = batch_symbol(library, "cuvidParseVideoData");
	*(void **)&cuvid.destroy_parser = batch_symbol(library, "cuvidDestroyVideoParser");
	*(void **)&cuvid.create = batch_symbol(library, "cuvidCreateDecoder");
	*(void **)&cuvid.decode = batch_symbol(library, "cuvidDecodePicture");
	*(void **)&cuvid.status = batch_symbol(library, "cuvidGetDecodeStatus");
	*(void **)&cuvid.map = batch_symbol(library, "cuvidMapVideoFrame64");
	*(void **)&cuvid.unmap = batch_symbol(library, "cuvidUnmapVideoFrame64");
}

static void *host_memory(size_t bytes)
{
	void *p = malloc(bytes);

	if (!p)
		app_exit(APP_EXIT_DRIVER, "no host memory");
	return p;
}

/* ---- the stream and its parser ---------------------------------------------------- */

static uint32_t less(uint64_t a, uint32_t b)
{
	return a < b ? (uint32_t)a : b;
}

static void choose_size(void)
{
	struct cuvid_caps caps = {.eCodecType = CUVID_CODEC_H264,
				  .eChromaFormat = CUVID_CHROMA_420};
	uint32_t rows_max;

	CUVID_CALL(caps(&caps));
	if (!caps.bIsSupported || !caps.nMaxWidth || !caps.nMaxHeight)
		app_exit(APP_EXIT_SKIPPED, "no engine decodes H.264 here");
	stream.width = less(options.size, caps.nMaxWidth) / MB * MB;
	rows_max = caps.nMaxMBCount / (stream.width / MB);
	stream.height = less(less(options.size, caps.nMaxHeight) / MB, rows_max) * MB;
	printf("up to %u x %u, %u macroblocks, by %u engines\n", caps.nMaxWidth, caps.nMaxHeight,
	       caps.nMaxMBCount, caps.nNumNVDECs);
}

static int on_sequence(void *user, void *format)
{
	(void)user;
	(void)format;
	return 1; /* keeps the parser's number of surfaces */
}

/* Copies the picture, because the parser uses its memory again after the call. */
static int on_decode(void *user, struct cuvid_picture *picture)
{
	size_t offsets_bytes = picture->nNumSlices * sizeof(uint32_t);
	unsigned char *data = host_memory(picture->nBitstreamDataLen);
	uint32_t *offsets = host_memory(offsets_bytes);

	(void)user;
	if (n_pictures == options.batch)
		app_exit(APP_EXIT_WRONG, "the parser finds more pictures than there are");
	memcpy(data, picture->pBitstreamData, picture->nBitstreamDataLen);
	memcpy(offsets, picture->pSliceDataOffsets, offsets_bytes);
	pictures[n_pictures] = *picture;
	pictures[n_pictures].pBitstreamData = data;
	pictures[n_pictures].pSliceDataOffsets = offsets;
	n_pictures++;
	return 1;
}

static int on_display(void *user, void *display)
{
	(void)user;
	(void)display;
	return 1;
}

static void parse_all(cuvid_parser parser)
{
	unsigned char *data = host_memory(h264_bytes_max(&stream));
	struct cuvid_packet packet = {.flags = CUVID_PACKET_END_OF_PICTURE, .payload = data};
	struct cuvid_packet last = {.flags = CUVID_PACKET_END_OF_STREAM};

	for (uint32_t i = 0; i < options.batch; i++) {
		packet.payload_size = h264_encode(&stream, i, data);
		n_bytes += packet.payload_size;
		CUVID_CALL(parse(parser, &packet));
	}
	CUVID_CALL(parse(parser, &last));
	free(data);
}

static void parse_stream(void)
{
	struct cuvid_parser_params params = {
		.CodecType = CUVID_CODEC_H264,
		.ulMaxNumDecodeSurfaces = BATCH_MAX,
		.ulErrorThreshold = 100, /* decode broken pictures, too; check_frames() judges */
		.pfnSequenceCallback = on_sequence,
		.pfnDecodePicture = on_decode,
		.pfnDisplayPicture = on_display,
	};
	cuvid_parser parser;

	CUVID_CALL(create_parser(&parser, &params));
	parse_all(parser);
	CUVID_CALL(destroy_parser(parser));
	if (n_pictures != options.batch)
		app_exit(APP_EXIT_DRIVER, "the parser finds %llu of %llu pictures",
			 (unsigned long long)n_pictures, (unsigned long long)options.batch);
}

/* ---- decoding ---------------------------------------------------------------------- */

static void create_decoder(void)
{
	struct cuvid_create_info info = {
		.ulWidth = stream.width,
		.ulHeight = stream.height,
		.ulNumDecodeSurfaces = options.batch,
		.CodecType = CUVID_CODEC_H264,
		.ChromaFormat = CUVID_CHROMA_420,
		.ulCreationFlags = CUVID_CREATE_PREFER_CUVID,
		.ulMaxWidth = stream.width,
		.ulMaxHeight = stream.height,
		.display_area = {0, 0, (int16_t)stream.width, (int16_t)stream.height},
		.OutputFormat = CUVID_SURFACE_NV12,
		.DeinterlaceMode = CUVID_DEINTERLACE_WEAVE,
		.ulTargetWidth = stream.width,
		.ulTargetHeight = stream.height,
		.ulNumOutputSurfaces = 1,
	};

	CUVID_CALL(create(&decoder, &info));
	expected = host_memory(h264_bytes_decoded(&stream));
	printf("%llu pictures of %u x %u, %zu bytes each\n", (unsigned long long)options.batch,
	       stream.width, stream.height, n_bytes / options.batch);
}

/* No picture refers to another, so each can be decoded to any surface. */
static int surface_of(uint64_t picture)
{
	return (int)((picture + shift) % options.batch);
}

static void clear(void)
{
	shift++;
	n_submitted = 0;
}

static void submit_batch(void)
{
	for (uint64_t i = 0; i < options.batch; i++) {
		struct cuvid_picture picture = pictures[i];

		picture.CurrPicIdx = surface_of(i);
		CUVID_CALL(decode(decoder, &picture));
		__atomic_store_n(&n_submitted, i + 1, __ATOMIC_RELEASE);
	}
}

static uint32_t status(uint64_t picture)
{
	struct cuvid_status s = {0};

	CUVID_CALL(status(decoder, surface_of(picture), &s));
	return s.decodeStatus;
}

static unsigned long long map(uint64_t picture, unsigned int *ret_pitch)
{
	struct cuvid_map_params params = {.progressive_frame = 1};
	unsigned long long p;

	CUVID_CALL(map(decoder, surface_of(picture), &p, ret_pitch, &params));
	return p;
}

/* A mapped picture is surely decoded; the status tells when it was not. */
static void wait_for_batch(void)
{
	unsigned long long p;
	unsigned int pitch;

	for (uint64_t i = 0; i < options.batch; i++) {
		while (status(i) == CUVID_STATUS_IN_PROGRESS)
			usleep(POLL_US);
	}
	p = map(options.batch - 1, &pitch);
	APP_CALL(cuCtxSynchronize());
	CUVID_CALL(unmap(decoder, p));
}

static bool look_at_status(enum batch_look nth)
{
	uint64_t n = __atomic_load_n(&n_submitted, __ATOMIC_ACQUIRE), n_done = 0;

	for (uint64_t i = 0; i < n; i++)
		n_done += status(i) >= CUVID_STATUS_SUCCESS;
	seen[nth] = n_done;
	return true;
}

static uint64_t n_done(enum batch_look nth)
{
	return seen[nth];
}

static uint64_t n_changed(void)
{
	return seen[BATCH_LOOK_SECOND] - seen[BATCH_LOOK_FIRST];
}

/* ---- what came out ------------------------------------------------------------------ */

/* Copies the surface of a picture. *ret_pitch: bytes from row to row. */
static void read_frame(uint64_t picture, unsigned int *ret_pitch)
{
	unsigned long long p = map(picture, ret_pitch);
	size_t bytes = (size_t)*ret_pitch * stream.height * 3 / 2;

	if (!frame)
		APP_CALL(cuMemHostAlloc((void **)&frame, bytes, 0));
	APP_CALL(cuMemcpyDtoH(frame, p, bytes));
	CUVID_CALL(unmap(decoder, p));
}

static void check_frames(void)
{
	for (uint32_t i = 0; i < options.batch; i++) {
		unsigned int pitch;

		if (status(i) != CUVID_STATUS_SUCCESS)
			app_exit(APP_EXIT_WRONG, "picture %u: status %u", i, status(i));
		read_frame(i, &pitch);
		h264_decoded(&stream, i, expected);
		for (size_t row = 0; row < stream.height * 3 / 2; row++) {
			if (memcmp(frame + row * pitch, expected + row * stream.width,
				   stream.width) != 0)
				app_exit(APP_EXIT_WRONG, "picture %u: wrong in row %zu", i, row);
		}
	}
}

/* ---- the program --------------------------------------------------------------------- */

static int write_stream(void)
{
	FILE *f = fopen(options.write_path, "wb");
	unsigned char *data;

	stream.width = stream.height = (uint32_t)options.size / MB * MB;
	data = host_memory(h264_bytes_max(&stream));
	for (uint32_t i = 0; f && i < options.batch; i++) {
		size_t bytes = h264_encode(&stream, i, data);

		if (fwrite(data, 1, bytes, f) != bytes)
			app_exit(APP_EXIT_USAGE, "%s: can not be written", options.write_path);
	}
	if (!f || fclose(f))
		app_exit(APP_EXIT_USAGE, "%s: can not be written", options.write_path);
	free(data);
	return APP_EXIT_VERIFIED;
}

static void parse(int argc, char **argv)
{
	for (int a = 1; a < argc; a++) {
		if (app_is(argv[a], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[a], "--library"))
			options.cuvid_path = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--write"))
			options.write_path = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--size"))
			options.size = app_value_u64(argc, argv, &a, SIDE_MIN, SIDE_MAX);
		else if (app_is(argv[a], "--raw"))
			options.every = app_value_u64(argc, argv, &a, 1, SIDE_MAX);
		else if (app_is(argv[a], "--batch"))
			options.batch = app_value_u64(argc, argv, &a, BATCH_MIN, BATCH_MAX);
		else if (app_is(argv[a], "--times"))
			options.n_times = app_value_u64(argc, argv, &a, 1, TIMES_MAX);
		else
			app_usage(help, APP_EXIT_USAGE);
	}
}

int main(int argc, char **argv)
{
	const struct batch batch = {
		.app = &app,
		.clear = clear,
		.submit = submit_batch,
		.wait = wait_for_batch,
		.look = look_at_status,
		.n_done = n_done,
		.n_changed = n_changed,
		.check = check_frames,
	};
	CUcontext own;

	app_name = "video";
	parse(argc, argv);
	setvbuf(stdout, NULL, _IOLBF, 0);
	stream.every = (uint32_t)options.every;
	if (options.write_path)
		return write_stream();
	self_init(&app, &own);
	load_library();
	choose_size();
	parse_stream();
	create_decoder();
	batch_run(&batch, options.n_times);
	return APP_EXIT_VERIFIED;
}
