/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/base/hook_log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* All atomic. */
static struct {
	int level; /* -1: not read yet */
	unsigned int n_warnings;
} hook_log = {.level = -1};

bool hook_log_enabled(void)
{
	int level = __atomic_load_n(&hook_log.level, __ATOMIC_RELAXED);

	if (level < 0) {
		const char *value = secure_getenv("NVSHARE_DEBUG");

		level = value && *value && strcmp(value, "0") != 0;
		__atomic_store_n(&hook_log.level, level, __ATOMIC_RELAXED);
	}

	return level > 0;
}

static void __attribute__((format(printf, 1, 0))) log_line(const char *fmt, va_list args)
{
	int saved_errno = errno;
	char line[512];
	/* getpid(), not a cached value: this may be a child whose fork ran no handlers. */
	int n = snprintf(line, sizeof(line), "nvshare[%d]: ", (int)getpid());
	ssize_t written;
	int m;

	m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, args);
	if (m > 0)
		n += m;
	if (n > (int)sizeof(line) - 2)
		n = (int)sizeof(line) - 2;
	line[n++] = '\n';
	/* A full or closed stderr loses the line; the program must not wait for us. */
	written = write(STDERR_FILENO, line, (size_t)n);
	(void)written;

	errno = saved_errno;
}

void hook_log_print(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	log_line(fmt, args);
	va_end(args);
}

void hook_log_warn(const char *fmt, ...)
{
	va_list args;

	if (__atomic_fetch_add(&hook_log.n_warnings, 1, __ATOMIC_RELAXED) >= HOOK_LOG_WARNINGS_MAX)
		return;

	va_start(args, fmt);
	log_line(fmt, args);
	va_end(args);
}
