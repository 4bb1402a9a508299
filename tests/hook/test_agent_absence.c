/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the program's user reads: the agent and a scheduler that is not there, has no time or room,
 * is another's, or tells of a GPU with an error.
 */

#include "lib/agent_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* ---- what the program's user reads ------------------------------------------------------ */

static int said_fd = -1;
static char said_text[8192];

/* Standard error is a pipe from here on. */
static void listen_to_errors(void)
{
	int fds[2];

	check(pipe2(fds, O_NONBLOCK | O_CLOEXEC) == 0);
	check(dup2(fds[1], STDERR_FILENO) == STDERR_FILENO);
	check(close(fds[1]) == 0);
	said_fd = fds[0];
}

/* A terminal, from here on. */
static void listen_on_a_terminal(void)
{
	int fd = posix_openpt(O_RDWR | O_NOCTTY), line;

	check(fd >= 0 && grantpt(fd) == 0 && unlockpt(fd) == 0);
	line = open(ptsname(fd), O_RDWR | O_NOCTTY);
	check(line >= 0 && isatty(line));
	check(dup2(line, STDERR_FILENO) == STDERR_FILENO);
	check(close(line) == 0);
	check(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	said_fd = fd;
}

static const char *all_said(void)
{
	size_t len = strlen(said_text);
	ssize_t n;

	while ((n = read(said_fd, said_text + len, sizeof(said_text) - 1 - len)) > 0)
		len += (size_t)n;
	said_text[len] = '\0';
	return said_text;
}

static bool has_said(const char *text)
{
	return strstr(all_said(), text) != NULL;
}

static unsigned int lines_said(void)
{
	unsigned int n = 0;

	for (const char *c = all_said(); *c; c++)
		n += *c == '\n';
	return n;
}

/* ---- a scheduler's queue that is full ----------------------------------------------------- */

static int n_busy; /* connects that found it so */
static int fillers[64];
static int n_fillers;

/* In place of the C library's: counts what the agent meets. */
int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	int r = (int)syscall(SYS_connect, fd, addr, len);

	if (r < 0 && errno == EAGAIN)
		__atomic_fetch_add(&n_busy, 1, __ATOMIC_SEQ_CST);
	return r;
}

static void fill_queue(void)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int r = 0;

	(void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%.80s/%s", rig_dir,
		       NVSHARE_SOCK_NAME);
	check(listen(fake_listener, 1) == 0);
	while (r == 0) {
		int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		check(fd >= 0 && n_fillers < 64);
		r = (int)syscall(SYS_connect, fd, &addr, sizeof(addr));
		fillers[n_fillers++] = fd;
	}
	check(errno == EAGAIN);
}

/* Those that stood in it are gone; they have said nothing. */
static void empty_queue(void)
{
	for (int i = 0; i < n_fillers - 1; i++)
		check(close(fake_accept()) == 0);
	for (int i = 0; i < n_fillers; i++)
		check(close(fillers[i]) == 0);
	n_fillers = 0;
}

static void turn_away(void)
{
	check(close(fake_accept()) == 0);
}

/* Until user has its answer. */
static void turn_away_until_done(struct user *user)
{
	while (!user_is_done(user)) {
		if (fake_readable(fake_listener, 10))
			turn_away();
	}
}

/* A program that runs unmanaged comes in as soon as it may. */
static void expect_it_to_come_back(void)
{
	int fd;

	check(agent_add_context(CONTEXT, 0, 0));
	check(fake_admit(&fd).flags == NVSHARE_REGISTER_RUNNING);
	fake_send(fd, NVSHARE_MSG_HEARTBEAT, &(struct nvshare_heartbeat){.nonce = 1});
	(void)fake_expect(fd, NVSHARE_MSG_HEARTBEAT);
}

/* The program's first CUDA call, of which the scheduler hears. */
static void begin_first_call(struct user *user)
{
	fake_listen(rig_dir);
	listen_to_errors();
	user_start(user, rig_use_device);
}

