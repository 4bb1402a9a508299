/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Green contexts that end before what was made in them: their streams live on, memory that they
 * freed is still to be given back, and other memory is freed on their streams later.
 */
#include "lib/app.h"

#include <stdio.h>

static const char help[] =
	"usage: greens [OPTION]...\n"
	"Two green contexts a round, which end while their streams live on.\n"
	"  --rounds N   (200)\n"
	"  --size SIZE  of each buffer (1MiB)\n"
	"  --case NAME  one of these in each round, instead of all in turn:\n"
	"     launch    kernels on both; the buffers are freed before the green contexts end\n"
	"     late      the buffers are freed after that, on the same streams\n"
	"     current   as launch, on a stream that was made with the green context current\n"
	"     default   as launch, on the default streams of the green contexts\n"
	"     event     an event that was recorded there is queried afterwards\n"
	"     capture   a capture is open on such a stream meanwhile\n"
	"     reset     the primary context is reset, and its green contexts and streams end\n" APP_EXIT_HELP;

struct part {
	CUgreenCtx green;
	CUcontext ctx;
	CUstream stream; /* NULL: the default stream of ctx */
	CUdeviceptr p;
};

static struct app app;
static CUdevResource everything;
static CUstream own; /* of the primary context */
static uint64_t size = 1u << 20;
static uint32_t seed;

static void part_make(struct part *part)
{
	CUdevResourceDesc desc;

	*part = (struct part){0};
	APP_CALL(cuDevResourceGenerateDesc(&desc, &everything, 1));
	APP_CALL(cuGreenCtxCreate(&part->green, desc, app.dev, CU_GREEN_CTX_DEFAULT_STREAM));
	APP_CALL(cuCtxFromGreenCtx(&part->ctx, part->green));
}

static void part_make_stream(struct part *part)
{
	APP_CALL(cuGreenCtxStreamCreate(&part->stream, part->green, CU_STREAM_NON_BLOCKING, 0));
}

static void part_work(struct part *part)
{
	APP_CALL(cuMemAllocAsync(&part->p, size, part->stream));
	app_fill(&app, part->p, size / 4, ++seed, part->stream);
	if (app_verify(&app, part->p, size / 4, seed, part->stream))
		app_exit(APP_EXIT_WRONG, "contents are wrong, seed %u", seed);
}

static void part_free(struct part *part)
{
	APP_CALL(cuMemFreeAsync(part->p, part->stream));
}

/* Drivers since CUDA 13.1 refuse a stream whose green context has ended. */
static void part_free_late(struct part *part)
{
	if (cuda.cuMemFreeAsync(part->p, part->stream) != CUDA_SUCCESS)
		APP_CALL(cuMemFreeAsync(part->p, own));
}

static void part_end(struct part *part)
{
	APP_CALL(cuGreenCtxDestroy(part->green));
}

/* The driver says so (580.159.04) of a stream that has ended with its green context. */
static void part_end_stream(struct part *part)
{
	CUresult r = cuda.cuStreamDestroy(part->stream);

	if (r != CUDA_ERROR_CONTEXT_IS_DESTROYED)
		app_check(r, "cuStreamDestroy");
}

/* As others allocate meanwhile: this looks at the memory that was freed before. */
static void allocate_elsewhere(void)
{
	CUdeviceptr p;

	APP_CALL(cuMemAllocAsync(&p, size, own));
	APP_CALL(cuMemFreeAsync(p, own));
}

static void round_launch(struct part *a, struct part *b)
{
	part_make_stream(a);
	part_make_stream(b);
	part_work(a);
	part_work(b);
	part_free(a);
	part_free(b);
	part_end(b);
	part_end(a);
	allocate_elsewhere();
	part_end_stream(a);
	part_end_stream(b);
}

static void round_late(struct part *a, struct part *b)
{
	part_make_stream(a);
	part_make_stream(b);
	part_work(a);
	part_work(b);
	part_end(b);
	part_end(a);
	part_free_late(a);
	part_free_late(b);
	allocate_elsewhere();
	part_end_stream(a);
	part_end_stream(b);
}

static void current_one(struct part *part, bool has_stream)
{
	APP_CALL(cuCtxSetCurrent(part->ctx));
	if (has_stream)
		APP_CALL(cuStreamCreate(&part->stream, CU_STREAM_NON_BLOCKING));
	part_work(part);
	part_free(part);
	APP_CALL(cuCtxSetCurrent(app.ctx));
}

static void round_current(struct part *a, struct part *b)
{
	current_one(a, true);
	current_one(b, true);
	part_end(b);
	part_end(a);
	allocate_elsewhere();
	part_end_stream(a);
	part_end_stream(b);
}

