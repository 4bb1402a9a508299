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

/* Room for the longest text that a message carries, with each byte escaped. */
struct text_quoted {
	char text[516];
};

/*
 * s as a value of logfmt: in quotes, with a backslash before each quote and backslash. Returns
 * ret->text. A text that is too long is cut. Lines and other controls stay as they are:
 * text_sanitize() takes them out.
 */
const char *text_quote(struct text_quoted *ret, const char *s);

/* text_quote() for an argument of a log line. */
#define TEXT_QUOTED(s) text_quote(&(struct text_quoted){{0}}, s)

#endif
