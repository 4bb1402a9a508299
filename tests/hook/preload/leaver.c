/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA program that ends in a given way, while one of its threads is in a given place.
 * usage: leaver PLACE WAY. Says "ready" when it has run (in some places: when it could);
 * goes to its place at the first line of its input, and ends at the second. It is a library
 * too, so that Python can be the one that ends.
 */
#include "../../apps/lib/buffer.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BUFFER_BYTES (32u << 20)
#define SPIN_NS      (3600ull * 1000000000)
#define SHORT_NS     (10ull * 1000000000) /* the test stops it within, on a busy machine too */

static struct app app;
static struct buffer buffer = {.seed = 5};
static pthread_t worker;
static bool is_joining, is_computing, is_reading, is_reading_late;
static volatile bool has_started, has_gone_on; /* a short computation */

/* Says what came of reading the buffer. */
static void read_buffer(void)
{
	uint32_t word;
	uint64_t first;

	if (cuda.cuMemcpyDtoH(&word, buffer.p, sizeof(word)) != CUDA_SUCCESS)
		puts("read failed");
	else
		puts(buffer_check_all(&buffer, &first) ? "read WRONG" : "read right");
	(void)fflush(stdout);
}

/* Registered with a context in place, so it runs before the library's. */
static void on_exit_early(void)
{
	if (is_reading)
		read_buffer();
}

/* Registered before CUDA is used, so it runs after the library's: like the runtime's own. */
static void on_exit_late(void)
{
	if (is_reading_late)
		read_buffer();
	if (is_computing)
		return; /* the driver itself would wait for the kernel */
	(void)cuda.cuMemFree(buffer.p);
	(void)cuda.cuModuleUnload(app.module);
	(void)cuda.cuDevicePrimaryCtxRelease(app.dev);
	if (has_started) {
		puts(has_gone_on ? "it went on" : "it stood still");
		(void)fflush(stdout);
	}
}

/* Some programs wait for their threads there. */
static void on_exit_join(void)
{
	if (is_joining)
		pthread_join(worker, NULL);
}

static void *stand_at_gate(void *arg)
{
	APP_CALL(cuCtxSetCurrent(app.ctx));
	(void)app_launch(app.k.empty, 1, NULL, NULL);
	return arg;
}

static void *want_memory(void *arg)
{
	CUdeviceptr p;

	APP_CALL(cuCtxSetCurrent(app.ctx));
	(void)cuda.cuMemAlloc(&p, 512u << 20);
	return arg;
}

static void *compute(void *arg)
{
	APP_CALL(cuCtxSetCurrent(app.ctx));
	app_spin(&app, SPIN_NS, NULL);
	puts("computing");
	(void)fflush(stdout);
	return arg;
}

static void go_on(void *data)
{
	(void)data;
	has_gone_on = true;
}

/* Whoever waits for the context's work sees that it has gone on. */
static void *compute_a_while(void *arg)
{
	APP_CALL(cuCtxSetCurrent(app.ctx));
	app_spin(&app, SHORT_NS, NULL);
	APP_CALL(cuLaunchHostFunc(NULL, go_on, NULL));
	has_started = true;
	puts("computing");
	(void)fflush(stdout);
	return arg;
}

static void *make_context(void *arg)
{
	CUcontext ctx;

	(void)cuda.cuDevicePrimaryCtxRetain(&ctx, 0);
	return arg;
}

static void *nowhere(void *arg)
{
	return arg;
}

static void *leave_by_exit(void *arg)
{
	(void)arg;
	exit(0);
}

static void wait_for_line(void)
{
	char line[16];

	if (!fgets(line, sizeof(line), stdin))
		_exit(9);
}

/* What the program has opened itself, it may close: the driver's handle, twice now. */
static void close_libraries(void)
{
	void *ours = dlopen("libnvshare.so", RTLD_NOW | RTLD_NOLOAD);
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	if (ours)
		(void)dlclose(ours);
	if (driver && dlclose(driver) == 0)
		(void)dlclose(driver);
}

static void leave(const char *way)
{
	pthread_t thread;

	if (app_is(way, "exit"))
		exit(0);
	if (app_is(way, "_exit"))
		_exit(0);
	is_joining = app_is(way, "join");
	is_reading = app_is(way, "read");
	is_reading_late = app_is(way, "read-late");
	if (is_joining || is_reading || is_reading_late)
		exit(0);
	if (app_is(way, "thread")) {
		if (pthread_create(&thread, NULL, leave_by_exit, NULL) == 0)
			pthread_join(thread, NULL);
	}
	if (app_is(way, "signal"))
		(void)raise(SIGTERM);
	if (app_is(way, "exec"))
		(void)execl("/bin/true", "true", (char *)NULL);
	if (app_is(way, "dlclose"))
		close_libraries();
	if (app_is(way, "destroy"))
		on_exit_late();
}

static void use_device(void)
{
	app_init(&app, 0);
	(void)atexit(on_exit_early);
	buffer_alloc(&buffer, &app, BUFFER_BYTES, NULL);
	buffer_fill(&buffer, &app, NULL);
	APP_CALL(cuCtxSynchronize());
}

__attribute__((visibility("default"))) int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void *(*body)(void *arg);
	} places[] = {
		{"nowhere", nowhere},         {"gate", stand_at_gate},   {"memory", want_memory},
		{"computing", compute},       {"context", make_context}, {"no-context", nowhere},
		{"a-while", compute_a_while},
	};

	app_name = "leaver";
	if (argc != 3)
		return APP_EXIT_USAGE;
	is_computing = app_is(argv[1], "computing");
	(void)atexit(on_exit_late);
	(void)atexit(on_exit_join);
	app_load(0);
	if (!app_is(argv[1], "context") && !app_is(argv[1], "no-context"))
		use_device();
	puts("ready");
	(void)fflush(stdout);
	wait_for_line();
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		if (app_is(argv[1], places[i].name) &&
		    pthread_create(&worker, NULL, places[i].body, NULL))
			return APP_EXIT_DRIVER;
	}
	wait_for_line();
	leave(argv[2]);
	return 0;
}
