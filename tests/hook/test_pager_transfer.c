/* SPDX-License-Identifier: Apache-2.0 */

/* The pager hands memory over, here to itself: what it evicts it finds in a source of its own. */

#include "hook/pager/pager.h"

#include "fake_memory.h"
#include "hook/base/own_fd.h"
#include "hook/gate/gate.h"
#include "hook/host/hostpool.h"
#include "hook/pager/pager_private.h"
#include "hook/pager/transfer.h"
#include "open_files.h"
#include "pager_rig.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define MIB   (1ull << 20)
#define N     6
#define BYTES (4 * MIB)

static CUdeviceptr big[N];
static size_t n_files_before; /* what is taken over is kept by descriptors, and freed with them */
static int n_exports, n_imports, n_creates_for_export;
static bool refuses_handle_types, fails_to_map;
static int full_until_closed =
	-1; /* a pipe's end: the card is full until the other one is closed */

static CUresult attribute(int *value, CUdevice_attribute which, CUdevice dev)
{
	if (which != CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)
		return fake_attribute(value, which, dev);
	*value = 1;
	return CUDA_SUCCESS;
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t size,
		       const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct pollfd end = {.fd = full_until_closed};

	n_creates_for_export += prop->requestedHandleTypes != 0;
	if (prop->requestedHandleTypes && refuses_handle_types)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (full_until_closed >= 0 && (poll(&end, 1, 0) < 1 || !(end.revents & POLLHUP)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return fake_create(handle, size, prop, flags);
}

/* What has left is another's by now, who writes there. */
static CUresult export(void *shareable, CUmemGenericAllocationHandle handle,
		       CUmemAllocationHandleType type, unsigned long long flags)
{
	int fd = fcntl(fake.phys[handle - 1].fd, F_DUPFD_CLOEXEC, 0);

	(void)type;
	(void)flags;
	assert_true(fd >= 0);
	*(int *)shareable = fd;
	n_exports++;
	return CUDA_SUCCESS;
}

static CUresult import(CUmemGenericAllocationHandle *handle, void *shareable,
		       CUmemAllocationHandleType type)
{
	static char others[4096];
	int fd = (int)(intptr_t)shareable;
	struct stat st;
	size_t i = 0;

	(void)type;
	memset(others, 0xdd, sizeof(others));
	assert_int_equal(fstat(fd, &st), 0);
	for (off_t at = 0; at < st.st_size; at += (off_t)sizeof(others))
		assert_int_equal(pwrite(fd, others, sizeof(others), at), sizeof(others));
	while (fake.phys[i].size)
		i++;
	fake.phys[i].fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	fake.phys[i].size = (size_t)st.st_size;
	fake.phys[i].n_handles = 1;
	fake.used += (size_t)st.st_size;
	*handle = i + 1;
	n_imports++;
	return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr ptr, size_t size, size_t offset,
		    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	if (fails_to_map) {
		fails_to_map = false;
		return CUDA_ERROR_INVALID_VALUE;
	}
	return fake_map(ptr, size, offset, handle, flags);
}

static void verify(void)
{
	for (size_t i = 0; i < N; i++) {
		for (size_t j = 0; j < BYTES / 4; j++)
			assert_contents(words(big[i])[j], (uint32_t)(i * 77 + j));
	}
}

/* As the scheduler does it, but for both to be one program. */
static void introduce(void)
{
	const int on = 1;
	int ends[2];

	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
	assert_int_equal(setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
	transfer_set_sink(0, ends[0]);
	transfer_add_source(0, ends[1]);
}

static struct pager_move evict(uint64_t bytes)
{
	struct pager_move move;

	introduce();
	transfer_aim(0, bytes);
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	transfer_aim(0, 0);
	return move;
}

static struct pager_move restore(void)
{
	struct pager_move move;

	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	return move;
}

static int set_up(void **state)
{
	(void)state;
	fake_setup();
	n_files_before = n_files();
	fake.options.transfer = true;
	cuda_real.cuDeviceGetAttribute = attribute;
	cuda_real.cuMemCreate = create;
	cuda_real.cuMemMap = map;
	cuda_real.cuMemExportToShareableHandle = export;
	cuda_real.cuMemImportFromShareableHandle = import;
	refuses_handle_types = fails_to_map = false;
	pager.devices[0] = (struct pager_device){0};
	n_exports = n_imports = n_creates_for_export = 0;
	assert_true(pager_supported(0));
	return 0;
}

static void fill(void)
{
	for (size_t i = 0; i < N; i++) {
		assert_int_equal(allocate(BYTES, &big[i]), CUDA_SUCCESS);
		for (size_t j = 0; j < BYTES / 4; j++)
			words(big[i])[j] = (uint32_t)(i * 77 + j);
	}
}

static int tear_down(void **state)
{
	CUresult res;

	(void)state;
	for (size_t i = 0; i < N; i++) {
		assert_true(pager_free(big[i], &res));
		assert_int_equal(res, CUDA_SUCCESS);
	}
	transfer_close(0);
	fake_give_back_host_memory();
	assert_int_equal(fake.used, 0);
	assert_int_equal(n_files(), n_files_before);
	return 0;
}

static void memory_that_comes_from_others_is_overwritten_whole(void **state)
{
	struct pager_move out, in;

	(void)state;
	fill();
	for (int round = 1; round <= 3; round++) {
		out = evict(UINT64_MAX);
		in = restore();
		assert_int_equal(out.bytes, N * BYTES);
		assert_int_equal(out.handed, N * BYTES);
		assert_int_equal(in.handed, N * BYTES);
		assert_int_equal(n_exports, N); /* what was imported goes on with its descriptor */
		assert_int_equal(n_imports, round * N);
		verify();
	}
}

static void only_as_much_as_is_wanted_goes(void **state)
{
	(void)state;
	fill();
	assert_int_equal(evict(2 * BYTES).handed, 2 * BYTES);
	assert_int_equal(restore().handed, 2 * BYTES);
	verify();
	assert_int_equal(evict(0).handed, 0);
	assert_int_equal(restore().handed, 0);
	verify();
}

static void a_new_allocation_gets_nothing_of_others(void **state)
{
	CUdeviceptr fresh;
	CUresult res;

	(void)state;
	fill();
	(void)evict(UINT64_MAX);
	assert_int_equal(allocate(BYTES, &fresh), CUDA_SUCCESS);
	assert_int_equal(n_imports, 0);
	for (size_t j = 0; j < BYTES / 4; j++)
		assert_contents(words(fresh)[j], 0);
	assert_true(pager_free(fresh, &res));
	(void)restore();
	verify();
}

static void what_can_not_be_mapped_is_made_anew(void **state)
{
	(void)state;
	fill();
	(void)evict(UINT64_MAX);
	fails_to_map = true;
	assert_int_equal(restore().handed, (N - 1) * BYTES);
	verify();
}

static void a_driver_that_makes_none_for_export_is_asked_once(void **state)
{
	(void)state;
	refuses_handle_types = true;
	fill();
	assert_int_equal(n_creates_for_export, 1);
	assert_int_equal(evict(UINT64_MAX).handed, 0);
	assert_int_equal(restore().handed, 0);
	assert_int_equal(n_creates_for_export, 1);
	assert_int_equal(n_exports, 0);
	verify();
}

/* The memory that has come is of another size, and the card is full of it. */
static void what_is_of_no_use_makes_room(void **state)
{
	int pipes[2];

	(void)state;
	fill();
	(void)evict(0);
	assert_int_equal(pipe(pipes), 0);
	introduce();
	transfer_aim(0, UINT64_MAX);
	assert_true(transfer_send(0, own_fd_take(pipes[1]), BYTES / 2)); /* takes it */
	transfer_aim(0, 0);
	full_until_closed = pipes[0];
	(void)restore();
	full_until_closed = -1;
	close(pipes[0]);
	verify();
}

/* Memory is made for export all the same: programs may share it by CUDA IPC. */
static void with_it_off_nothing_goes(void **state)
{
	(void)state;
	fake.options.transfer = false;
	pager.devices[0] = (struct pager_device){0};
	assert_true(pager_supported(0));
	assert_false(transfer_supported(0)); /* which the scheduler hears: it introduces nobody */
	fill();
	assert_int_equal(evict(UINT64_MAX).handed, 0);
	assert_int_equal(restore().handed, 0);
	assert_int_equal(n_exports + n_imports, 0);
	verify();
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(memory_that_comes_from_others_is_overwritten_whole),
		T(only_as_much_as_is_wanted_goes),
		T(a_new_allocation_gets_nothing_of_others),
		T(what_can_not_be_mapped_is_made_anew),
		T(a_driver_that_makes_none_for_export_is_asked_once),
		T(what_is_of_no_use_makes_room),
		T(with_it_off_nothing_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
