/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_SETTINGS_H
#define NVS_DAEMON_SETTINGS_H

/*
 * The scheduler's settings. One table names them all (settings_table.c). settings_take() is the
 * only function that changes a value, for every source: a file (daemon/settings/config.h), the
 * environment, the command line, or a tool. A source only brings names and texts, so another source
 * needs no rules of its own. A value carries its origin along.
 *
 * Ownership: struct settings is the caller's, and borrows nothing.
 * Threading: none; the scheduler has one thread.
 */

#include "core/sched.h"
#include "core/timeshare/timeshare.h"
#include "daemon/gpu/sizes.h"
#include "daemon/http/http_address.h"
#include "daemon/http/http_host.h"
#include "daemon/peers/rights.h"
#include "daemon/pool/slab_room.h"
#include "daemon/settings/per_gpu.h"
#include "daemon/settings/settings_jobs.h"
#include "util/log.h"
#include "util/setting.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>

#define SETTINGS_ROWS_MAX   96  /* of the table */
#define SETTINGS_ORIGIN_LEN 256 /* longer names of files are cut */

/* The command line asks for one of these. */
enum settings_task { SETTINGS_TASK_RUN, SETTINGS_TASK_CHECK, SETTINGS_TASK_PRINT };

struct settings {
	char sock_dir[PATH_MAX];         /* "": the default */
	char pods_dir[PATH_MAX];         /* of the kubelet: daemon/peers/pods.h */
	char config_file[PATH_MAX];      /* "": the default, which may be missing */
	char alert_command[PATH_MAX];    /* "": none */
	char http_hosts[HTTP_HOSTS_LEN]; /* http_hosts_parse() */
	struct http_addresses http;
	struct sched_config config;
	struct timeshare_config share;
	struct rights rights;
	struct sizes sizes;
	struct per_gpu per_gpu;
	struct settings_jobs jobs;
	enum log_level log_level;
	struct slab_room_limit host_limit;
	uint64_t context_bytes_max;    /* on each GPU, of all contexts; 0: no limit */
	uint32_t n_contexts_max;       /* the same */
	uint32_t report_slack_percent; /* of a GPU, that reports may exceed what is used */
	uint64_t report_grace_ns;      /* and be ahead of the driver */
	uint64_t grace_ns;             /* after a restart: how long clients may take to come back */
	uint64_t poll_ns;              /* NVML is asked so often how the GPUs are */
	uint64_t first_message_ns;     /* a connection that has said nothing by then is closed */
	/* By row: "nvshare.yaml:3", "NVSHARE_TQ", "--tq", "nvsharectl"; "": built-in. */
	char origin[SETTINGS_ROWS_MAX][SETTINGS_ORIGIN_LEN];
};

/* Each source has its own form of a setting's name. */
enum settings_source {
	SETTINGS_FILE,         /* quantum_sec, or tq; not the file's own name */
	SETTINGS_ENVIRONMENT,  /* NVSHARE_QUANTUM_SEC, or the alias NVSHARE_TQ */
	SETTINGS_COMMAND_LINE, /* --quantum-sec, or --tq */
	SETTINGS_TOOL,         /* the same or the key, with - or _: while the scheduler runs */
};

enum {
	SETTINGS_E_SUCCESS_,
	SETTINGS_E_BAD, /* a text says what, and what is allowed */
	SETTINGS_E_HELP,
	SETTINGS_E_VERSION,
};

#define SETTINGS_TEXT_LEN   512
#define SETTINGS_VALUE_LEN  2048 /* holds any printed value */
#define SETTINGS_REPORT_MAX 48

/* Words of the sources beside values, and the task of the command line. Lines beyond the limit are
 * counted only. */
struct settings_report {
	enum settings_task task;
	uint32_t n_errors, n_lines;
	struct {
		bool is_error; /* else a note about a key that does not apply here */
		char text[SETTINGS_TEXT_LEN];
	} lines[SETTINGS_REPORT_MAX];
};

/* Adds a line, made fit for a terminal. */
__attribute__((format(printf, 3, 4))) void settings_say(struct settings_report *report,
							bool is_error, const char *format, ...);

extern const struct setting settings_table[];
extern const size_t settings_table_len;

void settings_default(struct settings *ret_settings);

/* The row that source calls so; NULL: none, or one that source may not set. */
const struct setting *settings_find(const char *name, enum settings_source source);

/* The text of the first error; NULL: no line is one. */
const char *settings_first_error(const struct settings_report *report);

/* Logs the lines. */
void settings_log(const struct settings_report *report);

/*
 * Changes the value of a row of the table. label: what people called it, for ret_text. 0, or
 * SETTINGS_E_BAD with the reason in ret_text, and settings untouched.
 */
int settings_take(struct settings *settings, const struct setting *setting, const char *label,
		  const char *value, const char *origin, char ret_text[SETTINGS_TEXT_LEN]);

/*
 * Changes one value by its name. 0, or SETTINGS_E_BAD with the reason in ret_text: there is no such
 * name, or the value is not allowed; settings are untouched then.
 */
int settings_set(struct settings *settings, const char *name, const char *value,
		 enum settings_source source, char ret_text[SETTINGS_TEXT_LEN]);

/* Looks at values that each are allowed, but not together. 0 or SETTINGS_E_BAD, as above. */
int settings_check(const struct settings *settings, char ret_text[SETTINGS_TEXT_LEN]);

/* The name in files and of `nvsharectl config`: quantum_sec. */
void settings_name(const struct setting *setting, char buf[SETTING_TEXT_LEN]);

/* The value as any source may write it; the row's own words where it has no text. */
void settings_print(const struct setting *setting, const struct settings *settings,
		    char buf[SETTINGS_VALUE_LEN]);

/* "built-in" where settings->origin is empty. */
const char *settings_origin(const struct setting *setting, const struct settings *settings);

/*
 * Defaults, then the files, then the environment, then the command line, each over the one before.
 * All sources are read, whatever is wrong with the first ones.
 * args: NULL-terminated, without the program's name. get_env: getenv, or a test's.
 * Returns 0 or SETTINGS_E_*, and then settings are of no use: they are too large for a second copy
 * on the stack. ret_report has the errors of SETTINGS_E_BAD, and notes in any case.
 */
int settings_parse(char *const *args, char *(*get_env)(const char *name), struct settings *settings,
		   struct settings_report *ret_report);

/*
 * The variable or option that sets the row, and so wins over every file; "": none. settings and
 * report are for use meanwhile; the result points into settings.
 */
const char *settings_winner(const struct setting *setting, char *const *args,
			    char *(*get_env)(const char *name), struct settings *settings,
			    struct settings_report *report);

void settings_print_help(FILE *out);

/* Every setting with its value and origin, as a configuration file that sets the same. */
void settings_print_config(FILE *out, const struct settings *settings);

#endif
