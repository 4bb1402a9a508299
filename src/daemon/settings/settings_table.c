/* SPDX-License-Identifier: Apache-2.0 */

/* The scheduler's settings: one row each, in the order of the manual page. */

#include "daemon/settings/config.h"
#include "daemon/settings/settings.h"

#include "ipc/names.h"
#include "nvshare/protocol.h"
#include "util/clock.h"
#include "util/parse.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int settings_parse_path(const struct setting *setting, const char *value, void *field)
{
	(void)setting;
	if (!*value || strlen(value) >= PATH_MAX)
		return -EINVAL;
	(void)snprintf(field, PATH_MAX, "%s", value);
	return 0;
}

static void settings_print_path(const void *field, char *buf, size_t size)
{
	(void)snprintf(buf, size, "%s", (const char *)field);
}

static const struct setting_form settings_file = {
	.parse = settings_parse_path,
	.print = settings_print_path,
	.allowed = "a file, or none",
};

static const struct setting_form settings_directory = {
	.parse = settings_parse_path,
	.print = settings_print_path,
	.allowed = "a directory",
};

static int settings_parse_command(const struct setting *setting, const char *value, void *field)
{
	(void)setting;
	if (strcmp(value, "none") != 0)
		return *value == '/' ? settings_parse_path(setting, value, field) : -EINVAL;
	*(char *)field = '\0';
	return 0;
}

static const struct setting_form settings_command = {
	.parse = settings_parse_command,
	.print = settings_print_path,
	.allowed = "/PATH of a program, or none",
};

static int settings_parse_rights(const struct setting *setting, const char *value, void *field)
{
	(void)setting;
	return rights_parse(value, field);
}

static void settings_print_rights(const void *field, char *buf, size_t size)
{
	rights_print(field, buf, size);
}

static const struct setting_form settings_rights = {
	.parse = settings_parse_rights,
	.print = settings_print_rights,
	.allowed = "low, normal, high or critical for all, and uid:N=, gid:N= or namespace:NAME="
		   " before one, with commas, each once",
};

static int settings_parse_http(const struct setting *setting, const char *value, void *field)
{
	(void)setting;
	return http_addresses_parse(value, field);
}

static void settings_print_http(const void *field, char *buf, size_t size)
{
	http_addresses_print(field, buf, size);
}

static const struct setting_form settings_http = {
	.parse = settings_parse_http,
	.print = settings_print_http,
	.allowed = "ADDRESS:PORT, [IPV6]:PORT or unix:/PATH, at most two with a comma; or 0: off",
};

static int settings_parse_hosts(const struct setting *setting, const char *value, void *field)
{
	(void)setting;
	return http_hosts_parse(value, field);
}

static const struct setting_form settings_hosts = {
	.parse = settings_parse_hosts,
	.print = settings_print_path,
	.allowed = "names of this machine with commas; or none",
};

static int settings_parse_limit(const struct setting *setting, const char *value, void *field)
{
	(void)setting;
	return slab_room_parse(value, field);
}

static const struct setting_form settings_limit = {
	.parse = settings_parse_limit,
	.print = settings_print_path,
	.allowed = "a size like 20GiB, or a part like 50%; or none",
};

static int settings_parse_sizes(const struct setting *setting, const char *value, void *field)
{
	(void)setting;
	return sizes_parse(value, field);
}

static void settings_print_sizes(const void *field, char *buf, size_t size)
{
	sizes_print(field, buf, size);
}

_Static_assert(SCHED_GPUS_MAX == 16, "the text below");

static const struct setting_form settings_sizes = {
	.parse = settings_parse_sizes,
	.print = settings_print_sizes,
	.allowed = "GPU-UUID=SIZE or MIG-UUID=SIZE, up to 16 with commas, each once; or none",
};

/* "high=1000,low=200": the classes that are named change, if all of it is good. */
static int settings_parse_slices(const struct setting *setting, const char *value, void *field)
{
	uint64_t us[TIMESHARE_CLASS_COUNT_];
	bool is_given[TIMESHARE_CLASS_COUNT_] = {false};

	memcpy(us, field, sizeof(us));
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
		r = parse_enum(part, setting->names, TIMESHARE_CLASS_COUNT_, &class);
		if (!r)
			r = parse_u64(number, setting->min, setting->max, &us[class]);
		if (r || is_given[class])
			return r ? r : -EINVAL;
		is_given[class] = true;
		value += len;
		value += *value == ',';
	}
	memcpy(field, us, sizeof(us));
	return 0;
}

