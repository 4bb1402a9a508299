/* SPDX-License-Identifier: Apache-2.0 */

/* The sources of settings at the start, in their order; and what is printed of settings. */

#include "daemon/settings/config.h"
#include "daemon/settings/config_save.h"
#include "daemon/settings/settings.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

/* A compound literal would be a copy on the stack. */
static void settings_report_init(struct settings_report *report)
{
	report->task = SETTINGS_TASK_RUN;
	report->n_errors = report->n_lines = 0;
}

/* Adds what settings_set() says of a bad value. */
static void take_value(struct settings *settings, const char *name, const char *value,
		       enum settings_source source, struct settings_report *report)
{
	char text[SETTINGS_TEXT_LEN];

	if (settings_set(settings, name, value, source, text))
		settings_say(report, true, "%s", text);
}

static void take_variable(struct settings *settings, const struct setting *setting,
			  char *(*get_env)(const char *name), struct settings_report *report)
{
	const char *name = setting->variable, *alias = setting->alias;
	const char *value = name ? get_env(name) : NULL;
	const char *alias_value = alias ? get_env(alias) : NULL;

	/* Set but empty is as good as not set. */
	if (!value || !*value) {
		name = alias;
		value = alias_value;
	} else if (alias_value && *alias_value && strcmp(value, alias_value) != 0) {
		settings_say(report, true, "%s and %s are one setting with two values; unset %s",
			     name, alias, alias);
		return;
	}
	if (value && *value)
		take_value(settings, name, value, SETTINGS_ENVIRONMENT, report);
}

/* "--quantum-sec=5" or "--quantum-sec 5" at *args, which is moved behind it. */
static void take_flag(struct settings *settings, char *const **args, struct settings_report *report)
{
	const char *arg = *(*args)++;
	const char *value = strchr(arg, '=');
	size_t len = value ? (size_t)(value - arg) : strlen(arg);
	char name[64] = ""; /* longer than any flag */

	memcpy(name, arg, len < sizeof(name) ? len : sizeof(name) - 1);
	if (!settings_find(name, SETTINGS_COMMAND_LINE)) {
		settings_say(report, true, "unknown option '%.80s'; see --help", arg);
		return;
	}
	if (value)
		value++;
	else if (**args)
		value = *(*args)++;
	if (value)
		take_value(settings, name, value, SETTINGS_COMMAND_LINE, report);
	else
		settings_say(report, true, "%s needs a value", name);
}

/* 0, SETTINGS_E_HELP or SETTINGS_E_VERSION. */
static int take_args(struct settings *settings, char *const *args, struct settings_report *report)
{
	while (args && *args) {
		if (!strcmp(*args, "--help") || !strcmp(*args, "-h"))
			return SETTINGS_E_HELP;
		if (!strcmp(*args, "--version") || !strcmp(*args, "-V"))
			return SETTINGS_E_VERSION;
		if (!strcmp(*args, "--check-config"))
			report->task = SETTINGS_TASK_CHECK;
		else if (!strcmp(*args, "--print-config"))
			report->task = SETTINGS_TASK_PRINT;
		else {
			take_flag(settings, &args, report);
			continue;
		}
		args++;
	}
	return 0;
}

int settings_parse(char *const *args, char *(*get_env)(const char *name), struct settings *settings,
		   struct settings_report *ret_report)
{
	const struct setting *config = settings_find("NVSHARE_CONFIG", SETTINGS_ENVIRONMENT);
	char text[SETTINGS_TEXT_LEN], file[PATH_MAX], saved[PATH_MAX];
	int r;

