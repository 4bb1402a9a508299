/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/pager/transfer.h"

#include "hook/device.h"
#include "hook/hook_log.h"
#include "hook/hook_options.h"
#include "hook/table/cuda_real.h"
#include "util/clock.h"
#include "util/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Descriptors are the program's, too, and it may have few. */
#define PARCELS_MAX 64
#define KEPT_MAX    256
#define KEPT_PART   8 /* of what it may open */
/* The scheduler's word follows what was handed over within milliseconds. */
#define LINGER_NS CLOCK_NS_PER_SEC
/* Anybody may send to a name: whoever sends what is none of ours is not listened to so long. */
#define DEAF_NS     (10 * CLOCK_NS_PER_MS)
#define LETTERS_MAX 256 /* at a time */
#define MAGIC       0x6e767368616e6431ull

struct letter {
	uint8_t key[16]; /* nvshare_door::key */
	uint64_t magic;
	uint64_t size; /* bytes of the memory that comes with it */
};

/* What a well-formed one brings, and room to see that there is more. */
union control {
	struct cmsghdr header; /* for its alignment */
	char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(4 * sizeof(int))];
};

struct parcel {
	int fd; /* atomic: a forked child closes what is noted; -1: none */
	uint64_t size;
};

struct door {
	int fd; /* the same */
	struct nvshare_door name;
	uint64_t came_ns; /* the last parcel */
	uint64_t deaf_ns; /* until then; 0: it listens */
	size_t n_parcels;
	struct parcel parcels[PARCELS_MAX];
};

static struct {
	struct door doors[DEVICE_COUNT_MAX];
	CUdevice aim_dev;
	uint64_t aim_bytes; /* left */
	struct nvshare_door aim;
	int kept[KEPT_MAX]; /* as parcel::fd; taken by the agent, given up by any thread */
	int in_hand;        /* the same: the agent's, on its way from one of these to another */
} transfer = {
	.doors = {[0 ... DEVICE_COUNT_MAX -
		   1] = {.fd = -1, .parcels = {[0 ... PARCELS_MAX - 1] = {.fd = -1}}}},
	.kept = {[0 ... KEPT_MAX - 1] = -1},
	.in_hand = -1,
};

/* Forgotten before it is closed: by then it may be the number of a file of a child's. */
static int forget(int *noted)
{
	return __atomic_exchange_n(noted, -1, __ATOMIC_ACQ_REL);
}

/*
 * Noted before it is forgotten where it was: for a moment it is noted twice, and a child closes
 * it twice, with nothing opened between.
 */
static int note(int *where, int fd)
{
	__atomic_store_n(where, fd, __ATOMIC_RELEASE);
	return fd;
}

static struct door *door_of(CUdevice dev)
{
	return dev >= 0 && dev < DEVICE_COUNT_MAX ? &transfer.doors[dev] : NULL;
}

bool transfer_supported(CUdevice dev)
{
	int can = 0;

	return hook_options()->transfer && cuda_real.cuMemExportToShareableHandle &&
	       cuda_real.cuMemImportFromShareableHandle && cuda_real.cuDeviceGetAttribute &&
	       cuda_real.cuDeviceGetAttribute(
		       &can, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
		       dev) == CUDA_SUCCESS &&
	       can;
}

/* ---- the door ---------------------------------------------------------------- */

/* addr: zero. */
static socklen_t address_of(const struct nvshare_door *door, struct sockaddr_un *addr)
{
	char *at = addr->sun_path + 1; /* abstract: the name begins with a NUL */
	size_t left = sizeof(addr->sun_path) - 1;
	int n = snprintf(at, left, "nvshare-");

	for (size_t i = 0; i < sizeof(door->name); i++)
		n += snprintf(at + n, left - (size_t)n, "%02x", door->name[i]);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int open_socket(const struct nvshare_door *name)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	socklen_t len = address_of(name, &addr);

	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0 &&
	    bind(fd, (const struct sockaddr *)&addr, len) == 0)
		return fd;
	(void)fd_close(fd);
	return -EADDRNOTAVAIL;
}

