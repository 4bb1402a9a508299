/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/settings/config_file.h"

#include "util/fd.h"
#include "util/text.h"
#include "util/trusted_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

/* An open mapping or list. */
struct level {
	bool is_list;
	bool has_key;   /* of a mapping: the value comes next */
	uint32_t n;     /* of a list: its elements so far */
	size_t key_len; /* of the path that ends with this level */
};

struct reader {
	const char *name;
	struct config_file file;
	struct level levels[CONFIG_FILE_DEPTH_MAX];
	uint32_t depth;
	uint32_t n_documents;
	uint32_t line;                 /* of the event */
	uint32_t key_line;             /* of the last key */
	char key[CONFIG_FILE_KEY_LEN]; /* of the value that comes next */
	char *text;                    /* the error */
};

/* Returns CONFIG_FILE_E_BAD. */
__attribute__((format(printf, 2, 3))) static int reader_refuse(struct reader *reader,
							       const char *format, ...)
{
	size_t n = (size_t)snprintf(reader->text, CONFIG_FILE_TEXT_LEN, "%.250s:%u: ", reader->name,
				    reader->line);
	va_list args;

	va_start(args, format);
	(void)vsnprintf(reader->text + n, CONFIG_FILE_TEXT_LEN - n, format, args);
	va_end(args);
	text_sanitize(reader->text);
	return CONFIG_FILE_E_BAD;
}

static int reader_add(struct reader *reader, enum config_file_kind kind, const char *text)
{
	struct config_file *file = &reader->file;
	struct config_file_entry *entry = &file->at[file->n];

	if (file->n == CONFIG_FILE_ENTRIES_MAX)
		return reader_refuse(reader, "there are more than %u values and sections",
				     CONFIG_FILE_ENTRIES_MAX);
	*entry = (struct config_file_entry){.kind = kind, .line = reader->line};
	for (size_t i = 0; i < file->n && !entry->first_line; i++) {
		if (!strcmp(file->at[i].key, reader->key))
			entry->first_line = file->at[i].line;
	}
	memcpy(entry->key, reader->key, sizeof(entry->key));
	if (kind == CONFIG_FILE_SCALAR) {
		entry->text = strdup(text);
		if (!entry->text)
			return reader_refuse(reader, "no memory");
	}
	file->n++;
	return 0;
}

/* Appends to the path; false: it gets too long. */
__attribute__((format(printf, 2, 3))) static bool reader_extend(struct reader *reader,
								const char *format, ...)
{
	size_t n = strlen(reader->key);
	va_list args;
	int more;

	va_start(args, format);
	more = vsnprintf(reader->key + n, sizeof(reader->key) - n, format, args);
	va_end(args);
	return more >= 0 && (size_t)more < sizeof(reader->key) - n;
}

static int reader_take_key(struct reader *reader, const char *text, size_t len)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789-:_";

	if (len == 0 || strspn(text, allowed) != len)
		return reader_refuse(reader, "'%.80s' is no key; it has letters, digits and -:_",
				     text);
	if (!reader_extend(reader, "%s%s", *reader->key ? "." : "", text))
		return reader_refuse(reader, "'%.80s' makes the key longer than %u bytes", text,
				     CONFIG_FILE_KEY_LEN - 1);
	reader->levels[reader->depth - 1].has_key = true;
	reader->key_line = reader->line;
	return 0;
}

/* A value begins: the path of a list's element gets its number. */
static int reader_begin_value(struct reader *reader)
{
	struct level *level = reader->depth ? &reader->levels[reader->depth - 1] : NULL;

	if (!level)
		return 0;
	if (!level->is_list && !level->has_key)
		return reader_refuse(reader, "a mapping or a list is no key");
	if (level->is_list && !reader_extend(reader, "[%u]", level->n++))
		return reader_refuse(reader, "the key gets longer than %u bytes",
				     CONFIG_FILE_KEY_LEN - 1);
	return 0;
}

static void reader_end_value(struct reader *reader)
{
	if (!reader->depth)
		return;
	reader->levels[reader->depth - 1].has_key = false;
	reader->key[reader->levels[reader->depth - 1].key_len] = '\0';
}

static bool is_nothing(const yaml_event_t *event)
{
	const char *text = (const char *)event->data.scalar.value;

	return event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
	       (!*text || !strcmp(text, "~") || !strcmp(text, "null"));
}

