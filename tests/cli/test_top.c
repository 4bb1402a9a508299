/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/status.h"
#include "cli/top.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include <cmocka.h>

#define GIB       (1ull << 30)
#define SEC       1000000000ull
#define N_CLIENTS 3
#define LINES_MAX 60

#define CLIENT(its_id, its_name, its_state, ...)                                                  \
	{                                                                                         \
		.id = (its_id), .pid = 1000 - (its_id), .uid = 4 - (its_id), .gpu = (its_id) / 3, \
		.state = NVSHARE_CLIENT_##its_state, .name = (its_name),                          \
		.claim = {NVSHARE_PRIORITY_NORMAL, 100, 0, 0}, __VA_ARGS__                        \
	}

static const struct nvshare_status_client clients[N_CLIENTS] = {
	CLIENT(1, "train", RUNNING, .mem = {.resident = 10 * GIB, .swapped = GIB},
	       .gpu_ns = 3 * SEC, .pod = "ml/one", .flags = NVSHARE_CLIENT_POD),
	CLIENT(2, "Infer", WAITING, .mem = {.resident = 512 << 20, .swapped = 3 * GIB},
	       .why = NVSHARE_WAIT_TURN, .position = 1, .gpu_ns = 2 * SEC),
	CLIENT(3, "batch", IDLE, .mem = {.resident = 2 * GIB}),
};

static const struct nvshare_status_gpu gpus[] = {
	{.uuid = {1},
	 .usable = 20 * GIB,
	 .available = 5 * GIB,
	 .running = 10 * GIB,
	 .external = GIB,
	 .n_running = 1,
	 .n_waiting = 1,
	 .lc_gpu_ns = 5 * SEC,
	 .known_ns = 20 * SEC,
	 .name = "NVIDIA H200"},
	{.uuid = {2}, .usable = 10 * GIB, .available = 10 * GIB, .index = 1},
};

/* Statuses that a test may change. */
struct world {
	struct status now, before;
	struct nvshare_status_client clients[N_CLIENTS], clients_before[N_CLIENTS];
	struct nvshare_status_gpu gpus[2], gpus_before[2];
	struct top top;
	struct top_line lines[LINES_MAX];
};

static const char *user_name(uint32_t uid)
{
	static const char *const names[] = {"root", "ann", "bob", "Cy"};

	return names[uid];
}

static int world_new(void **state)
{
	struct world *world = calloc(1, sizeof(*world));

	assert_non_null(world);
	memcpy(world->clients, clients, sizeof(clients));
	memcpy(world->clients_before, clients, sizeof(clients));
	memcpy(world->gpus, gpus, sizeof(gpus));
	memcpy(world->gpus_before, gpus, sizeof(gpus));
	world->clients_before[0].gpu_ns -= SEC;
	world->clients_before[1].gpu_ns -= SEC / 2;
	world->gpus_before[0].lc_gpu_ns -= 3 * SEC / 2;
	world->gpus_before[0].known_ns -= 2 * SEC;
	world->now = (struct status){.gpus = world->gpus,
				     .clients = world->clients,
				     .n_gpus = 2,
				     .n_clients = N_CLIENTS};
	world->before = world->now;
	world->before.clients = world->clients_before;
	world->before.gpus = world->gpus_before;
	world->before.node.pid = world->now.node.pid = 7;
	world->before.node.anti_thrash = world->now.node.anti_thrash = 1;
	world->before.node.uptime_ns = 60 * SEC;
	world->now.node.uptime_ns = 62 * SEC;
	top_init(&world->top, user_name);
	top_take(&world->top, &world->before);
	top_take(&world->top, &world->now);
	*state = world;
	return 0;
}

static int world_free(void **state)
{
	free(*state);
	return 0;
}

/* The IDs in the list, as digits. */
static void list_ids(const struct top *top, char ret_ids[N_CLIENTS + 1])
{
	struct top_row *rows;
	size_t n = top_list(top, &rows);

	for (size_t i = 0; i < n; i++)
		ret_ids[i] = (char)('0' + rows[i].client->id);
	ret_ids[n] = '\0';
	free(rows);
}

