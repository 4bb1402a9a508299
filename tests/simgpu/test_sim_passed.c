/* SPDX-License-Identifier: Apache-2.0 */

/* Exported memory goes from process to process and is used, once, until its last holder ends. */

#include "node_dir.h"
#include "sim_fixture.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PASSED (8 * PAGE)
#define WORDS  (PASSED / 4)
#define PARTY  4 /* MiB: the context and the module of a part */

/* Inherited by all parts: what one sends the next one receives, whoever is still there. */
#define FD_OUT 50
#define FD_IN  51

#define NEED(condition)                                              \
	do {                                                         \
		if (!(condition)) {                                  \
			fprintf(stderr, "failed: %s\n", #condition); \
			return 255;                                  \
		}                                                    \
	} while (0)

static const CUmemAllocationProp prop = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
	.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
};
static const CUmemAccessDesc read_write = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
					   CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(int))];
};

static int move_fd(bool is_out, int fd)
{
	char byte = 'x';
	struct iovec part = {&byte, 1};
	union control control = {.bytes = {0}};
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	if (!is_out) {
		if (recvmsg(FD_IN, &message, MSG_CMSG_CLOEXEC) != 1)
			return -1;
		memcpy(&fd, CMSG_DATA(header), sizeof(fd));
		return fd;
	}
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	return sendmsg(FD_OUT, &message, 0) == 1 ? 0 : -1;
}

static int map_it(CUmemGenericAllocationHandle h, CUdeviceptr *ret_ptr)
{
	NEED(cuMemAddressReserve(ret_ptr, PASSED, 0, 0, 0) == CUDA_SUCCESS);
	NEED(cuMemMap(*ret_ptr, PASSED, 0, h, 0) == CUDA_SUCCESS);
	NEED(cuMemSetAccess(*ret_ptr, PASSED, &read_write, 1) == CUDA_SUCCESS);
	return 0;
}

