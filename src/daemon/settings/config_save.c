/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/settings/config_save.h"

#include "util/fd.h"
#include "util/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void config_save_path(char *(*get_env)(const char *name), char buf[PATH_MAX])
{
	const char *folder = get_env("STATE_DIRECTORY");

	if (!folder || !*folder)
		folder = CONFIG_SAVE_FOLDER;
	/* systemd may name several folders, with colons; the first one is ours. */
	(void)snprintf(buf, PATH_MAX, "%.*s/saved.yaml", (int)strcspn(folder, ":"), folder);
}

static void save_line(FILE *out, const char *name, const char *value)
{
	(void)fprintf(out, "%s: ", name);
	(void)config_file_print(out, value);
	(void)fputs("\n", out);
}

/* The old values without name, and the new one. 0 or -errno. */
static int save_write(int fd, const struct config_file *file, const char *name, const char *value)
{
	FILE *out = fdopen(fd, "w"); /* takes fd */
	bool is_written;

	if (!out) {
		int r = -errno;

		(void)close(fd);
		return r;
	}
	(void)fputs("# nvshare-scheduler writes this file for 'nvsharectl set --save'.\n", out);
	for (size_t i = 0; i < file->n; i++) {
		if (file->at[i].kind == CONFIG_FILE_SCALAR && strcmp(file->at[i].key, name) != 0)
			save_line(out, file->at[i].key, file->at[i].text);
	}
	save_line(out, name, value);
	errno = EIO; /* where an earlier write has failed */
	is_written = fflush(out) == 0 && !ferror(out) && fsync(fileno(out)) == 0;
	if (!is_written) {
		int r = -errno;

		(void)fclose(out);
		return r;
	}
	return fclose(out) == 0 ? 0 : -errno;
}

static int save_refuse(const char *path, int r, char *ret_text)
{
	(void)snprintf(ret_text, CONFIG_FILE_TEXT_LEN, "%.250s: %s", path, strerror(-r));
	text_sanitize(ret_text);
	return CONFIG_FILE_E_BAD;
}

/* A file that the next start could not read would keep the scheduler from starting. */
static int save_check(const char *path, char *ret_text)
{
	struct config_file file = {.n = 0};
	int r = config_file_read(path, &file, ret_text);

	for (size_t i = 0; i < file.n && r == 0; i++) {
		if (config_file_is_twice(path, &file.at[i], ret_text))
			r = CONFIG_FILE_E_BAD;
	}
	config_file_deinit(&file);
	return r;
}

int config_save(const char *path, const char *name, const char *value,
		char ret_text[CONFIG_FILE_TEXT_LEN])
{
	struct config_file file = {.n = 0};
	char new_path[PATH_MAX + 4];
	int fd, r = config_file_read(path, &file, ret_text);

	if (r == CONFIG_FILE_E_BAD)
		return r;
	(void)snprintf(new_path, sizeof(new_path), "%s.new", path);
	fd = fd_create(AT_FDCWD, new_path, 0644);
	r = fd < 0 ? -errno : save_write(fd, &file, name, value);
	config_file_deinit(&file);
	if (r) {
		if (fd >= 0)
			(void)unlink(new_path);
		return save_refuse(new_path, r, ret_text);
	}
	r = save_check(new_path, ret_text);
	if (!r && rename(new_path, path) < 0)
		r = save_refuse(path, -errno, ret_text);
	if (r)
		(void)unlink(new_path);
	return r;
}
