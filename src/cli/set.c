/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "cli/status.h"

#include "ipc/names.h"
#include "util/clock.h"
#include "util/fd.h"
#include "util/parse.h"
#include "util/setting.h"

#include <stdio.h>
#include <string.h>

/* Sends one setting and prints the answer. Returns an exit code. */
static int send_setting(uint16_t type, const void *body)
{
	FD_CLEANUP int fd = -1;
	struct nvshare_result_msg result;
	int r;

	r = request_open(&fd);
	if (!r)
		r = request_set(fd, type, body, &result);
	if (r)
		return r;
	if (result.code == NVSHARE_RESULT_OK) {
		(void)printf("%s\n", result.text);
		return CLI_EXIT_OK;
	}
	(void)fprintf(stderr, "nvsharectl: %s\n", result.text);
	return CLI_EXIT_REFUSED;
}

static int report_bad_value(const char *what, const char *value, const char *allowed)
{
	(void)fprintf(stderr, "nvsharectl: %s is '%s'; allowed is %s\n", what, value, allowed);
	return CLI_EXIT_USAGE;
}

/* A parsed value, in the field that its kind needs. */
struct value {
	unsigned int word;
	uint32_t number;
	uint64_t ns;
};

#define WORD(words)                                                                                \
	{                                                                                          \
		.kind = SETTING_ENUM, .names = (words), .max = sizeof(words) / sizeof((words)[0]), \
		.offset = SETTING_AT(struct value, word, unsigned int)                             \
	}
#define NUMBER(its_kind, least, most, ...)                                        \
	{                                                                         \
		.kind = (its_kind), .min = (least), .max = (most),                \
		.offset = SETTING_AT(struct value, number, uint32_t), __VA_ARGS__ \
	}
#define SECONDS(least_ms, most_ms, ...)                                       \
	{                                                                     \
		.kind = SETTING_DECIMAL, .min = (least_ms)*CLOCK_NS_PER_MS,   \
		.max = (most_ms)*CLOCK_NS_PER_MS,                             \
		.offset = SETTING_AT(struct value, ns, uint64_t), __VA_ARGS__ \
	}

static const char *const off_on[] = {"off", "on"};

/* The values that people may write for a key. unset: the word for 0. */
static const struct setting key_values[NVSHARE_KEY_COUNT] = {
	[NVSHARE_KEY_MODE] = WORD(names_mode),
	[NVSHARE_KEY_TQ] = SECONDS(NVSHARE_TURN_MS_MIN, NVSHARE_TURN_MS_MAX),
	[NVSHARE_KEY_SWITCH_TIME] =
		SECONDS(NVSHARE_TURN_MS_MIN, NVSHARE_TURN_MS_MAX, .unset = "auto"),
	[NVSHARE_KEY_RESERVE] = NUMBER(SETTING_NUMBER, 0, NVSHARE_RESERVE_PERCENT_MAX),
	[NVSHARE_KEY_MAX_RUNTIME] = SECONDS(NVSHARE_MAX_RUNTIME_MS_MIN, NVSHARE_MAX_RUNTIME_MS_MAX),
	[NVSHARE_KEY_POLICY] = WORD(names_policy),
	[NVSHARE_KEY_PRIORITY] = WORD(names_priority),
	[NVSHARE_KEY_WEIGHT] = NUMBER(SETTING_NUMBER, NVSHARE_WEIGHT_MIN, NVSHARE_WEIGHT_MAX),
	[NVSHARE_KEY_SLO] = NUMBER(SETTING_SLO, 1, NVSHARE_SLO_US_MAX, .unset = "off"),
	[NVSHARE_KEY_COMPUTE_LIMIT] = NUMBER(SETTING_NUMBER, 1, 100, .unset = "off"),
	[NVSHARE_KEY_PAUSE] = WORD(off_on),
};

/* From people's text to the number on the wire; 0 or CLI_EXIT_USAGE, said. */
static int parse_value(enum nvshare_key key, const char *text, uint64_t *ret)
{
	const struct setting *setting = &key_values[key];
	char range[SETTING_TEXT_LEN], allowed[SETTING_TEXT_LEN + 16];
	struct value value = {0};

	if (setting->unset && !strcmp(text, setting->unset)) {
		*ret = 0;
		return CLI_EXIT_OK;
	}
	if (setting_parse(setting, text, &value)) {
		setting_allowed(setting, range);
		(void)snprintf(allowed, sizeof(allowed), "%s%s%s",
			       setting->unset ? setting->unset : "", setting->unset ? ", or " : "",
			       range);
		return report_bad_value(names_key[key], text, allowed);
	}
	if (setting->kind == SETTING_ENUM)
		*ret = value.word;
	else if (setting->kind == SETTING_DECIMAL)
		*ret = value.ns / CLOCK_NS_PER_MS;
	else
		*ret = value.number;
	return CLI_EXIT_OK;
}

