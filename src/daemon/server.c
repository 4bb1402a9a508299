/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server.h"

#include "daemon/dispatch.h"
#include "daemon/gpu/doubts.h"
#include "daemon/gpu/spawn.h"
#include "daemon/jobs/job_programs.h"
#include "daemon/settings/reconfigure.h"
#include "util/clock.h"
#include "util/fd.h"
#include "util/log.h"
#include "util/text.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>

/*
 * More than a round accepts, so connections that end at once cannot pile up before others'
 * events.
 */
#define EVENTS_A_BATCH 256

/* More than any node needs, and not so many that a kernel refuses. */
#define FDS_WANTED (2 * SERVER_PEERS_MAX + JOB_QUEUE_MAX + 2 * POOL_SLABS_MAX + 4096 + 4096)

/* ---- set-up ---------------------------------------------------------------- */

/* A client takes a socket, and a pidfd where there are enough descriptors. Returns the limit. */
static uint64_t server_raise_fd_limit(void)
{
	struct rlimit limit = {FDS_WANTED, FDS_WANTED};
	struct rlimit now = {1024, 1024};

	(void)getrlimit(RLIMIT_NOFILE, &now);
	if (now.rlim_max >= FDS_WANTED || setrlimit(RLIMIT_NOFILE, &limit) < 0) {
		limit = now;
		limit.rlim_cur = now.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
			limit = now;
	}
	return limit.rlim_cur;
}

static void server_on_signal(void *context, struct event_source *source, uint32_t events)
{
	struct server *server = context;
	struct signalfd_siginfo info;
	char text[SETTINGS_TEXT_LEN];

	(void)source;
	(void)events;
	while (read(server->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGHUP) {
			(void)reconfigure_reload(server, text); /* it is logged */
			continue;
		}
		notify_stopping(server);
		log_info("ending signal=%s clients=%u", sigabbrev_np((int)info.ssi_signo),
			 server->n_clients);
		server->is_ending = true;
	}
}

/* The timer is not read: the loop arms it again, which also takes the expiration back. */
static void server_on_timer(void *context, struct event_source *source, uint32_t events)
{
	struct server *server = context;
	(void)source;
	(void)events;
	server->armed_ns = 0;
}

static int server_open_signals(struct server *server)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	sigset_t set;

	/* The daemon must outlive the reader of its log. */
	(void)sigaction(SIGPIPE, &ignore, NULL);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -errno;
	server->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (server->signal_fd < 0)
		return -errno;
	return event_source_add(&server->poller, &server->signals, server->signal_fd, EPOLLIN,
				server_on_signal);
}

static int server_open_descriptors(struct server *server)
{
	int r = poller_open(&server->poller);

	if (r)
		return r;
	server->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (server->timer_fd < 0)
		return -errno;
	server->admission.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (server->admission.spare_fd < 0)
		return -errno;
	r = event_source_add(&server->poller, &server->timer, server->timer_fd, EPOLLIN,
			     server_on_timer);
	if (!r)
		r = tools_open(server);
	return r ? r : server_open_signals(server);
}

static const char *server_dir(const struct server *server)
{
	return *server->settings.sock_dir ? server->settings.sock_dir : NVSHARE_SOCK_DIR_DEFAULT;
}

/* A scheduler whose socket was removed (by a cleaner of /run, or by hand) cannot be reached. */
static void server_log_another(const struct server *server)
{
	char path[PATH_MAX + sizeof(NVSHARE_SOCK_NAME)];

	(void)snprintf(path, sizeof(path), "%s/" NVSHARE_SOCK_NAME, server_dir(server));
	log_error("another nvshare-scheduler runs on '%s'%s", path,
		  access(path, F_OK) == 0 ? ""
					  : ", but its socket is missing: restart that one, and"
					    " the socket is there again");
}

/* r: of listener_open(). Returns -errno. */
static int server_log_not_listening(const struct server *server, int r)
{
	const struct trusted_folder *folder = &server->admission.listener.folder;
	const char *dir = server_dir(server);

	switch (r) {
	case LISTENER_E_TAKEN:
		server_log_another(server);
		return -EADDRINUSE;
	case LISTENER_E_OWNER:
		log_error("the socket's folder '%s' is not safe: '%s' belongs to uid %u, who could"
			  " put another scheduler in this one's place: run chown %u '%s', or set"
			  " NVSHARE_SOCK_DIR to another folder",
			  dir, folder->path, (unsigned int)folder->owner, (unsigned int)geteuid(),
			  folder->path);
		return -EPERM;
	case LISTENER_E_OPEN:
		log_error("the socket's folder '%s' is not safe: others may write to '%s' (mode"
			  " %04o), and could put another scheduler in this one's place: run chmod"
			  " go-w '%s', or set NVSHARE_SOCK_DIR to another folder",
			  dir, folder->path, (unsigned int)folder->mode, folder->path);
		return -EPERM;
	case LISTENER_E_LOCK:
		log_error("'%s/scheduler.lock' is no file of uid %u: remove it, or set"
			  " NVSHARE_SOCK_DIR to another folder",
			  dir, (unsigned int)geteuid());
		return -EPERM;
	case LISTENER_E_OTHER:
		log_error("the service manager passed something else than one listening"
			  " SOCK_SEQPACKET socket '%s/" NVSHARE_SOCK_NAME "': correct"
			  " ListenSequentialPacket= in its .socket unit, or set NVSHARE_SOCK_DIR",
			  dir);
		return -EINVAL;
	default:
		return log_errno(LOG_LEVEL_ERROR, r, "cannot listen on '%s/" NVSHARE_SOCK_NAME "'",
				 dir);
	}
}