/* The scheduler accepts the connection and reads the registration, which it does not answer. */
static int take_registration(void)
{
	int fd = fake_accept();

	(void)fake_expect(fd, NVSHARE_MSG_REGISTER);
	return fd;
}

/* It runs without nvshare, says why in one line, and comes in when it may. */
static void expect_reason_and_return(struct user *user, const char *reason)
{
	check(user_finish(user) == CUDA_SUCCESS);
	check(gate_get() == GATE_OPEN);
	check(has_said(reason));
	expect_it_to_come_back();
	check(lines_said() == 1);
}

/* ---- nobody listens ----------------------------------------------------------------------- */

/* The sanitizer of threads ends a forked child that starts a thread, as an agent is. */
#ifdef __SANITIZE_THREAD__
#define MAY_FORK false
#else
#define MAY_FORK true
#endif

static void a_terminal_hears_once_that_there_is_no_scheduler(void)
{
	int status = -1;
	pid_t pid = -1;

	listen_on_a_terminal();
	check(agent_use_device(0) == CUDA_SUCCESS);
	check(has_said("no scheduler at /tmp/nvshare-agent-"));
	check(has_said("/scheduler.sock: this program runs without nvshare. "
		       "Start nvshare-scheduler, or set NVSHARE_SOCK_DIR."));
	check(agent_use_device(0) == CUDA_SUCCESS);
	check(agent_use_device(1) == CUDA_SUCCESS);
	if (MAY_FORK)
		pid = fork();
	if (pid == 0)
		_exit(agent_use_device(0) != CUDA_SUCCESS);
	check(!MAY_FORK || (pid > 0 && waitpid(pid, &status, 0) == pid && status == 0));
	check(lines_said() == 1);
}

static void nobody_else_hears_it(void)
{
	listen_to_errors();
	check(agent_use_device(0) == CUDA_SUCCESS);
	check(agent_use_device(1) == CUDA_SUCCESS);
	check(lines_said() == 0);
}

/* ---- it has no time ----------------------------------------------------------------------- */

static void waits_for_a_scheduler_that_is_busy(void)
{
	struct user user = {.dev = 0};
	int fd;

	fake_listen(rig_dir);
	listen_to_errors();
	fill_queue();
	user_start(&user, rig_use_device);
	wait_until(__atomic_load_n(&n_busy, __ATOMIC_SEQ_CST) > 0);
	empty_queue();
	check(fake_admit(&fd).flags == 0);
	check(user_finish(&user) == CUDA_SUCCESS);
	wait_until(gate_get() == GATE_CLOSED); /* it takes its turn */
	check(lines_said() == 0);
}

static void runs_on_when_it_stays_busy_and_comes_back(void)
{
	fake_listen(rig_dir);
	listen_to_errors();
	fill_queue();
	check(agent_use_device(0) == CUDA_SUCCESS);
	check(gate_get() == GATE_OPEN);
	check(__atomic_load_n(&n_busy, __ATOMIC_SEQ_CST) > 1);
	check(has_said("too busy to take connections"));
	empty_queue();
	expect_it_to_come_back();
	check(lines_said() == 1);
}

/* ---- it has no room ----------------------------------------------------------------------- */

static void is_let_in_after_it_was_turned_away(void)
{
	struct user user = {.dev = 0};
	int fd;

	begin_first_call(&user);
	turn_away();
	turn_away();
	check(fake_admit(&fd).flags == 0);
	check(user_finish(&user) == CUDA_SUCCESS);
	check(lines_said() == 0);
}

static void says_that_it_was_turned_away_and_comes_back(void)
{
	struct user user = {.dev = 0};

	begin_first_call(&user);
	turn_away_until_done(&user);
	check(user_finish(&user) == CUDA_SUCCESS);
	check(gate_get() == GATE_OPEN);
	check(has_said("closes the connection without an answer"));
	check(agent_add_context(CONTEXT, 0, 0));
	turn_away(); /* again, and not a word more */
	check(fake_admit(&(int){0}).flags == NVSHARE_REGISTER_RUNNING);
	check(lines_said() == 1);
}