static void round_default(struct part *a, struct part *b)
{
	current_one(a, false);
	current_one(b, false);
	part_end(b);
	part_end(a);
	allocate_elsewhere();
}

static void round_event(struct part *a, struct part *b)
{
	CUevent event;

	part_make_stream(a);
	APP_CALL(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	part_work(a);
	part_free(a);
	APP_CALL(cuEventRecord(event, a->stream));
	part_end(b);
	part_end(a);
	APP_CALL(cuEventSynchronize(event));
	APP_CALL(cuEventQuery(event));
	allocate_elsewhere();
	APP_CALL(cuEventDestroy(event));
	part_end_stream(a);
}

/* Captures of a green context's stream and of another one. The library asks which streams capture.
 */
static void round_capture(struct part *a, struct part *b)
{
	CUgraph graph = NULL, other;

	part_make_stream(a);
	part_make_stream(b);
	part_work(a);
	part_work(b);
	APP_CALL(cuStreamBeginCapture(a->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	APP_CALL(cuStreamBeginCapture(own, CU_STREAM_CAPTURE_MODE_RELAXED));
	app_check(app_launch(app.k.empty, 1, a->stream, NULL), "launch of nvs_empty");
	app_check(app_launch(app.k.empty, 1, own, NULL), "launch of nvs_empty");
	part_end(b);
	part_end(a);
	if (cuda.cuMemFreeAsync(b->p, b->stream) != CUDA_SUCCESS)
		APP_CALL(cuMemFree(b->p));
	if (!cuda.cuStreamEndCapture(a->stream, &graph) && graph)
		APP_CALL(cuGraphDestroy(graph));
	APP_CALL(cuStreamEndCapture(own, &other));
	APP_CALL(cuGraphDestroy(other));
	part_free_late(a);
	allocate_elsewhere();
	part_end_stream(a);
	part_end_stream(b);
}

/* The driver may refuse the handles of what has ended, so nobody asks it. */
static void round_reset(struct part *a, struct part *b)
{
	CUresult r;

	part_make_stream(a);
	part_work(a);
	part_free(a);
	part_work(a);
	current_one(b, false);
	r = cuda.cuDevicePrimaryCtxReset(app.dev);
	if (r == CUDA_ERROR_NOT_PERMITTED) { /* drivers 580, while there are green contexts */
		part_end(b);
		part_end(a);
		r = cuda.cuDevicePrimaryCtxReset(app.dev);
	}
	app_check(r, "cuDevicePrimaryCtxReset");
	app_init(&app, (int)app.dev);
	APP_CALL(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
	allocate_elsewhere();
}

static const struct {
	const char *name;
	void (*run)(struct part *a, struct part *b);
} cases[] = {
	{"launch", round_launch},   {"late", round_late},   {"current", round_current},
	{"default", round_default}, {"event", round_event}, {"capture", round_capture},
	{"reset", round_reset},
};

#define CASES (sizeof(cases) / sizeof(*cases))

static size_t case_find(const char *name)
{
	size_t i;

	for (i = 0; i < CASES && !app_is(name, cases[i].name); i++)
		;
	if (i == CASES)
		app_usage(help, APP_EXIT_USAGE);
	return i;
}

static void begin(void)
{
	app_load(0);
	if (!cuda.cuGreenCtxStreamCreate || !cuda.cuMemAllocAsync)
		app_exit(APP_EXIT_SKIPPED, "the driver has no green contexts");
	app_init(&app, 0);
	if (cuda.cuDeviceGetDevResource(app.dev, &everything, CU_DEV_RESOURCE_TYPE_SM))
		app_exit(APP_EXIT_SKIPPED, "the device has no green contexts");
	APP_CALL(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
}

int main(int argc, char **argv)
{
	uint64_t n_rounds = 200, r;
	size_t only = CASES;
	struct part a, b;
	int i;

	app_name = "greens";
	for (i = 1; i < argc; i++) {
		if (app_is(argv[i], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[i], "--rounds"))
			n_rounds = app_value_u64(argc, argv, &i, 1, 1000000);
		else if (app_is(argv[i], "--size"))
			size = app_value_size(argc, argv, &i);
		else if (app_is(argv[i], "--case"))
			only = case_find(app_value(argc, argv, &i));
		else
			app_usage(help, APP_EXIT_USAGE);
	}
	begin();
	for (r = 0; r < n_rounds; r++) {
		part_make(&a);
		part_make(&b);
		cases[only < CASES ? only : r % CASES].run(&a, &b);
	}
	printf("greens verified rounds=%llu\n", (unsigned long long)r);
	return APP_EXIT_VERIFIED;
}
