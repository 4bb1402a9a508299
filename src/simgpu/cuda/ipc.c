/* SPDX-License-Identifier: Apache-2.0 */

#include "simgpu/cuda/ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "simgpu/cuda/api.h"
#include "simgpu/cuda/hold.h"
#include "simgpu/cuda/space.h"
#include "simgpu/cuda/state.h"

#define IPC_MAGIC   0x6e76732d69706321ull
#define IPC_NAME    "nvshare-simgpu-ipc"
#define IPC_NAME_ID 64

/* Pages of this process that have a handle. */
struct shared_pages {
	struct shared_pages *next;
	uint64_t addr, size;
	uint64_t id; /* random, a part of the memfd's name: a later file has another one */
	int fd;
};

/* CUipcMemHandle holds this. */
struct content {
	uint64_t magic;
	uint64_t id;
	uint32_t pid; /* as the node's processes know it */
	int32_t fd;   /* in that process */
	uint32_t device;
	uint32_t unused;
	uint64_t pages_size;
	uint64_t offset, size; /* of the allocation, in the pages */
};
_Static_assert(sizeof(struct content) <= sizeof(CUipcMemHandle), "a handle holds it");

static struct shared_pages *list; /* space's write lock guards it */

static struct shared_pages *pages_of(uint64_t addr)
{
	struct shared_pages *pages = list;

	while (pages && addr - pages->addr >= pages->size)
		pages = pages->next;
	return pages;
}

static bool write_all(int fd, uint64_t addr, uint64_t size)
{
	uint64_t done = 0;
	ssize_t n = 1;

	while (done < size && n > 0) {
		n = pwrite(fd, (const void *)(uintptr_t)(addr + done), size - done, (off_t)done);
		done += n > 0 ? (uint64_t)n : 0;
	}
	return done == size;
}

static void *map_file(uint64_t addr, uint64_t size, int fd)
{
	void *p = mmap((void *)(uintptr_t)addr, size, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_FIXED, fd, 0);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, size, MADV_DONTFORK);
	madvise(p, size, MADV_DONTDUMP);
	return p;
}

/* The write lock keeps kernels and copies out while the pages change their place. */
static CUresult share_pages(struct shared_pages *pages)
{
	char name[IPC_NAME_ID];

	if (getrandom(&pages->id, sizeof(pages->id), 0) != (ssize_t)sizeof(pages->id))
		return CUDA_ERROR_OPERATING_SYSTEM;
	(void)snprintf(name, sizeof(name), IPC_NAME "-%016llx", (unsigned long long)pages->id);
	pages->fd = memfd_create(name, MFD_CLOEXEC);
	if (pages->fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (ftruncate(pages->fd, (off_t)pages->size) == 0 &&
	    write_all(pages->fd, pages->addr, pages->size) &&
	    map_file(pages->addr, pages->size, pages->fd))
		return CUDA_SUCCESS;
	close(pages->fd);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/*
 * A small allocation shares its block, and with it all that lies there, as on a card. Afterwards
 * pages_of() finds the pages.
 */
static CUresult pages_share(const struct range *range)
{
	struct shared_pages *pages;
	CUresult r;

	if (pages_of(range->addr))
		return CUDA_SUCCESS;
	pages = calloc(1, sizeof(*pages));
	if (!pages)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pages->addr = range->addr / SPACE_GRANULARITY * SPACE_GRANULARITY;
	pages->size = range->block ? SPACE_GRANULARITY : range->charged;
	r = share_pages(pages);
	if (r) {
		free(pages);
		return r;
	}
	pages->next = list;
	list = pages;
	return CUDA_SUCCESS;
}

void ipc_pages_gone(uint64_t addr)
{
	struct shared_pages **link = &list, *pages;

	while ((pages = *link) && pages->addr != addr)
		link = &pages->next;
	if (!pages)
		return;
	*link = pages->next;
	close(pages->fd);
	free(pages);
}

void ipc_forget(void)
{
	for (struct shared_pages *pages = list; pages; pages = pages->next)
		close(pages->fd);
	list = NULL;
}

static void fill_handle(CUipcMemHandle *ret, const struct range *range,
			const struct shared_pages *pages)
{
	struct content content = {
		.magic = IPC_MAGIC,
		.id = pages->id,
		.pid = node_proc_own(),
		.fd = pages->fd,
		.device = device_node(range->device),
		.pages_size = pages->size,
		.offset = range->addr - pages->addr,
		.size = range->size,
	};

	memset(ret, 0, sizeof(*ret));
	memcpy(ret, &content, sizeof(content));
}

API(cuIpcGetMemHandle, (CUipcMemHandle * pHandle, CUdeviceptr dptr))
{
	const struct shared_pages *pages;
	const struct range *range;
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	API_ENTER(API_CONTEXT);
	if (!pHandle)
		return CUDA_ERROR_INVALID_VALUE;
	space_write_lock();
	range = space_find(dptr);
	if (range && range->kind == RANGE_PLAIN)
		r = pages_share(range);
	pages = r ? NULL : pages_of(range->addr);
	if (pages)
		fill_handle(pHandle, range, pages);
	space_unlock();
	return r;
}

/* The owner's descriptor, if it still is that of the pages. -errno. */
static int open_pages(const struct content *content)
{
	char path[PATH_MAX], name[IPC_NAME_ID + 32], wanted[IPC_NAME_ID + 32];
	struct stat st;
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%u/fd/%d", node_proc_folder(), content->pid,
		       content->fd);
	(void)snprintf(wanted, sizeof(wanted), "/memfd:" IPC_NAME "-%016llx ",
		       (unsigned long long)content->id);
	n = readlink(path, name, sizeof(name) - 1);
	if (n < 0)
		return -errno;
	name[n] = '\0';
	if (strncmp(name, wanted, strlen(wanted)) != 0)
		return -ENOENT;
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) == 0 && (uint64_t)st.st_size == content->pages_size)
		return fd;
	close(fd);
	return -ENOENT;
}

