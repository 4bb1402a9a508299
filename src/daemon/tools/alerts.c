/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tools/alerts.h"

#include "daemon/gpu/spawn.h"
#include "daemon/server.h"
#include "ipc/names.h"
#include "util/clock.h"
#include "util/container_of.h"
#include "util/fd.h"
#include "util/log.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUN_NS  (30 * CLOCK_NS_PER_SEC) /* then it is killed */
#define LOOK_NS CLOCK_NS_PER_SEC

static const struct quota_rate alerts_rate = {.step_ns = 10 * CLOCK_NS_PER_SEC, .burst = 5};

#define VARIABLES_MAX 13
#define VARIABLE_LEN  (NVSHARE_TEXT_LEN + 40)

struct alerts_environment {
	size_t n;
	char *at[VARIABLES_MAX + 1]; /* NULL-terminated */
	char texts[VARIABLES_MAX][VARIABLE_LEN];
};

__attribute__((format(printf, 2, 3))) static void environment_add(
	struct alerts_environment *environment, const char *format, ...)
{
	char *text = environment->texts[environment->n];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, VARIABLE_LEN, format, args);
	va_end(args);
	environment->at[environment->n++] = text;
}

static void environment_fill(struct alerts_environment *environment,
			     const struct nvshare_event *event, uint32_t n_suppressed)
{
	environment->n = 0;
	environment_add(environment, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
				     ":/sbin:/bin");
	environment_add(environment, "NVSHARE_ALERT_ID=%llu", (unsigned long long)event->id);
	environment_add(environment, "NVSHARE_ALERT_TIME=%.3f", (double)event->unix_ns / 1e9);
	environment_add(environment, "NVSHARE_ALERT_LEVEL=%s", names_event_level[event->level]);
	environment_add(environment, "NVSHARE_ALERT_TYPE=%s", names_event[event->type]);
	environment_add(environment, "NVSHARE_ALERT_MESSAGE=%s", event->message);
	environment_add(environment, "NVSHARE_ALERT_SUPPRESSED=%u", n_suppressed);
	if (event->gpu != EVENTS_NONE) {
		environment_add(environment, "NVSHARE_ALERT_GPU=%u", event->gpu);
		environment_add(environment, "NVSHARE_ALERT_UUID=%s", event->uuid);
	}
	if (event->xid)
		environment_add(environment, "NVSHARE_ALERT_XID=%u", event->xid);
	if (event->client) {
		environment_add(environment, "NVSHARE_ALERT_CLIENT=%u", event->client);
		environment_add(environment, "NVSHARE_ALERT_PID=%u", event->pid);
	}
	environment->at[environment->n] = NULL;
}

static bool alert_is_of_client(uint32_t type)
{
	return type == NVSHARE_EVENT_WORKER_DOWN || type == NVSHARE_EVENT_WORKER_BACK;
}

/* A free place; ALERTS_RUNS_MAX: there is none for this type. */
static uint32_t alerts_place(const struct alerts *alerts, uint32_t type)
{
	uint32_t n_clients = 0, place = ALERTS_RUNS_MAX;

	for (uint32_t i = 0; i < ALERTS_RUNS_MAX; i++) {
		if (!alerts->runs[i].pid)
			place = i;
		else
			n_clients += alert_is_of_client(alerts->runs[i].type);
	}
	if (alert_is_of_client(type) && n_clients >= ALERTS_RUNS_CLIENTS_MAX)
		return ALERTS_RUNS_MAX;
	return place;
}

static int alert_start(const struct server *server, const struct nvshare_event *event,
		       uint32_t n_suppressed, pid_t *ret_pid)
{
	struct alerts_environment environment;
	char path[PATH_MAX], type[32];
	char *const args[] = {path, type, NULL};
	FD_CLEANUP int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	(void)snprintf(path, sizeof(path), "%s", server->settings.alert_command);
	(void)snprintf(type, sizeof(type), "%s", names_event[event->type]);
	environment_fill(&environment, event, n_suppressed);
	return spawn_start(path, args, environment.at, fd, ret_pid);
}

void alerts_run(struct server *server, const struct nvshare_event *event)
{
	struct alerts *alerts = &server->alerts;
	uint32_t type = event->type, place = alerts_place(alerts, type);
	pid_t pid = 0;
	int r;

	if (!*server->settings.alert_command || type == NVSHARE_EVENT_GPU_XID)
		return;
	if (place == ALERTS_RUNS_MAX ||
	    quota_take(&alerts->rates[type], &alerts_rate, 1, server->now_ns)) {
		alerts->n_suppressed[type]++;
		return;
	}
	r = alert_start(server, event, alerts->n_suppressed[type], &pid);
	if (r) {
		(void)log_errno(LOG_LEVEL_WARN, r, "alert-failed: cannot run '%s'",
				server->settings.alert_command);
		return;
	}
	log_debug("alert type=%s pid=%d", names_event[type], (int)pid);
	alerts->n_suppressed[type] = 0;
	alerts->runs[place].pid = pid;
	alerts->runs[place].type = (enum nvshare_event_type)type;
	alerts->runs[place].ends_ns = server->now_ns + RUN_NS;
	if (!deadline_is_set(&alerts->due))
		deadline_set(&server->deadlines, &alerts->due, server->now_ns + LOOK_NS);
}

/* The command is looked after once a second, so no signal of its end is needed. */
static void alerts_on_due(struct server *server, struct deadline *deadline)
{
	struct alerts *alerts = container_of(deadline, struct alerts, due);
	bool is_any = false;

	for (uint32_t i = 0; i < ALERTS_RUNS_MAX; i++) {
		pid_t pid = alerts->runs[i].pid;

		if (!pid)
			continue;
		if (spawn_has_ended(pid)) {
			alerts->runs[i].pid = 0;
			continue;
		}
		is_any = true;
		if (server->now_ns < alerts->runs[i].ends_ns)
			continue;
		log_warn("alert-killed pid=%d: it ran for more than 30 s", (int)pid);
		spawn_kill(pid);
		alerts->runs[i].ends_ns = DEADLINE_NEVER;
	}
	if (is_any)
		deadline_set(&server->deadlines, deadline, server->now_ns + LOOK_NS);
}

void alerts_init(struct server *server)
{
	server->alerts.due.on_due = alerts_on_due;
}
