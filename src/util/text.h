/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_UTIL_TEXT_H
#define NVS_UTIL_TEXT_H

/* Text that comes from strangers, made fit for logs, terminals and JSON. Pure. */

/*
 * In place: what could steer a terminal, break a line or a "quoted" value, is not seen (zero
 * width, marks of direction, tags ...), or is not UTF-8: each of its bytes becomes '?' ('"'
 * becomes '\''). Never longer than it was.
 */
void text_sanitize(char *s);

#endif
