/* SPDX-License-Identifier: Apache-2.0 */
#include "slurm/plug_arguments.h"

#include "util/setting.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int plug_parse_path(const struct setting *setting, const char *value, void *field)
{
	if (*value != '/' || strlen(value) >= setting->max)
		return -EINVAL;
	(void)strcpy(field, value);
	return 0;
}

static const struct setting_form path_form = {
	.parse = plug_parse_path,
	.allowed = "an absolute path",
};

static const char *const scheduler_names[PLUG_SCHEDULER_COUNT_] = {
	[PLUG_SCHEDULER_OPTIONAL] = "optional",
	[PLUG_SCHEDULER_REQUIRED] = "required",
};

#define PATH(name, field)                                                          \
	{                                                                          \
		.key = (name), .kind = SETTING_OWN,                                \
		.offset = offsetof(struct plug_arguments, field), .max = PATH_MAX, \
		.form = &path_form                                                 \
	}

static const struct setting arguments_table[] = {
	PATH("library", library),
	PATH("socket_dir", socket_dir),
	{.key = "scheduler",
	 .kind = SETTING_ENUM,
	 .offset = SETTING_AT(struct plug_arguments, scheduler, unsigned int),
	 .max = PLUG_SCHEDULER_COUNT_,
	 .names = scheduler_names},
};
#define N_ARGUMENTS (sizeof(arguments_table) / sizeof(arguments_table[0]))

void plug_arguments_init(struct plug_arguments *arguments, const char *library)
{
	*arguments = (struct plug_arguments){.scheduler = PLUG_SCHEDULER_OPTIONAL};
	(void)snprintf(arguments->library, sizeof(arguments->library), "%s", library);
}

/* The row that word names; N_ARGUMENTS: none. */
static size_t plug_find_argument(const char *word)
{
	size_t i = 0;

	while (i < N_ARGUMENTS) {
		size_t len = strlen(arguments_table[i].key);

		if (!strncmp(word, arguments_table[i].key, len) && word[len] == '=')
			break;
		i++;
	}
	return i;
}

int plug_arguments_parse(struct plug_arguments *arguments, int n, const char *const words[],
			 char *buf, size_t size)
{
	struct plug_arguments parsed = *arguments;
	bool seen[N_ARGUMENTS] = {false};
	char allowed[SETTING_TEXT_LEN];

	for (int i = 0; i < n; i++) {
		size_t found = plug_find_argument(words[i]);
		const char *value;

		if (found == N_ARGUMENTS) {
			(void)snprintf(
				buf, size,
				"'%s' is none of library=, socket_dir= and scheduler=", words[i]);
			return -EINVAL;
		}
		value = words[i] + strlen(arguments_table[found].key) + 1;
		if (seen[found]) {
			(void)snprintf(buf, size, "%s is given twice", arguments_table[found].key);
			return -EINVAL;
		}
		seen[found] = true;
		if (setting_parse(&arguments_table[found], value, &parsed)) {
			setting_allowed(&arguments_table[found], allowed);
			(void)snprintf(buf, size, "%s needs %s, and '%s' is none",
				       arguments_table[found].key, allowed, value);
			return -EINVAL;
		}
	}
	*arguments = parsed;
	return 0;
}
