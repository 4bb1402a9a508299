/* SPDX-License-Identifier: Apache-2.0 */

/* The sources of settings at the start, the environment and the command line; and the help. */

#include "daemon/settings.h"

#include <ctype.h>
#include <string.h>

static int take_environment(struct settings *settings, char *(*get_env)(const char *name),
			    char *ret_text)
{
	for (size_t i = 0; i < settings_table_len; i++) {
		const char *name = settings_table[i].variable, *alias = settings_table[i].alias;
		const char *value = name ? get_env(name) : NULL;
		const char *alias_value = alias ? get_env(alias) : NULL;
		int r;

		/* Set but empty is as good as not set. */
		if (!value || !*value) {
			name = alias;
			value = alias_value;
		} else if (alias_value && *alias_value && strcmp(value, alias_value) != 0) {
			(void)snprintf(ret_text, SETTINGS_TEXT_LEN,
				       "%s and %s are one setting with two values; unset %s", name,
				       alias, alias);
			return SETTINGS_E_BAD;
		}
		if (!value || !*value)
			continue;
		r = settings_set(settings, name, value, SETTINGS_ENVIRONMENT, ret_text);
		if (r)
			return r;
	}
	return 0;
}

/* "--quantum-sec=5" or "--quantum-sec 5" at *args, which is moved behind it. */
static int take_flag(struct settings *settings, char *const **args, char *ret_text)
{
	const char *arg = *(*args)++;
	const char *value = strchr(arg, '=');
	size_t len = value ? (size_t)(value - arg) : strlen(arg);
	char name[64] = ""; /* longer than any flag */

	memcpy(name, arg, len < sizeof(name) ? len : sizeof(name) - 1);
	if (!settings_find(name, SETTINGS_COMMAND_LINE)) {
		(void)snprintf(ret_text, SETTINGS_TEXT_LEN, "unknown option '%.80s'; see --help",
			       arg);
		return SETTINGS_E_BAD;
	}
	if (value)
		value++;
	else if (**args)
		value = *(*args)++;
	if (value)
		return settings_set(settings, name, value, SETTINGS_COMMAND_LINE, ret_text);
	(void)snprintf(ret_text, SETTINGS_TEXT_LEN, "%s needs a value", name);
	return SETTINGS_E_BAD;
}

static int take_args(struct settings *settings, char *const *args, char *ret_text)
{
	while (*args) {
		int r;

		if (!strcmp(*args, "--help") || !strcmp(*args, "-h"))
			return SETTINGS_E_HELP;
		if (!strcmp(*args, "--version") || !strcmp(*args, "-V"))
			return SETTINGS_E_VERSION;
		r = take_flag(settings, &args, ret_text);
		if (r)
			return r;
	}
	return 0;
}

int settings_parse(char *const *args, char *(*get_env)(const char *name),
		   struct settings *ret_settings, char ret_text[SETTINGS_TEXT_LEN])
{
	struct settings settings, ignored;
	int r;

	/* --help works in an environment that is wrong. */
	settings_default(&ignored);
	r = take_args(&ignored, args, ret_text);
	if (r)
		return r;
	settings_default(&settings);
	r = take_environment(&settings, get_env, ret_text);
	if (!r)
		r = take_args(&settings, args, ret_text);
	if (!r)
		r = settings_check(&settings, ret_text);
	if (r)
		return r;
	*ret_settings = settings;
	return 0;
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
	struct settings defaults;

	settings_default(&defaults);
	(void)fprintf(out,
		      "Usage: nvshare-scheduler [OPTION]...\n"
		      "Shares the GPUs of this node among the programs that run under"
		      " libnvshare.so.\n\n"
		      "  -h, --help      this text\n"
		      "  -V, --version   the version\n\n"
		      "Every other option is also an environment variable; the option wins.\n");
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
