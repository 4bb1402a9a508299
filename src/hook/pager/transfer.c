/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/pager/transfer.h"

#include "hook/base/hook_log.h"
#include "hook/base/hook_options.h"
#include "hook/base/own_fd.h"
#include "hook/gate/device.h"
#include "hook/table/cuda_real.h"
#include "ipc/pass.h"
#include "util/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* Descriptors are the program's, too, and it may have few. */
#define PARCELS_MAX 64
#define KEPT_MAX    256
#define KEPT_PART   8 /* of the descriptors that it may open */
/* The scheduler's message follows handed memory within milliseconds. */
#define LINGER_NS   CLOCK_NS_PER_SEC
#define LETTERS_MAX 256 /* at a time */
#define MAGIC       0x6e767368616e6431ull

struct letter {
	uint64_t magic;
	uint64_t size; /* bytes of the memory that comes with it */
};

struct parcel {
	int fd; /* atomic: a forked child closes what is noted; -1: none */
	uint64_t size;
};

struct stock {
	int sink;                          /* the same */
	int sources[TRANSFER_SOURCES_MAX]; /* the same; the oldest first */
	uint64_t came_ns;                  /* the last parcel */
	uint64_t aim_bytes;                /* that may still go into the sink */
	size_t n_parcels;
	struct parcel parcels[PARCELS_MAX];
};

/* The agent's, unless said otherwise. */
static struct {
	struct stock stocks[DEVICE_COUNT_MAX];
	int kept[KEPT_MAX]; /* as parcel::fd, atomic; the agent fills a place, any thread clears it
			     */
	int in_hand;        /* the same; the descriptor that the agent moves from place to place */
} transfer = {
	.stocks = {[0 ... DEVICE_COUNT_MAX -
		    1] = {.sink = -1,
			  .sources = {[0 ... TRANSFER_SOURCES_MAX - 1] = -1},
			  .parcels = {[0 ... PARCELS_MAX - 1] = {.fd = -1}}}},
	.kept = {[0 ... KEPT_MAX - 1] = -1},
	.in_hand = -1,
};

/* Forgotten before it is closed: by then it may be the number of a file of a child's. */
static int parcel_forget(int *noted)
{
	return __atomic_exchange_n(noted, -1, __ATOMIC_ACQ_REL);
}

/*
 * Noted before it is forgotten where it was: for a moment it is noted twice, and a child closes
 * it twice, with nothing opened between.
 */
static int parcel_note(int *where, int fd)
{
	__atomic_store_n(where, fd, __ATOMIC_RELEASE);
	return fd;
}

static void parcel_close(int *noted)
{
	(void)own_fd_close(parcel_forget(noted));
}

static struct stock *transfer_stock_of(CUdevice dev)
{
	return dev >= 0 && dev < DEVICE_COUNT_MAX ? &transfer.stocks[dev] : NULL;
}

bool transfer_can_export(CUdevice dev)
{
	int can = 0;

	return cuda_real.cuMemExportToShareableHandle && cuda_real.cuMemImportFromShareableHandle &&
	       cuda_real.cuDeviceGetAttribute &&
	       cuda_real.cuDeviceGetAttribute(
		       &can, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
		       dev) == CUDA_SUCCESS &&
	       can;
}

bool transfer_supported(CUdevice dev)
{
	return hook_options()->transfer && transfer_can_export(dev);
}

/* ---- in ------------------------------------------------------------------------ */

static bool stock_close_parcels(struct stock *stock)
{
	bool has_any = stock->n_parcels > 0;

	for (size_t i = 0; i < stock->n_parcels; i++)
		parcel_close(&stock->parcels[i].fd);
	stock->n_parcels = 0;
	return has_any;
}

/*
 * It must stop taking first, because a child of this moment may hold it, too. Then it receives all
 * packets in its queue: close() would wait as long as a descriptor in there makes it wait.
 */