static void the_list_is_sorted_by_the_column_that_s_chooses(void **state)
{
	struct world *world = *state;
	static const char *const orders[TOP_COLUMN_COUNT] = {
		[TOP_COLUMN_ID] = "123",     [TOP_COLUMN_GPU] = "123",
		[TOP_COLUMN_PID] = "321",    [TOP_COLUMN_USER] = "321",
		[TOP_COLUMN_NAME] = "321",   [TOP_COLUMN_PRIORITY] = "213",
		[TOP_COLUMN_WEIGHT] = "312", [TOP_COLUMN_STATE] = "123",
		[TOP_COLUMN_CARD] = "132",   [TOP_COLUMN_HOST] = "213",
		[TOP_COLUMN_USE] = "123",
	};
	char ids[N_CLIENTS + 1], reversed[N_CLIENTS + 1];

	world->clients[1].claim.priority = NVSHARE_PRIORITY_HIGH;
	world->clients[2].claim.weight = 900;
	world->clients[2].name[0] = 'B'; /* case does not matter */
	for (enum top_column i = 0; i < TOP_COLUMN_COUNT; i++) {
		assert_int_equal(world->top.sort, i);
		list_ids(&world->top, ids);
		assert_string_equal(ids, orders[i]);
		(void)top_press(&world->top, 'r');
		list_ids(&world->top, reversed);
		for (size_t k = 0; k < N_CLIENTS; k++)
			assert_int_equal(reversed[k], ids[N_CLIENTS - 1 - k]);
		(void)top_press(&world->top, 's');
		assert_false(world->top.is_reversed);
	}
	assert_int_equal(world->top.sort, TOP_COLUMN_ID);
	(void)top_press(&world->top, 'S');
	assert_int_equal(world->top.sort, TOP_COLUMN_USE);
}

static void press_all(struct top *top, const char *keys)
{
	for (; *keys; keys++)
		(void)top_press(top, (unsigned char)*keys);
}

static void a_filter_shows_clients_with_all_of_its_words(void **state)
{
	static const struct {
		const char *filter, *ids;
	} cases[] = {
		{"", "123"},        {"train", "1"},   {"TRAIN", "1"},    {"infer", "2"},
		{"ml/", "1"},       {"gpu:0", "12"},  {"gpu:1", "3"},    {"pid:99", "123"},
		{"pid:998", "2"},   {"waiting", "2"}, {"normal", "123"}, {"bob", "2"},
		{"gpu:0 run", "1"}, {"nobody", ""},   {"  idle ", "3"},
	};
	struct top *top = &((struct world *)*state)->top;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char ids[N_CLIENTS + 1];

		press_all(top, "/");
		press_all(top, cases[i].filter);
		list_ids(top, ids); /* while it is typed, too */
		assert_string_equal(ids, cases[i].ids);
		press_all(top, "\n");
		list_ids(top, ids);
		assert_string_equal(ids, cases[i].ids);
		assert_string_equal(top->filter, cases[i].filter);
		(void)top_press(top, TOP_KEY_ESCAPE);
		assert_string_equal(top->filter, "");
	}
	press_all(top, "/a\xc3\xa9");
	(void)top_press(top, TOP_KEY_ERASE);
	assert_string_equal(top->filter, "a"); /* a whole character */
	(void)top_press(top, TOP_KEY_ERASE);
	(void)top_press(top, TOP_KEY_ERASE);
	assert_string_equal(top->filter, "");
}

static void members_of_a_gang_are_found_and_told(void **state)
{
	static struct nvshare_status_gang members[] = {
		{.client = 1, .gang = 7, .n_members = 2, .waits_gpu = UINT32_MAX, .name = "Pair"},
		{.client = 2, .gang = 7, .n_members = 2, .waits_gpu = 1, .name = "Pair"},
	};
	static const struct {
		const char *filter, *ids;
	} cases[] = {{"gang:7", "12"}, {"gang:8", ""}, {"pair", "12"}, {"gang:7 wait", "2"}};
	struct world *world = *state;
	char ids[N_CLIENTS + 1];

	world->now.gangs = members;
	world->now.n_gangs = 2;
	world->clients[1].why = NVSHARE_WAIT_GANG;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		(void)snprintf(world->top.filter, sizeof(world->top.filter), "%s", cases[i].filter);
		list_ids(&world->top, ids);
		assert_string_equal(ids, cases[i].ids);
	}
	world->top.filter[0] = '\0';
	top_draw(&world->top, 24, 200, world->lines);
	assert_non_null(strstr(world->lines[6].text, "#1 waits for its gang: GPU 1"));
	assert_non_null(strstr(world->lines[21].text, "pod ml/one, gang 7; running for "));
}

