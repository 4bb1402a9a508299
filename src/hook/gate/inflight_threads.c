/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/gate/inflight_threads.h"

#include "util/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define INFLIGHT_PAUSE_NS 50000

static bool is_same(const struct gate_guest *a, const struct gate_guest *b)
{
	return a->tid == b->tid && a->n_visits == b->n_visits;
}

static size_t find(const struct inflight_threads *settle, const struct gate_guest *guest)
{
	size_t i = 0;

	while (i < settle->n && !is_same(&settle->last[i].guest, guest))
		i++;
	return i;
}

static bool has_settled(const struct inflight_sight *first, const struct inflight_sight *last,
			const struct inflight_sight *now)
{
	if (now->guest.is_walking)
		return false;
	if (now->cpu_ns - first->cpu_ns >= INFLIGHT_CPU_NS)
		return true;
	if (now->state == INFLIGHT_BLOCKED)
		return now->cpu_ns == first->cpu_ns &&
		       now->at_ns - first->at_ns >= INFLIGHT_BLOCKED_NS;
	/* Awake in between, it may have come from a lock to where it looks addresses up. */
	return last->state == INFLIGHT_ASLEEP && now->state == INFLIGHT_ASLEEP &&
	       now->cpu_ns == last->cpu_ns;
}

bool inflight_look(struct inflight_threads *settle, const struct inflight_sight *sights, size_t n)
{
	static struct inflight_threads next; /* too much for a stack */
	bool all = n == settle->n;

	for (size_t i = 0; i < n; i++) {
		size_t at = find(settle, &sights[i].guest);
		bool is_known = at < settle->n;

		next.first[i] = is_known ? settle->first[at] : sights[i];
		next.last[i] = sights[i];
		all = all && is_known &&
		      has_settled(&settle->first[at], &settle->last[at], &sights[i]);
	}
	settle->n = n;
	memcpy(settle->first, next.first, n * sizeof(next.first[0]));
	memcpy(settle->last, next.last, n * sizeof(next.last[0]));
	return all;
}

static uint64_t cpu_ns(pid_t tid)
{
	/* The clock of any thread of the process, as pthread_getcpuclockid() makes it. */
	clockid_t clock = (clockid_t)((~(unsigned int)tid << 3) | 6);
	struct timespec t;

	if (clock_gettime(clock, &t) < 0)
		return 0;
	return (uint64_t)t.tv_sec * CLOCK_NS_PER_SEC + (uint64_t)t.tv_nsec;
}

/* Who can not be looked at counts as asleep: that is what all in the driver are, in time. */
static enum inflight_state state_of(pid_t tid)
{
	char path[48], text[128];
	const char *state;
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return INFLIGHT_ASLEEP;
	n = read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	text[n > 0 ? n : 0] = '\0';
	state = strrchr(text, ')');
	if (!state || strlen(state) < 3 || state[2] == 'S')
		return INFLIGHT_ASLEEP;
	return state[2] == 'R' ? INFLIGHT_RUNNABLE : INFLIGHT_BLOCKED;
}

static bool look(struct inflight_threads *settle)
{
	static struct gate_guest guests[INFLIGHT_MAX];
	static struct inflight_sight sights[INFLIGHT_MAX];
	size_t n = gate_guests(guests, INFLIGHT_MAX);

	if (n > INFLIGHT_MAX)
		return false;
	for (size_t i = 0; i < n; i++) {
		sights[i].guest = guests[i];
		/* In this order: who sleeps afterwards has had no more than that. */
		sights[i].state = state_of(guests[i].tid);
		sights[i].cpu_ns = cpu_ns(guests[i].tid);
		sights[i].at_ns = clock_now_ns();
	}
	return inflight_look(settle, sights, n);
}

bool inflight_wait(uint64_t limit_ns)
{
	uint64_t end_ns = clock_now_ns() + limit_ns;
	static struct inflight_threads settle;
	int saved_errno = errno;
	bool is_settled;

	settle.n = 0;
	while (!(is_settled = look(&settle)) && clock_now_ns() < end_ns)
		clock_nap(INFLIGHT_PAUSE_NS);
	errno = saved_errno;
	return is_settled;
}
