/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "cli/run.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* As main() has them: literals are not written to. */
#define ARGS(...) ((char *const *)(uintptr_t)(const char *const[]){__VA_ARGS__, NULL})

static void the_library_is_preloaded_once(void **state)
{
	static const struct {
		const char *value, *expected;
	} cases[] = {
		{"", "/l/libnvshare.so"},
		{"/a/other.so", "/l/libnvshare.so:/a/other.so"},
		{"/x/libnvshare.so", "/x/libnvshare.so"},
		{"libnvshare.so", "libnvshare.so"},
		{"/a/b.so:/x/libnvshare.so", "/a/b.so:/x/libnvshare.so"},
		{"/a/b.so /x/libnvshare.so c.so", "/a/b.so /x/libnvshare.so c.so"},
		{"/x/mylibnvshare.so", "/l/libnvshare.so:/x/mylibnvshare.so"},
		{"/x/libnvshare.so.1", "/l/libnvshare.so:/x/libnvshare.so.1"},
		{"libnvshare.so/x", "/l/libnvshare.so:libnvshare.so/x"},
		{":", "/l/libnvshare.so::"},
	};
	char buf[256];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		run_env_preload(cases[i].value, "/l/libnvshare.so", buf, sizeof(buf));
		assert_string_equal(buf, cases[i].expected);
	}
}

static void options_describe_the_job(void **state)
{
	char *const *args =
		ARGS("--priority", "high", "--memory=8G", "--model", "m", "--type", "t", "--units",
		     "7", "--gpu", "0,GPU-12", "--retries", "2", "--time-limit", "2h", "--whole",
		     "--follow", "--apart", "w", "--name", "n n", "--gang", "g g", "--gang-size",
		     "3", "--", "--cmd", "-x");
	struct run_options options;
	const struct nvshare_submit *submit = &options.submit;

	(void)state;
	assert_int_equal(run_options_parse(args, true, NULL, &options), 0);
	assert_int_equal(submit->priority, NVSHARE_PRIORITY_HIGH);
	assert_true(options.has_priority && options.follows);
	assert_int_equal(submit->memory, 8ull << 30);
	assert_string_equal(submit->model, "m");
	assert_string_equal(submit->type, "t");
	assert_string_equal(submit->apart, "w");
	assert_string_equal(submit->gpus, "0,GPU-12");
	assert_string_equal(submit->name, "n n");
	assert_string_equal(options.gang, "g g");
	assert_int_equal(options.gang_size, 3);
	assert_int_equal(submit->units, 7);
	assert_int_equal(submit->n_retries, 2);
	assert_int_equal(submit->limit_sec, 7200);
	assert_int_equal(submit->flags, NVSHARE_SUBMIT_WHOLE);
	assert_string_equal(options.command[0], "--cmd");
	assert_string_equal(options.command[1], "-x");
}

static void the_command_begins_at_the_first_word(void **state)
{
	struct run_options options;

	(void)state;
	assert_int_equal(
		run_options_parse(ARGS("/bin/sleep", "--memory", "-h"), true, NULL, &options), 0);
	assert_string_equal(options.submit.name, "sleep");
	assert_string_equal(options.command[1], "--memory");
	assert_int_equal(options.submit.priority, NVSHARE_PRIORITY_NORMAL);
	assert_false(options.has_priority);
}

