/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_WEIGHTS_H
#define NVS_CORE_WEIGHTS_H

/*
 * The least and the greatest weight of the active of one class, of whom there may be a
 * thousand: a search tree by weight. Class and weight are those of share_client::part.
 */

#include "core/share/share.h"

void weights_init(struct share_weights *weights);
void weights_add(struct share *share, uint32_t client);
void weights_remove(struct share *share, uint32_t client); /* that was added, as it was then */

/* Aborts unless those of weights are n, and in order. For tests. */
void weights_assert_valid(const struct share *share, const struct share_weights *weights,
			  uint32_t n);

#endif
