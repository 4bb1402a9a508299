/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_APPS_APP_H
#define NVS_APPS_APP_H

/*
 * Shared parts of the test programs: options, exit codes, a device with its kernels, and the
 * expected contents of memory after these kernels.
 */

#include "../cuda_load.h"
#include "../kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum app_exit {
	APP_EXIT_VERIFIED = 0,
	APP_EXIT_WRONG = 1, /* contents or numbers are wrong: says WRONG */
	APP_EXIT_USAGE = 2,
	APP_EXIT_MEMORY = 3,  /* CUDA_ERROR_OUT_OF_MEMORY */
	APP_EXIT_DRIVER = 4,  /* any other error of the driver */
	APP_EXIT_LATE = 5,    /* another process did not come in time */
	APP_EXIT_SKIPPED = 77 /* this driver or machine cannot do it */
};

#define APP_EXIT_HELP                                                                                        \
	"Exit: 0 verified, 1 wrong contents, 2 usage, 3 out of memory, 4 another driver error,\n"            \
	"5 another process is late, 77 not possible here. The driver is libcuda.so.1 of the library path;\n" \
	"NVSHARE_APP_RESOLVE=procaddress looks functions up as the CUDA runtime does.\n"

struct app_kernels {
	CUfunction empty, fill_u32, verify_u32, lcg_u32, axpy_f32, touch_u8, spin, sum_u32, count,
		meet;
};

/* One device's primary context and kernels. */
struct app {
	CUdevice dev;
	CUcontext ctx;
	CUmodule module;
	struct app_kernels k;
};

/* The program's name in messages. */
extern const char *app_name;

const char *app_error(CUresult res); /* CUDA_ERROR_...; never NULL */

/* If res is not 0, prints what failed, and exits with APP_EXIT_MEMORY or APP_EXIT_DRIVER. */
void app_check(CUresult res, const char *what);
#define APP_CALL(call) app_check(cuda.call, #call)

__attribute__((noreturn, format(printf, 2, 3))) void app_exit(int code, const char *fmt, ...);

/* Loads the driver and calls cuInit(). Exits with APP_EXIT_SKIPPED if there is no driver. */
void app_load(unsigned int load_flags);
/* Makes the primary context of device `ordinal` current, and loads the module. */
void app_init(struct app *app, int ordinal);
void app_init_module(struct app *app); /* loads the module into the current context */
void app_deinit(struct app *app);      /* unloads, releases the primary context */

/* Launches f with enough threads for n elements. params: pointers to the arguments. */
CUresult app_launch(CUfunction f, uint64_t n, CUstream stream, void **params);
void app_fill(struct app *app, CUdeviceptr p, uint64_t n, uint32_t seed, CUstream stream);
void app_lcg(struct app *app, CUdeviceptr p, uint64_t n, uint32_t rounds, CUstream stream);
void app_axpy(struct app *app, CUdeviceptr y, CUdeviceptr x, float a, uint64_t n, CUstream stream);
void app_spin(struct app *app, uint64_t ns, CUstream stream);

/* Counts, on the card, words of n at p that differ from app_fill(seed). Waits. */
uint32_t app_verify(struct app *app, CUdeviceptr p, uint64_t n, uint32_t seed, CUstream stream);

/*
 * Closed form: after app_fill(seed) and `rounds` rounds of the generator, word i is
 * mul * (seed + i * KERNELS_STEP) + add.
 */
struct app_affine {
	uint32_t mul;
	uint32_t add;
};
struct app_affine app_affine_power(uint64_t rounds);
static inline uint32_t app_expect_u32(struct app_affine f, uint32_t seed, uint64_t i)
{
	return f.mul * (seed + (uint32_t)i * KERNELS_STEP) + f.add;
}

uint64_t app_now_ns(void);
void app_sleep_ms(uint64_t ms);

/* Options: the value of `--name value` at argv[*i]; advances *i. A bad value exits with 2. */
bool app_is(const char *arg, const char *option);
const char *app_value(int argc, char **argv, int *i);
uint64_t app_value_u64(int argc, char **argv, int *i, uint64_t min, uint64_t max);
uint64_t app_value_size(int argc, char **argv, int *i); /* 64MiB, 1.5GiB, 4096 */
__attribute__((noreturn)) void app_usage(const char *text, int code);

#endif