static void a_gang_has_a_name_and_a_size(void **state)
{
	static const char *const bad[] = {"0", "-1", "257", "", "x", "1.5"};
	char name[NVSHARE_GANG_LEN + 1];
	struct run_options options;

	(void)state;
	assert_int_equal(run_options_parse(ARGS("true"), true, NULL, &options), 0);
	assert_string_equal(options.gang, "");
	assert_int_equal(options.gang_size, 0);
	memset(name, 'n', sizeof(name) - 2);
	name[sizeof(name) - 2] = '\0';
	assert_int_equal(run_options_parse(ARGS("--gang", name, "true"), true, NULL, &options), 0);
	assert_string_equal(options.gang, name);
	name[sizeof(name) - 2] = 'n';
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(run_options_parse(ARGS("--gang", name, "true"), true, NULL, &options),
			 CLI_EXIT_USAGE);
	assert_int_equal(run_options_parse(ARGS("--gang", "", "true"), true, NULL, &options),
			 CLI_EXIT_USAGE);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(
			run_options_parse(ARGS("--gang", "g", "--gang-size", bad[i], "true"), true,
					  NULL, &options),
			CLI_EXIT_USAGE);
	assert_int_equal(run_options_parse(ARGS("--gang-size", "2", "true"), true, NULL, &options),
			 CLI_EXIT_USAGE);
	assert_int_equal(run_options_parse(ARGS("--gang", "g", "--gang-size", "256", "true"), true,
					   NULL, &options),
			 0);
	/* The first member always waits for the others. */
	assert_int_equal(
		run_options_parse(ARGS("--gang", "g", "--gang-size", "2", "--no-wait", "true"),
				  true, NULL, &options),
		CLI_EXIT_USAGE);
	assert_int_equal(
		run_options_parse(ARGS("--no-wait", "--gang", "g", "--gang-size", "1", "true"),
				  true, NULL, &options),
		0);
	assert_int_equal(
		run_options_parse(ARGS("--no-wait", "--gang", "g", "true"), true, NULL, &options),
		0);
	/* A question about a place is none about a gang. */
	assert_int_equal(run_options_parse(ARGS("--gang", "g"), false, NULL, &options),
			 CLI_EXIT_USAGE);
}

static void limits_are_times(void **state)
{
	static const struct {
		const char *text;
		uint32_t seconds; /* 0: refused */
	} cases[] = {{"90", 90},
		     {"90s", 90},
		     {"15m", 900},
		     {"24h", 86400},
		     {"3d", 259200},
		     {"365d", 31536000},
		     {"0", 0},
		     {"366d", 0},
		     {"8761h", 0},
		     {"-1", 0},
		     {"1.5h", 0},
		     {"h", 0},
		     {"", 0},
		     {"31536001", 0},
		     {"1w", 0},
		     {"99999999999999999999", 0},
		     {"none", NVSHARE_JOB_NO_LIMIT},
		     {"None", 0}};
	struct run_options options;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[40];
		int r;

		(void)strcpy(text, cases[i].text);
		r = run_options_parse(ARGS("--time-limit", text, "true"), true, NULL, &options);
		assert_int_equal(r, cases[i].seconds ? 0 : CLI_EXIT_USAGE);
		if (!r)
			assert_int_equal(options.submit.limit_sec, cases[i].seconds);
	}
}

static void the_job_keeps_to_the_gpus_of_the_environment(void **state)
{
	static const char *const bad[] = {"", "-1", "NoDevFiles", "none", "0 1"};
	struct run_options options;

	(void)state;
	assert_int_equal(run_options_parse(ARGS("true"), true, "1,2", &options), 0);
	assert_string_equal(options.submit.gpus, "1,2");
	assert_int_equal(run_options_parse(ARGS("--gpu", "3", "true"), true, "1,2", &options), 0);
	assert_string_equal(options.submit.gpus, "3");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(run_options_parse(ARGS("true"), true, bad[i], &options),
				 CLI_EXIT_USAGE);
}

/* ---- whether the library can be preloaded ---------------------------------------------- */

static char folder[] = "/tmp/nvshare-run.XXXXXX";

static int make_folder(void **state)
{
	(void)state;
	return mkdtemp(folder) && !chdir(folder) && !setenv("PATH", folder, 1) ? 0 : -1;
}

static int remove_folder(void **state)
{
	static const char *const names[] = {"program", "script", "second", "ld-linux-x86-64.so.2"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		(void)unlink(names[i]);
	return rmdir(folder);
}

static void make_file(const char *name, const void *bytes, size_t size)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, size), size);
	assert_int_equal(close(fd), 0);
	assert_int_equal(chmod(name, 0755), 0);
}

