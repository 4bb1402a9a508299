/* SPDX-License-Identifier: Apache-2.0 */

/* The facts of the machine, its files and the scheduler. Nothing here touches the driver. */

#include "cli/doctor.h"
#include "cli/library_path.h"

#include "cli/cli.h"
#include "ipc/sock.h"
#include "util/fd.h"
#include "util/text.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define GROUP             "nvshare"
#define LIBRARY_BYTES_MAX ((size_t)64 << 20)
#define MARK              "nvshare_library_version=" /* in the library: src/hook/base/hook_version.c */

/* ---- the library ----------------------------------------------------------------------- */

void doctor_library_version(const char *path, char *ret_version, size_t size)
{
	FD_CLEANUP int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char *text = NULL;
	const char *at;
	size_t len = 0;
	struct stat st;
	ssize_t n = 1;

	ret_version[0] = '\0';
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	/* It may be a stranger's: a map of it could end while it is read, or be without end. */
	text = malloc(LIBRARY_BYTES_MAX);
	for (; text && n > 0; len += n > 0 ? (size_t)n : 0)
		n = read(fd, text + len, LIBRARY_BYTES_MAX - len);
	at = text ? memmem(text, len, MARK, strlen(MARK)) : NULL;
	if (at) {
		at += strlen(MARK);
		(void)snprintf(ret_version, size, "%.*s",
			       (int)strnlen(at, (size_t)(text + len - at)), at);
		text_sanitize(ret_version);
	}
	free(text);
}

static void library_find(struct doctor_library *ret)
{
	if (library_path(ret->path, sizeof(ret->path)))
		doctor_library_version(ret->path, ret->version, sizeof(ret->version));
	else
		ret->path[0] = '\0';
}

/* ---- a process --------------------------------------------------------------------------- */

static FILE *process_open(pid_t pid, const char *name)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	return fopen(path, "re");
}

static void process_take_library(struct doctor_process *process, char *path)
{
	static const char deleted[] = " (deleted)";
	size_t len = strlen(path);
	char real[sizeof(process->loaded.path) + 32];

	if (len > strlen(deleted) && !strcmp(path + len - strlen(deleted), deleted)) {
		path[len - strlen(deleted)] = '\0';
		process->is_replaced = true;
	}
	(void)snprintf(process->loaded.path, sizeof(process->loaded.path), "%s", path);
	/* The path is one of the process's mount namespace. */
	(void)snprintf(real, sizeof(real), "/proc/%d/root%s", (int)process->pid, path);
	doctor_library_version(real, process->loaded.version, sizeof(process->loaded.version));
	text_sanitize(process->loaded.path);
}

static void process_read_maps(struct doctor_process *process, FILE *maps)
{
	char *line = NULL;
	size_t size = 0;

	while (getline(&line, &size, maps) > 0) {
		char *path = strchr(line, '/'), *name;

		if (!path)
			continue;
		path[strcspn(path, "\n")] = '\0';
		name = strrchr(path, '/') + 1;
		if (!strncmp(name, LIBRARY_NAME, strlen(LIBRARY_NAME)) && !process->loaded.path[0])
			process_take_library(process, path);
		else if (!strncmp(name, "libcuda.so", strlen("libcuda.so")))
			process->has_cuda = true;
	}
	free(line);
}

static void process_read_environment(struct doctor_process *process, FILE *environment)
{
	char *entry = NULL;
	size_t size = 0;

	while (getdelim(&entry, &size, '\0', environment) > 0) {
		if (!strncmp(entry, "LD_PRELOAD=", strlen("LD_PRELOAD=")) &&
		    strstr(entry, LIBRARY_NAME))
			process->is_named = true;
	}
	free(entry);
}

static void process_look(struct doctor_process *process)
{
	FILE *maps = process_open(process->pid, "maps");
	FILE *environment = process_open(process->pid, "environ");

	if (!maps || !environment) {
		process->error = errno == EPERM || errno == EACCES ? EACCES : ENOENT;
	} else {
		process_read_maps(process, maps);
		process_read_environment(process, environment);
		if (ferror(maps)) /* the right to look is checked when it is read */
			process->error = EACCES;
	}
	if (maps)
		(void)fclose(maps);
	if (environment)
		(void)fclose(environment);
}

/* ---- limits ---------------------------------------------------------------------------- */

/* The number in the first line of the file that begins with word; UINT64_MAX: none. */
static uint64_t file_number(const char *path, const char *word)
{
	FILE *file = fopen(path, "re");
	uint64_t found = UINT64_MAX;
	char line[256];

	while (file && found == UINT64_MAX && fgets(line, sizeof(line), file)) {
		if (!strncmp(line, word, strlen(word)) &&
		    sscanf(line + strlen(word), "%" SCNu64, &found) != 1)
			break; /* "max" */
	}
	if (file)
		(void)fclose(file);
	return found;
}

/* As the library counts: a twentieth of the machine stays free (src/hook/host/hostmem.c). */
static uint64_t host_memory(void)
{
	uint64_t total = file_number("/proc/meminfo", "MemTotal:");
	uint64_t available = file_number("/proc/meminfo", "MemAvailable:");

	if (total == UINT64_MAX || available == UINT64_MAX)
		return UINT64_MAX;
	return available > total / 20 ? (available - total / 20) * 1024 : 0;
}

