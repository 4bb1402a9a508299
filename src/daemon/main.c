/* SPDX-License-Identifier: Apache-2.0 */
/* nvshare-scheduler: decides who runs on the GPUs of this node. */

#include "daemon/server.h"
#include "daemon/settings.h"
#include "nvshare/version.h"
#include "util/log.h"
#include "util/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_USAGE = 2 };

int main(int argc, char **argv)
{
	static struct server server; /* too large for a stack */
	struct settings settings;
	char text[SETTINGS_TEXT_LEN];
	int r;

	log_open("nvshare-scheduler", LOG_LEVEL_INFO, STDERR_FILENO);
	switch (settings_parse(argv + (argc > 0), getenv, &settings, text)) {
	case SETTINGS_E_HELP:
		settings_print_help(stdout);
		return output_arrived("nvshare-scheduler") ? EXIT_SUCCESS : EXIT_FAILURE;
	case SETTINGS_E_VERSION:
		(void)printf("nvshare-scheduler " NVSHARE_VERSION "\n");
		return output_arrived("nvshare-scheduler") ? EXIT_SUCCESS : EXIT_FAILURE;
	case SETTINGS_E_BAD:
		log_error("%s", text);
		return EXIT_USAGE;
	default:
		break;
	}
	log_set_level(settings.log_level);
	r = server_init(&server, &settings);
	if (!r)
		r = server_run(&server);
	server_deinit(&server);
	return r ? EXIT_FAILURE : EXIT_SUCCESS;
}