/* loader NULL: it has none. */
static void make_program(const char *name, const char *loader)
{
	struct {
		Elf64_Ehdr header;
		Elf64_Phdr segments[2];
		char loader[64];
	} file = {
		.header = {.e_ident = ELFMAG "\2\1\1",
			   .e_type = ET_DYN,
			   .e_phoff = sizeof(Elf64_Ehdr),
			   .e_phentsize = sizeof(Elf64_Phdr),
			   .e_phnum = 2},
		.segments = {{.p_type = PT_LOAD}, {.p_type = loader ? PT_INTERP : PT_NOTE}},
	};

	file.segments[1].p_offset = offsetof(typeof(file), loader);
	if (loader) {
		file.segments[1].p_filesz = strlen(loader) + 1;
		(void)strcpy(file.loader, loader);
	}
	make_file(name, &file, sizeof(file));
}

static void expect_preload(const char *command, enum run_preload expected, const char *path)
{
	char found[PATH_MAX];

	assert_int_equal(run_preload_look(command, found), expected);
	if (path)
		assert_string_equal(found, path);
}

static void the_loader_of_a_program_decides(void **state)
{
	static const struct {
		const char *loader;
		enum run_preload expected;
	} cases[] = {
		{"/lib64/ld-linux-x86-64.so.2", RUN_PRELOAD_WORKS},
		{"/nix/store/x-glibc/lib/ld-linux-aarch64.so.1", RUN_PRELOAD_WORKS},
		{"/lib64/ld-lsb-x86-64.so.3", RUN_PRELOAD_WORKS},
		{"/lib/ld-musl-x86_64.so.1", RUN_PRELOAD_OTHER_LIBC},
		{"/system/bin/linker64", RUN_PRELOAD_OTHER_LIBC},
		{NULL, RUN_PRELOAD_STATIC},
	};
	char path[PATH_MAX];

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/program", folder);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		make_program("program", cases[i].loader);
		expect_preload("./program", cases[i].expected, "./program");
		expect_preload("program", cases[i].expected, path); /* by PATH */
	}
	/* The loader as a program takes preloaded libraries. */
	make_program("ld-linux-x86-64.so.2", NULL);
	expect_preload("./ld-linux-x86-64.so.2", RUN_PRELOAD_WORKS, NULL);
}

static void a_script_is_its_interpreter(void **state)
{
	static const char first[] = "#! ./second -x\n", second[] = "#!./program\n";

	(void)state;
	make_program("program", NULL);
	make_file("script", first, sizeof(first) - 1);
	make_file("second", second, sizeof(second) - 1);
	expect_preload("./script", RUN_PRELOAD_STATIC, "./program");
	make_program("program", "/lib64/ld-linux-x86-64.so.2");
	expect_preload("./script", RUN_PRELOAD_WORKS, NULL);
	make_file("second", first, sizeof(first) - 1); /* of itself, without an end */
	expect_preload("./script", RUN_PRELOAD_WORKS, NULL);
}

static void what_does_not_tell_is_no_obstacle(void **state)
{
	(void)state;
	expect_preload("/nowhere/program", RUN_PRELOAD_WORKS, NULL);
	expect_preload("no-such-program", RUN_PRELOAD_WORKS, NULL);
	expect_preload("/tmp", RUN_PRELOAD_WORKS, NULL);
	expect_preload("", RUN_PRELOAD_WORKS, NULL);
	make_file("program", "true\n", 5);
	expect_preload("./program", RUN_PRELOAD_WORKS, NULL);
	make_file("program", ELFMAG, SELFMAG);
	expect_preload("./program", RUN_PRELOAD_WORKS, NULL);
	make_program("program", NULL);
	assert_int_equal(chmod("program", 0644), 0); /* cannot be executed */
	expect_preload("./program", RUN_PRELOAD_WORKS, NULL);
	(void)unsetenv("PATH");
	expect_preload("sh", RUN_PRELOAD_WORKS, NULL);
	(void)setenv("PATH", folder, 1);
}

