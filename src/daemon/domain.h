/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_DOMAIN_H
#define NVS_DAEMON_DOMAIN_H

/*
 * The trust domain of a process: what the kernel asks for before one process may read the
 * memory of another. Two processes of the same domain could read each other's memory
 * without our help, so GPU memory may go from one to the other with its contents.
 *
 * A domain is of the moment: a process can drop privileges at any time. So it is read when
 * memory is about to be handed over, and never kept. Anything that /proc does not tell means no.
 *
 * The kernel also asks security modules that show nothing in /proc: Landlock, and Yama's
 * ptrace_scope. They are not looked at; a program that they are to protect from others of its
 * own user sets NVSHARE_TRANSFER=0 or PR_SET_DUMPABLE 0.
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
	int pidfd; /* of this process for sure; it must not have ended when all has been read */
	uid_t uid; /* as its connection says: it must still be all of its uids */
};

struct domain {
	struct {
		dev_t dev;
		ino_t ino;
	} spaces[DOMAIN_SPACES];
	/* Ids, groups, capabilities and the like of /proc/PID/status; LSM labels. */
	size_t n_text;
	char text[DOMAIN_TEXT_MAX];
};

/*
 * proc: "/proc". true: *ret is the process's domain. false: it has none, since not even
 * another process like it may read its memory, or since something can not be known.
 */
bool domain_read(const char *proc, const struct domain_process *process, struct domain *ret);

bool domain_is_same(const struct domain *a, const struct domain *b);

#endif