static void source_close(int *source)
{
	struct letter letter = {.size = 0};
	struct pass pass;
	int fd = own_fd_of(*source);

	if (*source < 0)
		return;
	(void)shutdown(fd, SHUT_RD);
	while (pass_recv(fd, &letter, sizeof(letter), &pass) > 0 || pass.fd >= 0) {
		(void)parcel_note(&transfer.in_hand, pass.fd);
		pass_close(parcel_forget(&transfer.in_hand));
	}
	parcel_close(source);
}

void transfer_add_source(CUdevice dev, int fd)
{
	struct stock *stock = transfer_stock_of(dev);
	size_t at = 0;

	fd = parcel_note(&transfer.in_hand, own_fd_take(fd));
	if (!stock || fd < 0) {
		transfer_discard(fd);
		return;
	}
	while (at < TRANSFER_SOURCES_MAX && stock->sources[at] >= 0)
		at++;
	if (at == TRANSFER_SOURCES_MAX) {
		source_close(&stock->sources[0]);
		for (at = 0; at < TRANSFER_SOURCES_MAX - 1; at++) {
			(void)parcel_note(&stock->sources[at], stock->sources[at + 1]);
			(void)parcel_forget(&stock->sources[at + 1]);
		}
	}
	(void)parcel_note(&stock->sources[at], fd);
	(void)parcel_forget(&transfer.in_hand);
}

/*
 * Ends the pair: the other program takes the packets that are there, and learns that no more come.
 */
static void sink_close(struct stock *stock)
{
	if (own_fd_of(stock->sink) >= 0)
		(void)shutdown(stock->sink, SHUT_RDWR); /* a child may have it */
	parcel_close(&stock->sink);
}

void transfer_set_sink(CUdevice dev, int fd)
{
	struct stock *stock = transfer_stock_of(dev);

	fd = parcel_note(&transfer.in_hand, own_fd_take(fd));
	if (!stock || fd < 0) {
		transfer_discard(fd);
		return;
	}
	sink_close(stock);
	(void)parcel_note(&stock->sink, fd);
	(void)parcel_forget(&transfer.in_hand);
}

void transfer_close(CUdevice dev)
{
	struct stock *stock = transfer_stock_of(dev);

	if (!stock)
		return;
	sink_close(stock);
	for (size_t i = 0; i < TRANSFER_SOURCES_MAX; i++)
		source_close(&stock->sources[i]);
	(void)stock_close_parcels(stock);
}

/* One packet of a source. false: none is there, or the source has come to its end. */
static bool source_receive_one(struct stock *stock, int *source)
{
	struct parcel *parcel = &stock->parcels[stock->n_parcels];
	struct letter letters[2]; /* room to see that one is too long */
	struct pass pass;
	ssize_t n = pass_recv(own_fd_of(*source), letters, sizeof(letters), &pass);

	if (n == -EAGAIN)
		return false;
	pass.fd = parcel_note(&transfer.in_hand, own_fd_take(pass.fd));
	/* Another uid: the sender has dropped its privileges since it was introduced. */
	if (n != (ssize_t)sizeof(letters[0]) || pass.fd < 0 || pass.uid != geteuid() ||
	    letters[0].magic != MAGIC || !letters[0].size) {
		pass_close(own_fd_forget(parcel_forget(&transfer.in_hand)));
		source_close(source);
		return false;
	}
	parcel->size = letters[0].size;
	(void)parcel_note(&parcel->fd, pass.fd);
	(void)parcel_forget(&transfer.in_hand);
	stock->n_parcels++;
	stock->came_ns = clock_now_ns();
	return true;
}

void transfer_receive(CUdevice dev)
{
	struct stock *stock = transfer_stock_of(dev);

	for (size_t i = 0; stock && i < TRANSFER_SOURCES_MAX; i++) {
		if (stock->sources[i] < 0)
			continue;
		for (int n = 0; n < LETTERS_MAX; n++) {
			if (stock->n_parcels == PARCELS_MAX)
				return;
			if (!source_receive_one(stock, &stock->sources[i]))
				break;
		}
	}
}

