/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/sim_options.h"

#include "util/parse.h"

#include <stddef.h>
#include <string.h>

#define US      1000u
#define S       1000000000u
#define US_MAX  10000000u
#define NUM_MAX 1000000u

const char *const sim_options_modes[ENGINE_MODE_COUNT_] = {"default", "slices", "freeze", "hint"};

enum kind {
	KIND_US,
	KIND_COUNT,
	KIND_RATE,
	KIND_SECONDS,
	KIND_MODE,
	KIND_DIST,
	KIND_TEXT,
	KIND_FLAG
};

struct option {
	const char *name, *value; /* value: its name in the help; NULL: a flag */
	enum kind kind;
	uint64_t min, max;
	size_t offset;
	const char *help;
};

#define AT(member) offsetof(struct sim_options, member)

/* Default costs were measured on an H200 (tests/gpu/results). */
static const struct option options[] = {
	{"--mode", "MODE", KIND_MODE, 0, 0, 0,
	 "default (the driver's slices), slices, freeze, hint, all (default)"},
	{"--seconds", "S", KIND_SECONDS, 2, 100000, AT(config.length_ns),
	 "simulated time; default 120"},
	{"--seed", "N", KIND_COUNT, 0, UINT64_MAX, AT(config.seed), "default 1"},
	{"--csv", NULL, KIND_FLAG, 0, 0, AT(is_csv), "one line a mode, with a heading"},
	{"--lc-rate", "N", KIND_RATE, 0, NUM_MAX, AT(lc_rate),
	 "requests a second, Poisson; default 10"},
	{"--lc-service", "US", KIND_US, 1, US_MAX, AT(service_ns),
	 "GPU time of a request; default 5000"},
	{"--lc-dist", "DIST", KIND_DIST, 0, 0, 0,
	 "distribution of that time: fixed (default), exp"},
	{"--trace", "FILE", KIND_TEXT, 0, 0, AT(trace),
	 "requests from lines of arrival_us,service_us, in order"},
	{"--pieces", "N", KIND_COUNT, 1, 10000, AT(config.n_pieces),
	 "pieces of work of a request; default 1"},
	{"--gap", "US", KIND_US, 0, US_MAX, AT(config.gap_ns),
	 "host time between two pieces; default 0"},
	{"--be", "N", KIND_COUNT, 0, ENGINE_BE_MAX, AT(config.n_be),
	 "best-effort programs beside it; default 1"},
	{"--be-kernel", "US", KIND_US, 1, US_MAX, AT(config.be_kernel_ns),
	 "length of a best-effort kernel; default 10000"},
	{"--be-rate", "N", KIND_RATE, 0, NUM_MAX, AT(config.be_rate),
	 "kernels a second of each, Poisson; default 0: always busy"},
	{"--slice", "US", KIND_US, 100, US_MAX, AT(config.slice_ns),
	 "the driver's timeslice; default 2048"},
	{"--switch", "US", KIND_US, 0, US_MAX, AT(config.switch_ns),
	 "from one program to another; default 200"},
	{"--freeze", "US", KIND_US, 0, US_MAX, AT(config.freeze_ns), "default 580"},
	{"--thaw", "US", KIND_US, 0, US_MAX, AT(config.thaw_ns), "default 290"},
	{"--wire", "US", KIND_US, 0, US_MAX, AT(config.wire_ns), "a message, one way; default 40"},
	{"--hint", "US", KIND_US, 0, US_MAX, AT(config.hint_ns),
	 "from a hint to its request; default 1000"},
	{"--burst-idle", "US", KIND_US, 1, US_MAX, AT(config.burst_idle_ns),
	 "a burst ends after so long without work; default 1000"},
};

static int set_mode(struct sim_options *to, const char *value)
{
	unsigned int mode;
	int r;

	to->is_every_mode = strcmp(value, "all") == 0;
	if (to->is_every_mode)
		return 0;
	r = parse_enum(value, sim_options_modes, ENGINE_MODE_COUNT_, &mode);
	if (!r)
		to->config.mode = (enum engine_mode)mode;
	return r;
}

