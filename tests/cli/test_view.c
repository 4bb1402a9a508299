/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/json.h"
#include "cli/status.h"
#include "cli/view.h"

#include "cli/fold.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GIB (1ull << 30)
#define SEC 1000000000ull

static struct nvshare_status_gpu gpu = {
	.uuid = {0x8d, 0x0a},
	.total = 100 * GIB,
	.usable = 95 * GIB,
	.external = 2 * GIB,
	.available = 3 * GIB,
	.running = 90 * GIB,
	.n_switches = 4,
	.moved_out = 8 * GIB,
	.bandwidth = 20 * GIB,
	.next_switch_ms = 12500,
	.n_running = 1,
	.n_waiting = 1,
	.n_clients = 2,
	.tq_ns = 30 * SEC,
	.max_runtime_ns = 300 * SEC,
	.reserve_percent = 5,
	.name = "NVIDIA H200",
};

static struct nvshare_status_wait waits[1];

static struct nvshare_status_client clients[] = {
	{.id = 1,
	 .pid = 100,
	 .uid = 4000000000,
	 .state = NVSHARE_CLIENT_STOPPING,
	 .since_ns = 200 * SEC,
	 .last_scheduled_ns = 200 * SEC,
	 .backend = NVSHARE_BACKEND_VMM,
	 .flags = NVSHARE_CLIENT_NOT_PREEMPTIBLE,
	 .last_outcome = NVSHARE_OUTCOME_TIMEOUT,
	 .halt = NVSHARE_HALT_FREEZE,
	 .mem = {.allocated = 90 * GIB, .resident = 89 * GIB, .pinned = {GIB}},
	 .claim = {NVSHARE_PRIORITY_NORMAL, NVSHARE_WEIGHT_DEFAULT, 0, 0},
	 .name = "train"},
	{.id = 2,
	 .pid = 200,
	 .uid = 4000000000,
	 .state = NVSHARE_CLIENT_WAITING,
	 .why = NVSHARE_WAIT_MEMORY,
	 .position = 3,
	 .since_ns = SEC / 2,
	 .last_scheduled_ns = UINT64_MAX,
	 .mem = {.wanted = 5 * GIB},
	 .claim = {NVSHARE_PRIORITY_NORMAL, NVSHARE_WEIGHT_DEFAULT, 0, 0},
	 .name = "infer \"x\\\""},
};

static struct status status = {
	.node = {.mode = NVSHARE_MODE_AUTO,
		 .switch_multiplier = 5,
		 .switch_min_ns = 10 * SEC,
		 .switch_max_ns = 300 * SEC,
		 .max_runtime_ns = 300 * SEC,
		 .tq_ns = 30 * SEC,
		 .anti_thrash = 1,
		 .reserve_percent = 5,
		 .uptime_ns = 3700 * SEC,
		 .pid = 42,
		 .version = "1.2.3"},
	.gpus = &gpu,
	.clients = clients,
	.waits = waits,
	.n_gpus = 1,
	.n_clients = 2,
	.unix_seconds = 1000000,
};

static char *view_in(size_t width, bool has_colours)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	view_print(out, &status, width, has_colours);
	assert_int_equal(fclose(out), 0);
	return text;
}

static char *view(bool has_colours)
{
	return view_in(0, has_colours);
}

static char *json(void)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	json_print(out, &status);
	assert_int_equal(fclose(out), 0);
	return text;
}

static void has(const char *text, const char *part)
{
	if (!strstr(text, part))
		print_message("'%s' is not in:\n%s\n", part, text);
	assert_non_null(strstr(text, part));
}

static void view_has(const char *part)
{
	char *text = view(false);

	has(text, part);
	free(text);
}

static void json_has(const char *part)
{
	char *text = json();

	has(text, part);
	free(text);
}

static void the_view_says_who_runs_and_why_others_wait(void **state)
{
	char *text = view(false);

	(void)state;
	has(text, "nvshare-scheduler 1.2.3, pid 42, up 1 h 1 min\n");
	has(text,
	    "mode auto, policy priority, switch time auto (5 x swap time, 10 s to 300 s), max runtime 300 s,"
	    " reserve 5 %, anti-thrash on\n");
	has(text, "\nGPU 0  NVIDIA H200  GPU-8d0a0000-0000-0000-0000-000000000000\n");
	has(text, "  memory    100.0 GiB total, 95.0 GiB usable, 3.0 GiB available,"
		  " 2.0 GiB used by others\n");
	has(text, "  clients   2: 1 running with 90.0 GiB, 1 waiting\n");
	has(text, "  switches  4, 8.0 GiB moved out, 0 B in, at 20.0 GiB/s; next in 12 s\n");
	has(text,
	    "  1  100  4000000000  train       stopping  3 min 20 s  3 min 20 s   90.0 GiB  89.0 GiB"
	    "        -  1.0 GiB      0  freeze    can not be stopped: its work or a capture did"
	    " not end in time\n");
	has(text, "0.5 s");
	has(text, "#3 waits for memory, needs 5.0 GiB more\n");
	assert_null(strstr(text, "POD")); /* nobody has one */
	assert_null(strchr(text, '\033'));
	free(text);
}

