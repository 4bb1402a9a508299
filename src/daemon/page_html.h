/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_PAGE_HTML_H
#define NVS_DAEMON_PAGE_HTML_H

/* src/page/page.html, as bytes of the program, and the Content-Security-Policy that it needs. */

extern const char page_html[], page_html_end[];
extern const char page_policy[];

#endif
