/* SPDX-License-Identifier: Apache-2.0 */

#include "simgpu/cuda/fail.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simgpu/node/node.h"
#include "util/parse.h"

enum { FAIL_RULES_MAX = 32, FAIL_NAME_MAX = 64 };

struct fail_rule {
	char name[FAIL_NAME_MAX];
	uint64_t at;
	uint64_t code;
	uint64_t n_calls;
};

static struct fail_rule rules[FAIL_RULES_MAX];
static unsigned int n_rules;

void fail_init(void)
{
	const char *s = getenv("NVSHARE_SIM_FAIL");
	char copy[2048], *rest = copy, *rule, *name, *at;

	snprintf(copy, sizeof(copy), "%s", s ? s : "");
	while ((rule = strsep(&rest, ",")) && n_rules < FAIL_RULES_MAX) {
		struct fail_rule *r = &rules[n_rules];

		name = strsep(&rule, ":");
		at = strsep(&rule, ":");
		if (!*name)
			continue;
		snprintf(r->name, sizeof(r->name), "%s", name);
		if (!at || !rule || parse_u64(at, 1, UINT64_MAX, &r->at) ||
		    parse_u64(rule, 1, 999, &r->code))
			node_debug("NVSHARE_SIM_FAIL: cannot read the rule for %s", name);
		else
			n_rules++;
	}
}

/* "cuMemcpyHtoDAsync_v2_ptsz" is what "cuMemcpyHtoDAsync" means. */
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

CUresult fail_check(const char *name)
{
	CUresult r = CUDA_SUCCESS;
	unsigned int i;

	/* Every rule counts every call of its function, also one that another rule fails. */
	for (i = 0; i < n_rules; i++)
		if (is_named(name, rules[i].name) &&
		    __atomic_add_fetch(&rules[i].n_calls, 1, __ATOMIC_RELAXED) == rules[i].at)
			r = (CUresult)rules[i].code;
	if (r)
		node_debug("%s fails with %d, as ordered", name, (int)r);
	return r;
}
