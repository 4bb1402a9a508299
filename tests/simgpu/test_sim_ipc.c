/* SPDX-License-Identifier: Apache-2.0 */

/* Plain memory that other processes open. */

#include "node_dir.h"
#include "sim_fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SMALL 4096
#define LARGE (3 * MIB)
#define FLAGS CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

/* Inherited by all parts: handles go through it. */
#define FD_OUT 50
#define FD_IN  51

#define NEED(condition)                                              \
	do {                                                         \
		if (!(condition)) {                                  \
			fprintf(stderr, "failed: %s\n", #condition); \
			return 255;                                  \
		}                                                    \
	} while (0)

static int make_context(int device)
{
	NEED(cuInit(0) == CUDA_SUCCESS && cuCtxCreate_v2(&sim_ctx, 0, device) == CUDA_SUCCESS);
	NEED(cuModuleLoadData(&sim_module, sim_ptx) == CUDA_SUCCESS);
	return 0;
}

static int give_handle(CUdeviceptr p)
{
	CUipcMemHandle handle;

	NEED(cuIpcGetMemHandle(&handle, p) == CUDA_SUCCESS);
	NEED(write(FD_OUT, &handle, sizeof(handle)) == (ssize_t)sizeof(handle));
	return 0;
}

static bool is_right(CUdeviceptr p, size_t bytes, uint32_t seed)
{
	return sim_errors_in(p, bytes / 4, seed) == 0;
}

/* Gives memory of GPU 0 and waits; then its neighbours are as before, and it has what was written.
 */
static int part_give(void)
{
	CUdeviceptr neighbour, small, large;

	NEED(make_context(0) == 0);
	NEED(cuMemAlloc_v2(&neighbour, SMALL) == CUDA_SUCCESS);
	NEED(cuMemAlloc_v2(&small, SMALL) == CUDA_SUCCESS);
	NEED(cuMemAlloc_v2(&large, LARGE) == CUDA_SUCCESS);
	NEED(sim_fill(NULL, neighbour, SMALL / 4, 1) == CUDA_SUCCESS);
	NEED(sim_fill(NULL, small, SMALL / 4, 2) == CUDA_SUCCESS);
	NEED(sim_fill(NULL, large, LARGE / 4, 3) == CUDA_SUCCESS);
	NEED(cuCtxSynchronize() == CUDA_SUCCESS);
	NEED(give_handle(small) == 0 && give_handle(large + SMALL) == 0);
	NEED(give_handle(small) == 0);
	NEED(is_right(neighbour, SMALL, 1) && is_right(small, SMALL, 2));
	NEED(is_right(large, LARGE, 3));
	sim_peer_say('g');
	sim_peer_wait();
	NEED(is_right(neighbour, SMALL, 1) && is_right(small, SMALL, 12));
	NEED(is_right(large, LARGE, 13));
	NEED(cuMemFree_v2(small) == CUDA_SUCCESS && cuMemFree_v2(large) == CUDA_SUCCESS);
	NEED(cuMemFree_v2(neighbour) == CUDA_SUCCESS);
	return 0;
}

static int read_handle(CUipcMemHandle *ret)
{
	NEED(read(FD_IN, ret, sizeof(*ret)) == (ssize_t)sizeof(*ret));
	return 0;
}

/* On GPU 1, whose kernels reach memory of GPU 0 that it opens. */
static int part_take(void)
{
	CUipcMemHandle handles[3], wrong;
	CUdeviceptr small, large, again, own;
	size_t size;
	int ordinal;

	NEED(make_context(1) == 0);
	for (int i = 0; i < 3; i++)
		NEED(read_handle(&handles[i]) == 0);
	NEED(memcmp(&handles[0], &handles[2], sizeof(*handles)) == 0);
	NEED(cuIpcOpenMemHandle_v2(&small, handles[0], 0) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuIpcOpenMemHandle_v2(&small, handles[0], FLAGS) == CUDA_SUCCESS);
	NEED(cuIpcOpenMemHandle_v2(&large, handles[1], FLAGS) == CUDA_SUCCESS);
	NEED(cuIpcOpenMemHandle_v2(&again, handles[2], FLAGS) == CUDA_SUCCESS && again == small);
	NEED(is_right(small, SMALL, 2) && is_right(large, LARGE, 3));
	NEED(cuMemGetAddressRange_v2(&own, &size, large + 5) == CUDA_SUCCESS);
	NEED(own == large && size == LARGE);
	NEED(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, small) ==
	     CUDA_SUCCESS);
	NEED(ordinal == 0);
	NEED(sim_fill(NULL, small, SMALL / 4, 12) == CUDA_SUCCESS);
	NEED(sim_fill(NULL, large, LARGE / 4, 13) == CUDA_SUCCESS);
	NEED(cuMemFree_v2(large) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuIpcCloseMemHandle(small + 4) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuIpcCloseMemHandle(small) == CUDA_SUCCESS);
	NEED(is_right(small, SMALL, 12)); /* the second open */
	NEED(cuIpcCloseMemHandle(small) == CUDA_SUCCESS);
	NEED(cuIpcCloseMemHandle(small) == CUDA_ERROR_INVALID_VALUE);
	wrong = handles[1];
	wrong.reserved[8] ^= 1;
	NEED(cuIpcOpenMemHandle_v2(&again, wrong, FLAGS) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemAlloc_v2(&own, SMALL) == CUDA_SUCCESS);
	NEED(cuIpcGetMemHandle(&wrong, own) == CUDA_SUCCESS);
	NEED(cuIpcOpenMemHandle_v2(&again, wrong, FLAGS) == CUDA_ERROR_INVALID_CONTEXT);
	NEED(cuIpcGetMemHandle(&wrong, large) == CUDA_ERROR_INVALID_VALUE);
	sim_peer_say('t');
	sim_peer_wait();
	/* The owner has gone; what is open stays, and nothing can be opened. */
	NEED(is_right(large, LARGE, 13));
	NEED(cuIpcOpenMemHandle_v2(&again, handles[0], FLAGS) == CUDA_ERROR_INVALID_VALUE);
	return cuCtxDestroy_v2(sim_ctx) == CUDA_SUCCESS ? 0 : 1;
}

