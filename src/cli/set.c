/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "cli/status.h"

#include "util/clock.h"
#include "util/fd.h"
#include "util/parse.h"

#include <stdio.h>
#include <string.h>

/* Sends one setting and prints the answer. Returns an exit code. */
static int send_setting(uint16_t type, const void *body)
{
	FD_CLEANUP int fd = -1;
	struct msg msg;
	int r;

	r = request_open(&fd);
	if (!r)
		r = request_send(fd, type, body);
	if (!r)
		r = request_receive(fd, &msg);
	if (r)
		return r;
	if (msg.header.type != NVSHARE_MSG_RESULT) {
		(void)fprintf(stderr, "nvsharectl: the scheduler gives a wrong answer: %s\n",
			      msg_name(msg.header.type));
		return CLI_EXIT_NO_SCHEDULER;
	}
	if (msg.body.result_msg_22.code == NVSHARE_RESULT_OK) {
		(void)printf("%s\n", msg.body.result_msg_22.text);
		return CLI_EXIT_OK;
	}
	(void)fprintf(stderr, "nvsharectl: %s\n", msg.body.result_msg_22.text);
	return CLI_EXIT_REFUSED;
}

static int report_bad_value(const char *what, const char *value, const char *allowed)
{
	(void)fprintf(stderr, "nvsharectl: %s is '%s'; allowed is %s\n", what, value, allowed);
	return CLI_EXIT_USAGE;
}

struct span {
	const char *what;
	const char *also; /* allowed values that are no number */
	uint64_t min, max;
};

static const struct span tq_span = {"tq", "", NVSHARE_TURN_MS_MIN, NVSHARE_TURN_MS_MAX};
static const struct span switch_time_span = {"switch-time", "auto, or ", NVSHARE_TURN_MS_MIN,
					     NVSHARE_TURN_MS_MAX};
static const struct span max_runtime_span = {"max-runtime", "", NVSHARE_MAX_RUNTIME_MS_MIN,
					     NVSHARE_MAX_RUNTIME_MS_MAX};

/* Converts the user's seconds to the wire's milliseconds. CLI_EXIT_OK or CLI_EXIT_USAGE. */
static int parse_ms(const struct span *span, const char *value, uint64_t *ret)
{
	uint64_t ns;

	if (!parse_seconds(value, span->min * CLOCK_NS_PER_MS, span->max * CLOCK_NS_PER_MS, &ns)) {
		*ret = ns / CLOCK_NS_PER_MS;
		return CLI_EXIT_OK;
	}
	(void)fprintf(stderr, "nvsharectl: %s is '%s'; allowed is %s%g to %g seconds\n", span->what,
		      value, span->also, (double)span->min / 1000, (double)span->max / 1000);
	return CLI_EXIT_USAGE;
}

int set_tq(const char *value, bool is_trial)
{
	struct nvshare_set_tq body;
	int r = parse_ms(&tq_span, value, &body.ms);

	return r || is_trial ? r : send_setting(NVSHARE_MSG_SET_TQ, &body);
}

static int set_tq_now(const char *value)
{
	return set_tq(value, false);
}

int set_anti_thrash(const char *value, bool is_trial)
{
	bool is_on;

	if (parse_bool(value, &is_on))
		return report_bad_value("anti-thrash", value, "on or off");
	if (is_trial)
		return CLI_EXIT_OK;
	return send_setting(is_on ? NVSHARE_MSG_SCHED_ON : NVSHARE_MSG_SCHED_OFF, NULL);
}

static int set_mode(const char *value)
{
	static const char *const names[] = {"auto", "serial", "concurrent"};
	struct nvshare_set body = {.key = NVSHARE_KEY_MODE};
	unsigned int mode;

	if (parse_enum(value, names, NVSHARE_MODE_COUNT, &mode))
		return report_bad_value("mode", value, "auto, serial or concurrent");
	body.value = mode;
	return send_setting(NVSHARE_MSG_SET, &body);
}

static int set_switch_time(const char *value)
{
	struct nvshare_set body = {.key = NVSHARE_KEY_SWITCH_TIME, .value = 0};
	int r = 0;

	if (strcmp(value, "auto") != 0)
		r = parse_ms(&switch_time_span, value, &body.value);
	return r ? r : send_setting(NVSHARE_MSG_SET, &body);
}

static int set_reserve(const char *value)
{
	struct nvshare_set body = {.key = NVSHARE_KEY_RESERVE};

	if (!parse_u64(value, 0, NVSHARE_RESERVE_PERCENT_MAX, &body.value))
		return send_setting(NVSHARE_MSG_SET, &body);
	(void)fprintf(stderr, "nvsharectl: reserve is '%s'; allowed is 0 to %u percent\n", value,
		      NVSHARE_RESERVE_PERCENT_MAX);
	return CLI_EXIT_USAGE;
}

static int set_max_runtime(const char *value)
{
	struct nvshare_set body = {.key = NVSHARE_KEY_MAX_RUNTIME};
	int r = parse_ms(&max_runtime_span, value, &body.value);

	return r ? r : send_setting(NVSHARE_MSG_SET, &body);
}

