/* SPDX-License-Identifier: Apache-2.0 */
#include "app.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define APP_BLOCK    256u
#define APP_GRID_MAX 4096u

const char *app_name = "app";

const char *app_error(CUresult res)
{
	const char *name = NULL;

	if (cuda.cuGetErrorName && cuda.cuGetErrorName(res, &name) == CUDA_SUCCESS && name)
		return name;
	return "an error that the driver does not name";
}

void app_exit(int code, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s: %s", app_name, code == APP_EXIT_WRONG ? "WRONG: " : "");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	fflush(stdout);
	/*
	 * exit() would run the exit handlers of the driver and the library, while other threads
	 * still use both. A failed program does not need them.
	 */
	_Exit(code);
}

void app_check(CUresult res, const char *what)
{
	if (res == CUDA_SUCCESS)
		return;
	app_exit(res == CUDA_ERROR_OUT_OF_MEMORY ? APP_EXIT_MEMORY : APP_EXIT_DRIVER, "%s: %s (%d)",
		 what, app_error(res), (int)res);
}

void app_load(unsigned int load_flags)
{
	const char *why;

	if (!cuda_load_driver(load_flags, &why))
		app_exit(APP_EXIT_SKIPPED, "no CUDA driver: %s", why);
	APP_CALL(cuInit(0));
}

void app_init_module(struct app *app)
{
	static const struct {
		const char *name;
		size_t offset;
	} entries[] = {
		{"nvs_empty", offsetof(struct app_kernels, empty)},
		{"nvs_fill_u32", offsetof(struct app_kernels, fill_u32)},
		{"nvs_verify_u32", offsetof(struct app_kernels, verify_u32)},
		{"nvs_lcg_u32", offsetof(struct app_kernels, lcg_u32)},
		{"nvs_axpy_f32", offsetof(struct app_kernels, axpy_f32)},
		{"nvs_touch_u8", offsetof(struct app_kernels, touch_u8)},
		{"nvs_spin", offsetof(struct app_kernels, spin)},
		{"nvs_sum_u32", offsetof(struct app_kernels, sum_u32)},
		{"nvs_count", offsetof(struct app_kernels, count)},
		{"nvs_meet", offsetof(struct app_kernels, meet)},
	};
	size_t i;

	APP_CALL(cuModuleLoadData(&app->module, kernels_ptx));
	for (i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		CUfunction f;

		app_check(cuda.cuModuleGetFunction(&f, app->module, entries[i].name),
			  entries[i].name);
		memcpy((char *)&app->k + entries[i].offset, &f, sizeof(f));
	}
}

void app_init(struct app *app, int ordinal)
{
	APP_CALL(cuDeviceGet(&app->dev, ordinal));
	APP_CALL(cuDevicePrimaryCtxRetain(&app->ctx, app->dev));
	APP_CALL(cuCtxSetCurrent(app->ctx));
	app_init_module(app);
}

void app_deinit(struct app *app)
{
	APP_CALL(cuModuleUnload(app->module));
	APP_CALL(cuDevicePrimaryCtxRelease(app->dev));
}

CUresult app_launch(CUfunction f, uint64_t n, CUstream stream, void **params)
{
	uint64_t blocks = (n + APP_BLOCK - 1) / APP_BLOCK;

	if (blocks < 1)
		blocks = 1;
	if (blocks > APP_GRID_MAX)
		blocks = APP_GRID_MAX;
	return cuda.cuLaunchKernel(f, (unsigned int)blocks, 1, 1, APP_BLOCK, 1, 1, 0, stream,
				   params, NULL);
}

void app_fill(struct app *app, CUdeviceptr p, uint64_t n, uint32_t seed, CUstream stream)
{
	void *params[] = {&p, &n, &seed};

	app_check(app_launch(app->k.fill_u32, n, stream, params), "launch of nvs_fill_u32");
}

