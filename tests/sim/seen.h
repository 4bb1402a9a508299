/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIM_SEEN_H
#define NVS_TESTS_SIM_SEEN_H

/*
 * The states that a search has seen, by hash, each with the depth that was left there:
 * open addressing, grows. One a program.
 */

#include <stdbool.h>
#include <stdint.h>

/* size: a power of two; 0 only frees. */
void seen_reset(uint64_t size);

/* false: this state was expanded with as much depth left before. */
bool seen_is_new(uint64_t hash, uint32_t left);

uint64_t seen_count(void);

#endif
