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
#include "timing.h"
#include "util/clock.h"
#include "util/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
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
	int epoll_fd;
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

/* What the scheduler and strace leave in the directory goes with it. */
static void clear(const struct bench *bench)
{
	static const char *const names[] = {"strace", "scheduler.sock", "scheduler.lock"};
	char path[128];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", bench->dir, names[i]);
		(void)unlink(path);
	}
	(void)rmdir(bench->dir);
}

/* error: an errno. */
__attribute__((noreturn, format(printf, 3, 4))) static void give_up(const struct bench *bench,
								    int error, const char *format,
								    ...)
{
	va_list args;
	int status;

	fprintf(stderr, "bench_sched: ");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, ": %s\n", strerror(error));
	if (bench->pid > 0 && waitpid(bench->pid, &status, WNOHANG) == bench->pid)
		fprintf(stderr, "bench_sched: %s had ended, wait status %#x\n", bench->scheduler,
			(unsigned int)status);
	else if (bench->pid > 0)
		(void)kill(bench->pid, SIGKILL);
	clear(bench);
	exit(1);
}

static pid_t spawn(const struct bench *bench, const char *const *argv)
{
	pid_t pid = fork();

	if (pid < 0)
		give_up(bench, errno, "fork");
	if (pid == 0) {
		int fd = open("/dev/null", O_RDWR);

		(void)dup2(fd, 1);
		(void)dup2(fd, 2);
		(void)execvp(argv[0], (char *const *)(uintptr_t)argv); /* it does not write */
		_exit(127);
	}
	return pid;
}

static void fail_to_hear(const struct bench *bench, size_t i, uint16_t type, int error)
{
	give_up(bench, error, "client %zu of %zu, for message %d", i, bench->n, type);
}

/* One message to client i, which awaits a type. */
static struct msg receive_one(const struct bench *bench, size_t i, uint16_t type)
{
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX];
	ssize_t n = sock_recv(bench->fds[i], bytes, sizeof(bytes));
	struct msg msg;

	if (n <= 0)
		fail_to_hear(bench, i, type, n < 0 ? (int)-n : EPIPE);
	if (msg_decode(bytes, (size_t)n, MSG_TO_CLIENT, &msg))
		fail_to_hear(bench, i, type, EPROTO);
	return msg;
}

/* The next message of that type to client i; what else comes is dropped. */
static void receive(const struct bench *bench, size_t i, uint16_t type)
{
	struct pollfd pfd = {.fd = bench->fds[i], .events = POLLIN};
	struct msg msg;

	do {
		int r = poll(&pfd, 1, PATIENCE_MS);

		if (r != 1)
			fail_to_hear(bench, i, type, r < 0 ? errno : ETIMEDOUT);
		msg = receive_one(bench, i, type);
	} while (msg.header.type != type);
}

static void send_body(const struct bench *bench, size_t i, uint16_t type, const void *body)
{
	struct msg msg;
	int r;

	(void)msg_encode(type, 0, body, &msg);
	r = sock_send(bench->fds[i], &msg);
	if (r)
		give_up(bench, -r, "client %zu of %zu, with message %d", i, bench->n, type);
}

/*
 * Whoever is next: that is the scheduler's to say. Of equals it is who has had less of the
 * GPU, so that one that was kept off the processor with a grant stands back for a while.
 */
static void take_grant(struct bench *bench)
{
	struct epoll_event event;
	struct msg msg;

	do {
		int r = epoll_wait(bench->epoll_fd, &event, 1, PATIENCE_MS);

		if (r != 1)
			give_up(bench, r < 0 ? errno : ETIMEDOUT, "%zu clients, for a grant",
				bench->n);
		msg = receive_one(bench, event.data.u32, NVSHARE_MSG_LOCK_OK);
	} while (msg.header.type != NVSHARE_MSG_LOCK_OK);
	bench->holder = event.data.u32;
	bench->grant = msg.body.lock_ok.grant;
	bench->epoch = msg.body.lock_ok.epoch;
}

static void connect_client(struct bench *bench, size_t i)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
	uint64_t end_ns = clock_now_ns() + PATIENCE_MS * CLOCK_NS_PER_MS;

	do {
		bench->fds[i] = sock_connect(bench->dir);
		if (bench->fds[i] < 0)
			(void)poll(NULL, 0, 1);
	} while (bench->fds[i] < 0 && clock_now_ns() < end_ns);
	if (bench->fds[i] < 0)
		give_up(bench, -bench->fds[i], "client %zu of %zu, connecting", i, bench->n);
	if (epoll_ctl(bench->epoll_fd, EPOLL_CTL_ADD, bench->fds[i], &event) < 0)
		give_up(bench, errno, "client %zu of %zu, epoll", i, bench->n);
}

static void start(struct bench *bench)
{
	const char *argv[] = {bench->scheduler, NULL};
	struct nvshare_register reg = {.gpu_uuid = {1}, .gpu_total_bytes = 1ull << 36};

	bench->pid = spawn(bench, argv);
	for (size_t i = 0; i < bench->n; i++) {
		connect_client(bench, i);
		send_body(bench, i, NVSHARE_MSG_REGISTER, &reg);
		receive(bench, i, NVSHARE_MSG_REGISTERED);
		send_body(bench, i, NVSHARE_MSG_REQ_LOCK, NULL);
		if (i == 0)
			take_grant(bench);
	}
	for (size_t i = 1; i < bench->n; i++)
		receive(bench, i, NVSHARE_MSG_WAIT_FOR_MEM);
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
		take_grant(bench);
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
		give_up(bench, errno, "%s", path);
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
	timing_sort(bench->latency_ns, DECISIONS);
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
	if (access(bench.scheduler, X_OK) < 0)
		give_up(&bench, errno, "%s", bench.scheduler);
	bench.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (bench.epoll_fd < 0 || !mkdtemp(bench.dir))
		give_up(&bench, errno, "%s", bench.dir);
	(void)setenv("NVSHARE_SOCK_DIR", bench.dir, 1);
	(void)setenv("NVSHARE_HTTP_ADDRESS", "0", 1);
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
	clear(&bench);
	return 0;
}
