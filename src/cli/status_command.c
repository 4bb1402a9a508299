/* SPDX-License-Identifier: Apache-2.0 */

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/status.h"
#include "cli/terminal.h"
#include "cli/view.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

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
			view_print(stdout, &status, terminal_width(), terminal_has_colours());
	}
	status_deinit(&status);
	return r;
}
