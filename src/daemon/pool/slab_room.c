/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pool/slab_room.h"

#include "core/u64.h"
#include "util/fd.h"
#include "util/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_LEN    (SLAB_ROOM_GROUP_LEN + 256)
#define TEXT_LEN    4096
#define MARGIN_PART 20
#define GROUPS      "/sys/fs/cgroup"

/* ---- files -------------------------------------------------------------------- */

/* The part of /proc/meminfo that is needed stands at its beginning. */
static bool room_read(const char *path, char ret[TEXT_LEN])
{
	FD_CLEANUP int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, ret, TEXT_LEN - 1);

	if (n < 0)
		return false;
	ret[n] = '\0';
	return true;
}

/* "max" is no number. */
static bool room_read_number(const char *root, const char *group, const char *file, uint64_t *ret)
{
	char path[PATH_LEN], text[TEXT_LEN], *end;
	int n = snprintf(path, sizeof(path), "%s" GROUPS "%s/%s", root, group, file);
	uint64_t value;

	if (n < 0 || n >= (int)sizeof(path) || !room_read(path, text))
		return false;
	value = strtoull(text, &end, 10);
	if (end == text)
		return false;
	*ret = value;
	return true;
}

static bool room_meminfo(const char *root, const char *key, uint64_t *ret)
{
	char path[PATH_LEN], text[TEXT_LEN];
	const char *line;

	(void)snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	if (!room_read(path, text) || !(line = strstr(text, key)))
		return false;
	*ret = strtoull(line + strlen(key), NULL, 10) * 1024;
	return true;
}

/* ---- the machine ---------------------------------------------------------------- */

int slab_room_parse(const char *value, struct slab_room_limit *ret)
{
	uint64_t bytes;
	int r = 0;

	if (strcmp(value, "none") == 0)
		value = "";
	else
		r = parse_size_or_percent(value, UINT64_MAX, &bytes);
	if (!r && strlen(value) >= sizeof(ret->text))
		r = -ERANGE;
	if (!r)
		(void)strcpy(ret->text, value);
	return r;
}

uint64_t slab_room_limit(const char *root, const struct slab_room_limit *limit)
{
	uint64_t total = 0, bytes = UINT64_MAX;

	if (!*limit->text)
		return UINT64_MAX;
	(void)room_meminfo(root, "MemTotal:", &total);
	(void)parse_size_or_percent(limit->text, total, &bytes);
	return bytes;
}

uint64_t slab_room_available(const char *root)
{
	uint64_t total, available;

	if (!room_meminfo(root, "MemTotal:", &total) ||
	    !room_meminfo(root, "MemAvailable:", &available))
		return 0;
	return available - u64_min(available, total / MARGIN_PART);
}

/* ---- control groups -------------------------------------------------------------- */

bool slab_room_group(const char *root, pid_t pid, char ret[SLAB_ROOM_GROUP_LEN])
{
	char path[PATH_LEN], text[TEXT_LEN], *line;
	size_t len;

	(void)snprintf(path, sizeof(path), "%s/proc/%d/cgroup", root, (int)pid);
	if (!room_read(path, text))
		return false;
	line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
	if (!line)
		return false;
	line = strchr(line, '/');
	len = line ? strcspn(line, "\n") : 0;
	if (!len)
		return false;
	/* Of a group with a long name, one above it counts. */
	if (len >= SLAB_ROOM_GROUP_LEN) {
		for (len = SLAB_ROOM_GROUP_LEN - 1; len > 1 && line[len] != '/'; len--)
			;
	}
	memcpy(ret, line, len);
	ret[len] = '\0';
	return true;
}

bool slab_room_is_in(const char *group, const char *upper)
{
	size_t len = strlen(upper);

	if (len == 1)
		return true; /* the root */
	return strncmp(group, upper, len) == 0 && (group[len] == '/' || !group[len]);
}

static uint64_t room_of_group(const char *root, const char *group, slab_room_lent_fn *lent,
			      const void *owner)
{
	uint64_t limit = UINT64_MAX, high, used = 0;

	(void)room_read_number(root, group, "memory.max", &limit);
	if (room_read_number(root, group, "memory.high", &high))
		limit = u64_min(limit, high);
	if (limit == UINT64_MAX)
		return UINT64_MAX;
	(void)room_read_number(root, group, "memory.current", &used);
	limit -= limit / MARGIN_PART;
	limit -= u64_min(limit, used);
	return limit - u64_min(limit, lent(owner, group));
}

uint64_t slab_room_own(const char *root, const char *group, slab_room_lent_fn *lent,
		       const void *owner)
{
	char upper[SLAB_ROOM_GROUP_LEN];
	uint64_t least = UINT64_MAX;

	/* It begins with "/..": the group is outside of what this process can see. */
	if (strncmp(group, "/..", 3) == 0)
		return UINT64_MAX;
	(void)snprintf(upper, sizeof(upper), "%s", group);
	for (char *slash; (slash = strrchr(upper, '/')) && upper[1]; *slash = '\0') {
		least = u64_min(least, room_of_group(root, upper, lent, owner));
		if (slash == upper)
			break;
	}
	return least;
}
