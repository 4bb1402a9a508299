/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_WEIGHTS_H
#define NVS_CORE_WEIGHTS_H

/*
 * The least and the greatest weight of the active of one class. How many have each is
 * counted, so that all of them are gone through only when the last one of an extreme has
 * left and others stay.
 */

#include "core/share/share.h"

void weights_add(struct share_weights *weights, uint32_t weight);
void weights_remove(struct share_weights *weights, uint32_t weight); /* that was added */

/* Those of gpu that are not known any more are found again. */
void weights_find(struct share *share, uint32_t gpu);

#endif
