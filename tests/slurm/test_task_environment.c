/* SPDX-License-Identifier: Apache-2.0 */
#include "slurm/task_environment.h"
#include "slurm/task_place.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define N(array) (sizeof(array) / sizeof((array)[0]))
#define OURS     "/lib/libnvshare.so"

static void the_library_comes_first_and_once(void **state)
{
	static const struct {
		const char *old, *new;
	} table[] = {
		{NULL, OURS},
		{"", OURS},
		{OURS, OURS},
		{"/a.so", OURS ":/a.so"},
		{"/a.so:" OURS ":/b.so", OURS ":/a.so:/b.so"},
		{" /a.so  :" OURS, OURS ":/a.so"},
		{"/opt/libnvshare.so.1.2", OURS},
		{"libnvshare.so", OURS},
		{"/opt/libnvshare.sox:/opt/nvshare.so",
		 OURS ":/opt/libnvshare.sox:/opt/nvshare.so"},
		{"/libnvshare.so/x.so", OURS ":/libnvshare.so/x.so"},
	};
	char value[256];

	(void)state;
	for (size_t i = 0; i < N(table); i++) {
		assert_int_equal(task_environment_preload(table[i].old, OURS, value, sizeof(value)),
				 0);
		assert_string_equal(value, table[i].new);
		/* A step within the task gets the same. */
		assert_int_equal(task_environment_preload(table[i].new, OURS, value, sizeof(value)),
				 0);
		assert_string_equal(value, table[i].new);
	}
}

static void the_library_can_be_taken_out(void **state)
{
	char value[64];

	(void)state;
	assert_int_equal(task_environment_preload(OURS, "", value, sizeof(value)), 0);
	assert_string_equal(value, "");
	assert_int_equal(task_environment_preload("/a.so:" OURS " /b.so", "", value, sizeof(value)),
			 0);
	assert_string_equal(value, "/a.so:/b.so");
}

static void tasks_of_a_step_on_a_node_are_a_gang(void **state)
{
	static const struct {
		const char *option, *inherited, *automatic;
		uint32_t n_tasks;
		const char *gang;
		bool is_together;
	} table[] = {
		{"", NULL, NULL, 2, "slurm-7.1", true},
		{"", "", "", 2, "slurm-7.1", true},
		{"", NULL, NULL, 1, NULL, false},
		{"", NULL, NULL, 0, NULL, false}, /* a batch script */
		{"", NULL, "0", 2, NULL, false},
		{"", NULL, "off", 2, NULL, false},
		{"", NULL, "1", 2, "slurm-7.1", true},
		{"", NULL, "perhaps", 2, "slurm-7.1", true},
		/* The user's own name stays; that of the step around this one does not. */
		{"", "train", "0", 1, "train", false},
		{"", "train", "0", 2, "train", false},
		{"", "train", NULL, 2, "train", true},
		{"", "slurm-7.0", NULL, 2, "slurm-7.1", true},
		{"", "slurm-7.0", NULL, 1, NULL, false},
		{"eval", "train", "0", 1, "eval", false},
		{"eval", "train", "0", 2, "eval", true},
		{"off", "train", NULL, 2, NULL, false},
	};

	(void)state;
	for (size_t i = 0; i < N(table); i++) {
		struct task_gang_facts facts = {
			.option = table[i].option,
			.inherited = table[i].inherited,
			.automatic = table[i].automatic,
			.step = "slurm-7.1",
			.prefix = "slurm-",
			.n_tasks = table[i].n_tasks,
		};
		const char *gang = task_environment_gang(&facts);

		if (!table[i].gang)
			assert_null(gang);
		else
			assert_string_equal(gang, table[i].gang);
		if (task_environment_is_together(&facts) != table[i].is_together)
			fail_msg("row %zu", i);
	}
}

