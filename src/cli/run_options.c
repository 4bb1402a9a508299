/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "cli/run.h"

#include "ipc/names.h"
#include "util/parse.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static int options_fail(const char *option, const char *value, const char *allowed)
{
	(void)fprintf(stderr, "nvsharectl: --%s is '%.80s'; allowed is %s\n", option, value,
		      allowed);
	return CLI_EXIT_USAGE;
}

static int text_set(char *buf, size_t size, const char *value)
{
	if (!*value || strlen(value) >= size)
		return -EINVAL;
	(void)snprintf(buf, size, "%s", value);
	return 0;
}

/* A name that the scheduler compares. */
static int word_set(char *buf, size_t size, const char *value)
{
	for (const char *s = value; *s; s++) {
		if (*s < 0x21 || *s > 0x7e)
			return -EINVAL;
	}
	return text_set(buf, size, value);
}

/* "90", "90s", "15m", "2h", "3d", "none". */
static int limit_set(struct nvshare_submit *submit, const char *value)
{
	static const struct {
		char unit;
		uint64_t seconds;
	} units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
	size_t len = strlen(value);
	uint64_t number, each = 1;
	char digits[16];

	if (!strcmp(value, "none")) {
		submit->limit_sec = NVSHARE_JOB_NO_LIMIT;
		return 0;
	}
	if (len == 0 || len >= sizeof(digits))
		return -EINVAL;
	(void)snprintf(digits, sizeof(digits), "%s", value);
	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
		if (digits[len - 1] == units[i].unit) {
			each = units[i].seconds;
			digits[len - 1] = '\0';
			break;
		}
	}
	if (parse_u64(digits, 1, NVSHARE_JOB_LIMIT_MAX / each, &number))
		return -EINVAL;
	submit->limit_sec = (uint32_t)(number * each);
	return 0;
}

static int priority_set(struct run_options *options, const char *value)
{
	unsigned int priority;

	if (parse_enum(value, names_priority, NVSHARE_PRIORITY_COUNT, &priority))
		return -EINVAL;
	options->submit.priority = priority;
	options->has_priority = true;
	return 0;
}

static int number_set(const char *value, uint64_t min, uint64_t max, uint64_t *ret)
{
	return parse_u64(value, min, max, ret);
}

/* The option's value. 0 or -EINVAL; *ret_allowed says what is allowed. */
static int options_take(struct run_options *options, const char *name, const char *value,
			const char **ret_allowed)
{
	struct nvshare_submit *submit = &options->submit;
	uint64_t number;
	int r;

	if (!strcmp(name, "priority")) {
		*ret_allowed = "low, normal, high or critical";
		return priority_set(options, value);
	}
	if (!strcmp(name, "memory")) {
		*ret_allowed = "a size, as 8G or 500MiB";
		r = parse_size(value, &submit->memory);
		return r ? r : submit->memory && submit->memory <= 1ull << 44 ? 0 : -EINVAL;
	}
	if (!strcmp(name, "units")) {
		*ret_allowed = "a whole number from 1 to 1000000000";
		return number_set(value, 1, NVSHARE_JOB_UNITS_MAX, &submit->units);
	}
	if (!strcmp(name, "retries")) {
		*ret_allowed = "a whole number to 1000";
		r = number_set(value, 0, NVSHARE_JOB_RETRIES_MAX, &number);
		submit->n_retries = r ? 0 : (uint32_t)number;
		return r;
	}
	if (!strcmp(name, "time-limit")) {
		*ret_allowed = "a time up to 365d, as 90s, 15m, 2h or 3d; or none";
		return limit_set(submit, value);
	}
	if (!strcmp(name, "gpu")) {
		*ret_allowed = "GPUs by index or UUID, with commas";
		return word_set(submit->gpus, sizeof(submit->gpus), value);
	}
	if (!strcmp(name, "gang-size")) {
		*ret_allowed = "a whole number from 1 to 256";
		r = number_set(value, 1, NVSHARE_GANG_MEMBERS_MAX, &number);
		options->gang_size = r ? 0 : (uint32_t)number;
		return r;
	}
	if (!strcmp(name, "gang")) {
		*ret_allowed = "a text of up to 127 bytes";
		return text_set(options->gang, sizeof(options->gang), value);
	}
	if (!strcmp(name, "name")) {
		*ret_allowed = "a text of up to 63 bytes";
		options->has_name = true;
		return text_set(submit->name, sizeof(submit->name), value);
	}
	*ret_allowed = "a word without blanks, of up to 63 bytes; 31 for a type";
	if (!strcmp(name, "model"))
		return word_set(submit->model, sizeof(submit->model), value);
	if (!strcmp(name, "type"))
		return word_set(submit->type, sizeof(submit->type), value);
	return word_set(submit->apart, sizeof(submit->apart), value);
}

/* An option without a value. false: it is none of these. */
static bool options_flag(struct run_options *options, const char *name)
{
	if (!strcmp(name, "whole"))
		options->submit.flags |= NVSHARE_SUBMIT_WHOLE;
	else if (!strcmp(name, "no-wait"))
		options->submit.flags |= NVSHARE_SUBMIT_NO_WAIT;
	else if (!strcmp(name, "follow"))
		options->follows = true;
	else
		return false;
	return true;
}

