/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Freezes itself while the card's engine for optical flow (OFA) compares a batch of pairs of
 * pictures, to see whether the engine stops. Two signs tell: the memory that it writes to, if
 * another context can read that, and the work that is left after the thaw.
 *
 * The second picture of a pair is the first one, moved, so most vectors must be this motion. All
 * vectors must be those of a run without a freeze, byte for byte.
 */
#include "lib/app.h"
#include "lib/batch.h"
#include "lib/nvof.h"
#include "lib/self.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
	"usage: flow [OPTION]...\n"
	"  --library FILE  NVIDIA's optical flow (libnvidia-opticalflow.so.1)\n"
	"  --size N        width and height of the pictures, as far as the engine takes it (2048)\n"
	"  --batch N       pairs of pictures in a batch (32)\n"
	"  --times N       of each row of the table (3)\n"
	"Exit: 0 stopped where all was frozen, 1 it went on or the vectors are wrong, 77 no\n"
	"libnvidia-opticalflow, no engine, or no freezing here.\n";

enum { UNTOUCHED = 0xa5, BATCH_MAX = 256, TIMES_MAX = 100, SIDE_MIN = 64, SIDE_MAX = 8192 };
enum { GRIDS_MAX = 16 };

/* The motion of the second picture, in points, and the tolerance of a vector. */
enum { MOVED_X = 12, MOVED_Y = -8, NEAR = NVOF_FRACTION / 2 };

/* Offset of a picture in the texture, so that moved pictures stay inside. */
enum { ORIGIN = 1024, COARSE = 16, FINE = 4 };

static struct {
	const char *nvof_path;
	uint64_t size, batch, n_times;
} options = {.nvof_path = "libnvidia-opticalflow.so.1", .size = 2048, .batch = 32, .n_times = 3};

/* One of the engine's buffers. */
struct plane {
	nvof_buffer buffer;
	CUdeviceptr p;
	size_t pitch, bytes;
};

static struct nvof_functions nvof;
static nvof_session session;
static struct app app;
static CUcontext own;
static uint32_t width, height, grid;
static struct plane inputs[2], outputs[BATCH_MAX];
static size_t output_bytes; /* of one */

static unsigned char *expected, *seen[BATCH_LOOK_COUNT_];
static bool is_expected_known; /* expected has the output of a run without a freeze */
static bool is_visible;        /* from the other context */

static void nvof_check(uint32_t status, const char *what)
{
	bool is_missing = status == NVOF_NOT_AVAILABLE || status == NVOF_UNSUPPORTED_DEVICE ||
			  status == NVOF_UNSUPPORTED_FEATURE;
	char why[NVOF_ERROR_SIZE] = "";
	uint32_t size = sizeof(why) - 1;

	if (status == NVOF_SUCCESS)
		return;
	if (session)
		nvof.last_error(session, why, &size);
	app_exit(is_missing ? APP_EXIT_SKIPPED : APP_EXIT_DRIVER, "%s: status %u %s", what, status,
		 why);
}
#define NVOF_CALL(call) nvof_check(nvof.call, "optical flow: " #call)

static void load_library(void)
{
	uint32_t (*create_instance)(uint32_t version, struct nvof_functions * functions);
	void *library = batch_library(options.nvof_path);

	*(void **)&create_instance = batch_symbol(library, "NvOFAPICreateInstanceCuda");
	nvof_check(create_instance(NVOF_VERSION, &nvof), "NvOFAPICreateInstanceCuda");
	NVOF_CALL(create(app.ctx, &session));
}

/* The most work: vectors as dense as the engine makes them. */
static uint32_t densest_grid(void)
{
	uint32_t grids[GRIDS_MAX], n = 0, best;

	NVOF_CALL(caps(session, NVOF_CAPS_GRIDS, NULL, &n));
	if (n == 0 || n > GRIDS_MAX)
		app_exit(APP_EXIT_DRIVER, "%u grids", n);
	NVOF_CALL(caps(session, NVOF_CAPS_GRIDS, grids, &n));
	best = grids[0];
	for (uint32_t i = 1; i < n; i++)
		best = grids[i] < best ? grids[i] : best;
	return best;
}

static uint32_t side(uint32_t cap)
{
	uint32_t value = 0, n = 1;

	NVOF_CALL(caps(session, cap, &value, &n));
	return options.size < value ? (uint32_t)options.size : value;
}