static void settings_print_slices(const void *field, char *buf, size_t size)
{
	const uint64_t *slices = field;
	size_t n = 0;

	for (int i = TIMESHARE_CLASS_COUNT_ - 1; i >= 0 && n < size; i--)
		n += (size_t)snprintf(buf + n, size - n, "%s=%llu%s", names_priority[i],
				      (unsigned long long)slices[i], i ? "," : "");
}

_Static_assert(NVSHARE_SLICE_US_MIN == 100 && NVSHARE_SLICE_US_MAX == 10000000, "the text below");

static const struct setting_form settings_slices = {
	.parse = settings_parse_slices,
	.print = settings_print_slices,
	.allowed = "CLASS=VALUE,..., each class once, microseconds from 100 to 10000000",
};

static const char *const rule_names[TIMESHARE_RULE_COUNT_] = {"fixed", "slack", "exponential",
							      "feedback"};

#define SEC ((uint64_t)CLOCK_NS_PER_SEC)
#define MS  ((uint64_t)CLOCK_NS_PER_MS)
#define US  ((uint64_t)1000)
#define DAY (86400 * SEC)

#define TURN_MIN        (NVSHARE_TURN_MS_MIN * MS)
#define TURN_MAX        (NVSHARE_TURN_MS_MAX * MS)
#define MAX_RUNTIME_MIN (NVSHARE_MAX_RUNTIME_MS_MIN * MS)
#define HOLD_MAX        (NVSHARE_HOLD_US_MAX * US)
#define MAX_RUNTIME_MAX (NVSHARE_MAX_RUNTIME_MS_MAX * MS)

#define ROW(name, its_kind, field, type, least, most, text, ...)                          \
	{                                                                                 \
		.variable = (name), .kind = SETTING_##its_kind,                           \
		.offset = SETTING_AT(struct settings, field, type), .size = sizeof(type), \
		.min = (least), .max = (most), .help = (text), __VA_ARGS__                \
	}
#define WORD(name, field, type, words, text, ...)                                 \
	ROW(name, ENUM, field, type, 0, sizeof(words) / sizeof((words)[0]), text, \
	    .names = (words), __VA_ARGS__)
#define SWITCH(name, field, text, ...) ROW(name, BOOL, field, bool, 0, 1, text, __VA_ARGS__)
#define OWN(name, field, its_form, text, ...)                                                \
	{                                                                                    \
		.variable = (name), .kind = SETTING_OWN,                                     \
		.offset = offsetof(struct settings, field),                                  \
		.size = sizeof(((struct settings *)0)->field), .form = &settings_##its_form, \
		.help = (text), __VA_ARGS__                                                  \
	}

/*
 * Defaults are in settings_default() and in the core. The least times are far below what is
 * sensible on a real node, so that tests need not wait.
 */
