/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/options.h"

#include "ipc/names.h"
#include "nvshare/protocol.h"
#include "util/clock.h"
#include "util/parse.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

enum option_kind {
	OPTION_TEXT,
	OPTION_ENUM,
	OPTION_BOOL,
	OPTION_NUMBER,
	OPTION_SECONDS,
	OPTION_MS,
	OPTION_US,
	OPTION_SLICE,  /* us, as they are */
	OPTION_SLICES, /* "high=1000,low=200": by class */
	OPTION_RIGHTS,
	OPTION_SIZES,
	OPTION_SIZE,
};

#define SEC CLOCK_NS_PER_SEC
#define US  1000ull
#define DAY (86400 * SEC)

#define TURN_MIN        (NVSHARE_TURN_MS_MIN * CLOCK_NS_PER_MS)
#define TURN_MAX        (NVSHARE_TURN_MS_MAX * CLOCK_NS_PER_MS)
#define MAX_RUNTIME_MIN (NVSHARE_MAX_RUNTIME_MS_MIN * CLOCK_NS_PER_MS)
#define MAX_RUNTIME_MAX (NVSHARE_MAX_RUNTIME_MS_MAX * CLOCK_NS_PER_MS)

static const char *const rule_names[] = {"fixed", "slack", "exponential", "feedback"};

/*
 * min and max are in the unit of the field: nanoseconds for times. The least values
 * are far below what is sensible on a real node, so that tests need not wait.
 */
