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

/* The agent's thread alone. Static, because it is too large for a stack. */
static struct {
	struct inflight_threads threads;
	struct inflight_threads next;
	struct gate_guest guests[INFLIGHT_MAX];
	struct inflight_sight sights[INFLIGHT_MAX];
} inflight;

static bool guest_is_same(const struct gate_guest *a, const struct gate_guest *b)
{
	return a->tid == b->tid && a->n_visits == b->n_visits;
}

/* threads->n: it was not there. */
static size_t guest_index(const struct inflight_threads *threads, const struct gate_guest *guest)
{
	size_t i = 0;

	while (i < threads->n && !guest_is_same(&threads->last[i].guest, guest))
		i++;
	return i;
}

static bool guest_has_settled(const struct inflight_sight *first, const struct inflight_sight *last,
			      const struct inflight_sight *now)
{
	if (now->guest.is_walking)
		return false;
	if (now->cpu_ns - first->cpu_ns >= INFLIGHT_CPU_NS)
		return true;
	if (now->state == INFLIGHT_BLOCKED)
		return now->cpu_ns == first->cpu_ns &&
		       now->at_ns - first->at_ns >= INFLIGHT_BLOCKED_NS;
	/* A thread that was awake in between may have got its lock, and look addresses up now. */
	return last->state == INFLIGHT_ASLEEP && now->state == INFLIGHT_ASLEEP &&
	       now->cpu_ns == last->cpu_ns;
}

bool inflight_look(struct inflight_threads *threads, const struct inflight_sight *sights, size_t n)
{
	struct inflight_threads *next = &inflight.next;
	bool all = n == threads->n;

	for (size_t i = 0; i < n; i++) {
		size_t at = guest_index(threads, &sights[i].guest);
		bool is_known = at < threads->n;

		next->first[i] = is_known ? threads->first[at] : sights[i];
		next->last[i] = sights[i];
		all = all && is_known &&
		      guest_has_settled(&threads->first[at], &threads->last[at], &sights[i]);
	}
	threads->n = n;
	memcpy(threads->first, next->first, n * sizeof(next->first[0]));
	memcpy(threads->last, next->last, n * sizeof(next->last[0]));
	return all;
}

static uint64_t thread_cpu_ns(pid_t tid)
{
	/* pthread_getcpuclockid() makes it so, from a pthread_t that we lack. */
	clockid_t clock = (clockid_t)((~(unsigned int)tid << 3) | 6);
	struct timespec t;

	if (clock_gettime(clock, &t) < 0)
		return 0;
	return (uint64_t)t.tv_sec * CLOCK_NS_PER_SEC + (uint64_t)t.tv_nsec;
}

/* A thread that cannot be looked at counts as asleep. In the driver all sleep sooner or later. */
static enum inflight_state thread_state(pid_t tid)
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

static bool inflight_look_now(void)
{
	size_t n = gate_guests(inflight.guests, INFLIGHT_MAX);

	if (n > INFLIGHT_MAX)
		return false;
	for (size_t i = 0; i < n; i++) {
		struct inflight_sight *sight = &inflight.sights[i];

		sight->guest = inflight.guests[i];
		/* The state first: a thread that sleeps in it gets no CPU time before the next
		 * line. */
		sight->state = thread_state(sight->guest.tid);
		sight->cpu_ns = thread_cpu_ns(sight->guest.tid);
		sight->at_ns = clock_now_ns();
	}
	return inflight_look(&inflight.threads, inflight.sights, n);
}

bool inflight_wait(uint64_t limit_ns)
{
	uint64_t end_ns = clock_now_ns() + limit_ns;
	int saved_errno = errno;
	bool is_settled;

	inflight.threads.n = 0;
	while (!(is_settled = inflight_look_now()) && clock_now_ns() < end_ns)
		clock_nap(INFLIGHT_PAUSE_NS);
	errno = saved_errno;
	return is_settled;
}
