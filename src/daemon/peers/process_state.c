/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A process that a signal or a debugger has stopped shows it in the state of its threads. A frozen
 * control group does not show there: its processes look as if they slept.
 */

#include "daemon/peers/process_state.h"

#include "util/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define STAT_MAX   128   /* more than the name takes, and the state behind it */
#define CGROUP_MAX 16384 /* with v1 a path for each of a dozen hierarchies */
#define EVENTS_MAX 256

/* A process of more threads has stopped if so many have. */
#define THREADS_MAX 64

/* Bytes read, or negative. */
static ssize_t file_read(const char *path, char *ret, size_t size)
{
	FD_CLEANUP int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, ret, size - 1);

	ret[n < 0 ? 0 : n] = '\0';
	return n;
}

/* Of /proc/PID/stat: "PID (NAME) STATE ...", where NAME may be anything. 0: there is none. */
static char stat_state(const char *path)
{
	char text[STAT_MAX];
	const char *end;

	if (file_read(path, text, sizeof(text)) <= 0)
		return 0;
	end = strrchr(text, ')');
	return end && end[1] == ' ' ? end[2] : 0;
}

static bool is_stopped(char state)
{
	return state == 'T' || state == 't';
}

/* A debugger may have stopped some threads only; one that can run may answer. */
static bool all_threads_stand(const char *proc, pid_t pid)
{
	char path[PATH_MAX];
	const struct dirent *entry;
	bool stand = true;
	uint32_t n = 0;
	DIR *tasks;

	(void)snprintf(path, sizeof(path), "%s/%d/task", proc, (int)pid);
	tasks = opendir(path);
	if (!tasks)
		return true;
	while (stand && n < THREADS_MAX && (entry = readdir(tasks))) {
		char state;

		if (entry->d_name[0] == '.')
			continue;
		(void)snprintf(path, sizeof(path), "%s/%d/task/%.16s/stat", proc, (int)pid,
			       entry->d_name);
		state = stat_state(path);
		stand = state != 'R' && state != 'S';
		n++;
	}
	(void)closedir(tasks);
	return stand;
}

/* 1: frozen; 0: not; -1: it is not shown here. text: what the file of a frozen group has. */
static int group_is_frozen(const char *root, const char *path, const char *file, const char *text)
{
	char name[PATH_MAX], content[EVENTS_MAX];

	if ((size_t)snprintf(name, sizeof(name), "%s%s/%s", root, path, file) >= sizeof(name) ||
	    file_read(name, content, sizeof(content)) < 0)
		return -1;
	return strstr(content, text) != NULL;
}

/* The unified hierarchy; path: of /proc/PID/cgroup. */
static int unified_is_frozen(const char *cgroup, const char *path)
{
	char hybrid[PATH_MAX];
	int r;

	/* The root of all that is seen here holds this process, too. */
	if (strcmp(path, "/") == 0)
		return 0;
	r = group_is_frozen(cgroup, path, "cgroup.events", "frozen 1");
	if (r >= 0)
		return r;
	(void)snprintf(hybrid, sizeof(hybrid), "%.256s/unified", cgroup);
	return group_is_frozen(hybrid, path, "cgroup.events", "frozen 1");
}

static int freezer_is_frozen(const char *cgroup, const char *path)
{
	char root[PATH_MAX];

	if (strcmp(path, "/") == 0)
		return 0;
	(void)snprintf(root, sizeof(root), "%.256s/freezer", cgroup);
	return group_is_frozen(root, path, "freezer.state", "FROZEN");
}

/* Each line is "HIERARCHY:CONTROLLERS:PATH"; of hierarchy 0 there are no controllers. */
static enum process_state groups_state(char *text, const char *cgroup)
{
	enum process_state state = PROCESS_GOES_ON;
	char *line, *save;

	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *controllers = strchr(line, ':');
		char *path = controllers ? strchr(controllers + 1, ':') : NULL;
		int r = 0;

		if (!path)
			continue;
		*path++ = '\0';
		if (strncmp(path, "/..", 3) == 0) /* outside of what is shown here */
			r = -1;
		else if (controllers[1] == '\0')
			r = unified_is_frozen(cgroup, path);
		else if (strcmp(controllers + 1, "freezer") == 0)
			r = freezer_is_frozen(cgroup, path);
		if (r > 0)
			return PROCESS_FROZEN;
		if (r < 0)
			state = PROCESS_UNSEEN;
	}
	return state;
}

static enum process_state look(const char *proc, const char *cgroup, pid_t pid)
{
	char path[PATH_MAX], text[CGROUP_MAX];
	char state;

	if (pid <= 0)
		return PROCESS_UNSEEN;
	(void)snprintf(path, sizeof(path), "%s/%d/stat", proc, (int)pid);
	state = stat_state(path);
	if (state == 0)
		return PROCESS_UNSEEN;
	if (is_stopped(state))
		return all_threads_stand(proc, pid) ? PROCESS_STOPPED : PROCESS_GOES_ON;
	if (state != 'S' && state != 'D')
		return PROCESS_GOES_ON;
	(void)snprintf(path, sizeof(path), "%s/%d/cgroup", proc, (int)pid);
	if (file_read(path, text, sizeof(text)) <= 0)
		return PROCESS_UNSEEN;
	return groups_state(text, cgroup);
}

/* A scheduler without descriptors sees nobody, and takes that for no process's fault. */
enum process_state process_state(const char *proc, const char *cgroup, pid_t pid)
{
	enum process_state state;

	errno = 0;
	state = look(proc, cgroup, pid);
	return state == PROCESS_UNSEEN && (errno == EMFILE || errno == ENFILE) ? PROCESS_GOES_ON
									       : state;
}
