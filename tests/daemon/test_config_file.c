/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/settings/config_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const struct {
	const char *bytes, *entries; /* "key=text;", or "key/" of a section, "key?" of nothing */
} good[] = {
	{"", ""},
	{"---\n", ""},
	{"# nothing but words\n", ""},
	{"{}\n", ""},
	{"tq: 5\n", "tq=5;"},
	{"tq: \"5\" # seconds\n", "tq=5;"},
	{"a:\n  b: 1\n  c:\n    - 2\n    - d: x y\n", "a/a.b=1;a.c/a.c[0]=2;a.c[1]/a.c[1].d=x y;"},
	{"g: [0, 1]\nr: []\nm: {}\nn: 3\n", "g/g[0]=0;g[1]=1;r/m/n=3;"},
	{"a:\nb: ~\nc: ''\n", "a?b?c=;"},
	{"p:\n  uid:1000: high\n", "p/p.uid:1000=high;"},
};

static void good_files_become_entries(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		char found[512] = "", text[CONFIG_FILE_TEXT_LEN] = "";
		struct config_file file = {.n = 0};

		assert_int_equal(
			config_file_parse("f", good[i].bytes, strlen(good[i].bytes), &file, text),
			0);
		for (size_t j = 0; j < file.n; j++) {
			const struct config_file_entry *entry = &file.at[j];
			size_t n = strlen(found);

			if (entry->kind == CONFIG_FILE_SCALAR)
				(void)snprintf(found + n, sizeof(found) - n, "%s=%s;", entry->key,
					       entry->text);
			else
				(void)snprintf(found + n, sizeof(found) - n, "%s%s", entry->key,
					       entry->kind == CONFIG_FILE_NOTHING ? "?" : "/");
		}
		assert_string_equal(found, good[i].entries);
		config_file_deinit(&file);
	}
}

static const struct {
	const char *bytes, *text;
} bad[] = {
	{"5\n", "f:1: the file is no mapping"},
	{"- a\n", "f:1: the file is no mapping"},
	{"a: &x 1\n", "f:1: an anchor (&) is not allowed"},
	{"a: &x [1]\n", "f:1: an anchor (&) is not allowed"},
	{"a: *x\n", "f:1: an alias (*) is not allowed"},
	{"a: !!int 1\n", "f:1: a tag (!) is not allowed"},
	{"a: !x {b: 1}\n", "f:1: a tag (!) is not allowed"},
	{"a: 1\n---\nb: 1\n", "f:2: a second document (---) is not allowed"},
	{"[a]: 1\n", "f:1: a mapping or a list is no key"},
	{"a b: 1\n", "f:1: 'a b' is no key; it has letters, digits and -:_"},
	{"a.b: 1\n", "f:1: 'a.b' is no key; it has letters, digits and -:_"},
	{"? \"\\0\"\n: 1\n", "f:1: a zero byte is not allowed"},
	{"a: {b: {c: {d: {e: {f: {g: {h: {}}}}}}}}\n", "f:1: there are more than 8 levels"},
	{"a: [1\n", "f:2: this is no YAML: did not find expected ',' or ']'"},
	{"a: 1\n b: 2\n", "f:2: this is no YAML: mapping values are not allowed in this context"},
	{"a: \xff\n", "f:1: this is no YAML: invalid leading UTF-8 octet"},
};

static void bad_files_are_refused_by_line(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		char text[CONFIG_FILE_TEXT_LEN] = "";
		struct config_file file = {.n = 0};

		assert_int_equal(
			config_file_parse("f", bad[i].bytes, strlen(bad[i].bytes), &file, text),
			CONFIG_FILE_E_BAD);
		assert_string_equal(text, bad[i].text);
		assert_null(file.at);
	}
}

static void a_key_that_is_there_twice_leaves_the_others_readable(void **state)
{
	static const char bytes[] = "a: 1\nb: {c: 2}\na: 3\nb: {d: 4}\nb: 5\ne: 6\n";
	static const char *const texts[] = {
		NULL,
		NULL,
		NULL,
		"f:3: a is there twice, first in line 1",
		"f:4: b is there twice, first in line 2",
		NULL,
		"f:5: b is there twice, first in line 2",
		NULL,
	};
	char text[CONFIG_FILE_TEXT_LEN];
	struct config_file file = {.n = 0};

	(void)state;
	assert_int_equal(config_file_parse("f", bytes, strlen(bytes), &file, text), 0);
	assert_int_equal(file.n, sizeof(texts) / sizeof(*texts));
	for (size_t i = 0; i < file.n; i++) {
		assert_int_equal(config_file_is_twice("f", &file.at[i], text), texts[i] != NULL);
		if (texts[i])
			assert_string_equal(text, texts[i]);
	}
	config_file_deinit(&file);
}

