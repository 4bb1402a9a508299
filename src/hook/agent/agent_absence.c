/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A program without a scheduler: why it has none, and the one line that says so. Each reason
 * is said once a process; a forked child inherits that it was said.
 */

#include "hook/agent/agent_private.h"
#include "hook/descriptors.h"
#include "hook/hook_log.h"
#include "hook/hook_options.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define SOCKET_PATH "%s/" NVSHARE_SOCK_NAME

/*
 * The wake-up, a connection, a door, two for looks into /proc, and some for what is handed over.
 * The rest is the driver's: memory that can not come back for want of one keeps others waiting.
 */
#define ABSENCE_DESCRIPTORS 16

bool agent_absence_has_descriptors(void)
{
	return descriptors_has(ABSENCE_DESCRIPTORS);
}

enum agent_absence agent_absence_of(int error)
{
	switch (error) {
	case EAGAIN:
		return AGENT_ABSENCE_BUSY;
	case EMFILE:
	case ENFILE:
		return AGENT_ABSENCE_DESCRIPTORS;
	default:
		return AGENT_ABSENCE_NO_SOCKET;
	}
}

/* Where nvshare is not used at all, logs and pipes hear nothing of it. */
static void tell_no_socket(const char *dir, uint32_t error)
{
	bool is_there = error != ENOENT;

	if (!hook_log_enabled() && !isatty(STDERR_FILENO))
		return;
	hook_warn_once("no scheduler at " SOCKET_PATH "%s%s%s: this program runs without nvshare. "
		       "Start nvshare-scheduler, or set NVSHARE_SOCK_DIR.",
		       dir, is_there ? " (" : "", is_there ? strerror((int)error) : "",
		       is_there ? ")" : "");
}

static void tell_version(const char *dir, uint32_t version)
{
	hook_warn_once("the scheduler at " SOCKET_PATH " speaks version %u of the protocol, this "
		       "library version %u: this program runs without nvshare. %s",
		       dir, version, NVSHARE_PROTOCOL_VERSION,
		       version > NVSHARE_PROTOCOL_VERSION
			       ? "Restart it with the library of the scheduler's release."
			       : "Upgrade nvshare-scheduler to the library's release.");
}

void agent_absence_tell(enum agent_absence why, uint32_t detail)
{
	const char *dir = hook_options()->sock_dir;

	switch (why) {
	case AGENT_ABSENCE_NONE:
		return;
	case AGENT_ABSENCE_NO_SOCKET:
		tell_no_socket(dir, detail);
		return;
	case AGENT_ABSENCE_BUSY:
		hook_warn_once("the scheduler at " SOCKET_PATH " is too busy to take connections: "
			       "this program runs without nvshare until it is let in",
			       dir);
		return;
	case AGENT_ABSENCE_TURNED_AWAY:
		hook_warn_once("the scheduler at " SOCKET_PATH " closes the connection without an "
			       "answer (too many of them, or its protocol is not version %u): this "
			       "program runs without nvshare until it is let in",
			       dir, NVSHARE_PROTOCOL_VERSION);
		return;
	case AGENT_ABSENCE_SILENT:
		hook_warn_once("the scheduler at " SOCKET_PATH " does not answer: this program "
			       "runs without nvshare until it does",
			       dir);
		return;
	case AGENT_ABSENCE_FULL:
		hook_warn_once("the scheduler did not take this program (too many clients); "
			       "it runs unmanaged until there is a place");
		return;
	case AGENT_ABSENCE_GPU:
		hook_warn_once("the scheduler did not take this program (unknown GPU); "
			       "it runs unmanaged");
		return;
	case AGENT_ABSENCE_VERSION:
		tell_version(dir, detail);
		return;
	case AGENT_ABSENCE_DESCRIPTORS:
		hook_warn_once("file descriptors are short (RLIMIT_NOFILE): this program runs "
			       "without nvshare. Raise the limit (ulimit -n), or close some.");
		return;
	}
}
