/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closes descriptors that it does not own, as a program does that closes one twice, and opens files
 * that get their numbers. The files must stay as they are, and the work on the GPU must go on.
 */
#include "lib/app.h"
#include "lib/buffer.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char help[] =
	"usage: stray [OPTION]... --until FILE\n"
	"Closes sockets of the library while it works, until FILE exists.\n"
	"  --size SIZE    of its memory (150MiB)\n"
	"  --rounds N     closes so often (12); then prints \"closed\", and works on\n"
	"  --all          all of them each time; else one, in turn\n"
	"  --reuse FOLDER opens a file there, which gets the number\n" APP_EXIT_HELP;

enum { FILES_MAX = 64, OTHERS_BELOW = 100 };

static const char text[] = "precious data of the program\n";

static struct app app;
static const char *folder;
static int files[FILES_MAX], n_files;

static bool is_of_the_library(int fd)
{
	char path[64], target[64];
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, target, sizeof(target) - 1);
	return fd >= OTHERS_BELOW && n > 7 && memcmp(target, "socket:", 7) == 0;
}

static int find_strays(int ret[FILES_MAX])
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *entry;
	int n = 0;

	if (!dir)
		app_exit(APP_EXIT_SKIPPED, "no /proc");
	while (n < FILES_MAX && (entry = readdir(dir))) {
		if (is_of_the_library(atoi(entry->d_name)))
			ret[n++] = atoi(entry->d_name);
	}
	(void)closedir(dir);
	return n;
}

static void stray_close(int fd)
{
	char path[512];
	int own;

	(void)close(fd);
	if (!folder || n_files == FILES_MAX)
		return;
	(void)snprintf(path, sizeof(path), "%s/mine-%d-%d", folder, (int)getpid(), n_files);
	own = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (own < 0 || write(own, text, sizeof(text)) != (ssize_t)sizeof(text) ||
	    dup2(own, fd) != fd)
		app_exit(APP_EXIT_DRIVER, "cannot make %s", path);
	(void)close(own);
	files[n_files++] = fd;
}

static void check_file(int fd)
{
	char found[sizeof(text) + 1];

	if (pread(fd, found, sizeof(found), 0) != (ssize_t)sizeof(text) ||
	    memcmp(found, text, sizeof(text)) != 0 || lseek(fd, 0, SEEK_CUR) != sizeof(text))
		app_exit(APP_EXIT_WRONG, "the file at %d is not as it was", fd);
}

/* Here, and in a child. */
static void check_files(void)
{
	int status = -1;
	pid_t pid = fork();

	for (int i = 0; i < n_files; i++)
		check_file(files[i]);
	if (pid == 0)
		_exit(0);
	if (waitpid(pid, &status, 0) < 0 || status)
		app_exit(APP_EXIT_WRONG, "a child does not have the files as they were");
}

static void work(struct buffer *buffer)
{
	CUdeviceptr extra;

	APP_CALL(cuMemAlloc(&extra, 8 << 20));
	buffer_submit(buffer, &app, 1, NULL);
	buffer_count(buffer, 1);
	APP_CALL(cuCtxSynchronize());
	APP_CALL(cuMemFree(extra));
}

int main(int argc, char **argv)
{
	uint64_t size = 150 << 20, n_rounds = 12, first;
	struct buffer buffer = {.kind = BUFFER_PLAIN, .seed = 1};
	int strays[FILES_MAX], n_strays;
	const char *until = NULL;
	bool is_all = false;

	app_name = "stray";
	for (int a = 1; a < argc; a++) {
		if (app_is(argv[a], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[a], "--until"))
			until = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--reuse"))
			folder = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--size"))
			size = app_value_size(argc, argv, &a);
		else if (app_is(argv[a], "--rounds"))
			n_rounds = app_value_u64(argc, argv, &a, 1, 1000);
		else if (app_is(argv[a], "--all"))
			is_all = true;
		else
			app_usage(help, APP_EXIT_USAGE);
	}
	if (!until)
		app_usage(help, APP_EXIT_USAGE);
	app_load(0);
	app_init(&app, 0);
	buffer_alloc(&buffer, &app, size, NULL);
	buffer_fill(&buffer, &app, NULL);
	for (uint64_t round = 0; round < n_rounds || access(until, F_OK); round++) {
		work(&buffer);
		n_strays = round < n_rounds ? find_strays(strays) : 0;
		if (n_strays && !is_all)
			stray_close(strays[round % (uint64_t)n_strays]);
		for (int i = 0; i < n_strays && is_all; i++)
			stray_close(strays[i]);
		if (round + 1 == n_rounds) {
			puts("closed");
			(void)fflush(stdout);
		}
	}
	if (buffer_check_all(&buffer, &first))
		app_exit(APP_EXIT_WRONG, "contents are wrong, first at word %llu",
			 (unsigned long long)first);
	check_files();
	buffer_free(&buffer, NULL);
	app_deinit(&app);
	printf("stray verified files=%d\n", n_files);
	return APP_EXIT_VERIFIED;
}
