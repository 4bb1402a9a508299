/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_APPS_SPREAD_H
#define NVS_APPS_SPREAD_H

/*
 * Prints the distribution of times, percentiles and a histogram, as one line of a table.
 *
 * Ownership: the caller owns the array, which spread_print() sorts.
 */

#include <stdint.h>

void spread_sort(uint64_t *ns, uint64_t n);

void spread_print_head(const char *what); /* the line above; `what` heads the first column */
void spread_print(const char *name, uint64_t *ns, uint64_t n);

#endif