static void a_text_that_is_too_long_is_refused(void **state)
{
	char value[25];

	(void)state;
	assert_int_equal(task_environment_preload("/a.so", OURS, value, sizeof(value)), 0);
	assert_int_equal(task_environment_preload("/ab.so", OURS, value, sizeof(value)), -ENOSPC);
	assert_int_equal(task_environment_expand("/run/%n/nvshare-----%n", "n", value, 8), -ENOSPC);
}

static void a_directory_may_name_the_node(void **state)
{
	static const struct {
		const char *dir, *expanded;
	} table[] = {
		{"", ""},
		{"/run/nvshare", "/run/nvshare"},
		{"/run/%n", "/run/node1"},
		{"/%n/%n/x", "/node1/node1/x"},
		{"/a%b%", "/a%b%"},
	};
	char value[64];

	(void)state;
	for (size_t i = 0; i < N(table); i++) {
		assert_int_equal(
			task_environment_expand(table[i].dir, "node1", value, sizeof(value)), 0);
		assert_string_equal(value, table[i].expanded);
	}
}

static void the_gpu_that_slurm_chose_is_asked_for(void **state)
{
	static const struct {
		struct task_gpus_facts facts;
		enum task_gpus gpus;
		const char *gpu;
	} table[] = {
		{{NULL, NULL, NULL, NULL}, TASK_GPUS_ANY, ""},
		{{"", "", "", ""}, TASK_GPUS_ANY, ""},
		{{"NoDevFiles", "NoDevFiles", NULL, NULL}, TASK_GPUS_ANY, ""},
		/* --gres=gpu:1, with and without confinement to the device */
		{{"3", "3", "3", NULL}, TASK_GPUS_ONE, "3"},
		{{"0", "0", "3", NULL}, TASK_GPUS_ONE, "3"},
		/* two of the node, of which the task is bound to one */
		{{"3", "1,3", "1,3", NULL}, TASK_GPUS_ONE, "3"},
		{{"1", "0,1", "1,3", NULL}, TASK_GPUS_ONE, "3"},
		{{"1,3", "1,3", "1,3", NULL}, TASK_GPUS_SEVERAL, ""},
		/* chosen by the user, or as a MIG instance */
		{{"2", NULL, NULL, NULL}, TASK_GPUS_ONE, "2"},
		{{"MIG-5", "MIG-5", "0", NULL}, TASK_GPUS_ONE, "MIG-5"},
		{{"7", "7", "3", NULL}, TASK_GPUS_ONE, "7"},
		/* a step within a task that the plugin has placed */
		{{"GPU-1", "GPU-1", NULL, "GPU-1"}, TASK_GPUS_ANY, ""},
		{{"0", "0", "0", "GPU-1"}, TASK_GPUS_ONE, "0"},
	};

	(void)state;
	for (size_t i = 0; i < N(table); i++) {
		char gpu[64] = "";

		if (task_environment_gpus(&table[i].facts, gpu, sizeof(gpu)) != table[i].gpus)
			fail_msg("row %zu", i);
		assert_string_equal(gpu, table[i].gpu);
	}
}

/* 1000 places forward are eleven lines. */
static void a_long_queue_costs_a_few_lines(void **state)
{
	uint32_t said = 0;
	unsigned int n = 0;

	(void)state;
	for (uint32_t position = 1000; position > 0; position--) {
		if (task_place_is_news(said, 1, position, 1)) {
			said = position;
			n++;
		}
	}
	assert_int_equal(said, 1);
	assert_int_equal(n, 10);
	assert_true(task_place_is_news(5, 1, 5, 2));
	assert_false(task_place_is_news(5, 1, 5, 1));
	assert_false(task_place_is_news(0, 0, 0, 1)); /* it has started */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_library_comes_first_and_once),
		cmocka_unit_test(the_library_can_be_taken_out),
		cmocka_unit_test(tasks_of_a_step_on_a_node_are_a_gang),
		cmocka_unit_test(a_text_that_is_too_long_is_refused),
		cmocka_unit_test(a_directory_may_name_the_node),
		cmocka_unit_test(the_gpu_that_slurm_chose_is_asked_for),
		cmocka_unit_test(a_long_queue_costs_a_few_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
