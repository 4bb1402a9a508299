/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CLI_FOLD_H
#define NVS_CLI_FOLD_H

/*
 * Measures text in columns of a terminal, and folds long lines between words. A character of
 * UTF-8 counts as many columns as terminals give it, an escape sequence for colours as none.
 */

#include <stddef.h>
#include <stdio.h>

size_t fold_width(const char *text, size_t len);

/* Bytes of the characters at the begin of text that width columns hold. */
size_t fold_fit(const char *text, size_t width);

/*
 * Prints text, line by line, folded to width columns; 0: unfolded. The rest of a long line is
 * indented: below the second group of words ("  memory  ...") if the line has one, else two
 * columns further than the line's begin. A word longer than width stays whole.
 */
void fold_print(FILE *out, const char *text, size_t width);

#endif
