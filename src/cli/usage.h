/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CLI_USAGE_H
#define NVS_CLI_USAGE_H

/*
 * The one table of what people may write behind nvsharectl. The help and the completion of shells
 * come from it. Single-threaded.
 */

#include <stdio.h>

/* The rows of the help. */
void usage_print(FILE *out);

/*
 * Prints the words that may follow args, one a line; nothing where a number or a name of people's
 * own follows. args: the words before, NULL-terminated, without the program's name.
 */
void usage_complete(char *const *args, FILE *out);

#endif