static const struct option {
	const char *variable;
	enum option_kind kind;
	size_t offset;
	uint64_t min;
	uint64_t max;
	const char *const *names; /* OPTION_ENUM: max of them */
	const char *help;         /* but for the default, which the core says */
} options_table[] = {
#define AT(field) offsetof(struct options, field)
	{"NVSHARE_SOCK_DIR", OPTION_TEXT, AT(sock_dir), 0, 0, NULL,
	 "directory of the socket (" NVSHARE_SOCK_DIR_DEFAULT ")"},
	{"NVSHARE_SCHEDULING_MODE", OPTION_ENUM, AT(config.mode), 0, 3, names_mode,
	 "auto: side by side when all fit, else in turns"},
	{"NVSHARE_POLICY", OPTION_ENUM, AT(config.policy), 0, 4, names_policy,
	 "whose turn is next: by class and then fair; by weighted GPU time; by rounds of"
	 " 10 s for a weight of 100, however short the switch time; by slack"},
	{"NVSHARE_FAIR_USERS", OPTION_BOOL, AT(config.fair_users), 0, 0, NULL,
	 "turns go round the users first, then among each one's programs; 0: among programs alone"},
	{"NVSHARE_PRIORITY_MAX", OPTION_RIGHTS, AT(rights), 0, 0, NULL,
	 "how high a priority users may claim (normal)"},
	{"NVSHARE_QUANTUM_SEC", OPTION_SECONDS, AT(config.tq_ns), TURN_MIN, TURN_MAX, NULL,
	 "length of a turn in mode concurrent"},
	{"NVSHARE_SWITCH_TIME_MODE", OPTION_ENUM, AT(config.switch_mode), 0, 2, names_switch_mode,
	 "auto: from the time that a switch takes"},
	{"NVSHARE_SWITCH_TIME_FIXED", OPTION_SECONDS, AT(config.switch_fixed_ns), TURN_MIN,
	 TURN_MAX, NULL, "length of a turn with switch time fixed"},
	{"NVSHARE_SWITCH_TIME_MULTIPLIER", OPTION_NUMBER, AT(config.switch_multiplier), 1, 1000,
	 NULL, "auto: swap time times this"},
	{"NVSHARE_SWITCH_TIME_MIN", OPTION_SECONDS, AT(config.switch_min_ns), SEC / 100, DAY, NULL,
	 "auto: at least"},
	{"NVSHARE_SWITCH_TIME_MAX", OPTION_SECONDS, AT(config.switch_max_ns), SEC / 100, DAY, NULL,
	 "auto: at most"},
	{"NVSHARE_MEMORY_RESERVE_PERCENT", OPTION_NUMBER, AT(config.reserve_percent), 0,
	 NVSHARE_RESERVE_PERCENT_MAX, NULL, "of each GPU's memory, left alone"},
	{"NVSHARE_GPUS", OPTION_SIZES, AT(sizes), 0, 0, NULL,
	 "where NVML lists none: the GPUs and their memory, whatever programs say (none)"},
	{"NVSHARE_CONTEXT_MEMORY_MAX", OPTION_SIZE, AT(context_bytes_max), 0, 0, NULL,
	 "of each GPU's memory in contexts, then programs are not frozen but drain; 0: no limit"},
	{"NVSHARE_CONTEXTS_MAX", OPTION_NUMBER, AT(n_contexts_max), 0, 100000, NULL,
	 "the same, programs that have contexts and second contexts together; 0: no limit"},
	{"NVSHARE_MAX_RUNTIME_SEC", OPTION_SECONDS, AT(config.max_runtime_ns), MAX_RUNTIME_MIN,
	 MAX_RUNTIME_MAX, NULL, "longest run while others wait"},
	{"NVSHARE_WAIT_BOUND_SEC", OPTION_SECONDS, AT(config.wait_bound_ns), SEC, DAY, NULL,
	 "bound on any wait"},
	{"NVSHARE_PREPARE_SEC", OPTION_SECONDS, AT(config.prepare_ns), 0, DAY, NULL,
	 "clients are told so long before they must stop"},
	{"NVSHARE_ANSWER_SEC", OPTION_SECONDS, AT(config.answer_ns), SEC / 100, DAY, NULL,
	 "time to stop, besides 1 s a GiB"},
	{"NVSHARE_RETRY_SEC", OPTION_SECONDS, AT(config.retry_ns), SEC / 100, DAY, NULL,
	 "after a stop that failed"},
	{"NVSHARE_HEARTBEAT_SEC", OPTION_SECONDS, AT(config.heartbeat_ns), SEC / 100, DAY, NULL,
	 "clients that run or owe an answer are asked so often"},
	{"NVSHARE_HEARTBEAT_LIMIT_SEC", OPTION_SECONDS, AT(config.heartbeat_limit_ns), SEC / 100,
	 DAY, NULL, "silence after which a client counts as hung"},
	{"NVSHARE_RECONNECT_GRACE_MS", OPTION_MS, AT(grace_ns), 0, 60 * SEC, NULL,
	 "after a restart, for clients to come back"},
	{"NVSHARE_FIRST_MESSAGE_SEC", OPTION_SECONDS, AT(first_message_ns), SEC / 100, DAY, NULL,
	 "a connection that has said nothing by then is closed"},
	{"NVSHARE_REPORT_SLACK_PERCENT", OPTION_NUMBER, AT(report_slack_percent), 0, 100, NULL,
	 "of a GPU: what programs report beyond that and what NVML shows does not count for others;"
	 " 100: all reports count"},
	{"NVSHARE_REPORT_GRACE_SEC", OPTION_SECONDS, AT(report_grace_ns), SEC, 3600 * SEC, NULL,
	 "the driver may take so long to make what was reported"},
	{"NVSHARE_HOLD", OPTION_BOOL, AT(share.is_holding), 0, 0, NULL,
	 "take others off the GPU for latency-critical ones; else slices only"},
	{"NVSHARE_LC_MAX_PERCENT", OPTION_NUMBER, AT(share.lc_max_percent), 10, 100, NULL,
	 "of the time that others want, for latency-critical clients"},
	{"NVSHARE_SLICE_EQUAL_US", OPTION_SLICE, AT(share.equal_slice_us), NVSHARE_SLICE_US_MIN,
	 NVSHARE_SLICE_US_MAX, NULL, "shortest timeslice among equals"},
	{"NVSHARE_SLICE_BEST_EFFORT_US", OPTION_SLICE, AT(share.be_slice_us), NVSHARE_SLICE_US_MIN,
	 NVSHARE_SLICE_US_MAX, NULL, "timeslice beside a latency-critical client"},
	{"NVSHARE_SLICE_RULE", OPTION_ENUM, AT(share.slice_rule), 0, TIMESHARE_RULE_COUNT_,
	 rule_names,
	 "timeslices beside latency-critical clients: fixed; by what is left of the SLO; in six"
	 " levels; by what bursts take"},
	{"NVSHARE_SLICE_LEVELS", OPTION_SLICES, AT(share.slice_us), NVSHARE_SLICE_US_MIN,
	 NVSHARE_SLICE_US_MAX, names_priority, "below a higher class, and critical's own"},
	{"NVSHARE_ENERGY", OPTION_BOOL, AT(share.is_saving), 0, 0, NULL,
	 "take others off the GPU only where slices break an SLO or cost more energy"},
	{"NVSHARE_ENERGY_BUDGET_W", OPTION_NUMBER, AT(share.energy_budget_w), 0,
	 TIMESHARE_POWER_MAX / 1000, NULL,
	 "what that may cost beyond slices, watts on average; 0: no limit"},
	{"NVSHARE_ACTIVE_MS", OPTION_MS, AT(share.active_ns), SEC / 1000, 60 * SEC, NULL,
	 "a client without work counts as active for so long"},
	{"NVSHARE_BE_TURN_MS", OPTION_MS, AT(share.turn_ns), SEC / 1000, 10 * SEC, NULL,
	 "beside a latency-critical client, one of the others computes for so long"},
	{"NVSHARE_HOLD_MAX_MS", OPTION_MS, AT(share.hold_ns), SEC / 100,
	 NVSHARE_HOLD_US_MAX * 1000ull, NULL,
	 "a client is held no longer without being told again"},
	{"NVSHARE_HOLD_SLOW_US", OPTION_US, AT(share.slow_ns), SEC / 1000000, SEC, NULL,
	 "when holding takes longer, bursts hold nobody for a while"},
	{"NVSHARE_HINT_MAX_MS", OPTION_MS, AT(share.hint_ns), SEC / 1000, SEC, NULL,
	 "a hint holds others no longer"},
	{"NVSHARE_HINT_MARGIN_US", OPTION_US, AT(share.margin_ns), SEC / 1000000, SEC, NULL,
	 "a hint's hold is so early, until more is known"},
	{"NVSHARE_HINT_MIN_PREPARE_US", OPTION_US, AT(share.prepare_ns), 0, SEC, NULL,
	 "for work that is announced less long ahead others are held at once"},
	{"NVSHARE_HINTS", OPTION_BOOL, AT(share.is_hinting), 0, 0, NULL,
	 "hold others for work that is announced; 0: hints are counted only"},
	{"NVSHARE_LOG", OPTION_ENUM, AT(log_level), 0, LOG_LEVEL_COUNT_, log_level_names,
	 "what is written to standard error"},
#undef AT
};
#define N_OPTIONS (sizeof(options_table) / sizeof(options_table[0]))

