/* SPDX-License-Identifier: Apache-2.0 */

/* Devices, which GPU is preferred, memory of one call, settings, files. The kubelet's view of the
 * methods is tested through the fake kubelet. */

#include "k8s/feature_file.h"
#include "k8s/host_files.h"
#include "k8s/methods.h"
#include "k8s/prefer.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define GIB (1ull << 30)

static struct gpu_load gpu(const char *uuid, uint32_t state)
{
	struct gpu_load load = {.state = state, .total = 80 * GIB, .usable = 76 * GIB};

	(void)snprintf(load.uuid, sizeof(load.uuid), "%s", uuid);
	return load;
}

static struct devices two_gpus(void)
{
	struct devices devices = {.n_replicas = 4};
	struct gpu_loads loads = {.n = 2};

	loads.at[0] = gpu("GPU-a", NVSHARE_STATE_GOOD);
	loads.at[1] = gpu("GPU-b", NVSHARE_STATE_UNKNOWN);
	assert_true(devices_update(&devices, &loads));
	return devices;
}

static void health_follows_the_states_of_gpus(void **state)
{
	struct devices devices = two_gpus();
	struct gpu_loads loads = {.n = 2};

	(void)state;
	assert_true(devices_is_healthy(&devices, 0));
	assert_true(devices_is_healthy(&devices, 1)); /* unknown: NVML cannot be asked */
	loads.at[0] = gpu("GPU-a", NVSHARE_STATE_GOOD);
	loads.at[1] = gpu("GPU-b", NVSHARE_STATE_GOOD);
	assert_false(devices_update(&devices, &loads)); /* nothing for the kubelet */
	loads.at[1].state = NVSHARE_STATE_ERROR;
	assert_true(devices_update(&devices, &loads));
	assert_string_equal(devices_fault(&devices, 1), "it has an error");
	loads.at[1] = gpu("GPU-c", NVSHARE_STATE_GOOD); /* in the place of another card */
	assert_true(devices_update(&devices, &loads));
	assert_int_equal(devices.n, 3);
	assert_false(devices_is_healthy(&devices, 1));
	assert_true(devices_is_healthy(&devices, 2));
	devices.is_lost = true;
	assert_false(devices_is_healthy(&devices, 0));
	assert_true(devices_update(&devices, &loads));
	assert_true(devices_is_healthy(&devices, 0));
}

static void more_gpus_than_the_table_has_are_left_out(void **state)
{
	struct devices devices = {.n_replicas = 1};
	struct gpu_loads loads = {.n = GPU_LOAD_MAX};

	(void)state;
	for (uint32_t round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < GPU_LOAD_MAX; i++) {
			char uuid[32];

			(void)snprintf(uuid, sizeof(uuid), "GPU-%u-%u", round, i);
			loads.at[i] = gpu(uuid, NVSHARE_STATE_GOOD);
		}
		(void)devices_update(&devices, &loads);
	}
	assert_int_equal(devices.n, GPU_LOAD_MAX);
	assert_false(devices_is_healthy(&devices, 0));
}

/* The messages of one status. */
static void loads_sum_what_clients_have(void **state)
{
	struct msg msg = {.header.type = NVSHARE_MSG_STATUS_GPU};
	struct gpu_loads loads = {.n = 0};

	(void)state;
	msg.body.status_gpu = (struct nvshare_status_gpu){
		.uuid = {0x12, 0x34},
		.index = 7,
		.usable = 100,
		.external = 10,
		.recent_ns = 1000,
		.recent_lc_gpu_ns = 100,
		.recent_be_gpu_ns = 400,
		.n_waiting = 1,
		.n_clients = 2,
		.name = "A100 MIG 1g",
	};
	gpu_loads_take(&loads, &msg);
	msg = (struct msg){.header.type = NVSHARE_MSG_STATUS_STATE};
	msg.body.status_state =
		(struct nvshare_status_state){.gpu = 7, .state = NVSHARE_STATE_LOST, .xid = 79};
	gpu_loads_take(&loads, &msg);
	msg.body.status_state.gpu = 8; /* of no GPU that was told */
	gpu_loads_take(&loads, &msg);
	msg = (struct msg){.header.type = NVSHARE_MSG_STATUS_CLIENT};
	msg.body.status_client = (struct nvshare_status_client){
		.gpu = 7, .mem = {.resident = 20, .swapped = 30, .pinned = {1, 2}}};
	gpu_loads_take(&loads, &msg);
	assert_false(loads.is_whole);
	msg = (struct msg){.header.type = NVSHARE_MSG_STATUS_END};
	gpu_loads_take(&loads, &msg);
	assert_true(loads.is_whole);
	assert_string_equal(loads.at[0].uuid, "MIG-12340000-0000-0000-0000-000000000000");
	assert_int_equal(loads.at[0].demand, 63);
	assert_int_equal(gpu_load_free(&loads.at[0]), 37);
	assert_int_equal(gpu_load_permille(&loads.at[0]), 500 + 630);
	assert_int_equal(loads.at[0].xid, 79);
}