/* A full stock is not read until memory in it is used or closed. The senders free theirs then. */
size_t transfer_fds(CUdevice dev, int ret_fds[TRANSFER_SOURCES_MAX])
{
	const struct stock *stock = transfer_stock_of(dev);
	size_t n = 0;

	if (!stock || stock->n_parcels == PARCELS_MAX)
		return 0;
	for (size_t i = 0; i < TRANSFER_SOURCES_MAX; i++) {
		if (stock->sources[i] >= 0)
			ret_fds[n++] = stock->sources[i];
	}
	return n;
}

uint64_t transfer_tick(CUdevice dev, uint64_t now_ns, bool is_needed)
{
	struct stock *stock = transfer_stock_of(dev);

	if (!stock || !stock->n_parcels)
		return UINT64_MAX;
	if (is_needed && now_ns < stock->came_ns + LINGER_NS)
		return stock->came_ns + LINGER_NS;
	(void)stock_close_parcels(stock);
	return UINT64_MAX;
}

/* Of that size, out of the list and in hand; -1: none. */
static int stock_take(struct stock *stock, size_t size)
{
	for (size_t i = 0; i < stock->n_parcels; i++) {
		struct parcel *last = &stock->parcels[stock->n_parcels - 1];
		int fd = stock->parcels[i].fd;

		if (stock->parcels[i].size != size)
			continue;
		(void)parcel_note(&transfer.in_hand, fd);
		stock->parcels[i].size = last->size;
		(void)parcel_note(&stock->parcels[i].fd, last->fd);
		(void)parcel_forget(&last->fd);
		stock->n_parcels--;
		return fd;
	}
	return -1;
}