static void pinned_means_the_same_in_text_and_json(void **state)
{
	struct nvshare_status_client saved = clients[0];

	(void)state;
	clients[0].mem.pinned[NVSHARE_PINNED_ARRAY] = 2 * GIB;
	clients[0].mem.pager_context = 4 * GIB;
	view_has("  89.0 GiB        -  3.0 GiB  ");
	json_has("\"memory_second_context\": 4294967296,\n     \"memory_pinned\": 3221225472,");
	clients[0] = saved;
}

static void throughput_is_shown_as_rates(void **state)
{
	struct nvshare_status_gpu saved = gpu;
	char *text = view(false);

	(void)state;
	assert_null(strstr(text, "rates  "));
	free(text);
	json_has("\"critical_tasks_per_second\": 0, ");
	gpu.n_lc_tasks = 3000;
	gpu.recent_ns = 10 * SEC;
	gpu.recent_lc_tasks = 150;
	gpu.recent_be_tasks = 2;
	gpu.recent_lc_gpu_ns = 3 * SEC / 2;
	gpu.recent_be_gpu_ns = 7 * SEC;
	view_has("  rates     15 tasks/s and 0.15 GPU s/s for critical work, 0.2 tasks/s and 0.7"
		 " GPU s/s for the rest\n");
	json_has("\"critical_tasks_per_second\": 15, \"other_tasks_per_second\": 0.2,"
		 " \"critical_gpu_seconds_per_second\": 0.15,"
		 " \"other_gpu_seconds_per_second\": 0.7,");
	gpu = saved;
}

/* As long as the wire allows, in a window of usual width. */
static void the_longest_names_fit_into_100_columns(void **state)
{
	struct nvshare_status_client saved[] = {clients[0], clients[1]};
	struct nvshare_status_gpu saved_gpu = gpu;
	struct nvshare_status_outsider outsider = {.bytes = GIB, .pid = 4194303};
	char *text, *rest, *line;

	(void)state;
	memset(gpu.name, 'g', sizeof(gpu.name) - 1);
	memset(outsider.name, 'o', sizeof(outsider.name) - 1);
	gpu.n_outsiders = 1;
	gpu.outside = GIB;
	for (size_t i = 0; i < 2; i++) {
		memset(clients[i].name, 'n', sizeof(clients[i].name) - 1);
		memset(clients[i].pod, 'p', sizeof(clients[i].pod) - 1);
		clients[i].id = 4000000000;
		clients[i].pid = 4194303;
		clients[i].claim.priority = NVSHARE_PRIORITY_CRITICAL;
		clients[i].learned[NVSHARE_WARNING_PAUSE].n_bursts = 9;
	}
	status.outsiders = &outsider;
	status.n_outsiders = 1;
	rest = text = view_in(100, false);
	while ((line = strsep(&rest, "\n")))
		assert_true(strlen(line) <= 100);
	free(text);
	view_has("nnnnnnnnnnnnnnnnnnnnnnnn");
	status.n_outsiders = 0;
	gpu = saved_gpu;
	memcpy(clients, saved, sizeof(saved));
}

static void the_view_says_when_a_client_last_ran(void **state)
{
	struct nvshare_status_client saved = clients[1];
	char *text = view(false);

	(void)state;
	has(text, "     SINCE   SCHEDULED  ALLOCATED");
	has(text, "  3 min 20 s  3 min 20 s   90.0 GiB");
	free(text);
	clients[1].last_scheduled_ns = 75 * SEC;
	view_has("  waiting        0.5 s  1 min 15 s          -");
	text = view_in(100, false);
	has(text, "SCHEDULED");
	free(text);
	clients[1] = saved;
}

static void each_client_counts_once(void **state)
{
	struct nvshare_status_client saved[] = {clients[0], clients[1]};

	(void)state;
	/* The scheduler's queue has one that runs and waits for room, too. */
	clients[0].state = NVSHARE_CLIENT_RUNNING;
	clients[0].flags = NVSHARE_CLIENT_GROWING;
	clients[0].position = 1;
	gpu.n_waiting = 2;
	view_has("  clients   2: 1 running with 90.0 GiB, 1 waiting\n");
	json_has("\"running\": 1, \"waiting\": 1, \"idle\": 0, \"clients\": 2");
	clients[1].state = NVSHARE_CLIENT_INCOMING;
	view_has("  clients   2: 1 running with 90.0 GiB, 1 waiting\n");
	clients[1].state = NVSHARE_CLIENT_IDLE;
	view_has("  clients   2: 1 running with 90.0 GiB, 0 waiting, 1 idle\n");
	json_has("\"running\": 1, \"waiting\": 0, \"idle\": 1, \"clients\": 2");
	gpu.n_waiting = 1;
	memcpy(clients, saved, sizeof(saved));
}

