/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gpu/spawn.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void spawn_init(void)
{
	const struct sigaction usual = {.sa_handler = SIG_DFL};

	/* A service manager gives the scheduler its capability by this set, which children get. */
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	/* Where SIGCHLD is ignored, a number is free before anybody has asked for the end. */
	(void)sigaction(SIGCHLD, &usual, NULL);
}

static int spawn_files(posix_spawn_file_actions_t *actions, int fd_in)
{
	int r = posix_spawn_file_actions_adddup2(actions, fd_in, STDIN_FILENO);

	if (!r)
		r = posix_spawn_file_actions_adddup2(actions, STDERR_FILENO, STDOUT_FILENO);
	if (!r)
		r = posix_spawn_file_actions_addclosefrom_np(actions, STDERR_FILENO + 1);
	return r;
}

static int spawn_attributes(posix_spawnattr_t *attributes)
{
	sigset_t none, pipe;
	int r;

	(void)sigemptyset(&none);
	(void)sigemptyset(&pipe);
	(void)sigaddset(&pipe, SIGPIPE);
	r = posix_spawnattr_setsigmask(attributes, &none);
	if (!r)
		r = posix_spawnattr_setsigdefault(attributes, &pipe);
	if (!r)
		r = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK |
								 POSIX_SPAWN_SETSIGDEF |
								 POSIX_SPAWN_SETPGROUP);
	return r;
}

int spawn_start(const char *path, char *const *args, char *const *env, int fd_in, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	int r = posix_spawn_file_actions_init(&actions);

	if (r)
		return -r;
	r = posix_spawnattr_init(&attributes);
	if (!r) {
		r = spawn_files(&actions, fd_in);
		if (!r)
			r = spawn_attributes(&attributes);
		if (!r)
			r = posix_spawn(ret_pid, path, &actions, &attributes, args, env);
		(void)posix_spawnattr_destroy(&attributes);
	}
	(void)posix_spawn_file_actions_destroy(&actions);
	return -r;
}

bool spawn_has_ended(pid_t pid)
{
	return waitpid(pid, NULL, WNOHANG) != 0;
}

void spawn_kill(pid_t pid)
{
	(void)kill(-pid, SIGKILL);
}