void app_lcg(struct app *app, CUdeviceptr p, uint64_t n, uint32_t rounds, CUstream stream)
{
	void *params[] = {&p, &n, &rounds};

	app_check(app_launch(app->k.lcg_u32, n, stream, params), "launch of nvs_lcg_u32");
}

void app_axpy(struct app *app, CUdeviceptr y, CUdeviceptr x, float a, uint64_t n, CUstream stream)
{
	void *params[] = {&y, &x, &a, &n};

	app_check(app_launch(app->k.axpy_f32, n, stream, params), "launch of nvs_axpy_f32");
}

void app_spin(struct app *app, uint64_t ns, CUstream stream)
{
	void *params[] = {&ns};

	app_check(cuda.cuLaunchKernel(app->k.spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL),
		  "launch of nvs_spin");
}

uint32_t app_verify(struct app *app, CUdeviceptr p, uint64_t n, uint32_t seed, CUstream stream)
{
	CUdeviceptr errors;
	uint32_t n_errors = 0;
	void *params[] = {&p, &n, &seed, &errors};

	APP_CALL(cuMemAlloc(&errors, sizeof(n_errors)));
	APP_CALL(cuMemsetD32(errors, 0, 1));
	/* After its return a memset of device memory may still run, on the default stream. */
	APP_CALL(cuStreamSynchronize(NULL));
	app_check(app_launch(app->k.verify_u32, n, stream, params), "launch of nvs_verify_u32");
	APP_CALL(cuStreamSynchronize(stream));
	APP_CALL(cuMemcpyDtoH(&n_errors, errors, sizeof(n_errors)));
	APP_CALL(cuMemFree(errors));
	return n_errors;
}

struct app_affine app_affine_power(uint64_t rounds)
{
	struct app_affine result = {1, 0};
	struct app_affine step = {KERNELS_LCG_MUL, KERNELS_LCG_ADD};

	for (; rounds; rounds >>= 1) {
		if (rounds & 1) {
			result.add = step.mul * result.add + step.add;
			result.mul *= step.mul;
		}
		step.add = step.mul * step.add + step.add;
		step.mul *= step.mul;
	}
	return result;
}

uint64_t app_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void app_sleep_ms(uint64_t ms)
{
	struct timespec ts = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

bool app_is(const char *arg, const char *option)
{
	return !strcmp(arg, option);
}

const char *app_value(int argc, char **argv, int *i)
{
	if (*i + 1 >= argc)
		app_exit(APP_EXIT_USAGE, "%s needs a value", argv[*i]);
	return argv[++*i];
}

uint64_t app_value_u64(int argc, char **argv, int *i, uint64_t min, uint64_t max)
{
	const char *option = argv[*i];
	const char *s = app_value(argc, argv, i);
	unsigned long long v;
	char *end;

	errno = 0;
	v = strtoull(s, &end, 10);
	if (errno || end == s || *end || *s == '-' || v < min || v > max)
		app_exit(APP_EXIT_USAGE, "%s wants a number from %llu to %llu, not '%s'", option,
			 (unsigned long long)min, (unsigned long long)max, s);
	return v;
}

uint64_t app_value_size(int argc, char **argv, int *i)
{
	static const struct {
		const char *unit;
		double bytes;
	} units[] = {{"", 1},          {"K", 1024},       {"KiB", 1024},      {"M", 1048576},
		     {"MiB", 1048576}, {"G", 1073741824}, {"GiB", 1073741824}};
	const char *option = argv[*i];
	const char *s = app_value(argc, argv, i);
	char *end;
	double v = strtod(s, &end);
	size_t u;

	for (u = 0; end != s && u < sizeof(units) / sizeof(units[0]); u++)
		if (!strcasecmp(end, units[u].unit) && v >= 1 && v * units[u].bytes < 1e15)
			return (uint64_t)(v * units[u].bytes);
	app_exit(APP_EXIT_USAGE, "%s wants a size like 64MiB, not '%s'", option, s);
}

void app_usage(const char *text, int code)
{
	fprintf(code ? stderr : stdout, "%s\n%s", text, APP_EXIT_HELP);
	exit(code);
}
