/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIM_SIM_OPTIONS_H
#define NVS_SIM_SIM_OPTIONS_H

/* Reads nvshare-sim's command line, strictly: it rejects an unknown option or value, by name. */

#include "sim/engine.h"

#include <stdio.h>

#define SIM_OPTIONS_TEXT_LEN 200

struct sim_options {
	struct engine_config config; /* without requests */
	bool is_every_mode;
	bool is_csv;
	bool is_exponential;
	double lc_rate;
	uint64_t service_ns;
	const char *trace; /* path of a file, borrowed from args; NULL: Poisson arrivals */
};

enum {
	SIM_OPTIONS_E_SUCCESS_,
	SIM_OPTIONS_E_BAD,  /* ret_text has the error */
	SIM_OPTIONS_E_HELP, /* the caller prints the help */
};

extern const char *const sim_options_modes[ENGINE_MODE_COUNT_];

/* args: without the program's name, ended by NULL. Returns 0 or SIM_OPTIONS_E_*. */
int sim_options_parse(char *const *args, struct sim_options *ret,
		      char ret_text[SIM_OPTIONS_TEXT_LEN]);

void sim_options_print_help(FILE *out);

#endif
