/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Freezes itself while the card's JPEG engines decode a batch by nvJPEG, to see whether they stop.
 * Two signs tell: the memory that they write to, and the work that is left after the thaw. For
 * comparison it freezes nothing, and only the compute channels.
 */
#include "lib/app.h"
#include "lib/batch.h"
#include "lib/buffer.h"
#include "lib/self.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char help[] =
	"usage: jpeg --picture FILE [OPTION]...\n"
	"  --picture FILE  baseline JPEG, decoded as often as the batch is large\n"
	"  --library FILE  nvJPEG (libnvjpeg.so)\n"
	"  --batch N       pictures in a batch (128)\n"
	"  --rgb           all colours; else the brightness alone, which needs no conversion\n"
	"  --times N       of each row of the table (3)\n"
	"Exit: 0 stopped where all was frozen, 1 it went on or the pictures are wrong, 77 no\n"
	"nvJPEG, no engine, or no freezing here.\n";

/* Values of nvjpeg.h. */
enum { BACKEND_HARDWARE = 3, OUTPUT_Y = 2, OUTPUT_RGB = 3, COMPONENTS = 4 };
enum { UNTOUCHED = 0xa5, BATCH_MAX = 1024, TIMES_MAX = 100 };

struct nvjpeg_image {
	unsigned char *channel[COMPONENTS];
	size_t pitch[COMPONENTS];
};

static struct {
	int (*create)(int backend, void *dev, void *pinned, unsigned int flags, void **handle);
	int (*state_create)(void *handle, void **state);
	int (*info)(void *handle, const unsigned char *data, size_t length, int *n_components,
		    int *subsampling, int *widths, int *heights);
	int (*initialize)(void *handle, void *state, int batch, int n_threads, int format);
	int (*decode)(void *handle, void *state, const unsigned char *const *data,
		      const size_t *lengths, struct nvjpeg_image *images, CUstream stream);
	void *handle, *state;
} nvjpeg;

static struct {
	const char *picture, *nvjpeg_path;
	uint64_t batch, n_times;
	bool is_rgb;
} options = {.nvjpeg_path = "libnvjpeg.so", .batch = 128, .n_times = 3};

static struct app app;
static CUcontext own;
static struct buffer buffer = {.kind = BUFFER_VMM, .seed = 1};
static CUstream stream;
static uint64_t bytes, picture_bytes; /* all of them; one */
static const unsigned char *data[BATCH_MAX];
static size_t lengths[BATCH_MAX];
static struct nvjpeg_image images[BATCH_MAX];
static unsigned char *expected, *seen[BATCH_LOOK_COUNT_];
static bool is_expected_known; /* expected has the output of a run without a freeze */

static void nvjpeg_check(int status, const char *what)
{
	if (status)
		app_exit(APP_EXIT_SKIPPED, "%s: status %d", what, status);
}

static void nvjpeg_load(void)
{
	void *library = batch_library(options.nvjpeg_path);

	*(void **)&nvjpeg.create = batch_symbol(library, "nvjpegCreateEx");
	*(void **)&nvjpeg.state_create = batch_symbol(library, "nvjpegJpegStateCreate");
	*(void **)&nvjpeg.info = batch_symbol(library, "nvjpegGetImageInfo");
	*(void **)&nvjpeg.initialize = batch_symbol(library, "nvjpegDecodeBatchedInitialize");
	*(void **)&nvjpeg.decode = batch_symbol(library, "nvjpegDecodeBatched");
	nvjpeg_check(nvjpeg.create(BACKEND_HARDWARE, NULL, NULL, 0, &nvjpeg.handle),
		     "nvjpegCreateEx with the hardware backend");
	nvjpeg_check(nvjpeg.state_create(nvjpeg.handle, &nvjpeg.state), "nvjpegJpegStateCreate");
	nvjpeg_check(nvjpeg.initialize(nvjpeg.handle, nvjpeg.state, (int)options.batch, 1,
				       options.is_rgb ? OUTPUT_RGB : OUTPUT_Y),
		     "nvjpegDecodeBatchedInitialize");
}

static unsigned char *read_picture(size_t *ret_length)
{
	FILE *f = fopen(options.picture, "rb");
	struct stat st;
	unsigned char *p;

	if (!f || fstat(fileno(f), &st) < 0)
		app_exit(APP_EXIT_USAGE, "%s: can not be read", options.picture);
	p = malloc((size_t)st.st_size);
	if (!p || fread(p, 1, (size_t)st.st_size, f) != (size_t)st.st_size)
		app_exit(APP_EXIT_USAGE, "%s: can not be read", options.picture);
	fclose(f);
	*ret_length = (size_t)st.st_size;
	return p;
}