static void the_view_says_how_long_rounds_of_credit_are(void **state)
{
	(void)state;
	status.node.credit_round_ms = 2500;
	view_has("mode auto, policy priority, switch time auto");
	status.node.policy = NVSHARE_POLICY_CREDIT;
	view_has("mode auto, policy credit (rounds of 2.5 s), switch time auto");
	json_has("\"credit_round_seconds\": 2.500,");
	status.node.policy = NVSHARE_POLICY_PRIORITY;
	status.node.credit_round_ms = 0;
}

static void claims_show_where_somebody_has_another(void **state)
{
	char *text = view(false);

	(void)state;
	assert_null(strstr(text, "PRIORITY"));
	assert_null(strstr(text, "WEIGHT"));
	free(text);
	clients[1].claim = (struct nvshare_claim){NVSHARE_PRIORITY_CRITICAL, 300, 12500, 40};
	text = view(false);
	has(text, "  PRIORITY  WEIGHT  ");
	has(text, "  critical     300  ");
	has(text, "needs 5.0 GiB more, slo 12.5 ms, at most 40 % of the time\n");
	free(text);
	text = json();
	has(text, "\"policy\": \"priority\"");
	has(text, "\"priority\": \"critical\", \"weight\": 300, \"slo_seconds\": 0.012500,"
		  " \"compute_limit_percent\": 40,");
	has(text, "\"priority\": \"normal\", \"weight\": 100, \"slo_seconds\": null,"
		  " \"compute_limit_percent\": null,");
	free(text);
	clients[1].flags = NVSHARE_CLIENT_FIXED;
	view_has("takes no turns, slo 12.5 ms, at most 40 % of the time: not kept\n");
	clients[1].flags = 0;
	clients[1].claim = clients[0].claim;
}

static struct nvshare_status_gang members[] = {
	{.client = 1,
	 .gang = 3,
	 .size = 2,
	 .n_members = 2,
	 .waits_gpu = UINT32_MAX,
	 .name = "a \"b\""},
	{.client = 2, .gang = 3, .size = 2, .n_members = 2, .waits_gpu = 1, .name = "a \"b\""},
};

/* For a gang's line, and the JSON of its second member. */
static void gang_has(const char *line, const char *values)
{
	char *text = view(false);

	has(text, line);
	free(text);
	text = json();
	has(text, values);
	free(text);
}

static void gangs_and_what_they_wait_for_are_told(void **state)
{
	struct nvshare_status_client saved = clients[1];
	struct nvshare_status_state out = {.gpu = 1, .state = NVSHARE_STATE_ERROR};
	char *text = view(false);

	(void)state;
	assert_null(strstr(text, "GANG"));
	assert_null(strstr(text, "gang"));
	free(text);
	text = json();
	has(text, "\"gang\": null,");
	free(text);
	status.gangs = members;
	status.n_gangs = 2;
	clients[1].why = NVSHARE_WAIT_GANG;
	view_has("  GANG  ");
	view_has("#3 waits for its gang: GPU 1, needs");
	gang_has("\ngang 3 \"a \"b\"\": 2 members on GPU 0; waits for GPU 1\n",
		 "\"gang\": {\"number\": 3, \"name\": \"a \\\"b\\\"\", \"members\": 2, \"size\": 2,"
		 " \"waits_for_gpu\": 1, \"lacks_members\": false, \"apart\": false}");
	status.states = &out;
	status.n_states = 1;
	view_has("#3 waits for its gang: GPU 1, which has an error, needs");
	view_has("; waits for GPU 1, which has an error\n");
	status.n_states = 0;
	members[1].waits_gpu = UINT32_MAX;
	view_has("#3 waits for its gang, needs");
	view_has("GPU 0; 1 runs\n");
	status.gangs = &members[1];
	status.n_gangs = 1;
	members[1].flags = NVSHARE_GANG_LACKING;
	members[1].n_members = 1;
	view_has("#3 waits for its gang: 1 of 2 members are here, needs");
	gang_has(": 1 member on GPU 0; waits until there are 2\n",
		 "\"waits_for_gpu\": null, \"lacks_members\": true, \"apart\": false}");
	members[1].flags = NVSHARE_GANG_APART;
	members[1].name[0] = '\0';
	clients[1].why = NVSHARE_WAIT_TURN;
	view_has("#3 waits for its turn, needs 5.0 GiB more, its gang does not fit: each takes its"
		 " own turns\n");
	gang_has("\ngang 3 of pid 200: 1 member on GPU 0; waits; does not fit, so each member takes"
		 " its own turns\n",
		 "\"apart\": true}");
	clients[1].state = NVSHARE_CLIENT_IDLE;
	view_has("GPU 0; idle; does not fit");
	clients[1] = saved;
	status.gangs = NULL;
	status.n_gangs = 0;
}

