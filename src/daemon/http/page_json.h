/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_PAGE_JSON_H
#define NVS_DAEMON_PAGE_JSON_H

/*
 * The answers to the page, as JSON: the status, and the newest part of the ring. The page and the
 * scheduler are of one version, so nothing here is an interface for others; `nvsharectl status
 * --json` is.
 *
 * Names come from strangers, and are escaped. Pure but for memory. Threading: none.
 */

#include <stddef.h>
#include <stdint.h>

#define PAGE_TRACE_MAX 1024 /* entries of one answer */

struct metrics;
struct trace;

struct page_text {
	char *at; /* malloc(); the caller frees it */
	size_t len;
};

/* The newest entries, as text. Zeroed: none. */
struct page_trace {
	uint64_t made_ns; /* 0: never */
	uint64_t first, next;
	struct page_text text;             /* of all */
	size_t starts[PAGE_TRACE_MAX + 1]; /* of each entry in the text */
};

/* 0 or -ENOMEM: *ret is untouched. */
int page_json_status(const struct metrics *metrics, struct page_text *ret);

/* 0 or -ENOMEM: page is empty until the next time. */
int page_trace_make(struct page_trace *page, const struct trace *trace, uint64_t now_ns);
void page_trace_deinit(struct page_trace *page);

/* The entries from number since on. 0 or -ENOMEM: *ret is untouched. */
int page_trace_since(const struct page_trace *page, uint64_t since, struct page_text *ret);

#endif
