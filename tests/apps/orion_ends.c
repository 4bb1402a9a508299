/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends of all kinds while clients of the scheduler inside the process (nvshare/orion.h) wait or are
 * inside a call. A wait that nobody ends would hang the program.
 */
#include "lib/app.h"

#include "nvshare/orion.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char help[] = "usage: orion_ends CASE...\n"
			   "  CASE  one of the table at the end of orion_ends.c\n" APP_EXIT_HELP;

#define LATENCY_MAX_MS 60000.0f /* ten of these are patience, which no case waits for */
#define CHURN          3000
#define CHURN_BYTES    (64u << 10) /* less than 3000 of anything */

static struct app app;

/* Work behind it stands still until it is opened. Its stream is one of the default stream's. */
struct door {
	CUstream stream;
	sem_t opened;
};

/* A thread that submits one kernel, or copies on the default stream, which stands behind a door. */
struct guest {
	pthread_t thread;
	int idx;
	CUstream stream; /* NULL: it copies */
	CUdeviceptr memory;
	void *pinned; /* a copy to other memory would keep the whole context */
};

static void expect(int result, int expected, const char *what)
{
	if (result != expected)
		app_exit(APP_EXIT_WRONG, "%s: %d instead of %d", what, result, expected);
}
#define EXPECT(call, expected) expect(call, expected, #call)

/* ---- parts --------------------------------------------------------------------- */

static void door_hold(void *data)
{
	struct door *door = data;

	while (sem_wait(&door->opened) != 0)
		continue;
}

static void door_init(struct door *door)
{
	(void)sem_init(&door->opened, 0, 0);
	APP_CALL(cuStreamCreate(&door->stream, 0));
	APP_CALL(cuLaunchHostFunc(door->stream, door_hold, door));
}

static void door_deinit(struct door *door)
{
	APP_CALL(cuStreamSynchronize(door->stream));
	APP_CALL(cuStreamDestroy(door->stream));
}

/* It fills the card, so best effort's does not go beside high priority's. */
static void launch(CUstream stream)
{
	app_check(app_launch(app.k.empty, 1u << 20, stream, NULL), "launch of nvs_empty");
}

static void *guest_run(void *data)
{
	struct guest *g = data;

	APP_CALL(cuCtxSetCurrent(app.ctx));
	if (g->idx != ORION_NO_CLIENT)
		EXPECT(orion_set_client_idx(g->idx), 0);
	if (g->stream)
		launch(g->stream);
	else
		APP_CALL(cuMemcpyDtoH(g->pinned, g->memory, 1));
	return NULL;
}

static void thread_start(pthread_t *thread, void *(*run)(void *), void *data)
{
	if (pthread_create(thread, NULL, run, data) != 0)
		app_exit(APP_EXIT_DRIVER, "no thread");
}

static void guest_start(struct guest *g, int idx)
{
	g->idx = idx;
	APP_CALL(cuStreamCreate(&g->stream, CU_STREAM_NON_BLOCKING));
	thread_start(&g->thread, guest_run, g);
}

static void guest_start_copy(struct guest *g, int idx)
{
	*g = (struct guest){.idx = idx};
	APP_CALL(cuMemAlloc(&g->memory, 4096));
	APP_CALL(cuMemHostAlloc(&g->pinned, 4096, 0));
	thread_start(&g->thread, guest_run, g);
}

static void guest_join(struct guest *g)
{
	(void)pthread_join(g->thread, NULL);
	if (g->stream) {
		APP_CALL(cuStreamDestroy(g->stream));
	} else {
		APP_CALL(cuMemFree(g->memory));
		APP_CALL(cuMemFreeHost(g->pinned));
	}
}

static struct orion_stats stats(void)
{
	struct orion_stats s;

	EXPECT(orion_get_stats(&s, sizeof(s)), 0);
	return s;
}

static void await_rejected(void)
{
	while (stats().be_ops_rejected == 0)
		app_sleep_ms(1);
}

static void await_hp(void)
{
	while (stats().hp_ops_scheduled == 0)
		app_sleep_ms(1);
}

