/* SPDX-License-Identifier: Apache-2.0 */
#include "slurm/submit_options.h"

#include "ipc/names.h"
#include "util/parse.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int submit_parse_memory(const struct setting *setting, const char *value, void *field)
{
	uint64_t bytes = 0;
	int r = parse_size(value, &bytes);

	(void)setting;
	if (!r && !bytes)
		r = -ERANGE;
	if (!r)
		*(uint64_t *)field = bytes;
	return r;
}

static const struct setting_form memory_form = {
	.parse = submit_parse_memory,
	.allowed = "a size like 20GiB",
};

/* A name is shown in queues and logs, so it has printable characters only. */
static int submit_parse_name(const struct setting *setting, const char *value, void *field)
{
	size_t len = strlen(value);

	if (len == 0 || len >= setting->max)
		return -ERANGE;
	for (size_t i = 0; i < len; i++) {
		if (value[i] <= ' ' || value[i] > '~')
			return -EINVAL;
	}
	(void)strcpy(field, value);
	return 0;
}

_Static_assert(NVSHARE_NAME_LEN == 64, "the text below");

static const struct setting_form model_form = {
	.parse = submit_parse_name,
	.allowed = "a name of 1 to 63 printable characters without blanks",
};

_Static_assert(NVSHARE_GANG_LEN == 128, "the text below");

static const struct setting_form gang_form = {
	.parse = submit_parse_name,
	.allowed = "off, or a name of 1 to 127 printable characters without blanks",
};

#define OPTION(name, its_variable, its_kind, field, type, least, most, its_arg, text, ...) \
	{                                                                                  \
		.setting = {.key = (name),                                                 \
			    .variable = (its_variable),                                    \
			    .kind = SETTING_##its_kind,                                    \
			    .offset = SETTING_AT(struct submit_options, field, type),      \
			    .min = (least),                                                \
			    .max = (most),                                                 \
			    .help = (text),                                                \
			    __VA_ARGS__},                                                  \
		.arg = (its_arg),                                                          \
	}

const struct submit_option_row submit_options_table[SUBMIT_OPTION_COUNT_] = {
	[SUBMIT_OPTION_NVSHARE] =
		OPTION("nvshare", "SLURM_NVSHARE", BOOL, is_on, bool, 0, 1, NULL,
		       "share a GPU: each task waits for a place on one, and takes turns there"),
	[SUBMIT_OPTION_PRIORITY] =
		OPTION("nvshare-priority", "SLURM_NVSHARE_PRIORITY", ENUM, priority, uint32_t, 0,
		       NVSHARE_PRIORITY_COUNT, "P",
		       "place in the node's queue: low, normal, high or critical",
		       .names = names_priority),
	[SUBMIT_OPTION_MEMORY] =
		OPTION("nvshare-memory", "SLURM_NVSHARE_MEMORY", OWN, memory, uint64_t, 0, 0,
		       "SIZE", "GPU memory that a task needs, as 20GiB", .form = &memory_form),
	[SUBMIT_OPTION_WEIGHT] = OPTION("nvshare-weight", "SLURM_NVSHARE_WEIGHT", NUMBER, weight,
					uint32_t, NVSHARE_WEIGHT_MIN, NVSHARE_WEIGHT_MAX, "N",
					"share of the GPU's time among equals, 1 to 10000"),
	[SUBMIT_OPTION_CLASS] =
		OPTION("nvshare-class", "SLURM_NVSHARE_CLASS", ENUM, claimed_class, uint32_t, 0,
		       NVSHARE_PRIORITY_COUNT, "CLASS",
		       "class of GPU time: low, normal, high or critical", .names = names_priority),
	[SUBMIT_OPTION_MODEL] =
		{
			.setting = {.key = "nvshare-model",
				    .variable = "SLURM_NVSHARE_MODEL",
				    .kind = SETTING_OWN,
				    .offset = offsetof(struct submit_options, model),
				    .max = NVSHARE_NAME_LEN,
				    .form = &model_form,
				    .help = "name of the model, by which memory is estimated"},
			.arg = "NAME",
		},
	[SUBMIT_OPTION_GANG] =
		{
			.setting =
				{.key = "nvshare-gang",
				 .variable = "SLURM_NVSHARE_GANG",
				 .kind = SETTING_OWN,
				 .offset = offsetof(struct submit_options, gang),
				 .max = NVSHARE_GANG_LEN,
				 .form = &gang_form,
				 .help = "tasks of one NAME on a node run together; off: none do"},
			.arg = "NAME",
		},
};

void submit_options_init(struct submit_options *options)
{
	*options = (struct submit_options){
		.priority = NVSHARE_PRIORITY_COUNT,
		.claimed_class = NVSHARE_PRIORITY_COUNT,
	};
}

int submit_options_set(struct submit_options *options, enum submit_option option, const char *value)
{
	int r = 0;

	if (option != SUBMIT_OPTION_NVSHARE)
		r = setting_parse(&submit_options_table[option].setting, value, options);
	if (!r)
		options->is_on = true;
	return r;
}

char *submit_options_refusal(enum submit_option option, const char *value, char *buf, size_t size)
{
	const struct setting *setting = &submit_options_table[option].setting;
	char allowed[SETTING_TEXT_LEN];

	setting_allowed(setting, allowed);
	(void)snprintf(buf, size, "--%s (or %s) needs %s, and '%s' is none", setting->key,
		       setting->variable, allowed, value);
	return buf;
}

char *submit_options_variable(enum submit_option option, char *buf, size_t size)
{
	int n = snprintf(buf, size, "SLURM_SPANK__SLURM_SPANK_OPTION_nvshare_%s",
			 submit_options_table[option].setting.key);

	for (char *c = buf; n > 0 && (size_t)n < size && *c; c++) {
		if (*c == '-')
			*c = '_';
	}
	return buf;
}
