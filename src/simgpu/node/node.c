/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds, checks and makes the shared file. A process that opens or makes it holds a flock on
 * <dir>/lock, so that two first processes cannot make two nodes.
 */

#include "simgpu/node/node.h"

#include "util/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The magic depends on the layout: a process replaces the node of another build. */
#define NODE_MAGIC (0x6e76736873696d00ull ^ sizeof(struct node_shared) ^ 4)

struct node node_view;
static pthread_mutex_t attach_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER; /* taken before the node's lock */

void node_lock(void)
{
	pthread_mutex_lock(&own_lock);
	/* A dead holder leaves nothing to repair: each value is one word of one process. */
	if (pthread_mutex_lock(&node_view.shared->lock) == EOWNERDEAD)
		pthread_mutex_consistent(&node_view.shared->lock);
}

void node_unlock(void)
{
	pthread_mutex_unlock(&node_view.shared->lock);
	pthread_mutex_unlock(&own_lock);
}

void node_stop(void)
{
	pthread_mutex_lock(&own_lock);
	raise(SIGSTOP); /* sent to this thread, so it stops here */
	pthread_mutex_unlock(&own_lock);
}

static int make_dir(void)
{
	const char *dir = getenv("NVSHARE_SIM_DIR");
	struct stat st;

	if (dir && *dir)
		snprintf(node_view.dir, sizeof(node_view.dir), "%s", dir);
	else
		snprintf(node_view.dir, sizeof(node_view.dir), "/dev/shm/nvshare-sim-%u",
			 geteuid());
	if (mkdir(node_view.dir, 0700) < 0 && errno != EEXIST)
		return -errno;
	/* Anybody can guess the default name, so the directory must be this user's. */
	if (lstat(node_view.dir, &st) < 0)
		return -errno;
	if (!(dir && *dir) && (!S_ISDIR(st.st_mode) || st.st_uid != geteuid()))
		return -EPERM;
	return 0;
}

static int open_in_dir(const char *name, int flags)
{
	char path[sizeof(node_view.dir) + 16];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", node_view.dir, name);
	fd = open(path, flags | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd;
}

static int map_existing(struct node_shared **ret)
{
	struct node_shared *shared;
	struct stat st;
	int fd = open_in_dir("node", O_RDWR);

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0 || st.st_size != (off_t)sizeof(*shared)) {
		close(fd);
		return -EBADMSG;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (shared == MAP_FAILED)
		return -ENOMEM;
	if (shared->magic != NODE_MAGIC || shared->size != sizeof(*shared) ||
	    shared->config.n_devices == 0 || shared->config.n_devices > NODE_DEVICES_MAX) {
		munmap(shared, sizeof(*shared));
		return -EBADMSG;
	}
	*ret = shared;
	return 0;
}

static void configure(struct node_shared *shared)
{
	struct node_config *config = &shared->config;
	uint32_t per_gpu, i;

	node_config_read(config);
	per_gpu = config->n_mig ? config->n_mig : 1;
	memset(shared->device, 0, sizeof(shared->device));
	for (i = 0; i < config->n_devices; i++)
		shared->device[i].capacity = config->gpu_memory[i / per_gpu] / per_gpu;
	shared->device[NODE_HOST].capacity = config->host_memory;
}

/* A new file gets its name by rename(). Processes that have mapped the old file keep it. */
static int map_new(struct node_shared **ret)
{
	char from[sizeof(node_view.dir) + 16], to[sizeof(node_view.dir) + 16];
	struct node_shared *shared;
	pthread_mutexattr_t attr;
	int fd = open_in_dir("node.new", O_RDWR | O_CREAT | O_TRUNC);

	if (fd < 0)
		return fd;
	if (ftruncate(fd, sizeof(*shared)) < 0) {
		close(fd);
		return -errno;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (shared == MAP_FAILED)
		return -ENOMEM;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&shared->lock, &attr);
	pthread_mutexattr_destroy(&attr);
	configure(shared);
	shared->size = sizeof(*shared);
	shared->created_ns = clock_now_ns();
	shared->magic = NODE_MAGIC;

	snprintf(from, sizeof(from), "%s/node.new", node_view.dir);
	snprintf(to, sizeof(to), "%s/node", node_view.dir);
	if (rename(from, to) < 0) {
		munmap(shared, sizeof(*shared));
		return -errno;
	}
	*ret = shared;
	return 0;
}

static int take_slot(void)
{
	struct node_shared *shared = node_view.shared;
	struct node_proc *proc;
	uint32_t n_alive = 0, i;
	uint64_t start_time;

	if (!node_proc_start_time(node_proc_own(), &start_time))
		return -ESRCH;
	node_reap_locked();
	for (i = 0; i < shared->n_slots; i++)
		n_alive += shared->proc[i].pid != 0;
	/* The first process of a node defines the hardware. */
	if (n_alive == 0)
		configure(shared);
	for (i = 0; i < NODE_PROCS_MAX && shared->proc[i].pid; i++)
		;
	if (i == NODE_PROCS_MAX)
		return -EAGAIN;
	proc = &shared->proc[i];
	memset(proc, 0, sizeof(*proc));
	proc->start_time = start_time;
	proc->pid = node_proc_own();
	node_view.self = proc;
	if (shared->n_slots < i + 1)
		shared->n_slots = i + 1;
	return 0;
}

int node_attach(void)
{
	int lock_fd = -1, r = 0;

	pthread_mutex_lock(&attach_lock);
	if (node_view.self)
		goto out;
	r = make_dir();
	if (r < 0)
		goto out;
	lock_fd = open_in_dir("lock", O_RDWR | O_CREAT);
	if (lock_fd < 0) {
		r = lock_fd;
		goto out;
	}
	while (flock(lock_fd, LOCK_EX) < 0 && errno == EINTR)
		;
	if (!node_view.shared) {
		r = map_existing(&node_view.shared);
		if (r < 0)
			r = map_new(&node_view.shared);
		if (r < 0)
			goto out;
	}
	node_lock();
	r = take_slot();
	node_unlock();
out:
	if (lock_fd >= 0)
		close(lock_fd);
	pthread_mutex_unlock(&attach_lock);
	return r;
}

void node_detach(void)
{
	unsigned int i;

	pthread_mutex_lock(&attach_lock);
	if (node_view.self) {
		for (i = 0; i < node_view.shared->config.n_devices; i++)
			node_token_drop(i);
		node_lock();
		__atomic_store_n(&node_view.self->pid, 0, __ATOMIC_RELEASE);
		node_view.self = NULL;
		node_unlock();
	}
	pthread_mutex_unlock(&attach_lock);
}

void node_leave(void)
{
	unsigned int i;

	if (!node_view.self)
		return;
	for (i = 0; i < node_view.shared->config.n_devices; i++)
		node_token_drop(i);
	node_lock();
	for (i = 0; i <= NODE_HOST; i++)
		node_view.self->device[i].used = node_view.self->device[i].passed = 0;
	node_unlock();
}

void node_forget(void)
{
	pthread_mutex_init(&attach_lock, NULL);
	pthread_mutex_init(&own_lock, NULL);
	node_view.self = NULL;
	if (node_view.shared)
		munmap(node_view.shared, sizeof(*node_view.shared));
	node_view.shared = NULL;
}