static int reader_take_scalar(struct reader *reader, const yaml_event_t *event)
{
	const char *text = (const char *)event->data.scalar.value;
	const struct level *level = reader->depth ? &reader->levels[reader->depth - 1] : NULL;
	int r;

	if (event->data.scalar.anchor)
		return reader_refuse(reader, "an anchor (&) is not allowed");
	if (event->data.scalar.tag)
		return reader_refuse(reader, "a tag (!) is not allowed");
	if (strlen(text) != event->data.scalar.length)
		return reader_refuse(reader, "a zero byte is not allowed");
	if (!level)
		return is_nothing(event) ? 0 : reader_refuse(reader, "the file is no mapping");
	if (!level->is_list && !level->has_key)
		return reader_take_key(reader, text, event->data.scalar.length);
	r = reader_begin_value(reader);
	if (!r)
		r = reader_add(reader, is_nothing(event) ? CONFIG_FILE_NOTHING : CONFIG_FILE_SCALAR,
			       text);
	reader_end_value(reader);
	return r;
}

static int reader_open_level(struct reader *reader, bool is_list, const void *anchor,
			     const void *tag)
{
	int r;

	if (anchor)
		return reader_refuse(reader, "an anchor (&) is not allowed");
	if (tag)
		return reader_refuse(reader, "a tag (!) is not allowed");
	if (!reader->depth && is_list)
		return reader_refuse(reader, "the file is no mapping");
	if (reader->depth == CONFIG_FILE_DEPTH_MAX)
		return reader_refuse(reader, "there are more than %u levels",
				     CONFIG_FILE_DEPTH_MAX);
	r = reader_begin_value(reader);
	if (!r && reader->depth)
		r = reader_add(reader, is_list ? CONFIG_FILE_LIST : CONFIG_FILE_MAPPING, NULL);
	if (r)
		return r;
	/* libyaml says where the first thing below begins, but people look for the key. */
	if (reader->depth && reader->levels[reader->depth - 1].has_key)
		reader->file.at[reader->file.n - 1].line = reader->key_line;
	reader->levels[reader->depth++] =
		(struct level){.is_list = is_list, .key_len = strlen(reader->key)};
	return 0;
}

/* One event of libyaml; *ret_is_done at the last one. */
static int reader_take(struct reader *reader, const yaml_event_t *event, bool *ret_is_done)
{
	reader->line = (uint32_t)event->start_mark.line + 1;
	switch (event->type) {
	case YAML_STREAM_END_EVENT:
		*ret_is_done = true;
		return 0;
	case YAML_DOCUMENT_START_EVENT:
		if (reader->n_documents++)
			return reader_refuse(reader, "a second document (---) is not allowed");
		return 0;
	case YAML_ALIAS_EVENT:
		return reader_refuse(reader, "an alias (*) is not allowed");
	case YAML_SCALAR_EVENT:
		return reader_take_scalar(reader, event);
	case YAML_SEQUENCE_START_EVENT:
		return reader_open_level(reader, true, event->data.sequence_start.anchor,
					 event->data.sequence_start.tag);
	case YAML_MAPPING_START_EVENT:
		return reader_open_level(reader, false, event->data.mapping_start.anchor,
					 event->data.mapping_start.tag);
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		reader->depth--;
		reader_end_value(reader);
		return 0;
	case YAML_NO_EVENT:
	case YAML_STREAM_START_EVENT:
	case YAML_DOCUMENT_END_EVENT:
		break;
	}
	return 0;
}

static int reader_run(struct reader *reader, yaml_parser_t *parser)
{
	bool is_done = false;
	int r = 0;

	while (!is_done && !r) {
		yaml_event_t event;

		if (!yaml_parser_parse(parser, &event)) {
			/* A byte that is no UTF-8 has an offset, and no line. */
			reader->line = (uint32_t)parser->problem_mark.line + 1;
			return reader_refuse(reader, "this is no YAML: %s",
					     parser->problem ? parser->problem : "no memory");
		}
		r = reader_take(reader, &event, &is_done);
		yaml_event_delete(&event);
	}
	return r;
}

int config_file_parse(const char *name, const char *bytes, size_t len, struct config_file *ret_file,
		      char ret_text[CONFIG_FILE_TEXT_LEN])
{
	struct reader reader = {.name = name, .text = ret_text, .line = 1};
	yaml_parser_t parser;
	int r;

	reader.file.at = calloc(CONFIG_FILE_ENTRIES_MAX, sizeof(*reader.file.at));
	if (!reader.file.at || !yaml_parser_initialize(&parser)) {
		free(reader.file.at);
		return reader_refuse(&reader, "no memory");
	}
	yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&parser, (const unsigned char *)bytes, len);
	r = reader_run(&reader, &parser);
	yaml_parser_delete(&parser);
	if (r)
		config_file_deinit(&reader.file);
	else
		*ret_file = reader.file;
	return r;
}

