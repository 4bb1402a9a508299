/* SPDX-License-Identifier: Apache-2.0 */
/* nvsharectl shows and steers the scheduler of this node. */

#include "cli/cli.h"
#include "cli/doctor.h"
#include "cli/run.h"
#include "cli/usage.h"
#include "nvshare/version.h"
#include "util/output.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void print_help(void)
{
	(void)fputs("Usage: nvsharectl COMMAND | OPTION...\n"
		    "Shows and steers the nvshare-scheduler of this node.\n\n",
		    stdout);
	usage_print(stdout);
	(void)fputs(
		"\n"
		"Every user may see the status and steer their own programs; all else needs root,\n"
		"the scheduler's own user, or membership of the group 'nvshare'.\n"
		"\n"
		"Environment: NVSHARE_SOCK_DIR, where the socket is (" NVSHARE_SOCK_DIR_DEFAULT
		"); NO_COLOR.\n"
		"Exit status: 0 done, 1 the scheduler refused, or doctor found something, 2 wrong\n"
		"usage, 3 no scheduler, 4 the output could not be written, but settings took\n"
		"effect.\n",
		stdout);
}

static void print_version(void)
{
	(void)printf("nvsharectl " NVSHARE_VERSION "\n");
}

static int report_usage(const char *problem, const char *what)
{
	(void)fprintf(stderr, "nvsharectl: %s%s; see nvsharectl --help\n", problem, what);
	return CLI_EXIT_USAGE;
}

/*
 * Takes "-T 5", "-T5", "--set-tq 5" or "--set-tq=5" from *args and moves *args behind it.
 * Returns the value, "" if it is missing, or NULL if another option is there.
 */
static const char *take_value(char *const **args, const char *brief, const char *name)
{
	const char *arg = **args;
	size_t len = strlen(name);

	if (!strcmp(arg, brief) || !strcmp(arg, name)) {
		(*args)++;
		return **args ? *(*args)++ : "";
	}
	if (!strncmp(arg, name, len) && arg[len] == '=')
		arg += len + 1;
	else if (!strncmp(arg, brief, 2) && arg[1] != '-')
		arg += 2;
	else
		return NULL;
	(*args)++;
	return arg;
}

/* Takes one option from *args and moves *args behind it. is_trial: only checks the option. */
static int take_option(char *const **args, bool is_trial)
{
	static const struct {
		const char *brief, *name, *lack;
		int (*set)(const char *value, bool is_trial);
	} settings[] = {
		{"-T", "--set-tq", "--set-tq needs seconds", set_tq},
		{"-S", "--anti-thrash", "--anti-thrash needs on or off", set_anti_thrash},
	};
	static const struct {
		const char *brief, *name;
		void (*print)(void);
	} texts[] = {{"-h", "--help", print_help}, {"-V", "--version", print_version}};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		if (strcmp(**args, texts[i].brief) != 0 && strcmp(**args, texts[i].name) != 0)
			continue;
		(*args)++;
		if (!is_trial)
			texts[i].print();
		return CLI_EXIT_OK;
	}
	for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
		const char *value = take_value(args, settings[i].brief, settings[i].name);

		if (value)
			return *value ? settings[i].set(value, is_trial)
				      : report_usage(settings[i].lack, "");
	}
	return report_usage(
		***args == '-' ? "unknown option " : "only options follow an option, not ", **args);
}

/* Checks all options before it applies the first one. */
static int do_options(char *const *args)
{
	char *const *at = args;
	int r = CLI_EXIT_OK;

	while (*at && r == CLI_EXIT_OK)
		r = take_option(&at, true);
	while (*args && r == CLI_EXIT_OK)
		r = take_option(&args, false);
	return r;
}

/* The option may stand anywhere, for no setting and no client has such a name. */
static bool is_help_asked(char *const *args)
{
	for (; *args; args++) {
		if (!strcmp(*args, "-h") || !strcmp(*args, "--help"))
			return true;
	}
	return false;
}

/* The scripts in src/cli/completion/ ask so; the words behind may be anything. */
static int do_complete(char *const *args)
{
	usage_complete(args, stdout);
	return CLI_EXIT_OK;
}

static int do_command(const char *name, char *const *args)
{
	int (*command)(char *const *args) = NULL;

	if (!strcmp(name, "status"))
		command = status_command;
	else if (!strcmp(name, "set"))
		command = set_command;
	else if (!strcmp(name, "config"))
		command = config_command;
	else if (!strcmp(name, "events"))
		command = events_command;
	else if (!strcmp(name, "reload"))
		command = reload_command;
	else if (!strcmp(name, "trace"))
		command = trace_command;
	else if (!strcmp(name, "top"))
		command = top_command;
	else if (!strcmp(name, "doctor"))
		command = doctor_command;
	else if (!strcmp(name, "queue"))
		command = queue_command;
	else if (!strcmp(name, "cancel"))
		command = cancel_command;
	else if (!strcmp(name, "wait"))
		command = wait_command;
	else if (!strcmp(name, "place"))
		command = place_command;
	/* Behind its own options, run has those of the command. */
	else if (!strcmp(name, "run"))
		command = run_options_is_help(args) ? NULL : run_command;
	if (!command && strcmp(name, "run") != 0)
		return report_usage("unknown command ", name);
	if (command && (command == run_command || !is_help_asked(args)))
		return command(args);
	print_help();
	return CLI_EXIT_OK;
}

/*
 * If a standard descriptor is closed, the socket would get its number, and output for people
 * would go to the scheduler. The descriptor opened here makes such writes fail instead.
 */
static void fill_descriptors(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) < 0)
			(void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
	}
}

/* The command's exit code r, or CLI_EXIT_UNWRITTEN if its output is lost. */
static int exit_code(int r)
{
	return output_arrived("nvsharectl") || r ? r : CLI_EXIT_UNWRITTEN;
}

int main(int argc, char **argv)
{
	char *const *args = argv + (argc > 0);

	fill_descriptors();
	if (!args[0])
		return report_usage("a command is needed", "");
	if (!strcmp(args[0], "--complete"))
		return exit_code(do_complete(args + 1));
	if (!strcmp(args[0], "--try-freeze"))
		return doctor_freeze_child();
	return exit_code(args[0][0] == '-' ? do_options(args) : do_command(args[0], args + 1));
}