/* The cursor stands on the second client. */
static void keys_become_requests(void **state)
{
	struct world *world = *state;
	static const struct {
		const char *before;
		int key, type;
		uint32_t set;
		uint64_t value;
		const char *answer;
	} cases[] = {
		{"", 'q', TOP_ACTION_QUIT, 0, 0, ""},
		{"", ' ', TOP_ACTION_REFRESH, 0, 0, ""},
		{"p", 'l', TOP_ACTION_SET, NVSHARE_KEY_PRIORITY, NVSHARE_PRIORITY_LOW, ""},
		{"p", 'n', TOP_ACTION_SET, NVSHARE_KEY_PRIORITY, NVSHARE_PRIORITY_NORMAL, ""},
		{"p", 'h', TOP_ACTION_SET, NVSHARE_KEY_PRIORITY, NVSHARE_PRIORITY_HIGH, ""},
		{"p", 'c', TOP_ACTION_SET, NVSHARE_KEY_PRIORITY, NVSHARE_PRIORITY_CRITICAL, ""},
		{"p", 'q', TOP_ACTION_NONE, 0, 0, ""},
		{"p", TOP_KEY_ESCAPE, TOP_ACTION_NONE, 0, 0, ""},
		{"w250", TOP_KEY_ENTER, TOP_ACTION_SET, NVSHARE_KEY_WEIGHT, 250, ""},
		{"wx1y0", TOP_KEY_ENTER, TOP_ACTION_SET, NVSHARE_KEY_WEIGHT, 10, ""},
		{"w0", TOP_KEY_ENTER, TOP_ACTION_NONE, 0, 0, "a weight is 1 to 10000"},
		{"w10001", TOP_KEY_ENTER, TOP_ACTION_NONE, 0, 0, "a weight is 1 to 10000"},
		{"w", TOP_KEY_ENTER, TOP_ACTION_NONE, 0, 0, "a weight is 1 to 10000"},
		{"w25", TOP_KEY_ESCAPE, TOP_ACTION_NONE, 0, 0, ""},
		{"", 'z', TOP_ACTION_SET, NVSHARE_KEY_PAUSE, 1, ""},
		{"/nobody\n", 'z', TOP_ACTION_NONE, 0, 0, "no client is there"},
		{"/q\n", 'q', TOP_ACTION_QUIT, 0, 0, ""},
		{"/nobody\n", 'p', TOP_ACTION_NONE, 0, 0, "no client is there"},
		{"?", 'q', TOP_ACTION_NONE, 0, 0, ""},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct top_action action;

		top_init(&world->top, user_name);
		top_take(&world->top, &world->now);
		(void)top_press(&world->top, TOP_KEY_DOWN);
		press_all(&world->top, cases[i].before);
		action = top_press(&world->top, cases[i].key);
		assert_int_equal(action.type, cases[i].type);
		assert_int_equal(world->top.prompt, TOP_PROMPT_NONE);
		assert_string_equal(world->top.answer, cases[i].answer);
		if (action.type != TOP_ACTION_SET)
			continue;
		assert_int_equal(action.set.client, 2);
		assert_int_equal(action.set.key, cases[i].set);
		assert_int_equal(action.set.value, cases[i].value);
	}
}

static void a_paused_client_is_seen_and_resumed(void **state)
{
	struct world *world = *state;
	struct top_action action;

	world->clients[2].flags = NVSHARE_CLIENT_PAUSED;
	(void)top_press(&world->top, TOP_KEY_END);
	top_draw(&world->top, 24, 80, world->lines);
	assert_non_null(strstr(world->lines[7].text, " paused "));
	action = top_press(&world->top, 'z');
	assert_int_equal(action.type, TOP_ACTION_SET);
	assert_int_equal(action.set.client, 3);
	assert_int_equal(action.set.value, 0);
}

