/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIM_SHARE_MIX_H
#define NVS_TESTS_SIM_SHARE_MIX_H

/* What makes two of exhaustive_share.c's clients one, as seen at a time. */

#include "mix.h"
#include "share_node.h"

void share_mix_slot(uint64_t *hash, uint64_t now, const struct timeshare_client *slot);
void share_mix_world(uint64_t *hash, uint64_t now, const struct client *c);

#endif
