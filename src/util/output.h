/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_UTIL_OUTPUT_H
#define NVS_UTIL_OUTPUT_H

/* Whether what a program printed has arrived. At its end, from its only thread. */

#include <stdbool.h>

/* false: some of it is lost, and the standard error says so, and why. program: its name. */
bool output_arrived(const char *program);

#endif