static bool options_has_value(const char *name, size_t len)
{
	static const char *const names[] = {"priority", "memory", "units",      "retries",
					    "gpu",      "name",   "time-limit", "model",
					    "type",     "apart",  "gang",       "gang-size"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (strlen(names[i]) == len && !strncmp(names[i], name, len))
			return true;
	}
	return false;
}

static int options_one(struct run_options *options, char *const **args, bool has_command)
{
	const char *name = *(*args)++ + 2;
	size_t len = strcspn(name, "=");
	const char *value = name[len] ? name + len + 1 : NULL, *allowed = "";
	char word[32];

	/* A question is about one job, not about a gang. */
	if (!options_has_value(name, len) || (!has_command && !strncmp(name, "gang", 4))) {
		/* A question does not wait, and is followed by nothing. */
		if (!value && options_flag(options, name) &&
		    (has_command || options->submit.flags == NVSHARE_SUBMIT_WHOLE))
			return CLI_EXIT_OK;
		(void)fprintf(stderr,
			      "nvsharectl: %s has no option --%.40s; see nvsharectl"
			      " --help\n",
			      has_command ? "run" : "place", name);
		return CLI_EXIT_USAGE;
	}
	(void)snprintf(word, sizeof(word), "%.*s", (int)len, name);
	if (!value && **args)
		value = *(*args)++;
	if (!value) {
		(void)fprintf(stderr, "nvsharectl: --%s needs a value\n", word);
		return CLI_EXIT_USAGE;
	}
	return options_take(options, word, value, &allowed) ? options_fail(word, value, allowed)
							    : CLI_EXIT_OK;
}

/* The job keeps to the GPUs that the environment shows. */
static int options_env_gpus(struct run_options *options, const char *value)
{
	if (!value || options->submit.gpus[0])
		return CLI_EXIT_OK;
	if (isdigit((unsigned char)*value) || !strncmp(value, "GPU-", 4) ||
	    !strncmp(value, "MIG-", 4)) {
		if (!word_set(options->submit.gpus, sizeof(options->submit.gpus), value))
			return CLI_EXIT_OK;
	}
	(void)fprintf(
		stderr,
		"nvsharectl: CUDA_VISIBLE_DEVICES is '%.80s', which names no GPU: unset it, or"
		" name GPUs with --gpu\n",
		value);
	return CLI_EXIT_USAGE;
}

static void options_name(struct nvshare_submit *submit, char *const *command)
{
	const char *slash = strrchr(command[0], '/');

	if (!submit->name[0])
		(void)snprintf(submit->name, sizeof(submit->name), "%.63s",
			       slash && slash[1] ? slash + 1 : command[0]);
}

/* The queue starts it together with others. */
static bool options_has_gang(const struct run_options *options)
{
	return options->gang[0] && options->gang_size > 1;
}

static int options_check_gang(const struct run_options *options)
{
	const char *wrong = NULL;

	if (options->gang_size && !options->gang[0])
		wrong = "--gang-size is that of a gang: name it with --gang";
	else if (options_has_gang(options) && options->submit.flags & NVSHARE_SUBMIT_NO_WAIT)
		wrong = "a job of a gang waits for the others: --no-wait does not go with --gang"
			" and --gang-size";
	if (!wrong)
		return CLI_EXIT_OK;
	(void)fprintf(stderr, "nvsharectl: %s\n", wrong);
	return CLI_EXIT_USAGE;
}

int run_options_parse(char *const *args, bool has_command, const char *env_gpus,
		      struct run_options *ret)
{
	int r = CLI_EXIT_OK;

	*ret = (struct run_options){.submit = {.priority = NVSHARE_PRIORITY_NORMAL}};
	while (!r && *args && !strncmp(*args, "--", 2) && (*args)[2])
		r = options_one(ret, &args, has_command);
	if (!r && *args && !strcmp(*args, "--"))
		args++;
	else if (!r && *args && **args == '-') {
		(void)fprintf(stderr, "nvsharectl: %s has no option %.40s; see nvsharectl --help\n",
			      has_command ? "run" : "place", *args);
		r = CLI_EXIT_USAGE;
	}
	if (!r && has_command && !*args) {
		(void)fprintf(stderr, "nvsharectl: run needs a command: nvsharectl run [OPTION]..."
				      " -- COMMAND...\n");
		r = CLI_EXIT_USAGE;
	}
	if (!r)
		r = options_check_gang(ret);
	if (!r && !has_command && *args) {
		(void)fprintf(stderr, "nvsharectl: place takes options alone, not '%.40s'\n",
			      *args);
		r = CLI_EXIT_USAGE;
	}
	if (!r)
		r = options_env_gpus(ret, env_gpus);
	if (!r && has_command) {
		ret->command = args;
		options_name(&ret->submit, args);
	}
	return r;
}

bool run_options_is_help(char *const *args)
{
	for (; *args && **args == '-' && strcmp(*args, "--") != 0; args++) {
		const char *name = *args + 2;

		if (!strcmp(*args, "-h") || !strcmp(*args, "--help"))
			return true;
		if (!strchr(*args, '=') && options_has_value(name, strlen(name)) && args[1])
			args++;
	}
	return false;
}
