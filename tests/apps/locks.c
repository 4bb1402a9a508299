/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Can memory be taken from a frozen process while one of its threads is inside a call of the
 * driver? The driver's locks are not documented, so the program tries each call that may block
 * against each call of the library's agent, over and over. A hang in a call that keeps freezes
 * away is reported, but is no error.
 */
#include "lib/app.h"
#include "lib/blocker.h"
#include "lib/self.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
	"usage: locks [OPTION]...\n"
	"Freezes itself with a thread in each call, and pages memory out and in through a second\n"
	"context meanwhile. Prints the longest time of each step in ms, and what hung. A row\n"
	"with a star: the library lets no freeze begin while a thread is in that call.\n"
	"  --freezes N     in all (1000)\n"
	"  --size SIZE     of the memory that is paged (64MiB)\n"
	"  --spin-ms N     of work that is submitted before each freeze (20)\n"
	"  --settle-ms N   for the thread to get into its call (5)\n"
	"  --hang-ms N     a step that takes longer has hung (2000)\n"
	"  --call N        only that row of the table, from 0 on\n";

/* The agent's calls, in its order. */
enum step {
	STEP_STREAM,
	STEP_COPY_OUT,
	STEP_UNMAP,
	STEP_RELEASE,
	STEP_CREATE,
	STEP_MAP,
	STEP_ACCESS,
	STEP_COPY_IN,
	STEP_DESTROY,
	STEP_REGISTER,
	STEP_UNREGISTER,
	STEP_COUNT_,
};

static const char *const step_names[STEP_COUNT_] = {"stream",  "out",      "unmap",     "release",
						    "create",  "map",      "access",    "in",
						    "destroy", "register", "unregister"};

struct row {
	uint64_t n_freezes;
	uint64_t n_returned; /* times that the call ended while frozen */
	uint64_t n_hangs[STEP_COUNT_];
	uint64_t ns_max[STEP_COUNT_];
};

static struct {
	uint64_t n_freezes, size, spin_ms, settle_ms, hang_ms;
	uint64_t only; /* a row, or UINT64_MAX */
} opt = {1000, 64u << 20, 20, 5, 2000, UINT64_MAX};

enum { MAPPED_SEED = 11 };

static struct app app;
static CUcontext own;
static struct blocker blocker;
static struct row rows[BLOCKER_CALLS_MAX];

/* The memory that the agent moves. */
static CUdeviceptr mapped;
static CUmemGenericAllocationHandle handle;
static CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
static void *pinned;

/* Memory that the agent registers meanwhile; every other time, it unregisters it. */
static void *host;
static bool is_registered;

/* State of the freeze under way. */
static const struct blocker_call *call;
static struct row *row;
static uint32_t n_taken; /* steps that the agent has begun */
static bool has_returned;