const struct setting settings_table[] = {
	OWN("NVSHARE_CONFIG", config_file, file,
	    "file of settings, and with .d at its end the folder"
	    " of files that are read after it",
	    .unset = CONFIG_FILE_DEFAULT, .is_fixed = true),
	OWN("NVSHARE_SOCK_DIR", sock_dir, directory, "directory of the socket",
	    .unset = NVSHARE_SOCK_DIR_DEFAULT, .is_fixed = true),
	WORD("NVSHARE_LOG", log_level, enum log_level, log_level_names,
	     "the least important lines that are written to standard error"),
	OWN("NVSHARE_HTTP_ADDRESS", http, http, "where metrics are read by HTTP; 0: nowhere",
	    .is_fixed = true),
	OWN("NVSHARE_HTTP_HOSTS", http_hosts, hosts,
	    "names by which browsers and Prometheus may call this machine", .unset = "none"),

	WORD("NVSHARE_SCHEDULING_MODE", config.mode, enum sched_mode, names_mode,
	     "auto: side by side when all fit, else in turns", .key = "mode"),
	ROW("NVSHARE_SHARING_DEGREE", NUMBER, config.sharing_degree, uint32_t, 0, SCHED_DEGREE_MAX,
	    "mode auto: the most programs on a GPU at once, others take turns; 0: any number"),
	WORD("NVSHARE_POLICY", config.policy, enum sched_policy, names_policy,
	     "whose turn is next: by class and then fair; by weighted GPU time; by rounds of"
	     " 10 s for a weight of 100, however short the switch time; by slack",
	     .key = "policy"),
	SWITCH("NVSHARE_FAIR_USERS", config.fair_users,
	       "turns go round the users first, then among each one's programs; 0: among programs"
	       " alone"),
	WORD("NVSHARE_SWITCH_TIME_MODE", config.switch_mode, enum sched_switch_mode,
	     names_switch_mode, "auto: the switch time follows from the time that a switch takes",
	     .key = "switch-time-mode"),
	ROW("NVSHARE_SWITCH_TIME_MULTIPLIER", NUMBER, config.switch_multiplier, uint32_t, 1, 1000,
	    "auto: a turn is so many times as long as its switch"),
	ROW("NVSHARE_SWITCH_TIME_MIN", DECIMAL, config.switch_min_ns, uint64_t, SEC / 100, DAY,
	    "auto: the shortest switch time"),
	ROW("NVSHARE_MOVING_PERCENT", NUMBER, config.moving_percent, uint32_t, 0, 50,
	    "of others' turns, to move memory for programs that have slept and come before their"
	    " turns; 0: they wait for them"),
	ROW("NVSHARE_SWITCH_TIME_MAX", DECIMAL, config.switch_max_ns, uint64_t, SEC / 100, DAY,
	    "auto: the longest switch time"),
	ROW("NVSHARE_SWITCH_TIME_FIXED", DECIMAL, config.switch_fixed_ns, uint64_t, TURN_MIN,
	    TURN_MAX, "fixed: the switch time", .key = "switch-time"),
	ROW("NVSHARE_QUANTUM_SEC", DECIMAL, config.tq_ns, uint64_t, TURN_MIN, TURN_MAX,
	    "the quantum of mode concurrent", .alias = "NVSHARE_TQ", .key = "tq"),
	ROW("NVSHARE_MAX_RUNTIME_SEC", DECIMAL, config.max_runtime_ns, uint64_t, MAX_RUNTIME_MIN,
	    MAX_RUNTIME_MAX, "the longest run while others wait", .key = "max-runtime"),
	ROW("NVSHARE_WAIT_BOUND_SEC", DECIMAL, config.wait_bound_ns, uint64_t, SEC, DAY,
	    "the bound on any wait of a user"),
	ROW("NVSHARE_PREPARE_SEC", DECIMAL, config.prepare_ns, uint64_t, 0, DAY,
	    "the holder makes host memory ready so long before a switch"),
	SWITCH(NULL, config.anti_thrash, "0: a client that fits runs, and nobody takes turns",
	       .key = "anti-thrash"),

	ROW("NVSHARE_MEMORY_RESERVE_PERCENT", NUMBER, config.reserve_percent, uint32_t, 0,
	    NVSHARE_RESERVE_PERCENT_MAX, "the part of each GPU's memory that no program gets",
	    .key = "reserve"),
	ROW("NVSHARE_CONTEXT_MEMORY_MAX", SIZE, context_bytes_max, uint64_t, 0, UINT64_MAX,
	    "the most memory in contexts on each GPU; beyond it programs drain"
	    " instead of being frozen; 0: no limit"),
	ROW("NVSHARE_CONTEXTS_MAX", NUMBER, n_contexts_max, uint32_t, 0, 100000,
	    "the same limit by number: programs that have contexts, plus second"
	    " contexts; 0: no limit"),
	OWN("NVSHARE_HOST_MEMORY_LIMIT", host_limit, limit,
	    "host memory that programs may have for memory that is off the card; a percentage is"
	    " of the machine's memory",
	    .unset = "none"),
	OWN("NVSHARE_GPUS", sizes, sizes, "the GPUs and their memory, where NVML lists none",
	    .unset = "none", .is_fixed = true),

	OWN("NVSHARE_PODS_DIR", pods_dir, directory,
	    "the kubelet's folder that tells namespace and name of a pod", .is_fixed = true),
	OWN("NVSHARE_PRIORITY_MAX", rights, rights, "the highest class that users may claim",
	    .unset = "normal"),

	ROW("NVSHARE_ANSWER_SEC", DECIMAL, config.answer_ns, uint64_t, SEC / 100, DAY,
	    "time to answer a stop or a restore, plus one second per GiB"),
	ROW("NVSHARE_RETRY_SEC", DECIMAL, config.retry_ns, uint64_t, SEC / 100, DAY,
	    "pause after a stop that failed"),
	ROW("NVSHARE_HEARTBEAT_SEC", DECIMAL, config.heartbeat_ns, uint64_t, SEC / 100, DAY,
	    "clients that run or owe an answer are asked so often"),
	ROW("NVSHARE_HEARTBEAT_LIMIT_SEC", DECIMAL, config.heartbeat_limit_ns, uint64_t, SEC / 100,
	    DAY, "silence after which a client counts as hung"),
	ROW("NVSHARE_RECONNECT_GRACE_MS", MS, grace_ns, uint64_t, 0, 60 * SEC,
	    "after a restart, time for running programs to come back", .is_fixed = true),
	ROW("NVSHARE_FIRST_MESSAGE_SEC", DECIMAL, first_message_ns, uint64_t, SEC / 100, DAY,
	    "a connection that has said nothing by then is closed"),

	ROW("NVSHARE_REPORT_SLACK_PERCENT", NUMBER, report_slack_percent, uint32_t, 0, 100,
	    "of each GPU: programs together may report so much more than NVML shows;"
	    " 100: all reports count"),
	ROW("NVSHARE_REPORT_GRACE_SEC", DECIMAL, report_grace_ns, uint64_t, SEC, 3600 * SEC,
	    "a report may be ahead of the driver for so long"),

	ROW("NVSHARE_POLL_INTERVAL_MS", MS, poll_ns, uint64_t, 20 * MS, 3600 * SEC,
	    "while clients or viewers are there, NVML is asked so often how the GPUs are"),
	/* A tool must not choose what runs as the scheduler's user. */
	OWN("NVSHARE_ALERT_COMMAND", alert_command, command,
	    "the program that is run for events of GPUs and clients", .unset = "none",
	    .is_fixed = true),

	SWITCH("NVSHARE_HOLD", share.is_holding,
	       "1: others are preempted for latency-critical clients; 0: these only"
	       " have a longer timeslice"),
	ROW("NVSHARE_LC_MAX_PERCENT", NUMBER, share.lc_max_percent, uint32_t, 10, 100,
	    "the most that latency-critical clients get of the time that others want"
	    " too"),
	ROW("NVSHARE_SLICE_EQUAL_US", SLICE, share.equal_slice_us, uint64_t, NVSHARE_SLICE_US_MIN,
	    NVSHARE_SLICE_US_MAX, "timeslice of the client with the smallest weight among equals"),
	ROW("NVSHARE_SLICE_BEST_EFFORT_US", SLICE, share.be_slice_us, uint64_t,
	    NVSHARE_SLICE_US_MIN, NVSHARE_SLICE_US_MAX,
	    "timeslice of best-effort clients beside a latency-critical one",
	    .alias = "NVSHARE_SLICE_BE_US"),
	WORD("NVSHARE_SLICE_RULE", share.slice_rule, enum timeshare_rule, rule_names,
	     "timeslices beside a latency-critical client: fixed; by what is left of"
	     " the SLO; in six levels; by what bursts take"),
	OWN("NVSHARE_SLICE_LEVELS", share.slice_us, slices,
	    "timeslice of a class while a higher class is active, and a"
	    " latency-critical client's own",
	    .min = NVSHARE_SLICE_US_MIN, .max = NVSHARE_SLICE_US_MAX, .names = names_priority),
	ROW("NVSHARE_ACTIVE_MS", MS, share.active_ns, uint64_t, MS, 60 * SEC,
	    "a client whose work has ended counts as active for so long"),
	ROW("NVSHARE_BE_TURN_MS", MS, share.turn_ns, uint64_t, MS, 10 * SEC,
	    "beside a latency-critical client, best-effort clients compute in turns"
	    " of this length"),
	ROW("NVSHARE_HOLD_MAX_MS", MS, share.hold_ns, uint64_t, 10 * MS, HOLD_MAX,
	    "a preempted client that hears no more goes on after this time"),
	ROW("NVSHARE_HOLD_SLOW_US", US, share.slow_ns, uint64_t, US, SEC,
	    "when preempting takes longer, bursts preempt nobody for a while"),

	SWITCH("NVSHARE_HINTS", share.is_hinting,
	       "1: others are preempted for announced work; 0: hints are counted only"),
	ROW("NVSHARE_HINT_MAX_MS", MS, share.hint_ns, uint64_t, MS, SEC,
	    "the longest that others stay preempted for announced work that does not"
	    " come"),
	ROW("NVSHARE_HINT_MARGIN_US", US, share.margin_ns, uint64_t, US, SEC,
	    "others are preempted so much earlier for announced work, until more is"
	    " known"),
	ROW("NVSHARE_HINT_MIN_PREPARE_US", US, share.prepare_ns, uint64_t, 0, SEC,
	    "others are preempted at once for work that is announced less long ahead"),

	SWITCH("NVSHARE_ENERGY", share.is_saving,
	       "1: others are preempted only where timeslices break an SLO or cost more"
	       " energy"),
	ROW("NVSHARE_ENERGY_BUDGET_W", NUMBER, share.energy_budget_w, uint32_t, 0,
	    TIMESHARE_POWER_MAX / 1000,
	    "with that: the watts that preempting may cost beyond timeslices; 0: no"
	    " limit"),

	WORD("NVSHARE_JOB_PRESET", jobs.preset, enum place_preset, settings_jobs_presets,
	     "how GPUs are scored for a job: balanced counts free memory, use, heat and idle"
	     " time; simple counts free memory and heat; both count the model"),
	OWN("NVSHARE_JOB_WEIGHTS", jobs.weights, jobs_weights,
	    "points of the score, in place of the preset's", .unset = "preset"),
	ROW("NVSHARE_JOB_MODELS_MAX", NUMBER, jobs.config.place.models_max, uint32_t, 1,
	    PLACE_MODELS_MAX, "a GPU remembers so many models of jobs"),
	ROW("NVSHARE_JOB_MODEL_TTL_SEC", DECIMAL, jobs.config.place.model_ttl_ns, uint64_t, 0,
	    30 * DAY, "and each of them for so long after its last job"),
	ROW("NVSHARE_JOB_MARGIN", SIZE, jobs.config.place.margin_bytes, uint64_t, 0,
	    PLACE_BYTES_MAX, "a job fits where so much stays free on the GPU"),
	ROW("NVSHARE_JOB_MARGIN_PERCENT", NUMBER, jobs.config.place.margin_percent, uint32_t, 0, 50,
	    "but at most this part of the GPU stays free for that; the reserve does in any case"),
	ROW("NVSHARE_JOB_TURNS_MAX", NUMBER, jobs.config.place.turns_max, uint32_t, 1,
	    SCHED_DEGREE_MAX,
	    "where the sharing degree is 0: a job that does not fit starts beside fewer programs"
	    " than this"),
	OWN("NVSHARE_JOB_GPUS", jobs.gpus, jobs_gpus, "jobs get these GPUs alone", .unset = "all"),
	OWN("NVSHARE_JOB_GPUS_RESERVED", jobs.reserved, jobs_gpus, "jobs get none of these GPUs",
	    .unset = "none"),
	ROW("NVSHARE_JOB_RESERVE_SEC", DECIMAL, jobs.config.reserve_ns, uint64_t, SEC, 3600 * SEC,
	    "a job's memory is kept free so long after its start, and after its first program"
	    " has come"),
	ROW("NVSHARE_JOB_PASS_SEC", DECIMAL, jobs.config.pass_ns, uint64_t, 0, DAY,
	    "a job that cannot start lets others pass for so long"),
	ROW("NVSHARE_JOB_AGE_SEC", DECIMAL, jobs.config.age_ns, uint64_t, SEC, 30 * DAY,
	    "a user's job that has waited so long goes first, once in this time"),
	OWN("NVSHARE_JOB_LIMIT_SEC", jobs.limit_ns, jobs_limit,
	    "time limit of a job that names none; waits for turns do not count"),
	OWN("NVSHARE_JOB_LIMIT_MAX_SEC", jobs.limit_max_ns, jobs_limit,
	    "the longest time limit that a job may have; without it a job may name a day"),
	ROW("NVSHARE_JOB_GRACE_SEC", DECIMAL, jobs.config.grace_ns, uint64_t, 0, 3600 * SEC,
	    "from SIGTERM to SIGKILL, for a job that is cancelled or over its time limit"),
	ROW("NVSHARE_JOB_RETRY_SEC", DECIMAL, jobs.config.retry_ns, uint64_t, 0, 3600 * SEC,
	    "rest of a job that has failed, before it is tried again"),
	ROW("NVSHARE_ESTIMATE_BASE", SIZE, jobs.estimates.base_bytes, uint64_t, 1,
	    ESTIMATE_BYTES_MAX, "memory of a job of which nothing is known"),
	ROW("NVSHARE_ESTIMATE_UNIT", SIZE, jobs.estimates.unit_bytes, uint64_t, 0, 1ull << 40,
	    "memory of each unit of a job's work, beside that of its model"),
	ROW("NVSHARE_ESTIMATE_OOM_PERCENT", NUMBER, jobs.estimates.oom_percent, uint32_t, 100, 1000,
	    "an estimate that was too small counts so much"),
	OWN("NVSHARE_ESTIMATE_TYPES", jobs.estimates.types, jobs_types,
	    "percent of memory that types of work need", .unset = "none"),
	OWN("NVSHARE_ESTIMATE_MODELS", jobs.estimates.models, jobs_models,
	    "memory that models need", .unset = "none"),
};
_Static_assert(sizeof(settings_table) / sizeof(settings_table[0]) <= SETTINGS_ROWS_MAX,
	       "settings::origin");
const size_t settings_table_len = sizeof(settings_table) / sizeof(settings_table[0]);
