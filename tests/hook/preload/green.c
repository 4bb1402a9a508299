/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program whose only context is a green one. Says "ready" with a buffer filled; at each
 * line of its input does the next thing: "compute" starts a kernel that runs for an hour;
 * "verify" checks the buffer and destroys the green context, with it everything, and waits.
 * As "green attach": the same with a context of its own that is attached and detached.
 */
#include "../../apps/lib/app.h"

#include <stdio.h>
#include <unistd.h>

#define WORDS   (16u << 18)
#define SPIN_NS 3600000000000u

static struct app app;
static CUgreenCtx green;
static bool is_green;

static void say(const char *line)
{
	puts(line);
	(void)fflush(stdout);
}

static void make_green(void)
{
	CUdevResourceDesc desc;
	CUdevResource resource;

	APP_CALL(cuDeviceGetDevResource(app.dev, &resource, CU_DEV_RESOURCE_TYPE_SM));
	APP_CALL(cuDevResourceGenerateDesc(&desc, &resource, 1));
	APP_CALL(cuGreenCtxCreate(&green, desc, app.dev, CU_GREEN_CTX_DEFAULT_STREAM));
	APP_CALL(cuCtxFromGreenCtx(&app.ctx, green));
	APP_CALL(cuCtxSetCurrent(app.ctx));
}

static void make_attached(void)
{
	CUcontext again;

	APP_CALL(cuCtxCreate(&app.ctx, 0, app.dev));
	APP_CALL(cuCtxAttach(&again, 0));
	APP_CALL(cuCtxDetach(again));
}

int main(int argc, char **argv)
{
	CUstream stream;
	CUdeviceptr p;
	char line[16];

	app_name = "green";
	is_green = !(argc > 1 && app_is(argv[1], "attach"));
	app_load(0);
	APP_CALL(cuDeviceGet(&app.dev, 0));
	if (is_green)
		make_green();
	else
		make_attached();
	app_init_module(&app);
	if (is_green)
		APP_CALL(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
	else
		APP_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	APP_CALL(cuMemAlloc(&p, WORDS * sizeof(uint32_t)));
	app_fill(&app, p, WORDS, 5, stream);
	APP_CALL(cuStreamSynchronize(stream));
	say("ready");
	while (fgets(line, sizeof(line), stdin)) {
		if (app_is(line, "compute\n")) {
			app_spin(&app, SPIN_NS, stream);
			say("computing");
		} else if (app_is(line, "verify\n")) {
			if (app_verify(&app, p, WORDS, 5, stream))
				app_exit(APP_EXIT_WRONG, "the buffer is wrong");
			if (is_green)
				APP_CALL(cuGreenCtxDestroy(green));
			else
				APP_CALL(cuCtxDetach(app.ctx));
			say("verified");
		} else {
			_exit(0);
		}
	}
	return APP_EXIT_VERIFIED;
}
