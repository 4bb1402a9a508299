/* SPDX-License-Identifier: Apache-2.0 */
#include "nvml_fixture.h"

#include "node_dir.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t peers[4];
static unsigned int n_peers;

void nvml_start(const char *gpus, const char *mig, const char *memory)
{
	setenv("NVSHARE_SIM_GPUS", gpus, 1);
	setenv("NVSHARE_SIM_MIG", mig, 1);
	setenv("NVSHARE_SIM_MEMORY", memory, 1);
	assert_int_equal(nvmlInit_v2(), NVML_SUCCESS);
}

void nvml_kill_peer(pid_t pid)
{
	unsigned int i;

	for (i = 0; i < n_peers; i++)
		if (peers[i] == pid)
			peers[i] = peers[--n_peers];
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

int nvml_stop(void **state)
{
	(void)state;
	while (n_peers > 0)
		nvml_kill_peer(peers[n_peers - 1]);
	while (nvmlShutdown() == NVML_SUCCESS)
		;
	return 0;
}

nvmlDevice_t nvml_gpu(unsigned int index)
{
	nvmlDevice_t device;

	assert_int_equal(nvmlDeviceGetHandleByIndex_v2(index, &device), NVML_SUCCESS);
	return device;
}

nvmlDevice_t nvml_mig(unsigned int gpu_index, unsigned int index)
{
	nvmlDevice_t device;

	assert_int_equal(nvmlDeviceGetMigDeviceHandleByIndex(nvml_gpu(gpu_index), index, &device),
			 NVML_SUCCESS);
	return device;
}

void nvml_inject(const char *line)
{
	char path[48];
	FILE *file;

	snprintf(path, sizeof(path), "%s/inject", node_dir);
	file = fopen(path, "a");
	assert_non_null(file);
	fprintf(file, "%s\n", line);
	assert_int_equal(fclose(file), 0);
}

struct node_shared *nvml_map_node(void)
{
	char path[48];
	struct node_shared *shared;
	int fd;

	snprintf(path, sizeof(path), "%s/node", node_dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	assert_ptr_not_equal(shared, MAP_FAILED);
	return shared;
}

struct node_proc *nvml_slot_of(struct node_shared *shared, pid_t pid)
{
	unsigned int i;

	for (i = 0; i < NODE_PROCS_MAX; i++)
		if (shared->proc[i].pid == (uint32_t)pid)
			return &shared->proc[i];
	return NULL;
}

pid_t nvml_start_peer(void)
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

int nvml_make_dir(void **state)
{
	(void)state;
	return node_dir_make();
}

int nvml_remove_dir(void **state)
{
	(void)state;
	return node_dir_remove();
}