/* Names that settings had once, and are still understood. */
static const struct alias {
	const char *old;
	const char *variable;
} aliases[] = {
	{"NVSHARE_TQ", "NVSHARE_QUANTUM_SEC"},
	{"NVSHARE_SLICE_BE_US", "NVSHARE_SLICE_BEST_EFFORT_US"},
};
#define N_ALIASES (sizeof(aliases) / sizeof(aliases[0]))

/* NULL: it never had another name. */
static const char *old_name(const char *variable)
{
	for (size_t i = 0; i < N_ALIASES; i++) {
		if (!strcmp(aliases[i].variable, variable))
			return aliases[i].old;
	}
	return NULL;
}

/* "--quantum-sec" of NVSHARE_QUANTUM_SEC. */
static void flag_name(const char *variable, char *buf, size_t size)
{
	const char *s = variable + strlen("NVSHARE_");
	size_t n = 2;

	(void)snprintf(buf, size, "--");
	for (; *s && n + 1 < size; s++)
		buf[n++] = *s == '_' ? '-' : (char)tolower((unsigned char)*s);
	buf[n] = '\0';
}

static void print_seconds(uint64_t ns, char *buf, size_t size)
{
	(void)snprintf(buf, size, "%g", (double)ns / (double)SEC);
}

/* "one of auto, serial", "a number from 0 to 50". */
static void allowed(const struct option *option, char *buf, size_t size)
{
	char min[32];
	char max[32];
	size_t n;

	switch (option->kind) {
	case OPTION_TEXT:
		(void)snprintf(buf, size, "a directory");
		break;
	case OPTION_RIGHTS:
		(void)snprintf(buf, size,
			       "low, normal, high or critical for all, and uid:N= or gid:N="
			       " before one, with commas, each once");
		break;
	case OPTION_SIZES:
		(void)snprintf(buf, size,
			       "GPU-UUID=SIZE or MIG-UUID=SIZE, up to %d with commas, each once",
			       SCHED_GPUS_MAX);
		break;
	case OPTION_SIZE:
		(void)snprintf(buf, size, "a size in bytes, or with K, M, G or T");
		break;
	case OPTION_ENUM:
		n = (size_t)snprintf(buf, size, "one of");
		for (uint64_t i = 0; i < option->max && n < size; i++)
			n += (size_t)snprintf(buf + n, size - n, "%s %s", i ? "," : "",
					      option->names[i]);
		break;
	case OPTION_BOOL:
		(void)snprintf(buf, size, "0 or 1");
		break;
	case OPTION_SLICE:
	case OPTION_SLICES:
		(void)snprintf(buf, size, "%smicroseconds from %llu to %llu",
			       option->kind == OPTION_SLICES ? "CLASS=VALUE,..., each class once, "
							     : "",
			       (unsigned long long)option->min, (unsigned long long)option->max);
		break;
	case OPTION_US:
		(void)snprintf(buf, size, "microseconds from %llu to %llu",
			       (unsigned long long)(option->min / US),
			       (unsigned long long)(option->max / US));
		break;
	case OPTION_NUMBER:
		(void)snprintf(buf, size, "a whole number from %llu to %llu",
			       (unsigned long long)option->min, (unsigned long long)option->max);
		break;
	case OPTION_SECONDS:
		print_seconds(option->min, min, sizeof(min));
		print_seconds(option->max, max, sizeof(max));
		(void)snprintf(buf, size, "seconds from %s to %s", min, max);
		break;
	case OPTION_MS:
		(void)snprintf(buf, size, "milliseconds from %llu to %llu",
			       (unsigned long long)(option->min / CLOCK_NS_PER_MS),
			       (unsigned long long)(option->max / CLOCK_NS_PER_MS));
		break;
	}
}