/* What the kubelet would get of two GPUs with four replicas: the GPU. */
static char prefer(struct devices *devices, uint32_t n_free_a, uint32_t n_free_b, size_t n_wanted)
{
	struct devices_at others[8], got[8];
	size_t n = 0;

	for (uint32_t i = 0; i < n_free_a; i++)
		others[n++] = (struct devices_at){0, i};
	for (uint32_t i = 0; i < n_free_b; i++)
		others[n++] = (struct devices_at){1, i};
	prefer_choose(
		devices,
		&(struct prefer_question){.others = others, .n_others = n, .n_wanted = n_wanted},
		got);
	for (size_t i = 0; i < n_wanted; i++) {
		if (got[i].gpu != got[0].gpu)
			return '?';
	}
	return "ab"[got[0].gpu];
}

static void the_gpu_with_least_load_is_preferred(void **state)
{
	struct devices devices = two_gpus();
	struct gpu_load *a = &devices.gpus[0].load, *b = &devices.gpus[1].load;

	(void)state;
	assert_int_equal(prefer(&devices, 4, 4, 1), 'a'); /* alike: the first */
	b->busy_permille = 100;
	a->busy_permille = 101;
	assert_int_equal(prefer(&devices, 4, 4, 1), 'b');
	a->busy_permille = 0;
	a->demand = 38 * GIB; /* half of it */
	assert_int_equal(prefer(&devices, 4, 4, 1), 'b');
	b->n_waiting = 2;
	assert_int_equal(prefer(&devices, 4, 4, 1), 'a');
	b->n_waiting = 0;
	assert_int_equal(prefer(&devices, 4, 3, 1), 'a'); /* a pod is coming to b */
	b->n_clients = 1;                                 /* it has come, and does little */
	assert_int_equal(prefer(&devices, 4, 3, 1), 'b');
	assert_int_equal(prefer(&devices, 4, 3, 4), 'a'); /* only a has room */
	assert_int_equal(prefer(&devices, 1, 1, 2), '?');
	b->state = NVSHARE_STATE_ERROR;
	assert_int_equal(prefer(&devices, 4, 3, 1), 'a');
}

static void without_a_scheduler_the_devices_in_use_decide(void **state)
{
	struct devices devices = two_gpus();

	(void)state;
	devices.gpus[0].load.busy_permille = 1000;
	devices.is_live = false;
	assert_int_equal(prefer(&devices, 3, 2, 1), 'a');
	assert_int_equal(prefer(&devices, 2, 3, 1), 'b');
}

static void an_arena_has_a_limit_and_gives_all_back(void **state)
{
	struct arena arena = {NULL, 0};

	(void)state;
	assert_null(arena_take(&arena, ARENA_MAX + 1));
	assert_null(arena_take(&arena, SIZE_MAX));
	for (size_t sum = 0; sum < ARENA_MAX / 2; sum += 100000)
		assert_non_null(arena_take(&arena, 100000));
	while (arena_take(&arena, 100000))
		;
	assert_true(arena.used <= ARENA_MAX);
	arena_clear(&arena);
	assert_int_equal(arena.used, 0);
	assert_string_equal(arena_take(&arena, 10), ""); /* zeroed */
	arena_clear(&arena);
}

