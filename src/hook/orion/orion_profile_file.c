/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Files of profiles. A file is read as a whole into a table of its own, and then merged. It is
 * written beside its place, and then renamed. So a bad file changes nothing, and a full disk leaves
 * the old one.
 */

#include "hook/orion/orion_private.h"

#include "core/orion/kernel_profile_text.h"
#include "hook/base/hook_log.h"
#include "util/fd.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_DEVICE_NAME_LEN 96
#define FILE_LINE_MAX        4096 /* a later release may have more columns */

static int file_complain(const char *path, const struct kernel_profile_reader *reader, int error)
{
	hook_log_warn("%s: line %u: %s%s%s%s", path, reader->line, reader->column ? "column " : "",
		      reader->column ? reader->column : "", reader->column ? ": " : "",
		      kernel_profile_text_reason(error));
	return -EINVAL;
}

/* Returns the bytes of the next line, without its end; -1: there is none; -EFBIG: it is too long.
 */
static int file_read_line(FILE *f, char line[FILE_LINE_MAX])
{
	int len = 0, c;

	while ((c = getc(f)) != EOF && c != '\n') {
		if (len == FILE_LINE_MAX)
			return -EFBIG;
		line[len++] = (char)c;
	}
	return c == EOF && len == 0 ? -1 : len;
}

/* Reads all lines. */
static int file_read(FILE *f, const char *path, struct kernel_profile_reader *reader)
{
	char line[FILE_LINE_MAX];
	int error = 0, len = 0;

	while (error == 0 && (len = file_read_line(f, line)) >= 0)
		error = kernel_profile_reader_line(reader, line, (size_t)len);
	if (len == -EFBIG) {
		hook_log_warn("%s: line %u is longer than %d bytes", path, reader->line + 1,
			      FILE_LINE_MAX);
		return -EINVAL;
	}
	if (error == 0 && ferror(f))
		return -EIO;
	if (error == 0)
		error = kernel_profile_reader_end(reader);
	return error ? file_complain(path, reader, error) : 0;
}

/* Durations of another model of GPU say nothing. */
static int file_check_device(const char *path, const struct kernel_profile_header *header)
{
	char text[FILE_DEVICE_NAME_LEN] = "";
	struct kernel_profile_name name;

	orion_device_name(text, sizeof(text));
	if (!*text || strcmp(header->gpu.text, "unknown") == 0)
		return 0;
	kernel_profile_name_set(&name, text, strlen(text));
	if (strcmp(name.text, header->gpu.text) == 0)
		return 0;
	hook_log_warn("%s: it is of a GPU \"%s\", and this one is \"%s\"", path, header->gpu.text,
		      name.text);
	return -EINVAL;
}

int orion_profile_load(const char *path)
{
	static const struct kernel_class_card unknown_card;
	struct kernel_profile_reader reader;
	struct kernel_profiles table;
	struct kernel_profile_entry *entries;
	FILE *f = fopen(path, "re");
	uint32_t n_left_out = 0;
	int r;

	if (!f) {
		r = -errno;
		hook_log_warn("%s: %s", path, strerror(-r));
		return r;
	}
	entries = calloc(ORION_PROFILES_MAX, sizeof(*entries));
	r = entries ? 0 : -ENOMEM;
	if (entries) {
		kernel_profiles_init(&table, entries, ORION_PROFILES_MAX, &unknown_card);
		kernel_profile_reader_init(&reader, &table);
		r = file_read(f, path, &reader);
		if (r == 0)
			r = file_check_device(path, &reader.header);
	}
	if (r == 0) {
		hook_lock(&orion.lock);
		n_left_out = kernel_profiles_merge(&orion.profiles, &table);
		hook_unlock(&orion.lock);
	}
	if (n_left_out > 0)
		hook_log_warn("%s: the table is full; kernels that are left out: %u", path,
			      n_left_out);
	free(entries);
	(void)fclose(f);
	return r;
}

/* Prints the whole table into memory. NULL: there is none. */
static char *file_print(size_t *ret_len)
{
	char device[FILE_DEVICE_NAME_LEN] = "";
	struct kernel_profile_header header;
	uint32_t n;
	char *text;
	size_t len;

	orion_device_name(device, sizeof(device));
	kernel_profile_name_set(&header.gpu, *device ? device : "unknown",
				strlen(*device ? device : "unknown"));
	hook_lock(&orion.lock);
	header.model = orion.model;
	n = orion.profiles.used.n;
	text = malloc(KERNEL_PROFILE_TEXT_HEADER_MAX + (size_t)n * KERNEL_PROFILE_TEXT_LINE_MAX);
	if (text) {
		len = kernel_profile_text_header(&header, text);
		for (uint32_t i = 0; i < n; i++)
			len += kernel_profile_text_line(&orion.profiles.entries[i].profile,
							text + len);
		*ret_len = len;
	}
	hook_unlock(&orion.lock);
	return text;
}

static int file_write(const char *path, const char *text, size_t len)
{
	int r, fd = fd_create(AT_FDCWD, path, 0666);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");

	if (!f) {
		r = -errno;
		(void)fd_close(fd);
		return r;
	}
	r = fwrite(text, 1, len, f) == len ? 0 : -errno;
	if (fclose(f) != 0 && r == 0)
		r = -errno;
	return r;
}

int orion_profile_save(const char *path)
{
	char beside[PATH_MAX];
	size_t len = 0;
	char *text;
	int r;

	if (snprintf(beside, sizeof(beside), "%s.new", path) >= (int)sizeof(beside))
		return -ENAMETOOLONG;
	text = file_print(&len);
	if (!text)
		return -ENOMEM;
	r = file_write(beside, text, len);
	if (r == 0 && rename(beside, path) != 0)
		r = -errno;
	if (r != 0) {
		(void)remove(beside);
		hook_log_warn("%s: %s", path, strerror(-r));
	}
	free(text);
	return r;
}