static void the_cursor_moves_within_the_list(void **state)
{
	struct world *world = *state;
	static const struct {
		int key;
		uint32_t selected;
	} moves[] = {
		{TOP_KEY_UP, 1},
		{TOP_KEY_DOWN, 2},
		{'j', 3},
		{TOP_KEY_DOWN, 3},
		{'k', 2},
		{TOP_KEY_HOME, 1},
		{TOP_KEY_END, 3},
		{'g', 1},
		{'G', 3},
		{TOP_KEY_PAGE_UP, 1},
		{TOP_KEY_PAGE_DOWN, 3},
		{TOP_KEY_UP, 2},
	};

	top_draw(&world->top, 24, 80, world->lines);
	for (size_t i = 0; i < sizeof(moves) / sizeof(*moves); i++) {
		(void)top_press(&world->top, moves[i].key);
		assert_int_equal(world->top.selected, moves[i].selected);
	}
}

static void the_cursor_stays_on_its_client(void **state)
{
	struct world *world = *state;
	struct top *top = &world->top;

	press_all(top, "jsss"); /* on 2; by user the order is 3 2 1 */
	top_draw(top, 24, 80, world->lines);
	assert_int_equal(top->selected, 2);
	assert_int_equal(top->selected_at, 1);
	press_all(top, "s"); /* client 2 ends: the cursor keeps its row */
	world->before = world->now;
	world->before.n_clients = 1;
	top_take(top, &world->before);
	top_draw(top, 24, 80, world->lines);
	assert_int_equal(top->selected, 1);
}

static void nothing_is_sent_to_another_client_than_the_prompt_named(void **state)
{
	struct world *world = *state;
	struct top *top = &world->top;
	struct status fewer = world->now;

	press_all(top, "p");
	assert_int_equal(top->target, 1);
	fewer.clients++;
	fewer.n_clients--;
	top_take(top, &fewer);
	assert_int_equal(top_press(top, 'h').type, TOP_ACTION_NONE);
	assert_string_equal(top->answer, "client 1 has ended");
}

static void a_restarted_scheduler_counts_clients_anew(void **state)
{
	struct world *world = *state;
	struct top *top = &world->top;
	struct nvshare_status_client anew[N_CLIENTS];
	struct status restarted = world->now;

	(void)top_press(top, TOP_KEY_DOWN);
	press_all(top, "w1");
	memcpy(anew, world->clients, sizeof(anew));
	for (size_t i = 0; i < N_CLIENTS; i++)
		anew[i].id = 11 + (uint32_t)i;
	restarted.clients = anew;
	restarted.node.pid++;
	top_take(top, &restarted);
	assert_int_equal(top->selected, 12); /* the same process on the same GPU */
	assert_int_equal(top->prompt, TOP_PROMPT_NONE);
	assert_null(top->before);
	assert_string_equal(top->answer, "the scheduler was restarted");
}

static void the_picture_of_80_by_24(void **state)
{
	struct world *world = *state;
	static const struct {
		size_t line;
		const char *text;
	} cases[] = {
		{1,
		 "GPU 0  H200 [############++++x......] 15.0G of 20.0G, 1 run, 1 wait, busy 75 %"},
		{2, "GPU 1       [.......................]    0B of 10.0G, 0 run, 0 wait"},
		{3, "3 clients, by ID"},
		{4,
		 "    ID GPU     PID NAME             PRIORITY WEIGHT STATE      CARD   HOST   USE "},
		{5,
		 ">    1   0     999 train            normal      100 running   10.0G   1.0G  50 % "},
		{6,
		 "     2   0     998 Infer            normal      100 waiting    512M   3.0G  25 % "},
		{7,
		 "     3   1     997 batch            normal      100 idle       2.0G      -     - "},
		{8, ""},
		{21, "1 train: pid 999, user Cy, pod ml/one; running for 0.0 s, 0 stops (-); 0B"},
		{22, "allocated, 0B pinned"},
	};

	top_draw(&world->top, 24, 81, world->lines);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_string_equal(world->lines[cases[i].line].text, cases[i].text);
	assert_true(world->lines[5].is_selected);
	assert_int_equal(world->lines[5].style, TOP_STYLE_RUNNING);
	assert_int_equal(world->lines[6].style, TOP_STYLE_WAITING);
}

