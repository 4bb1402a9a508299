/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_KIN_H
#define NVS_DAEMON_KIN_H

/*
 * Which processes could read each other's memory without our help: those of the same user
 * and group in the same user, pid, mount, network and IPC namespaces. Only between them GPU
 * memory goes with its contents.
 *
 * Threading: any thread. Needs /proc; what can not be found out means no.
 */

#include <stdbool.h>
#include <sys/types.h>

#define KIN_SPACES 5

struct kin {
	bool is_known;
	uid_t uid;
	gid_t gid;
	struct {
		dev_t dev;
		ino_t ino;
	} spaces[KIN_SPACES];
};

/* Looks at process pid now; the caller says whose it is, and that it is still the same one. */
void kin_read(pid_t pid, uid_t uid, gid_t gid, struct kin *ret);

bool kin_are(const struct kin *a, const struct kin *b);

#endif
