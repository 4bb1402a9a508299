/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_CONFIG_FILE_H
#define NVS_DAEMON_CONFIG_FILE_H

/*
 * Reads one YAML file as a flat list of entries, by libyaml. The list is in the file's order, and
 * an entry is followed by those below it: `preemption`, `preemption.priorities`,
 * `preemption.priorities[0]`, `preemption.priorities[0].name`. Nothing here knows which keys exist.
 *
 * The reader is strict: one document that is a mapping, or nothing at all; no anchor, alias or tag;
 * each key once, of letters, digits and -:_ only. It is bounded, so no file makes it large or slow.
 *
 * Ownership: the entries are the caller's, freed by config_file_deinit().
 * Threading: none; it blocks as reading a file does.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CONFIG_FILE_BYTES_MAX   (256u * 1024)
#define CONFIG_FILE_ENTRIES_MAX 1024u
#define CONFIG_FILE_DEPTH_MAX   8u
#define CONFIG_FILE_KEY_LEN     192u
#define CONFIG_FILE_TEXT_LEN    512u /* of an error */

enum config_file_kind {
	CONFIG_FILE_SCALAR,
	CONFIG_FILE_NOTHING, /* no value, or ~ or null */
	CONFIG_FILE_LIST,
	CONFIG_FILE_MAPPING,
};

struct config_file_entry {
	enum config_file_kind kind;
	uint32_t line;       /* from 1 */
	uint32_t first_line; /* of an entry before it with the same key; 0: none */
	char *text;          /* of a scalar; else NULL */
	char key[CONFIG_FILE_KEY_LEN];
};

struct config_file {
	size_t n;
	struct config_file_entry *at;
};

enum {
	CONFIG_FILE_E_SUCCESS_,
	CONFIG_FILE_E_BAD,  /* the text says what, and what is allowed */
	CONFIG_FILE_E_NONE, /* there is no such file */
};

/*
 * name: of the file, for errors. Returns 0 or CONFIG_FILE_E_BAD with the first error as
 * "NAME:LINE: ..." in ret_text; ret_file is untouched then. A key that is there twice is no error
 * here: its reader tells all of them, and the other errors of the file.
 */
int config_file_parse(const char *name, const char *bytes, size_t len, struct config_file *ret_file,
		      char ret_text[CONFIG_FILE_TEXT_LEN]);

/*
 * The same of a file, which belongs to root or to this process's user, in such a folder, and which
 * nobody else may write. CONFIG_FILE_E_NONE writes no text.
 */
int config_file_read(const char *path, struct config_file *ret_file,
		     char ret_text[CONFIG_FILE_TEXT_LEN]);

/* The number of entries that stand below the one at `at`, and follow it. */
size_t config_file_below(const struct config_file *file, size_t at);

/* Whether the entry's key was there before; then the error, as config_file_parse() writes it. */
bool config_file_is_twice(const char *name, const struct config_file_entry *entry,
			  char ret_text[CONFIG_FILE_TEXT_LEN]);

/* Prints text in quotation marks, as a value that is read back as the same text. Returns the bytes.
 */
int config_file_print(FILE *out, const char *text);

/* Zeroed entries are allowed. */
void config_file_deinit(struct config_file *file);

#endif
