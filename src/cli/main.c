/* SPDX-License-Identifier: Apache-2.0 */
/* nvsharectl: shows and steers the scheduler of this node. */

#include "cli/cli.h"
#include "nvshare/version.h"

#include <stdio.h>
#include <string.h>

static void print_help(void)
{
	(void)fputs(
		"Usage: nvsharectl COMMAND\n"
		"Shows and steers the nvshare-scheduler of this node.\n"
		"\n"
		"  status              GPUs, who runs, who waits and why, whose memory is where\n"
		"  status --json       the same for programs\n"
		"  set mode auto|serial|concurrent\n"
		"                      auto: side by side when all fit, else in turns;\n"
		"                      serial: one at a time; concurrent: turns of tq seconds\n"
		"  set policy priority|fair|credit|deadline\n"
		"                      whose turn is next, where not all fit\n"
		"  set tq SECONDS      length of a turn in mode concurrent\n"
		"  set switch-time auto|SECONDS\n"
		"                      length of a turn in the other modes\n"
		"  set reserve PERCENT of each GPU's memory, left alone\n"
		"  set max-runtime SECONDS\n"
		"                      longest run while others wait\n"
		"                      (SECONDS may have a fraction, as 0.5)\n"
		"  set priority low|normal|high|critical CLIENT\n"
		"  set weight 1..10000 CLIENT\n"
		"  set slo off|MILLISECONDS CLIENT\n"
		"  set compute-limit off|PERCENT CLIENT\n"
		"                      of one program: its ID in the status, or pid:PID\n"
		"  -T, --set-tq SECONDS      as set tq\n"
		"  -S, --anti-thrash on|off  off: who fits runs, nobody takes turns\n"
		"  -h, --help          this text\n"
		"  -V, --version       the version\n"
		"\n"
		"Everybody may see the status and steer their own programs; all else needs root,\n"
		"the scheduler's own user, or membership of the group 'nvshare'.\n"
		"\n"
		"Environment: NVSHARE_SOCK_DIR, where the socket is (" NVSHARE_SOCK_DIR_DEFAULT
		"); NO_COLOR.\n"
		"Exit status: 0 done, 1 the scheduler refused, 2 wrong usage, 3 no scheduler.\n",
		stdout);
}

static int usage(const char *problem, const char *what)
{
	(void)fprintf(stderr, "nvsharectl: %s%s; see nvsharectl --help\n", problem, what);
	return CLI_EXIT_USAGE;
}

/* "-T 5", "-T5", "--set-tq 5" or "--set-tq=5": the value; "" without one; NULL: not it. */
static const char *flag_value(char *const *args, const char *brief, const char *name)
{
	size_t len = strlen(name);

	if (!strcmp(args[0], brief) || !strcmp(args[0], name))
		return args[1] ? args[1] : "";
	if (!strncmp(args[0], name, len) && args[0][len] == '=')
		return args[0] + len + 1;
	if (!strncmp(args[0], brief, 2) && args[0][1] != '-')
		return args[0] + 2;
	return NULL;
}

int main(int argc, char **argv)
{
	char *const *args = argv + (argc > 0);
	const char *value;

	if (!args[0])
		return usage("a command is needed", "");
	if (!strcmp(args[0], "-h") || !strcmp(args[0], "--help")) {
		print_help();
		return CLI_EXIT_OK;
	}
	if (!strcmp(args[0], "-V") || !strcmp(args[0], "--version")) {
		(void)printf("nvsharectl " NVSHARE_VERSION "\n");
		return CLI_EXIT_OK;
	}
	if (!strcmp(args[0], "status"))
		return status_command(args + 1);
	if (!strcmp(args[0], "set"))
		return set_command(args + 1);
	value = flag_value(args, "-T", "--set-tq");
	if (value)
		return *value ? set_tq(value) : usage("--set-tq needs seconds", "");
	value = flag_value(args, "-S", "--anti-thrash");
	if (value)
		return *value ? set_anti_thrash(value) : usage("--anti-thrash needs on or off", "");
	return usage("unknown command ", args[0]);
}
