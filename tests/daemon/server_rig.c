/* SPDX-License-Identifier: Apache-2.0 */
#include "server_rig.h"

#include "util/fd.h"

#include <stdio.h>
#include <stdlib.h>

int server_rig_start(struct server_rig *rig, struct settings *options)
{
	(void)snprintf(rig->dir, sizeof(rig->dir), "/tmp/nvshare-test-XXXXXX");
	rig->server = calloc(1, sizeof(*rig->server));
	if (!rig->server || !mkdtemp(rig->dir))
		return -1;
	(void)snprintf(options->sock_dir, sizeof(options->sock_dir), "%s", rig->dir);
	return server_init(rig->server, options);
}

int server_rig_stop(struct server_rig *rig)
{
	char command[128];

	(void)fd_close(rig->server->admission.listener.fd);
	(void)fd_close(rig->server->admission.listener.lock_fd);
	server_deinit(rig->server);
	(void)snprintf(command, sizeof(command), "rm -r '%s'", rig->dir);
	free(rig->server);
	return system(command);
}
