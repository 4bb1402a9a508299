/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SERVER_RIG_H
#define NVS_TESTS_SERVER_RIG_H

/*
 * A scheduler within the test, in a folder of its own. The test calls what the loop would call.
 *
 * Threading: one thread.
 */

#include "daemon/server.h"
#include "daemon/settings/settings.h"

struct server_rig {
	char dir[64];          /* holds its socket */
	struct server *server; /* owned */
};

/* Starts it with options, whose sock_dir it sets. 0, or an -errno or -1: stop it all the same. */
int server_rig_start(struct server_rig *rig, struct settings *options);

/* Ends it, and removes the folder. 0: nothing is left. */
int server_rig_stop(struct server_rig *rig);

#endif
