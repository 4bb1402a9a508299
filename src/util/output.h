/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_UTIL_OUTPUT_H
#define NVS_UTIL_OUTPUT_H

/* Checks at a program's end, in its only thread, that its output has been written. */

#include <stdbool.h>

/* false: output is lost; prints the reason to the standard error, after the name of program. */
bool output_arrived(const char *program);

#endif
