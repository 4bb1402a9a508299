/* SPDX-License-Identifier: Apache-2.0 */

#include "virtual_clock.h"

#include "util/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#define START_NS   (1000 * CLOCK_NS_PER_SEC)
#define LOOK_NS    20000                     /* real time between two looks, */
#define LOOK_MAX   (CLOCK_NS_PER_MS / 2)     /* which grows to this */
#define STUCK_NS   (60 * CLOCK_NS_PER_SEC)   /* real time in which nothing moves */
#define LONGEST_NS (7200 * CLOCK_NS_PER_SEC) /* virtual time that no test takes */
#define READS_MAX  16                        /* of the clock, while time stands still */
#define AWAKE_NS   5000                      /* which pass then */

/* A wait with an end, on its thread's stack. */
struct sleeper {
	uint64_t end_ns;
	uint32_t is_over; /* a futex; atomic */
	pthread_cond_t *cond;
	uint32_t *word;
	bool is_polling;
	struct sleeper *prev, *next; /* vclock::sleepers */
};

enum ready { NOT_READY, READY, READY_APART /* with descriptors of its own */ };

static struct {
	pthread_mutex_t lock;
	uint64_t now_ns;   /* atomic */
	bool is_virtual;   /* atomic */
	bool is_stopped;   /* atomic */
	int poll_fd;       /* counts the sleepers whose poll() is over */
	uint64_t ahead_ns; /* of real time, where time is real again */
	uint32_t is_ready; /* a futex, atomic; enum ready */
	pid_t hand;
	DIR *tasks; /* /proc/self/task */
	struct sleeper *sleepers;
} vclock = {.lock = PTHREAD_MUTEX_INITIALIZER, .poll_fd = -1};

/* ---- real time ------------------------------------------------------------------------ */

static uint64_t real_now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * CLOCK_NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

static struct timespec timespec_of(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / CLOCK_NS_PER_SEC),
				 .tv_nsec = (long)(ns % CLOCK_NS_PER_SEC)};
}

static void real_nap(uint64_t ns)
{
	const struct timespec time = timespec_of(ns);

	(void)clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
}

static bool is_virtual(void)
{
	return __atomic_load_n(&vclock.is_virtual, __ATOMIC_ACQUIRE);
}