static void prepare_pictures(void)
{
	int widths[COMPONENTS] = {0}, heights[COMPONENTS] = {0}, n_components, subsampling;
	size_t n_planes = options.is_rgb ? 3 : 1, plane, length;
	const unsigned char *picture = read_picture(&length);

	nvjpeg_check(nvjpeg.info(nvjpeg.handle, picture, length, &n_components, &subsampling,
				 widths, heights),
		     "nvjpegGetImageInfo");
	plane = (size_t)widths[0] * (size_t)heights[0];
	picture_bytes = n_planes * plane;
	bytes = options.batch * picture_bytes;
	buffer_alloc(&buffer, &app, bytes, stream);
	if (buffer.bytes < bytes)
		app_exit(APP_EXIT_MEMORY, "too little memory for %llu pictures",
			 (unsigned long long)options.batch);
	APP_CALL(cuMemHostAlloc((void **)&expected, bytes, 0));
	for (size_t i = 0; i < BATCH_LOOK_COUNT_; i++)
		APP_CALL(cuMemHostAlloc((void **)&seen[i], bytes, 0));
	for (size_t i = 0; i < options.batch; i++) {
		data[i] = picture;
		lengths[i] = length;
		for (size_t k = 0; k < n_planes; k++) {
			images[i].channel[k] =
				(unsigned char *)(buffer.p + i * picture_bytes + k * plane);
			images[i].pitch[k] = (size_t)widths[0];
		}
	}
	printf("%llu pictures of %d x %d, %zu bytes each, to %llu MiB of %s\n",
	       (unsigned long long)options.batch, widths[0], heights[0], length,
	       (unsigned long long)(bytes >> 20), options.is_rgb ? "RGB" : "Y");
}

static void clear(void)
{
	APP_CALL(cuMemsetD8(buffer.p, UNTOUCHED, bytes));
	APP_CALL(cuCtxSynchronize());
}

static void submit_batch(void)
{
	nvjpeg_check(nvjpeg.decode(nvjpeg.handle, nvjpeg.state, data, lengths, images, stream),
		     "nvjpegDecodeBatched");
}

static void wait_for_batch(void)
{
	APP_CALL(cuStreamSynchronize(stream));
}

static void copy(unsigned char *at)
{
	APP_CALL(cuCtxSetCurrent(own));
	APP_CALL(cuMemcpyDtoH(at, buffer.p, bytes));
	APP_CALL(cuCtxSetCurrent(app.ctx));
}

static bool look_at_output(enum batch_look nth)
{
	copy(seen[nth]);
	return true;
}

static uint64_t n_changed(void)
{
	uint64_t n = 0;

	for (uint64_t at = 0; at < bytes; at += picture_bytes)
		n += memcmp(seen[BATCH_LOOK_FIRST] + at, seen[BATCH_LOOK_SECOND] + at,
			    picture_bytes) != 0;
	return n;
}

static uint64_t n_whole(enum batch_look nth)
{
	uint64_t n = 0;

	for (uint64_t at = 0; at < bytes; at += picture_bytes)
		n += memcmp(seen[nth] + at, expected + at, picture_bytes) == 0;
	return n;
}

static void check_output(void)
{
	copy(is_expected_known ? seen[BATCH_LOOK_SECOND] : expected);
	if (is_expected_known && n_whole(BATCH_LOOK_SECOND) < options.batch)
		app_exit(APP_EXIT_WRONG, "pictures are wrong");
	is_expected_known = true;
}

static void parse(int argc, char **argv)
{
	for (int a = 1; a < argc; a++) {
		if (app_is(argv[a], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[a], "--picture"))
			options.picture = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--library"))
			options.nvjpeg_path = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--batch"))
			options.batch = app_value_u64(argc, argv, &a, 1, BATCH_MAX);
		else if (app_is(argv[a], "--times"))
			options.n_times = app_value_u64(argc, argv, &a, 1, TIMES_MAX);
		else if (app_is(argv[a], "--rgb"))
			options.is_rgb = true;
		else
			app_usage(help, APP_EXIT_USAGE);
	}
	if (!options.picture)
		app_usage(help, APP_EXIT_USAGE);
}

int main(int argc, char **argv)
{
	const struct batch batch = {
		.app = &app,
		.clear = clear,
		.submit = submit_batch,
		.wait = wait_for_batch,
		.look = look_at_output,
		.n_done = n_whole,
		.n_changed = n_changed,
		.check = check_output,
	};

	app_name = "jpeg";
	parse(argc, argv);
	setvbuf(stdout, NULL, _IOLBF, 0);
	self_init(&app, &own);
	APP_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	nvjpeg_load();
	prepare_pictures();
	batch_run(&batch, options.n_times);
	return APP_EXIT_VERIFIED;
}
