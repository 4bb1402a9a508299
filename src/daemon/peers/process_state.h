/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_PROCESS_STATE_H
#define NVS_DAEMON_PROCESS_STATE_H

/*
 * Whether a process can answer, as the kernel tells: by /proc and by its control groups.
 *
 * Threading: none.
 */

#include <sys/types.h>

enum process_state {
	PROCESS_GOES_ON,
	PROCESS_STOPPED, /* by a signal (Ctrl-Z) or a debugger */
	PROCESS_FROZEN,  /* its control group is frozen (docker pause) */
	PROCESS_SILENT,  /* it cannot be seen, and has not answered a question for long */
	PROCESS_UNSEEN /* of another pid namespace, or of control groups that are not shown here */
};

/* proc: "/proc"; cgroup: "/sys/fs/cgroup". Never PROCESS_SILENT. */
enum process_state process_state(const char *proc, const char *cgroup, pid_t pid);

#endif
