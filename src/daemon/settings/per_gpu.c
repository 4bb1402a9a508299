/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/settings/per_gpu.h"

#include "daemon/gpu/nvml.h"
#include "daemon/settings/config_file.h"
#include "daemon/settings/settings.h"
#include "util/parse.h"

#include <assert.h>
#include <ctype.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

_Static_assert(PER_GPU_ORIGIN_LEN == SETTINGS_ORIGIN_LEN, "per_gpu_value::origin");

enum { KEY_MODE, KEY_DEGREE };

/* The settings that a GPU can have for itself, as settings_table knows them. */
static const struct {
	const char *variable;
	size_t at; /* in struct per_gpu_limits, in the type of the node's field */
} keys[] = {
	[KEY_MODE] = {"NVSHARE_SCHEDULING_MODE", offsetof(struct per_gpu_limits, config.mode)},
	[KEY_DEGREE] = {"NVSHARE_SHARING_DEGREE",
			offsetof(struct per_gpu_limits, config.sharing_degree)},
	{"NVSHARE_MEMORY_RESERVE_PERCENT", offsetof(struct per_gpu_limits, config.reserve_percent)},
	{"NVSHARE_SWITCH_TIME_MODE", offsetof(struct per_gpu_limits, config.switch_mode)},
	{"NVSHARE_SWITCH_TIME_FIXED", offsetof(struct per_gpu_limits, config.switch_fixed_ns)},
	{"NVSHARE_QUANTUM_SEC", offsetof(struct per_gpu_limits, config.tq_ns)},
	{"NVSHARE_MAX_RUNTIME_SEC", offsetof(struct per_gpu_limits, config.max_runtime_ns)},
	{"NVSHARE_CONTEXT_MEMORY_MAX", offsetof(struct per_gpu_limits, context_bytes_max)},
	{"NVSHARE_CONTEXTS_MAX", offsetof(struct per_gpu_limits, n_contexts_max)},
};

#define KEYS_N (sizeof(keys) / sizeof(keys[0]))

static const struct setting *per_gpu_setting(size_t key)
{
	const struct setting *setting = settings_find(keys[key].variable, SETTINGS_ENVIRONMENT);

	assert(setting && setting->size <= sizeof(uint64_t));
	return setting;
}

/* The row whose setting that is; KEYS_N: it is the node's alone. */
static size_t per_gpu_key(const struct setting *setting)
{
	size_t key = 0;

	while (key < KEYS_N && per_gpu_setting(key) != setting)
		key++;
	return key;
}

/* The row, for a field that is alone in its owner. */
static struct setting per_gpu_row(size_t key)
{
	struct setting row = *per_gpu_setting(key);

	row.offset = 0;
	return row;
}

static bool per_gpu_parse_name(const char *text, struct per_gpu_name *ret)
{
	uint64_t index;

	*ret = (struct per_gpu_name){.index = SCHED_NONE};
	if (!parse_u64(text, 0, SCHED_GPUS_MAX - 1, &index)) {
		ret->index = (uint32_t)index;
		(void)snprintf(ret->text, sizeof(ret->text), "%u", ret->index);
		return true;
	}
	if (strlen(text) >= sizeof(ret->text) || !nvml_parse_uuid(text, ret->uuid))
		return false;
	(void)snprintf(ret->text, sizeof(ret->text), "%s", text);
	for (char *s = ret->text + strlen("GPU-"); *s; s++)
		*s = (char)tolower((unsigned char)*s);
	return true;
}

static bool per_gpu_is_same(const struct per_gpu_name *a, const struct per_gpu_name *b)
{
	return a->index == b->index && memcmp(a->uuid, b->uuid, sizeof(a->uuid)) == 0;
}

const struct per_gpu_value *per_gpu_find(const struct per_gpu *values,
					 const struct per_gpu_name *gpu, uint32_t key)
{
	for (uint32_t i = 0; i < values->n; i++) {
		if (values->at[i].key == key && per_gpu_is_same(&values->at[i].gpu, gpu))
			return &values->at[i];
	}
	return NULL;
}

/* ---- the section ------------------------------------------------------------- */

/* A file that is read. */
struct taking {
	struct settings *settings;
	const char *name;
	const struct config_file *file;
	struct settings_report *report;
};

__attribute__((format(printf, 3, 4))) static void per_gpu_refuse(
	const struct taking *taking, const struct config_file_entry *entry, const char *format, ...)
{
	char text[SETTINGS_TEXT_LEN];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	settings_say(taking->report, true, "%.200s:%u: %s %s", taking->name, entry->line,
		     entry->key, text);
}

