/* SPDX-License-Identifier: Apache-2.0 */

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/status.h"
#include "cli/view.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static bool wants_colours(void)
{
	const char *no_color = getenv("NO_COLOR");
	const char *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && !(no_color && *no_color) && term && *term &&
	       strcmp(term, "dumb") != 0;
}

/* 0: unknown. Programs that show our output, as watch(1) does, set COLUMNS. */
static size_t terminal_width(void)
{
	const char *columns = getenv("COLUMNS");
	struct winsize size;

	if (isatty(STDOUT_FILENO))
		return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
	return columns ? strtoul(columns, NULL, 10) : 0;
}

int status_command(char *const *args)
{
	struct status status = {.gpus = NULL};
	bool is_json = args[0] && !strcmp(args[0], "--json");
	int r;

	if (args[0] && (!is_json || args[1])) {
		(void)fprintf(stderr, "nvsharectl: status takes --json or nothing, not '%s'\n",
			      is_json ? args[1] : args[0]);
		return CLI_EXIT_USAGE;
	}
	r = status_fetch(&status);
	if (!r) {
		if (is_json)
			json_print(stdout, &status);
		else
			view_print(stdout, &status, terminal_width(), wants_colours());
	}
	status_deinit(&status);
	return r;
}
