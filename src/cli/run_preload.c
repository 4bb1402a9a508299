/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The dynamic loader says nothing of a library that it was not asked to load, and a static program
 * has no loader. So the file is looked at as the kernel will look at it: by PATH, through the
 * interpreters of scripts, to the headers of an ELF file. A file that cannot be read, or is of
 * another form, is no obstacle: then nothing is said.
 */

#include "cli/run.h"

#include "util/fd.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#define SCRIPTS_MAX  5   /* as the kernel */
#define LINE_MAX_LEN 256 /* of "#!", as the kernel */
#define HEADERS_MAX  256
#define PATH_DEFAULT "/bin:/usr/bin" /* execvp()'s */

static bool is_program(const char *path)
{
	struct stat st;

	return !access(path, X_OK) && !stat(path, &st) && S_ISREG(st.st_mode);
}

/* As execvp() finds it. */
static bool find_program(const char *command, char ret[PATH_MAX])
{
	const char *at = getenv("PATH");

	if (strchr(command, '/')) {
		(void)snprintf(ret, PATH_MAX, "%s", command);
		return is_program(ret);
	}
	for (at = at ? at : PATH_DEFAULT;; at++) {
		size_t len = strcspn(at, ":");

		(void)snprintf(ret, PATH_MAX, "%.*s%s%s", (int)len, at, len ? "/" : "", command);
		if (is_program(ret))
			return true;
		at += len;
		if (!*at)
			return false;
	}
}

/* The kernel gives it rights that its caller lacks, or another user's. */
static bool has_own_rights(const char *path)
{
	struct statvfs fs;
	struct stat st;

	if (stat(path, &st) || statvfs(path, &fs) || fs.f_flag & ST_NOSUID ||
	    prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
		return false;
	if (st.st_mode & S_ISUID && st.st_uid != getuid())
		return true;
	if (st.st_mode & S_ISGID && st.st_mode & S_IXGRP && st.st_gid != getgid())
		return true;
	return getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0;
}

/* By the file's name: the loader of a program, and the loader started as a program. */
static bool is_glibc_loader(const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;

	return !strncmp(name, "ld-linux", strlen("ld-linux")) ||
	       !strncmp(name, "ld-lsb", strlen("ld-lsb")) || /* a link to it */
	       !strncmp(name, "ld-2.", strlen("ld-2."));
}

static enum run_preload look_at_elf(int fd, const char *path)
{
	char loader[PATH_MAX] = "";
	Elf64_Phdr segment;
	Elf64_Ehdr header;

	if (pread(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header) ||
	    header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(segment) ||
	    header.e_phnum > HEADERS_MAX)
		return RUN_PRELOAD_WORKS;
	for (size_t i = 0; i < header.e_phnum; i++) {
		off_t at = (off_t)(header.e_phoff + i * sizeof(segment));

		if (pread(fd, &segment, sizeof(segment), at) != (ssize_t)sizeof(segment))
			return RUN_PRELOAD_WORKS;
		if (segment.p_type != PT_INTERP)
			continue;
		if (segment.p_filesz >= sizeof(loader) ||
		    pread(fd, loader, segment.p_filesz, (off_t)segment.p_offset) <= 0)
			return RUN_PRELOAD_WORKS;
		return is_glibc_loader(loader) ? RUN_PRELOAD_WORKS : RUN_PRELOAD_OTHER_LIBC;
	}
	return is_glibc_loader(path) ? RUN_PRELOAD_WORKS : RUN_PRELOAD_STATIC;
}

/* Makes path that of a script's interpreter. false: it is no script. */
static bool follow_script(int fd, char path[PATH_MAX])
{
	char line[LINE_MAX_LEN + 1] = "";
	const char *name;

	if (pread(fd, line, LINE_MAX_LEN, 0) < 2 || strncmp(line, "#!", 2) != 0)
		return false;
	name = line + 2 + strspn(line + 2, " \t");
	(void)snprintf(path, PATH_MAX, "%.*s", (int)strcspn(name, " \t\n"), name);
	return true;
}

enum run_preload run_preload_look(const char *command, char ret_path[PATH_MAX])
{
	if (!find_program(command, ret_path))
		return RUN_PRELOAD_WORKS; /* nothing runs */
	for (int i = 0; i < SCRIPTS_MAX && is_program(ret_path); i++) {
		FD_CLEANUP int fd = open(ret_path, O_RDONLY | O_CLOEXEC);
		char magic[SELFMAG] = "";

		if (fd >= 0 && follow_script(fd, ret_path))
			continue; /* rights of a script do not count */
		if (has_own_rights(ret_path))
			return RUN_PRELOAD_OWN_RIGHTS;
		if (fd < 0 || pread(fd, magic, SELFMAG, 0) != SELFMAG ||
		    memcmp(magic, ELFMAG, SELFMAG) != 0)
			break;
		return look_at_elf(fd, ret_path);
	}
	return RUN_PRELOAD_WORKS;
}
