/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The command, as a child in the same process group. So the terminal's own signals reach it without
 * our help, and a shell's jobs and pipelines work as if the command stood there alone. Signals that
 * come to nvsharectl alone are passed on: those of other processes, the terminal's end where it
 * leads the session, and an alarm that was set before it was executed.
 */

#include "cli/run.h"

#include "util/fd.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* New descendants may come while the old ones are killed. */
#define KILL_ROUNDS 8

#define PIDS_MAX 4096

/* All but those that say that this process itself is at fault, and those that nobody can block. */
static void child_mask(sigset_t *ret)
{
	static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};

	(void)sigfillset(ret);
	for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++)
		(void)sigdelset(ret, own[i]);
	/* The kernel keeps a blocked signal even where it is ignored, as nohup does it. */
	for (int number = 1; number < NSIG; number++) {
		struct sigaction act;

		if (number != SIGCHLD && sigaction(number, NULL, &act) == 0 &&
		    act.sa_handler == SIG_IGN)
			(void)sigdelset(ret, number);
	}
}

/*
 * Orphaned descendants come to us and not to init, so that they can be ended with the job, and stay
 * programs of it for the scheduler.
 */
int run_child_open(struct run_child *child)
{
	struct sigaction act;
	sigset_t set;

	*child = (struct run_child){.signal_fd = -1};
	/* The job does not end because nobody reads our messages any more. */
	child->old_pipe = signal(SIGPIPE, SIG_IGN);
	child_mask(&set);
	/* A caller that ignores its children would leave us without their end. */
	if (sigaction(SIGCHLD, NULL, &act) == 0 && act.sa_handler == SIG_IGN) {
		child->is_ignoring_children = true;
		(void)signal(SIGCHLD, SIG_DFL);
	}
	if (sigprocmask(SIG_BLOCK, &set, &child->old_mask) < 0)
		return -errno;
	child->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (child->signal_fd < 0)
		return -errno;
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	return 0;
}

void run_child_close(struct run_child *child)
{
	child->signal_fd = fd_close(child->signal_fd);
	(void)sigprocmask(SIG_SETMASK, &child->old_mask, NULL);
	(void)signal(SIGPIPE, child->old_pipe);
}

int run_child_start(struct run_child *child, char *const *command)
{
	int ends[2], error = 0;

	child->exec_error = 0;
	child->is_interrupted = false;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	(void)fflush(NULL);
	child->pid = fork();
	if (child->pid == 0) {
		if (child->is_ignoring_children)
			(void)signal(SIGCHLD, SIG_IGN);
		(void)signal(SIGPIPE, child->old_pipe);
		(void)sigprocmask(SIG_SETMASK, &child->old_mask, NULL);
		(void)execvp(command[0], command);
		error = errno;
		(void)!write(ends[1], &error, sizeof(error));
		_exit(RUN_EXIT_NO_EXEC);
	}
	(void)fd_close(ends[1]);
	if (child->pid < 0) {
		(void)fd_close(ends[0]);
		child->pid = 0;
		return -EAGAIN;
	}
	/* The pipe ends with the exec. */
	while (read(ends[0], &error, sizeof(error)) < 0 && errno == EINTR)
		;
	(void)fd_close(ends[0]);
	if (error) {
		(void)waitpid(child->pid, &child->status, 0);
		child->exec_error = error;
		child->pid = 0;
	}
	return 0;
}

/* Stops this process as if nothing was blocked. Returns when somebody has continued it. */
static void child_stop_here(int number)
{
	struct sigaction old, act = {.sa_handler = SIG_DFL};
	sigset_t one, before;

	(void)sigemptyset(&one);
	(void)sigaddset(&one, number);
	(void)sigaction(number, &act, &old);
	(void)raise(number);
	(void)sigprocmask(SIG_UNBLOCK, &one, &before);
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	(void)sigaction(number, &old, NULL);
}

static bool signal_is_of_terminal(int number)
{
	return number == SIGTSTP || number == SIGTTIN || number == SIGTTOU;
}

/*
 * The shell sees us stop, and continues the group. Somebody else may continue this process alone.
 * SIGSTOP comes from somebody who will continue the command itself, and would not know of us.
 */
