/* SPDX-License-Identifier: Apache-2.0 */

/*
 * From a latency-critical program's request to the hold of the one that computes beside it,
 * through the real nvshare-scheduler, with two clients on the wire and more that are idle.
 *
 *   told     from just before the critical client's BEGIN is sent until the other one has
 *            read the SET_SHARE that holds it, which it would now obey
 *   CPU      of the scheduler's process a request, its end included
 *
 * In a program a thread's way to the library's agent comes on top, one wake-up. The target of
 * the whole way is 150 us, the freezing itself not counted.
 */

#include "ipc/sock.h"
#include "timing.h"
#include "util/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_MS 30000
#define N_REQUESTS  2000
#define N_WARM      200
#define CLIENTS_MAX 1002
#define NOT_HELD_MS 20      /* then slices have been tried instead */
#define PAUSE_NS    1000000 /* between requests, so that the critical have no more than their part */
#define SHORT_NS    1000000  /* a request that held others took so long, it says */
#define LONG_NS     50000000 /* and one that did not: so holding is what is learned */

static const size_t sizes[] = {2, 6, 100, 1000};

static char dir[] = "/tmp/nvshare-bench-XXXXXX";
static char scheduler[4096];
static pid_t pid;
static int fds[CLIENTS_MAX];
static uint64_t told_ns[N_REQUESTS];
static bool is_held[CLIENTS_MAX];

static void clear(void)
{
	static const char *const names[] = {"scheduler.sock", "scheduler.lock"};
	char path[128];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		(void)unlink(path);
	}
	(void)rmdir(dir);
}

__attribute__((noreturn)) static void give_up(const char *what, int error)
{
	fprintf(stderr, "bench_fast: %s: %s\n", what, strerror(error));
	if (pid > 0)
		(void)kill(pid, SIGKILL);
	clear();
	exit(1);
}

static void send_body(size_t i, uint16_t type, const void *body)
{
	struct msg msg;
	int r;

	(void)msg_encode(type, 0, body, &msg);
	r = sock_send(fds[i], &msg);
	if (r)
		give_up("send", -r);
}

/* false: nothing came in time. */
static bool receive_within(size_t i, int patience_ms, struct msg *ret_msg)
{
	struct pollfd pfd = {.fd = fds[i], .events = POLLIN};
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX];
	ssize_t n;

	if (poll(&pfd, 1, patience_ms) != 1)
		return false;
	n = sock_recv(fds[i], bytes, sizeof(bytes));
	if (n <= 0)
		give_up("receive", n < 0 ? (int)-n : EPIPE);
	if (msg_decode(bytes, (size_t)n, MSG_TO_CLIENT, ret_msg))
		give_up("receive", EPROTO);
	return true;
}

static struct msg receive(size_t i)
{
	struct msg msg;

	if (!receive_within(i, PATIENCE_MS, &msg))
		give_up("receive", ETIMEDOUT);
	return msg;
}

/* What it is told it does, and says so. */
static void obey(size_t i, const struct msg *msg)
{
	const struct nvshare_set_share *set = &msg->body.set_share;
	struct nvshare_share_set body = {.seq = set->seq, .is_held = set->hold_us > 0};

	if (msg->header.type != NVSHARE_MSG_SET_SHARE)
		return;
	is_held[i] = set->hold_us > 0;
	send_body(i, NVSHARE_MSG_SHARE_SET, &body);
}

static void hear(size_t i, int patience_ms)
{
	struct msg msg;

	while (receive_within(i, patience_ms, &msg))
		obey(i, &msg);
}

static void do_activity(size_t i, uint32_t kind, uint64_t value)
{
	struct nvshare_activity body = {.kind = kind, .value = value};

	send_body(i, NVSHARE_MSG_ACTIVITY, &body);
}

static void join(size_t i, uint32_t priority)
{
	struct nvshare_register reg = {.gpu_uuid = {1}, .gpu_total_bytes = 1ull << 40};
	uint64_t end_ns = clock_now_ns() + PATIENCE_MS * CLOCK_NS_PER_MS;

	reg.claim = (struct nvshare_claim){.priority = priority, .weight = 100};
	while ((fds[i] = sock_connect(dir)) < 0 && clock_now_ns() < end_ns)
		(void)poll(NULL, 0, 1);
	if (fds[i] < 0)
		give_up("connect", -fds[i]);
	send_body(i, NVSHARE_MSG_REGISTER, &reg);
	while (receive(i).header.type != NVSHARE_MSG_REGISTERED)
		;
	send_body(i, NVSHARE_MSG_REQ_LOCK, NULL);
	while (receive(i).header.type != NVSHARE_MSG_LOCK_OK)
		;
}