static void a_gpu_tells_its_heat_its_power_and_its_error(void **state)
{
	struct world *world = *state;
	struct nvshare_status_state states[] = {
		{.known = NVSHARE_STATE_KNOWS_ALL,
		 .celsius = 61,
		 .power_mw = 312400,
		 .utilization_percent = 20},
		{.gpu = 1, .state = NVSHARE_STATE_ERROR, .xid = 79},
	};
	const char *const *expected;
	static const char *const at_80[] = {
		"GPU 0  H200 [#####++x..] 15.0G of 20.0G, 1 run, 1 wait, busy 75 %, 61C 312W",
		"GPU 1       [.........]    0B of 10.0G, 0 run, 0 wait, error, Xid 79",
	};
	static const char *const at_76[] = {
		"GPU 0  H200 [#########++++x....] 15.0G of 20.0G, 1 run, 1 wait, busy 75 %",
		"GPU 1       [.................]    0B of 10.0G, 0 run, 0 wait, error, Xid 79",
	};

	world->now.states = states;
	world->now.n_states = 2;
	for (size_t width = 76; width <= 80; width += 4) {
		expected = width == 76 ? at_76 : at_80;
		top_draw(&world->top, 24, width, world->lines);
		for (size_t i = 0; i < 2; i++)
			assert_string_equal(world->lines[1 + i].text, expected[i]);
	}
	assert_int_equal(world->lines[1].style, TOP_STYLE_PLAIN);
	assert_int_equal(world->lines[2].style, TOP_STYLE_BAD);

	/* A long name leaves room at the usual width. */
	(void)snprintf(world->gpus[0].name, NVSHARE_NAME_LEN, "NVIDIA H100 80GB HBM3");
	top_draw(&world->top, 24, 79, world->lines);
	assert_memory_equal(world->lines[1].text, "GPU 0  H100  [", 14);
	assert_non_null(strstr(world->lines[1].text, ", 61C 312W"));

	/* The time of clients is not measured: NVML's takes its place. */
	states[1] = (struct nvshare_status_state){
		.gpu = 1, .known = NVSHARE_STATE_KNOWS_UTILIZATION, .utilization_percent = 7};
	top_draw(&world->top, 24, 80, world->lines);
	assert_non_null(strstr(world->lines[2].text, "0 wait, busy 7 %"));
	assert_int_equal(world->lines[2].style, TOP_STYLE_PLAIN);
}

static void a_waiter_of_a_gpu_with_an_error_says_so(void **state)
{
	struct world *world = *state;
	struct nvshare_status_state lost = {.state = NVSHARE_STATE_LOST};

	world->now.states = &lost;
	world->now.n_states = 1;
	(void)top_press(&world->top, TOP_KEY_DOWN);
	top_draw(&world->top, 24, 80, world->lines);
	assert_non_null(strstr(world->lines[22].text, "#1 waits for its GPU, which has an error"));
	assert_non_null(strstr(world->lines[1].text, "1 wait, lost"));
}

/* Columns that the terminal uses; -1: not text of this locale. */
static int text_columns(const char *text)
{
	wchar_t wide[TOP_LINE_LEN];

	return mbstowcs(wide, text, TOP_LINE_LEN) == (size_t)-1 ? -1 : wcswidth(wide, TOP_LINE_LEN);
}

static void no_name_breaks_a_line(void **state)
{
	static const char *const names[] = {
		"\x1b[2J",
		"a\nb",
		"日本語の名前プログラム漢字日本語",
		"é",
		"a\u0301\u0301\u0301",
		"\xff\xfe\xc3",
		"\u200b\u202e",
		"x\ty",
		"a name that is longer than its column",
	};
	static const char *const locales[] = {"C.UTF-8", "C"};
	struct world *world = *state;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names) * 2; i++) {
		(void)snprintf(world->clients[0].name, NVSHARE_NAME_LEN, "%s", names[i / 2]);
		(void)snprintf(world->gpus[0].name, NVSHARE_NAME_LEN, "%s", names[i / 2]);
		assert_non_null(setlocale(LC_CTYPE, locales[i % 2]));
		for (size_t width = 1; width < 160; width++) {
			top_draw(&world->top, 24, width, world->lines);
			for (size_t k = 0; k < 24; k++) {
				int columns = text_columns(world->lines[k].text);

				assert_in_range(columns, 0, width);
				assert_int_equal(columns, world->lines[k].width);
			}
		}
		top_draw(&world->top, 24, 80, world->lines);
		assert_int_equal(text_columns(world->lines[5].text), 80);
		assert_ptr_equal(strstr(world->lines[5].text, "running"),
				 world->lines[5].text + strlen(world->lines[5].text) - 29);
	}
	assert_non_null(setlocale(LC_CTYPE, "C.UTF-8"));
}