static int used_mib(int device)
{
	CUcontext ctx;
	int mib;

	assert_cuda(cuCtxCreate_v2(&ctx, 0, device));
	mib = (int)(sim_memory_used() / MIB) - 2;
	assert_cuda(cuCtxDestroy_v2(ctx));
	return mib;
}

static void another_gpus_process_shares_memory_that_counts_once(void **state)
{
	struct sim_peer giver = sim_peer_start("give"), taker;
	int before;

	(void)state;
	assert_int_equal(sim_peer_hear(&giver), 'g');
	/* The taker must not keep the giver's input open. */
	assert_int_equal(fcntl(giver.to, F_SETFD, FD_CLOEXEC), 0);
	before = used_mib(0);
	taker = sim_peer_start("take");
	assert_int_equal(sim_peer_hear(&taker), 't');
	assert_int_equal(used_mib(0), before);
	assert_int_equal(sim_peer_end(&giver), 0);
	assert_int_equal(sim_peer_end(&taker), 0);
	assert_int_equal(used_mib(0), 0);
	assert_int_equal(used_mib(1), 0);
}

static const struct part {
	const char *name;
	int (*run)(void);
} parts[] = {{"give", part_give}, {"take", part_take}};

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_gpus_process_shares_memory_that_counts_once),
	};
	int fds[2], r;

	for (size_t i = 0; argc == 2 && i < sizeof(parts) / sizeof(*parts); i++)
		if (strcmp(argv[1], parts[i].name) == 0)
			return parts[i].run();
	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, fds) < 0 || dup2(fds[0], FD_OUT) < 0 ||
	    dup2(fds[1], FD_IN) < 0)
		return 1;
	close(fds[0]), close(fds[1]);
	sim_environment("2", "64MiB");
	if (cuInit(0))
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	(void)node_dir_remove();
	return r;
}
