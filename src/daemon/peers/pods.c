/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/pods.h"

#include "daemon/peers/process.h"
#include "daemon/peers/quota.h"
#include "daemon/peers/users.h"
#include "ipc/sock.h"
#include "util/fd.h"
#include "util/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of /proc/PID/cgroup: with v1 a path for each of a dozen hierarchies. */
#define CGROUP_MAX 16384

/* "pod UID" has a space, so no namespace can have this name. */
#define POD_OWNER "pod "

/* ---- the kernel's word ------------------------------------------------------- */

/* 0, POD_CGROUP_E_*, or -errno. */
static int pods_read_cgroup(const struct pods *pods, const char *process, struct pod_cgroup *ret)
{
	char path[PATH_MAX], text[CGROUP_MAX];
	FD_CLEANUP int fd = -1;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "%s/%s/cgroup", pods->proc, process);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = fd_read_whole(fd, text, sizeof(text));
	return n < 0 ? (int)n : pod_cgroup_parse(text, (size_t)n, ret);
}

/*
 * The kind of the process pid, of which pidfd is a descriptor. A process of another pid namespace
 * has no number. One that hidepid= hides has no file: there the uid counts, as if there were no
 * pods.
 */
static enum pod_kind pods_look(const struct pods *pods, int pidfd, pid_t pid,
			       struct pod_cgroup *ret)
{
	char process[16];
	int r;

	if (pid <= 0)
		return POD_KIND_UNSEEN;
	(void)snprintf(process, sizeof(process), "%d", (int)pid);
	r = pods_read_cgroup(pods, process, ret);
	/* As long as it has not ended, what was read is its own. */
	if (!process_is_alive(pidfd) || r == POD_CGROUP_E_CONFLICT || r == -EFBIG)
		return POD_KIND_UNSEEN;
	if (r || !strcmp(ret->uid, pods->own.uid))
		return POD_KIND_NONE;
	return POD_KIND_POD;
}

/* ---- the kubelet's word ------------------------------------------------------- */

/* Another writer could give a pod another name. */
static bool pods_trust_dir(struct pods *pods, const char *dir, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return false;
	if ((st.st_uid == 0 || st.st_uid == geteuid()) && !(st.st_mode & (S_IWGRP | S_IWOTH)))
		return true;
	if (!pods->is_told)
		log_warn("pods are shown by their UIDs: others than root may write to '%s'", dir);
	pods->is_told = true;
	return false;
}

/* entry: NAMESPACE_NAME_UID. Names of Kubernetes have no "_". */
static bool pods_take_entry(const char *entry, const char *uid,
			    char ret_namespace[PODS_NAMESPACE_LEN], char ret_name[NVSHARE_POD_LEN])
{
	size_t space_len = strcspn(entry, "_");
	const char *name = entry + space_len + (entry[space_len] == '_');
	size_t name_len = strcspn(name, "_");

	if (space_len == 0 || space_len >= PODS_NAMESPACE_LEN || name_len == 0 ||
	    name[name_len] != '_' || strcmp(name + name_len + 1, uid) != 0)
		return false;
	(void)snprintf(ret_namespace, PODS_NAMESPACE_LEN, "%.*s", (int)space_len, entry);
	(void)snprintf(ret_name, NVSHARE_POD_LEN, "%s/%.*s", ret_namespace, (int)name_len, name);
	return true;
}

static bool pods_find_name(struct pods *pods, const char *dir, const char *uid,
			   char ret_namespace[PODS_NAMESPACE_LEN], char ret_name[NVSHARE_POD_LEN])
{
	DIR *entries = opendir(dir);
	const struct dirent *entry;
	bool is_found = false;

	if (!entries)
		return false;
	if (pods_trust_dir(pods, dir, dirfd(entries))) {
		while (!is_found && (entry = readdir(entries)))
			is_found = pods_take_entry(entry->d_name, uid, ret_namespace, ret_name);
	}
	(void)closedir(entries);
	return is_found;
}

/* ---- owners ------------------------------------------------------------------- */

