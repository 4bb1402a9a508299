/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIMGPU_NVML_FIXTURE_H
#define NVS_TESTS_SIMGPU_NVML_FIXTURE_H

/*
 * A node of its own for each test program that asks NVML, and processes beside it. What only
 * other processes can do, holding memory and computing, is done in a peer's name: a child
 * takes a slot of the node by using NVML, and the test writes the numbers into that slot.
 */

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "abi/nvml_abi.h"
#include "simgpu/node/node.h"
#include "util/clock.h"

#define MIB (1ull << 20)

static char dir[] = "/tmp/nvshare-test-nvml-XXXXXX";
static pid_t peers[4];
static unsigned int n_peers;

/* Nobody uses the node between two tests, so each says anew what the hardware is. */
static inline void start(const char *gpus, const char *mig, const char *memory)
{
	setenv("NVSHARE_SIM_GPUS", gpus, 1);
	setenv("NVSHARE_SIM_MIG", mig, 1);
	setenv("NVSHARE_SIM_MEMORY", memory, 1);
	assert_int_equal(nvmlInit_v2(), NVML_SUCCESS);
}

/* Until it is dead and gone. */
static inline void kill_peer(pid_t pid)
{
	unsigned int i;

	for (i = 0; i < n_peers; i++)
		if (peers[i] == pid)
			peers[i] = peers[--n_peers];
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Also what a failed test left. */
static inline int stop(void **state)
{
	(void)state;
	while (n_peers > 0)
		kill_peer(peers[n_peers - 1]);
	while (nvmlShutdown() == NVML_SUCCESS)
		;
	return 0;
}

static inline nvmlDevice_t gpu(unsigned int index)
{
	nvmlDevice_t device;

	assert_int_equal(nvmlDeviceGetHandleByIndex_v2(index, &device), NVML_SUCCESS);
	return device;
}

static inline nvmlDevice_t mig(unsigned int gpu_index, unsigned int index)
{
	nvmlDevice_t device;

	assert_int_equal(nvmlDeviceGetMigDeviceHandleByIndex(gpu(gpu_index), index, &device),
			 NVML_SUCCESS);
	return device;
}

static inline void inject(const char *line)
{
	char path[sizeof(dir) + 16];
	FILE *file;

	snprintf(path, sizeof(path), "%s/inject", dir);
	file = fopen(path, "a");
	assert_non_null(file);
	fprintf(file, "%s\n", line);
	assert_int_equal(fclose(file), 0);
}

static inline struct node_shared *map_node(void)
{
	char path[sizeof(dir) + 16];
	struct node_shared *shared;
	int fd;

	snprintf(path, sizeof(path), "%s/node", dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	assert_ptr_not_equal(shared, MAP_FAILED);
	return shared;
}

static inline struct node_proc *slot_of(struct node_shared *shared, pid_t pid)
{
	unsigned int i;

	for (i = 0; i < NODE_PROCS_MAX; i++)
		if (shared->proc[i].pid == (uint32_t)pid)
			return &shared->proc[i];
	return NULL;
}

/* A process that is on the node and does nothing until it is killed. */
static inline pid_t start_peer(void)
{
	int ready[2];
	unsigned int n;
	char byte = 1;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nobody behind */
		if (nvmlDeviceGetCount_v2(&n) == NVML_SUCCESS)
			byte = 0;
		if (write(ready[1], &byte, 1) == 1)
			pause();
		_exit(1);
	}
	peers[n_peers++] = pid;
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(byte, 0);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static inline int make_dir(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	return setenv("NVSHARE_SIM_DIR", dir, 1);
}

static inline int remove_dir(void **state)
{
	static const char *const names[] = {"node", "node.new", "lock", "inject"};
	char path[sizeof(dir) + 16];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		(void)unlink(path);
	}
	return rmdir(dir);
}

#endif