static void a_client_that_is_stopped_for_its_gang_is_not_called_paused(void **state)
{
	struct nvshare_status_client saved = clients[0];

	(void)state;
	clients[0].flags = NVSHARE_CLIENT_PARKING;
	view_has("stopped while memory of its gang moves out");
	json_has("\"paused\": false, \"parking\": true");
	clients[0].flags = NVSHARE_CLIENT_PAUSED | NVSHARE_CLIENT_PARKING;
	view_has("paused, stopped while memory of its gang moves out");
	json_has("\"paused\": true, \"parking\": true");
	clients[0] = saved;
}

static void a_stopped_process_is_not_hung(void **state)
{
	struct nvshare_status_client saved = clients[0];

	(void)state;
	clients[0].flags = 0;
	json_has("\"stopped_by\": null");
	clients[0].flags = NVSHARE_CLIENT_STOPPED;
	view_has("stopped (Ctrl-Z or a debugger)\n");
	json_has("\"stopped_by\": \"signal\"");
	clients[0].flags = NVSHARE_CLIENT_FROZEN;
	view_has("stopped (frozen control group)\n");
	json_has("\"stopped_by\": \"cgroup\"");
	clients[0] = saved;
}

static void why_memory_stays_is_told(void **state)
{
	struct nvshare_status_client saved = clients[0];

	(void)state;
	clients[0].flags = NVSHARE_CLIENT_RDMA;
	view_has("stays on the card: rdma");
	json_has("\"rdma\": true, \"no_proc\": false");
	clients[0].flags = NVSHARE_CLIENT_NO_PROC;
	view_has("stays on the card: it sees no /proc");
	json_has("\"rdma\": false, \"no_proc\": true, \"bypass\": false");
	clients[0].flags = NVSHARE_CLIENT_BYPASS;
	view_has("stays on the card: some of its calls go past nvshare");
	json_has("\"rdma\": false, \"no_proc\": false, \"bypass\": true");
	clients[0] = saved;
}

static void who_comes_before_its_turn_and_why_not_is_told(void **state)
{
	static const struct {
		uint32_t flag;
		const char *words, *json;
	} all[] = {
		{NVSHARE_CLIENT_SOON, "has woken: is to get the GPU soon", "\"early\": \"soon\""},
		{NVSHARE_CLIENT_MOVES, "has woken: early turns have moved enough for now",
		 "\"early\": \"moved-enough\""},
		{NVSHARE_CLIENT_SHARED, "has woken: had its share of the last minute",
		 "\"early\": \"had-share\""},
		{NVSHARE_CLIENT_EARLY, "came early after sleep", "\"early\": \"came\""},
		{NVSHARE_CLIENT_MADE_WAY, "made way for a program that woke: is next",
		 "\"early\": \"made-way\""},
	};
	struct nvshare_status_client saved = clients[0];

	(void)state;
	json_has("\"early\": null");
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		clients[0].flags = all[i].flag;
		view_has(all[i].words);
		json_has(all[i].json);
	}
	clients[0] = saved;
}

static void reports_that_are_doubted_are_told(void **state)
{
	struct nvshare_status_client saved = clients[0];
	char *text = json();

	(void)state;
	has(text, "\"doubted\": false");
	free(text);
	clients[0].flags = NVSHARE_CLIENT_DOUBTED;
	view_has("reports more than is on the card");
	json_has("\"doubted\": true");
	clients[0] = saved;
}

static void what_is_learned_of_bursts_is_told(void **state)
{
	struct nvshare_status_client saved = clients[0];
	char *text;

	(void)state;
	text = view(false);
	assert_null(strstr(text, "  critical  "));
	free(text);
	clients[0].learned[NVSHARE_WARNING_HINT] =
		(struct nvshare_learned){40, NVSHARE_PREFERS_PREEMPTION, 1050, 1320};
	clients[0].learned[NVSHARE_WARNING_NONE] =
		(struct nvshare_learned){12, NVSHARE_PREFERS_TIMESLICES, 7000, 12345};
	text = view_in(200, false);
	has(text, "  critical  train (1): announced bursts: preempting others is best, tail 1.05 ms"
		  " (short timeslices: 1.32 ms)\n");
	has(text, "  critical  train (1): bursts: short timeslices for others are best,"
		  " tail 12.35 ms (preempting: 7.00 ms)\n");
	assert_null(strstr(text, "after a pause"));
	free(text);
	text = json();
	has(text, "\"announced\": {\"bursts\": 40, \"prefers\": \"preemption\","
		  " \"preempt_tail_seconds\": 0.001050, \"slices_tail_seconds\": 0.001320}");
	has(text, "\"after_pause\": {\"bursts\": 0, \"prefers\": \"timeslices\","
		  " \"preempt_tail_seconds\": 0.000000, \"slices_tail_seconds\": 0.000000}}");
	free(text);
	/* One has hardly been tried, or not at all: it may be the shorter one by chance. */
	clients[0].learned[NVSHARE_WARNING_HINT] =
		(struct nvshare_learned){12, NVSHARE_PREFERS_UNDECIDED, 11390, 970};
	clients[0].learned[NVSHARE_WARNING_NONE] =
		(struct nvshare_learned){12, NVSHARE_PREFERS_UNDECIDED, 0, 970};
	text = view_in(200, false);
	has(text, "announced bursts: not decided yet (tail when preempting: 11.39 ms,"
		  " with short timeslices: 0.97 ms)\n");
	has(text, "(1): bursts: not decided yet (tail when preempting: not tried,");
	free(text);
	json_has("\"announced\": {\"bursts\": 12, \"prefers\": \"undecided\",");
	clients[0] = saved;
}