static void says_that_the_scheduler_is_full_and_comes_back(void)
{
	struct user user = {.dev = 0};
	int fd;

	begin_first_call(&user);
	fd = take_registration();
	fake_registered(fd, NVSHARE_REGISTER_FULL);
	expect_reason_and_return(&user, "too many clients");
}

/* It may refuse at once, and end with unread packets: a read, or a write, fails first. */
static void hears_a_refusal_that_came_before_it_was_asked(void)
{
	struct user user = {.dev = 0};
	int fd;

	begin_first_call(&user);
	fd = fake_accept();
	check(fake_readable(fd, FAKE_WAIT_MS));
	fake_registered(fd, NVSHARE_REGISTER_FULL);
	check(close(fd) == 0);
	expect_reason_and_return(&user, "too many clients");
}

static void two_gpus_wait_for_a_busy_scheduler(void)
{
	struct user user = {.dev = 1};
	int fd_second;

	fake_listen(rig_dir);
	(void)rig_begin_running();
	fill_queue();
	user_start(&user, rig_use_device);
	wait_until(__atomic_load_n(&n_busy, __ATOMIC_SEQ_CST) > 0);
	empty_queue();
	check(fake_admit(&fd_second).flags == 0);
	check(user_finish(&user) == CUDA_SUCCESS);
}

/* ---- it is another's ---------------------------------------------------------------------- */

static void answer_as(int fd, uint16_t version)
{
	const struct nvshare_registered body = {.result = NVSHARE_REGISTER_VERSION};
	struct msg msg;
	size_t size = msg_encode(NVSHARE_MSG_REGISTERED, 0, &body, &msg);

	msg.header.version = version;
	check(send(fd, &msg, size, MSG_NOSIGNAL) == (ssize_t)size);
}

static void meet_version(uint16_t version, const char *advice)
{
	struct user user = {.dev = 0};
	char versions[128];
	int fd;

	(void)snprintf(versions, sizeof(versions),
		       "speaks version %u of the protocol, this library version %u", version,
		       NVSHARE_PROTOCOL_VERSION);

	begin_first_call(&user);
	fd = take_registration();
	answer_as(fd, version);
	expect_reason_and_return(&user, versions);
	check(has_said(advice));
}

static void names_the_versions_when_the_scheduler_is_newer(void)
{
	meet_version(NVSHARE_PROTOCOL_VERSION + 1,
		     "Restart it with the library of the scheduler's release.");
}

static void names_the_versions_when_the_scheduler_is_older(void)
{
	meet_version(NVSHARE_PROTOCOL_VERSION - 1,
		     "Upgrade nvshare-scheduler to the library's release.");
}

static void says_that_the_scheduler_does_not_answer(void)
{
	fake_listen(rig_dir);
	listen_to_errors();
	check(agent_use_device(0) == CUDA_SUCCESS);
	check(has_said("does not answer") && lines_said() == 1);
}

/* ---- descriptors are short ------------------------------------------------------------------ */

static struct rlimit old_limit;

/* So many more can be opened; all numbers below the limit but the last are taken. */
static void leave_descriptors(int n)
{
	int fd, last = -1;

	while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 63)
		check(fd >= 0);
	check(close(fd) == 0);
	check(getrlimit(RLIMIT_NOFILE, &old_limit) == 0);
	for (last = 0; last < 63; last++)
		check(fcntl(last, F_GETFD) >= 0);
	check(setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)(63 + n), old_limit.rlim_max}) ==
	      0);
}

static void a_program_keeps_its_last_descriptors(void)
{
	fake_listen(rig_dir);
	listen_to_errors();
	for (int n = 0; n < 16; n += 5) {
		leave_descriptors(n);
		check(agent_use_device(0) == CUDA_SUCCESS);
		check(gate_get() == GATE_OPEN);
		for (int fd = 63; fd < 63 + n; fd++)
			check(fcntl(fd, F_GETFD) < 0);
		check(setrlimit(RLIMIT_NOFILE, &old_limit) == 0);
	}
	check(has_said("file descriptors are short") && lines_said() == 1);
	check(!fake_readable(fake_listener, 0));
}

