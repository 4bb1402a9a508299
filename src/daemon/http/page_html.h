/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_PAGE_HTML_H
#define NVS_DAEMON_PAGE_HTML_H

#include <stdint.h>

/* src/page/page.html, as bytes of the program, and the Content-Security-Policy that it needs. */

extern const char page_html[];
extern const uint64_t page_html_len; /* bytes; no NUL ends them */
extern const char page_policy[];

#endif