	/* The name of the file comes first; and --help works in an environment that is wrong. */
	settings_default(settings);
	settings_report_init(ret_report);
	take_variable(settings, config, get_env, ret_report);
	r = take_args(settings, args, ret_report);
	if (r)
		return r;
	memcpy(file, settings->config_file, sizeof(file));
	config_save_path(get_env, saved);
	settings_default(settings);
	settings_report_init(ret_report);
	config_load(settings, file, saved, ret_report);
	for (size_t i = 0; i < settings_table_len; i++)
		take_variable(settings, &settings_table[i], get_env, ret_report);
	(void)take_args(settings, args, ret_report);
	if (!ret_report->n_errors && settings_check(settings, text))
		settings_say(ret_report, true, "%s", text);
	return ret_report->n_errors ? SETTINGS_E_BAD : 0;
}

const char *settings_winner(const struct setting *setting, char *const *args,
			    char *(*get_env)(const char *name), struct settings *settings,
			    struct settings_report *report)
{
	settings_default(settings);
	settings_report_init(report);
	take_variable(settings, setting, get_env, report);
	(void)take_args(settings, args, report);
	return settings->origin[setting - settings_table];
}

/* Some values begin or go on like YAML's own marks: "[::1]:9401", "/run/a #b". */
static bool settings_is_plain(const char *value)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789/._-=,:";

	return (isalnum((unsigned char)*value) || *value == '/') &&
	       strspn(value, plain) == strlen(value) && value[strlen(value) - 1] != ':';
}

void settings_print_config(FILE *out, const struct settings *settings)
{
	for (size_t i = 0; i < settings_table_len; i++) {
		const struct setting *setting = &settings_table[i];
		char name[SETTING_TEXT_LEN], value[SETTINGS_VALUE_LEN];
		int n;

		settings_name(setting, name);
		settings_print(setting, settings, value);
		/* A file does not name itself, so that line is a comment. */
		n = fprintf(out, "%s%s: ", settings_find(name, SETTINGS_FILE) ? "" : "# ", name);
		n += settings_is_plain(value) ? fprintf(out, "%s", value)
					      : config_file_print(out, value);
		(void)fprintf(out, "%*s # %s\n", n < 44 ? 44 - n : 0, "",
			      settings_origin(setting, settings));
	}
	per_gpu_print_config(out, &settings->per_gpu);
}

/* "--quantum-sec" of NVSHARE_QUANTUM_SEC. */
static void print_flag(FILE *out, const char *variable)
{
	(void)fputs("--", out);
	for (const char *s = variable + strlen("NVSHARE_"); *s; s++)
		(void)fputc(*s == '_' ? '-' : tolower((unsigned char)*s), out);
}

void settings_print_help(FILE *out)
{
	static struct settings defaults; /* too large for a stack */

	settings_default(&defaults);
	(void)fprintf(out,
		      "Usage: nvshare-scheduler [OPTION]...\n"
		      "Shares the GPUs of this node among the programs that run under"
		      " libnvshare.so.\n\n"
		      "  -h, --help      this text\n"
		      "  -V, --version   the version\n"
		      "  --check-config  reads all settings, says what is wrong, and ends\n"
		      "  --print-config  prints all settings with their origins, and ends\n\n"
		      "Every other option is also an environment variable, and a key of the file"
		      " " CONFIG_FILE_DEFAULT ".\n"
		      "The variable wins over the file, and the option over both.\n");
	for (size_t i = 0; i < settings_table_len; i++) {
		const struct setting *setting = &settings_table[i];
		char value[SETTING_TEXT_LEN], allowed[SETTING_TEXT_LEN];

		if (!setting->variable)
			continue;
		setting_print_default(setting, &defaults, value);
		setting_allowed(setting, allowed);
		(void)fputs("\n  ", out);
		print_flag(out, setting->variable);
		(void)fprintf(out, "=VALUE, %s\n      %s (%s); %s\n", setting->variable,
			      setting->help, value, allowed);
	}
	(void)fputs("\nOld names of settings that still work:\n", out);
	for (size_t i = 0; i < settings_table_len; i++) {
		if (settings_table[i].alias)
			(void)fprintf(out, "  %s, now %s\n", settings_table[i].alias,
				      settings_table[i].variable);
	}
}