static int server_open_listener(struct server *server)
{
	int r = listener_open(server_dir(server), &server->admission.listener);

	if (r)
		return server_log_not_listening(server, r);
	r = admission_open(server);
	if (r)
		return server_log_not_listening(server, r);
	grace_init(server);
	return 0;
}

static int server_allocate(struct server *server)
{
	uint64_t n_fds = server_raise_fd_limit(), n_slab_fds = lending_fds(n_fds);
	uint32_t n_ticket_fds = tickets_fds(n_fds);
	const struct users_limits limits =
		users_limits(n_fds - n_slab_fds - n_ticket_fds, SERVER_PEERS_MAX);
	int r;

	log_debug("limits connections=%u clients=%u pidfds=%u jobs=%u slabs=%llu", limits.n_peers,
		  limits.n_clients, limits.n_pidfds, limits.n_jobs,
		  (unsigned long long)n_slab_fds / 2);
	server->lending.n_fds = (uint32_t)n_slab_fds;
	server->tickets.n_fds_max = n_ticket_fds;
	/*
	 * The size is fixed, so no message makes the daemon allocate. Untouched pages cost
	 * nothing.
	 */
	server->peers = calloc(SERVER_PEERS_MAX, sizeof(*server->peers));
	server->sched_clients = calloc(SERVER_PEERS_MAX, sizeof(*server->sched_clients));
	server->shares.clients = calloc(SERVER_PEERS_MAX, sizeof(*server->shares.clients));
	server->free_slots = calloc(SERVER_PEERS_MAX, sizeof(*server->free_slots));
	server->tools.snapshot.parts =
		calloc(SERVER_PEERS_MAX, sizeof(*server->tools.snapshot.parts));
	if (!server->peers || !server->sched_clients || !server->shares.clients ||
	    !server->free_slots || !server->tools.snapshot.parts)
		return -ENOMEM;
	r = users_init(&server->users, &limits);
	if (!r)
		r = gangs_init(&server->gangs, SERVER_PEERS_MAX);
	return r ? r : doubts_init(server);
}

int server_init(struct server *server, const struct settings *settings)
{
	const struct group *group = getgrnam("nvshare");
	char path[PATH_MAX + sizeof("/" NVSHARE_SOCK_NAME)];
	int r;

	server->settings = *settings;
	server->admission.listener = (struct listener){.fd = -1, .lock_fd = -1, .dir_fd = -1};
	server->timer_fd = server->signal_fd = server->admission.spare_fd = -1;
	server->states.fd = -1;
	notify_open(server);
	spawn_init();
	server->group = group ? group->gr_gid : (gid_t)-1;
	server->now_ns = clock_now_ns();
	server->started_ns = server->now_ns;
	server->armed_ns = DEADLINE_NEVER;
	flow_init(server);
	actions_init(server);
	alerts_init(server);
	events_init(server);
	measure_init(server);
	packet_pairs_init(server);
	stopped_init(server);
	pods_init(&server->pods, "/proc");

	r = server_allocate(server);
	if (!r)
		r = server_open_descriptors(server);
	if (r)
		return log_errno(LOG_LEVEL_ERROR, r, "cannot start");
	r = server_open_listener(server);
	if (r)
		return r;
	http_open(server);
	dispatch_init(server);
	shares_init(server);
	gpus_init(&server->gpus, server->now_ns);
	if (grace_is_on(server))
		gpus_await_clients(&server->gpus);
	measure_tell_new(server);
	reconfigure_note_gpus(server);
	states_open(server);
	r = lending_open(server);
	if (!r)
		r = tickets_open(server);
	if (!r)
		r = job_queue_open(server);
	if (r)
		return log_errno(LOG_LEVEL_ERROR, r, "cannot start");
	(void)snprintf(path, sizeof(path), "%s/" NVSHARE_SOCK_NAME, server_dir(server));
	log_info("listening socket=%s gpus=%u", TEXT_QUOTED(path), server->gpus.n);
	notify_ready(server, "listening on %s/" NVSHARE_SOCK_NAME ", gpus=%u", server_dir(server),
		     server->gpus.n);
	return 0;
}

