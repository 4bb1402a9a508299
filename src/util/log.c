/* SPDX-License-Identifier: Apache-2.0 */
#include "util/log.h"

#include "util/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

const char *const log_level_names[LOG_LEVEL_COUNT_] = {"error", "warn", "info", "debug"};

/* The way to write a line without blocking. */
enum log_sink {
	LOG_SINK_POLLED, /* poll() tells whether there is room */
	LOG_SINK_PLAIN,  /* a file, or our own open file description with O_NONBLOCK */
	LOG_SINK_SOCKET, /* send() takes MSG_DONTWAIT */
};

static struct {
	const char *name;
	enum log_level level;
	enum log_sink sink;
	bool has_time; /* lines begin with the time: their reader adds none */
	int fd;
	uint64_t n_dropped;
	uint64_t n_told; /* dropped lines that a log line has reported */
	/* of log_limit(): the time a line costs; what is left of burst_ns, as of the time at_ns */
	uint64_t line_ns, burst_ns, left_ns, at_ns;
} log_state = {.name = "nvshare", .level = LOG_LEVEL_WARN, .fd = STDERR_FILENO};

/* The service manager names the journal's socket in JOURNAL_STREAM. fd may lead elsewhere since. */
static bool is_journal(int fd)
{
	const char *stream = getenv("JOURNAL_STREAM");
	struct stat st;
	char own[48];

	if (!stream || fstat(fd, &st) < 0)
		return false;
	(void)snprintf(own, sizeof(own), "%llu:%llu", (unsigned long long)st.st_dev,
		       (unsigned long long)st.st_ino);
	return strcmp(stream, own) == 0;
}

static void open_sink(int fd)
{
	char path[32];
	struct stat st;
	int own;

	log_state.fd = fd;
	log_state.sink = LOG_SINK_POLLED;
	if (fstat(fd, &st) < 0)
		return;
	if (S_ISREG(st.st_mode)) {
		log_state.sink = LOG_SINK_PLAIN;
	} else if (S_ISSOCK(st.st_mode)) {
		log_state.sink = LOG_SINK_SOCKET;
	} else if (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)) {
		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		if (own < 0)
			return; /* no /proc, or another user's terminal */
		log_state.fd = own;
		log_state.sink = LOG_SINK_PLAIN;
	}
}

void log_open(const char *name, enum log_level level, int fd)
{
	int saved = errno;

	log_state.name = name;
	log_state.level = level;
	log_state.has_time = !is_journal(fd);
	open_sink(fd);
	errno = saved;
}

void log_omit_time(void)
{
	log_state.has_time = false;
}

void log_limit(uint32_t per_sec, uint32_t burst_max)
{
	log_state.line_ns = CLOCK_NS_PER_SEC / per_sec;
	log_state.burst_ns = log_state.line_ns * burst_max;
	log_state.left_ns = log_state.burst_ns;
	log_state.at_ns = clock_now_ns();
}

/* A bucket that fills with time, from which each line takes its cost. */
static bool is_within_limit(enum log_level level)
{
	uint64_t now_ns, passed_ns;

	if (!log_state.line_ns || level == LOG_LEVEL_ERROR || log_is_on(LOG_LEVEL_DEBUG))
		return true;
	now_ns = clock_now_ns();
	passed_ns = now_ns - log_state.at_ns;
	log_state.at_ns = now_ns;
	log_state.left_ns = passed_ns < log_state.burst_ns - log_state.left_ns
				    ? log_state.left_ns + passed_ns
				    : log_state.burst_ns;
	if (log_state.left_ns < log_state.line_ns)
		return false;
	log_state.left_ns -= log_state.line_ns;
	return true;
}

void log_set_level(enum log_level level)
{
	log_state.level = level;
}

bool log_is_on(enum log_level level)
{
	return level <= log_state.level;
}

uint64_t log_dropped(void)
{
	return log_state.n_dropped;
}

static bool sink_write(const char *line, size_t len)
{
	struct pollfd pfd = {.fd = log_state.fd, .events = POLLOUT};

	switch (log_state.sink) {
	case LOG_SINK_SOCKET:
		return send(log_state.fd, line, len, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
	case LOG_SINK_POLLED:
		/* For a pipe, POLLOUT means room for PIPE_BUF bytes. */
		if (poll(&pfd, 1, 0) != 1 || !(pfd.revents & POLLOUT))
			return false;
		return write(log_state.fd, line, len) >= 0;
	case LOG_SINK_PLAIN:
		return write(log_state.fd, line, len) >= 0;
	}
	return false;
}

/* The line's length after an snprintf() at len that returned n; it may have cut the text. */
static size_t line_len_after(size_t len, int n)
{
	len += n > 0 ? (size_t)n : 0;
	return len < LOG_LINE_MAX ? len : LOG_LINE_MAX - 1;
}

/* Begins a line: time, name and level. Returns its length. */
static size_t line_begin(char *line, enum log_level level)
{
	struct timespec now;
	struct tm utc;
	size_t len = 0;

	if (log_state.has_time && clock_gettime(CLOCK_REALTIME, &now) == 0 &&
	    gmtime_r(&now.tv_sec, &utc)) {
		len = strftime(line, LOG_LINE_MAX, "%Y-%m-%dT%H:%M:%S", &utc);
		len = line_len_after(len, snprintf(line + len, LOG_LINE_MAX - len, ".%03dZ ",
						   (int)(now.tv_nsec / 1000000)));
	}
	return line_len_after(len, snprintf(line + len, LOG_LINE_MAX - len,
					    "%s: %s: ", log_state.name, log_level_names[level]));
}

/* Adds the newline, and writes len bytes of line, or less if the newline would not fit. */
static void write_line(enum log_level level, char *line, size_t len)
{
	char told[LOG_LINE_MAX];
	size_t told_len;

	if (!is_within_limit(level)) {
		log_state.n_dropped++;
		return;
	}
	if (len > LOG_LINE_MAX - 1)
		len = LOG_LINE_MAX - 1;
	line[len++] = '\n';
	if (log_state.n_told < log_state.n_dropped) {
		told_len = line_begin(told, LOG_LEVEL_WARN);
		told_len = line_len_after(
			told_len,
			snprintf(told + told_len, LOG_LINE_MAX - told_len,
				 "log-lines-dropped n=%llu\n",
				 (unsigned long long)(log_state.n_dropped - log_state.n_told)));
		if (sink_write(told, told_len))
			log_state.n_told = log_state.n_dropped;
	}
	if (!sink_write(line, len))
		log_state.n_dropped++;
}

__attribute__((format(printf, 3, 0))) static size_t format_line(char *line, enum log_level level,
								const char *format, va_list args)
{
	size_t len = line_begin(line, level);

	return line_len_after(len, vsnprintf(line + len, LOG_LINE_MAX - len, format, args));
}

void log_write(enum log_level level, const char *format, ...)
{
	char line[LOG_LINE_MAX];
	int saved = errno;
	va_list args;
	size_t len;

	va_start(args, format);
	len = format_line(line, level, format, args);
	va_end(args);
	write_line(level, line, len);
	errno = saved;
}

int log_write_errno(enum log_level level, int r, const char *format, ...)
{
	const char *text = strerrordesc_np(r < 0 ? -r : r);
	char line[LOG_LINE_MAX];
	int saved = errno;
	va_list args;
	size_t len;

	va_start(args, format);
	len = format_line(line, level, format, args);
	va_end(args);
	len = line_len_after(len, snprintf(line + len, LOG_LINE_MAX - len, ": %s",
					   text ? text : "unknown error"));
	write_line(level, line, len);
	errno = saved;
	return r;
}
