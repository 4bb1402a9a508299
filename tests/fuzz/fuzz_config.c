/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any bytes as a file of settings. What is accepted must be whole: each entry has a key, a line,
 * that of the first one with the same key, a text if and only if it is a scalar, and those below it
 * behind it. What is refused must be said in one line that begins with the file's name and a line.
 */

#include "daemon/settings/config_file.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int fuzz_left_out(void);

static bool was_accepted[CONFIG_FILE_MAPPING + 1];

static void check_entry(const struct config_file *file, size_t at)
{
	const struct config_file_entry *entry = &file->at[at];
	size_t len = strnlen(entry->key, sizeof(entry->key));
	uint32_t first_line = 0;

	was_accepted[entry->kind] = true;
	if (len == 0 || len == sizeof(entry->key) || entry->line == 0 ||
	    (entry->kind == CONFIG_FILE_SCALAR) != (entry->text != NULL) ||
	    at + config_file_below(file, at) >= file->n)
		abort();
	if (entry->kind == CONFIG_FILE_SCALAR && config_file_below(file, at) != 0)
		abort();
	for (size_t i = 0; i < at && !first_line; i++) {
		if (!strcmp(file->at[i].key, entry->key))
			first_line = file->at[i].line;
	}
	if (entry->first_line != first_line)
		abort();
}

int fuzz_left_out(void)
{
	for (int i = 0; i <= CONFIG_FILE_MAPPING; i++) {
		if (!was_accepted[i])
			return i;
	}
	return -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct config_file file = {.n = 0};
	char text[CONFIG_FILE_TEXT_LEN] = "";
	int r = config_file_parse("f", (const char *)data, size, &file, text);

	if (r && (r != CONFIG_FILE_E_BAD || file.at || strncmp(text, "f:", 2) != 0 ||
		  strchr(text, '\n')))
		abort();
	for (size_t i = 0; i < file.n; i++)
		check_entry(&file, i);
	config_file_deinit(&file);
	return 0;
}