void transfer_open(CUdevice dev, struct nvshare_door *ret_door)
{
	struct door *door = door_of(dev);
	struct nvshare_door name;
	int fd;

	memset(ret_door, 0, sizeof(*ret_door));
	transfer_close(dev);
	if (!door || !transfer_supported(dev) ||
	    getrandom(&name, sizeof(name), GRND_NONBLOCK) != (ssize_t)sizeof(name))
		return;
	fd = open_socket(&name);
	if (fd < 0) {
		hook_debug("device %d: no door: %s", (int)dev, strerror(-fd));
		return;
	}
	door->name = name;
	door->deaf_ns = 0;
	(void)note(&door->fd, fd);
	*ret_door = name;
}

static bool close_parcels(struct door *door)
{
	bool has_any = door->n_parcels > 0;

	for (size_t i = 0; i < door->n_parcels; i++)
		(void)fd_close(forget(&door->parcels[i].fd));
	door->n_parcels = 0;
	return has_any;
}

void transfer_close(CUdevice dev)
{
	struct door *door = door_of(dev);

	if (!door)
		return;
	/* With the socket goes what nobody has received. */
	(void)fd_close(forget(&door->fd));
	(void)close_parcels(door);
}

/* ---- in ------------------------------------------------------------------------ */

struct mail {
	struct letter letter;
	int fds[4];
	size_t n_fds;
	bool is_ours; /* sent by this user */
	union control control;
};

static void read_control(struct msghdr *message, struct mail *mail)
{
	struct ucred cred;

	for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
	     header = CMSG_NXTHDR(message, header)) {
		size_t len = header->cmsg_len - CMSG_LEN(0);

		if (header->cmsg_level != SOL_SOCKET)
			continue;
		if (header->cmsg_type == SCM_CREDENTIALS && len == sizeof(cred)) {
			memcpy(&cred, CMSG_DATA(header), sizeof(cred));
			mail->is_ours = cred.uid == geteuid();
		}
		if (header->cmsg_type == SCM_RIGHTS && len <= sizeof(mail->fds)) {
			memcpy(mail->fds, CMSG_DATA(header), len);
			mail->n_fds = len / sizeof(mail->fds[0]);
		}
	}
}

static bool is_well_formed(const struct door *door, const struct mail *mail, ssize_t n, int flags)
{
	return n == (ssize_t)sizeof(mail->letter) && !(flags & (MSG_TRUNC | MSG_CTRUNC)) &&
	       mail->is_ours && mail->n_fds == 1 && mail->letter.magic == MAGIC &&
	       mail->letter.size &&
	       memcmp(mail->letter.key, door->name.key, sizeof(mail->letter.key)) == 0;
}

/* Takes what came. false: nothing is there, or nothing of ours. */
static bool receive_one(struct door *door)
{
	struct mail mail = {.n_fds = 0};
	struct iovec part = {&mail.letter, sizeof(mail.letter)};
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &mail.control,
		.msg_controllen = sizeof(mail.control),
	};
	ssize_t n = recvmsg(door->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct parcel *parcel = &door->parcels[door->n_parcels];

	if (n < 0)
		return false;
	read_control(&message, &mail);
	if (mail.n_fds == 1)
		(void)note(&transfer.in_hand, mail.fds[0]);
	if (!is_well_formed(door, &mail, n, message.msg_flags)) {
		(void)forget(&transfer.in_hand);
		for (size_t i = 0; i < mail.n_fds; i++)
			(void)fd_close(mail.fds[i]);
		door->deaf_ns = clock_now_ns() + DEAF_NS;
		return true;
	}
	parcel->size = mail.letter.size;
	(void)note(&parcel->fd, mail.fds[0]);
	(void)forget(&transfer.in_hand);
	door->n_parcels++;
	door->came_ns = clock_now_ns();
	return true;
}