static int set_policy(const char *value)
{
	struct nvshare_set body = {.key = NVSHARE_KEY_POLICY};
	unsigned int policy;

	if (parse_enum(value, status_policy_names, NVSHARE_POLICY_COUNT, &policy))
		return report_bad_value("policy", value, "priority, fair, credit or deadline");
	body.value = policy;
	return send_setting(NVSHARE_MSG_SET, &body);
}

/* ---- a client's settings ------------------------------------------------------ */

/* Changes every client of a process: it has one a GPU. */
static int set_of_process(struct nvshare_set *body, uint64_t pid)
{
	struct status status = {.gpus = NULL};
	bool is_any = false;
	int r = status_fetch(&status);

	for (size_t i = 0; i < status.n_clients && r == CLI_EXIT_OK; i++) {
		if (status.clients[i].pid != pid)
			continue;
		is_any = true;
		body->client = status.clients[i].id;
		r = send_setting(NVSHARE_MSG_SET, body);
	}
	status_deinit(&status);
	if (r == CLI_EXIT_OK && !is_any) {
		(void)fprintf(stderr, "nvsharectl: no client has pid %llu\n",
			      (unsigned long long)pid);
		return CLI_EXIT_REFUSED;
	}
	return r;
}

static int set_of_client(struct nvshare_set *body, const char *client)
{
	uint64_t number;

	if (!strncmp(client, "pid:", 4) && !parse_u64(client + 4, 1, INT32_MAX, &number))
		return set_of_process(body, number);
	if (parse_u64(client, 1, UINT32_MAX, &number))
		return report_bad_value("the client", client, "an ID as in the status, or pid:PID");
	body->client = (uint32_t)number;
	return send_setting(NVSHARE_MSG_SET, body);
}

static int set_priority(const char *value, const char *client)
{
	struct nvshare_set body = {.key = NVSHARE_KEY_PRIORITY};
	unsigned int priority;

	if (parse_enum(value, status_priority_names, NVSHARE_PRIORITY_COUNT, &priority))
		return report_bad_value("priority", value, "low, normal, high or critical");
	body.value = priority;
	return set_of_client(&body, client);
}

static int set_weight(const char *value, const char *client)
{
	struct nvshare_set body = {.key = NVSHARE_KEY_WEIGHT};

	if (parse_u64(value, NVSHARE_WEIGHT_MIN, NVSHARE_WEIGHT_MAX, &body.value))
		return report_bad_value("weight", value, "1 to 10000");
	return set_of_client(&body, client);
}

/* value is in milliseconds, as in NVSHARE_SLO_MS: "12.5" is 12500 us. */
static int set_slo(const char *value, const char *client)
{
	struct nvshare_set body = {.key = NVSHARE_KEY_SLO};
	uint64_t ns;

	if (strcmp(value, "off") != 0) {
		/* Read as seconds, value is a thousand times too large, and so are the limits. */
		if (parse_seconds(value, CLOCK_NS_PER_SEC / 1000,
				  NVSHARE_SLO_US_MAX * CLOCK_NS_PER_MS, &ns))
			return report_bad_value("slo", value, "off, or 0.001 to 3600000 ms");
		body.value = ns / CLOCK_NS_PER_MS;
	}
	return set_of_client(&body, client);
}

static int set_compute_limit(const char *value, const char *client)
{
	struct nvshare_set body = {.key = NVSHARE_KEY_COMPUTE_LIMIT};

	if (strcmp(value, "off") != 0 && parse_u64(value, 1, 100, &body.value))
		return report_bad_value("compute-limit", value, "off, or 1 to 100 percent");
	return set_of_client(&body, client);
}

/* ---- tables of settings ------------------------------------------------------- */

static const struct {
	const char *name;
	int (*set)(const char *value);
} node_settings[] = {
	{"mode", set_mode},       {"policy", set_policy},
	{"tq", set_tq_now},       {"switch-time", set_switch_time},
	{"reserve", set_reserve}, {"max-runtime", set_max_runtime},
};

static const struct {
	const char *name;
	int (*set)(const char *value, const char *client);
} client_settings[] = {
	{"priority", set_priority},
	{"weight", set_weight},
	{"slo", set_slo},
	{"compute-limit", set_compute_limit},
};

static int report_usage(const char *what)
{
	(void)fprintf(stderr, "nvsharectl: set needs %s; see nvsharectl --help\n", what);
	return CLI_EXIT_USAGE;
}

int set_command(char *const *args)
{
	size_t n = 0;

	while (args[n])
		n++;
	for (size_t i = 0; n && i < sizeof(node_settings) / sizeof(*node_settings); i++) {
		if (strcmp(args[0], node_settings[i].name) != 0)
			continue;
		return n == 2 ? node_settings[i].set(args[1])
			      : report_usage("a setting and a value");
	}
	for (size_t i = 0; n && i < sizeof(client_settings) / sizeof(*client_settings); i++) {
		if (strcmp(args[0], client_settings[i].name) != 0)
			continue;
		return n == 3 ? client_settings[i].set(args[1], args[2])
			      : report_usage("a value and a client for this");
	}
	if (n < 2)
		return report_usage("a setting and a value");
	return report_bad_value("the setting", args[0],
				"mode, policy, tq, switch-time, reserve or max-runtime;"
				" or, of a client, priority, weight, slo or compute-limit");
}