static void take_step(enum step step, CUstream *stream)
{
	CUmemAccessDesc access = {.location = prop.location,
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	switch (step) {
	case STEP_STREAM:
		APP_CALL(cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
		break;
	case STEP_COPY_OUT:
		APP_CALL(cuMemcpyDtoHAsync(pinned, mapped, opt.size, *stream));
		APP_CALL(cuStreamSynchronize(*stream));
		break;
	case STEP_UNMAP:
		APP_CALL(cuMemUnmap(mapped, opt.size));
		break;
	case STEP_RELEASE:
		APP_CALL(cuMemRelease(handle));
		break;
	case STEP_CREATE:
		APP_CALL(cuMemCreate(&handle, opt.size, &prop, 0));
		break;
	case STEP_MAP:
		APP_CALL(cuMemMap(mapped, opt.size, 0, handle, 0));
		break;
	case STEP_ACCESS:
		APP_CALL(cuMemSetAccess(mapped, opt.size, &access, 1));
		break;
	case STEP_COPY_IN:
		APP_CALL(cuMemcpyHtoDAsync(mapped, pinned, opt.size, *stream));
		APP_CALL(cuStreamSynchronize(*stream));
		break;
	case STEP_DESTROY:
		APP_CALL(cuStreamDestroy(*stream));
		break;
	case STEP_REGISTER:
		APP_CALL(cuMemHostRegister(host, opt.size, CU_MEMHOSTREGISTER_PORTABLE));
		is_registered = true;
		break;
	case STEP_UNREGISTER:
		APP_CALL(cuMemHostUnregister(host));
		is_registered = false;
		break;
	case STEP_COUNT_:
		break;
	}
}

/* The step after the first n. A hang hides later steps, so the order changes. */
static enum step next_step(uint32_t n)
{
	if (n >= STEP_REGISTER && row->n_freezes % 2)
		return n == STEP_REGISTER ? STEP_UNREGISTER : STEP_REGISTER;
	return (enum step)n;
}

static void *page(void *unused)
{
	CUstream stream = NULL;
	uint32_t n;

	APP_CALL(cuCtxSetCurrent(own));
	for (n = 0; n < STEP_COUNT_; n++) {
		enum step step = next_step(n);
		uint64_t start = app_now_ns();
		uint64_t ns;

		take_step(step, &stream);
		ns = app_now_ns() - start;
		if (ns > row->ns_max[step])
			row->ns_max[step] = ns;
		__atomic_store_n(&n_taken, n + 1, __ATOMIC_RELEASE);
	}
	return unused;
}

/* Called in the agent's context, while nothing is frozen. */
static void set_registered(bool is_wanted)
{
	if (is_registered == is_wanted)
		return;
	APP_CALL(cuCtxSetCurrent(own));
	take_step(is_wanted ? STEP_REGISTER : STEP_UNREGISTER, NULL);
	APP_CALL(cuCtxSetCurrent(app.ctx));
}

static void *block(void *unused)
{
	APP_CALL(cuCtxSetCurrent(app.ctx));
	call->run(&blocker);
	__atomic_store_n(&has_returned, true, __ATOMIC_RELEASE);
	return unused;
}

static bool returned(void)
{
	return __atomic_load_n(&has_returned, __ATOMIC_ACQUIRE);
}

/* Waits until the agent has ended, or until its step takes too long. */
static void watch(void)
{
	uint64_t since = app_now_ns();
	uint32_t before = 0;

	for (;;) {
		uint32_t n = __atomic_load_n(&n_taken, __ATOMIC_ACQUIRE);

		if (n == STEP_COUNT_)
			return;
		if (n != before) {
			before = n;
			since = app_now_ns();
		}
		if (app_now_ns() - since > opt.hang_ms * 1000000) {
			row->n_hangs[next_step(n)]++;
			return;
		}
		app_sleep_ms(1);
	}
}

static void try_once(void)
{
	pthread_t threads[2];
	uint64_t start;

	n_taken = 0;
	has_returned = false;
	set_registered(next_step(STEP_REGISTER) == STEP_UNREGISTER);
	if (call->prepare)
		call->prepare(&blocker);
	app_spin(&app, opt.spin_ms * 1000000, blocker.stream);
	app_spin(&app, opt.spin_ms * 1000000, NULL);
	self_freeze();
	start = app_now_ns();
	if (pthread_create(&threads[0], NULL, block, NULL))
		app_exit(APP_EXIT_DRIVER, "cannot start a thread");
	while (!returned() && app_now_ns() - start < opt.settle_ms * 1000000)
		app_sleep_ms(1);
	if (pthread_create(&threads[1], NULL, page, NULL))
		app_exit(APP_EXIT_DRIVER, "cannot start a thread");
	watch();
	row->n_returned += returned();
	self_thaw();
	self_join(threads[1], "the agent");
	self_join(threads[0], call->name);
	row->n_freezes++;
	APP_CALL(cuCtxSynchronize());
	if (call->clean)
		call->clean(&blocker);
}

static void print_row(uint64_t i)
{
	int s;

	printf("%2llu%c%-34s %5llu %9llu ", (unsigned long long)i, call->is_apart ? '*' : ' ',
	       call->name, (unsigned long long)row->n_freezes, (unsigned long long)row->n_returned);
	for (s = 0; s < STEP_COUNT_; s++) {
		if (row->n_hangs[s])
			printf(" %5llux hung", (unsigned long long)row->n_hangs[s]);
		else
			printf(" %10.2f", (double)row->ns_max[s] / 1e6);
	}
	printf("\n");
	fflush(stdout);
}

static void prepare(void)
{
	CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	prop.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, app.dev};
	access.location = prop.location;
	opt.size = (opt.size + (2u << 20) - 1) & ~(uint64_t)((2u << 20) - 1);
	APP_CALL(cuMemHostAlloc(&pinned, opt.size, 0));
	host = aligned_alloc(2u << 20, opt.size);
	if (!host)
		app_exit(APP_EXIT_DRIVER, "no host memory");
	memset(host, 1, opt.size);
	APP_CALL(cuMemAddressReserve(&mapped, opt.size, 0, 0, 0));
	APP_CALL(cuMemCreate(&handle, opt.size, &prop, 0));
	APP_CALL(cuMemMap(mapped, opt.size, 0, handle, 0));
	APP_CALL(cuMemSetAccess(mapped, opt.size, &access, 1));
	app_fill(&app, mapped, opt.size / 4, MAPPED_SEED, NULL);
	APP_CALL(cuCtxSynchronize());
	blocker_init(&blocker, &app);
}

struct totals {
	uint64_t n_freezes;
	uint64_t n_hangs, n_hangs_apart;
};

static void try_all(struct totals *totals)
{
	uint64_t n_calls = blocker_n_calls();
	uint64_t n_rows = opt.only == UINT64_MAX ? n_calls : 1;
	uint64_t n_each = (opt.n_freezes + n_rows - 1) / n_rows;
	uint64_t i, k;
	int s;

	for (i = 0; i < n_calls; i++) {
		if (opt.only != UINT64_MAX && opt.only != i)
			continue;
		call = blocker_call(i);
		row = &rows[i];
		for (k = 0; k < n_each && blocker_can(call); k++)
			try_once();
		print_row(i);
		totals->n_freezes += row->n_freezes;
		for (s = 0; s < STEP_COUNT_; s++)
			*(call->is_apart ? &totals->n_hangs_apart : &totals->n_hangs) +=
				row->n_hangs[s];
		if (app_verify(&app, mapped, opt.size / 4, MAPPED_SEED, NULL))
			app_exit(APP_EXIT_WRONG, "%s: paged memory has changed", call->name);
	}
	set_registered(false);
}

static void parse(int argc, char **argv)
{
	for (int a = 1; a < argc; a++) {
		if (app_is(argv[a], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[a], "--freezes"))
			opt.n_freezes = app_value_u64(argc, argv, &a, 1, 1000000);
		else if (app_is(argv[a], "--size"))
			opt.size = app_value_size(argc, argv, &a);
		else if (app_is(argv[a], "--spin-ms"))
			opt.spin_ms = app_value_u64(argc, argv, &a, 0, 10000);
		else if (app_is(argv[a], "--settle-ms"))
			opt.settle_ms = app_value_u64(argc, argv, &a, 0, 10000);
		else if (app_is(argv[a], "--hang-ms"))
			opt.hang_ms = app_value_u64(argc, argv, &a, 1, 10000);
		else if (app_is(argv[a], "--call"))
			opt.only = app_value_u64(argc, argv, &a, 0, blocker_n_calls() - 1);
		else
			app_usage(help, APP_EXIT_USAGE);
	}
}

int main(int argc, char **argv)
{
	struct totals totals = {0};
	int s;

	app_name = "locks";
	parse(argc, argv);
	/* A row tests the first launch, which loads lazily. Must be set before the driver loads. */
	(void)setenv("CUDA_MODULE_LOADING", "LAZY", 1);
	self_init(&app, &own);
	prepare();
	printf("%-37s %5s %9s ", "longest ms of the agent's calls", "n", "returned");
	for (s = 0; s < STEP_COUNT_; s++)
		printf(" %10s", step_names[s]);
	printf("\n");
	try_all(&totals);
	printf("locks %s freezes=%llu hangs=%llu hangs_apart=%llu\n",
	       totals.n_hangs ? "hung" : "verified", (unsigned long long)totals.n_freezes,
	       (unsigned long long)totals.n_hangs, (unsigned long long)totals.n_hangs_apart);
	blocker_deinit(&blocker);
	APP_CALL(cuCtxDestroy(own));
	free(host);
	app_deinit(&app);
	return totals.n_hangs ? APP_EXIT_WRONG : APP_EXIT_VERIFIED;
}
