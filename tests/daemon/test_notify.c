/* SPDX-License-Identifier: Apache-2.0 */

/* What a service manager hears; the test is the manager. */

#include "daemon/notify.h"
#include "daemon/server.h"

#include "util/clock.h"
#include "util/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static struct server *server;
static int manager;

/* Listens on path, or on an abstract name of the kernel's choice. */
static void listen_on(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	socklen_t len = offsetof(struct sockaddr_un, sun_path);
	char name[sizeof(addr.sun_path) + 1];

	manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (path) {
		(void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
		len = sizeof(addr);
	} else {
		len = sizeof(sa_family_t);
	}
	assert_int_equal(bind(manager, (struct sockaddr *)&addr, len), 0);
	len = sizeof(addr);
	assert_int_equal(getsockname(manager, (struct sockaddr *)&addr, &len), 0);
	len -= (socklen_t)offsetof(struct sockaddr_un, sun_path);
	memcpy(name, addr.sun_path, len);
	name[len] = '\0';
	if (!path)
		name[0] = '@';
	assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
}

static void expect(const char *text)
{
	char heard[512] = "";
	ssize_t n = recv(manager, heard, sizeof(heard) - 1, MSG_DONTWAIT);

	assert_true(n > 0);
	assert_string_equal(heard, text);
}

static void expect_nothing(void)
{
	char byte;

	assert_int_equal(recv(manager, &byte, 1, MSG_DONTWAIT), -1);
}

static int set_up(void **state)
{
	(void)state;
	server = calloc(1, sizeof(*server));
	manager = -1;
	return server ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	notify_close(server);
	manager = fd_close(manager);
	free(server);
	return 0;
}

static void a_manager_hears_of_start_reload_and_end(void **state)
{
	unsigned long long us, before_us = clock_now_ns() / 1000;
	char path[] = "/tmp/nvshare-notify-XXXXXX/notify", heard[512] = "";
	char *end = strrchr(path, '/');

	(void)state;
	*end = '\0';
	assert_non_null(mkdtemp(path));
	*end = '/';
	listen_on(path);
	notify_open(server);
	assert_null(getenv("NOTIFY_SOCKET"));
	expect_nothing();
	notify_ready(server, "gpus=%d", 2);
	expect("READY=1\nSTATUS=gpus=2");
	assert_false(deadline_is_set(&server->notify.watchdog));
	notify_reloading(server);
	assert_true(recv(manager, heard, sizeof(heard) - 1, MSG_DONTWAIT) > 0);
	assert_int_equal(sscanf(heard, "RELOADING=1\nMONOTONIC_USEC=%llu", &us), 1);
	assert_in_range(us, before_us, clock_now_ns() / 1000);
	notify_stopping(server);
	expect("STOPPING=1");
	assert_int_equal(unlink(path), 0);
	*end = '\0';
	assert_int_equal(rmdir(path), 0);
}

static void a_watched_process_tells_twice_in_the_time_that_it_lives(void **state)
{
	char pid[16];
	uint64_t at_ns;

	(void)state;
	listen_on(NULL); /* abstract */
	(void)snprintf(pid, sizeof(pid), "%d", (int)getpid());
	assert_int_equal(setenv("WATCHDOG_PID", pid, 1), 0);
	assert_int_equal(setenv("WATCHDOG_USEC", "3000000", 1), 0);
	notify_open(server);
	assert_null(getenv("WATCHDOG_PID"));
	assert_null(getenv("WATCHDOG_USEC"));
	notify_ready(server, "x");
	expect("READY=1\nSTATUS=x");
	at_ns = deadlines_next(&server->deadlines);
	assert_in_range(at_ns, 1, clock_now_ns() + 1500 * CLOCK_NS_PER_MS);
	for (int i = 0; i < 3; i++) {
		struct deadline *deadline;

		server->now_ns = at_ns + (uint64_t)i * 1500 * CLOCK_NS_PER_MS;
		assert_null(deadlines_take(&server->deadlines, server->now_ns - 1));
		deadline = deadlines_take(&server->deadlines, server->now_ns);
		assert_ptr_equal(deadline, &server->notify.watchdog);
		deadline->on_due(server, deadline);
		assert_null(deadlines_take(&server->deadlines, server->now_ns));
		expect("WATCHDOG=1");
		expect_nothing();
	}
}

static void a_manager_that_does_not_read_is_told_later_and_not_waited_for(void **state)
{
	uint64_t at_ns;

	(void)state;
	listen_on(NULL);
	assert_int_equal(unsetenv("WATCHDOG_PID"), 0);
	assert_int_equal(setenv("WATCHDOG_USEC", "3000000", 1), 0);
	notify_open(server);
	notify_ready(server, "x");
	at_ns = deadlines_next(&server->deadlines);
	while (send(server->notify.fd, "x", 1, MSG_DONTWAIT) == 1)
		continue;
	for (int i = 0; i < 2; i++) {
		struct deadline *deadline = deadlines_take(&server->deadlines, at_ns);

		server->now_ns = at_ns;
		assert_non_null(deadline);
		deadline->on_due(server, deadline);
		at_ns += 10 * CLOCK_NS_PER_MS;
		assert_int_equal(deadlines_next(&server->deadlines), at_ns);
	}
}

static void a_watch_over_another_process_is_none(void **state)
{
	(void)state;
	listen_on(NULL);
	assert_int_equal(setenv("WATCHDOG_PID", "1", 1), 0);
	assert_int_equal(setenv("WATCHDOG_USEC", "3000000", 1), 0);
	notify_open(server);
	notify_ready(server, "x");
	assert_false(deadline_is_set(&server->notify.watchdog));
}

static void without_a_manager_nothing_is_sent(void **state)
{
	static const char *const names[] = {"", "relative", "/nonexistent/notify", "@"};

	(void)state;
	assert_int_equal(setenv("WATCHDOG_USEC", "3000000", 1), 0);
	notify_open(server);
	assert_int_equal(server->notify.fd, -1);
	notify_ready(server, "x");
	notify_reloading(server);
	notify_stopping(server);
	assert_int_equal(deadlines_next(&server->deadlines), DEADLINE_NEVER);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		assert_int_equal(setenv("NOTIFY_SOCKET", names[i], 1), 0);
		notify_open(server);
		assert_int_equal(server->notify.fd, -1);
	}
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_manager_hears_of_start_reload_and_end),
		TEST(a_watched_process_tells_twice_in_the_time_that_it_lives),
		TEST(a_manager_that_does_not_read_is_told_later_and_not_waited_for),
		TEST(a_watch_over_another_process_is_none),
		TEST(without_a_manager_nothing_is_sent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
