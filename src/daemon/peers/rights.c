/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/rights.h"

#include "ipc/names.h"
#include "util/parse.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define WORD_LEN 96

static const char *const kind_names[RIGHTS_KIND_COUNT_] = {"uid:", "gid:", "namespace:"};

/* As Kubernetes allows it. */
static int rights_parse_namespace(const char *s, char ret[RIGHTS_NAMESPACE_LEN])
{
	size_t len = strlen(s);

	if (len == 0 || len >= RIGHTS_NAMESPACE_LEN ||
	    strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") != len)
		return -EINVAL;
	memcpy(ret, s, len + 1);
	return 0;
}

/* "uid:1000=critical", "gid:27=high" or "namespace:ml=high". */
static int rights_parse_rule(char *word, struct rights_rule *ret)
{
	char *value = strchr(word, '=');
	unsigned int priority, kind = 0;
	uint64_t id = 0;

	if (!value)
		return -EINVAL;
	*value++ = '\0';
	while (kind < RIGHTS_KIND_COUNT_ &&
	       strncmp(word, kind_names[kind], strlen(kind_names[kind])) != 0)
		kind++;
	if (kind == RIGHTS_KIND_COUNT_ ||
	    parse_enum(value, names_priority, NVSHARE_PRIORITY_COUNT, &priority))
		return -EINVAL;
	word += strlen(kind_names[kind]);
	*ret = (struct rights_rule){.kind = (enum rights_kind)kind, .priority = priority};
	if (kind == RIGHTS_NAMESPACE)
		return rights_parse_namespace(word, ret->namespace);
	if (parse_u64(word, 0, UINT32_MAX - 1, &id))
		return -EINVAL;
	ret->id = (uint32_t)id;
	return 0;
}

/* Adds a rule. A user or group has one rule at most, because only one could count. */
static int rights_add_rule(struct rights *rights, char *word)
{
	struct rights_rule *rule = &rights->rules[rights->n];

	if (rights->n == RIGHTS_RULES_MAX || rights_parse_rule(word, rule))
		return -EINVAL;
	for (uint32_t i = 0; i < rights->n; i++) {
		const struct rights_rule *other = &rights->rules[i];

		if (other->kind == rule->kind && other->id == rule->id &&
		    !strcmp(other->namespace, rule->namespace))
			return -EINVAL;
	}
	rights->n++;
	return 0;
}

int rights_parse(const char *s, struct rights *ret)
{
	struct rights rights = {.priority = NVSHARE_PRIORITY_NORMAL};
	bool is_said = false; /* the priority of all others */

	if (strlen(s) > RIGHTS_TEXT_MAX)
		return -EINVAL;
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

	for (uint32_t i = 0; i < rights->n && n < size; i++) {
		const struct rights_rule *rule = &rights->rules[i];
		char id[12] = "";

		if (rule->kind != RIGHTS_NAMESPACE)
			(void)snprintf(id, sizeof(id), "%u", (unsigned int)rule->id);
		n += (size_t)snprintf(buf + n, size - n, ",%s%s%s=%s", kind_names[rule->kind], id,
				      rule->namespace, names_priority[rule->priority]);
	}
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

		if (rule->kind == RIGHTS_USER && rule->id == uid)
			return rule->priority;
		if (rule->kind != RIGHTS_GROUP || !rights_is_among(rule->id, groups, n_groups))
			continue;
		if (!is_said || rule->priority > priority)
			priority = rule->priority;
		is_said = true;
	}
	return is_said ? priority : rights->priority;
}

uint32_t rights_priority_of_namespace(const struct rights *rights, const char *namespace)
{
	for (uint32_t i = 0; namespace && i < rights->n; i++) {
		if (!strcmp(rights->rules[i].namespace, namespace))
			return rights->rules[i].priority;
	}
	return rights->priority;
}