static void per_gpu_list_keys(char *buf, size_t size)
{
	size_t n = 0;

	for (size_t key = 0; key < KEYS_N && n < size; key++) {
		char name[SETTING_TEXT_LEN];

		settings_name(per_gpu_setting(key), name);
		n += (size_t)snprintf(buf + n, size - n, "%s%s", key ? ", " : "", name);
	}
}

/* The row that the entry names; KEYS_N: none, which is said. */
static size_t per_gpu_entry_key(const struct taking *taking, const struct config_file_entry *entry)
{
	const struct setting *setting = settings_find(strrchr(entry->key, '.') + 1, SETTINGS_TOOL);
	size_t key = setting ? per_gpu_key(setting) : KEYS_N;
	char list[SETTINGS_TEXT_LEN / 2];

	per_gpu_list_keys(list, sizeof(list));
	if (key == KEYS_N)
		per_gpu_refuse(taking, entry, "%s; a GPU can have %s",
			       setting ? "is of the whole node" : "is no setting", list);
	return key;
}

static void per_gpu_put(const struct taking *taking, const struct config_file_entry *entry,
			const struct per_gpu_value *value)
{
	struct per_gpu *values = &taking->settings->per_gpu;
	const struct per_gpu_value *old = per_gpu_find(values, &value->gpu, value->key);

	if (old)
		values->at[old - values->at] = *value;
	else if (values->n == PER_GPU_VALUES_MAX)
		per_gpu_refuse(taking, entry, "is one more than %u values of GPUs",
			       PER_GPU_VALUES_MAX);
	else
		values->at[values->n++] = *value;
}

static void per_gpu_take_value(const struct taking *taking, const struct per_gpu_name *gpu,
			       size_t key, const struct config_file_entry *entry)
{
	struct per_gpu_value value = {.gpu = *gpu, .key = (uint32_t)key};
	struct setting row = per_gpu_row(key);
	char allowed[SETTING_TEXT_LEN];

	(void)snprintf(value.origin, sizeof(value.origin), "%.240s:%u", taking->name, entry->line);
	setting_allowed(&row, allowed);
	if (entry->kind == CONFIG_FILE_NOTHING)
		per_gpu_refuse(taking, entry, "has no value");
	else if (entry->kind != CONFIG_FILE_SCALAR)
		per_gpu_refuse(taking, entry, "is a single value");
	else if (setting_parse(&row, entry->text, &value.value))
		per_gpu_refuse(taking, entry, "is '%.80s'; allowed is %s", entry->text, allowed);
	else
		per_gpu_put(taking, entry, &value);
}

static void per_gpu_take_gpu(const struct taking *taking, const struct per_gpu_name *gpu, size_t at)
{
	size_t end = at + 1 + config_file_below(taking->file, at);
	uint32_t lines[KEYS_N] = {0};

	for (size_t i = at + 1; i < end; i += 1 + config_file_below(taking->file, i)) {
		const struct config_file_entry *entry = &taking->file->at[i];
		size_t key = per_gpu_entry_key(taking, entry);

		if (key == KEYS_N)
			continue;
		if (lines[key])
			per_gpu_refuse(taking, entry, "is the same setting as in line %u",
				       lines[key]);
		else
			per_gpu_take_value(taking, gpu, key, entry);
		lines[key] = entry->line;
	}
}

/* The line of a section before `at` that names the same GPU otherwise; 0: there is none. */
static uint32_t per_gpu_line_before(const struct taking *taking, size_t first, size_t at,
				    const struct per_gpu_name *gpu)
{
	const struct config_file *file = taking->file;

	for (size_t i = first; i < at; i += 1 + config_file_below(file, i)) {
		struct per_gpu_name other;

		if (per_gpu_parse_name(file->at[i].key + strlen(PER_GPU_SECTION "."), &other) &&
		    per_gpu_is_same(&other, gpu))
			return file->at[i].line;
	}
	return 0;
}