static void a_scheduler_inside_a_process_is_told(void **state)
{
	struct nvshare_status_orion orion = {
		.orion = {12034, 5000, 230, 1200000, 3, 1},
		.client = 1,
	};
	char *text;

	(void)state;
	text = view(false);
	assert_null(strstr(text, "  orion  "));
	free(text);
	status.orions = &orion;
	status.n_orions = 1;
	text = view(false);
	has(text,
	    "  orion     train (1): 3 in-process clients, 1 waiting; 12034 high-priority and 5000"
	    " best-effort operations, 230 had to wait, 1.2 s in all\n");
	assert_null(strstr(text, "  orion     infer"));
	free(text);
	text = json();
	has(text, "\"orion\": {\"clients\": 3, \"waiting\": 1, \"high_priority_operations\": 12034,"
		  " \"best_effort_operations\": 5000, \"best_effort_waits\": 230,"
		  " \"wait_seconds\": 1.200000},");
	has(text, "\"orion\": null,"); /* of the other client */
	free(text);
	orion.orion = (struct nvshare_orion){.hp_ops = 7, .n_clients = 1};
	view_has("  orion     train (1): 1 in-process client, 0 waiting; 7 high-priority and 0"
		 " best-effort operations\n");
	status.orions = NULL;
	status.n_orions = 0;
}

static void a_failed_stop_is_told_in_words(void **state)
{
	struct nvshare_status_client saved[] = {clients[0], clients[1]};
	char *text;

	(void)state;
	clients[0].flags = 0;
	for (uint32_t i = NVSHARE_OUTCOME_SUCCESS + 1; i < NVSHARE_OUTCOME_COUNT; i++) {
		clients[1].last_outcome = i;
		text = view(false);
		assert_null(strstr(text, "did not move: (null)"));
		has(text, "did not move: ");
		free(text);
	}
	has(text = view(false), "needs 5.0 GiB more, did not move: the card had no room for all of"
				" it\n");
	free(text);
	clients[0].last_outcome = NVSHARE_OUTCOME_NO_HOST_MEMORY;
	clients[1].last_outcome = NVSHARE_OUTCOME_INVALID_STATE;
	text = view(false);
	has(text, "  did not stop: no host memory for it\n");
	has(text, "#3 waits for memory, needs 5.0 GiB more, did not move: not all of it came"
		  " back\n");
	free(text);
	memcpy(clients, saved, sizeof(saved));
}

/* The scheduler tells what keeps client 2 out. */
static void wait_for(enum nvshare_obstacle obstacle, uint32_t blocker, uint64_t bytes)
{
	waits[0] = (struct nvshare_status_wait){
		.bytes = bytes, .client = 2, .blocker = blocker, .obstacle = obstacle};
	status.n_waits = 1;
}

static void who_waits_since_turns_are_off_is_told_how_to_get_them(void **state)
{
	struct nvshare_status_client saved = clients[1];
	char *text;

	(void)state;
	clients[1].why = NVSHARE_WAIT_STUCK;
	wait_for(NVSHARE_OBSTACLE_NOT_STOPPED, 1, 90 * GIB);
	text = view(true);
	has(text,
	    "\033[31m#3 waits for 90.0 GiB of train (1), which could not be stopped, needs 5.0 "
	    "GiB more\033[0m");
	free(text);
	wait_for(NVSHARE_OBSTACLE_TURNS_OFF, 0, 0);
	text = view(true);
	has(text, "#3 waits for memory: turns are off (nvsharectl -S on), needs 5.0 GiB more\n");
	assert_null(strstr(text, "could not be stopped, needs"));
	free(text);
	json_has("\"wait_reason\": \"stuck\"");
	json_has("\"waits_for\": null");
	clients[1].why = NVSHARE_WAIT_MEMORY;
	view_has("#3 waits for memory: turns are off (nvsharectl -S on), needs 5.0 GiB more\n");
	status.n_waits = 0;
	clients[1].why = NVSHARE_WAIT_SWAP;
	view_has("#3 memory is being moved, needs 5.0 GiB more\n");
	clients[1] = saved;
}