static CUresult map_opened(struct CUctx_st *ctx, int device, const struct content *content, int fd,
			   CUdeviceptr *ret_ptr)
{
	struct range *range = calloc(1, sizeof(*range));
	void *pages = range ? space_pages_reserve(content->pages_size, 0) : NULL;

	if (!pages || !map_file((uintptr_t)pages, content->pages_size, fd)) {
		if (pages)
			space_pages_free(pages, content->pages_size);
		free(range);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	range->addr = (uintptr_t)pages + content->offset;
	range->size = content->size;
	range->mapped = content->pages_size;
	range->kind = RANGE_OPENED;
	range->device = device;
	range->ctx = ctx;
	range->id = content->id;
	range->n_opens = 1;
	if (space_insert(range) < 0) {
		ipc_unmap(range);
		free(range);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_ptr = range->addr;
	return CUDA_SUCCESS;
}

void ipc_unmap(struct range *range)
{
	uint64_t pages = range->addr / SPACE_GRANULARITY * SPACE_GRANULARITY;

	space_pages_free((void *)(uintptr_t)pages, range->mapped);
}

static struct range *opened_range(const struct CUctx_st *ctx, const struct content *content)
{
	struct range *range = space_next(0);

	while (range &&
	       !(range->kind == RANGE_OPENED && range->ctx == ctx && range->id == content->id &&
		 range->addr % SPACE_GRANULARITY == content->offset))
		range = space_next(range->addr + 1);
	return range;
}

static CUresult open_handle(CUdeviceptr *ret_ptr, const CUipcMemHandle *handle, unsigned int flags)
{
	struct CUctx_st *ctx = context_current();
	struct content content;
	struct range *range;
	int device, fd;
	CUresult r;

	memcpy(&content, handle, sizeof(content));
	if (!ret_ptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || content.magic != IPC_MAGIC)
		return CUDA_ERROR_INVALID_VALUE;
	if (content.pid == node_proc_own())
		return CUDA_ERROR_INVALID_CONTEXT;
	device = device_ordinal(content.device);
	if (device < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	fd = open_pages(&content);
	if (fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	space_write_lock();
	range = opened_range(ctx, &content);
	if (range) {
		range->n_opens++;
		*ret_ptr = range->addr;
		r = CUDA_SUCCESS;
	} else {
		r = map_opened(ctx, device, &content, fd, ret_ptr);
	}
	space_unlock();
	close(fd);
	return r;
}

API(cuIpcOpenMemHandle, (CUdeviceptr * pdptr, CUipcMemHandle handle, unsigned int Flags))
{
	API_ENTER(API_CONTEXT);
	return open_handle(pdptr, &handle, Flags);
}

API(cuIpcOpenMemHandle_v2, (CUdeviceptr * pdptr, CUipcMemHandle handle, unsigned int Flags))
{
	API_ENTER(API_CONTEXT);
	return open_handle(pdptr, &handle, Flags);
}

/* Queued work may use the memory, so its context's end is waited for, as in cuMemFree. */
API(cuIpcCloseMemHandle, (CUdeviceptr dptr))
{
	struct CUctx_st *ctx = NULL;
	struct range *range;
	CUresult r;

	API_ENTER(API_CONTEXT);
	space_read_lock();
	range = space_find(dptr);
	if (range && range->addr == dptr && range->kind == RANGE_OPENED)
		ctx = range->ctx;
	space_unlock();
	if (!ctx)
		return CUDA_ERROR_INVALID_VALUE;
	state_lock();
	r = hold_drain(ctx);
	state_unlock();
	if (r)
		return r;
	space_write_lock();
	range = space_find(dptr);
	if (!range || range->addr != dptr || range->kind != RANGE_OPENED)
		r = CUDA_ERROR_INVALID_VALUE; /* another thread has closed it */
	else if (--range->n_opens == 0)
		space_free(range);
	space_unlock();
	return r;
}
