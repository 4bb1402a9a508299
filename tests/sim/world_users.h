/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIM_WORLD_USERS_H
#define NVS_TESTS_SIM_WORLD_USERS_H

/*
 * No user waits for more than two turns of each other user. It waits
 * as long as one of its programs is in the queue that could come in if others were stopped. A
 * turn is one for which others are stopped. Those of users with a higher class do not count. One
 * turn would be enough if a program could not lose its chance for a moment within a step: pinned
 * bytes and second contexts that come and go beside it decide whether it fits.
 */

#include "world.h"

void world_look_users(const struct world *world, struct world_users *ret_users);

/* After a step; before: what world_look_users() saw before it. */
void world_check_users(struct world *world, const struct world_users *before);

#endif
