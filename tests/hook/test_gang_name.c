/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/base/gang_name.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VARIABLES_MAX 8

struct variable {
	const char *name;
	const char *value;
};

static struct variable environment[VARIABLES_MAX];

static char *get(const char *name)
{
	for (size_t i = 0; i < VARIABLES_MAX && environment[i].name; i++) {
		if (strcmp(environment[i].name, name) == 0)
			return (char *)(uintptr_t)environment[i].value;
	}
	return NULL;
}

static void set(const char *name, const char *value)
{
	size_t i = 0;

	while (i < VARIABLES_MAX && environment[i].name && strcmp(environment[i].name, name) != 0)
		i++;
	assert_true(i < VARIABLES_MAX);
	environment[i] = (struct variable){name, value};
}

static void begin_with(const struct variable *variables, size_t n)
{
	memset(environment, 0, sizeof(environment));
	if (n > 0)
		memcpy(environment, variables, n * sizeof(*variables));
}

/* Of the environment as it is; "": none. */
static const char *found(void)
{
	static char names[2][NVSHARE_GANG_LEN];
	static int turn;
	char *name = names[turn++ % 2];
	bool is_found;

	memset(name, 'x', NVSHARE_GANG_LEN);
	is_found = gang_name_find(get, name);
	assert_int_equal(is_found, *name != '\0');
	assert_true(memchr(name, '\0', NVSHARE_GANG_LEN));
	return name;
}

static void begin_torchrun(void)
{
	static const struct variable worker[] = {
		{"TORCHELASTIC_RUN_ID", "none"},
		{"LOCAL_WORLD_SIZE", "2"},
		{"MASTER_ADDR", "127.0.0.1"},
		{"MASTER_PORT", "29500"},
		{"GROUP_RANK", "0"},
		{"LOCAL_RANK", "0"},
		{"HOSTNAME", "node"},
	};

	begin_with(worker, sizeof(worker) / sizeof(worker[0]));
}

static void begin_mpi(void)
{
	static const struct variable worker[] = {
		{"PMIX_NAMESPACE", "prterun-node-4711@1"},
		{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
	};

	begin_with(worker, sizeof(worker) / sizeof(worker[0]));
}

static void begin_slurm(void)
{
	static const struct variable task[] = {
		{"SLURM_JOB_ID", "4711"},
		{"SLURM_STEP_ID", "0"},
		{"SLURM_NTASKS", "8"},
		{"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
	};

	begin_with(task, sizeof(task) / sizeof(task[0]));
}

static void a_program_without_a_launcher_is_in_no_gang(void **unused)
{
	(void)unused;
	begin_with(NULL, 0);
	assert_string_equal(found(), "");
	set("HOSTNAME", "node");
	set("LOCAL_WORLD_SIZE", "8");
	assert_string_equal(found(), "");
}

/* All workers have the same name, and it begins with the launcher's. */
static void workers_of_a_launcher_have_one_name(void **unused)
{
	char first[NVSHARE_GANG_LEN];

	(void)unused;
	begin_torchrun();
	(void)strcpy(first, found());
	assert_memory_equal(first, "torchrun-none-", strlen("torchrun-none-"));
	set("LOCAL_RANK", "1");
	assert_string_equal(found(), first);
	begin_mpi();
	assert_memory_equal(found(), "mpi-prterun-node-4711@1-",
			    strlen("mpi-prterun-node-4711@1-"));
	begin_slurm();
	assert_memory_equal(found(), "slurm-4711-", strlen("slurm-4711-"));
}

static void other_runs_have_other_names(void **unused)
{
	static const struct variable changes[] = {
		{"TORCHELASTIC_RUN_ID", "one"}, {"MASTER_ADDR", "10.0.0.1"},
		{"MASTER_PORT", "29501"},       {"GROUP_RANK", "1"},
		{"HOSTNAME", "other"},
	};
	char first[NVSHARE_GANG_LEN];

	(void)unused;
	begin_torchrun();
	(void)strcpy(first, found());
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		begin_torchrun();
		set(changes[i].name, changes[i].value);
		assert_string_not_equal(found(), first);
	}
	begin_slurm();
	(void)strcpy(first, found());
	set("SLURM_STEP_ID", "1");
	assert_string_not_equal(found(), first);
}

/* Two values together must not be those of another gang. */
static void values_do_not_run_into_each_other(void **unused)
{
	char first[NVSHARE_GANG_LEN];

	(void)unused;
	begin_torchrun();
	set("MASTER_PORT", "29500");
	set("GROUP_RANK", "12");
	(void)strcpy(first, found());
	set("MASTER_PORT", "295001");
	set("GROUP_RANK", "2");
	assert_string_not_equal(found(), first);
}

static void a_long_name_is_cut_and_still_its_own(void **unused)
{
	char run[300], first[NVSHARE_GANG_LEN];

	(void)unused;
	begin_torchrun();
	memset(run, 'a', sizeof(run));
	run[sizeof(run) - 1] = '\0';
	set("TORCHELASTIC_RUN_ID", run);
	(void)strcpy(first, found());
	run[sizeof(run) - 2] = 'b';
	assert_string_not_equal(found(), first);
}

static void a_worker_that_is_alone_on_its_node_is_in_no_gang(void **unused)
{
	static const char *const sizes[] = {"1", "0", "", "-2", "two", "2 ", "100001"};

	(void)unused;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		begin_torchrun();
		set("LOCAL_WORLD_SIZE", sizes[i]);
		assert_string_equal(found(), "");
		begin_mpi();
		set("OMPI_COMM_WORLD_LOCAL_SIZE", sizes[i]);
		assert_string_equal(found(), "");
		begin_slurm();
		set("SLURM_NTASKS", sizes[i]);
		assert_string_equal(found(), "");
	}
}

