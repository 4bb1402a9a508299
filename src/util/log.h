/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_UTIL_LOG_H
#define NVS_UTIL_LOG_H

/*
 * Log lines of the programs: "nvshare-scheduler: info: grant client=7 gpu=0 waited_ms=12".
 *
 * One write a line, at most LOG_LINE_MAX bytes, no allocation, errno kept. Never
 * blocks: a line that does not go out at once (a full pipe, a terminal that was
 * stopped) is dropped and counted, and the next line that does is preceded by that
 * count. The standard error's own file status flags are left alone: they are shared
 * with whoever started us. Arguments are evaluated only if the level is on.
 *
 * Threading: one thread logs. Without log_open() warnings and errors go to descriptor 2.
 */

#include <stdbool.h>
#include <stdint.h>

#define LOG_LINE_MAX 1024 /* below PIPE_BUF: a pipe takes a line whole or not at all */

enum log_level {
	LOG_LEVEL_ERROR,
	LOG_LEVEL_WARN,
	LOG_LEVEL_INFO,
	LOG_LEVEL_DEBUG,
	LOG_LEVEL_COUNT_
};

extern const char *const log_level_names[LOG_LEVEL_COUNT_];

/* name is kept. fd stays the caller's; it may be opened anew, privately. */
void log_open(const char *name, enum log_level level, int fd);

void log_set_level(enum log_level level);
bool log_is_on(enum log_level level);
uint64_t log_dropped(void); /* lines, in all */

__attribute__((format(printf, 2, 3))) void log_write(enum log_level level, const char *format, ...);

/* Appends ": " and the text of the error r (-errno). Returns r. */
__attribute__((format(printf, 3, 4))) int log_write_errno(enum log_level level, int r,
							  const char *format, ...);

#define log_at(level, ...) (log_is_on(level) ? log_write(level, __VA_ARGS__) : (void)0)
#define log_error(...)     log_at(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)      log_at(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)      log_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)     log_at(LOG_LEVEL_DEBUG, __VA_ARGS__)

#define log_errno(level, r, ...) (log_is_on(level) ? log_write_errno(level, r, __VA_ARGS__) : (r))

#endif