void server_deinit(struct server *server)
{
	server->is_ending = true;
	/*
	 * The socket stays if clients are connected. It tells the next instance to wait for them.
	 */
	if (server->admission.listener.fd >= 0 && server->n_clients == 0)
		listener_unlink(&server->admission.listener);
	states_close(server);
	job_queue_close(server);
	gpus_deinit(&server->gpus);
	notify_close(server);
	http_close(server);
	/*
	 * The kernel closes the descriptors when the process ends, and that does not wait. A
	 * close() here could wait: that of a peer, or that of the listener, which drops what was
	 * sent before accept().
	 */
	tickets_close(server);
	lending_close(server);
	gangs_deinit(&server->gangs);
	users_deinit(&server->users);
	doubts_deinit(server);
	free(server->tools.snapshot.parts);
	free(server->free_slots);
	free(server->shares.clients);
	free(server->sched_clients);
	free(server->peers);
}

void server_account(struct server *server, struct peer *peer, uint64_t on_card, uint64_t budget)
{
	uint64_t total = server->gpus.at[peer->gpu].total;
	struct memory_account share = {
		.on_card = on_card,
		.swapped = peer->mem.swapped,
		.budget = budget,
		.second = peer->mem.pager_context - (peer->doubted_second < peer->mem.pager_context
							     ? peer->doubted_second
							     : peer->mem.pager_context),
		.doubted = peer->doubted,
		.contexts = peer->mem.pinned[NVSHARE_PINNED_CONTEXT],
		.promised = peer->mem.pager_context ? 0 : peer->promised,
		.is_critical = peer->claim.priority == NVSHARE_PRIORITY_CRITICAL,
	};

	if (peer->backend == NVSHARE_BACKEND_MANAGED)
		share.kept = peer->mem.swapped < total ? peer->mem.swapped : total;
	gpus_account(&server->gpus.at[peer->gpu], &peer->account, &share, server->now_ns);
	job_programs_account(server, peer, &peer->account, &share);
	peer->account = share;
}

/* ---- the loop -------------------------------------------------------------- */

/*
 * A deadline that moves away leaves the timer as it is. Most turns end early, and one needless
 * wake-up is cheaper than a system call a turn. With no deadline at all the timer is disarmed, so
 * that an idle node is not woken.
 */
static void server_arm_timer(struct server *server)
{
	uint64_t at_ns = deadlines_next(&server->deadlines);
	struct itimerspec spec = {.it_value = {0, 0}};

	if (at_ns == server->armed_ns ||
	    (at_ns != DEADLINE_NEVER && at_ns > server->armed_ns && server->armed_ns != 0))
		return;
	if (at_ns != DEADLINE_NEVER) {
		spec.it_value.tv_sec = (time_t)(at_ns / CLOCK_NS_PER_SEC);
		spec.it_value.tv_nsec = (long)(at_ns % CLOCK_NS_PER_SEC);
	}
	if (timerfd_settime(server->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL) == 0)
		server->armed_ns = at_ns;
}

/*
 * Called after callbacks: both state machines of the core hear of each other, and may then have
 * other deadlines.
 */
static void server_settle(struct server *server)
{
	relay_drain(server);
	deadline_set(&server->deadlines, &server->sched_due, sched_deadline(&server->sched));
	deadline_set(&server->deadlines, &server->shares.due,
		     timeshare_deadline(&server->shares.timeshare));
	job_queue_settle(server);
}

static void server_run_due(struct server *server)
{
	struct deadline *deadline;

	while ((deadline = deadlines_take(&server->deadlines, server->now_ns))) {
		deadline->on_due(server, deadline);
		server_settle(server);
	}
}

int server_run(struct server *server)
{
	struct epoll_event events[EVENTS_A_BATCH];

	server_settle(server);
	while (!server->is_ending) {
		int n;

		server_arm_timer(server);
		n = poller_wait(&server->poller, events, EVENTS_A_BATCH, -1);
		if (n < 0)
			return log_errno(LOG_LEVEL_ERROR, n, "cannot wait for events");
		server->now_ns = clock_now_ns();
		for (int i = 0; i < n; i++) {
			poller_dispatch(&server->poller, server, &events[i]);
			relay_drain(server);
		}
		connections_end(server);
		server_settle(server);
		server_run_due(server);
		tools_serve(server);
		http_serve(server);
		do {
			connections_end(server);
			host_tell(server);
		} while (server->connections
				 .closing); /* a peer that is told may turn out to be gone */
		server_settle(server);
	}
	flow_report(server, true);
	return server->admission.lost_r;
}
