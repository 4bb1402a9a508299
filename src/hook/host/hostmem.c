/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/host/hostmem.h"

#include "util/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HOSTMEM_PATH_MAX 4096
#define MARGIN_PART      20

/* All atomic. */
static struct {
	uint64_t others;        /* hostmem_set_others() */
	uint64_t coming;        /* hostmem_set_coming() */
	const char *limit_text; /* hostmem_set_limit() */
} hostmem = {.limit_text = ""};

/*
 * read(2), because stdio would put a buffer into the program's heap. false: there is no such file.
 */
static bool file_read_text(char *buf, size_t size, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t n = 0;
	ssize_t r;

	if (fd < 0)
		return false;
	do {
		r = read(fd, buf + n, size - 1 - n);
		if (r > 0)
			n += (size_t)r;
	} while ((r > 0 && n < size - 1) || (r < 0 && errno == EINTR));
	close(fd);
	buf[n] = '\0';
	return r >= 0;
}

/* The number after name at the start of a line. */
static bool text_find_number(const char *text, const char *name, uint64_t *ret)
{
	size_t len = strlen(name);
	char *end;

	for (const char *line = text; line; line = strchr(line, '\n')) {
		unsigned long long value;

		if (*line == '\n')
			line++;
		if (strncmp(line, name, len) != 0)
			continue;
		value = strtoull(line + len, &end, 10);
		if (end == line + len)
			return false; /* "max" */
		*ret = value;
		return true;
	}
	return false;
}

static bool file_read_number(const char *root, const char *group, const char *file,
			     const char *name, uint64_t *ret)
{
	char path[HOSTMEM_PATH_MAX], text[8192];
	int n = snprintf(path, sizeof(path), "%s%s/%s", root, group, file);

	return n > 0 && (size_t)n < sizeof(path) && file_read_text(text, sizeof(text), path) &&
	       text_find_number(text, name, ret);
}

struct hostmem_files {
	const char *limit;
	const char *slow; /* or NULL; a limit beyond which the group is held up at each page */
	const char *usage;
	const char *
		cache; /* the name in memory.stat of memory that the kernel drops before it kills */
};

static const struct hostmem_files files_v1 = {"memory.limit_in_bytes", NULL,
					      "memory.usage_in_bytes", "total_inactive_file "};
static const struct hostmem_files files_v2 = {"memory.max", "memory.high", "memory.current",
					      "inactive_file "};

/* The margin is a part of the whole. A part of the free memory would shrink slab by slab. */
static uint64_t bytes_less_margin(uint64_t available, uint64_t whole)
{
	uint64_t margin = whole / MARGIN_PART;

	return available > margin ? available - margin : 0;
}

static uint64_t cgroup_available(const char *root, const char *group,
				 const struct hostmem_files *files)
{
	uint64_t limit = UINT64_MAX, slow = UINT64_MAX, usage, cache = 0;

	(void)file_read_number(root, group, files->limit, "", &limit);
	if (files->slow)
		(void)file_read_number(root, group, files->slow, "", &slow);
	if (slow < limit)
		limit = slow;
	if (limit == UINT64_MAX || !file_read_number(root, group, files->usage, "", &usage))
		return UINT64_MAX;
	(void)file_read_number(root, group, "memory.stat", files->cache, &cache);
	usage -= cache < usage ? cache : usage;
	return limit > usage ? bytes_less_margin(limit - usage, limit) : 0;
}

/*
 * Every group from ours up to the mount point counts. Where the path is not below the
 * mount point (a container that sees only its own part), its levels are not there and
 * the mount point itself, our group, is.
 */
static uint64_t cgroup_walk(const char *root, const char *mount, const char *path,
			    const struct hostmem_files *files)
{
	char group[HOSTMEM_PATH_MAX];
	uint64_t least = UINT64_MAX, bytes;
	size_t end = strlen(mount);
	int n = snprintf(group, sizeof(group), "%s%s", mount, path);

	if (n < 0 || (size_t)n >= sizeof(group) || strstr(path, "/.."))
		group[end] = '\0';
	for (;;) {
		char *slash;

		bytes = cgroup_available(root, group, files);
		if (bytes < least)
			least = bytes;
		slash = strrchr(group, '/');
		if (!slash || (size_t)(slash - group) < end)
			return least;
		*slash = '\0';
	}
}

static uint64_t cgroups_available(const char *root)
{
	char path[HOSTMEM_PATH_MAX], text[8192], *line, *rest = text;
	uint64_t least = UINT64_MAX, bytes = UINT64_MAX;

	if (snprintf(path, sizeof(path), "%s/proc/self/cgroup", root) >= (int)sizeof(path) ||
	    !file_read_text(text, sizeof(text), path))
		return UINT64_MAX;
	while ((line = strsep(&rest, "\n"))) {
		char *controllers = strchr(line, ':'), *group;

		group = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!group)
			continue;
		*group++ = '\0';
		controllers++;
		if (!*controllers)
			bytes = cgroup_walk(root, "/sys/fs/cgroup", group, &files_v2);
		else if (strcmp(controllers, "memory") == 0)
			bytes = cgroup_walk(root, "/sys/fs/cgroup/memory", group, &files_v1);
		if (bytes < least)
			least = bytes;
	}
	return least;
}

static uint64_t machine_available(const char *root, uint64_t used)
{
	const char *text = __atomic_load_n(&hostmem.limit_text, __ATOMIC_ACQUIRE);
	uint64_t total = 0, available, limit;
	uint64_t taken = used + __atomic_load_n(&hostmem.others, __ATOMIC_RELAXED);

	(void)file_read_number(root, "/proc", "meminfo", "MemTotal:", &total);
	if (*text && parse_size_or_percent(text, total * 1024, &limit) == 0)
		return limit > taken ? limit - taken : 0;
	if (!file_read_number(root, "/proc", "meminfo", "MemAvailable:", &available))
		return UINT64_MAX;
	return bytes_less_margin(available * 1024, total * 1024);
}

/* Memory that others give back is the machine's. Our control group may not be theirs. */
uint64_t hostmem_available_below(const char *root, uint64_t used, bool is_soon)
{
	uint64_t machine = machine_available(root, used), groups = cgroups_available(root);
	uint64_t more = is_soon ? __atomic_load_n(&hostmem.coming, __ATOMIC_RELAXED) : 0;

	machine = machine < UINT64_MAX - more ? machine + more : UINT64_MAX;
	return machine < groups ? machine : groups;
}

void hostmem_set_limit(const char *text)
{
	__atomic_store_n(&hostmem.limit_text, text, __ATOMIC_RELEASE);
}

void hostmem_set_others(uint64_t bytes)
{
	__atomic_store_n(&hostmem.others, bytes, __ATOMIC_RELAXED);
}

void hostmem_set_coming(uint64_t bytes)
{
	__atomic_store_n(&hostmem.coming, bytes, __ATOMIC_RELAXED);
}

uint64_t hostmem_available(uint64_t used)
{
	return hostmem_available_below("", used, false);
}

uint64_t hostmem_available_soon(uint64_t used)
{
	return hostmem_available_below("", used, true);
}