static void whose_memory_is_in_the_way_is_told(void **state)
{
	static const struct {
		enum nvshare_obstacle obstacle;
		const char *words, *cause;
	} stays[] = {
		{NVSHARE_OBSTACLE_HUNG, "which does not answer", "\"hung\""},
		{NVSHARE_OBSTACLE_STOPPED, "which is stopped", "\"stopped\""},
		{NVSHARE_OBSTACLE_FIXED, "which takes no turns", "\"fixed\""},
		{NVSHARE_OBSTACLE_CRITICAL, "which is critical", "\"critical\""},
		{NVSHARE_OBSTACLE_NOT_STOPPED, "which could not be stopped", "\"not-stopped\""},
	};
	struct nvshare_status_client saved = clients[1];
	char *text;

	(void)state;
	clients[1].why = NVSHARE_WAIT_STUCK;
	for (size_t i = 0; i < sizeof(stays) / sizeof(*stays); i++) {
		wait_for(stays[i].obstacle, 1, 90 * GIB);
		has(text = view(false), "#3 waits for 90.0 GiB of train (1), ");
		has(text, stays[i].words);
		free(text);
		has(text = json(), "\"waits_for\": {\"client\": 1, \"cause\": ");
		has(text, stays[i].cause);
		has(text, "\"bytes\": 96636764160, \"kind\": null}");
		free(text);
	}
	wait_for(NVSHARE_OBSTACLE_PINNED, 1, 40 * GIB);
	waits[0].kind = NVSHARE_PINNED_ARRAY;
	has(text = view(false),
	    "#3 waits until train (1) frees 40.0 GiB that can not be moved: its arrays");
	free(text);
	has(text = json(),
	    "\"waits_for\": {\"client\": 1, \"cause\": \"pinned\", \"bytes\": 42949672960, "
	    "\"kind\": \"array\"}");
	free(text);
	/* Of one that has left in between; and of a scheduler that does not tell. */
	waits[0].blocker = 7;
	view_has("#3 memory in its way can not be moved");
	status.n_waits = 0;
	view_has("#3 memory in its way can not be moved");
	json_has("\"waits_for\": null");
	clients[1] = saved;
}

static void why_it_can_not_be_frozen_is_told(void **state)
{
	char *text;

	(void)state;
	for (uint32_t halt = 0; halt < NVSHARE_HALT_COUNT; halt++) {
		clients[1].halt = halt;
		assert_int_equal(status_drain_reason(&clients[1]) != NULL,
				 halt > NVSHARE_HALT_FREEZE);
	}
	clients[1].halt = NVSHARE_HALT_TRACED;
	view_has("  drain     #3 waits for memory, needs 5.0 GiB more,"
		 " can not be frozen: a debugger is attached\n");
	text = json();
	has(text, "\"stops_by\": \"freeze\", \"drains_because\": null}");
	has(text, "\"stops_by\": \"drain\", \"drains_because\": \"a debugger is attached\"}");
	free(text);
	clients[1].halt = NVSHARE_HALT_UNKNOWN;
}

static void no_line_is_longer_than_the_terminal(void **state)
{
	struct nvshare_status_client saved[] = {clients[0], clients[1]};

	(void)state;
	clients[0].halt = NVSHARE_HALT_FAILED;
	clients[0].pid = 4000000;
	strcpy(clients[1].name, "a name of twenty-four ch");
	strcpy(clients[1].pod, "namespace/a-pod-with-a-long-name");
	for (size_t width = 60; width < 260; width++) {
		char *text = view_in(width, width % 2), *rest = text, *line;

		while ((line = strsep(&rest, "\n")))
			assert_true(fold_width(line, strlen(line)) <= width);
		free(text);
		text = view_in(width, false);
		has(text, "running");
		has(text, "RESIDENT");
		has(text, "#3 waits for memory");
		free(text);
	}
	memcpy(clients, saved, sizeof(saved));
}

static void colours_are_only_where_they_are_asked_for(void **state)
{
	char *text = view(true);

	(void)state;
	has(text, "\033[33mwaiting\033[0m");
	free(text);
}

static void json_carries_the_names_of_seed_000(void **state)
{
	char *text = json();

	(void)state;
	has(text, "\"total_memory\": 107374182400, ");
	has(text, "\"available_memory\": 3221225472, ");
	has(text, "\"running_memory_usage\": 96636764160");
	has(text, "\"memory_allocated\": 96636764160, ");
	has(text, "\"state\": \"stopping\", \"is_running\": true, \"wait_reason\": null");
	has(text, "\"state\": \"waiting\", \"is_running\": false, \"wait_reason\": \"memory\","
		  " \"queue_position\": 3");
	has(text, "\"last_scheduled_time\": 999800.000");
	has(text, "\"last_scheduled_time\": null");
	has(text, "\"next_switch_seconds\": 12.500");
	has(text, "\"name\": \"infer \\\"x\\\\\\\"\"");
	free(text);
}

static void an_instance_has_another_prefix(void **state)
{
	struct nvshare_status_gpu mig = {.name = "NVIDIA A100 MIG 1g.5gb"};
	char uuid[NVSHARE_UUID_LEN];

	(void)state;
	assert_string_equal(status_uuid(&mig, uuid), "MIG-00000000-0000-0000-0000-000000000000");
}

