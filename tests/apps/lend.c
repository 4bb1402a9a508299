/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes use the same host memory in turn: one makes it by cuMemCreate, fills it from its
 * card, and sends descriptors. The other one maps it, finds the words, and writes its own. Prints
 * what each step costs.
 */
#include "lib/app.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const char help[] = "usage: lend [--size SIZE] [--slab SIZE]\n"
			   "  --size SIZE  that is lent (1GiB)\n"
			   "  --slab SIZE  of each piece, a multiple of 2 MiB (256MiB)\n";

enum { GRAIN = 2 << 20, LENDER = 7, BORROWER = 9 };

struct slab {
	CUmemGenericAllocationHandle handle;
	CUdeviceptr addr;
};

static struct app app;
static uint64_t size = 1ull << 30, slab_size = 256u << 20;
static size_t n_slabs;
static const char *who;

/* ---- descriptors --------------------------------------------------------------- */

union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(int))];
};

/* fd -1: none. */
static void say(int to, int fd)
{
	char byte = 'x';
	struct iovec part = {&byte, 1};
	union control control = {.bytes = {0}};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (fd >= 0) {
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(fd));
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
	}
	if (sendmsg(to, &message, 0) != 1)
		app_exit(APP_EXIT_DRIVER, "the other process has ended");
}

/* Returns the descriptor; -1: none came. */
static int hear(int from)
{
	char byte;
	struct iovec part = {&byte, 1};
	union control control;
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	int fd = -1;

	if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) != 1)
		app_exit(APP_EXIT_DRIVER, "the other process has ended");
	if (CMSG_FIRSTHDR(&message))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

/* ---- slabs --------------------------------------------------------------------- */

static CUmemAllocationProp properties(void)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0},
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	};

	if (cuda.cuDeviceGetAttribute(&prop.location.id, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID,
				      app.dev) != CUDA_SUCCESS ||
	    prop.location.id < 0)
		prop.location.id = 0;
	return prop;
}

static void print(const char *what, uint64_t since_ns)
{
	double ms = (double)(app_now_ns() - since_ns) / 1e6;

	printf("%-8s %-6s %8.2f ms a GiB\n", who, what, ms * (double)(1ull << 30) / (double)size);
	(void)fflush(stdout);
}

static void slabs_map(struct slab *slabs)
{
	CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, app.dev},
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	uint64_t start = app_now_ns();
	CUdeviceptr at;

	APP_CALL(cuMemAddressReserve(&at, size, 0, 0, 0));
	for (size_t i = 0; i < n_slabs; i++) {
		slabs[i].addr = at + i * slab_size;
		APP_CALL(cuMemMap(slabs[i].addr, slab_size, 0, slabs[i].handle, 0));
		APP_CALL(cuMemSetAccess(slabs[i].addr, slab_size, &access, 1));
	}
	print("map", start);
}

static void slabs_unmap(struct slab *slabs)
{
	uint64_t start = app_now_ns();

	for (size_t i = 0; i < n_slabs; i++) {
		APP_CALL(cuMemUnmap(slabs[i].addr, slab_size));
		APP_CALL(cuMemRelease(slabs[i].handle));
	}
	print("unmap", start);
	APP_CALL(cuMemAddressFree(slabs[0].addr, size));
}

static void copy_out(const struct slab *slabs, CUdeviceptr p, uint32_t seed)
{
	uint64_t start;

	app_fill(&app, p, size / 4, seed, NULL);
	APP_CALL(cuCtxSynchronize());
	start = app_now_ns();
	for (size_t i = 0; i < n_slabs; i++)
		APP_CALL(cuMemcpyAsync(slabs[i].addr, p + i * slab_size, slab_size, NULL));
	APP_CALL(cuCtxSynchronize());
	print("out", start);
}

static void copy_in(const struct slab *slabs, CUdeviceptr p, uint32_t seed)
{
	uint64_t start;

	APP_CALL(cuMemsetD8(p, 0, size));
	APP_CALL(cuCtxSynchronize());
	start = app_now_ns();
	for (size_t i = 0; i < n_slabs; i++)
		APP_CALL(cuMemcpyAsync(p + i * slab_size, slabs[i].addr, slab_size, NULL));
	APP_CALL(cuCtxSynchronize());
	print("in", start);
	if (app_verify(&app, p, size / 4, seed, NULL))
		app_exit(APP_EXIT_WRONG, "%s finds wrong words", who);
}