/* ---- settings ---------------------------------------------------------------- */

static char *no_env(const char *name)
{
	(void)name;
	return NULL;
}

static char *some_env(const char *name)
{
	static char five[] = "5", bad[] = "few", empty[] = "";

	if (!strcmp(name, "NVSHARE_PLUGIN_REPLICAS"))
		return five;
	if (!strcmp(name, "NVSHARE_LOG"))
		return empty; /* as good as not set */
	return !strcmp(name, "NVSHARE_PLUGIN_POLL_SEC") && getenv("BAD_ENV") ? bad : NULL;
}

static int parse(const char *arg, struct plugin_options *options, char text[PLUGIN_TEXT_LEN])
{
	char copy[4096];
	char *args[] = {copy, NULL};

	(void)snprintf(copy, sizeof(copy), "%s", arg);
	return plugin_options_parse(args, no_env, options, text);
}

static void settings_are_read_strictly(void **state)
{
	static const char *const good[] = {
		"--replicas=1",
		"--replicas=1000",
		"--resource=a.b/c_d.e-f",
		"--environment=NVSHARE_A=",
		"--environment=NVSHARE_A=b=c,NVSHARE_AB=1",
		"--environment=none",
		"--inject=CDI",
		"--grace-sec=0",
		"--feature-file=none",
		"--host-sock-dir=/run/x",
		"--log=debug",
	};
	static const char *const bad[] = {
		"--replicas=0",
		"--replicas=1001",
		"--replicas=",
		"--replicas=1x",
		"--replicas",
		"--replica=1",
		"replicas=1",
		"--resource=gpu",
		"--resource=a/b/c",
		"--resource=/gpu",
		"--resource=-a/b",
		"--resource=a/",
		"--inject=all",
		"--environment=A=1",
		"--environment=NVSHARE_A",
		"--poll-sec=0",
		"--poll-sec=1e3",
		"--environment=NVSHARE_A=1,",
		"--kubelet-dir=x",
		"--environment=NVSHARE_a=1",
		"--feature-file=x",
		"--environment=NVSHARE_A=1,NVSHARE_A=2",
		"--environment=NVSHARE_SOCK_DIR=/x",
		"--environment=,",
		"--library=",
		"--cdi-kind=gpu",
		/* longer than the kubelet's and our limit */
		"--resource=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/b",
	};
	struct plugin_options options;
	char text[PLUGIN_TEXT_LEN];

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_int_equal(parse(good[i], &options, text), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		text[0] = '\0';
		assert_int_equal(parse(bad[i], &options, text), PLUGIN_OPTIONS_E_BAD);
		assert_string_not_equal(text, "");
	}
	assert_int_equal(parse("--replicas=0", &options, text), PLUGIN_OPTIONS_E_BAD);
	assert_string_equal(text, "--replicas is '0'; allowed is a whole number from 1 to 1000");
	assert_int_equal(parse("-h", &options, text), PLUGIN_OPTIONS_E_HELP);
	assert_int_equal(parse("--version", &options, text), PLUGIN_OPTIONS_E_VERSION);
}

static void the_option_wins_over_the_variable(void **state)
{
	char flag[] = "--replicas", value[] = "7", help[] = "--help";
	char *args[] = {flag, value, NULL}, *none[] = {NULL}, *ask[] = {help, NULL};
	struct plugin_options options;
	char text[PLUGIN_TEXT_LEN];

	(void)state;
	assert_int_equal(plugin_options_parse(none, some_env, &options, text), 0);
	assert_int_equal(options.n_replicas, 5);
	assert_int_equal(options.log_level, LOG_LEVEL_INFO);
	assert_int_equal(plugin_options_parse(args, some_env, &options, text), 0);
	assert_int_equal(options.n_replicas, 7);
	(void)setenv("BAD_ENV", "1", 1);
	assert_int_equal(plugin_options_parse(none, some_env, &options, text),
			 PLUGIN_OPTIONS_E_BAD);
	assert_int_equal(strncmp(text, "NVSHARE_PLUGIN_POLL_SEC is 'few'", 32), 0);
	assert_int_equal(plugin_options_parse(ask, some_env, &options, text),
			 PLUGIN_OPTIONS_E_HELP);
	(void)unsetenv("BAD_ENV");
}

