/* SPDX-License-Identifier: Apache-2.0 */
#include "k8s/host_files.h"

#include "util/fd.h"
#include "util/parse.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX   4096 /* bytes that are read of a file */
#define NUMBER_MAX 65535

int host_files_library(const char *root, const char *path, char ret[PATH_MAX])
{
	char given[2 * PATH_MAX], found[PATH_MAX], real_root[PATH_MAX];
	size_t len;

	(void)snprintf(given, sizeof(given), "%s/%s", root, path);
	if (!realpath(given, found) || !realpath(root, real_root))
		return -errno;
	len = strcmp(real_root, "/") ? strlen(real_root) : 0;
	/* A link with a path of its own leads out of a root that is not ours. */
	if (strncmp(found, real_root, len) != 0 || found[len] != '/')
		return -ENOENT;
	memmove(ret, found + len, strlen(found + len) + 1);
	return 0;
}

void host_files_value(const char *text, const char *key, char *buf, unsigned int size)
{
	size_t key_len = strlen(key), n = 0;

	buf[0] = '\0';
	for (const char *line = text; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, key_len) != 0 || line[key_len] != ':')
			continue;
		line += key_len + 1;
		line += strspn(line, " \t");
		n = strcspn(line, "\n");
		while (n && isspace((unsigned char)line[n - 1]))
			n--;
		if (n < size) {
			memcpy(buf, line, n);
			buf[n] = '\0';
		}
		return;
	}
}

/* 0 or -errno. */
static int host_files_read(const char *path, char buf[FILE_MAX])
{
	FD_CLEANUP int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, buf, FILE_MAX - 1);
	if (n < 0)
		return -errno;
	buf[n] = '\0';
	return 0;
}

static int host_files_number(const char *text)
{
	uint64_t number;

	return parse_u64(text, 0, NUMBER_MAX, &number) ? HOST_FILES_NO_NUMBER : (int)number;
}

/* "-1" in the file: the machine has no nodes. */
static int host_files_numa(const char *root, const char *address)
{
	char path[2 * PATH_MAX], text[FILE_MAX];

	(void)snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s/numa_node", root, address);
	if (host_files_read(path, text))
		return HOST_FILES_NO_NUMBER;
	text[strcspn(text, "\n")] = '\0';
	return host_files_number(text);
}

struct host_gpu host_files_gpu(const char *root, const char *uuid)
{
	struct host_gpu gpu = {HOST_FILES_NO_NUMBER, HOST_FILES_NO_NUMBER};
	char path[2 * PATH_MAX], text[FILE_MAX], value[64];
	struct dirent *entry;
	DIR *dir;

	(void)snprintf(path, sizeof(path), "%s/proc/driver/nvidia/gpus", root);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		(void)snprintf(path, sizeof(path), "%s/proc/driver/nvidia/gpus/%s/information",
			       root, entry->d_name);
		if (entry->d_name[0] == '.' || host_files_read(path, text))
			continue;
		host_files_value(text, "GPU UUID", value, sizeof(value));
		if (strcmp(value, uuid) != 0)
			continue;
		host_files_value(text, "Device Minor", value, sizeof(value));
		gpu.minor = host_files_number(value);
		gpu.numa = host_files_numa(root, entry->d_name);
		break;
	}
	if (dir)
		(void)closedir(dir);
	return gpu;
}
