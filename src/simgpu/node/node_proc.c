/* SPDX-License-Identifier: Apache-2.0 */

/* The node's processes, and the memory of each. */

#include "simgpu/node/node.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *node_proc_folder(void)
{
	const char *folder = getenv("NVSHARE_SIM_PROC");

	return folder && *folder ? folder : "/proc";
}

uint32_t node_proc_own(void)
{
	char path[PATH_MAX], text[16];
	ssize_t n;

	(void)snprintf(path, sizeof(path), "%s/self", node_proc_folder());
	n = readlink(path, text, sizeof(text) - 1);
	if (n <= 0)
		return (uint32_t)getpid();
	text[n] = '\0';
	return (uint32_t)strtoul(text, NULL, 10);
}

/* Field 22 of /proc/<pid>/stat. false: the process does not exist, or is a zombie. */
bool node_proc_start_time(uint32_t pid, uint64_t *ret)
{
	char path[PATH_MAX], buf[1024], *p, *save = NULL;
	ssize_t n;
	int fd, i;

	(void)snprintf(path, sizeof(path), "%s/%u/stat", node_proc_folder(), pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (n <= 0)
		return false;
	buf[n] = '\0';
	/* Field 2, the name, may have spaces and brackets: fields count from the last one. */
	p = strrchr(buf, ')');
	if (!p)
		return false;
	p = strtok_r(p + 1, " ", &save);
	if (!p || *p == 'Z' || *p == 'X')
		return false;
	for (i = 4; p && i <= 22; i++)
		p = strtok_r(NULL, " ", &save);
	if (!p)
		return false;
	*ret = strtoull(p, NULL, 10);
	return true;
}

bool node_proc_is_alive(const struct node_proc *proc)
{
	uint64_t start_time;

	return node_proc_start_time(proc->pid, &start_time) && start_time == proc->start_time;
}

void node_reap_locked(void)
{
	struct node_proc *proc;
	unsigned int i;

	for (i = 0; i < node_view.shared->n_slots; i++) {
		proc = &node_view.shared->proc[i];
		if (proc->pid && proc != node_view.self && !node_proc_is_alive(proc)) {
			node_debug("process %u is gone: its memory is free", proc->pid);
			proc->pid = 0;
		}
	}
	while (node_view.shared->n_slots &&
	       !node_view.shared->proc[node_view.shared->n_slots - 1].pid)
		node_view.shared->n_slots--;
	node_passed_reap_locked();
}

uint64_t node_used_locked(unsigned int device)
{
	uint64_t used = node_passed_locked(device);
	unsigned int i;

	for (i = 0; i < node_view.shared->n_slots; i++)
		if (node_view.shared->proc[i].pid)
			used += node_view.shared->proc[i].device[device].used;
	return used;
}

uint64_t node_used(unsigned int device)
{
	uint64_t used;

	node_lock();
	node_reap_locked();
	used = node_used_locked(device);
	node_unlock();
	return used;
}

static bool fits(unsigned int device, uint64_t bytes)
{
	uint64_t used = node_used_locked(device),
		 capacity = node_view.shared->device[device].capacity;

	return used <= capacity && bytes <= capacity - used;
}

/* Takes kept bytes from processes until bytes fit. */
static void take_kept(unsigned int device, uint64_t bytes)
{
	uint64_t used = node_used_locked(device), want;
	uint64_t capacity = node_view.shared->device[device].capacity;

	if (bytes > capacity || used + bytes <= capacity)
		return;
	want = used + bytes - capacity;
	for (unsigned int i = 0; i < node_view.shared->n_slots && want; i++) {
		struct node_proc_device *at = &node_view.shared->proc[i].device[device];
		uint64_t pages = (want + NODE_KEPT_PAGE - 1) / NODE_KEPT_PAGE * NODE_KEPT_PAGE;
		uint64_t taken = at->kept < pages ? at->kept : pages;

		if (!node_view.shared->proc[i].pid)
			continue;
		at->kept -= taken;
		at->used -= taken;
		want -= taken < want ? taken : want;
	}
}

int node_charge(unsigned int device, uint64_t bytes)
{
	int r = 0;

	node_lock();
	if (!fits(device, bytes)) {
		node_reap_locked();
		take_kept(device, bytes);
		if (!fits(device, bytes))
			r = -ENOMEM;
	}
	if (r == 0)
		node_view.self->device[device].used += bytes;
	node_unlock();
	return r;
}

void node_uncharge(unsigned int device, uint64_t bytes)
{
	if (!node_view.self)
		return;
	node_lock();
	node_view.self->device[device].used -= bytes;
	node_unlock();
}

void node_keep(unsigned int device, uint64_t bytes)
{
	node_lock();
	node_view.self->device[device].kept += bytes;
	node_unlock();
}

bool node_unkeep(unsigned int device, uint64_t bytes)
{
	struct node_proc_device *at = &node_view.self->device[device];
	bool is_there;

	node_lock();
	is_there = at->kept >= bytes;
	at->kept -= is_there ? bytes : 0;
	node_unlock();
	return is_there;
}

void node_count(enum node_counter counter, uint64_t n)
{
	if (node_view.self)
		__atomic_fetch_add(&node_view.self->counters[counter], n, __ATOMIC_RELAXED);
}