/* This thread is client 0, and its kernel is behind the door. So best effort waits. */
static void block(struct door *door)
{
	EXPECT(orion_set_hp_latency(LATENCY_MAX_MS), 0);
	EXPECT(orion_start_scheduler(2), 0);
	EXPECT(orion_set_client_idx(0), 0);
	door_init(door);
	launch(door->stream);
}

static void unblock(struct door *door)
{
	(void)sem_post(&door->opened);
	door_deinit(door);
	EXPECT(orion_set_client_idx(ORION_NO_CLIENT), 0);
}

/* ---- cases ----------------------------------------------------------------------- */

struct owner {
	pthread_t thread;
	CUstream stream;
	sem_t has_launched, may_end;
};

static void *owner_run(void *data)
{
	struct owner *owner = data;

	APP_CALL(cuCtxSetCurrent(app.ctx));
	EXPECT(orion_set_client_idx(1), 0);
	launch(owner->stream);
	(void)sem_post(&owner->has_launched);
	(void)sem_wait(&owner->may_end);
	return NULL;
}

/* A thread without index waits for the client of its stream, whose own thread ends. */
static void case_owner(void)
{
	struct guest helper = {.idx = ORION_NO_CLIENT};
	struct owner owner;
	struct door door;

	(void)sem_init(&owner.has_launched, 0, 0);
	(void)sem_init(&owner.may_end, 0, 0);
	EXPECT(orion_init(2), 0);
	EXPECT(orion_set_hp_latency(LATENCY_MAX_MS), 0);
	EXPECT(orion_start_scheduler(2), 0);
	APP_CALL(cuStreamCreate(&owner.stream, CU_STREAM_NON_BLOCKING));
	thread_start(&owner.thread, owner_run, &owner);
	(void)sem_wait(&owner.has_launched);
	EXPECT(orion_set_client_idx(0), 0);
	door_init(&door);
	launch(door.stream);
	helper.stream = owner.stream;
	thread_start(&helper.thread, guest_run, &helper);
	await_rejected();
	(void)sem_post(&owner.may_end);
	(void)pthread_join(owner.thread, NULL);
	unblock(&door);
	guest_join(&helper);
	EXPECT(orion_shutdown(), 0);
}

static void *stop_run(void *data)
{
	(void)data;
	EXPECT(orion_stop_scheduler(), 0);
	return NULL;
}

/* The scheduler is stopped, and orion_init() stays, while a call is inside the driver. */
static void case_inside(void)
{
	struct door door;
	struct guest guest;
	pthread_t stopper;
	uint64_t before;
	CUstream stream;

	APP_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	EXPECT(orion_init(2), 0);
	EXPECT(orion_start_scheduler(2), 0);
	door_init(&door);
	guest_start_copy(&guest, 0);
	await_hp();
	EXPECT(orion_set_client_idx(0), 0);
	thread_start(&stopper, stop_run, NULL);
	do { /* until the scheduler takes no more calls */
		before = stats().hp_ops_scheduled;
		launch(stream);
	} while (stats().hp_ops_scheduled > before);
	unblock(&door);
	guest_join(&guest);
	(void)pthread_join(stopper, NULL);
	EXPECT(orion_shutdown(), 0);
	APP_CALL(cuStreamDestroy(stream));
}

static void *start_run(void *data)
{
	int r;

	(void)data;
	do
		r = orion_start_scheduler(2);
	while (r == -EALREADY);
	EXPECT(r, 0);
	return NULL;
}

/* Another thread starts the scheduler again while it is stopped, and a client waits. */
static void case_restart(void)
{
	for (int i = 0; i < 40; i++) {
		struct door door;
		struct guest guest;
		pthread_t starter;

		block(&door);
		guest_start(&guest, 1);
		await_rejected();
		thread_start(&starter, start_run, NULL);
		EXPECT(orion_stop_scheduler(), 0);
		guest_join(&guest);
		(void)pthread_join(starter, NULL);
		unblock(&door);
		EXPECT(orion_stop_scheduler(), 0);
	}
}

/* Patience gets shorter while nothing is submitted whose event could be looked at. */
static void case_latency(void)
{
	struct guest hp, guest;
	struct door door;

	EXPECT(orion_set_hp_latency(LATENCY_MAX_MS), 0);
	EXPECT(orion_start_scheduler(2), 0);
	door_init(&door);
	guest_start_copy(&hp, 0);
	await_hp();
	guest_start(&guest, 1);
	await_rejected();
	EXPECT(orion_set_hp_latency(1), 0);
	guest_join(&guest);
	unblock(&door);
	guest_join(&hp);
	EXPECT(orion_stop_scheduler(), 0);
}