static void start(size_t n)
{
	pid = fork();
	if (pid < 0)
		give_up("fork", errno);
	if (pid == 0) {
		int fd = open("/dev/null", O_RDWR);

		(void)dup2(fd, 1);
		(void)dup2(fd, 2);
		(void)execl(scheduler, scheduler, (char *)NULL);
		_exit(127);
	}
	join(0, NVSHARE_PRIORITY_CRITICAL);
	for (size_t i = 1; i < n; i++)
		join(i, NVSHARE_PRIORITY_NORMAL);
	for (size_t i = 0; i < n; i++)
		hear(i, i ? 0 : 20);
}

static void stop(size_t n)
{
	for (size_t i = 0; i < n; i++)
		(void)close(fds[i]);
	(void)kill(pid, SIGTERM);
	(void)waitpid(pid, NULL, 0);
	pid = 0;
}

/* 0: slices were tried. */
static uint64_t request(void)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	uint64_t start_ns = clock_now_ns(), at_ns = 0;
	struct msg msg;

	do_activity(0, NVSHARE_ACTIVITY_BEGIN, 0);
	while (!is_held[1] && receive_within(1, NOT_HELD_MS, &msg)) {
		at_ns = clock_now_ns();
		obey(1, &msg);
	}
	if (!is_held[1])
		at_ns = 0;
	do_activity(0, NVSHARE_ACTIVITY_END, at_ns ? SHORT_NS : LONG_NS);
	while (is_held[1]) {
		msg = receive(1);
		obey(1, &msg);
	}
	hear(0, 0);
	(void)nanosleep(&pause, NULL);
	return at_ns ? at_ns - start_ns : 0;
}

static uint64_t cpu_ns(void)
{
	unsigned long long ns = 0;
	char path[64];
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)pid);
	file = fopen(path, "r");
	if (!file || fscanf(file, "%llu", &ns) != 1)
		give_up(path, errno);
	(void)fclose(file);
	return ns;
}

/* The median, us. */
static double measure(size_t n, double first_us)
{
	size_t n_told = 0;
	uint64_t before;
	double cpu_us;

	start(n);
	do_activity(1, NVSHARE_ACTIVITY_BUSY, 0);
	for (int k = 0; k < N_WARM; k++) {
		(void)request();
		for (size_t i = 2; i < n; i++)
			hear(i, 0);
	}
	before = cpu_ns();
	for (int k = 0; k < N_REQUESTS; k++) {
		uint64_t ns = request();

		if (ns)
			told_ns[n_told++] = ns;
	}
	cpu_us = (double)(cpu_ns() - before) / N_REQUESTS / 1000;
	stop(n);
	if (n_told < N_REQUESTS / 2)
		give_up("nobody was held", EPROTO);
	timing_sort(told_ns, n_told);
	if (!first_us)
		first_us = (double)told_ns[n_told / 2] / 1000;
	printf("%8zu  %8.1f  %8.1f  %8.1f  %8.1f  %10.2f\n", n, cpu_us,
	       (double)told_ns[n_told / 2] / 1000, (double)told_ns[n_told / 100 * 99] / 1000,
	       (double)told_ns[n_told - 1] / 1000, (double)told_ns[n_told / 2] / 1000 / first_us);
	(void)fflush(stdout);
	return first_us;
}

int main(int argc, char **argv)
{
	double first_us = 0;
	struct rlimit limit;
	char own[4096];

	(void)argc;
	(void)snprintf(own, sizeof(own), "%s", argv[0]);
	(void)snprintf(scheduler, sizeof(scheduler), "%.4000s/../../nvshare-scheduler",
		       dirname(own));
	if (access(scheduler, X_OK) < 0)
		give_up(scheduler, errno);
	if (!mkdtemp(dir))
		give_up(dir, errno);
	(void)setenv("NVSHARE_SOCK_DIR", dir, 1);
	(void)setenv("NVSHARE_HTTP_ADDRESS", "0", 1);
	(void)setenv("NVSHARE_HOLD_MAX_MS", "60000", 1); /* renewing them is not what is measured */
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
	printf("a critical client's request until the other one is told to be off, %d each"
	       " (target 150 us)\n clients   CPU, us   p50, us   p99, us   max, us   p50 ratio\n",
	       N_REQUESTS);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		first_us = measure(sizes[i], first_us);
	clear();
	return 0;
}