/* "high=1000,low=200": those that are named change, if all of it is good. */
static int set_slices(const struct option *option, const char *value, uint64_t *slices)
{
	uint64_t us[TIMESHARE_CLASS_COUNT_];
	bool is_given[TIMESHARE_CLASS_COUNT_] = {false};

	memcpy(us, slices, sizeof(us));
	while (*value) {
		size_t len = strcspn(value, ",");
		unsigned int class = 0;
		char part[40], *number;
		int r;

		if (len >= sizeof(part))
			return -EINVAL;
		memcpy(part, value, len);
		part[len] = '\0';
		number = strchr(part, '=');
		if (!number)
			return -EINVAL;
		*number++ = '\0';
		r = parse_enum(part, option->names, TIMESHARE_CLASS_COUNT_, &class);
		if (!r)
			r = parse_u64(number, option->min, option->max, &us[class]);
		if (r || is_given[class])
			return r ? r : -EINVAL;
		is_given[class] = true;
		value += len;
		value += *value == ',';
	}
	memcpy(slices, us, sizeof(us));
	return 0;
}

/* 0 or -EINVAL, -ERANGE. */
static int set_value(struct options *options, const struct option *option, const char *value)
{
	void *field = (char *)options + option->offset;
	uint64_t number = 0;
	int r;

	switch (option->kind) {
	case OPTION_TEXT:
		if (!*value)
			return -EINVAL;
		*(const char **)field = value;
		return 0;
	case OPTION_RIGHTS:
		return rights_parse(value, field);
	case OPTION_SIZES:
		return sizes_parse(value, field);
	case OPTION_SIZE:
		return parse_size(value, field);
	case OPTION_ENUM:
		return parse_enum(value, option->names, option->max, field);
	case OPTION_BOOL:
		return parse_bool(value, field);
	case OPTION_SLICE:
		return parse_u64(value, option->min, option->max, field);
	case OPTION_SLICES:
		return set_slices(option, value, field);
	case OPTION_US:
		r = parse_u64(value, option->min / US, option->max / US, &number);
		if (!r)
			*(uint64_t *)field = number * US;
		return r;
	case OPTION_NUMBER:
		r = parse_u64(value, option->min, option->max, &number);
		if (!r)
			*(uint32_t *)field = (uint32_t)number;
		return r;
	case OPTION_SECONDS:
		return parse_seconds(value, option->min, option->max, field);
	case OPTION_MS:
		r = parse_u64(value, option->min / CLOCK_NS_PER_MS, option->max / CLOCK_NS_PER_MS,
			      &number);
		if (!r)
			*(uint64_t *)field = number * CLOCK_NS_PER_MS;
		return r;
	}
	return -EINVAL;
}