static void churn_stream(bool is_disabling)
{
	CUstream stream;

	APP_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	launch(stream);
	APP_CALL(cuStreamSynchronize(stream));
	if (is_disabling)
		EXPECT(orion_set_enabled(0), 0);
	APP_CALL(cuStreamDestroy(stream));
	if (is_disabling)
		EXPECT(orion_set_enabled(1), 0);
}

static void churn(bool is_disabling)
{
	size_t before = 0;

	EXPECT(orion_set_client_idx(1), 0);
	for (int i = -CHURN / 4; i < CHURN; i++) {
		if (i == 0)
			before = mallinfo2().uordblks;
		churn_stream(is_disabling);
	}
	if (mallinfo2().uordblks > before + CHURN_BYTES)
		app_exit(APP_EXIT_WRONG, "streams that are gone take memory: %zu bytes",
			 mallinfo2().uordblks - before);
	EXPECT(orion_set_client_idx(ORION_NO_CLIENT), 0);
}

static void case_streams(void)
{
	EXPECT(orion_init(2), 0);
	churn(false);
	EXPECT(orion_start_scheduler(2), 0);
	churn(false);
	churn(true);
	EXPECT(orion_shutdown(), 0);
}

/* The scheduled device is another one than at the last start. */
static void case_device(void)
{
	struct orion_config config;
	CUstream stream;

	APP_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	EXPECT(orion_get_config(&config, sizeof(config)), 0);
	EXPECT(orion_set_client_idx(0), 0);
	for (int scheduled = 0; scheduled < 2; scheduled++) {
		config.device_id = scheduled ? 0 : 63;
		EXPECT(orion_set_config(&config, sizeof(config)), 0);
		EXPECT(orion_start_scheduler(1), 0);
		launch(stream);
		EXPECT((int)stats().hp_ops_scheduled, scheduled);
		EXPECT(orion_stop_scheduler(), 0);
	}
	EXPECT(orion_set_client_idx(ORION_NO_CLIENT), 0);
	APP_CALL(cuStreamDestroy(stream));
}

/* pthread_cancel() of a thread that waits, and of one that is inside the driver. */
static void case_cancel(void)
{
	struct guest guest, inside;
	struct door door;

	block(&door);
	guest_start(&guest, 1);
	guest_start_copy(&inside, 0);
	await_rejected();
	while (stats().hp_ops_scheduled < 2)
		app_sleep_ms(1);
	(void)pthread_cancel(guest.thread);
	(void)pthread_cancel(inside.thread);
	unblock(&door);
	guest_join(&inside);
	guest_join(&guest);
	EXPECT(orion_stop_scheduler(), 0);
}

/* A client polls while another thread captures in the strictest mode. */
static void case_capture(void)
{
	struct guest guest;
	struct door door;
	CUstream stream;
	CUgraph graph;

	APP_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	block(&door);
	guest_start(&guest, 1);
	await_rejected();
	APP_CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (int i = 0; i < 100; i++)
		launch(stream);
	(void)sem_post(&door.opened);
	(void)pthread_join(guest.thread, NULL);
	launch(stream);
	APP_CALL(cuStreamEndCapture(stream, &graph));
	APP_CALL(cuGraphDestroy(graph));
	APP_CALL(cuStreamDestroy(guest.stream));
	unblock(&door);
	EXPECT((int)stats().hp_ops_scheduled, 1);
	EXPECT(orion_stop_scheduler(), 0);
	APP_CALL(cuStreamDestroy(stream));
}

/* Contexts end with work that nobody has looked at. */
static void case_contexts(void)
{
	struct app second = app;
	CUstream stream;

	EXPECT(orion_start_scheduler(2), 0);
	for (int i = 0; i < 20; i++) {
		EXPECT(orion_set_client_idx(i % 2), 0);
		APP_CALL(cuCtxCreate(&second.ctx, 0, app.dev));
		app_init_module(&second);
		APP_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		for (int k = 0; k < 5; k++)
			app_check(app_launch(second.k.empty, 1, stream, NULL), "launch");
		APP_CALL(cuCtxDestroy(second.ctx));
		APP_CALL(cuCtxSetCurrent(app.ctx));
	}
	EXPECT(orion_set_client_idx(ORION_NO_CLIENT), 0);
	EXPECT(orion_stop_scheduler(), 0);
}