static void a_program_that_needs_a_scheduler_hears_why_there_is_none(void)
{
	check(setenv("NVSHARE_REQUIRE_SCHEDULER", "1", 1) == 0);
	fake_listen(rig_dir);
	listen_to_errors();
	leave_descriptors(15);
	check(agent_use_device(0) == CUDA_ERROR_SYSTEM_NOT_READY);
	check(has_said("file descriptors are short"));
}

static void comes_back_when_there_are_descriptors_again(void)
{
	int fd;

	fake_listen(rig_dir);
	listen_to_errors();
	fd = rig_begin_running();
	leave_descriptors(0);
	check(shutdown(fd, SHUT_RDWR) == 0);
	wait_until(has_said("file descriptors are short"));
	check(gate_get() == GATE_OPEN);
	check(setrlimit(RLIMIT_NOFILE, &old_limit) == 0);
	check(fake_admit(&fd).flags == (NVSHARE_REGISTER_RUNNING | NVSHARE_REGISTER_RECONNECT));
	check(lines_said() == 1);
}

/* Nobody can tell what may move then; the program and those who wait for it hear why. */
static void says_that_memory_can_not_move_without_descriptors(void)
{
	struct nvshare_lock_released r;
	int fd;

	fake_listen(rig_dir);
	listen_to_errors();
	fd = rig_begin_running();
	leave_descriptors(0);
	fake_drop(fd, 1, 60 * MIB, 4);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_UNSUPPORTED);
	check(has_said("file descriptors are short (RLIMIT_NOFILE): memory of this program"));
	check(setrlimit(RLIMIT_NOFILE, &old_limit) == 0);
	fake_drop(fd, 1, 60 * MIB, 6);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.mem.swapped == 60 * MIB);
	check(lines_said() == 1);
}

/* ---- a GPU with an error ------------------------------------------------------------------ */

static void a_gpu_with_an_error_is_told_in_one_line(void)
{
	struct user user = {.dev = 0};
	int fd;

	begin_first_call(&user);
	fd = take_registration();
	fake_send(fd, NVSHARE_MSG_REGISTERED,
		  &(struct nvshare_registered){.client = 7, .flags = NVSHARE_REGISTERED_WATCH});
	(void)fake_expect(fd, NVSHARE_MSG_WATCH);
	check(user_finish(&user) == CUDA_SUCCESS);
	fake_send(fd, NVSHARE_MSG_GPU_STATE, &(struct nvshare_gpu_state){NVSHARE_STATE_ERROR, 63});
	wait_until(has_said("GPU 0 has an error (Xid 63): this program gets no turn there"));
	fake_send(fd, NVSHARE_MSG_GPU_STATE, &(struct nvshare_gpu_state){NVSHARE_STATE_GOOD, 0});
	fake_send(fd, NVSHARE_MSG_GPU_STATE, &(struct nvshare_gpu_state){NVSHARE_STATE_LOST, 0});
	wait_until(has_said("GPU 0 is lost: this program gets no turn there"));
	check(lines_said() == 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		child_test(a_terminal_hears_once_that_there_is_no_scheduler),
		child_test(nobody_else_hears_it),
		child_test(waits_for_a_scheduler_that_is_busy),
		child_test(runs_on_when_it_stays_busy_and_comes_back),
		child_test(is_let_in_after_it_was_turned_away),
		child_test(says_that_it_was_turned_away_and_comes_back),
		child_test(says_that_the_scheduler_is_full_and_comes_back),
		child_test(hears_a_refusal_that_came_before_it_was_asked),
		child_test(two_gpus_wait_for_a_busy_scheduler),
		child_test(names_the_versions_when_the_scheduler_is_newer),
		child_test(names_the_versions_when_the_scheduler_is_older),
		child_test(says_that_the_scheduler_does_not_answer),
		child_test(a_program_keeps_its_last_descriptors),
		child_test(a_program_that_needs_a_scheduler_hears_why_there_is_none),
		child_test(comes_back_when_there_are_descriptors_again),
		child_test(says_that_memory_can_not_move_without_descriptors),
		child_test(a_gpu_with_an_error_is_told_in_one_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