static long futex(uint32_t *word, int op, uint32_t value)
{
	return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

/* A test may have a close() of its own. */
static void real_close(int fd)
{
	(void)syscall(SYS_close, fd);
}

/* ---- do all threads sleep? -------------------------------------------------------------- */

/* Of all threads but the hand. Equal and asleep twice in a row: no thread has run in between. */
struct look {
	uint64_t sum; /* of who they are, and how often each has gone to sleep */
	bool is_asleep;
};

static uint64_t number_after(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

/* The bytes read, or -errno. Past the sanitizer of threads, which knows one table of descriptors.
 */
static long read_file(const char *path, char *text, size_t size)
{
	long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC), n;

	if (fd < 0)
		return -errno;
	n = syscall(SYS_read, fd, text, size);
	real_close((int)fd);
	return n < 0 ? -errno : n;
}

/* A thread that has just ended counts as none. */
static void look_at(const char *tid, struct look *look)
{
	char path[64], text[4096];
	const char *state;
	long n;

	(void)snprintf(path, sizeof(path), "/proc/self/task/%.20s/status", tid);
	n = read_file(path, text, sizeof(text) - 1);
	if (n <= 0) {
		look->is_asleep = look->is_asleep && (!n || n == -ENOENT || n == -ESRCH);
		return;
	}
	text[n] = '\0';
	state = strstr(text, "State:\t");
	if (!state || (state[7] != 'S' && state[7] != 'Z' && state[7] != 'X'))
		look->is_asleep = false;
	look->sum = look->sum * 1000003 + strtoull(tid, NULL, 10);
	look->sum = look->sum * 1000003 + number_after(text, "\nvoluntary_ctxt_switches:\t") +
		    number_after(text, "nonvoluntary_ctxt_switches:\t");
}

static struct look look_at_all(void)
{
	struct look look = {.is_asleep = true};
	const struct dirent *task;

	rewinddir(vclock.tasks);
	while ((task = readdir(vclock.tasks))) {
		if (task->d_name[0] != '.' && atoi(task->d_name) != vclock.hand)
			look_at(task->d_name, &look);
	}
	return look;
}

/* ---- the hand ---------------------------------------------------------------------------- */

/* Lock held. */
static void wake_sleeper(struct sleeper *sleeper)
{
	uint64_t one = 1;

	__atomic_store_n(&sleeper->is_over, 1, __ATOMIC_RELEASE);
	if (sleeper->cond)
		(void)pthread_cond_broadcast(sleeper->cond);
	else if (!sleeper->is_polling)
		(void)futex(sleeper->word ? sleeper->word : &sleeper->is_over, FUTEX_WAKE, INT_MAX);
	else if (write(vclock.poll_fd, &one, sizeof(one)) < 0)
		abort();
}

/* All sleep: the wait that ends first is over, and all that end with it. false: there is none. */
static bool move_on(void)
{
	uint64_t now = CLOCK_NEVER;
	struct sleeper *sleeper;

	pthread_mutex_lock(&vclock.lock);
	DL_FOREACH (vclock.sleepers, sleeper) {
		if (!sleeper->is_over && sleeper->end_ns < now)
			now = sleeper->end_ns;
	}
	if (now < vclock.now_ns)
		now = vclock.now_ns;
	if (now != CLOCK_NEVER) {
		__atomic_store_n(&vclock.now_ns, now, __ATOMIC_RELEASE);
		DL_FOREACH (vclock.sleepers, sleeper) {
			if (!sleeper->is_over && sleeper->end_ns <= now)
				wake_sleeper(sleeper);
		}
	}
	pthread_mutex_unlock(&vclock.lock);
	if (now != CLOCK_NEVER && now > START_NS + LONGEST_NS) {
		(void)fprintf(stderr, "virtual clock: two hours have passed\n");
		_exit(1);
	}
	return now != CLOCK_NEVER;
}

/*
 * The hand has descriptors of its own: a test may count those of the process, use them up, or wait
 * for the end of a connection. true: it has.
 */
static bool part_from_descriptors(void)
{
	if (unshare(CLONE_FILES))
		return false;
	for (int fd = STDERR_FILENO + 1; fd < FD_SETSIZE; fd++) {
		if (fd != dirfd(vclock.tasks) && fd != vclock.poll_fd)
			real_close(fd);
	}
	return true;
}

static void *turn(void *arg)
{
	struct look last = {0}, look;
	uint64_t still_ns = 0, look_ns = LOOK_NS;

	(void)arg;
	(void)prctl(PR_SET_TIMERSLACK, 1ul, 0, 0, 0);
	vclock.hand = gettid();
	__atomic_store_n(&vclock.is_ready, part_from_descriptors() ? READY_APART : READY,
			 __ATOMIC_RELEASE);
	(void)futex(&vclock.is_ready, FUTEX_WAKE, INT_MAX);
	while (!__atomic_load_n(&vclock.is_stopped, __ATOMIC_ACQUIRE)) {
		look = look_at_all();
		if (!look.is_asleep || !last.is_asleep || look.sum != last.sum) {
			still_ns = 0;
			if (!look.is_asleep) {
				real_nap(look_ns);
				look_ns = look_ns < LOOK_MAX ? look_ns * 3 / 2 : LOOK_MAX;
			}
			last = look;
			continue;
		}
		look_ns = LOOK_NS;
		if (move_on()) {
			last.is_asleep = false;
			continue;
		}
		/* A forked child may be at work. */
		still_ns += CLOCK_NS_PER_MS;
		if (still_ns > STUCK_NS) {
			(void)fprintf(stderr, "virtual clock: all wait, and nothing is due\n");
			_exit(1);
		}
		real_nap(CLOCK_NS_PER_MS);
	}
	return NULL;
}

/* The child has neither the hand nor those who slept. */
static void after_fork_child(void)
{
	if (!is_virtual())
		return;
	pthread_mutex_init(&vclock.lock, NULL);
	vclock.sleepers = NULL;
	vclock.ahead_ns = vclock.now_ns - real_now_ns();
	vclock.is_virtual = false;
	vclock.is_ready = NOT_READY;
}

void virtual_clock_start(void)
{
	static bool is_prepared;
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t hand;
	int r;

	if (is_virtual())
		return;
	if (!is_prepared && pthread_atfork(NULL, NULL, after_fork_child))
		abort();
	is_prepared = true;
	if (vclock.poll_fd < 0)
		vclock.poll_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
	vclock.tasks = opendir("/proc/self/task");
	if (!vclock.tasks || vclock.poll_fd < 0)
		abort();
	vclock.now_ns = START_NS;
	__atomic_store_n(&vclock.is_virtual, true, __ATOMIC_RELEASE);
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	r = pthread_create(&hand, &attr, turn, NULL);
	(void)pthread_attr_destroy(&attr);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r)
		abort();
	while (__atomic_load_n(&vclock.is_ready, __ATOMIC_ACQUIRE) == NOT_READY)
		(void)futex(&vclock.is_ready, FUTEX_WAIT, NOT_READY);
	if (vclock.is_ready == READY_APART)
		real_close(dirfd(vclock.tasks)); /* the hand has it */
}

void virtual_clock_stop(void)
{
	__atomic_store_n(&vclock.is_stopped, true, __ATOMIC_RELEASE);
	if (!is_virtual())
		return;
	vclock.ahead_ns = __atomic_load_n(&vclock.now_ns, __ATOMIC_ACQUIRE) - real_now_ns();
	__atomic_store_n(&vclock.is_virtual, false, __ATOMIC_RELEASE);
}

void virtual_clock_skip(uint64_t ns)
{
	pthread_mutex_lock(&vclock.lock);
	__atomic_store_n(&vclock.now_ns, vclock.now_ns + ns, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&vclock.lock);
}