/* ---- the two processes --------------------------------------------------------- */

static struct slab *begin(CUdeviceptr *ret_p)
{
	struct slab *slabs = calloc(n_slabs, sizeof(*slabs));

	if (!slabs)
		app_exit(APP_EXIT_MEMORY, "no memory");
	app_init(&app, 0);
	APP_CALL(cuMemAlloc(ret_p, size));
	return slabs;
}

static int end(struct slab *slabs, CUdeviceptr p)
{
	slabs_unmap(slabs);
	APP_CALL(cuMemFree(p));
	app_deinit(&app);
	free(slabs);
	return APP_EXIT_VERIFIED;
}

static int borrow(int lender)
{
	CUdeviceptr p;
	struct slab *slabs;
	uint64_t start;

	who = "borrower";
	app_load(0);
	slabs = begin(&p);
	start = app_now_ns();
	for (size_t i = 0; i < n_slabs; i++) {
		int fd = hear(lender);

		APP_CALL(cuMemImportFromShareableHandle(&slabs[i].handle, (void *)(intptr_t)fd,
							CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
		(void)close(fd);
	}
	print("import", start);
	slabs_map(slabs);
	copy_in(slabs, p, LENDER);
	copy_out(slabs, p, BORROWER);
	say(lender, -1);
	return end(slabs, p);
}

static int lend(int borrower)
{
	CUdeviceptr p;
	struct slab *slabs = begin(&p);
	CUmemAllocationProp prop = properties();
	uint64_t start = app_now_ns();

	who = "lender";
	for (size_t i = 0; i < n_slabs; i++)
		APP_CALL(cuMemCreate(&slabs[i].handle, slab_size, &prop, 0));
	print("make", start);
	slabs_map(slabs);
	copy_out(slabs, p, LENDER);
	for (size_t i = 0; i < n_slabs; i++) {
		int fd;

		APP_CALL(cuMemExportToShareableHandle(&fd, slabs[i].handle,
						      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
		say(borrower, fd);
		(void)close(fd);
	}
	(void)hear(borrower);
	copy_in(slabs, p, BORROWER);
	return end(slabs, p);
}

static bool is_supported(void)
{
	size_t granularity;
	CUmemAllocationProp prop;

	if (!cuda.cuMemCreate || !cuda.cuMemExportToShareableHandle)
		return false;
	APP_CALL(cuDeviceGet(&app.dev, 0));
	prop = properties();
	return cuda.cuMemGetAllocationGranularity(&granularity, &prop,
						  CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS;
}

int main(int argc, char **argv)
{
	int ends[2], status;
	pid_t pid;
	char byte;

	app_name = "lend";
	for (int i = 1; i < argc; i++) {
		if (app_is(argv[i], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[i], "--size"))
			size = app_value_size(argc, argv, &i);
		else if (app_is(argv[i], "--slab"))
			slab_size = app_value_size(argc, argv, &i);
		else
			app_usage(help, APP_EXIT_USAGE);
	}
	if (!slab_size || slab_size % GRAIN || size < slab_size)
		app_exit(APP_EXIT_USAGE, "a slab is a multiple of 2 MiB, and no more than --size");
	n_slabs = size / slab_size;
	size = n_slabs * slab_size;
	/* Before this process uses the driver, which does not survive a fork. */
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		app_exit(APP_EXIT_DRIVER, "cannot make a socket");
	pid = fork();
	if (pid == 0) {
		(void)close(ends[0]);
		app_name = "lend (borrower)";
		_exit(read(ends[1], &byte, 1) == 1 ? borrow(ends[1]) : APP_EXIT_SKIPPED);
	}
	(void)close(ends[1]);
	if (pid < 0)
		app_exit(APP_EXIT_DRIVER, "cannot fork");
	app_load(0);
	if (!is_supported())
		app_exit(APP_EXIT_SKIPPED, "this driver makes no host memory");
	say(ends[0], -1);
	(void)lend(ends[0]);
	if (waitpid(pid, &status, 0) != pid || status)
		app_exit(APP_EXIT_WRONG, "the borrower ended with status %d", status);
	printf("lend verified slabs=%zu\n", n_slabs);
	return APP_EXIT_VERIFIED;
}
