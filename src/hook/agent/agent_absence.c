/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A program without a scheduler: the reason, the one line that says it, and the time of the next
 * try. A process prints each reason once, and a forked child does not repeat it.
 */

#include "hook/agent/agent_private.h"
#include "hook/base/descriptors.h"
#include "hook/base/hook_log.h"
#include "hook/base/hook_options.h"
#include "hook/memory/budget.h"
#include "util/clock.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define ABSENCE_BACKOFF_NS_MAX  CLOCK_NS_PER_SEC /* shorter than a restarted scheduler's grace */
#define ABSENCE_AWAY_NS_MAX     (8 * CLOCK_NS_PER_SEC) /* for one that is there and refuses us */
#define ABSENCE_BUSY_NS         (2 * CLOCK_NS_PER_SEC) /* agent.h says so, too */
#define ABSENCE_NAP_NS          (20 * CLOCK_NS_PER_MS)
#define ABSENCE_STEADY_NS       (10 * CLOCK_NS_PER_SEC)
#define ABSENCE_MISTRUST_NS_MAX (60 * CLOCK_NS_PER_SEC)
#define ABSENCE_MISTRUST_GROWS  4

#define SOCKET_PATH "%s/" NVSHARE_SOCK_NAME

/*
 * The bell's two, a connection, a handover socket, two for looks into /proc, and some for memory
 * that is handed over. The driver needs the rest: memory that cannot come back for want of one
 * keeps other clients waiting.
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

/* Where nvshare is not used at all, nothing of it goes into logs and pipes. */
static void absence_tell_no_socket(const char *dir, uint32_t error)
{
	bool is_there = error != ENOENT;

	if (!hook_log_enabled() && !isatty(STDERR_FILENO))
		return;
	hook_warn_once("no scheduler at " SOCKET_PATH "%s%s%s: this program runs without nvshare. "
		       "Start nvshare-scheduler, or set NVSHARE_SOCK_DIR.",
		       dir, is_there ? " (" : "", is_there ? strerror((int)error) : "",
		       is_there ? ")" : "");
}

static void absence_tell_version(const char *dir, uint32_t version)
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
		absence_tell_no_socket(dir, detail);
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
		absence_tell_version(dir, detail);
		return;
	case AGENT_ABSENCE_DESCRIPTORS:
		hook_warn_once("file descriptors are short (RLIMIT_NOFILE): this program runs "
			       "without nvshare. Raise the limit (ulimit -n), or close some.");
		return;
	}
}

void agent_absence_retry(struct agent_link *link)
{
	uint64_t max_ns = link->is_away ? ABSENCE_AWAY_NS_MAX : ABSENCE_BACKOFF_NS_MAX;

	if (link->backoff_ns > max_ns)
		link->backoff_ns = max_ns;
	link->retry_ns =
		clock_now_ns() +
		(link->backoff_ns > link->mistrust_ns ? link->backoff_ns : link->mistrust_ns);
	link->backoff_ns *= 2;
}

/*
 * A stopped program that is registered waits for its turn, and does not restore itself. A scheduler
 * that registers it and fails, again and again, would keep it stopped for ever. So the pauses
 * outgrow the usual NVSHARE_ORPHAN_TIMEOUT_SEC, until the program runs.
 */
void agent_absence_mistrust(struct agent_link *link)
{
	bool has_failed = link->is_wrong || clock_now_ns() - link->up_ns < ABSENCE_STEADY_NS;

	link->is_wrong = false;
	if (!has_failed)
		link->mistrust_ns = 0;
	else if (!link->mistrust_ns)
		link->mistrust_ns = AGENT_BACKOFF_NS_MIN;
	else if (link->mistrust_ns < ABSENCE_MISTRUST_NS_MAX)
		link->mistrust_ns *= ABSENCE_MISTRUST_GROWS;
}

/* No scheduler takes us. The program goes on without, unless it is told not to. */
void agent_absence_settle(struct agent_link *link)
{
	if (!hook_options()->require_scheduler) {
		agent_settle(link->dev, CUDA_SUCCESS);
		return;
	}
	if (!link->is_refused)
		hook_warn_once("NVSHARE_REQUIRE_SCHEDULER is set and no nvshare-scheduler answers; "
			       "the program gets CUDA_ERROR_SYSTEM_NOT_READY");
	agent_settle(link->dev, CUDA_ERROR_SYSTEM_NOT_READY);
}

/* Once for each scheduler that is lost. More often would keep the program waiting for ever. */
void agent_absence_miss(struct agent_link *link)
{
	if (!link->is_missed)
		budget_lost(link->dev);
	link->is_missed = true;
}

/*
 * A scheduler without time or room at the moment has some soon, so a thread that makes a context
 * goes on waiting. Later the pauses grow, since all programs may be trying. true: try again soon.
 */
static bool absence_may_nap(struct agent_link *link, enum agent_absence why)
{
	uint64_t now_ns = clock_now_ns(), nap_ns = ABSENCE_NAP_NS / 2 + now_ns % ABSENCE_NAP_NS;

	if (link->is_away || (why != AGENT_ABSENCE_BUSY && why != AGENT_ABSENCE_TURNED_AWAY))
		return false;
	if (!link->busy_ns)
		link->busy_ns = now_ns + ABSENCE_BUSY_NS;
	/* Closing a connection is work for the scheduler, too. */
	if (why == AGENT_ABSENCE_TURNED_AWAY)
		nap_ns += AGENT_BACKOFF_NS_MIN;
	link->retry_ns = now_ns + nap_ns;
	return link->retry_ns < link->busy_ns;
}

/* A program that has lost a scheduler knows of it. REQUIRE_SCHEDULER has a line of its own. */
static bool absence_is_news(const struct agent_link *link, enum agent_absence why)
{
	return why != AGENT_ABSENCE_NO_SOCKET ||
	       (!link->was_registered && !hook_options()->require_scheduler);
}

void agent_absence_begin(struct agent_link *link, enum agent_absence why, uint32_t detail)
{
	if (absence_may_nap(link, why)) {
		link->state = AGENT_LINK_BUSY;
		return;
	}
	link->state = AGENT_LINK_DOWN;
	link->busy_ns = 0;
	link->is_away = why != AGENT_ABSENCE_NO_SOCKET;
	if (link->is_away && !link->is_refused && why != AGENT_ABSENCE_DESCRIPTORS)
		agent_absence_miss(link); /* there is a scheduler */
	if (absence_is_news(link, why))
		agent_absence_tell(why, detail);
	agent_absence_retry(link);
	agent_absence_settle(link);
}