static void init_session(void)
{
	struct nvof_init init = {.mode = NVOF_MODE_FLOW, .perfLevel = NVOF_LEVEL_SLOW};

	grid = densest_grid();
	width = side(NVOF_CAPS_WIDTH_MAX) / SIDE_MIN * SIDE_MIN;
	height = side(NVOF_CAPS_HEIGHT_MAX) / SIDE_MIN * SIDE_MIN;
	init.width = width;
	init.height = height;
	init.outGridSize = grid;
	NVOF_CALL(init(session, &init));
	printf("%llu pairs of %u x %u, a vector for each %u x %u points\n",
	       (unsigned long long)options.batch, width, height, grid, grid);
}

static void make_plane(const struct nvof_descriptor *descriptor, struct plane *ret)
{
	struct nvof_strides strides = {0};

	NVOF_CALL(create_buffer(session, descriptor, NVOF_MEMORY_DEVICE, &ret->buffer));
	NVOF_CALL(strides(ret->buffer, &strides));
	ret->p = nvof.pointer(ret->buffer);
	ret->pitch = strides.strideInfo[0].strideXInBytes;
	ret->bytes = ret->pitch * descriptor->height;
	if (!ret->p || !ret->pitch)
		app_exit(APP_EXIT_DRIVER, "optical flow: a buffer without an address");
}

/* ---- the pictures -------------------------------------------------------------------- */

static uint32_t noise(uint32_t x, uint32_t y)
{
	uint32_t h = x * 0x9e3779b9u ^ y * 0x85ebca6bu;

	h = (h ^ h >> 15) * 0x2c1b3c6du;
	return (h ^ h >> 13) & 0xff;
}

/* Noise at the corners of cells, interpolated inside. */
static uint32_t smooth(uint32_t x, uint32_t y, uint32_t cell)
{
	uint32_t at_x = x / cell, at_y = y / cell, dx = x % cell, dy = y % cell;
	uint32_t above = noise(at_x, at_y) * (cell - dx) + noise(at_x + 1, at_y) * dx;
	uint32_t below = noise(at_x, at_y + 1) * (cell - dx) + noise(at_x + 1, at_y + 1) * dx;

	return (above * (cell - dy) + below * dy) / (cell * cell);
}

static void upload(const struct plane *plane, int moved_x, int moved_y)
{
	unsigned char *picture = calloc(1, plane->bytes);

	if (!picture)
		app_exit(APP_EXIT_DRIVER, "no host memory");
	for (uint32_t y = 0; y < height; y++) {
		for (uint32_t x = 0; x < width; x++) {
			uint32_t from_x = (uint32_t)(ORIGIN + (int)x - moved_x);
			uint32_t from_y = (uint32_t)(ORIGIN + (int)y - moved_y);

			picture[y * plane->pitch + x] =
				(unsigned char)((smooth(from_x, from_y, COARSE) +
						 smooth(from_x, from_y, FINE)) /
						2);
		}
	}
	APP_CALL(cuMemcpyHtoD(plane->p, picture, plane->bytes));
	free(picture);
}

/* ---- reading what the engine wrote --------------------------------------------------- */

static CUresult copy(CUcontext from, unsigned char *at)
{
	CUresult res = CUDA_SUCCESS;

	APP_CALL(cuCtxSetCurrent(from));
	for (uint64_t i = 0; i < options.batch && !res; i++)
		res = cuda.cuMemcpyDtoH(at + i * output_bytes, outputs[i].p, output_bytes);
	APP_CALL(cuCtxSetCurrent(app.ctx));
	return res;
}

static void prepare_pictures(void)
{
	const struct nvof_descriptor input = {width, height, NVOF_USAGE_INPUT, NVOF_FORMAT_GRAY8};
	const struct nvof_descriptor output = {(width + grid - 1) / grid,
					       (height + grid - 1) / grid, NVOF_USAGE_OUTPUT,
					       NVOF_FORMAT_SHORT2};
	CUresult res;

	for (int i = 0; i < 2; i++)
		make_plane(&input, &inputs[i]);
	for (uint64_t i = 0; i < options.batch; i++)
		make_plane(&output, &outputs[i]);
	output_bytes = outputs[0].bytes;
	upload(&inputs[0], 0, 0);
	upload(&inputs[1], MOVED_X, MOVED_Y);
	APP_CALL(cuMemHostAlloc((void **)&expected, options.batch * output_bytes, 0));
	for (int i = 0; i < BATCH_LOOK_COUNT_; i++)
		APP_CALL(cuMemHostAlloc((void **)&seen[i], options.batch * output_bytes, 0));
	res = copy(own, expected);
	is_visible = !res;
	if (!is_visible)
		printf("another context can not read the vectors (%s): only time tells\n",
		       app_error(res));
}

/* ---- the batch ------------------------------------------------------------------------ */