/* The last place is for all for whom there is none. */
static uint32_t pods_add_owner(struct pods *pods, const char *name)
{
	uint32_t place = PODS_OWNERS_MAX;

	for (uint32_t i = 0; i < pods->n_owners; i++) {
		if (pods->owners[i].n_holds && !strcmp(pods->owners[i].name, name)) {
			pods->owners[i].n_holds++;
			return PODS_OWNER_FIRST + i;
		}
		if (!pods->owners[i].n_holds && place == PODS_OWNERS_MAX)
			place = i;
	}
	if (place == PODS_OWNERS_MAX && pods->n_owners < PODS_OWNERS_MAX)
		place = pods->n_owners++;
	if (place < PODS_OWNERS_MAX)
		(void)snprintf(pods->owners[place].name, PODS_NAMESPACE_LEN, "%s", name);
	pods->owners[place].n_holds++;
	return PODS_OWNER_FIRST + place;
}

static const struct pods_owner *pods_find_owner(const struct pods *pods, uint32_t owner)
{
	uint32_t place = owner - PODS_OWNER_FIRST;

	return owner >= PODS_OWNER_FIRST && place < PODS_OWNERS_MAX && pods->owners[place].n_holds
		       ? &pods->owners[place]
		       : NULL;
}

static void pods_name(struct pods *pods, const char *dir, struct pod *pod)
{
	char name[PODS_NAMESPACE_LEN];

	if (!pods_find_name(pods, dir, pod->group.uid, name, pod->name)) {
		(void)snprintf(name, sizeof(name), POD_OWNER "%s", pod->group.uid);
		(void)snprintf(pod->name, sizeof(pod->name), "%s", pod->group.uid);
	}
	pod->owner = pods_add_owner(pods, name);
}

void pods_init(struct pods *pods, const char *proc)
{
	pods->proc = proc;
	(void)pods_read_cgroup(pods, "self", &pods->own);
}

void pods_join(struct pods *pods, const char *dir, int fd, const struct sock_peer *cred,
	       struct pod *ret)
{
	FD_CLEANUP int pidfd = cred->pid > 0 ? process_hold(fd, cred->pid) : -1;

	memset(ret, 0, sizeof(*ret));
	ret->kind = pods_look(pods, pidfd, cred->pid, &ret->group);
	switch (ret->kind) {
	case POD_KIND_NONE:
		ret->owner = cred->uid;
		return;
	case POD_KIND_UNSEEN:
		/* A dead one could have had any uid; of another namespace, root alone is no root
		 * here. */
		ret->owner =
			cred->pid > 0 || users_is_trusted(cred->uid) ? QUOTA_NOBODY : cred->uid;
		return;
	case POD_KIND_POD:
		pods_name(pods, dir, ret);
		return;
	}
}

bool pods_join_process(struct pods *pods, const char *dir, pid_t pid, int pidfd, struct pod *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->kind = pods_look(pods, pidfd, pid, &ret->group);
	if (ret->kind != POD_KIND_POD)
		return false;
	pods_name(pods, dir, ret);
	return true;
}

void pods_leave(struct pods *pods, const struct pod *pod)
{
	if (pod->kind == POD_KIND_POD)
		pods_release(pods, pod->owner);
}

static bool pods_is_number(uint32_t owner)
{
	return owner >= PODS_OWNER_FIRST && owner - PODS_OWNER_FIRST <= PODS_OWNERS_MAX;
}

void pods_hold(struct pods *pods, uint32_t owner)
{
	if (pods_is_number(owner))
		pods->owners[owner - PODS_OWNER_FIRST].n_holds++;
}

void pods_release(struct pods *pods, uint32_t owner)
{
	if (pods_is_number(owner))
		pods->owners[owner - PODS_OWNER_FIRST].n_holds--;
}

const char *pods_namespace(const struct pods *pods, const struct pod *pod)
{
	const struct pods_owner *owner =
		pod->kind == POD_KIND_POD ? pods_find_owner(pods, pod->owner) : NULL;

	return owner && strncmp(owner->name, POD_OWNER, strlen(POD_OWNER)) != 0 ? owner->name
										: NULL;
}

void pods_print_owner(const struct pods *pods, uint32_t owner, char buf[PODS_OWNER_LEN])
{
	const struct pods_owner *found = pods_find_owner(pods, owner);

	if (found)
		(void)snprintf(buf, PODS_OWNER_LEN, "%s%s",
			       strncmp(found->name, POD_OWNER, strlen(POD_OWNER)) ? "namespace "
										  : "",
			       found->name);
	else if (owner == QUOTA_NOBODY || owner == PODS_OWNER_FIRST + PODS_OWNERS_MAX)
		(void)snprintf(buf, PODS_OWNER_LEN, "others");
	else
		(void)snprintf(buf, PODS_OWNER_LEN, "uid %u", (unsigned int)owner);
}
