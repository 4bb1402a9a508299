/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What a decision of the real nvshare-scheduler costs, for 2 to 10,000 clients that all
 * want the one GPU: the holder gives it up and asks again, the next is served.
 *
 *   CPU       of the scheduler's process, from /proc/PID/schedstat
 *   calls     its system calls, counted by strace in a run of its own
 *   hand-over from just before the holder's LOCK_RELEASED is sent until the next one has
 *             read its LOCK_OK, two processes on two cores
 *
 * The targets (row F4): 5 calls, 32 us CPU, 28 us at the median for two clients.
 */

#include "ipc/sock.h"
#include "util/clock.h"
#include "util/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define DECISIONS        20000
#define DECISIONS_TRACED 2000
#define PATIENCE_MS      30000

static const size_t sizes[] = {2, 100, 1000, 10000};
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

struct bench {
	char dir[64];
	char scheduler[4096];
	pid_t pid;
	int *fds;
	size_t n;
	size_t holder;
	uint64_t grant;
	uint64_t epoch;
	uint64_t *latency_ns;
};

struct row {
	double cpu_us;
	double calls; /* negative: not counted */
	double p50_us;
	double p99_us;
};

__attribute__((noreturn)) static void give_up(const struct bench *bench, const char *what)
{
	fprintf(stderr, "bench_sched: %s: %s\n", what, strerror(errno));
	if (bench->pid > 0)
		kill(bench->pid, SIGKILL);
	exit(1);
}

static pid_t spawn(const struct bench *bench, const char *const *argv)
{
	pid_t pid = fork();

	if (pid < 0)
		give_up(bench, "fork");
	if (pid == 0) {
		int fd = open("/dev/null", O_RDWR);

		(void)dup2(fd, 1);
		(void)dup2(fd, 2);
		(void)execvp(argv[0], (char *const *)(uintptr_t)argv); /* it does not write */
		_exit(127);
	}
	return pid;
}

/* The next message of that type to client i; what else comes is dropped. */
static struct msg receive(const struct bench *bench, size_t i, uint16_t type)
{
	struct pollfd pfd = {.fd = bench->fds[i], .events = POLLIN};
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX];
	struct msg msg;

	for (;;) {
		ssize_t n;

		if (poll(&pfd, 1, PATIENCE_MS) != 1)
			give_up(bench, "no answer");
		n = sock_recv(bench->fds[i], bytes, sizeof(bytes));
		if (n <= 0 || msg_decode(bytes, (size_t)n, MSG_TO_CLIENT, &msg))
			give_up(bench, "connection");
		if (msg.header.type == type)
			return msg;
	}
}

static void send_body(const struct bench *bench, size_t i, uint16_t type, const void *body)
{
	struct msg msg;

	(void)msg_encode(type, 0, body, &msg);
	if (sock_send(bench->fds[i], &msg))
		give_up(bench, "send");
}

static void take_grant(struct bench *bench, size_t i)
{
	struct msg msg = receive(bench, i, NVSHARE_MSG_LOCK_OK);

	bench->holder = i;
	bench->grant = msg.body.lock_ok_5.grant;
	bench->epoch = msg.body.lock_ok_5.epoch;
}

static void start(struct bench *bench)
{
	const char *argv[] = {bench->scheduler, NULL};
	struct nvshare_register reg = {.gpu_uuid = {1}, .gpu_total_bytes = 1ull << 36};

	bench->pid = spawn(bench, argv);
	for (size_t i = 0; i < bench->n; i++) {
		uint64_t end_ns = clock_now_ns() + PATIENCE_MS * CLOCK_NS_PER_MS;

		do {
			bench->fds[i] = sock_connect(bench->dir);
			if (bench->fds[i] < 0)
				(void)poll(NULL, 0, 1);
		} while (bench->fds[i] < 0 && clock_now_ns() < end_ns);
		if (bench->fds[i] < 0)
			give_up(bench, "cannot connect");
		send_body(bench, i, NVSHARE_MSG_REGISTER, &reg);
		(void)receive(bench, i, NVSHARE_MSG_REGISTERED);
		send_body(bench, i, NVSHARE_MSG_REQ_LOCK, NULL);
		if (i == 0)
			take_grant(bench, 0);
	}
	for (size_t i = 1; i < bench->n; i++)
		(void)receive(bench, i, NVSHARE_MSG_WAIT_FOR_MEM);
}

static void stop(struct bench *bench)
{
	for (size_t i = 0; i < bench->n; i++)
		(void)fd_close(bench->fds[i]);
	kill(bench->pid, SIGTERM);
	(void)waitpid(bench->pid, NULL, 0);
	bench->pid = 0;
}

/* n hand-overs; their latencies, unsorted. */
static void hand_over(struct bench *bench, size_t n)
{
	for (size_t k = 0; k < n; k++) {
		struct nvshare_lock_released released = {
			.grant = bench->grant, .epoch = bench->epoch, .wants = 1};
		uint64_t start_ns = clock_now_ns();

		send_body(bench, bench->holder, NVSHARE_MSG_LOCK_RELEASED, &released);
		take_grant(bench, (bench->holder + 1) % bench->n); /* first come, first served */
		bench->latency_ns[k] = clock_now_ns() - start_ns;
	}
}

