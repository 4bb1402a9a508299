/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct table_column columns[] = {
	{"ID", TABLE_ALIGN_RIGHT, 1},
	{"NAME", TABLE_ALIGN_NAME, 0},
	{"EMPTY", TABLE_ALIGN_LEFT, 2},
	{"NOTE", TABLE_ALIGN_NOTE, 0},
};

static char *print(struct table *table, size_t width, bool has_colours)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	table_print(table, out, "  ", width, has_colours);
	assert_int_equal(fclose(out), 0);
	table_deinit(table);
	return text;
}

static void fill(struct table *table)
{
	table_init(table, columns, 4);
	table_add(table, NULL, "%d", 1);
	table_add(table, "\033[32m", "%s", "模型");
	table_add(table, NULL, "%s", "");
	table_add(table, NULL, "%s", "");
	table_add(table, NULL, "%d", 1234);
	table_add(table, NULL, "%s", "longer name");
	table_add(table, NULL, "%s", "");
	table_add(table, NULL, "%s", "waits");
}

static void columns_are_aligned_and_empty_ones_left_out(void **state)
{
	struct table table;
	char *text;

	(void)state;
	fill(&table);
	text = print(&table, 0, false);
	assert_string_equal(text, "    ID  NAME         NOTE\n"
				  "     1  模型\n"
				  "  1234  longer name  waits\n");
	free(text);
}

/* East Asian characters take two columns, and combining ones none. */
static void columns_are_aligned_behind_wide_and_combining_characters(void **state)
{
	static const char *const names[] = {"模型", "e\xcc\x81t\xcc\x81", "ＡＢ", "plain"};
	struct table table;
	char *text;

	(void)state;
	table_init(&table, columns, 4);
	for (size_t i = 0; i < 4; i++) {
		table_add(&table, NULL, "%zu", i);
		table_add(&table, NULL, "%s", names[i]);
		table_add(&table, NULL, "%s", "");
		table_add(&table, NULL, "%s", "waits");
	}
	text = print(&table, 0, false);
	assert_string_equal(text, "  ID  NAME   NOTE\n"
				  "   0  模型   waits\n"
				  "   1  e\xcc\x81t\xcc\x81     waits\n"
				  "   2  ＡＢ   waits\n"
				  "   3  plain  waits\n");
	free(text);
}

static void colours_do_not_change_the_widths(void **state)
{
	struct table table;
	char *text;

	(void)state;
	fill(&table);
	text = print(&table, 0, true);
	assert_non_null(strstr(text, "     1  \033[32m模型\033[0m\n"));
	assert_non_null(strstr(text, "\033[1mNAME\033[0m         \033[1mNOTE\033[0m\n"));
	free(text);
}

static void what_is_least_needed_goes_where_there_is_no_room(void **state)
{
	static const struct {
		size_t width;
		const char *text;
	} cases[] = {
		{26, "    ID  NAME         NOTE\n     1  模型\n  1234  longer name  waits\n"},
		{25, "    ID  NAME\n     1  模型\n  1234  longer name\n      waits\n"},
		{19, "    ID  NAME\n     1  模型\n  1234  longer name\n      waits\n"},
		{18, "  NAME\n  模型\n  longer name\n      waits\n"},
		{12, "  NAME\n  模型\n  longer n..\n      waits\n"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct table table;
		char *text;

		fill(&table);
		text = print(&table, cases[i].width, false);
		assert_string_equal(text, cases[i].text);
		free(text);
	}
}

static void a_cell_that_is_too_long_is_cut_between_characters(void **state)
{
	char name[2 * TABLE_CELL_LEN];
	struct table table;
	char *text;

	(void)state;
	for (size_t i = 0; i + 2 < sizeof(name); i += 2)
		memcpy(name + i, "ü", 3);
	table_init(&table, columns + 1, 1);
	table_add(&table, NULL, "%s", name);
	text = print(&table, 0, false);
	assert_int_equal(strlen(text), strlen("  NAME\n  \n") + TABLE_CELL_LEN - 2);
	assert_memory_equal(text + strlen(text) - 3, "ü\n", 3);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(columns_are_aligned_and_empty_ones_left_out),
		cmocka_unit_test(columns_are_aligned_behind_wide_and_combining_characters),
		cmocka_unit_test(colours_do_not_change_the_widths),
		cmocka_unit_test(what_is_least_needed_goes_where_there_is_no_room),
		cmocka_unit_test(a_cell_that_is_too_long_is_cut_between_characters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