int set_tq(const char *value, bool is_trial)
{
	struct nvshare_set_tq body;
	int r = parse_value(NVSHARE_KEY_TQ, value, &body.ms);

	return r || is_trial ? r : send_setting(NVSHARE_MSG_SET_TQ, &body);
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

/* ---- a client's settings ------------------------------------------------------ */

/* A process has one client a GPU; a gang is clients that belong together. */
struct several {
	const char *prefix, *none;
	bool (*has)(const struct status *status, const struct nvshare_status_client *client,
		    uint64_t number);
};

static bool process_has(const struct status *status, const struct nvshare_status_client *client,
			uint64_t pid)
{
	(void)status;
	return client->pid == pid;
}

static bool gang_has(const struct status *status, const struct nvshare_status_client *client,
		     uint64_t number)
{
	const struct nvshare_status_gang *gang = status_gang(status, client->id);

	return gang && gang->gang == number;
}

static const struct several several[] = {
	{"pid:", "no client has pid", process_has},
	{"gang:", "there is no gang", gang_has},
};

/* Changes every client of a process or gang. */
static int set_of_several(const struct several *which, struct nvshare_set *body, uint64_t number)
{
	struct status status = {.gpus = NULL};
	bool is_any = false;
	int r = status_fetch(&status);

	for (size_t i = 0; i < status.n_clients && r == CLI_EXIT_OK; i++) {
		if (!which->has(&status, &status.clients[i], number))
			continue;
		is_any = true;
		body->client = status.clients[i].id;
		r = send_setting(NVSHARE_MSG_SET, body);
	}
	status_deinit(&status);
	if (r == CLI_EXIT_OK && !is_any) {
		(void)fprintf(stderr, "nvsharectl: %s %llu\n", which->none,
			      (unsigned long long)number);
		return CLI_EXIT_REFUSED;
	}
	return r;
}

static int set_of_client(struct nvshare_set *body, const char *client)
{
	uint64_t number;

	for (size_t i = 0; i < sizeof(several) / sizeof(*several); i++) {
		size_t len = strlen(several[i].prefix);

		if (!strncmp(client, several[i].prefix, len) &&
		    !parse_u64(client + len, 1, UINT32_MAX, &number))
			return set_of_several(&several[i], body, number);
	}
	if (parse_u64(client, 1, UINT32_MAX, &number))
		return report_bad_value("the client", client,
					"an ID as in the status, pid:PID or gang:GANG");
	body->client = (uint32_t)number;
	return send_setting(NVSHARE_MSG_SET, body);
}

/* ---- which -------------------------------------------------------------------- */

static bool is_of_client(enum nvshare_key key)
{
	return key == NVSHARE_KEY_PRIORITY || key == NVSHARE_KEY_WEIGHT || key == NVSHARE_KEY_SLO ||
	       key == NVSHARE_KEY_COMPUTE_LIMIT || key == NVSHARE_KEY_PAUSE;
}

static int report_usage(const char *what)
{
	(void)fprintf(stderr, "nvsharectl: set needs %s; see nvsharectl --help\n", what);
	return CLI_EXIT_USAGE;
}

/* A setting that has no number on the wire: the scheduler knows its name and its values. */
static int set_by_name(const char *name, const char *value, uint32_t flags)
{
	struct nvshare_set_text body = {.flags = flags};

	if (strlen(name) >= sizeof(body.name) || strlen(value) >= sizeof(body.value))
		return report_usage("a shorter setting or value");
	memcpy(body.name, name, strlen(name));
	memcpy(body.value, value, strlen(value));
	return send_setting(NVSHARE_MSG_SET_TEXT, &body);
}

/* The short name stands for two settings. */
static int save(const char *name, const char *value)
{
	bool is_auto = !strcmp(value, names_switch_mode[NVSHARE_SWITCH_AUTO]);
	int r = CLI_EXIT_OK;

	if (strcmp(name, names_key[NVSHARE_KEY_SWITCH_TIME]) != 0)
		return set_by_name(name, value, NVSHARE_SET_SAVE);
	if (!is_auto)
		r = set_by_name(name, value, NVSHARE_SET_SAVE);
	return r ? r
		 : set_by_name(
			   "switch-time-mode",
			   names_switch_mode[is_auto ? NVSHARE_SWITCH_AUTO : NVSHARE_SWITCH_FIXED],
			   NVSHARE_SET_SAVE);
}

int reload_command(char *const *args)
{
	if (!args[0])
		return send_setting(NVSHARE_MSG_RELOAD, NULL);
	(void)fprintf(stderr, "nvsharectl: reload takes no argument\n");
	return CLI_EXIT_USAGE;
}

int set_command(char *const *args)
{
	size_t n = 0;

	while (args[n])
		n++;
	if (n && !strcmp(args[0], "--save"))
		return n == 3 ? save(args[1], args[2])
			      : report_usage("a setting and a value behind --save");
	for (enum nvshare_key key = 0; n && key < NVSHARE_KEY_COUNT; key++) {
		struct nvshare_set body = {.key = key};
		int r;

		if (strcmp(args[0], names_key[key]) != 0)
			continue;
		if (n != (is_of_client(key) ? 3 : 2))
			return report_usage(is_of_client(key) ? "a value and a client for this"
							      : "a setting and a value");
		r = parse_value(key, args[1], &body.value);
		if (r)
			return r;
		return is_of_client(key) ? set_of_client(&body, args[2])
					 : send_setting(NVSHARE_MSG_SET, &body);
	}
	return n == 2 ? set_by_name(args[0], args[1], 0) : report_usage("a setting and a value");
}