static void only_plain_counts_of_tasks_are_known(void **unused)
{
	static const char *const known[] = {"2", "4(x2)", "100000(x100000)"};
	static const char *const unknown[] = {
		"1",
		"1(x8)",
		"2,1",
		"2(x2),1",
		"2(x2)1",
		"2(x)",
		"(x2)",
		"2(x2",
		"2(",
		"2()",
		"2(x0)",
		"0(x2)",
		"",
		"2(x2x)",
		"2 ",
		"99999999999999999999(x2)",
		"2(x99999999999999999999)",
	};

	(void)unused;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		begin_slurm();
		set("SLURM_STEP_TASKS_PER_NODE", known[i]);
		assert_string_not_equal(found(), "");
	}
	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
		begin_slurm();
		set("SLURM_STEP_TASKS_PER_NODE", unknown[i]);
		assert_string_equal(found(), "");
	}
}

/* A batch script has the job's variables, and is no step. */
static void a_job_without_a_step_is_no_gang(void **unused)
{
	(void)unused;
	begin_slurm();
	set("SLURM_STEP_ID", "");
	assert_string_equal(found(), "");
}

/* The tasks do not need each other. What a launcher starts in one of them does. */
static void a_step_whose_tasks_stand_alone_is_no_gang(void **unused)
{
	(void)unused;
	begin_slurm();
	set("SLURM_NVSHARE_GANG", "off");
	assert_string_equal(found(), "");
	set("SLURM_NVSHARE_GANG", "pair");
	assert_memory_equal(found(), "slurm-4711-", strlen("slurm-4711-"));
	set("SLURM_NVSHARE_GANG", "off");
	set("TORCHELASTIC_RUN_ID", "run");
	set("LOCAL_WORLD_SIZE", "2");
	assert_memory_equal(found(), "torchrun-run-", strlen("torchrun-run-"));
}

static void the_inner_launcher_names_the_gang(void **unused)
{
	(void)unused;
	begin_mpi();
	set("TORCHELASTIC_RUN_ID", "run");
	set("LOCAL_WORLD_SIZE", "2");
	assert_memory_equal(found(), "torchrun-run-", strlen("torchrun-run-"));
	/* Each task of the outer one has a run of its own. */
	set("LOCAL_WORLD_SIZE", "1");
	assert_string_equal(found(), "");
	/* PMIx by Slurm does not say how many there are, and Slurm does. */
	begin_slurm();
	set("PMIX_NAMESPACE", "slurm.pmix.4711.0");
	assert_memory_equal(found(), "slurm-4711-", strlen("slurm-4711-"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_program_without_a_launcher_is_in_no_gang),
		cmocka_unit_test(workers_of_a_launcher_have_one_name),
		cmocka_unit_test(other_runs_have_other_names),
		cmocka_unit_test(values_do_not_run_into_each_other),
		cmocka_unit_test(a_long_name_is_cut_and_still_its_own),
		cmocka_unit_test(a_worker_that_is_alone_on_its_node_is_in_no_gang),
		cmocka_unit_test(only_plain_counts_of_tasks_are_known),
		cmocka_unit_test(a_job_without_a_step_is_no_gang),
		cmocka_unit_test(a_step_whose_tasks_stand_alone_is_no_gang),
		cmocka_unit_test(the_inner_launcher_names_the_gang),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
