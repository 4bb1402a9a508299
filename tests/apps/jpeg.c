/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Freezes itself while the card's JPEG engines decode a batch by nvJPEG: whether they stop, as
 * seen in the memory that they write to, and in how much is left to do after the thaw. For
 * comparison, the same with nothing frozen, and with only what computes.
 */
#include "hook/freeze/channels.h"
#include "hook/freeze/freeze.h"
#include "lib/app.h"
#include "lib/buffer.h"
#include "lib/self.h"

#include <dlfcn.h>
#include <pthread.h>
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

/* As nvjpeg.h has them. */
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
static unsigned char *expected, *before, *after;
static uint64_t submitted_ns, ended_ns; /* of the last batch */

enum how { HOW_NOT, HOW_COMPUTE, HOW_ALL, N_HOWS };
static const char *const how_names[N_HOWS] = {"nothing", "what computes", "all"};

static void nvjpeg_check(int status, const char *what)
{
	if (status)
		app_exit(APP_EXIT_SKIPPED, "%s: status %d", what, status);
}

static void *symbol(void *library, const char *name)
{
	void *p = dlsym(library, name);

	if (!p)
		app_exit(APP_EXIT_SKIPPED, "%s: %s", options.nvjpeg_path, dlerror());
	return p;
}

static void nvjpeg_load(void)
{
	void *library = dlopen(options.nvjpeg_path, RTLD_NOW);

	if (!library)
		app_exit(APP_EXIT_SKIPPED, "%s", dlerror());
	*(void **)&nvjpeg.create = symbol(library, "nvjpegCreateEx");
	*(void **)&nvjpeg.state_create = symbol(library, "nvjpegJpegStateCreate");
	*(void **)&nvjpeg.info = symbol(library, "nvjpegGetImageInfo");
	*(void **)&nvjpeg.initialize = symbol(library, "nvjpegDecodeBatchedInitialize");
	*(void **)&nvjpeg.decode = symbol(library, "nvjpegDecodeBatched");
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

static void prepare(void)
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
	APP_CALL(cuMemHostAlloc((void **)&before, bytes, 0));
	APP_CALL(cuMemHostAlloc((void **)&after, bytes, 0));
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

static void *decode(void *unused)
{
	APP_CALL(cuCtxSetCurrent(app.ctx));
	nvjpeg_check(nvjpeg.decode(nvjpeg.handle, nvjpeg.state, data, lengths, images, stream),
		     "nvjpegDecodeBatched");
	__atomic_store_n(&submitted_ns, app_now_ns(), __ATOMIC_RELEASE);
	APP_CALL(cuStreamSynchronize(stream));
	__atomic_store_n(&ended_ns, app_now_ns(), __ATOMIC_RELEASE);
	return unused;
}

static void clear(void)
{
	APP_CALL(cuMemsetD8(buffer.p, UNTOUCHED, bytes));
	APP_CALL(cuCtxSynchronize());
}

static void look(unsigned char *at)
{
	APP_CALL(cuCtxSetCurrent(own));
	APP_CALL(cuMemcpyDtoH(at, buffer.p, bytes));
	APP_CALL(cuCtxSetCurrent(app.ctx));
}

/* Pictures that are other ones at the second look than at the first. */
static uint64_t n_changed(void)
{
	uint64_t n = 0;

	for (uint64_t at = 0; at < bytes; at += picture_bytes)
		n += memcmp(before + at, after + at, picture_bytes) != 0;
	return n;
}

static uint64_t n_whole(const unsigned char *at)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < bytes; i += picture_bytes)
		n += memcmp(at + i, expected + i, picture_bytes) == 0;
	return n;
}

static void freeze(enum how how)
{
	int r = 0;

	if (how == HOW_ALL)
		self_freeze();
	while (how == HOW_COMPUTE && (r = freeze_begin_compute(UINT64_MAX)) == FREEZE_E_BUSY)
		app_sleep_ms(1);
	if (r)
		app_exit(APP_EXIT_WRONG, "freeze_begin_compute: %d", r);
}

/* Looks twice, and long enough in between for all the rest of the batch. */
static void run(enum how how, uint64_t alone_ns)
{
	uint64_t start_ns, frozen_ns, thaw_ns, changed;
	pthread_t thread;

	clear();
	start_ns = app_now_ns();
	if (pthread_create(&thread, NULL, decode, NULL))
		app_exit(APP_EXIT_DRIVER, "cannot start a thread");
	while (app_now_ns() < start_ns + alone_ns / 3)
		;
	freeze(how);
	frozen_ns = app_now_ns();
	look(before);
	app_sleep_ms(2 * alone_ns / 1000000);
	look(after);
	if (how != HOW_NOT)
		self_thaw();
	thaw_ns = app_now_ns();
	self_join(thread, "the batch");
	changed = n_changed();
	printf("%-14s %8.1f %8.1f %8llu %8llu %8llu %8.1f\n", how_names[how],
	       (double)(frozen_ns - start_ns) / 1e6, (double)(submitted_ns - start_ns) / 1e6,
	       (unsigned long long)n_whole(before), (unsigned long long)n_whole(after),
	       (unsigned long long)changed,
	       ended_ns > thaw_ns ? (double)(ended_ns - thaw_ns) / 1e6 : 0.0);
	if (how == HOW_ALL && changed > 0)
		app_exit(APP_EXIT_WRONG, "engines went on while all was frozen");
	if (how == HOW_ALL && n_whole(before) == options.batch)
		app_exit(APP_EXIT_WRONG,
			 "all was done before it was frozen: a larger batch shows more");
	look(after);
	if (n_whole(after) < options.batch)
		app_exit(APP_EXIT_WRONG, "pictures are wrong");
}

static uint64_t measure_alone(void)
{
	uint64_t best_ns = UINT64_MAX;

	for (int i = 0; i < 4; i++) {
		uint64_t start_ns;

		clear();
		start_ns = app_now_ns();
		decode(NULL);
		if (ended_ns - start_ns < best_ns)
			best_ns = ended_ns - start_ns;
		printf("alone: submitted in %.1f ms, done in %.1f\n",
		       (double)(submitted_ns - start_ns) / 1e6,
		       (double)(ended_ns - start_ns) / 1e6);
	}
	look(expected);
	return best_ns;
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
	uint64_t alone_ns;

	app_name = "jpeg";
	parse(argc, argv);
	setvbuf(stdout, NULL, _IOLBF, 0);
	self_init(&app, &own);
	APP_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	nvjpeg_load();
	prepare();
	alone_ns = measure_alone();
	printf("%-14s %8s %8s %8s %8s %8s %8s\n", "frozen", "at ms", "given by", "whole", "later",
	       "changed", "rest ms");
	for (uint64_t i = 0; i < options.n_times; i++) {
		for (enum how how = HOW_NOT; how < N_HOWS; how++)
			run(how, alone_ns);
	}
	return APP_EXIT_VERIFIED;
}