static void a_program_with_other_rights_takes_no_library(void **state)
{
	static const char line[] = "#!/bin/sh\n";

	(void)state;
	make_program("program", "/lib64/ld-linux-x86-64.so.2");
	assert_int_equal(chmod("program", 04755), 0);
	expect_preload("./program", RUN_PRELOAD_WORKS, NULL); /* the caller's own */
	if (chown("program", 12345, (gid_t)-1))
		skip(); /* not root */
	assert_int_equal(chmod("program", 04755), 0);
	expect_preload("./program", RUN_PRELOAD_OWN_RIGHTS, "./program");
	make_file("script", line, sizeof(line) - 1);
	assert_int_equal(chown("script", 12345, (gid_t)-1), 0);
	assert_int_equal(chmod("script", 04755), 0);
	expect_preload("./script", RUN_PRELOAD_WORKS,
		       NULL); /* the kernel takes a script's for nothing */
}

static void help_is_that_of_run_only_before_the_command(void **state)
{
	(void)state;
	assert_true(run_options_is_help(ARGS("--help")));
	assert_true(run_options_is_help(ARGS("--whole", "-h", "true")));
	assert_true(run_options_is_help(ARGS("--memory", "1G", "-h")));
	assert_false(run_options_is_help(ARGS("--name", "-h", "true")));
	assert_false(run_options_is_help(ARGS("--", "-h")));
	assert_false(run_options_is_help(ARGS("python", "--help")));
}

static void await_end(struct run_child *child)
{
	while (child->pid > 0) {
		struct pollfd pfd = {.fd = child->signal_fd, .events = POLLIN};

		(void)poll(&pfd, 1, -1);
		run_child_signals(child);
	}
}

/* It was set before this program was executed, and stays with this process. */
static void an_alarm_reaches_the_command(void **state)
{
	struct run_child child;

	(void)state;
	assert_int_equal(run_child_open(&child), 0);
	assert_int_equal(run_child_start(&child, ARGS("/bin/sleep", "1000")), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = 1}, NULL),
			 0);
	await_end(&child);
	run_child_close(&child);
	assert_true(WIFSIGNALED(child.status));
	assert_int_equal(WTERMSIG(child.status), SIGALRM);
}

/* It comes when the reader of our messages is gone. To the command it means what it did before. */
static void a_broken_pipe_ends_the_command_alone(void **state)
{
	struct run_child child;

	(void)state;
	assert_int_equal(run_child_open(&child), 0);
	(void)raise(SIGPIPE);
	assert_int_equal(run_child_start(&child, ARGS("/bin/sh", "-c", "kill -PIPE $$")), 0);
	await_end(&child);
	run_child_close(&child);
	assert_true(WIFSIGNALED(child.status));
	assert_int_equal(WTERMSIG(child.status), SIGPIPE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_broken_pipe_ends_the_command_alone),
		cmocka_unit_test(an_alarm_reaches_the_command),
		cmocka_unit_test(the_library_is_preloaded_once),
		cmocka_unit_test(options_describe_the_job),
		cmocka_unit_test(the_command_begins_at_the_first_word),
		cmocka_unit_test(a_gang_has_a_name_and_a_size),
		cmocka_unit_test(limits_are_times),
		cmocka_unit_test(the_job_keeps_to_the_gpus_of_the_environment),
		cmocka_unit_test(help_is_that_of_run_only_before_the_command),
		cmocka_unit_test(the_loader_of_a_program_decides),
		cmocka_unit_test(a_script_is_its_interpreter),
		cmocka_unit_test(what_does_not_tell_is_no_obstacle),
		cmocka_unit_test(a_program_with_other_rights_takes_no_library),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
