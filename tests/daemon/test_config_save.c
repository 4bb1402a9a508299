/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/settings/config_save.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/nvshare-save-XXXXXX", path[64], new_path[72];
static const char *state_directory;

static char *get_env(const char *name)
{
	static char value[64];

	assert_string_equal(name, "STATE_DIRECTORY");
	if (!state_directory)
		return NULL;
	(void)snprintf(value, sizeof(value), "%s", state_directory);
	return value;
}

/* The value of name in the file; "" where it is missing. */
static const char *saved(const char *name)
{
	static char value[128];
	char text[CONFIG_FILE_TEXT_LEN];
	struct config_file file;

	value[0] = '\0';
	assert_int_equal(config_file_read(path, &file, text), 0);
	for (size_t i = 0; i < file.n; i++) {
		if (!strcmp(file.at[i].key, name))
			(void)snprintf(value, sizeof(value), "%s", file.at[i].text);
	}
	config_file_deinit(&file);
	return value;
}

static void the_folder_is_the_service_manager_s_or_the_usual_one(void **state)
{
	static const char *const table[][2] = {
		{NULL, "/var/lib/nvshare/saved.yaml"},
		{"", "/var/lib/nvshare/saved.yaml"},
		{"/s", "/s/saved.yaml"},
		{"/s:/t", "/s/saved.yaml"},
	};
	char found[PATH_MAX];

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		state_directory = table[i][0];
		config_save_path(get_env, found);
		assert_string_equal(found, table[i][1]);
	}
}

static void a_value_comes_back_as_it_was_and_replaces_the_earlier_one(void **state)
{
	static const char *const values[] = {"5", "", "a, 'b': \"c\" # d", "''", "- x", "\xc3\xa4"};
	char text[CONFIG_FILE_TEXT_LEN];

	(void)state;
	assert_int_equal(config_save(path, "other", "1", text), 0);
	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
		assert_int_equal(config_save(path, "name", values[i], text), 0);
		assert_string_equal(saved("name"), values[i]);
		assert_string_equal(saved("other"), "1");
	}
	assert_int_equal(access(new_path, F_OK), -1);
}

static void a_value_that_could_not_be_read_again_changes_nothing(void **state)
{
	static const char *const values[] = {"\xff", "\x01"};
	char text[CONFIG_FILE_TEXT_LEN];

	(void)state;
	assert_int_equal(config_save(path, "name", "5", text), 0);
	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
		assert_int_equal(config_save(path, "name", values[i], text), CONFIG_FILE_E_BAD);
		assert_non_null(strstr(text, "this is no YAML"));
		assert_string_equal(saved("name"), "5");
		assert_int_equal(access(new_path, F_OK), -1);
	}
}

static void a_file_that_others_may_write_is_left_as_it_is(void **state)
{
	char text[CONFIG_FILE_TEXT_LEN];

	(void)state;
	assert_int_equal(config_save(path, "name", "5", text), 0);
	assert_int_equal(chmod(path, 0666), 0);
	assert_int_equal(config_save(path, "name", "6", text), CONFIG_FILE_E_BAD);
	assert_non_null(strstr(text, "others may write it"));
	assert_int_equal(chmod(path, 0644), 0);
	assert_string_equal(saved("name"), "5");
}

/* The new file's name is in the place of a pipe that nobody reads, or of another file's second
 * name. */
static void what_has_the_new_file_s_name_is_replaced(void **state)
{
	char text[CONFIG_FILE_TEXT_LEN], other[80], found[16] = "";
	FILE *f;

	(void)state;
	assert_int_equal(mkfifo(new_path, 0600), 0);
	assert_int_equal(config_save(path, "name", "5", text), 0);
	assert_string_equal(saved("name"), "5");

	(void)snprintf(other, sizeof(other), "%s/other", folder);
	f = fopen(other, "w");
	assert_non_null(f);
	assert_true(fputs("precious", f) >= 0);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(link(other, new_path), 0);
	assert_int_equal(config_save(path, "name", "6", text), 0);
	assert_string_equal(saved("name"), "6");
	f = fopen(other, "r");
	assert_non_null(f);
	assert_non_null(fgets(found, sizeof(found), f));
	assert_int_equal(fclose(f), 0);
	assert_string_equal(found, "precious");
	assert_int_equal(unlink(other), 0);
}

static int make_folder(void **state)
{
	(void)state;
	if (!mkdtemp(folder))
		return -1;
	(void)snprintf(path, sizeof(path), "%s/saved.yaml", folder);
	(void)snprintf(new_path, sizeof(new_path), "%s.new", path);
	return 0;
}

static int remove_folder(void **state)
{
	(void)state;
	(void)unlink(path);
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_folder_is_the_service_manager_s_or_the_usual_one),
		cmocka_unit_test(a_value_comes_back_as_it_was_and_replaces_the_earlier_one),
		cmocka_unit_test(a_value_that_could_not_be_read_again_changes_nothing),
		cmocka_unit_test(a_file_that_others_may_write_is_left_as_it_is),
		cmocka_unit_test(what_has_the_new_file_s_name_is_replaced),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