static void how_the_time_is_shared_is_shown_where_it_is(void **state)
{
	struct nvshare_status_gpu saved_gpu = gpu;
	struct nvshare_status_client saved = clients[0];
	char *text = view(false);

	(void)state;
	assert_null(strstr(text, "time  "));
	assert_null(strstr(text, "USES"));
	free(text);
	gpu.n_preemptions = 120;
	gpu.n_preempted = 40;
	gpu.preempt_ns_total = 32000000;
	gpu.preempt_ns_max = 2000000;
	gpu.preempt_ns_p50 = 700000;
	gpu.preempt_ns_p99 = 1250000;
	gpu.preempt_over_ns_p50 = 61000;
	gpu.preempt_over_ns_p99 = 140400;
	gpu.preempt_over_ns_max = 141000;
	gpu.n_preempt_timeouts = 2;
	gpu.lc_gpu_ns = 12 * SEC;
	gpu.be_gpu_ns = 30 * SEC;
	gpu.known_ns = 100 * SEC;
	gpu.contexts = GIB / 2;
	gpu.contexts_max = GIB;
	clients[0].gpu_ns = 43 * SEC;
	clients[0].run_ns = 100 * SEC;
	clients[0].n_tasks = 40;
	clients[0].n_slo_violations = 3;
	clients[0].slice_us = 200;
	clients[0].held_ns = SEC / 2;
	clients[0].flags = NVSHARE_CLIENT_HELD | NVSHARE_CLIENT_SLICES_ONLY;
	text = view(false);
	has(text,
	    "  time      12 s for critical work, 30 s for the rest, 42 % of 1 min 40 s; 120 preemptions,"
	    " mean 0.80 ms, p50 0.70 ms, p99 1.25 ms, longest 2.00 ms, beyond freezing 0.061 and"
	    " 0.140 ms, 2 failed\n");
	has(text, "512.0 MiB in contexts (1.0 GiB at the most)\n");
	has(text, "USES");
	has(text, "43 %");
	has(text,
	    "held for others, 3 of 40 too late, its bursts hold no others: freezing was too slow");
	free(text);
	gpu = saved_gpu;
	clients[0] = saved;
}

static void hints_are_shown_where_there_were_some(void **state)
{
	struct nvshare_status_gpu saved_gpu = gpu;
	char *text = view(false);

	(void)state;
	assert_null(strstr(text, "hints"));
	free(text);
	gpu.n_hints = 40;
	gpu.hint_error_ns = 310000;
	view_has("  hints     40, off by 0.31 ms on average\n");
	gpu.n_hints_missed = 3;
	view_has("  hints     40, off by 0.31 ms on average; 3 in vain\n");
	gpu = saved_gpu;
}

static void what_a_gpu_has_for_itself_is_shown(void **state)
{
	struct nvshare_status_gpu saved_gpu = gpu;
	struct nvshare_status_node saved_node = status.node;
	char *text = view(false);

	(void)state;
	assert_null(strstr(text, "settings"));
	free(text);
	json_has("\"mode\": \"auto\", \"sharing_degree\": 0, \"tq_seconds\": 30.000");
	gpu.mode = NVSHARE_MODE_CONCURRENT;
	gpu.tq_ns = SEC / 2;
	gpu.max_runtime_ns = 60 * SEC;
	gpu.reserve_percent = 0;
	view_has("  settings  mode concurrent, quantum 0.5 s, max runtime 60 s, reserve 0 %\n");
	gpu = saved_gpu;
	gpu.sharing_degree = 2;
	gpu.switch_mode = NVSHARE_SWITCH_FIXED;
	gpu.switch_fixed_ns = 7 * SEC;
	view_has("  settings  at most 2 programs at once, switch time 7 s\n");
	gpu.sharing_degree = 1;
	view_has("  settings  at most 1 program at once, switch time 7 s\n");
	gpu.sharing_degree = 2;
	json_has("\"switch_time\": {\"mode\": \"fixed\", \"fixed_seconds\": 7.000}");
	status.node.sharing_degree = 2;
	status.node.switch_mode = NVSHARE_SWITCH_FIXED;
	view_has("switch time 0 s, at most 2 programs at once, max runtime 300 s");
	gpu.switch_mode = NVSHARE_SWITCH_AUTO;
	gpu.sharing_degree = 0;
	view_has("  settings  any number of programs at once, switch time auto\n");
	gpu = saved_gpu;
	status.node = saved_node;
}

static void energy_is_shown_where_it_is_known(void **state)
{
	static const struct {
		uint32_t joules;
		const char *text;
	} cases[] = {{1, " 1 J "}, {9999, " 9999 J "}, {10000, " 10 kJ "}, {7200000, " 2.00 kWh "}};
	char *text = json();

	(void)state;
	has(text, "\"energy_joules\": null");
	assert_null(strstr(text, "\"energy_joules\": 1234"));
	free(text);
	text = view(false);
	assert_null(strstr(text, "ENERGY"));
	free(text);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		clients[0].energy_j = cases[i].joules;
		text = view(false);
		has(text, "ENERGY");
		has(text, cases[i].text);
		free(text);
	}
	clients[0].energy_j = 1234;
	json_has("\"energy_joules\": 1234");
	clients[0].energy_j = 0;
}