static void a_file_has_a_bound(void **state)
{
	char bytes[16 * (CONFIG_FILE_ENTRIES_MAX + 1)], text[CONFIG_FILE_TEXT_LEN];
	struct config_file file = {.n = 0};
	size_t n = 0;

	(void)state;
	for (uint32_t i = 0; i <= CONFIG_FILE_ENTRIES_MAX; i++)
		n += (size_t)snprintf(bytes + n, sizeof(bytes) - n, "k%u: 1\n", i);
	assert_int_equal(config_file_parse("f", bytes, n, &file, text), CONFIG_FILE_E_BAD);
	assert_string_equal(text, "f:1025: there are more than 1024 values and sections");
	memset(bytes, 'k', 300);
	assert_int_equal(config_file_parse("f", bytes, 300, &file, text), CONFIG_FILE_E_BAD);
	memcpy(bytes + 300, ": 1\n", 4);
	assert_int_equal(config_file_parse("f", bytes, 304, &file, text), CONFIG_FILE_E_BAD);
	assert_non_null(strstr(text, "makes the key longer than 191 bytes"));
}

static void only_a_file_that_nobody_else_writes_is_read(void **state)
{
	char path[] = "/tmp/nvshare-config-XXXXXX", text[CONFIG_FILE_TEXT_LEN];
	struct config_file file = {.n = 0};
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "tq: 5\n", 6), 6);
	assert_int_equal(config_file_read(path, &file, text), 0);
	assert_int_equal(file.n, 1);
	config_file_deinit(&file);
	assert_int_equal(fchmod(fd, 0664), 0);
	assert_int_equal(config_file_read(path, &file, text), CONFIG_FILE_E_BAD);
	assert_non_null(strstr(text, ": others may write it: run chmod go-w on it"));
	(void)close(fd);
	(void)unlink(path);
	assert_int_equal(config_file_read(path, &file, text), CONFIG_FILE_E_NONE);
	assert_int_equal(config_file_read("/tmp", &file, text), CONFIG_FILE_E_BAD);
	assert_string_equal(text, "/tmp: it is no regular file");
}

static void only_a_file_in_a_folder_that_nobody_else_writes_to_is_read(void **state)
{
	char folder[] = "/tmp/nvshare-config-XXXXXX", path[64], link_path[64];
	char text[CONFIG_FILE_TEXT_LEN];
	struct config_file file = {.n = 0};
	FILE *f;

	(void)state;
	assert_non_null(mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/a.yaml", folder);
	(void)snprintf(link_path, sizeof(link_path), "%s.link", folder);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fputs("tq: 5\n", f) >= 0);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(symlink(path, link_path), 0);
	for (int i = 0; i < 2; i++) {
		const char *name = i ? link_path : path;

		assert_int_equal(chmod(folder, 0755), 0);
		assert_int_equal(config_file_read(name, &file, text), 0);
		config_file_deinit(&file);
		assert_int_equal(chmod(folder, 0777), 0);
		assert_int_equal(config_file_read(name, &file, text), CONFIG_FILE_E_BAD);
		assert_non_null(
			strstr(text, ": others may write to the folder '/tmp/nvshare-config-"));
		if (geteuid() != 0)
			continue; /* nobody else can give folders away */
		assert_int_equal(chmod(folder, 0755), 0);
		assert_int_equal(chown(folder, 4242, 4242), 0);
		assert_int_equal(config_file_read(name, &file, text), CONFIG_FILE_E_BAD);
		assert_non_null(strstr(text, "' belongs to uid 4242, "));
		assert_int_equal(chown(folder, 0, 0), 0);
	}
	assert_int_equal(unlink(link_path), 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_files_become_entries),
		cmocka_unit_test(bad_files_are_refused_by_line),
		cmocka_unit_test(a_key_that_is_there_twice_leaves_the_others_readable),
		cmocka_unit_test(a_file_has_a_bound),
		cmocka_unit_test(only_a_file_that_nobody_else_writes_is_read),
		cmocka_unit_test(only_a_file_in_a_folder_that_nobody_else_writes_to_is_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