static void child_stop_with(const struct run_child *child, int number)
{
	siginfo_t info = {.si_pid = 0};
	sigset_t one;

	if (!signal_is_of_terminal(number))
		return;
	child_stop_here(number);
	/* The signal that continued this process is dealt with here. */
	(void)sigemptyset(&one);
	(void)sigaddset(&one, SIGCONT);
	(void)sigtimedwait(&one, NULL, &(struct timespec){.tv_sec = 0});
	if (waitid(P_PID, (id_t)child->pid, &info, WCONTINUED | WNOHANG) == 0 && !info.si_pid)
		(void)kill(child->pid, SIGCONT);
}

/* Also of orphans that have come to us. */
static void child_reap(struct run_child *child)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
		if (pid != child->pid)
			continue;
		if (WIFSTOPPED(status)) {
			child_stop_with(child, WSTOPSIG(status));
			continue;
		}
		child->status = status;
		child->pid = 0;
	}
}

static bool signal_ends(int number)
{
	return number == SIGINT || number == SIGTERM || number == SIGQUIT || number == SIGHUP ||
	       number == SIGALRM;
}

/*
 * Whether the command has the signal already. The kernel sends those of keys to the whole group.
 * The terminal's end is for the leader of the session alone, until that leader ends.
 */
static bool signal_is_of_group(const struct signalfd_siginfo *info)
{
	if (info->ssi_code != SI_KERNEL)
		return false;
	if (info->ssi_signo == SIGHUP || info->ssi_signo == SIGCONT)
		return getsid(0) != getpid();
	return info->ssi_signo != SIGALRM;
}

void run_child_signals(struct run_child *child)
{
	struct signalfd_siginfo info;

	while (read(child->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		int number = (int)info.ssi_signo;

		if (number == SIGCHLD)
			continue;
		child->is_interrupted |= signal_ends(number);
		if (!signal_is_of_group(&info) && child->pid > 0 &&
		    (pid_t)info.ssi_pid != child->pid)
			(void)kill(child->pid, number);
	}
	child_reap(child);
}

int run_child_await_signals(const struct run_child *child)
{
	struct signalfd_siginfo info;

	while (read(child->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		int number = (int)info.ssi_signo;

		if (signal_ends(number))
			return number;
		if (signal_is_of_terminal(number))
			child_stop_here(number);
	}
	return 0;
}

/* ---- descendants ------------------------------------------------------------------- */

static pid_t process_parent(pid_t pid)
{
	char path[64], text[512];
	const char *at;
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	(void)fd_close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	at = strrchr(text, ')'); /* the name may hold anything; then the state, and the parent */
	return at && strlen(at) > 4 ? (pid_t)strtol(at + 4, NULL, 10) : 0;
}

static bool process_is_ours(pid_t pid)
{
	for (int i = 0; i < 64 && pid > 1; i++) {
		pid = process_parent(pid);
		if (pid == getpid())
			return true;
	}
	return false;
}

/* Sends number to all descendants but those in done. Returns how many there were. */
static size_t descendants_signal(int number, pid_t *done, size_t *n_done)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	size_t n = 0;

	while (dir && (entry = readdir(dir))) {
		pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
		bool is_new = isdigit((unsigned char)entry->d_name[0]) && pid != getpid();

		for (size_t i = 0; i < *n_done && is_new; i++)
			is_new = done[i] != pid;
		if (!is_new || *n_done == PIDS_MAX || !process_is_ours(pid))
			continue;
		(void)kill(pid, number);
		done[(*n_done)++] = pid;
		n++;
	}
	if (dir)
		(void)closedir(dir);
	return n;
}

void run_child_end(const struct run_child *child, int number)
{
	static pid_t done[PIDS_MAX];
	size_t n_done = 0;

	for (int i = 0; i < KILL_ROUNDS; i++) {
		if (!descendants_signal(number, done, &n_done) || number != SIGKILL)
			break;
	}
	/* A command that is stopped would not hear of it. */
	if (child->pid > 0)
		(void)kill(child->pid, SIGCONT);
}

void run_child_die(int number)
{
	const struct rlimit none = {0, 0};
	sigset_t one;

	(void)fflush(NULL);
	(void)setrlimit(RLIMIT_CORE, &none);
	(void)signal(number, SIG_DFL);
	(void)sigemptyset(&one);
	(void)sigaddset(&one, number);
	(void)raise(number);
	(void)sigprocmask(SIG_UNBLOCK, &one, NULL);
}