/* What another part gave. */
static int import_it(int *ret_fd, CUmemGenericAllocationHandle *ret_handle)
{
	*ret_fd = move_fd(false, -1);
	NEED(*ret_fd >= 0);
	NEED(cuMemImportFromShareableHandle(ret_handle, (void *)(intptr_t)*ret_fd,
					    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ==
	     CUDA_SUCCESS);
	return 0;
}

static int part_give(void)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr p;
	int fd;

	NEED(cuInit(0) == CUDA_SUCCESS && sim_setup(NULL) == 0);
	NEED(cuMemCreate(&h, PASSED, &prop, 0) == CUDA_SUCCESS);
	NEED(map_it(h, &p) == 0);
	NEED(sim_fill(NULL, p, WORDS, 7) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
	NEED(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
	     CUDA_SUCCESS);
	NEED(cuMemUnmap(p, PASSED) == CUDA_SUCCESS && cuMemRelease(h) == CUDA_SUCCESS);
	NEED(move_fd(true, fd) == 0 && close(fd) == 0);
	sim_peer_say('g');
	sim_peer_wait();
	return 0;
}

/* And passes on what it came with: the driver does not export what was imported. */
static int part_take(void)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr p;
	int fd, again;

	NEED(cuInit(0) == CUDA_SUCCESS && sim_setup(NULL) == 0);
	NEED(import_it(&fd, &h) == 0);
	NEED(map_it(h, &p) == 0);
	NEED(sim_errors_in(p, WORDS, 7) == 0);
	NEED(cuMemExportToShareableHandle(&again, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
	     CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemUnmap(p, PASSED) == CUDA_SUCCESS && cuMemRelease(h) == CUDA_SUCCESS);
	NEED(move_fd(true, fd) == 0 && close(fd) == 0);
	sim_peer_say('t');
	sim_peer_wait();
	return 0;
}

static int part_hold(void)
{
	CUmemGenericAllocationHandle h;
	int fd;

	NEED(cuInit(0) == CUDA_SUCCESS && sim_setup(NULL) == 0);
	NEED(import_it(&fd, &h) == 0);
	NEED(close(fd) == 0);
	sim_peer_say('h');
	sim_peer_wait();
	return cuMemRelease(h) == CUDA_SUCCESS ? 0 : 1;
}

/* Its context is on GPU 1; the memory is that of GPU 0 all the same. */
static int part_far(void)
{
	CUmemGenericAllocationHandle h;
	CUmemAllocationProp found;
	uint64_t before;
	int fd;

	NEED(cuInit(0) == CUDA_SUCCESS && cuCtxCreate_v2(&sim_ctx, 0, 1) == CUDA_SUCCESS);
	before = sim_memory_used();
	NEED(import_it(&fd, &h) == 0);
	NEED(close(fd) == 0 && sim_memory_used() == before);
	NEED(cuMemGetAllocationPropertiesFromHandle(&found, h) == CUDA_SUCCESS);
	NEED(found.location.type == CU_MEM_LOCATION_TYPE_DEVICE && found.location.id == 0);
	return cuMemRelease(h) == CUDA_SUCCESS ? 0 : 1;
}

/* MiB in use beside its own context, as its status. */
static int part_look(void)
{
	NEED(cuInit(0) == CUDA_SUCCESS && cuCtxCreate_v2(&sim_ctx, 0, 0) == CUDA_SUCCESS);
	return (int)(sim_memory_used() / MIB) - 2;
}

/* The whole card but its own context: what nobody holds can be had. */
static int part_fill(void)
{
	CUmemGenericAllocationHandle h;

	NEED(cuInit(0) == CUDA_SUCCESS && cuCtxCreate_v2(&sim_ctx, 0, 0) == CUDA_SUCCESS);
	return cuMemCreate(&h, 60 * MIB, &prop, 0) == CUDA_SUCCESS ? 0 : 1;
}

static int used_mib(void)
{
	struct sim_peer look = sim_peer_start("look");

	return sim_peer_end(&look);
}

static void kill_peer(struct sim_peer *peer)
{
	assert_int_equal(kill(peer->pid, SIGKILL), 0);
	assert_int_equal(sim_peer_end(peer), -SIGKILL);
}

static void memory_is_used_once_until_its_last_holder_is_gone(void **state)
{
	struct sim_peer giver = sim_peer_start("give"), taker, holder, all;

	(void)state;
	assert_int_equal(sim_peer_hear(&giver), 'g');
	assert_int_equal(used_mib(), 16 + PARTY); /* on its way, and what the giver has */
	kill_peer(&giver);
	assert_int_equal(used_mib(), 16);
	taker = sim_peer_start("take");
	assert_int_equal(sim_peer_hear(&taker), 't');
	assert_int_equal(used_mib(), 16 + PARTY);
	holder = sim_peer_start("hold");
	assert_int_equal(sim_peer_hear(&holder), 'h');
	assert_int_equal(used_mib(), 16 + 2 * PARTY);
	kill_peer(&taker); /* its input is open in the holder as well */
	assert_int_equal(used_mib(), 16 + PARTY);
	all = sim_peer_start("fill");
	assert_int_equal(sim_peer_end(&all), 1);
	kill_peer(&holder);
	assert_int_equal(used_mib(), 0);
	all = sim_peer_start("fill");
	assert_int_equal(sim_peer_end(&all), 0);
}

static void a_killed_exporter_leaves_nothing(void **state)
{
	struct sim_peer giver = sim_peer_start("give"), holder;

	(void)state;
	assert_int_equal(sim_peer_hear(&giver), 'g');
	holder = sim_peer_start("hold");
	assert_int_equal(sim_peer_hear(&holder), 'h');
	assert_int_equal(sim_peer_end(&holder), 0);
	assert_int_equal(used_mib(), PARTY);
	kill_peer(&giver);
	assert_int_equal(used_mib(), 0);
}

static void imported_memory_stays_on_its_gpu(void **state)
{
	struct sim_peer giver = sim_peer_start("give"), far;

	(void)state;
	assert_int_equal(sim_peer_hear(&giver), 'g');
	far = sim_peer_start("far");
	assert_int_equal(sim_peer_end(&far), 0);
	assert_int_equal(used_mib(), PARTY);
	kill_peer(&giver);
	assert_int_equal(used_mib(), 0);
}

static void what_is_no_token_is_refused(void **state)
{
	CUmemGenericAllocationHandle h;
	int pipes[2];

	(void)state;
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(cuInit(0), CUDA_SUCCESS);
	assert_int_equal(sim_setup(NULL), 0);
	assert_int_equal(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)pipes[0],
							CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)FD_IN,
							CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
			 CUDA_ERROR_INVALID_VALUE);
	close(pipes[0]), close(pipes[1]);
	assert_int_equal(sim_teardown(NULL), 0);
}

static const struct part {
	const char *name;
	int (*run)(void);
} parts[] = {
	{"give", part_give}, {"take", part_take}, {"hold", part_hold},
	{"look", part_look}, {"fill", part_fill}, {"far", part_far},
};

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_is_used_once_until_its_last_holder_is_gone),
		cmocka_unit_test(a_killed_exporter_leaves_nothing),
		cmocka_unit_test(imported_memory_stays_on_its_gpu),
		cmocka_unit_test(what_is_no_token_is_refused),
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
	r = cmocka_run_group_tests(tests, NULL, NULL);
	(void)node_dir_remove();
	return r;
}
