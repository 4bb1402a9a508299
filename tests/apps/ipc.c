/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shares memory with other processes by CUDA IPC, as it is told on its standard input. Each command
 * is answered by one line, which begins with "= ".
 */
#include "lib/app.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static const char help[] =
	"usage: ipc [--device N] [--alarm US]\n"
	"  --alarm US  a signal is handled so often\n"
	"Obeys commands, one a line, and answers \"= ...\". P is a number from 0 to 63: a place for an address.\n"
	"  alloc P SIZE    \"done\"; an error's name, as for all others\n"
	"  free P | close P\n"
	"  get P OFFSET    \"handle HEX\"\n"
	"  open P HEX      \"done\"\n"
	"  look P          \"base OFFSET size BYTES ordinal N legacy N\", as the driver says\n"
	"  fill P WORDS SEED | verify P WORDS SEED   verify: \"right\" or \"WRONG N\"\n"
	"  copy P Q BYTES  from Q to P\n"
	"  spin MS         leaves the GPU busy for so long\n"
	"  fork            \"forked PID\"; the child lives until it is killed\n"
	"  peer N          works on GPU N from now on, whose kernels reach this one's memory\n"
	"  reset           resets the device, and begins anew\n"
	"  quit            \"done\"\n" APP_EXIT_HELP;

#define PLACES       64
#define LINE_MAX_LEN 512

static CUdeviceptr places[PLACES];
static struct app app;

static void say(CUresult res)
{
	printf("%s\n", res ? app_error(res) : "done");
}

static void say_handle(CUdeviceptr ptr)
{
	CUipcMemHandle handle;
	CUresult res = cuda.cuIpcGetMemHandle(&handle, ptr);

	if (res) {
		say(res);
		return;
	}
	printf("handle ");
	for (size_t i = 0; i < sizeof(handle.reserved); i++)
		printf("%02x", (unsigned char)handle.reserved[i]);
	printf("\n");
}

static CUresult open_handle(CUdeviceptr *ret, const char *hex)
{
	CUipcMemHandle handle;
	unsigned int byte;

	for (size_t i = 0; i < sizeof(handle.reserved); i++) {
		if (sscanf(hex + 2 * i, "%2x", &byte) != 1)
			app_exit(APP_EXIT_USAGE, "no handle: %s", hex);
		handle.reserved[i] = (char)byte;
	}
	return cuda.cuIpcOpenMemHandle(ret, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

static void say_what_it_is(CUdeviceptr ptr)
{
	unsigned int legacy = 9;
	int ordinal = -1;
	CUdeviceptr base;
	size_t size;
	CUresult res = cuda.cuMemGetAddressRange(&base, &size, ptr);

	if (!res)
		res = cuda.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
						 ptr);
	if (!res)
		res = cuda.cuPointerGetAttribute(
			&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, ptr);
	if (res)
		say(res);
	else
		printf("base %lld size %zu ordinal %d legacy %u\n", (long long)(ptr - base), size,
		       ordinal, legacy & 0xff);
}

static void say_whether_right(CUdeviceptr ptr, uint64_t n, uint32_t seed)
{
	uint32_t n_wrong = app_verify(&app, ptr, n, seed, NULL);

	if (n_wrong)
		printf("WRONG %u\n", n_wrong);
	else
		printf("right\n");
}

static void fork_child(void)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();

	if (pid == 0) {
		for (;;)
			pause();
	}
	printf("forked %d\n", (int)pid);
}

static void move_to_peer(int ordinal)
{
	struct app peer;
	CUresult res;

	app_init(&peer, ordinal);
	res = cuda.cuCtxEnablePeerAccess(app.ctx, 0);
	if (!res)
		app = peer;
	say(res);
}

static void reset_device(void)
{
	CUresult res = cuda.cuDevicePrimaryCtxReset(app.dev);

	if (!res) {
		APP_CALL(cuDevicePrimaryCtxRetain(&app.ctx, app.dev));
		APP_CALL(cuCtxSetCurrent(app.ctx));
		app_init_module(&app);
	}
	say(res);
}

static void obey_with_place(const char *what, CUdeviceptr *place, const char *a, const char *b)
{
	uint64_t n = strtoull(a, NULL, 10);

	if (app_is(what, "alloc"))
		say(cuda.cuMemAlloc(place, n));
	else if (app_is(what, "free"))
		say(cuda.cuMemFree(*place));
	else if (app_is(what, "close"))
		say(cuda.cuIpcCloseMemHandle(*place));
	else if (app_is(what, "get"))
		say_handle(*place + n);
	else if (app_is(what, "open"))
		say(open_handle(place, a));
	else if (app_is(what, "look"))
		say_what_it_is(*place + n);
	else if (app_is(what, "copy"))
		say(cuda.cuMemcpyDtoD(*place, places[n % PLACES], strtoull(b, NULL, 10)));
	else if (app_is(what, "verify"))
		say_whether_right(*place, n, (uint32_t)strtoul(b, NULL, 10));
	else if (app_is(what, "fill")) {
		app_fill(&app, *place, n, (uint32_t)strtoul(b, NULL, 10), NULL);
		say(cuda.cuCtxSynchronize());
	} else {
		app_exit(APP_EXIT_USAGE, "no command: %s", what);
	}
}

/* false: it was the last one. */
static bool obey(const char *line)
{
	char what[16] = "", first[16] = "", a[160] = "", b[32] = "";

	fputs("= ", stdout);
	(void)sscanf(line, "%15s %15s %159s %31s", what, first, a, b);
	if (app_is(what, "spin")) {
		app_spin(&app, strtoull(first, NULL, 10) * 1000000, NULL);
		say(CUDA_SUCCESS);
	} else if (app_is(what, "fork")) {
		fork_child();
	} else if (app_is(what, "peer")) {
		move_to_peer((int)strtol(first, NULL, 10));
	} else if (app_is(what, "reset")) {
		reset_device();
	} else if (app_is(what, "quit")) {
		say(CUDA_SUCCESS);
		return false;
	} else {
		obey_with_place(what, &places[strtoul(first, NULL, 10) % PLACES], a, b);
	}
	return true;
}

static void on_alarm(int number)
{
	(void)number;
}

static void start_alarm(uint64_t us)
{
	const struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	const struct itimerval timer = {.it_interval.tv_usec = (suseconds_t)us,
					.it_value.tv_usec = (suseconds_t)us};

	if (sigaction(SIGALRM, &action, NULL) || setitimer(ITIMER_REAL, &timer, NULL))
		app_exit(APP_EXIT_WRONG, "no alarm");
}

int main(int argc, char **argv)
{
	uint64_t alarm_us = 0;
	char line[LINE_MAX_LEN];
	int ordinal = 0;

	app_name = "ipc";
	for (int a = 1; a < argc; a++) {
		if (app_is(argv[a], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[a], "--device"))
			ordinal = (int)app_value_u64(argc, argv, &a, 0, 63);
		else if (app_is(argv[a], "--alarm"))
			alarm_us = app_value_u64(argc, argv, &a, 1, 999999);
		else
			app_usage(help, APP_EXIT_USAGE);
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	app_load(0);
	app_init(&app, ordinal);
	if (alarm_us)
		start_alarm(alarm_us);
	while (fgets(line, sizeof(line), stdin) && obey(line))
		;
	return APP_EXIT_VERIFIED;
}