/* The least limit of the group and all above it. In a container the mount point is the group. */
static uint64_t group_walk(const char *mount, const char *group, const char *file)
{
	char folder[1024], path[1200];
	uint64_t least = UINT64_MAX, limit;
	char *slash;

	(void)snprintf(folder, sizeof(folder), "%s%s", mount, group);
	do {
		(void)snprintf(path, sizeof(path), "%s/%s", folder, file);
		limit = file_number(path, "");
		if (limit < least)
			least = limit;
		slash = strrchr(folder, '/');
		*slash = '\0';
	} while (strlen(folder) >= strlen(mount));
	return least < UINT64_C(1) << 60 ? least : UINT64_MAX;
}

static uint64_t group_limit(pid_t pid)
{
	FILE *file = process_open(pid ? pid : getpid(), "cgroup");
	uint64_t limit = UINT64_MAX;
	char line[1024];

	while (file && limit == UINT64_MAX && fgets(line, sizeof(line), file)) {
		char *group = strchr(line, '/');

		line[strcspn(line, "\n")] = '\0';
		if (group && !strncmp(line, "0::", 3))
			limit = group_walk("/sys/fs/cgroup", group, "memory.max");
		else if (group && strstr(line, ":memory:"))
			limit = group_walk("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes");
	}
	if (file)
		(void)fclose(file);
	return limit;
}

static uint64_t lock_limit(pid_t pid)
{
	struct rlimit limit;

	if (prlimit(pid, RLIMIT_MEMLOCK, NULL, &limit) && getrlimit(RLIMIT_MEMLOCK, &limit))
		return UINT64_MAX;
	return limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}

static bool has_group(gid_t wanted)
{
	int n = getgroups(0, NULL);
	gid_t *groups = n > 0 ? calloc((size_t)n, sizeof(*groups)) : NULL;
	bool is_found = getegid() == wanted;

	n = groups ? getgroups(n, groups) : 0;
	for (int i = 0; i < n; i++)
		is_found |= groups[i] == wanted;
	free(groups);
	return is_found;
}

/* ---- the scheduler ---------------------------------------------------------------------- */

static void facts_ask_scheduler(struct doctor_facts *facts)
{
	int fd = sock_connect(NULL);

	facts->socket_dir = sock_dir(NULL);
	if (fd < 0) {
		facts->socket = -fd;
		return;
	}
	(void)fd_close(fd);
	facts->has_status = status_fetch(&facts->status) == CLI_EXIT_OK;
}

/* Whether the scheduler runs as the user of this process. */
static bool scheduler_is_own(const struct doctor_facts *facts)
{
	unsigned int real, effective;
	char path[64], line[256];
	bool is_own = false;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%u/status", facts->status.node.pid);
	file = facts->has_status ? fopen(path, "re") : NULL;
	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "Uid: %u %u", &real, &effective) == 2)
			is_own = effective == geteuid();
	}
	if (file)
		(void)fclose(file);
	return is_own;
}

/* A client that has told how it stops spares the trial. */
static bool freeze_from_clients(const struct status *status, struct doctor_freeze *ret)
{
	for (size_t i = 0; i < status->n_clients; i++) {
		const struct nvshare_status_client *client = &status->clients[i];

		if (client->halt == NVSHARE_HALT_FREEZE) {
			*ret = (struct doctor_freeze){DOCTOR_TRIAL_PROVEN, client->id, ""};
			return true;
		}
		if (status_drain_reason(client)) {
			*ret = (struct doctor_freeze){DOCTOR_TRIAL_REFUSED, client->id, ""};
			(void)snprintf(ret->why, sizeof(ret->why), "%s",
				       status_drain_reason(client));
		}
	}
	return ret->client != 0;
}

static void facts_try_freeze(struct doctor_facts *facts)
{
	const struct doctor_driver *driver = &facts->driver;
	bool has_driver = driver->child == DOCTOR_CHILD_ANSWERED && !driver->cuda && driver->n_gpus;

	if (freeze_from_clients(&facts->status, &facts->freeze))
		return;
	if (!has_driver || !facts->library.path[0])
		facts->freeze.trial = DOCTOR_TRIAL_NO_WAY;
	else if (driver->n_users || facts->status.n_clients)
		facts->freeze.trial = DOCTOR_TRIAL_IN_USE;
	else
		doctor_freeze_try(facts->library.path, &facts->freeze);
}

void doctor_facts_gather(struct doctor_facts *facts, pid_t pid)
{
	const struct group *group = getgrnam(GROUP);

	*facts = (struct doctor_facts){.process = {.pid = pid}};
	facts->has_group = group != NULL;
	facts->is_trusted = geteuid() == 0 || (group && has_group(group->gr_gid));
	facts->host_memory = host_memory();
	facts->group_limit = group_limit(pid);
	facts->lock_limit = lock_limit(pid);
	library_find(&facts->library);
	if (pid)
		process_look(&facts->process);
	facts_ask_scheduler(facts);
	facts->is_trusted |= scheduler_is_own(facts);
	doctor_driver_ask(&facts->driver);
	facts_try_freeze(facts);
}

void doctor_facts_deinit(struct doctor_facts *facts)
{
	status_deinit(&facts->status);
}
