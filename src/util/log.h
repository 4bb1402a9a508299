/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_UTIL_LOG_H
#define NVS_UTIL_LOG_H

/*
 * Log lines of the programs: "nvshare-scheduler: info: grant client=7 gpu=0 waited_ms=12". The time
 * comes first, in UTC ("2026-01-31T12:00:00.123Z "), unless fd is the journal, which adds its own.
 *
 * Each line is one write of at most LOG_LINE_MAX bytes, without allocation. errno is kept.
 * Logging never blocks: a line that cannot be written at once (a full pipe, a stopped terminal)
 * is dropped, and the next line reports how many were. The file status flags of the standard
 * error stay as they are, because the process that started us shares them. The macros evaluate
 * their arguments only if the level is on.
 *
 * Threading: only one thread may log. Before log_open() warnings and errors go to descriptor 2.
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

/* Borrows name for good. The caller keeps fd; the log may open its file once more for itself. */
void log_open(const char *name, enum log_level level, int fd);

/* From now on lines have no time, for somebody who reads them at once. */
void log_omit_time(void);

/*
 * From now on so many lines a second are written, after a burst that may be as large as burst_max;
 * the others are dropped. Errors, and lines while the level is debug, are not limited.
 */
void log_limit(uint32_t per_sec, uint32_t burst_max);

void log_set_level(enum log_level level);
bool log_is_on(enum log_level level);
uint64_t log_dropped(void); /* dropped lines so far */

__attribute__((format(printf, 2, 3))) void log_write(enum log_level level, const char *format, ...);

/* Appends ": " and the text of the error r, an -errno. Returns r. */
__attribute__((format(printf, 3, 4))) int log_write_errno(enum log_level level, int r,
							  const char *format, ...);

#define log_at(level, ...) (log_is_on(level) ? log_write(level, __VA_ARGS__) : (void)0)
#define log_error(...)     log_at(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)      log_at(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)      log_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)     log_at(LOG_LEVEL_DEBUG, __VA_ARGS__)

#define log_errno(level, r, ...) (log_is_on(level) ? log_write_errno(level, r, __VA_ARGS__) : (r))

#endif
