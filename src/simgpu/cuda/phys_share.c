/* SPDX-License-Identifier: Apache-2.0 */

/* Physical memory that goes to other processes. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "simgpu/cuda/phys.h"
#include "simgpu/cuda/space.h"
#include "simgpu/cuda/state.h"
#include "simgpu/cuda/token.h"

/* From now on the memory lives as long as the token. */
static int pass_token(struct phys *phys)
{
	unsigned int device = phys_node(phys);
	int token = node_pass(device, phys->size);

	if (token < 0)
		return token;
	node_passed_hold(device, (int64_t)phys->size);
	phys->token = token;
	return token_fill(token, phys->fd, device, phys->size);
}

static int phys_export(struct phys *phys)
{
	int r;

	if (phys_is_host(&phys->prop.location))
		return fcntl(phys->fd, F_DUPFD_CLOEXEC, 0);
	r = phys->token < 0 ? pass_token(phys) : 0;
	return r < 0 ? r : fcntl(phys->token, F_DUPFD_CLOEXEC, 0);
}

API(cuMemExportToShareableHandle, (void *shareableHandle, CUmemGenericAllocationHandle handle,
				   CUmemAllocationHandleType handleType, unsigned long long flags))
{
	struct phys *phys;
	CUresult r = CUDA_ERROR_INVALID_VALUE;
	int fd;

	API_ENTER(API_INIT);
	if (!shareableHandle || flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	space_write_lock();
	phys = phys_find(handle);
	if (phys && phys->is_own_fd && !phys->is_imported) {
		fd = phys_export(phys);
		if (fd >= 0)
			*(int *)shareableHandle = fd;
		r = fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
	}
	space_unlock();
	return r;
}

static bool is_host_memory_file(int fd, uint64_t *ret_size)
{
	char path[64], name[64];
	struct stat st;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, name, sizeof(name) - 1);
	if (n < 0 || fstat(fd, &st) < 0)
		return false;
	name[n] = '\0';
	*ret_size = (uint64_t)st.st_size;
	return strncmp(name, "/memfd:" PHYS_HOST_NAME " ", strlen("/memfd:" PHYS_HOST_NAME " ")) ==
	       0;
}

/* Sets what the descriptor tells. -EINVAL; -ENODEV: of a device that this process does not see. */
static int phys_import(struct phys *phys, int fd)
{
	unsigned int device;
	int ordinal;

	if (is_host_memory_file(fd, &phys->size)) {
		phys->prop.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
		phys->token = -1;
		phys->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		return phys->fd < 0 ? -EINVAL : 0;
	}
	phys->fd = token_look(fd, &device, &phys->size);
	if (phys->fd < 0)
		return -EINVAL;
	ordinal = device_ordinal(device);
	phys->prop.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
	phys->token = ordinal < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (phys->token >= 0)
		return 0;
	close(phys->fd);
	return ordinal < 0 ? -ENODEV : -EINVAL;
}

API(cuMemImportFromShareableHandle,
    (CUmemGenericAllocationHandle * handle, void *osHandle, CUmemAllocationHandleType shHandleType))
{
	struct phys *phys;
	CUresult r = CUDA_SUCCESS;
	int error;

	API_ENTER(API_CONTEXT);
	if (!handle || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	phys = calloc(1, sizeof(*phys));
	if (!phys)
		return CUDA_ERROR_OUT_OF_MEMORY;
	error = phys_import(phys, (int)(intptr_t)osHandle);
	if (error) {
		free(phys);
		return error == -ENODEV ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
	}
	phys->is_own_fd = true;
	phys->is_imported = true;
	phys->n_handles = 1;
	phys->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	phys->prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	space_write_lock();
	if (phys_add(phys)) {
		*handle = phys_handle(phys);
		if (phys->token >= 0)
			node_passed_hold(phys_node(phys), (int64_t)phys->size);
	} else {
		close(phys->fd);
		if (phys->token >= 0)
			close(phys->token);
		free(phys);
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	space_unlock();
	return r;
}
