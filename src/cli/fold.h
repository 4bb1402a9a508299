/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CLI_FOLD_H
#define NVS_CLI_FOLD_H

/*
 * Text for terminals: how wide it is, and lines that are too long broken between words. A
 * character counts as one column; escape sequences for colours as none.
 */

#include <stddef.h>
#include <stdio.h>

size_t fold_width(const char *text, size_t len);

/*
 * Prints text, line by line. What does not fit into width columns goes on in the next line,
 * below the second word group ("  memory  ...") if there is one, else a little further in
 * than the line began. A word that is longer stays whole. width 0: as it is.
 */
void fold_print(FILE *out, const char *text, size_t width);

#endif
