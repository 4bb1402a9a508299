/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_HOOK_LOG_H
#define NVS_HOOK_HOOK_LOG_H

/*
 * The library's log lines in the program's stderr. It prints nothing without NVSHARE_DEBUG=1, but
 * for one line when it cannot do what the user asked for.
 *
 * A line is one write(2) to stderr, prefixed "nvshare[pid]: ". Nothing here allocates;
 * errno is kept. Threading: any thread; safe after fork().
 */

#include <stdbool.h>

#define HOOK_LOG_WARNINGS_MAX 32 /* a process */

bool hook_log_enabled(void); /* NVSHARE_DEBUG=1, read once */

void hook_log_print(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void hook_log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Formats only when somebody listens. */
#define hook_debug(...)                                      \
	do {                                                 \
		if (__builtin_expect(hook_log_enabled(), 0)) \
			hook_log_print(__VA_ARGS__);         \
	} while (0)

/* Each place of the source warns once. */
#define hook_warn_once(...)                                                      \
	do {                                                                     \
		static bool hook_warned_;                                        \
		if (!__atomic_exchange_n(&hook_warned_, true, __ATOMIC_RELAXED)) \
			hook_log_warn(__VA_ARGS__);                              \
	} while (0)

#endif