static void clear(void)
{
	for (uint64_t i = 0; i < options.batch; i++)
		APP_CALL(cuMemsetD8(outputs[i].p, UNTOUCHED, output_bytes));
	APP_CALL(cuCtxSynchronize());
}

/*
 * Every other pair is the other way round. Without hints, no pair depends on the one before.
 * Uses the default stream: with others, drivers have mixed up memory (NVIDIA/DALI, 2912).
 */
static void submit_batch(void)
{
	for (uint64_t i = 0; i < options.batch; i++) {
		struct nvof_input input = {.inputFrame = inputs[i % 2].buffer,
					   .referenceFrame = inputs[1 - i % 2].buffer,
					   .disableTemporalHints = 1};
		struct nvof_output output = {.outputBuffer = outputs[i].buffer};

		NVOF_CALL(execute(session, &input, &output));
	}
}

static void wait_for_batch(void)
{
	APP_CALL(cuCtxSynchronize());
}

static bool look_at_output(enum batch_look nth)
{
	return is_visible && !copy(own, seen[nth]);
}

static uint64_t n_same(const unsigned char *a, const unsigned char *b)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < options.batch; i++)
		n += memcmp(a + i * output_bytes, b + i * output_bytes, output_bytes) == 0;
	return n;
}

static uint64_t n_whole(enum batch_look nth)
{
	return n_same(seen[nth], expected);
}

static uint64_t n_changed(void)
{
	return options.batch - n_same(seen[BATCH_LOOK_FIRST], seen[BATCH_LOOK_SECOND]);
}

/* ---- what came out ------------------------------------------------------------------ */

/* Counts vectors in the middle of a picture that are sign times the motion. */
static uint64_t n_moved(const unsigned char *output, int sign)
{
	uint32_t columns = width / grid, rows = height / grid;
	uint64_t n = 0;

	for (uint32_t y = rows / 4; y < rows / 4 + rows / 2; y++) {
		const struct nvof_vector *row =
			(const struct nvof_vector *)(output + y * outputs[0].pitch);

		for (uint32_t x = columns / 4; x < columns / 4 + columns / 2; x++)
			n += abs(row[x].flowx - sign * MOVED_X * NVOF_FRACTION) <= NEAR &&
			     abs(row[x].flowy - sign * MOVED_Y * NVOF_FRACTION) <= NEAR;
	}
	return n;
}

/* The engine may count forwards or backwards, but the same for all pairs. */
static void check_motion(void)
{
	uint64_t n = options.batch * (width / grid / 2) * (height / grid / 2);
	uint64_t n_forwards = 0, n_backwards = 0, n_right;

	for (uint64_t i = 0; i < options.batch; i++) {
		const unsigned char *output = expected + i * output_bytes;
		int sign = i % 2 ? -1 : 1;

		n_forwards += n_moved(output, sign);
		n_backwards += n_moved(output, -sign);
	}
	n_right = n_forwards > n_backwards ? n_forwards : n_backwards;
	printf("%.1f %% of the vectors in the middle are the motion\n",
	       100.0 * (double)n_right / (double)n);
	if (n_right <= n / 2)
		app_exit(APP_EXIT_WRONG, "the vectors are not the motion");
}

static void check_output(void)
{
	unsigned char *at = is_expected_known ? seen[BATCH_LOOK_SECOND] : expected;

	app_check(copy(app.ctx, at), "cuMemcpyDtoH of the vectors");
	if (!is_expected_known)
		check_motion();
	else if (n_same(at, expected) < options.batch)
		app_exit(APP_EXIT_WRONG,
			 "%llu of %llu pairs have other vectors than the first time",
			 (unsigned long long)(options.batch - n_same(at, expected)),
			 (unsigned long long)options.batch);
	is_expected_known = true;
}

/* ---- the program --------------------------------------------------------------------- */

static void parse(int argc, char **argv)
{
	for (int a = 1; a < argc; a++) {
		if (app_is(argv[a], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[a], "--library"))
			options.nvof_path = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--size"))
			options.size = app_value_u64(argc, argv, &a, SIDE_MIN, SIDE_MAX);
		else if (app_is(argv[a], "--batch"))
			options.batch = app_value_u64(argc, argv, &a, 2, BATCH_MAX);
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
		.look = look_at_output,
		.n_done = n_whole,
		.n_changed = n_changed,
		.check = check_output,
	};

	app_name = "flow";
	parse(argc, argv);
	setvbuf(stdout, NULL, _IOLBF, 0);
	self_init(&app, &own);
	load_library();
	init_session();
	prepare_pictures();
	batch_run(&batch, options.n_times);
	return APP_EXIT_VERIFIED;
}
