/* SPDX-License-Identifier: Apache-2.0 */

#include "simgpu/cuda/fail.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "simgpu/node/node.h"
#include "util/parse.h"

enum { FAIL_RULES_MAX = 32, FAIL_NAME_MAX = 64, FAIL_HANG_MS_MAX = 3600000 };

struct fail_rule {
	char name[FAIL_NAME_MAX];
	uint64_t at;
	bool is_always;
	struct fail_order order;
	int signal;       /* 0: none */
	uint64_t hang_ms; /* 0: no delay */
	uint64_t n_calls;
};

static struct fail_rule rules[FAIL_RULES_MAX];
static unsigned int n_rules;
static const char *begins; /* path: calls count once this file exists; NULL: from the start */
static bool has_begun;

static bool read_number(char **rest, uint64_t max, uint64_t *ret)
{
	const char *word = strsep(rest, ":");

	return word && parse_u64(word, 1, max, ret) == 0;
}

static bool is_control(const char *name)
{
	return strcmp(name, "rm_disable") == 0 || strcmp(name, "rm_enable") == 0 ||
	       strcmp(name, "rm_timeslice") == 0;
}

/* Reads the part of a rule between "name:N:" and ":always" or the end. */
static bool read_what(struct fail_rule *rule, char **rest)
{
	static const struct {
		const char *word;
		int signal;
	} signals[] = {{"kill", SIGKILL}, {"term", SIGTERM}, {"stop", SIGSTOP}};
	bool is_rm = strncmp(rule->name, "rm_", 3) == 0;
	const char *word = strsep(rest, ":");
	uint64_t value;
	size_t i;

	if (!word)
		return false;
	for (i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		if (strcmp(word, signals[i].word) == 0) {
			rule->signal = signals[i].signal;
			return true;
		}
	if (strcmp(word, "hang") == 0)
		return read_number(rest, FAIL_HANG_MS_MAX, &rule->hang_ms);
	if (strcmp(word, "lie") == 0) {
		rule->order.what = FAIL_LIE;
		return is_control(rule->name);
	}
	if (strcmp(word, "errno") == 0) {
		rule->order.what = FAIL_ERRNO;
		if (!is_rm || !read_number(rest, 4095, &value))
			return false;
	} else {
		rule->order.what = FAIL_RESULT;
		if (parse_u64(word, 1, is_rm ? UINT16_MAX : 999, &value) < 0)
			return false;
	}
	rule->order.code = (int)value;
	return true;
}

static bool read_rule(struct fail_rule *rule, char *rest)
{
	const char *word = strsep(&rest, ":");

	snprintf(rule->name, sizeof(rule->name), "%s", word);
	if (!read_number(&rest, UINT64_MAX, &rule->at) || !read_what(rule, &rest))
		return false;
	rule->is_always = rest && strcmp(rest, "always") == 0;
	return !rest || rule->is_always;
}

void fail_init(void)
{
	const char *s = getenv("NVSHARE_SIM_FAIL");
	char copy[2048], *rest = copy, *text;

	begins = getenv("NVSHARE_SIM_FAIL_FROM");
	snprintf(copy, sizeof(copy), "%s", s ? s : "");
	while ((text = strsep(&rest, ",")) && n_rules < FAIL_RULES_MAX) {
		struct fail_rule rule = {.name = ""};

		if (!*text)
			continue;
		if (read_rule(&rule, text))
			rules[n_rules++] = rule;
		else
			node_debug("NVSHARE_SIM_FAIL: cannot read the rule for %s", rule.name);
	}
}

/* "cuMemcpyHtoDAsync" in a rule also names "cuMemcpyHtoDAsync_v2_ptsz". */
static bool is_named(const char *name, const char *wanted)
{
	size_t n = strlen(wanted);

	if (strncmp(name, wanted, n) != 0)
		return false;
	name += n;
	if (strncmp(name, "_v", 2) == 0 && name[2])
		name += 3;
	return !*name || strcmp(name, "_ptsz") == 0 || strcmp(name, "_ptds") == 0;
}

static void hang_call(uint64_t ms)
{
	struct timespec left = {
		.tv_sec = (time_t)(ms / 1000),
		.tv_nsec = (long)(ms % 1000) * 1000000,
	};

	while (nanosleep(&left, &left) < 0 && errno == EINTR)
		;
}

static bool is_counting(void)
{
	if (!__atomic_load_n(&has_begun, __ATOMIC_RELAXED) &&
	    (!begins || !*begins || access(begins, F_OK) == 0))
		__atomic_store_n(&has_begun, true, __ATOMIC_RELAXED);
	return __atomic_load_n(&has_begun, __ATOMIC_RELAXED);
}

static bool is_due(struct fail_rule *rule)
{
	uint64_t n = __atomic_add_fetch(&rule->n_calls, 1, __ATOMIC_RELAXED);

	return rule->is_always ? n >= rule->at : n == rule->at;
}

struct fail_order fail_order(const char *name)
{
	struct fail_order order = {FAIL_NOTHING, 0};
	int saved = errno;
	unsigned int i;

	if (!n_rules || !is_counting()) {
		errno = saved;
		return order;
	}
	/* Each rule counts all calls of its function, also those that another rule fails. */
	for (i = 0; i < n_rules; i++) {
		if (!is_named(name, rules[i].name) || !is_due(&rules[i]))
			continue;
		if (rules[i].signal) {
			node_debug("%s: signal %d, as ordered", name, rules[i].signal);
			if (rules[i].signal == SIGSTOP)
				node_stop();
			else
				kill(getpid(), rules[i].signal);
		} else if (rules[i].hang_ms) {
			node_debug("%s takes %ju ms, as ordered", name,
				   (uintmax_t)rules[i].hang_ms);
			hang_call(rules[i].hang_ms);
		} else {
			order = rules[i].order;
		}
	}
	errno = saved;
	return order;
}

CUresult fail_check(const char *name)
{
	struct fail_order order = fail_order(name);

	if (order.what != FAIL_RESULT)
		return CUDA_SUCCESS;
	node_debug("%s fails with %d, as ordered", name, order.code);
	return (CUresult)order.code;
}