static void a_window_of_any_size_has_a_picture(void **state)
{
	struct world *world = *state;

	for (size_t n_lines = 1; n_lines < LINES_MAX - 1; n_lines++) {
		for (size_t width = 1; width < 300; width += 7) {
			for (const char *key = " ?xpx/x\nj"; *key; key++) {
				memset(&world->lines[n_lines], 0x55, sizeof(*world->lines));
				top_draw(&world->top, n_lines, width, world->lines);
				assert_int_equal(world->lines[n_lines].text[0], 0x55);
				(void)top_press(&world->top, *key);
			}
			(void)top_press(&world->top, TOP_KEY_ESCAPE);
		}
	}
}

static void the_help_fits_into_80_columns(void **state)
{
	struct world *world = *state;

	(void)top_press(&world->top, '?');
	top_draw(&world->top, 24, 79, world->lines);
	for (size_t i = 0; i < 23; i++)
		assert_in_range(world->lines[i].width, 0, 78);
	assert_non_null(strstr(world->lines[23].text, "any key"));
}

static void the_list_scrolls_with_the_cursor(void **state)
{
	struct world *world = *state;

	/* Seven lines: title, one GPU's, summary, head, two clients, foot. */
	world->now.n_gpus = 1;
	for (size_t i = 0; i < 4; i++) {
		top_draw(&world->top, 7, 80, world->lines);
		assert_int_equal(world->top.page, 2);
		assert_int_equal(world->top.first, i < 2 ? 0 : 1);
		assert_true(world->lines[i < 2 ? 4 + i : 5].is_selected);
		(void)top_press(&world->top, TOP_KEY_DOWN);
	}
}

static void the_picture_says_that_no_scheduler_answers(void **state)
{
	struct world *world = *state;

	(void)snprintf(world->top.problem, sizeof(world->top.problem), "nobody listens");
	top_draw(&world->top, 24, 80, world->lines);
	assert_string_equal(world->lines[0].text,
			    "NO SCHEDULER, trying again; below is its last status");
	assert_string_equal(world->lines[1].text, "nobody listens");
	assert_int_equal(top_press(&world->top, 'p').type, TOP_ACTION_NONE);
	assert_int_equal(world->top.prompt, TOP_PROMPT_NONE);
	assert_string_equal(world->top.answer, "no scheduler answers");
	top_take(&world->top, &world->now);
	top_draw(&world->top, 24, 80, world->lines);
	assert_null(strstr(world->lines[0].text, "NO SCHEDULER"));
	world->top.status = NULL;
	top_draw(&world->top, 24, 80, world->lines);
	assert_string_equal(world->lines[0].text, "nvshare: asking the scheduler");
}

static void sizes_take_six_columns_at_most(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {
		{0, "0B"},         {999, "999B"},        {1000, "1.0K"},
		{1 << 20, "1.0M"}, {512 << 20, "512M"},  {999ull << 30, "999G"},
		{GIB, "1.0G"},     {1000 * GIB, "1.0T"}, {UINT64_MAX, "16.0E"},
	};
	char text[TOP_CELL_LEN];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_string_equal(top_size(cases[i].bytes, text), cases[i].text);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_new, world_free)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_list_is_sorted_by_the_column_that_s_chooses),
		TEST(a_filter_shows_clients_with_all_of_its_words),
		TEST(members_of_a_gang_are_found_and_told),
		TEST(keys_become_requests),
		TEST(a_paused_client_is_seen_and_resumed),
		TEST(the_cursor_moves_within_the_list),
		TEST(the_cursor_stays_on_its_client),
		TEST(nothing_is_sent_to_another_client_than_the_prompt_named),
		TEST(a_restarted_scheduler_counts_clients_anew),
		TEST(the_picture_of_80_by_24),
		TEST(a_gpu_tells_its_heat_its_power_and_its_error),
		TEST(a_waiter_of_a_gpu_with_an_error_says_so),
		TEST(no_name_breaks_a_line),
		TEST(a_window_of_any_size_has_a_picture),
		TEST(the_help_fits_into_80_columns),
		TEST(the_list_scrolls_with_the_cursor),
		TEST(the_picture_says_that_no_scheduler_answers),
		TEST(sizes_take_six_columns_at_most),
	};

	(void)setlocale(LC_CTYPE, "C.UTF-8");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