static int take_value(struct options *options, const struct option *option, const char *name,
		      const char *value, char *ret_text)
{
	char what[160];

	if (!set_value(options, option, value))
		return 0;
	allowed(option, what, sizeof(what));
	(void)snprintf(ret_text, OPTIONS_TEXT_LEN, "%s is '%.80s'; allowed is %s", name, value,
		       what);
	return OPTIONS_E_BAD;
}

static int take_environment(struct options *options, char *(*get_env)(const char *name),
			    char *ret_text)
{
	for (size_t i = 0; i < N_OPTIONS; i++) {
		const char *name = options_table[i].variable, *old = old_name(name);
		const char *value = get_env(name), *old_value = old ? get_env(old) : NULL;
		int r;

		/* Set but empty is as good as not set. */
		if (!value || !*value) {
			name = old;
			value = old_value;
		} else if (old_value && *old_value && strcmp(value, old_value) != 0) {
			(void)snprintf(ret_text, OPTIONS_TEXT_LEN,
				       "%s and %s are one setting with two values; unset %s", name,
				       old, old);
			return OPTIONS_E_BAD;
		}
		if (!value || !*value)
			continue;
		r = take_value(options, &options_table[i], name, value, ret_text);
		if (r)
			return r;
	}
	return 0;
}

/* The option that arg, of len characters before its value, is a flag of; its name to ret. */
static const struct option *find_flag(const char *arg, size_t len, char *ret, size_t size)
{
	for (size_t i = 0; i < N_OPTIONS; i++) {
		const char *names[] = {options_table[i].variable,
				       old_name(options_table[i].variable)};

		for (size_t n = 0; n < 2 && names[n]; n++) {
			flag_name(names[n], ret, size);
			if (strlen(ret) == len && strncmp(arg, ret, len) == 0)
				return &options_table[i];
		}
	}
	return NULL;
}

/* "--quantum-sec=5" or "--quantum-sec 5" at *args, which is moved behind it. */
static int take_flag(struct options *options, char *const **args, char *ret_text)
{
	const char *arg = **args;
	const char *value = strchr(arg, '=');
	size_t len = value ? (size_t)(value - arg) : strlen(arg);
	char name[64];
	const struct option *option = find_flag(arg, len, name, sizeof(name));

	(*args)++;
	if (option && value)
		return take_value(options, option, name, value + 1, ret_text);
	if (option && **args)
		return take_value(options, option, name, *(*args)++, ret_text);
	if (option)
		(void)snprintf(ret_text, OPTIONS_TEXT_LEN, "%s needs a value", name);
	else
		(void)snprintf(ret_text, OPTIONS_TEXT_LEN, "unknown option '%.80s'; see --help",
			       arg);
	return OPTIONS_E_BAD;
}

static int take_args(struct options *options, char *const *args, char *ret_text)
{
	while (*args) {
		int r;

		if (!strcmp(*args, "--help") || !strcmp(*args, "-h"))
			return OPTIONS_E_HELP;
		if (!strcmp(*args, "--version") || !strcmp(*args, "-V"))
			return OPTIONS_E_VERSION;
		r = take_flag(options, &args, ret_text);
		if (r)
			return r;
	}
	return 0;
}

static int check_together(const struct options *options, char *ret_text)
{
	const struct sched_config *config = &options->config;
	const char *text = NULL;

	if (config->switch_min_ns > config->switch_max_ns)
		text = "NVSHARE_SWITCH_TIME_MIN is above NVSHARE_SWITCH_TIME_MAX";
	else if (config->heartbeat_ns > config->heartbeat_limit_ns)
		text = "NVSHARE_HEARTBEAT_SEC is above NVSHARE_HEARTBEAT_LIMIT_SEC";
	else if (options->share.margin_ns > options->share.hint_ns)
		text = "NVSHARE_HINT_MARGIN_US is above NVSHARE_HINT_MAX_MS";
	else if (options->share.prepare_ns > options->share.hint_ns)
		text = "NVSHARE_HINT_MIN_PREPARE_US is above NVSHARE_HINT_MAX_MS";
	if (!text)
		return 0;
	(void)snprintf(ret_text, OPTIONS_TEXT_LEN, "%s", text);
	return OPTIONS_E_BAD;
}

