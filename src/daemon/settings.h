/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_SETTINGS_H
#define NVS_DAEMON_SETTINGS_H

/*
 * The scheduler's settings. One table names them all (settings_table.c). settings_set() is the
 * only function that changes a value, for every source: the environment, the command line, or a
 * tool. A source only brings names and texts, so another source needs no rules of its own.
 *
 * Ownership: struct settings is the caller's. sock_dir is borrowed from argv or the environment.
 * Threading: none; the scheduler has one thread.
 */

#include "core/sched.h"
#include "core/timeshare/timeshare.h"
#include "daemon/http_address.h"
#include "daemon/rights.h"
#include "daemon/sizes.h"
#include "util/log.h"
#include "util/setting.h"

#include <stdint.h>
#include <stdio.h>

struct settings {
	const char *sock_dir; /* NULL: the default */
	struct http_addresses http;
	struct sched_config config;
	struct timeshare_config share;
	struct rights rights;
	struct sizes sizes;
	enum log_level log_level;
	uint64_t context_bytes_max;    /* on each GPU, of all contexts; 0: no limit */
	uint32_t n_contexts_max;       /* the same */
	uint32_t report_slack_percent; /* of a GPU, that reports may exceed what is used */
	uint64_t report_grace_ns;      /* and be ahead of the driver */
	uint64_t grace_ns;             /* after a restart: how long clients may take to come back */
	uint64_t first_message_ns;     /* a connection that has said nothing by then is closed */
};

/* Each source has its own form of a setting's name. */
enum settings_source {
	SETTINGS_ENVIRONMENT,  /* NVSHARE_QUANTUM_SEC, or the alias NVSHARE_TQ */
	SETTINGS_COMMAND_LINE, /* --quantum-sec, or --tq */
	SETTINGS_TOOL,         /* tq: while the scheduler runs */
};

enum {
	SETTINGS_E_SUCCESS_,
	SETTINGS_E_BAD, /* the text says what, and what is allowed */
	SETTINGS_E_HELP,
	SETTINGS_E_VERSION,
};

#define SETTINGS_TEXT_LEN 512

extern const struct setting settings_table[];
extern const size_t settings_table_len;

void settings_default(struct settings *ret_settings);

/* The row that source calls so; NULL: none, or one that source may not set. */
const struct setting *settings_find(const char *name, enum settings_source source);

/*
 * Changes one value. 0, or SETTINGS_E_BAD with the reason in ret_text: there is no such name, or
 * the value is not allowed; settings are untouched then.
 */
int settings_set(struct settings *settings, const char *name, const char *value,
		 enum settings_source source, char ret_text[SETTINGS_TEXT_LEN]);

/* Looks at values that each are allowed, but not together. 0 or SETTINGS_E_BAD, as above. */
int settings_check(const struct settings *settings, char ret_text[SETTINGS_TEXT_LEN]);

/*
 * Defaults, then the environment, then the command line, each over the one before.
 * args: NULL-terminated, without the program's name. get_env: getenv, or a test's.
 * Returns 0 or SETTINGS_E_*; ret_settings is complete or untouched, ret_text is only
 * written with SETTINGS_E_BAD.
 */
int settings_parse(char *const *args, char *(*get_env)(const char *name),
		   struct settings *ret_settings, char ret_text[SETTINGS_TEXT_LEN]);

void settings_print_help(FILE *out);

#endif
