/* SPDX-License-Identifier: Apache-2.0 */
#include "node_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

char node_dir[] = "/tmp/nvshare-test-node-XXXXXX";

int node_dir_make(void)
{
	if (!mkdtemp(node_dir) || setenv("NVSHARE_SIM_DIR", node_dir, 1))
		return -errno;
	return 0;
}

int node_dir_remove(void)
{
	static const char *const names[] = {"node", "node.new", "lock", "inject"};
	char path[sizeof(node_dir) + 16];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(path, sizeof(path), "%s/%s", node_dir, names[i]);
		(void)unlink(path);
	}
	return rmdir(node_dir) ? -errno : 0;
}
