/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/rights.h"

#include "ipc/names.h"
#include "util/parse.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define WORD_LEN 48

/* "uid:1000=critical" or "gid:27=high". */
static int rights_parse_rule(char *word, struct rights_rule *ret)
{
	char *value = strchr(word, '=');
	unsigned int priority;
	uint64_t id;

	if (!value)
		return -EINVAL;
	*value++ = '\0';
	ret->is_group = !strncmp(word, "gid:", 4);
	if ((!ret->is_group && strncmp(word, "uid:", 4) != 0) ||
	    parse_u64(word + 4, 0, UINT32_MAX - 1, &id) ||
	    parse_enum(value, names_priority, NVSHARE_PRIORITY_COUNT, &priority))
		return -EINVAL;
	ret->id = (uint32_t)id;
	ret->priority = priority;
	return 0;
}

/* Adds a rule. A user or group has one rule at most, because only one could count. */
static int rights_add_rule(struct rights *rights, char *word)
{
	struct rights_rule *rule = &rights->rules[rights->n];

	if (rights->n == RIGHTS_RULES_MAX || rights_parse_rule(word, rule))
		return -EINVAL;
	for (uint32_t i = 0; i < rights->n; i++) {
		if (rights->rules[i].is_group == rule->is_group && rights->rules[i].id == rule->id)
			return -EINVAL;
	}
	rights->n++;
	return 0;
}

int rights_parse(const char *s, struct rights *ret)
{
	struct rights rights = {.priority = NVSHARE_PRIORITY_NORMAL};
	bool is_said = false; /* the priority of all others */

	for (bool is_last = false; !is_last;) {
		size_t len = strcspn(s, ",");
		char word[WORD_LEN];

		if (len >= sizeof(word))
			return -EINVAL;
		memcpy(word, s, len);
		word[len] = '\0';
		if (!strchr(word, ':')) {
			unsigned int priority;

			if (is_said ||
			    parse_enum(word, names_priority, NVSHARE_PRIORITY_COUNT, &priority))
				return -EINVAL;
			rights.priority = priority;
			is_said = true;
		} else if (rights_add_rule(&rights, word)) {
			return -EINVAL;
		}
		is_last = s[len] == '\0';
		s += len + 1;
	}
	*ret = rights;
	return 0;
}

void rights_print(const struct rights *rights, char *buf, size_t size)
{
	size_t n = (size_t)snprintf(buf, size, "%s", names_priority[rights->priority]);

	for (uint32_t i = 0; i < rights->n && n < size; i++)
		n += (size_t)snprintf(
			buf + n, size - n, ",%s:%u=%s", rights->rules[i].is_group ? "gid" : "uid",
			rights->rules[i].id, names_priority[rights->rules[i].priority]);
}

static bool rights_is_among(uint32_t id, const gid_t *groups, size_t n_groups)
{
	for (size_t i = 0; i < n_groups; i++) {
		if (groups[i] == id)
			return true;
	}
	return false;
}

uint32_t rights_priority(const struct rights *rights, uid_t uid, const gid_t *groups,
			 size_t n_groups)
{
	uint32_t priority = 0;
	bool is_said = false;

	for (uint32_t i = 0; i < rights->n; i++) {
		const struct rights_rule *rule = &rights->rules[i];

		if (!rule->is_group && rule->id == uid)
			return rule->priority;
		if (!rule->is_group || !rights_is_among(rule->id, groups, n_groups))
			continue;
		if (!is_said || rule->priority > priority)
			priority = rule->priority;
		is_said = true;
	}
	return is_said ? priority : rights->priority;
}
