/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_DOMAIN_H
#define NVS_DAEMON_DOMAIN_H

/*
 * The trust domain of a process: all that the kernel checks before one process may read the
 * memory of another. Two processes of one domain could read each other's memory without our help.
 * So GPU memory may go from one to the other with its contents.
 *
 * A process can drop privileges at any time. So its domain is read when memory is about to be
 * handed over, and never kept. Anything that /proc does not tell means no.
 *
 * The kernel also asks security modules that show nothing in /proc: Landlock, and Yama's
 * ptrace_scope. They are not read here. A program that they protect from others of its own user
 * sets NVSHARE_TRANSFER=0 or PR_SET_DUMPABLE 0.
 *
 * Threading: one thread at a time. Reads some ten files of /proc.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define DOMAIN_SPACES   6
#define DOMAIN_TEXT_MAX 4096

struct domain_process {
	pid_t pid;
	int pidfd; /* surely of this process; the process must not have ended when all has been read
		    */
	uid_t uid; /* of its connection; all uids of the process must still be this one */
};

struct domain {
	struct {
		dev_t dev;
		ino_t ino;
	} spaces[DOMAIN_SPACES];
	/*
	 * Ids, groups, capabilities and the like from /proc/PID/status; labels of security
	 * modules.
	 */
	size_t n_text;
	char text[DOMAIN_TEXT_MAX];
};

/*
 * proc: "/proc". true: *ret is the domain of process. false: process has none: not even another
 * process like it may read its memory, or /proc does not tell.
 */
bool domain_read(const char *proc, const struct domain_process *process, struct domain *ret);

bool domain_is_same(const struct domain *a, const struct domain *b);

#endif
