/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/base/gang_name.h"

#include "util/parse.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* As much of the launcher's own name for the run as people need. */
#define NAME_SHOWN 48

/* FNV-1a. */
#define DIGEST_BEGIN 0xcbf29ce484222325ull
#define DIGEST_PRIME 0x100000001b3ull

typedef char *variable_get(const char *name);

/*
 * A launcher. run: the variable that its workers have, which names the run. parts: further
 * variables, the same for all workers of a gang, that tell it from others; absent ones count as
 * empty. HOSTNAME tells containers apart whose programs have the same user.
 */
struct launcher {
	const char *name;
	const char *run;
	const char *parts[4];
	uint64_t (*count)(variable_get *get); /* workers of the run on this node; 0: unknown */
};

/* An empty value counts as not set. */
static const char *value_of(variable_get *get, const char *name)
{
	const char *value = get(name);

	return value && *value ? value : NULL;
}

static uint64_t number_of(variable_get *get, const char *name)
{
	const char *value = value_of(get, name);
	uint64_t number = 0;

	if (!value || parse_u64(value, 1, NVSHARE_GANG_SIZE_MAX, &number))
		return 0;
	return number;
}

static uint64_t torchrun_count(variable_get *get)
{
	return number_of(get, "LOCAL_WORLD_SIZE");
}

static uint64_t pmix_count(variable_get *get)
{
	return number_of(get, "OMPI_COMM_WORLD_LOCAL_SIZE");
}

/*
 * "4" and "4(x2)": four tasks on each node. A list of other forms does not say which node is ours.
 * With the option --nvshare-gang=off the tasks of a step do not belong together.
 */
static uint64_t slurm_count(variable_get *get)
{
	const char *value = value_of(get, "SLURM_STEP_TASKS_PER_NODE"), *repeat, *end;
	const char *option = value_of(get, "SLURM_NVSHARE_GANG");
	char digits[16] = "", nodes[16] = "";
	uint64_t n_tasks, n_nodes;

	if (!value || number_of(get, "SLURM_NTASKS") < 2 || !value_of(get, "SLURM_STEP_ID") ||
	    (option && !strcmp(option, "off")))
		return 0;
	repeat = strstr(value, "(x");
	if (!repeat)
		return number_of(get, "SLURM_STEP_TASKS_PER_NODE");
	end = strchr(repeat, ')');
	if (!end || end[1] || (size_t)(repeat - value) >= sizeof(digits) ||
	    (size_t)(end - repeat - 2) >= sizeof(nodes))
		return 0;
	memcpy(digits, value, (size_t)(repeat - value));
	memcpy(nodes, repeat + 2, (size_t)(end - repeat - 2));
	if (parse_u64(digits, 1, NVSHARE_GANG_SIZE_MAX, &n_tasks) ||
	    parse_u64(nodes, 1, NVSHARE_GANG_SIZE_MAX, &n_nodes))
		return 0;
	return n_tasks;
}

/*
 * A program may have the variables of several. Then the inner launcher has started the workers:
 * Slurm starts torchrun and the daemons of Open MPI, and Open MPI may start torchrun.
 */
static const struct launcher launchers[] = {
	/* The name of a run is "none" if nobody gives one, so address and port count, too. */
	{"torchrun",
	 "TORCHELASTIC_RUN_ID",
	 {"MASTER_ADDR", "MASTER_PORT", "GROUP_RANK", "HOSTNAME"},
	 torchrun_count},
	{"mpi", "PMIX_NAMESPACE", {"HOSTNAME"}, pmix_count},
	{"slurm", "SLURM_JOB_ID", {"SLURM_STEP_ID"}, slurm_count},
};

/* With the end of the text, so that "ab", "c" is not "a", "bc". */
static uint64_t digest_add(uint64_t digest, const char *text)
{
	size_t size = strlen(text) + 1;

	for (size_t i = 0; i < size; i++)
		digest = (digest ^ (unsigned char)text[i]) * DIGEST_PRIME;
	return digest;
}

static void name_make(variable_get *get, const struct launcher *launcher,
		      char ret[NVSHARE_GANG_LEN])
{
	const char *run = value_of(get, launcher->run);
	uint64_t digest = digest_add(DIGEST_BEGIN, run);

	for (size_t i = 0; i < sizeof(launcher->parts) / sizeof(launcher->parts[0]); i++) {
		const char *part = launcher->parts[i] ? value_of(get, launcher->parts[i]) : NULL;

		digest = digest_add(digest, part ? part : "");
	}
	(void)snprintf(ret, NVSHARE_GANG_LEN, "%s-%.*s-%016llx", launcher->name, NAME_SHOWN, run,
		       (unsigned long long)digest);
}

bool gang_name_find(variable_get *get, char ret[NVSHARE_GANG_LEN])
{
	*ret = '\0';
	for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
		if (!value_of(get, launchers[i].run))
			continue;
		/* Alone in the inner launcher's run is alone: the outer one has started launchers.
		 */
		if (launchers[i].count(get) == 1)
			return false;
		if (launchers[i].count(get)) {
			name_make(get, &launchers[i], ret);
			return true;
		}
	}
	return false;
}