/* ---- in place of util/clock.h ----------------------------------------------------------- */

static void sleeper_begin(struct sleeper *sleeper)
{
	pthread_mutex_lock(&vclock.lock);
	DL_APPEND(vclock.sleepers, sleeper);
	pthread_mutex_unlock(&vclock.lock);
}

static bool sleeper_end(struct sleeper *sleeper)
{
	uint64_t one;

	pthread_mutex_lock(&vclock.lock);
	DL_DELETE(vclock.sleepers, sleeper);
	if (sleeper->is_polling && sleeper->is_over && read(vclock.poll_fd, &one, sizeof(one)) < 0)
		abort();
	pthread_mutex_unlock(&vclock.lock);
	return sleeper->is_over != 0;
}

static void nap_until(uint64_t end_ns)
{
	struct sleeper sleeper = {.end_ns = end_ns};

	sleeper_begin(&sleeper);
	while (!__atomic_load_n(&sleeper.is_over, __ATOMIC_ACQUIRE))
		(void)futex(&sleeper.is_over, FUTEX_WAIT, 0);
	(void)sleeper_end(&sleeper);
}

uint64_t clock_now_ns(void)
{
	static __thread uint64_t last_ns;
	static __thread unsigned int n_reads;
	uint64_t now = __atomic_load_n(&vclock.now_ns, __ATOMIC_ACQUIRE);
	int saved_errno = errno;

	if (!is_virtual())
		return real_now_ns() + vclock.ahead_ns;
	n_reads = now == last_ns ? n_reads + 1 : 0;
	if (n_reads >= READS_MAX) {
		nap_until(now + AWAKE_NS);
		now = __atomic_load_n(&vclock.now_ns, __ATOMIC_ACQUIRE);
		errno = saved_errno;
	}
	last_ns = now;
	return now;
}

static uint64_t virtual_now(void)
{
	return __atomic_load_n(&vclock.now_ns, __ATOMIC_ACQUIRE);
}

void clock_nap(uint64_t ns)
{
	int saved_errno = errno;

	if (is_virtual())
		nap_until(virtual_now() + ns);
	else
		real_nap(ns);
	errno = saved_errno;
}

void virtual_clock_settle(void)
{
	clock_nap(0);
}

int clock_wait_cond(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t end_ns)
{
	struct sleeper sleeper = {.end_ns = end_ns, .cond = cond};
	struct timespec end;

	if (!is_virtual() && end_ns != CLOCK_NEVER) {
		end = timespec_of(end_ns - vclock.ahead_ns);
		return pthread_cond_clockwait(cond, lock, CLOCK_MONOTONIC, &end);
	}
	if (end_ns <= virtual_now())
		return ETIMEDOUT;
	sleeper_begin(&sleeper);
	(void)pthread_cond_wait(cond, lock);
	return sleeper_end(&sleeper) ? ETIMEDOUT : 0;
}

void clock_wait_futex(uint32_t *word, uint32_t value, uint64_t end_ns)
{
	struct sleeper sleeper = {.end_ns = end_ns, .word = word};
	struct timespec end;

	if (!is_virtual()) {
		end = timespec_of(end_ns - vclock.ahead_ns);
		(void)syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value,
			      end_ns == CLOCK_NEVER ? NULL : &end, NULL, FUTEX_BITSET_MATCH_ANY);
		return;
	}
	if (end_ns <= virtual_now())
		return;
	sleeper_begin(&sleeper);
	(void)futex(word, FUTEX_WAIT, value);
	(void)sleeper_end(&sleeper);
}

#define POLLED_MAX 256

/* The sleeper's own end is one more descriptor to look at. */
static int poll_and_sleep(struct pollfd *fds, nfds_t n, uint64_t end_ns)
{
	struct sleeper sleeper = {.end_ns = end_ns, .is_polling = true};
	struct pollfd all[POLLED_MAX];
	int r;

	if (n >= POLLED_MAX)
		abort();
	memcpy(all, fds, n * sizeof(all[0]));
	all[n] = (struct pollfd){.fd = vclock.poll_fd, .events = POLLIN};
	sleeper_begin(&sleeper);
	do {
		r = poll(all, n + 1, -1);
		if (r > 0 && all[n].revents)
			r--;
		/* Else it is another sleeper's end. */
	} while (r == 0 && !__atomic_load_n(&sleeper.is_over, __ATOMIC_ACQUIRE));
	(void)sleeper_end(&sleeper);
	memcpy(fds, all, n * sizeof(all[0]));
	return r;
}

int clock_poll(struct pollfd *fds, nfds_t n, uint64_t end_ns)
{
	uint64_t now = end_ns == CLOCK_NEVER ? 0 : clock_now_ns();
	const struct timespec left = timespec_of(end_ns > now ? end_ns - now : 0);

	if (!is_virtual() || end_ns <= now)
		return ppoll(fds, n, end_ns == CLOCK_NEVER ? NULL : &left, NULL);
	return poll_and_sleep(fds, n, end_ns);
}
