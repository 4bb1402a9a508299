/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_RIGHTS_H
#define NVS_DAEMON_RIGHTS_H

/*
 * How high a priority whom may claim: NVSHARE_PRIORITY_MAX, as "normal" or
 * "normal,uid:1000=critical,gid:27=high". What is said of a uid counts; else the highest of
 * what is said of its groups; else what stands alone. Nothing is said of anybody twice.
 */

#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RIGHTS_RULES_MAX 64

struct rights_rule {
	bool is_group;
	uint32_t id;
	uint32_t priority; /* enum nvshare_priority */
};

struct rights {
	uint32_t priority; /* of all of whom nothing is said */
	uint32_t n;
	struct rights_rule rules[RIGHTS_RULES_MAX];
};

/* 0, or -EINVAL: not of the form, too long, or something twice; ret is untouched then. */
int rights_parse(const char *s, struct rights *ret);

uint32_t rights_priority(const struct rights *rights, uid_t uid, const gid_t *groups,
			 size_t n_groups);

#endif
