/* SPDX-License-Identifier: Apache-2.0 */

/*
 * settings_rows scheduler|library|plugin: the rows of the manual's tables of settings, as the
 * code's tables have them: name, default, what is allowed, help. settings_rows aliases: other
 * names. settings_rows metrics: the rows of the table of metrics: name, type, labels, help. For
 * scripts/check-settings.
 */

#include "daemon/http/metrics.h"
#include "daemon/settings/settings.h"
#include "hook/base/hook_options.h"
#include "k8s/plugin_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_rows(const struct setting *table, size_t len, const void *defaults)
{
	for (size_t i = 0; i < len; i++) {
		char value[SETTING_TEXT_LEN], allowed[SETTING_TEXT_LEN];
		const char *quote;

		if (!table[i].variable)
			continue;
		setting_print_default(&table[i], defaults, value);
		setting_allowed(&table[i], allowed);
		quote = strchr(value, ' ') ? "" : "`"; /* words, or what one could write */
		(void)printf("| `%s` | %s%s%s | %s | %s\n", table[i].variable, quote, value, quote,
			     allowed, table[i].help);
	}
}

static void print_aliases(const struct setting *table, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (table[i].alias)
			(void)printf("`%s` is `%s`\n", table[i].alias, table[i].variable);
	}
}

static void print_metrics(void)
{
	static const char *const types[] = {"gauge", "counter", "histogram"};
	static const char *const scopes[] = {"node", "GPU", "client"};

	for (size_t i = 0; i < metrics_table_len; i++) {
		const struct metrics_row *row = &metrics_table[i];
		const char *label = row->label ? row->label : "";
		const char *gap = row->label ? ", " : "";

		if (row->help) /* the first one of its name */
			(void)printf("| `%s` | %s | %s%s%.*s | %s |\n", row->name, types[row->type],
				     scopes[row->scope], gap, (int)strcspn(label, "="), label,
				     row->help);
	}
}

int main(int argc, char **argv)
{
	const char *what = argc == 2 ? argv[1] : "";
	struct settings settings;
	struct plugin_options plugin;
	struct hook_options options;

	plugin_options_default(&plugin);
	settings_default(&settings);
	hook_options_default(&options);
	if (!strcmp(what, "scheduler")) {
		print_rows(settings_table, settings_table_len, &settings);
	} else if (!strcmp(what, "library")) {
		print_rows(hook_options_table, hook_options_table_len, &options);
	} else if (!strcmp(what, "plugin")) {
		print_rows(plugin_options_table, plugin_options_table_len, &plugin);
	} else if (!strcmp(what, "aliases")) {
		print_aliases(settings_table, settings_table_len);
		print_aliases(hook_options_table, hook_options_table_len);
	} else if (!strcmp(what, "metrics")) {
		print_metrics();
	} else {
		(void)fprintf(stderr,
			      "usage: settings_rows scheduler|library|plugin|aliases|metrics\n");
		return EXIT_FAILURE;
	}
	return EXIT_SUCCESS;
}
