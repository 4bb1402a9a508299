/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "cli/table.h"

#include "util/fd.h"

#include <stdio.h>
#include <string.h>

static const struct table_column columns[] = {
	{"SETTING", TABLE_ALIGN_LEFT, 0},
	{"VALUE", TABLE_ALIGN_LEFT, 0},
	{"ORIGIN", TABLE_ALIGN_LEFT, 0},
};

/* One setting of the scheduler. */
static int config_fetch(int fd, uint32_t row, struct nvshare_config *ret_config)
{
	struct nvshare_get_config body = {.row = row};
	struct msg msg;
	int r = request_send(fd, NVSHARE_MSG_GET_CONFIG, &body);

	if (!r)
		r = request_receive(fd, &msg);
	if (r)
		return r;
	if (msg.header.type != NVSHARE_MSG_CONFIG) {
		(void)fprintf(stderr, "nvsharectl: the scheduler gives a wrong answer: %s\n",
			      msg_name(msg.header.type));
		return CLI_EXIT_NO_SCHEDULER;
	}
	*ret_config = msg.body.config;
	return CLI_EXIT_OK;
}

/* The scheduler's texts have no quotation mark and no control character; \ is left. */
static void print_string(const char *text)
{
	(void)putchar('"');
	for (; *text; text++)
		(void)printf("%s%c", *text == '\\' ? "\\" : "", *text);
	(void)putchar('"');
}

static void print_json(const struct nvshare_config *config)
{
	(void)printf("%s\n  {\"setting\": ", config->row ? "," : "");
	print_string(config->name);
	(void)fputs(", \"value\": ", stdout);
	print_string(config->value);
	(void)fputs(", \"origin\": ", stdout);
	print_string(config->origin);
	(void)printf(", \"needs_restart\": %s}", config->is_fixed ? "true" : "false");
}

int config_command(char *const *args)
{
	bool is_json = args[0] && !strcmp(args[0], "--json");
	struct nvshare_config config = {.n_rows = 1};
	FD_CLEANUP int fd = -1;
	struct table table;
	int r;

	if (args[is_json]) {
		(void)fprintf(stderr, "nvsharectl: config takes --json, and nothing else\n");
		return CLI_EXIT_USAGE;
	}
	table_init(&table, columns, sizeof(columns) / sizeof(*columns));
	r = request_open(&fd);
	if (is_json && !r)
		(void)putchar('[');
	for (uint32_t row = 0; !r && row < config.n_rows; row++) {
		r = config_fetch(fd, row, &config);
		if (r)
			break;
		if (is_json) {
			print_json(&config);
			continue;
		}
		table_add(&table, NULL, "%s", config.name);
		table_add(&table, NULL, "%s", config.value);
		table_add(&table, NULL, "%s", config.origin);
	}
	if (is_json && !r)
		(void)puts("\n]");
	else if (!r)
		table_print(&table, stdout, "", 0, false);
	table_deinit(&table);
	return r;
}
