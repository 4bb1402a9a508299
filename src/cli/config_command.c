/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "cli/json.h"

#include "util/fd.h"

#include <stdio.h>
#include <string.h>

/* A value that is longer moves its origin to the right, and no other one's. */
static void print_row(const char *name, const char *value, const char *origin)
{
	(void)printf("%-29s %-29s %s\n", name, value, origin);
}

/* One setting of the scheduler, with the part of the value that begins at body->value_at. */
static int config_ask(int fd, const struct nvshare_get_config *body,
		      struct nvshare_config *ret_config)
{
	struct msg msg;
	int r = request_send(fd, NVSHARE_MSG_GET_CONFIG, body);

	if (!r)
		r = request_receive(fd, &msg);
	if (r)
		return r;
	if (msg.header.type != NVSHARE_MSG_CONFIG ||
	    (body->value_at < msg.body.config.value_len && !*msg.body.config.value)) {
		(void)fprintf(stderr, "nvsharectl: the scheduler gives a wrong answer: %s\n",
			      msg_name(msg.header.type));
		return CLI_EXIT_NO_SCHEDULER;
	}
	*ret_config = msg.body.config;
	return CLI_EXIT_OK;
}

/* One setting of the scheduler; the value, which may need several answers, is in value. */
static int config_fetch(int fd, uint32_t row, struct nvshare_config *ret_config,
			char value[NVSHARE_VALUE_ALL_MAX])
{
	struct nvshare_get_config body = {.row = row};
	size_t n = 0;
	int r;

	do {
		r = config_ask(fd, &body, ret_config);
		if (r)
			return r;
		n += (size_t)snprintf(value + n, NVSHARE_VALUE_ALL_MAX - n, "%s",
				      ret_config->value);
		body.value_at = (uint32_t)n;
	} while (n < ret_config->value_len);
	return CLI_EXIT_OK;
}

static void print_json(const struct nvshare_config *config, const char *value)
{
	(void)printf("%s\n  {\"setting\": ", config->row ? "," : "");
	json_print_string(stdout, config->name);
	(void)fputs(", \"value\": ", stdout);
	json_print_string(stdout, value);
	(void)fputs(", \"origin\": ", stdout);
	json_print_string(stdout, config->origin);
	(void)printf(", \"needs_restart\": %s}", config->is_fixed ? "true" : "false");
}

int config_command(char *const *args)
{
	bool is_json = args[0] && !strcmp(args[0], "--json");
	struct nvshare_config config = {.n_rows = 1};
	char value[NVSHARE_VALUE_ALL_MAX];
	FD_CLEANUP int fd = -1;
	int r;

	if (args[is_json]) {
		(void)fprintf(stderr, "nvsharectl: config takes --json, and nothing else\n");
		return CLI_EXIT_USAGE;
	}
	r = request_open(&fd);
	if (is_json && !r)
		(void)putchar('[');
	else if (!r)
		print_row("SETTING", "VALUE", "ORIGIN");
	for (uint32_t row = 0; !r && row < config.n_rows; row++) {
		r = config_fetch(fd, row, &config, value);
		if (r)
			break;
		if (is_json)
			print_json(&config, value);
		else
			print_row(config.name, value, config.origin);
	}
	if (is_json && !r)
		(void)puts("\n]");
	return r;
}