static CUresult parcel_import(int fd, CUmemGenericAllocationHandle *ret_handle)
{
	return cuda_real.cuMemImportFromShareableHandle(ret_handle, (void *)(intptr_t)own_fd_of(fd),
							CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

bool transfer_import(CUdevice dev, size_t size, CUmemGenericAllocationHandle *ret_handle,
		     unsigned int *ret_kept)
{
	struct stock *stock = transfer_stock_of(dev);
	CUresult res;
	int fd;

	if (!stock)
		return false;
	transfer_receive(dev);
	fd = stock_take(stock, size);
	if (fd < 0)
		return false;
	res = parcel_import(fd, ret_handle);
	if (res == CUDA_SUCCESS) {
		*ret_kept = transfer_keep(fd);
		return true;
	}
	transfer_discard(fd);
	hook_debug("device %d: memory could not be taken over: error %d", (int)dev, (int)res);
	return false;
}

/* ---- memory that can be handed over ----------------------------------------------- */

static size_t transfer_kept_max(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur / KEPT_PART > KEPT_MAX)
		return KEPT_MAX;
	return (size_t)(limit.rlim_cur / KEPT_PART);
}

unsigned int transfer_keep(int fd)
{
	size_t max = transfer_kept_max();

	for (size_t i = 0; i < max; i++) {
		if (__atomic_load_n(&transfer.kept[i], __ATOMIC_ACQUIRE) >= 0)
			continue;
		(void)parcel_note(&transfer.kept[i], fd);
		(void)parcel_forget(&transfer.in_hand);
		return (unsigned int)i + 1;
	}
	transfer_discard(fd);
	return 0;
}

int transfer_take_kept(unsigned int kept)
{
	int fd;

	if (!kept)
		return -1;
	fd = parcel_note(&transfer.in_hand,
			 __atomic_load_n(&transfer.kept[kept - 1], __ATOMIC_ACQUIRE));
	(void)parcel_forget(&transfer.kept[kept - 1]);
	return fd;
}

void transfer_close_kept(unsigned int kept)
{
	if (kept)
		parcel_close(&transfer.kept[kept - 1]);
}

void transfer_discard(int fd)
{
	(void)parcel_forget(&transfer.in_hand);
	(void)own_fd_close(fd);
}

bool transfer_drop(CUdevice dev)
{
	struct stock *stock = transfer_stock_of(dev);
	bool has_any = false, has_more;

	if (!stock)
		return false;
	do {
		transfer_receive(dev);
		has_more = stock->n_parcels == PARCELS_MAX;
		has_any = stock_close_parcels(stock) || has_any;
	} while (has_more);
	return has_any;
}

/* ---- out ----------------------------------------------------------------------- */

void transfer_aim(CUdevice dev, uint64_t bytes)
{
	struct stock *stock = transfer_stock_of(dev);

	if (!stock)
		return;
	stock->aim_bytes = bytes;
	if (!bytes)
		sink_close(stock);
}

static CUresult chunk_export(CUmemGenericAllocationHandle handle, int *ret_fd)
{
	CUresult res = cuda_real.cuMemExportToShareableHandle(
		ret_fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);

	if (res != CUDA_SUCCESS)
		return res;
	*ret_fd = parcel_note(&transfer.in_hand, own_fd_take(*ret_fd));
	return *ret_fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

bool transfer_is_aimed(CUdevice dev)
{
	const struct stock *stock = transfer_stock_of(dev);

	return hook_options()->transfer && stock && stock->sink >= 0 && stock->aim_bytes;
}

int transfer_export(CUdevice dev, CUmemGenericAllocationHandle handle)
{
	CUresult res;
	int fd = -1;

	if (!transfer_is_aimed(dev))
		return -1;
	res = chunk_export(handle, &fd);
	if (res == CUDA_SUCCESS)
		return fd;
	hook_debug("device %d: memory could not be handed over: error %d", (int)dev, (int)res);
	transfer_stock_of(dev)->aim_bytes = 0;
	return -1;
}

bool transfer_send(CUdevice dev, int fd, size_t size)
{
	const struct letter letter = {.magic = MAGIC, .size = size};
	struct stock *stock = transfer_stock_of(dev);
	int r = -EPIPE;

	if (stock && stock->sink >= 0)
		r = pass_send(own_fd_of(stock->sink), &letter, sizeof(letter), own_fd_of(fd));
	if (stock && !r)
		stock->aim_bytes -= size < stock->aim_bytes ? size : stock->aim_bytes;
	else if (stock && r != -EAGAIN)
		stock->aim_bytes = 0; /* the other end is closed */
	transfer_discard(fd);
	return !r;
}

/* The results do not matter, so these calls may fail. They must not wait for a lock. */
void transfer_probe(CUmemGenericAllocationHandle handle)
{
	CUmemGenericAllocationHandle again;
	int fd;

	if (!hook_options()->transfer || chunk_export(handle, &fd) != CUDA_SUCCESS)
		return;
	if (parcel_import(fd, &again) == CUDA_SUCCESS)
		(void)cuda_real.cuMemRelease(again);
	transfer_discard(fd);
}

int transfer_copy_kept(unsigned int kept)
{
	int fd = kept ? own_fd_of(__atomic_load_n(&transfer.kept[kept - 1], __ATOMIC_ACQUIRE)) : -1;

	return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

/* Two processes would read one source; and memory would live as long as the child. */
void transfer_after_fork_child(void)
{
	for (CUdevice dev = 0; dev < DEVICE_COUNT_MAX; dev++) {
		struct stock *stock = &transfer.stocks[dev];

		parcel_close(&stock->sink);
		for (size_t i = 0; i < TRANSFER_SOURCES_MAX; i++)
			parcel_close(&stock->sources[i]);
		for (size_t i = 0; i < PARCELS_MAX; i++)
			parcel_close(&stock->parcels[i].fd);
		stock->n_parcels = 0;
		stock->aim_bytes = 0;
	}
	for (size_t i = 0; i < KEPT_MAX; i++)
		parcel_close(&transfer.kept[i]);
	parcel_close(&transfer.in_hand);
}
