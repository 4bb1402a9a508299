/* SPDX-License-Identifier: Apache-2.0 */
/* nvshare-scheduler: decides who runs on the GPUs of this node. */

#include "daemon/gpu/helper.h"
#include "daemon/server.h"
#include "daemon/settings/settings.h"
#include "nvshare/version.h"
#include "util/fd.h"
#include "util/log.h"
#include "util/output.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_USAGE = 2 };

/* Else a socket could take the number of standard error, and its peer would get the log. */
static void main_open_standard(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	(void)fd_close(fd);
}

int main(int argc, char **argv)
{
	/* They are too large for a stack. */
	static struct server server;
	static struct settings settings;
	static struct settings_report report;
	static char out[1 << 15]; /* holds all that is printed, so a failed write is the last one */
	int r;

	if (argc == 2 && !strcmp(argv[1], HELPER_OPTION))
		return helper_main(STDIN_FILENO); /* this program has started itself so */
	main_open_standard();
	(void)setvbuf(stdout, out, _IOFBF, sizeof(out));
	log_open("nvshare-scheduler", LOG_LEVEL_INFO, STDERR_FILENO);
	r = settings_parse(argv + (argc > 0), getenv, &settings, &report);
	if (report.task != SETTINGS_TASK_RUN)
		log_omit_time();
	if (r == SETTINGS_E_HELP)
		settings_print_help(stdout);
	else if (r == SETTINGS_E_VERSION)
		(void)printf("nvshare-scheduler " NVSHARE_VERSION "\n");
	else
		settings_log(&report);
	if (r == SETTINGS_E_BAD)
		return report.task == SETTINGS_TASK_RUN ? EXIT_USAGE : EXIT_FAILURE;
	if (!r && report.task == SETTINGS_TASK_PRINT)
		settings_print_config(stdout, &settings);
	if (r || report.task != SETTINGS_TASK_RUN)
		return output_arrived("nvshare-scheduler") ? EXIT_SUCCESS : EXIT_FAILURE;
	log_set_level(settings.log_level);
	server.args = argv + (argc > 0);
	r = server_init(&server, &settings);
	if (!r)
		r = server_run(&server);
	server_deinit(&server);
	return r ? EXIT_FAILURE : EXIT_SUCCESS;
}
