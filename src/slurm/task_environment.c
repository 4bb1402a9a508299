/* SPDX-License-Identifier: Apache-2.0 */
#include "slurm/task_environment.h"

#include "util/parse.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY_NAME "libnvshare.so"

/* Appends the first len bytes of text to buf. 0, or -ENOSPC with buf cut. */
static int text_append(char *buf, size_t size, const char *text, size_t len)
{
	size_t used = strlen(buf);
	size_t room = size - used - 1;

	memcpy(buf + used, text, len < room ? len : room);
	buf[used + (len < room ? len : room)] = '\0';
	return len > room ? -ENOSPC : 0;
}

/* libnvshare.so or libnvshare.so.VERSION, in any folder. */
static bool is_our_library(const char *path, size_t len)
{
	const char *slash = memrchr(path, '/', len);
	const char *name = slash ? slash + 1 : path;
	size_t name_len = len - (size_t)(name - path);
	size_t known_len = sizeof(LIBRARY_NAME) - 1;

	return name_len >= known_len && !memcmp(name, LIBRARY_NAME, known_len) &&
	       (name_len == known_len || name[known_len] == '.');
}

int task_environment_preload(const char *old, const char *library, char *buf, size_t size)
{
	const char *rest = old ? old : "";
	int r;

	buf[0] = '\0';
	r = text_append(buf, size, library, strlen(library));
	while (!r && *rest) {
		size_t len = strcspn(rest, ": ");

		if (len && !is_our_library(rest, len)) {
			r = *buf ? text_append(buf, size, ":", 1) : 0;
			if (!r)
				r = text_append(buf, size, rest, len);
		}
		rest += len + (rest[len] != '\0');
	}
	return r;
}

int task_environment_expand(const char *dir, const char *node, char *buf, size_t size)
{
	int r = 0;

	buf[0] = '\0';
	while (!r && *dir) {
		const char *mark = strstr(dir, "%n");

		r = text_append(buf, size, dir, mark ? (size_t)(mark - dir) : strlen(dir));
		if (!r && mark)
			r = text_append(buf, size, node, strlen(node));
		dir = mark ? mark + 2 : "";
	}
	return r;
}

/* Copies the word at place i of a list with commas to word. False: there is none. */
static bool list_word(const char *list, uint64_t i, char *word, size_t size)
{
	for (; i && list; i--) {
		list = strchr(list, ',');
		list = list ? list + 1 : NULL;
	}
	if (!list || !*list)
		return false;
	word[0] = '\0';
	return text_append(word, size, list, strcspn(list, ",")) == 0;
}

static bool is_set(const char *text)
{
	return text && *text;
}

/* NVSHARE_GANG_AUTO=0 */
static bool gang_is_by_hand(const struct task_gang_facts *facts)
{
	bool is_automatic;

	return is_set(facts->automatic) && parse_bool(facts->automatic, &is_automatic) == 0 &&
	       !is_automatic;
}

const char *task_environment_gang(const struct task_gang_facts *facts)
{
	if (is_set(facts->option))
		return strcmp(facts->option, TASK_GANG_OFF) != 0 ? facts->option : NULL;
	if (is_set(facts->inherited) &&
	    strncmp(facts->inherited, facts->prefix, strlen(facts->prefix)) != 0)
		return facts->inherited;
	return facts->n_tasks > 1 && !gang_is_by_hand(facts) ? facts->step : NULL;
}

bool task_environment_is_together(const struct task_gang_facts *facts)
{
	if (facts->n_tasks < 2)
		return false;
	return is_set(facts->option) ? strcmp(facts->option, TASK_GANG_OFF) != 0
				     : !gang_is_by_hand(facts);
}

enum task_gpus task_environment_gpus(const struct task_gpus_facts *facts, char *gpu, size_t size)
{
	const char *visible = facts->task_visible;
	const char *global = facts->step_gpus;
	uint64_t number;

	/* Slurm says NoDevFiles where a step has no device. */
	if (!is_set(visible) || !strcmp(visible, "NoDevFiles"))
		return TASK_GPUS_ANY;
	/* A step within a task has inherited its choice, which is one of another node, perhaps. */
	if (is_set(facts->placed) && !strcmp(visible, facts->placed))
		return TASK_GPUS_ANY;
	if (strchr(visible, ','))
		return TASK_GPUS_SEVERAL;
	if (parse_u64(visible, 0, UINT32_MAX, &number) == 0 && is_set(global) &&
	    is_set(facts->step_visible) && strcmp(facts->step_visible, global) != 0 &&
	    list_word(global, number, gpu, size))
		return TASK_GPUS_ONE;
	(void)snprintf(gpu, size, "%s", visible);
	return TASK_GPUS_ONE;
}
