/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_WEIGHTS_H
#define NVS_CORE_WEIGHTS_H

/*
 * The active clients of each class, sorted by weight, and the active critical ones with an SLO,
 * sorted by that. There may be a thousand of them, so each order is a search tree, which knows its
 * least and its greatest key. Class, weight and SLO are those of timeshare_client::part.
 */

#include "core/timeshare/timeshare.h"

void weights_init(struct timeshare_weights *weights, enum timeshare_order order);
void weights_add(struct timeshare *timeshare, uint32_t client);
void weights_remove(struct timeshare *timeshare,
		    uint32_t client); /* it was added, and its keys are the same */

/* An active critical client of gpu has this SLO, in us. */
bool weights_has_slo(const struct timeshare *timeshare, uint32_t gpu, uint32_t slo_us);

/* Aborts unless weights has n clients, in order. For tests. */
void weights_assert_valid(const struct timeshare *timeshare,
			  const struct timeshare_weights *weights, uint32_t n);

#endif
