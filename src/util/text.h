/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_UTIL_TEXT_H
#define NVS_UTIL_TEXT_H

/*
 * Makes a stranger's text fit for logs, terminals and JSON, in place. Pure.
 *
 * '"' becomes '\''. Each byte of these becomes '?': control characters, invisible characters
 * (zero width, marks of direction, tags), and bytes that are not UTF-8. The length stays.
 */
void text_sanitize(char *s);

#endif
