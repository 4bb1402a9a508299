/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_UTIL_PARSE_H
#define NVS_UTIL_PARSE_H

/*
 * Converts text to numbers, strictly: the whole string must have the form. Returns 0, -EINVAL
 * (another form) or -ERANGE (outside min..max). A failure leaves *ret untouched. Pure; keeps
 * errno.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret);

/* Bytes: "512", "64KiB", "1.5 GiB", "20G" (a single letter is binary), "20GB" (decimal). */
int parse_size(const char *s, uint64_t *ret);

/* A size, or "50%" of total. */
int parse_size_or_percent(const char *s, uint64_t total, uint64_t *ret);

int parse_bool(const char *s, bool *ret); /* 1 0 yes no true false on off */

/* Seconds to nanoseconds: "1.5", "0.2", "30"; at most nine digits after the point. */
int parse_seconds(const char *s, uint64_t min_ns, uint64_t max_ns, uint64_t *ret_ns);

/* Index of s in names[0..n); case does not matter. */
int parse_enum(const char *s, const char *const *names, size_t n, unsigned int *ret);

/* Writes "1.5 GiB" to buf, and returns buf. */
char *format_size(uint64_t bytes, char *buf, size_t size);

#endif