static void set_defaults(struct options *options)
{
	*options = (struct options){
		.rights = {.priority = NVSHARE_PRIORITY_NORMAL},
		.log_level = LOG_LEVEL_INFO,
		.report_slack_percent = 5,
		.report_grace_ns = 10 * SEC,
		.grace_ns = 1500 * CLOCK_NS_PER_MS,
		.first_message_ns = 30 * SEC,
	};
	sched_config_default(&options->config);
	timeshare_config_default(&options->share);
}

int options_parse(char *const *args, char *(*get_env)(const char *name),
		  struct options *ret_options, char ret_text[OPTIONS_TEXT_LEN])
{
	struct options options, ignored = {.sock_dir = NULL};
	int r;

	/* --help works in an environment that is wrong. */
	r = take_args(&ignored, args, ret_text);
	if (r)
		return r;
	set_defaults(&options);
	r = take_environment(&options, get_env, ret_text);
	if (r)
		return r;
	r = take_args(&options, args, ret_text);
	if (r)
		return r;
	r = check_together(&options, ret_text);
	if (r)
		return r;
	*ret_options = options;
	return 0;
}

static void print_slices(const struct option *option, const uint64_t *slices, char *buf,
			 size_t size)
{
	size_t n = 0;

	for (int i = TIMESHARE_CLASS_COUNT_ - 1; i >= 0 && n < size; i--)
		n += (size_t)snprintf(buf + n, size - n, "%s=%llu%s", option->names[i],
				      (unsigned long long)slices[i], i ? "," : "");
}

/* " (30)", of what options has; as it would be given. */
static void print_value(const struct options *options, const struct option *option, char *buf,
			size_t size)
{
	const void *field = (const char *)options + option->offset;
	char value[120] = "";

	switch (option->kind) {
	case OPTION_TEXT:
	case OPTION_RIGHTS: /* the help says it */
	case OPTION_SIZES:
		buf[0] = '\0';
		return;
	case OPTION_SIZE:
		(void)snprintf(value, sizeof(value), "%llu",
			       (unsigned long long)*(const uint64_t *)field);
		break;
	case OPTION_ENUM:
		(void)snprintf(value, sizeof(value), "%s",
			       option->names[*(const unsigned int *)field]);
		break;
	case OPTION_BOOL:
		(void)snprintf(value, sizeof(value), "%d", *(const bool *)field);
		break;
	case OPTION_NUMBER:
		(void)snprintf(value, sizeof(value), "%u", *(const uint32_t *)field);
		break;
	case OPTION_SECONDS:
		print_seconds(*(const uint64_t *)field, value, sizeof(value));
		break;
	case OPTION_MS:
		(void)snprintf(value, sizeof(value), "%llu",
			       (unsigned long long)(*(const uint64_t *)field / CLOCK_NS_PER_MS));
		break;
	case OPTION_US:
		(void)snprintf(value, sizeof(value), "%llu",
			       (unsigned long long)(*(const uint64_t *)field / US));
		break;
	case OPTION_SLICE:
		(void)snprintf(value, sizeof(value), "%llu",
			       (unsigned long long)*(const uint64_t *)field);
		break;
	case OPTION_SLICES:
		print_slices(option, field, value, sizeof(value));
		break;
	}
	(void)snprintf(buf, size, " (%s)", value);
}

void options_print_help(FILE *out)
{
	struct options defaults;

	set_defaults(&defaults);
	(void)fprintf(out,
		      "Usage: nvshare-scheduler [OPTION]...\n"
		      "Shares the GPUs of this node among the programs that run under"
		      " libnvshare.so.\n\n"
		      "  -h, --help      this text\n"
		      "  -V, --version   the version\n\n"
		      "Every other option is also an environment variable; the option wins.\n");
	for (size_t i = 0; i < N_OPTIONS; i++) {
		char name[64];
		char what[160], value[128];

		flag_name(options_table[i].variable, name, sizeof(name));
		print_value(&defaults, &options_table[i], value, sizeof(value));
		allowed(&options_table[i], what, sizeof(what));
		(void)fprintf(out, "\n  %s=VALUE, %s\n      %s%s; %s\n", name,
			      options_table[i].variable, options_table[i].help, value, what);
	}
	(void)fputs("\nOld names of settings that still work:\n", out);
	for (size_t i = 0; i < N_ALIASES; i++)
		(void)fprintf(out, "  %s, now %s\n", aliases[i].old, aliases[i].variable);
}
