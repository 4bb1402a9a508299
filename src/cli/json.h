/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CLI_JSON_H
#define NVS_CLI_JSON_H

/* JSON for programs. Single-threaded. */

#include <stdio.h>

struct status;

/* Prints s between quotation marks, escaped. s has UTF-8 alone. */
void json_print_string(FILE *out, const char *s);

/* Prints the status. A later version may add keys, but renames none. */
void json_print(FILE *out, const struct status *status);

#endif