void transfer_receive(CUdevice dev)
{
	struct door *door = door_of(dev);

	if (!door || door->fd < 0)
		return;
	for (int i = 0; i < LETTERS_MAX && door->n_parcels < PARCELS_MAX; i++) {
		if (!receive_one(door))
			return;
	}
}

/* Full, it is not read until what lies there is used or closed: senders free theirs. */
int transfer_fd(CUdevice dev, uint64_t now_ns)
{
	const struct door *door = door_of(dev);

	if (!door || door->n_parcels == PARCELS_MAX || now_ns < door->deaf_ns)
		return -1;
	return door->fd;
}

uint64_t transfer_tick(CUdevice dev, uint64_t now_ns, bool is_needed)
{
	struct door *door = door_of(dev);
	uint64_t due = UINT64_MAX;

	if (!door || door->fd < 0)
		return UINT64_MAX;
	if (door->n_parcels && (!is_needed || now_ns >= door->came_ns + LINGER_NS))
		(void)close_parcels(door);
	if (door->n_parcels)
		due = door->came_ns + LINGER_NS;
	if (now_ns < door->deaf_ns && door->deaf_ns < due)
		due = door->deaf_ns;
	return due;
}

/* Of that size, out of the list and in hand; -1: none. */
static int take(struct door *door, size_t size)
{
	for (size_t i = 0; i < door->n_parcels; i++) {
		struct parcel *last = &door->parcels[door->n_parcels - 1];
		int fd = door->parcels[i].fd;

		if (door->parcels[i].size != size)
			continue;
		(void)note(&transfer.in_hand, fd);
		door->parcels[i].size = last->size;
		(void)note(&door->parcels[i].fd, last->fd);
		(void)forget(&last->fd);
		door->n_parcels--;
		return fd;
	}
	return -1;
}

