/* SPDX-License-Identifier: Apache-2.0 */
#include "k8s/feature_file.h"

#include "util/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define GIB (1ull << 30)

/* Labels of single GPUs beyond this number would only fill the node's object. */
#define GPUS_SHOWN 16

struct feature_text {
	char *buf;
	size_t len;
};

__attribute__((format(printf, 2, 3))) static void feature_add(struct feature_text *text,
							      const char *format, ...)
{
	size_t room = FEATURE_FILE_LEN - text->len;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(text->buf + text->len, room, format, args);
	va_end(args);
	if (n > 0)
		text->len += (size_t)n < room ? (size_t)n : room - 1;
}

/* Values change in steps of 5 %, because each change is a write to the cluster's store. */
static unsigned int feature_busy(const struct gpu_load *load)
{
	unsigned int percent = load->busy_permille < 1000 ? load->busy_permille / 10 : 100;

	return percent / 5 * 5;
}

void feature_file_print(const struct devices *devices, time_t expires, char buf[FEATURE_FILE_LEN])
{
	uint64_t n_healthy = 0, n_clients = 0, busy = 0, free_all = 0, free_max = 0, total = 0;
	struct feature_text text = {buf, 0};
	char date[32] = "";
	struct tm tm;

	if (gmtime_r(&expires, &tm))
		(void)strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &tm);
	feature_add(&text, "# +expiry-time=%s\n", date);
	for (uint32_t i = 0; i < devices->n; i++) {
		const struct gpu_load *load = &devices->gpus[i].load;
		uint64_t free_gib = gpu_load_free(load) / GIB;

		if (!devices_is_healthy(devices, i))
			continue;
		n_healthy++;
		n_clients += load->n_clients;
		busy += feature_busy(load);
		free_all += free_gib;
		free_max = free_gib > free_max ? free_gib : free_max;
		total += load->total / GIB;
		if (i < GPUS_SHOWN)
			feature_add(&text,
				    "nvshare.com/gpu-%u.busy-percent=%u\n"
				    "nvshare.com/gpu-%u.memory-free-gib=%llu\n",
				    i, feature_busy(load), i, (unsigned long long)free_gib);
	}
	feature_add(&text,
		    "nvshare.com/gpu.count=%u\n"
		    "nvshare.com/gpu.healthy=%llu\n"
		    "nvshare.com/gpu.replicas=%u\n"
		    "nvshare.com/gpu.clients=%llu\n"
		    "nvshare.com/gpu.busy-percent=%llu\n"
		    "nvshare.com/gpu.memory-gib=%llu\n"
		    "nvshare.com/gpu.memory-free-gib=%llu\n"
		    "nvshare.com/gpu.memory-free-gib-max=%llu\n",
		    devices->n, (unsigned long long)n_healthy, devices->n_replicas,
		    (unsigned long long)n_clients,
		    (unsigned long long)(n_healthy ? busy / n_healthy : 0),
		    (unsigned long long)total, (unsigned long long)free_all,
		    (unsigned long long)free_max);
}

int feature_file_write(const char *path, const char *text)
{
	const char *slash = strrchr(path, '/');
	size_t len = strlen(text);
	FD_CLEANUP int fd = -1;
	char temporary[PATH_MAX];
	ssize_t n;

	if ((size_t)snprintf(temporary, sizeof(temporary), "%.*s.%s.new", (int)(slash + 1 - path),
			     path, slash + 1) >= sizeof(temporary))
		return -ENAMETOOLONG;
	fd = fd_create(AT_FDCWD, temporary, 0644);
	if (fd < 0)
		return -errno;
	n = write(fd, text, len);
	if (n >= 0 && (size_t)n != len)
		errno = ENOSPC;
	if ((size_t)n != len || fchmod(fd, 0644) < 0 || rename(temporary, path) < 0) {
		int r = -errno;

		(void)unlink(temporary);
		return r;
	}
	return 0;
}

void feature_file_remove(const char *path)
{
	(void)unlink(path);
}
