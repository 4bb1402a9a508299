/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http/page_html.h"

__asm__(".pushsection .rodata\n"
	".global page_html, page_html_len\n"
	"page_html:\n"
	".incbin \"src/page/page.html\"\n"
	"page_html_end:\n"
	".balign 8\n"
	"page_html_len:\n"
	".quad page_html_end - page_html\n"
	".popsection\n");

/*
 * The page may run its own script, and ask the scheduler that it came from. Trusted types keep the
 * script from making markup of a text.
 */
const char page_policy[] =
	"default-src 'none'; script-src 'sha256-" PAGE_SCRIPT_HASH "';"
	" style-src 'sha256-" PAGE_STYLE_HASH "'; img-src data:; connect-src 'self';"
	" base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
	" require-trusted-types-for 'script'; trusted-types 'none'";
