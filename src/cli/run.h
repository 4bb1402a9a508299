/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CLI_RUN_H
#define NVS_CLI_RUN_H

/*
 * `nvsharectl run`: a command that waits for its GPU, and then runs where it was called.
 *
 * run_options.c reads the command line, run_env.c makes the command's environment, run_child.c
 * starts the command and passes signals on, run_preload.c sees whether it can be managed,
 * run_command.c is the course of it all.
 *
 * Single-threaded.
 */

#include "ipc/job_client.h"
#include "nvshare/protocol.h"

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Exit codes beside the command's own, as env(1) and timeout(1) have them. */
enum {
	RUN_EXIT_LIMIT = 124,   /* its time limit was over */
	RUN_EXIT_NOT_RUN = 125, /* nvsharectl itself failed, or the scheduler refused */
	RUN_EXIT_NO_EXEC = 126, /* the command cannot be executed */
	RUN_EXIT_NO_SUCH = 127, /* there is no such command */
};

struct run_options {
	struct nvshare_submit submit;
	char *const *command; /* in the arguments */
	bool has_priority, has_name;
	bool follows;
	char gang[NVSHARE_GANG_LEN]; /* "": not given */
	uint32_t gang_size;          /* 0: not given */
};

/*
 * Reads the arguments of run, or those of place, which has no command. env_gpus: of
 * CUDA_VISIBLE_DEVICES; NULL: it is not set. 0; or CLI_EXIT_USAGE, and the error is printed.
 */
int run_options_parse(char *const *args, bool has_command, const char *env_gpus,
		      struct run_options *ret);

/* Whether the options before the command ask for help. */
bool run_options_is_help(char *const *args);

/* Sets the environment of this process as the command is to have it. false: printed. */
bool run_env_set(const struct run_options *options, const struct nvshare_job *job);

/* value of LD_PRELOAD with library in it, which other libraries of that name make needless. */
void run_env_preload(const char *value, const char *library, char *buf, size_t size);

enum run_preload {
	RUN_PRELOAD_WORKS,
	RUN_PRELOAD_STATIC,     /* it has no loader */
	RUN_PRELOAD_OTHER_LIBC, /* it has one that is not glibc's */
	RUN_PRELOAD_OWN_RIGHTS, /* set-uid, or with capabilities: the loader takes no library */
};

/*
 * Whether the library can be preloaded into command, which is found as execvp() finds it. ret_path:
 * the program, or the interpreter of the script, that decides it.
 */
enum run_preload run_preload_look(const char *command, char ret_path[PATH_MAX]);

struct run_child {
	pid_t pid;      /* 0: none runs */
	int status;     /* of waitpid(), when it has ended */
	int exec_error; /* errno of an exec that failed; 0: none did */
	int signal_fd;
	sigset_t old_mask;
	void (*old_pipe)(int number);
	bool is_ignoring_children; /* SIGCHLD was ignored when this program started */
	bool is_interrupted; /* a signal that ends programs came, from a person or a terminal */
};

/* From here on signals are for run_child_signals(). 0 or -errno. */
int run_child_open(struct run_child *child);

/* Starts command. 0 or -errno. A command that cannot be executed has an exec_error, and no pid. */
int run_child_start(struct run_child *child, char *const *command);

/*
 * Passes signals on, and looks whether the command has stopped or ended. Stops this process when
 * the command was stopped. Does not block.
 */
void run_child_signals(struct run_child *child);

/*
 * The same while there is no command yet: stops this process when the terminal says so. Returns a
 * signal that is to end this process; 0: none has come.
 */
int run_child_await_signals(const struct run_child *child);

/* Sends a signal to the command and all of its descendants. */
void run_child_end(const struct run_child *child, int number);

/* Signals are as they were before run_child_open(). */
void run_child_close(struct run_child *child);

/* Ends this process by the signal that ended the command, without a core dump of its own. */
void run_child_die(int number);

#endif
