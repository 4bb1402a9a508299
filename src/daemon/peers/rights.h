/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_RIGHTS_H
#define NVS_DAEMON_RIGHTS_H

/*
 * The highest priority that each user may claim: NVSHARE_PRIORITY_MAX, as "normal" or
 * "normal,uid:1000=critical,gid:27=high,namespace:ml=high". A rule for the uid counts first, then
 * the highest of the rules for its groups, then the word that stands alone. For a pod only the rule
 * of its namespace counts, then that word: images choose uids and gids. A uid, gid or namespace has
 * one rule at most.
 *
 * Pure. Threading: none.
 */

#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RIGHTS_RULES_MAX     64
#define RIGHTS_NAMESPACE_LEN 64
#define RIGHTS_TEXT_MAX      2000 /* of NVSHARE_PRIORITY_MAX, bytes */

enum rights_kind { RIGHTS_USER, RIGHTS_GROUP, RIGHTS_NAMESPACE, RIGHTS_KIND_COUNT_ };

struct rights_rule {
	enum rights_kind kind;
	uint32_t id;                          /* 0 of a namespace */
	char namespace[RIGHTS_NAMESPACE_LEN]; /* "" of the others */
	uint32_t priority;                    /* enum nvshare_priority */
};

struct rights {
	uint32_t priority; /* of users without a rule */
	uint32_t n;
	struct rights_rule rules[RIGHTS_RULES_MAX];
};

/*
 * 0, or -EINVAL: not of the form, too long, too many rules, or two for one id; ret is untouched
 * then.
 */
int rights_parse(const char *s, struct rights *ret);

/* As rights_parse() takes it. */
void rights_print(const struct rights *rights, char *buf, size_t size);

uint32_t rights_priority(const struct rights *rights, uid_t uid, const gid_t *groups,
			 size_t n_groups);

/* namespace: NULL: unknown. */
uint32_t rights_priority_of_namespace(const struct rights *rights, const char *namespace);

#endif
