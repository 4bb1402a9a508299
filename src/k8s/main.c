/* SPDX-License-Identifier: Apache-2.0 */
/* nvshare-device-plugin: offers the GPUs of this node's scheduler to its kubelet. */

#include "k8s/plugin.h"
#include "nvshare/version.h"
#include "util/fd.h"
#include "util/output.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
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
	static struct plugin plugin;
	static struct plugin_options options;
	char text[PLUGIN_TEXT_LEN];
	int r;

	main_open_standard();
	log_open("nvshare-device-plugin", LOG_LEVEL_INFO, STDERR_FILENO);
	log_limit(5, 100);
	r = plugin_options_parse(argv + (argc > 0), getenv, &options, text);
	if (r == PLUGIN_OPTIONS_E_BAD) {
		log_error("%s", text);
		return EXIT_USAGE;
	}
	if (r == PLUGIN_OPTIONS_E_HELP)
		plugin_options_print_help(stdout);
	if (r == PLUGIN_OPTIONS_E_VERSION)
		(void)printf("nvshare-device-plugin " NVSHARE_VERSION "\n");
	if (r)
		return output_arrived("nvshare-device-plugin") ? EXIT_SUCCESS : EXIT_FAILURE;
	log_set_level(options.log_level);
	(void)umask(0077); /* root alone speaks to the socket */
	r = plugin_init(&plugin, &options);
	if (!r)
		r = plugin_run(&plugin);
	plugin_deinit(&plugin);
	return r ? EXIT_FAILURE : EXIT_SUCCESS;
}