static int set_number(const struct option *o, void *at, const char *value, uint64_t unit)
{
	uint64_t n;
	int r = parse_u64(value, o->min, o->max, &n);

	if (r)
		return r;
	if (o->offset == AT(config.n_be) || o->offset == AT(config.n_pieces))
		*(uint32_t *)at = (uint32_t)n;
	else
		*(uint64_t *)at = n * unit;
	return 0;
}

static int set_option(const struct option *o, struct sim_options *to, const char *value)
{
	static const char *const dists[] = {"fixed", "exp"};
	void *at = (char *)to + o->offset;
	unsigned int dist = 0;
	uint64_t n;
	int r = 0;

	switch (o->kind) {
	case KIND_US:
		return set_number(o, at, value, US);
	case KIND_SECONDS:
		return set_number(o, at, value, S);
	case KIND_COUNT:
		return set_number(o, at, value, 1);
	case KIND_RATE: /* has the same form as seconds */
		r = parse_seconds(value, o->min * S, o->max * S, &n);
		if (!r)
			*(double *)at = (double)n / S;
		return r;
	case KIND_MODE:
		return set_mode(to, value);
	case KIND_DIST:
		r = parse_enum(value, dists, 2, &dist);
		to->is_exponential = dist == 1;
		return r;
	case KIND_TEXT:
		*(const char **)at = value;
		return 0;
	case KIND_FLAG:
		*(bool *)at = true;
		return 0;
	}
	return 0;
}

static const struct option *find_option(const char *name)
{
	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
		if (!strcmp(name, options[i].name))
			return &options[i];
	}
	return NULL;
}

static void set_defaults(struct sim_options *to)
{
	*to = (struct sim_options){
		.is_every_mode = true,
		.lc_rate = 10,
		.service_ns = 5000 * US,
		.config = {.n_pieces = 1,
			   .n_be = 1,
			   .be_kernel_ns = 10000 * US,
			   .seed = 1,
			   .length_ns = 120ull * S,
			   .warmup_ns = S,
			   .slice_ns = 2048 * US,
			   .switch_ns = 200 * US,
			   .freeze_ns = 580 * US,
			   .thaw_ns = 290 * US,
			   .wire_ns = 40 * US,
			   .hint_ns = 1000 * US,
			   .burst_idle_ns = 1000 * US},
	};
}

int sim_options_parse(char *const *args, struct sim_options *ret,
		      char ret_text[SIM_OPTIONS_TEXT_LEN])
{
	struct sim_options to;

	set_defaults(&to);
	for (; *args; args++) {
		const struct option *o = find_option(*args);

		if (!strcmp(*args, "--help") || !strcmp(*args, "-h"))
			return SIM_OPTIONS_E_HELP;
		if (!o) {
			(void)snprintf(ret_text, SIM_OPTIONS_TEXT_LEN,
				       "unknown option '%s'; see --help", *args);
			return SIM_OPTIONS_E_BAD;
		}
		if (o->value && !args[1]) {
			(void)snprintf(ret_text, SIM_OPTIONS_TEXT_LEN, "%s needs %s", o->name,
				       o->value);
			return SIM_OPTIONS_E_BAD;
		}
		if (set_option(o, &to, args[1])) {
			(void)snprintf(ret_text, SIM_OPTIONS_TEXT_LEN,
				       "%s does not take '%s'; see --help", o->name, args[1]);
			return SIM_OPTIONS_E_BAD;
		}
		args += o->value != NULL;
	}
	*ret = to;
	return 0;
}

void sim_options_print_help(FILE *out)
{
	(void)fprintf(out, "usage: nvshare-sim [OPTION...]\n"
			   "Simulates a latency-critical program beside others on one GPU.\n\n");
	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++)
		(void)fprintf(out, "  %-12s %-5s %s\n", options[i].name,
			      options[i].value ? options[i].value : "", options[i].help);
	(void)fprintf(out, "\nUS: microseconds. Rates may have a fraction.\n");
}