/* Refuses a file that others could change. 0, or CONFIG_FILE_E_BAD with a text. */
static int check_owner(const char *path, const struct stat *info, char *ret_text)
{
	const char *why = NULL;

	if (!S_ISREG(info->st_mode))
		why = "it is no regular file";
	else if (info->st_uid != 0 && info->st_uid != geteuid())
		why = "it belongs neither to root nor to the scheduler's user: run chown on it";
	else if (info->st_mode & (S_IWGRP | S_IWOTH))
		why = "others may write it: run chmod go-w on it";
	else if (info->st_size > (off_t)CONFIG_FILE_BYTES_MAX)
		why = "it is larger than 256 KiB";
	if (!why)
		return 0;
	(void)snprintf(ret_text, CONFIG_FILE_TEXT_LEN, "%.250s: %s", path, why);
	text_sanitize(ret_text);
	return CONFIG_FILE_E_BAD;
}

/* The same of the folder that the file is in. */
static int check_folder(const char *path, int fd, char *ret_text)
{
	struct trusted_folder folder;
	int r = trusted_folder_check_file(fd, &folder);

	if (r == 0)
		return 0;
	if (r < 0)
		(void)snprintf(ret_text, CONFIG_FILE_TEXT_LEN, "%.200s: its folder: %s", path,
			       strerror(-r));
	else if (r == TRUSTED_FOLDER_E_OWNER)
		(void)snprintf(
			ret_text, CONFIG_FILE_TEXT_LEN,
			"%.200s: the folder '%.150s' belongs to uid %u, who could put another"
			" file there: run chown on it",
			path, folder.path, (unsigned int)folder.owner);
	else
		(void)snprintf(ret_text, CONFIG_FILE_TEXT_LEN,
			       "%.200s: others may write to the folder '%.150s': run chmod go-w on"
			       " it",
			       path, folder.path);
	text_sanitize(ret_text);
	return CONFIG_FILE_E_BAD;
}

static int refuse_errno(const char *path, char *ret_text)
{
	(void)snprintf(ret_text, CONFIG_FILE_TEXT_LEN, "%.250s: %s", path, strerror(errno));
	text_sanitize(ret_text);
	return CONFIG_FILE_E_BAD;
}

int config_file_read(const char *path, struct config_file *ret_file,
		     char ret_text[CONFIG_FILE_TEXT_LEN])
{
	/* Without O_NONBLOCK, opening a pipe could wait for ever. */
	FD_CLEANUP int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat info;
	size_t len = 0;
	char *bytes;
	ssize_t n;
	int r;

	if (fd < 0 && errno == ENOENT)
		return CONFIG_FILE_E_NONE;
	if (fd < 0 || fstat(fd, &info) < 0)
		return refuse_errno(path, ret_text);
	r = check_owner(path, &info, ret_text);
	if (!r)
		r = check_folder(path, fd, ret_text);
	if (r)
		return r;
	bytes = malloc(CONFIG_FILE_BYTES_MAX);
	if (!bytes)
		return refuse_errno(path, ret_text);
	do {
		n = read(fd, bytes + len, CONFIG_FILE_BYTES_MAX - len);
		len += n > 0 ? (size_t)n : 0;
	} while (n > 0);
	r = n < 0 ? refuse_errno(path, ret_text)
		  : config_file_parse(path, bytes, len, ret_file, ret_text);
	free(bytes);
	return r;
}

int config_file_print(FILE *out, const char *text)
{
	int n = fprintf(out, "'");

	for (; *text; text++)
		n += fprintf(out, "%s%c", *text == '\'' ? "'" : "", *text);
	return n + fprintf(out, "'");
}

void config_file_deinit(struct config_file *file)
{
	for (size_t i = 0; i < file->n; i++)
		free(file->at[i].text);
	free(file->at);
	*file = (struct config_file){.n = 0};
}

bool config_file_is_twice(const char *name, const struct config_file_entry *entry,
			  char ret_text[CONFIG_FILE_TEXT_LEN])
{
	if (!entry->first_line)
		return false;
	(void)snprintf(ret_text, CONFIG_FILE_TEXT_LEN,
		       "%.250s:%u: %s is there twice, first in line %u", name, entry->line,
		       entry->key, entry->first_line);
	text_sanitize(ret_text);
	return true;
}

size_t config_file_below(const struct config_file *file, size_t at)
{
	size_t len = strlen(file->at[at].key), n = 0;

	for (size_t i = at + 1; i < file->n; i++, n++) {
		const char *key = file->at[i].key;

		if (strncmp(key, file->at[at].key, len) != 0 ||
		    (key[len] != '.' && key[len] != '['))
			break;
	}
	return n;
}