static uint64_t cpu_ns(const struct bench *bench)
{
	unsigned long long ns = 0;
	char path[64];
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)bench->pid);
	file = fopen(path, "r");
	if (!file || fscanf(file, "%llu", &ns) != 1)
		give_up(bench, path);
	(void)fclose(file);
	return ns;
}

/* The calls column of strace -c, added up. */
static double sum_calls(const char *path)
{
	FILE *file = fopen(path, "r");
	unsigned long sum = 0;
	char line[256];

	if (!file)
		return -1;
	while (fgets(line, sizeof(line), file)) {
		double share;
		double seconds;
		unsigned long each;
		unsigned long calls;

		if (strstr(line, "total"))
			break;
		if (sscanf(line, "%lf %lf %lu %lu", &share, &seconds, &each, &calls) == 4)
			sum += calls;
	}
	(void)fclose(file);
	return sum ? (double)sum : -1;
}

/* System calls a decision; negative without strace, or where it may not trace. */
static double count_calls(struct bench *bench)
{
	char pid[16];
	char out[128];
	char status[64];
	const char *argv[] = {"strace", "-c", "-o", out, "-p", pid, NULL};
	double calls = -1;
	pid_t tracer;

	(void)snprintf(pid, sizeof(pid), "%d", (int)bench->pid);
	(void)snprintf(out, sizeof(out), "%s/strace", bench->dir);
	(void)snprintf(status, sizeof(status), "/proc/%d/status", (int)bench->pid);
	tracer = spawn(bench, argv);
	/* It has attached when the kernel names it as the tracer. */
	for (int i = 0; i < 5000 && calls < 0; i++) {
		char line[256];
		FILE *file = fopen(status, "r");

		while (file && fgets(line, sizeof(line), file)) {
			if (!strncmp(line, "TracerPid:", 10) && atoi(line + 10) == tracer)
				calls = 0;
		}
		if (file)
			(void)fclose(file);
		if (waitpid(tracer, NULL, WNOHANG) == tracer)
			return -1;
		(void)poll(NULL, 0, 1);
	}
	if (calls == 0)
		hand_over(bench, DECISIONS_TRACED);
	kill(tracer, SIGINT);
	(void)waitpid(tracer, NULL, 0);
	return calls < 0 ? -1 : sum_calls(out) / DECISIONS_TRACED;
}

static int by_value(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a;
	uint64_t right = *(const uint64_t *)b;

	return left < right ? -1 : left > right;
}

static struct row measure(struct bench *bench, size_t n)
{
	struct row row;
	uint64_t before;

	bench->n = n;
	start(bench);
	hand_over(bench, DECISIONS / 10); /* warm */
	before = cpu_ns(bench);
	hand_over(bench, DECISIONS);
	row.cpu_us = (double)(cpu_ns(bench) - before) / DECISIONS / 1000;
	qsort(bench->latency_ns, DECISIONS, sizeof(*bench->latency_ns), by_value);
	row.p50_us = (double)bench->latency_ns[DECISIONS / 2] / 1000;
	row.p99_us = (double)bench->latency_ns[DECISIONS / 100 * 99] / 1000;
	row.calls = count_calls(bench);
	stop(bench);
	return row;
}

static void print_row(size_t n, const struct row *row, const struct row *first)
{
	char calls[16] = "-";

	if (row->calls >= 0)
		(void)snprintf(calls, sizeof(calls), "%.2f", row->calls);
	printf("%8zu  %8.1f  %6s  %8.1f  %8.1f  %10.2f  %10.2f\n", n, row->cpu_us, calls,
	       row->p50_us, row->p99_us, row->cpu_us / first->cpu_us, row->p50_us / first->p50_us);
	(void)fflush(stdout);
}

int main(int argc, char **argv)
{
	static int fds[10000];
	static uint64_t latency_ns[DECISIONS];
	struct bench bench = {.dir = "/tmp/nvshare-bench-XXXXXX", .fds = fds};
	struct rlimit limit;
	struct row first = {0};
	char own[4096];

	(void)argc;
	bench.latency_ns = latency_ns;
	(void)snprintf(own, sizeof(own), "%s", argv[0]);
	/* build/plain/tests/bench/bench_sched stands beside build/plain/nvshare-scheduler. */
	(void)snprintf(bench.scheduler, sizeof(bench.scheduler), "%.4000s/../../nvshare-scheduler",
		       dirname(own));
	if (!mkdtemp(bench.dir) || access(bench.scheduler, X_OK) < 0)
		give_up(&bench, bench.scheduler);
	(void)setenv("NVSHARE_SOCK_DIR", bench.dir, 1);
	(void)setenv("NVSHARE_SCHEDULING_MODE", "serial", 1);
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
	printf("a decision of nvshare-scheduler, %d each (targets: 5 calls, 32 us CPU, p50 28 us)\n"
	       " clients   CPU, us   calls   p50, us   p99, us   CPU ratio   p50 ratio\n",
	       DECISIONS);
	for (size_t i = 0; i < N_SIZES; i++) {
		struct row row;

		if (limit.rlim_cur < sizes[i] + 64) {
			printf("%8zu  the limit of descriptors is too low\n", sizes[i]);
			continue;
		}
		row = measure(&bench, sizes[i]);
		if (i == 0)
			first = row;
		print_row(sizes[i], &row, &first);
	}
	(void)snprintf(own, sizeof(own), "rm -r '%s'", bench.dir);
	return system(own) != 0;
}