/* ---- files ------------------------------------------------------------------- */

static void values_of_the_drivers_file_are_found(void **state)
{
	static const char text[] = "Model: \t\t A card\nGPU UUID: \t GPU-1 \nDevice Minor: \t 5";
	char value[16], small[4];

	(void)state;
	host_files_value(text, "GPU UUID", value, sizeof(value));
	assert_string_equal(value, "GPU-1");
	host_files_value(text, "Device Minor", value, sizeof(value));
	assert_string_equal(value, "5");
	host_files_value(text, "UUID", value, sizeof(value));
	assert_string_equal(value, "");
	host_files_value(text, "GPU UUID", small, sizeof(small)); /* no room: nothing */
	assert_string_equal(small, "");
	host_files_value("", "GPU UUID", value, sizeof(value));
	assert_string_equal(value, "");
}

static void labels_are_written_as_a_whole(void **state)
{
	char folder[] = "/tmp/nvshare-test-XXXXXX", path[64], text[FEATURE_FILE_LEN];
	struct devices devices = two_gpus();
	char read[FEATURE_FILE_LEN] = "";
	struct stat stat_;
	FILE *file;

	(void)state;
	devices.gpus[0].load.busy_permille = 437;
	devices.gpus[0].load.demand = 10 * GIB;
	devices.gpus[0].load.n_clients = 3;
	devices.gpus[1].load.state = NVSHARE_STATE_LOST;
	feature_file_print(&devices, 1700000000, text);
	assert_string_equal(text, "# +expiry-time=2023-11-14T22:13:20Z\n"
				  "nvshare.com/gpu-0.busy-percent=40\n"
				  "nvshare.com/gpu-0.memory-free-gib=66\n"
				  "nvshare.com/gpu.count=2\n"
				  "nvshare.com/gpu.healthy=1\n"
				  "nvshare.com/gpu.replicas=4\n"
				  "nvshare.com/gpu.clients=3\n"
				  "nvshare.com/gpu.busy-percent=40\n"
				  "nvshare.com/gpu.memory-gib=80\n"
				  "nvshare.com/gpu.memory-free-gib=66\n"
				  "nvshare.com/gpu.memory-free-gib-max=66\n");
	(void)umask(0077); /* as the plugin has it */
	assert_non_null(mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/nvshare", folder);
	assert_int_equal(feature_file_write(path, "old"), 0);
	assert_int_equal(feature_file_write(path, text), 0);
	assert_int_equal(stat(path, &stat_), 0);
	assert_int_equal(stat_.st_mode & 0777, 0644);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_int_equal(fread(read, 1, sizeof(read) - 1, file), strlen(text));
	(void)fclose(file);
	assert_string_equal(read, text);
	feature_file_remove(path);
	assert_int_equal(mkdir(path, 0755), 0); /* it cannot be replaced */
	assert_int_equal(feature_file_write(path, text), -EISDIR);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(rmdir(folder), 0); /* no temporary file is left */
	assert_int_equal(feature_file_write(path, text), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(health_follows_the_states_of_gpus),
		cmocka_unit_test(more_gpus_than_the_table_has_are_left_out),
		cmocka_unit_test(loads_sum_what_clients_have),
		cmocka_unit_test(the_gpu_with_least_load_is_preferred),
		cmocka_unit_test(without_a_scheduler_the_devices_in_use_decide),
		cmocka_unit_test(an_arena_has_a_limit_and_gives_all_back),
		cmocka_unit_test(settings_are_read_strictly),
		cmocka_unit_test(the_option_wins_over_the_variable),
		cmocka_unit_test(values_of_the_drivers_file_are_found),
		cmocka_unit_test(labels_are_written_as_a_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
