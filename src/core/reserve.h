/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_RESERVE_H
#define NVS_CORE_RESERVE_H

/*
 * The part of a card that no budget counts on, and what lives there all the same: pager contexts,
 * and in one half pinned bytes and the lead of a client that comes. All in bytes.
 */

#include "core/sched.h"

#include <stdint.h>

/* All of it: the GPU's reserve_percent of the card, rounded up. */
uint64_t reserve_bytes(const struct sched *sched, uint32_t gpu);

/* The most that pinned bytes and the lead take of it together. */
uint64_t reserve_half(const struct sched *sched, uint32_t gpu);

/*
 * The bytes of it that pinned bytes, and up to lead bytes more, take: no more than half of what
 * the bytes of pager contexts leave.
 */
uint64_t reserve_used(const struct sched *sched, uint32_t gpu, uint64_t pager_contexts,
		      uint64_t pinned, uint64_t lead);

#endif