static CUresult import(int fd, CUmemGenericAllocationHandle *ret_handle)
{
	return cuda_real.cuMemImportFromShareableHandle(ret_handle, (void *)(intptr_t)fd,
							CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

bool transfer_import(CUdevice dev, size_t size, CUmemGenericAllocationHandle *ret_handle,
		     unsigned int *ret_kept)
{
	struct door *door = door_of(dev);
	CUresult res;
	int fd;

	if (!door || door->fd < 0)
		return false;
	transfer_receive(dev);
	fd = take(door, size);
	if (fd < 0)
		return false;
	res = import(fd, ret_handle);
	if (res == CUDA_SUCCESS) {
		*ret_kept = transfer_keep(fd);
		return true;
	}
	transfer_discard(fd);
	hook_debug("device %d: memory could not be taken over: error %d", (int)dev, (int)res);
	return false;
}

/* ---- what can be handed on ------------------------------------------------------- */

static size_t kept_max(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur / KEPT_PART > KEPT_MAX)
		return KEPT_MAX;
	return (size_t)(limit.rlim_cur / KEPT_PART);
}

unsigned int transfer_keep(int fd)
{
	size_t max = kept_max();

	for (size_t i = 0; i < max; i++) {
		if (__atomic_load_n(&transfer.kept[i], __ATOMIC_ACQUIRE) >= 0)
			continue;
		(void)note(&transfer.kept[i], fd);
		(void)forget(&transfer.in_hand);
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
	fd = note(&transfer.in_hand, __atomic_load_n(&transfer.kept[kept - 1], __ATOMIC_ACQUIRE));
	(void)forget(&transfer.kept[kept - 1]);
	return fd;
}

void transfer_close_kept(unsigned int kept)
{
	if (kept)
		(void)fd_close(forget(&transfer.kept[kept - 1]));
}

void transfer_discard(int fd)
{
	(void)forget(&transfer.in_hand);
	(void)fd_close(fd);
}

bool transfer_drop(CUdevice dev)
{
	struct door *door = door_of(dev);
	bool has_any = false, has_more;

	if (!door || door->fd < 0)
		return false;
	do {
		transfer_receive(dev);
		has_more = door->n_parcels == PARCELS_MAX;
		has_any = close_parcels(door) || has_any;
	} while (has_more);
	return has_any;
}

/* ---- out ----------------------------------------------------------------------- */

void transfer_aim(CUdevice dev, const struct nvshare_door *door, uint64_t bytes)
{
	transfer.aim_dev = dev;
	transfer.aim_bytes = bytes;
	transfer.aim = *door;
}

static CUresult export(CUmemGenericAllocationHandle handle, int *ret_fd)
{
	CUresult res = cuda_real.cuMemExportToShareableHandle(
		ret_fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);

	if (res == CUDA_SUCCESS)
		(void)fcntl(note(&transfer.in_hand, *ret_fd), F_SETFD, FD_CLOEXEC);
	return res;
}

/* Datagrams leave through the own door. */
bool transfer_is_aimed(CUdevice dev)
{
	const struct door *door = door_of(dev);

	return door && door->fd >= 0 && transfer.aim_dev == dev && transfer.aim_bytes;
}

int transfer_export(CUdevice dev, CUmemGenericAllocationHandle handle)
{
	CUresult res;
	int fd = -1;

	if (!transfer_is_aimed(dev))
		return -1;
	res = export(handle, &fd);
	if (res == CUDA_SUCCESS)
		return fd;
	hook_debug("device %d: memory could not be handed over: error %d", (int)dev, (int)res);
	transfer.aim_bytes = 0;
	return -1;
}

static bool post(const struct door *door, int fd, size_t size)
{
	struct letter letter = {.magic = MAGIC, .size = size};
	struct iovec part = {&letter, sizeof(letter)};
	union control control = {.bytes = {0}};
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct msghdr message = {
		.msg_name = &addr,
		.msg_namelen = address_of(&transfer.aim, &addr),
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = CMSG_SPACE(sizeof(fd)),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	ssize_t n;

	memcpy(letter.key, transfer.aim.key, sizeof(letter.key));
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	do
		n = sendmsg(door->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno != EAGAIN)
		transfer.aim_bytes = 0; /* nobody is there any more, or not for us */
	return n >= 0;
}

bool transfer_send(CUdevice dev, int fd, size_t size)
{
	const struct door *door = door_of(dev);
	bool is_sent = door && door->fd >= 0 && post(door, fd, size);

	if (is_sent)
		transfer.aim_bytes -= size < transfer.aim_bytes ? size : transfer.aim_bytes;
	transfer_discard(fd);
	return is_sent;
}

/* What comes of it does not matter: these calls may fail. They must not wait for a lock. */
void transfer_probe(CUmemGenericAllocationHandle handle)
{
	CUmemGenericAllocationHandle again;
	int fd;

	if (export(handle, &fd) != CUDA_SUCCESS)
		return;
	if (import(fd, &again) == CUDA_SUCCESS)
		(void)cuda_real.cuMemRelease(again);
	transfer_discard(fd);
}

/* A door with two owners would be read by both; and memory would live as long as the child. */
void transfer_after_fork_child(void)
{
	for (CUdevice dev = 0; dev < DEVICE_COUNT_MAX; dev++) {
		struct door *door = &transfer.doors[dev];

		(void)fd_close(forget(&door->fd));
		for (size_t i = 0; i < PARCELS_MAX; i++)
			(void)fd_close(forget(&door->parcels[i].fd));
		door->n_parcels = 0;
	}
	for (size_t i = 0; i < KEPT_MAX; i++)
		(void)fd_close(forget(&transfer.kept[i]));
	(void)fd_close(forget(&transfer.in_hand));
	transfer.aim_bytes = 0;
}