static void the_view_names_who_is_outside_and_in_the_way(void **state)
{
	struct nvshare_status_outsider outsiders[] = {
		{.bytes = 3 * GIB, .pid = 77, .name = "elsewhere", .gpu = 1},
		{.bytes = GIB / 2, .pid = 123, .name = "py\\thon3"},
		{.bytes = 0, .pid = 4},
	};
	char *text;

	(void)state;
	text = view(false);
	assert_null(strstr(text, "outside"));
	free(text);
	gpu.outside = GIB;
	gpu.n_outsiders = 2;
	clients[1].why = NVSHARE_WAIT_OUTSIDERS;
	text = view(false);
	has(text, "\n  outside   nvshare: 2 unnamed with 1.0 GiB\n");
	has(text, "#3 waits for memory, others, outside nvshare, have 2.0 GiB, needs 5.0 GiB more");
	free(text);

	status.outsiders = outsiders;
	status.n_outsiders = 2;
	text = view(false);
	has(text, "\n  outside   nvshare: py\\thon3 (pid 123) with 512.0 MiB, 1 more with"
		  " 512.0 MiB\n");
	has(text, "#3 waits for memory, py\\thon3 (pid 123) and 1 more, outside nvshare, have"
		  " 1.0 GiB, needs");
	free(text);
	status.n_outsiders = 3;
	view_has("py\\thon3 (pid 123) with 512.0 MiB, pid 4\n");
	gpu.outside = GIB / 2;
	gpu.n_outsiders = 1;
	status.n_outsiders = 2;
	view_has("#3 waits for memory, py\\thon3 (pid 123), outside nvshare, has 512.0 MiB,");
	text = json();
	has(text, "\"outsiders_count\": 1, \"outsiders_memory\": 536870912, \"outsiders\":"
		  " [{\"pid\": 123, \"name\": \"py\\\\thon3\", \"memory\": 536870912}]");
	has(text, "\"wait_reason\": \"outsiders\"");
	free(text);
	clients[1].why = NVSHARE_WAIT_MEMORY;
	gpu.outside = gpu.n_outsiders = 0;
	status.n_outsiders = 0;
}

static void the_view_says_what_the_bus_is_thought_to_reach(void **state)
{
	const uint64_t measured = gpu.bandwidth;
	char *text;

	(void)state;
	gpu.link_bandwidth = 47 * GIB;
	view_has(", at 20.0 GiB/s; next");
	gpu.bandwidth = 0;
	view_has(", at 47.0 GiB/s (assumed); next");
	text = json();
	has(text, "\"bandwidth_bytes_per_second\": 0");
	has(text, "\"link_bytes_per_second\": 50465865728");
	free(text);
	gpu.link_bandwidth = 0;
	text = view(false);
	assert_null(strstr(text, "/s;"));
	free(text);
	gpu.bandwidth = measured;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_view_names_who_is_outside_and_in_the_way),
		cmocka_unit_test(the_view_says_what_the_bus_is_thought_to_reach),
		cmocka_unit_test(how_the_time_is_shared_is_shown_where_it_is),
		cmocka_unit_test(hints_are_shown_where_there_were_some),
		cmocka_unit_test(what_a_gpu_has_for_itself_is_shown),
		cmocka_unit_test(energy_is_shown_where_it_is_known),
		cmocka_unit_test(the_view_says_who_runs_and_why_others_wait),
		cmocka_unit_test(pinned_means_the_same_in_text_and_json),
		cmocka_unit_test(throughput_is_shown_as_rates),
		cmocka_unit_test(the_longest_names_fit_into_100_columns),
		cmocka_unit_test(the_view_says_when_a_client_last_ran),
		cmocka_unit_test(each_client_counts_once),
		cmocka_unit_test(the_view_says_how_long_rounds_of_credit_are),
		cmocka_unit_test(claims_show_where_somebody_has_another),
		cmocka_unit_test(gangs_and_what_they_wait_for_are_told),
		cmocka_unit_test(a_client_that_is_stopped_for_its_gang_is_not_called_paused),
		cmocka_unit_test(a_stopped_process_is_not_hung),
		cmocka_unit_test(why_memory_stays_is_told),
		cmocka_unit_test(who_comes_before_its_turn_and_why_not_is_told),
		cmocka_unit_test(reports_that_are_doubted_are_told),
		cmocka_unit_test(what_is_learned_of_bursts_is_told),
		cmocka_unit_test(a_scheduler_inside_a_process_is_told),
		cmocka_unit_test(a_failed_stop_is_told_in_words),
		cmocka_unit_test(who_waits_since_turns_are_off_is_told_how_to_get_them),
		cmocka_unit_test(whose_memory_is_in_the_way_is_told),
		cmocka_unit_test(why_it_can_not_be_frozen_is_told),
		cmocka_unit_test(no_line_is_longer_than_the_terminal),
		cmocka_unit_test(colours_are_only_where_they_are_asked_for),
		cmocka_unit_test(json_carries_the_names_of_seed_000),
		cmocka_unit_test(an_instance_has_another_prefix),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
