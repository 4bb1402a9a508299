/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include "util/clock.h"
#include "util/fd.h"
#include "util/parse.h"

#include <stdio.h>
#include <string.h>

/* Sends one setting and shows the answer. */
static int change(uint16_t type, const void *body)
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
		(void)fprintf(stderr, "nvsharectl: the scheduler answers with %s\n",
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

static int bad_value(const char *what, const char *value, const char *allowed)
{
	(void)fprintf(stderr, "nvsharectl: %s is '%s'; allowed is %s\n", what, value, allowed);
	return CLI_EXIT_USAGE;
}

struct span {
	const char *what;
	const char *also; /* what may stand there beside a number */
	uint64_t min, max;
};

static const struct span tq_span = {"tq", "", NVSHARE_TURN_MS_MIN, NVSHARE_TURN_MS_MAX};
static const struct span switch_time_span = {"switch-time", "auto, or ", NVSHARE_TURN_MS_MIN,
					     NVSHARE_TURN_MS_MAX};
static const struct span max_runtime_span = {"max-runtime", "", NVSHARE_MAX_RUNTIME_MS_MIN,
					     NVSHARE_MAX_RUNTIME_MS_MAX};

/* Seconds, in which people think, to the milliseconds of the wire; 0 or CLI_EXIT_USAGE. */
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

int set_tq(const char *value)
{
	struct nvshare_set_tq body;
	int r = parse_ms(&tq_span, value, &body.ms);

	return r ? r : change(NVSHARE_MSG_SET_TQ, &body);
}

int set_anti_thrash(const char *value)
{
	bool is_on;

	if (parse_bool(value, &is_on))
		return bad_value("anti-thrash", value, "on or off");
	return change(is_on ? NVSHARE_MSG_SCHED_ON : NVSHARE_MSG_SCHED_OFF, NULL);
}

static int set_mode(const char *value)
{
	static const char *const names[] = {"auto", "serial", "concurrent"};
	struct nvshare_set body = {.key = NVSHARE_KEY_MODE};
	unsigned int mode;

	if (parse_enum(value, names, NVSHARE_MODE_COUNT, &mode))
		return bad_value("mode", value, "auto, serial or concurrent");
	body.value = mode;
	return change(NVSHARE_MSG_SET, &body);
}

static int set_switch_time(const char *value)
{
	struct nvshare_set body = {.key = NVSHARE_KEY_SWITCH_TIME, .value = 0};
	int r = 0;

	if (strcmp(value, "auto") != 0)
		r = parse_ms(&switch_time_span, value, &body.value);
	return r ? r : change(NVSHARE_MSG_SET, &body);
}

static int set_reserve(const char *value)
{
	struct nvshare_set body = {.key = NVSHARE_KEY_RESERVE};

	if (!parse_u64(value, 0, NVSHARE_RESERVE_PERCENT_MAX, &body.value))
		return change(NVSHARE_MSG_SET, &body);
	(void)fprintf(stderr, "nvsharectl: reserve is '%s'; allowed is 0 to %u percent\n", value,
		      NVSHARE_RESERVE_PERCENT_MAX);
	return CLI_EXIT_USAGE;
}

static int set_max_runtime(const char *value)
{
	struct nvshare_set body = {.key = NVSHARE_KEY_MAX_RUNTIME};
	int r = parse_ms(&max_runtime_span, value, &body.value);

	return r ? r : change(NVSHARE_MSG_SET, &body);
}

int set_command(char *const *args)
{
	if (!args[0] || !args[1] || args[2]) {
		(void)fprintf(stderr, "nvsharectl: set needs a setting and a value;"
				      " see nvsharectl --help\n");
		return CLI_EXIT_USAGE;
	}
	if (!strcmp(args[0], "mode"))
		return set_mode(args[1]);
	if (!strcmp(args[0], "tq"))
		return set_tq(args[1]);
	if (!strcmp(args[0], "switch-time"))
		return set_switch_time(args[1]);
	if (!strcmp(args[0], "reserve"))
		return set_reserve(args[1]);
	if (!strcmp(args[0], "max-runtime"))
		return set_max_runtime(args[1]);
	return bad_value("the setting", args[0], "mode, tq, switch-time, reserve or max-runtime");
}
