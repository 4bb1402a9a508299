/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_OPTIONS_H
#define NVS_DAEMON_OPTIONS_H

/*
 * What the scheduler was told at its start: defaults, then the environment, then the
 * command line, each over the one before. One table names them all.
 */

#include "core/sched.h"
#include "core/timeshare/timeshare.h"
#include "daemon/rights.h"
#include "daemon/sizes.h"
#include "util/log.h"

#include <stdint.h>
#include <stdio.h>

struct options {
	const char *sock_dir; /* NULL: the default; borrowed from argv or the environment */
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

enum {
	OPTIONS_E_SUCCESS_,
	OPTIONS_E_BAD, /* the text says what, and what is allowed */
	OPTIONS_E_HELP,
	OPTIONS_E_VERSION,
};

#define OPTIONS_TEXT_LEN 512

/*
 * args: NULL-terminated, without the program's name. get_env: getenv, or a test's.
 * Returns 0 or OPTIONS_E_*; ret_options is complete or untouched, ret_text is only
 * written with OPTIONS_E_BAD.
 */
int options_parse(char *const *args, char *(*get_env)(const char *name),
		  struct options *ret_options, char ret_text[OPTIONS_TEXT_LEN]);

void options_print_help(FILE *out);

#endif
