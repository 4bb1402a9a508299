/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIM_SIM_OPTIONS_H
#define NVS_SIM_SIM_OPTIONS_H

/* What nvshare-sim is asked for. Strict: what is not understood is named, not guessed. */

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
	const char *trace; /* path of a file; NULL: Poisson */
};

enum {
	SIM_OPTIONS_E_SUCCESS_,
	SIM_OPTIONS_E_BAD,  /* ret_text says what */
	SIM_OPTIONS_E_HELP, /* print it */
};

extern const char *const sim_options_modes[ENGINE_MODE_COUNT_];

/* args: without the program's name, NULL at the end; the strings stay theirs. */
int sim_options_parse(char *const *args, struct sim_options *ret,
		      char ret_text[SIM_OPTIONS_TEXT_LEN]);

void sim_options_print_help(FILE *out);

#endif