void per_gpu_take(struct settings *settings, const char *name, const struct config_file *file,
		  size_t at, struct settings_report *report)
{
	const struct taking taking = {settings, name, file, report};
	size_t end = at + 1 + config_file_below(file, at);

	if (file->at[at].kind != CONFIG_FILE_MAPPING)
		per_gpu_refuse(&taking, &file->at[at], "is a section; it has one for each GPU");
	for (size_t i = at + 1; i < end; i += 1 + config_file_below(file, i)) {
		const struct config_file_entry *entry = &file->at[i];
		struct per_gpu_name gpu;
		uint32_t line;

		if (file->at[at].kind != CONFIG_FILE_MAPPING)
			continue;
		if (!per_gpu_parse_name(entry->key + strlen(PER_GPU_SECTION "."), &gpu)) {
			per_gpu_refuse(&taking, entry,
				       "is no GPU; allowed is GPU-UUID, MIG-UUID, or an index from"
				       " 0 to %d",
				       SCHED_GPUS_MAX - 1);
			continue;
		}
		line = per_gpu_line_before(&taking, at + 1, i, &gpu);
		if (line)
			per_gpu_refuse(&taking, entry, "is the same GPU as in line %u", line);
		else if (entry->kind != CONFIG_FILE_MAPPING)
			per_gpu_refuse(&taking, entry, "is a section of settings");
		else
			per_gpu_take_gpu(&taking, &gpu, i);
	}
}

const char *per_gpu_check(const struct settings *settings)
{
	const struct per_gpu *values = &settings->per_gpu;

	for (uint32_t i = 0; i < values->n; i++) {
		const struct per_gpu_name *gpu = &values->at[i].gpu;
		struct per_gpu_limits limits;

		if (!per_gpu_find(values, gpu, KEY_MODE) || !per_gpu_find(values, gpu, KEY_DEGREE))
			continue;
		per_gpu_of(settings, gpu->index, gpu->uuid, &limits);
		if (limits.config.mode != SCHED_MODE_AUTO && limits.config.sharing_degree > 1)
			return "per_gpu: a GPU has a sharing_degree above 1, which counts in mode"
			       " auto alone, and another mode";
	}
	return NULL;
}

/* ---- what they come to ------------------------------------------------------- */

void per_gpu_of(const struct settings *settings, uint32_t index, const uint8_t uuid[16],
		struct per_gpu_limits *ret)
{
	*ret = (struct per_gpu_limits){.n_contexts_max = 0};
	for (size_t key = 0; key < KEYS_N; key++) {
		const struct setting *setting = per_gpu_setting(key);
		struct per_gpu_name by_index = {.index = index}, by_uuid = {.index = SCHED_NONE};
		const struct per_gpu_value *value;

		memcpy(by_uuid.uuid, uuid, sizeof(by_uuid.uuid));
		value = per_gpu_find(&settings->per_gpu, &by_uuid, (uint32_t)key);
		if (!value)
			value = per_gpu_find(&settings->per_gpu, &by_index, (uint32_t)key);
		memcpy((char *)ret + keys[key].at,
		       value ? (const char *)&value->value
			     : (const char *)settings + setting->offset,
		       setting->size);
	}
}

void per_gpu_print_name(const struct per_gpu_value *value, char *buf, size_t size)
{
	char name[SETTING_TEXT_LEN];

	settings_name(per_gpu_setting(value->key), name);
	(void)snprintf(buf, size, PER_GPU_SECTION ".%s.%s", value->gpu.text, name);
}

void per_gpu_print(const struct per_gpu_value *value, char *buf, size_t size)
{
	struct setting row = per_gpu_row(value->key);
	char text[SETTING_TEXT_LEN];

	setting_print(&row, &value->value, text);
	(void)snprintf(buf, size, "%s", text);
}

/* The values of one GPU, which are not in a row: another file may have added some. */
static void per_gpu_print_gpu(FILE *out, const struct per_gpu *values,
			      const struct per_gpu_name *gpu)
{
	(void)fprintf(out, "  %s:\n", gpu->text);
	for (uint32_t i = 0; i < values->n; i++) {
		const struct per_gpu_value *value = &values->at[i];
		char name[SETTING_TEXT_LEN], text[SETTING_TEXT_LEN];
		int n;

		if (!per_gpu_is_same(&value->gpu, gpu))
			continue;
		settings_name(per_gpu_setting(value->key), name);
		per_gpu_print(value, text, sizeof(text));
		n = fprintf(out, "    %s: %s", name, text);
		(void)fprintf(out, "%*s # %s\n", n < 44 ? 44 - n : 0, "", value->origin);
	}
}

void per_gpu_print_config(FILE *out, const struct per_gpu *values)
{
	if (values->n)
		(void)fputs(PER_GPU_SECTION ":\n", out);
	for (uint32_t i = 0; i < values->n; i++) {
		uint32_t first = 0;

		while (!per_gpu_is_same(&values->at[first].gpu, &values->at[i].gpu))
			first++;
		if (first == i)
			per_gpu_print_gpu(out, values, &values->at[i].gpu);
	}
}
