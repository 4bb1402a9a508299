/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/library_path.h"
#include "cli/run.h"

#include "ipc/names.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The dynamic linker takes blanks and colons. */
#define SEPARATORS " :"

void run_env_preload(const char *value, const char *library, char *buf, size_t size)
{
	for (const char *at = value; *at;) {
		size_t len = strcspn(at, SEPARATORS);
		const char *end = at + len;
		size_t name_len = strlen(LIBRARY_NAME);

		if (len >= name_len && !strncmp(end - name_len, LIBRARY_NAME, name_len) &&
		    (len == name_len || end[-(ptrdiff_t)name_len - 1] == '/')) {
			(void)snprintf(buf, size, "%s", value);
			return;
		}
		at = end + (*end != '\0');
	}
	(void)snprintf(buf, size, "%s%s%s", library, *value ? ":" : "", value);
}

/* 0, or not 0 with errno. */
static int env_set_gang(const struct run_options *options)
{
	char size[16];
	int r = 0;

	if (options->gang[0])
		r = setenv("NVSHARE_GANG", options->gang, 1);
	(void)snprintf(size, sizeof(size), "%u", options->gang_size);
	if (options->gang_size)
		r |= setenv("NVSHARE_GANG_SIZE", size, 1);
	return r;
}

bool run_env_set(const struct run_options *options, const struct nvshare_job *job)
{
	const char *preload = getenv("LD_PRELOAD");
	char library[PATH_MAX], number[16];
	size_t size;
	char *text;
	int r;

	if (!library_path(library, sizeof(library))) {
		(void)fprintf(stderr, "nvsharectl: " LIBRARY_NAME
				      " is neither beside nvsharectl nor installed\n");
		return false;
	}
	size = strlen(library) + (preload ? strlen(preload) : 0) + 2;
	text = malloc(size);
	if (!text)
		return false;
	run_env_preload(preload ? preload : "", library, text, size);
	(void)snprintf(number, sizeof(number), "%u", job->job);
	r = setenv("LD_PRELOAD", text, 1) | setenv("CUDA_VISIBLE_DEVICES", job->gpu_uuid, 1) |
	    setenv("NVSHARE_JOB", number, 1);
	r |= env_set_gang(options);
	/* Name and class of a job are those of its programs, unless they are told others. */
	if (options->has_name)
		r |= setenv("NVSHARE_NAME", options->submit.name, 0);
	if (options->has_priority)
		r |= setenv("NVSHARE_PRIORITY", names_priority[job->priority], 0);
	free(text);
	if (r)
		perror("nvsharectl: the environment");
	return r == 0;
}
