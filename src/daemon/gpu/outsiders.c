/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gpu/outsiders.h"

#include "util/clock.h"
#include "util/fd.h"
#include "util/text.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void outsiders_note(struct outsiders *outsiders, int pid, uint64_t now_ns)
{
	uint64_t at = outsiders->n_lately % OUTSIDERS_LATELY;

	if (pid <= 0)
		return;
	outsiders->lately[at].ns = now_ns;
	outsiders->lately[at].pid = (uint32_t)pid;
	outsiders->n_lately++;
}

static int outsiders_by_pid(const void *a, const void *b)
{
	const struct nvml_process *left = a, *right = b;

	return left->pid < right->pid ? -1 : left->pid > right->pid;
}

/*
 * A process that computes and draws is in both lists, with the same memory. Entries without a pid
 * stay.
 */
static uint32_t outsiders_merge(struct nvml_process *found, uint32_t n)
{
	uint32_t n_kept = 0;

	qsort(found, n, sizeof(*found), outsiders_by_pid);
	for (uint32_t i = 0; i < n; i++) {
		struct nvml_process *last = n_kept ? &found[n_kept - 1] : NULL;

		if (found[i].bytes == UINT64_MAX)
			found[i].bytes = 0;
		if (!last || !found[i].pid || last->pid != found[i].pid)
			found[n_kept++] = found[i];
		else if (last->bytes < found[i].bytes)
			last->bytes = found[i].bytes;
	}
	return n_kept;
}

bool outsiders_begin(struct outsiders *outsiders, const struct nvml *nvml,
		     struct nvml_device_st *device, uint32_t *ret_n)
{
	uint32_t n;

	if (!nvml_processes(nvml, device, outsiders->found, OUTSIDERS_FOUND, &n))
		return false;
	*ret_n = outsiders_merge(outsiders->found, n);
	memset(outsiders->is_ours, 0, *ret_n * sizeof(outsiders->is_ours[0]));
	return true;
}

void outsiders_ours(struct outsiders *outsiders, uint32_t n, int pid)
{
	const struct nvml_process key = {.pid = (uint32_t)pid};
	const struct nvml_process *at;

	if (pid <= 0)
		return;
	at = bsearch(&key, outsiders->found, n, sizeof(key), outsiders_by_pid);
	if (at)
		outsiders->is_ours[at - outsiders->found] = true;
}

/* Also clients of a moment ago: the driver may not have freed their memory yet. */
static void outsiders_mark_lately(struct outsiders *outsiders, uint32_t n, uint64_t now_ns)
{
	for (uint64_t i = 0; i < outsiders->n_lately && i < OUTSIDERS_LATELY; i++) {
		uint64_t at = (outsiders->n_lately - 1 - i) % OUTSIDERS_LATELY;

		if (now_ns - outsiders->lately[at].ns >= OUTSIDERS_LATELY_NS)
			break;
		outsiders_ours(outsiders, n, (int)outsiders->lately[at].pid);
	}
}

static void outsiders_show(struct outsiders_gpu *gpu, const struct nvml_process *process)
{
	uint32_t at = gpu->n_shown;

	if (!process->pid)
		return;
	if (gpu->n_shown < OUTSIDERS_SHOWN)
		gpu->n_shown++;
	else if (gpu->shown[--at].bytes >= process->bytes)
		return;
	for (; at > 0 && gpu->shown[at - 1].bytes < process->bytes; at--)
		gpu->shown[at] = gpu->shown[at - 1];
	gpu->shown[at].bytes = process->bytes;
	gpu->shown[at].pid = process->pid;
}

void outsiders_end(struct outsiders *outsiders, uint32_t index, uint32_t n, uint64_t now_ns)
{
	struct outsiders_gpu *gpu = &outsiders->gpus[index];

	outsiders_forget(outsiders, index, now_ns);
	outsiders_mark_lately(outsiders, n, now_ns);
	for (uint32_t i = 0; i < n; i++) {
		if (outsiders->is_ours[i])
			continue;
		gpu->n++;
		gpu->bytes += outsiders->found[i].bytes;
		outsiders_show(gpu, &outsiders->found[i]);
	}
}

void outsiders_forget(struct outsiders *outsiders, uint32_t index, uint64_t now_ns)
{
	outsiders->gpus[index] = (struct outsiders_gpu){.listed_ns = now_ns};
}

void outsiders_name(uint32_t pid, char ret_name[NVSHARE_NAME_LEN])
{
	char path[sizeof("/proc/4294967295/comm")];
	ssize_t len;
	int fd;

	ret_name[0] = '\0';
	(void)snprintf(path, sizeof(path), "/proc/%u/comm", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	len = read(fd, ret_name, NVSHARE_NAME_LEN - 1);
	(void)fd_close(fd);
	ret_name[len > 0 ? len : 0] = '\0';
	ret_name[strcspn(ret_name, "\n")] = '\0';
	text_sanitize(ret_name);
}