/* A green context ends, by itself or with its primary context, with work that nobody has looked at.
 */
static void end_green(bool with_primary)
{
	CUdevResourceDesc desc;
	CUdevResource resource;
	CUgreenCtx green;
	CUstream stream;
	CUcontext ctx;

	APP_CALL(cuDeviceGetDevResource(app.dev, &resource, CU_DEV_RESOURCE_TYPE_SM));
	APP_CALL(cuDevResourceGenerateDesc(&desc, &resource, 1));
	APP_CALL(cuGreenCtxCreate(&green, desc, app.dev, CU_GREEN_CTX_DEFAULT_STREAM));
	APP_CALL(cuCtxFromGreenCtx(&ctx, green));
	APP_CALL(cuCtxSetCurrent(ctx));
	APP_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 5; i++)
		launch(stream);
	APP_CALL(cuStreamSynchronize(stream));
	APP_CALL(cuCtxSetCurrent(app.ctx));
	/* Drivers 580 refuse the reset while there are green contexts. */
	if (with_primary && !cuda.cuDevicePrimaryCtxReset(app.dev)) {
		app_init(&app, 0);
		return;
	}
	APP_CALL(cuGreenCtxDestroy(green));
	EXPECT((int)cuda.cuStreamDestroy(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

static void case_greens(void)
{
	if (!cuda.cuGreenCtxCreate)
		app_exit(APP_EXIT_SKIPPED, "the driver has no green contexts");
	EXPECT(orion_start_scheduler(2), 0);
	for (int i = 0; i < 20; i++) {
		EXPECT(orion_set_client_idx(i % 2), 0);
		end_green(i % 4 == 3);
		for (int k = 0; k < 64; k++)
			launch(NULL);
	}
	EXPECT(orion_set_client_idx(ORION_NO_CLIENT), 0);
	EXPECT(orion_stop_scheduler(), 0);
}

/* The program ends meanwhile, and the driver with it. */
static void *leaver_run(void *stream)
{
	(void)cuda.cuCtxSetCurrent(app.ctx);
	EXPECT(orion_set_client_idx(1), 0);
	(void)app_launch(app.k.empty, 1u << 20, stream, NULL);
	return NULL;
}

/* fork() while a client waits, and the end of the program, too. */
static void case_leave(void)
{
	static struct door door;
	int status = -1;
	pthread_t leaver;
	CUstream stream;
	pid_t pid;

	block(&door);
	APP_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	thread_start(&leaver, leaver_run, stream);
	await_rejected();
	pid = fork();
	if (pid == 0) {
		EXPECT(orion_stop_scheduler(), -ENOTCONN);
		EXPECT(orion_start_scheduler(1), 0);
		EXPECT(orion_stop_scheduler(), 0);
		_exit(APP_EXIT_VERIFIED);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
		app_exit(APP_EXIT_WRONG, "the child has ended with %d", status);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"owner", case_owner},     {"inside", case_inside},   {"restart", case_restart},
	{"latency", case_latency}, {"streams", case_streams}, {"device", case_device},
	{"cancel", case_cancel},   {"capture", case_capture}, {"contexts", case_contexts},
	{"greens", case_greens},   {"leave", case_leave},
};

int main(int argc, char **argv)
{
	app_name = "orion_ends";
	if (argc != 2 || app_is(argv[1], "--help"))
		app_usage(help, argc == 2 ? 0 : APP_EXIT_USAGE);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (strcmp(argv[1], cases[i].name) != 0)
			continue;
		if (!orion_start_scheduler)
			app_exit(APP_EXIT_SKIPPED, "libnvshare.so is not preloaded");
		app_load(0);
		app_init(&app, 0);
		cases[i].run();
		printf("orion_ends verified\n");
		return APP_EXIT_VERIFIED;
	}
	app_usage(help, APP_EXIT_USAGE);
}
