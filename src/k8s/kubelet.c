/* SPDX-License-Identifier: Apache-2.0 */
#include "k8s/kubelet.h"

#include "k8s/methods.h"
#include "util/container_of.h"
#include "util/fd.h"
#include "util/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define ACCEPTS_A_TURN 16

static void kubelet_retry(struct kubelet *kubelet, enum kubelet_state state)
{
	kubelet->state = state;
	loop_timer_set(kubelet->loop, &kubelet->timer, kubelet->loop->now_ns + kubelet->retry_ns);
	kubelet->retry_ns = 2 * kubelet->retry_ns < KUBELET_RETRY_MAX_NS ? 2 * kubelet->retry_ns
									 : KUBELET_RETRY_MAX_NS;
}

/* At once, as the first of new tries. */
static void kubelet_hurry(struct kubelet *kubelet)
{
	kubelet->retry_ns = KUBELET_RETRY_MIN_NS;
	kubelet->state = KUBELET_DUE;
	loop_timer_set(kubelet->loop, &kubelet->timer, kubelet->loop->now_ns);
}

/* 0 or -ENAMETOOLONG. */
static int kubelet_address(const struct kubelet *kubelet, const char *name, struct sockaddr_un *ret)
{
	int n;

	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	n = snprintf(ret->sun_path, sizeof(ret->sun_path), "%s/%s", kubelet->dir, name);
	return n >= 0 && (size_t)n < sizeof(ret->sun_path) ? 0 : -ENAMETOOLONG;
}

/* ---- the own socket ---------------------------------------------------------- */

static void kubelet_on_accept(void *context, struct event_source *source, uint32_t events)
{
	struct kubelet *kubelet = container_of(source, struct kubelet, listener);

	(void)context;
	(void)events;
	for (unsigned int i = 0; i < ACCEPTS_A_TURN; i++) {
		int fd = accept4(kubelet->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0)
			return;
		kubelet->on_connection(kubelet, fd);
	}
}

static void kubelet_unbind(struct kubelet *kubelet)
{
	event_source_remove(&kubelet->listener);
	kubelet->listen_fd = fd_close(kubelet->listen_fd);
}

static bool kubelet_is_bound(const struct kubelet *kubelet)
{
	struct stat stat;

	return kubelet->listen_fd >= 0 &&
	       fstatat(kubelet->dir_fd, kubelet->endpoint, &stat, AT_SYMLINK_NOFOLLOW) == 0 &&
	       stat.st_dev == kubelet->bound_dev && stat.st_ino == kubelet->bound_ino;
}

/* 0 or -errno. The lock makes sure that a socket of this name serves nobody. */
static int kubelet_bind(struct kubelet *kubelet)
{
	struct sockaddr_un address;
	struct stat stat;
	int fd, r;

	kubelet_unbind(kubelet);
	r = kubelet_address(kubelet, kubelet->endpoint, &address);
	if (r)
		return r;
	if (unlinkat(kubelet->dir_fd, kubelet->endpoint, 0) < 0 && errno != ENOENT)
		return -errno;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	kubelet->listen_fd = fd;
	if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ||
	    fstatat(kubelet->dir_fd, kubelet->endpoint, &stat, AT_SYMLINK_NOFOLLOW) < 0 ||
	    listen(fd, KUBELET_BACKLOG) < 0) {
		r = -errno;
		kubelet_unbind(kubelet);
		return r;
	}
	kubelet->bound_dev = stat.st_dev;
	kubelet->bound_ino = stat.st_ino;
	return event_source_add(&kubelet->loop->poller, &kubelet->listener, fd, EPOLLIN,
				kubelet_on_accept);
}

/* ---- registration ------------------------------------------------------------ */

static void kubelet_on_client_end(struct transport *transport, int r)
{
	(void)transport;
	(void)r; /* kubelet_on_done() has been called */
}

static void kubelet_on_done(void *owner, enum grpc_code code, const char *text,
			    const uint8_t *message, size_t len)
{
	struct kubelet *kubelet = owner;

	(void)message;
	(void)len;
	kubelet->is_client_done = true;
	if (kubelet->state != KUBELET_ASKED)
		return; /* that kubelet is gone */
	if (code != GRPC_OK) {
		log_warn("register-refused resource=%s code=%d: %s", kubelet->resource, (int)code,
			 text);
		kubelet_retry(kubelet, KUBELET_DUE);
		return;
	}
	log_info("registered resource=%s endpoint=%s", kubelet->resource, kubelet->endpoint);
	kubelet->state = KUBELET_REGISTERED;
	kubelet_note_watchers(kubelet, kubelet->n_watchers);
}

/* 0 or -errno. */
static int kubelet_ask(struct kubelet *kubelet)
{
	struct sockaddr_un address;
	struct methods_answer request = {.code = GRPC_OK};
	int fd, r;

	transport_close(&kubelet->client);
	kubelet->is_client_done = false;
	r = kubelet_address(kubelet, KUBELET_SOCK, &address);
	if (r)
		return r;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
		r = -errno;
		(void)fd_close(fd);
		return r;
	}
	r = transport_open(&kubelet->client, kubelet->loop, fd, NULL, kubelet_on_client_end);
	if (r)
		return r;
	methods_register(kubelet->resource, kubelet->endpoint, &request);
	r = request.code ? -ENOMEM
			 : grpc_ask(&kubelet->client.grpc, METHODS_REGISTER_PATH, request.bytes,
				    request.len, kubelet_on_done, kubelet);
	methods_clear(&request);
	if (r)
		transport_close(&kubelet->client);
	return r;
}

static void kubelet_register(struct kubelet *kubelet)
{
	int r;

	kubelet->state = KUBELET_DUE;
	r = kubelet_ask(kubelet);
	if (!r) {
		kubelet->state = KUBELET_ASKED;
		return;
	}
	(void)log_errno(LOG_LEVEL_WARN, r, "cannot reach the kubelet on %s/%s", kubelet->dir,
			KUBELET_SOCK);
	kubelet_retry(kubelet, KUBELET_DUE);
}

void kubelet_note_watchers(struct kubelet *kubelet, uint32_t n)
{
	kubelet->n_watchers = n;
	if (kubelet->state != KUBELET_REGISTERED)
		return;
	if (n) {
		kubelet->retry_ns = KUBELET_RETRY_MIN_NS;
		loop_timer_clear(&kubelet->timer);
	} else {
		loop_timer_set(kubelet->loop, &kubelet->timer,
			       kubelet->loop->now_ns + KUBELET_WATCH_NS);
	}
}

/* ---- the folder -------------------------------------------------------------- */

static void kubelet_detach(struct kubelet *kubelet)
{
	kubelet->state = KUBELET_NO_FOLDER;
	transport_close(&kubelet->client);
	kubelet_unbind(kubelet);
	event_source_remove(&kubelet->watch);
	kubelet->watch_fd = fd_close(kubelet->watch_fd);
	kubelet->dir_fd = fd_close(kubelet->dir_fd); /* and its lock */
	loop_timer_clear(&kubelet->timer);
	loop_timer_clear(&kubelet->look);
}

/* A socket's time is that of its birth: nobody writes to it. */
static bool kubelet_is_other_socket(struct kubelet *kubelet, const struct stat *stat)
{
	bool is_other = stat->st_ino != kubelet->seen_ino ||
			stat->st_mtim.tv_sec != kubelet->seen_time.tv_sec ||
			stat->st_mtim.tv_nsec != kubelet->seen_time.tv_nsec;

	kubelet->seen_ino = stat->st_ino;
	kubelet->seen_time = stat->st_mtim;
	return is_other;
}

/* Compares the folder with what is known of it. has_news: a kubelet's socket has come. */
static void kubelet_look(struct kubelet *kubelet, bool has_news)
{
	struct stat stat;
	bool is_there =
		fstatat(kubelet->dir_fd, KUBELET_SOCK, &stat, 0) == 0 && S_ISSOCK(stat.st_mode);

	if (is_there && kubelet_is_other_socket(kubelet, &stat) && kubelet->watch_fd < 0)
		has_news = true;
	if (!kubelet_is_bound(kubelet)) {
		int r = kubelet_bind(kubelet);

		if (r) {
			(void)log_errno(LOG_LEVEL_WARN, r, "cannot listen on %s/%s", kubelet->dir,
					kubelet->endpoint);
			kubelet_detach(kubelet);
			kubelet_retry(kubelet, KUBELET_NO_FOLDER);
			return;
		}
		has_news = true;
	}
	if (!is_there) {
		kubelet->state = KUBELET_ABSENT;
		loop_timer_clear(&kubelet->timer);
	} else if (has_news || kubelet->state == KUBELET_ABSENT) {
		kubelet_hurry(kubelet);
	}
}

static void kubelet_lose_folder(struct kubelet *kubelet)
{
	log_warn("the folder %s is gone", kubelet->dir);
	kubelet_detach(kubelet);
	kubelet->retry_ns = KUBELET_RETRY_MIN_NS;
	kubelet_retry(kubelet, KUBELET_NO_FOLDER);
}

static void kubelet_on_look(struct loop_timer *timer)
{
	struct kubelet *kubelet = container_of(timer, struct kubelet, look);
	struct stat open_one, named;

	if (fstat(kubelet->dir_fd, &open_one) < 0 || stat(kubelet->dir, &named) < 0 ||
	    open_one.st_dev != named.st_dev || open_one.st_ino != named.st_ino) {
		kubelet_lose_folder(kubelet);
		return;
	}
	loop_timer_set(kubelet->loop, timer, kubelet->loop->now_ns + KUBELET_LOOK_NS);
	kubelet_look(kubelet, false);
}

static void kubelet_on_news(void *context, struct event_source *source, uint32_t events)
{
	struct kubelet *kubelet = container_of(source, struct kubelet, watch);
	_Alignas(struct inotify_event) char bytes[4096];
	const struct inotify_event *event;
	bool has_news = false, is_gone = false;
	ssize_t n;

	(void)context;
	(void)events;
	n = read(kubelet->watch_fd, bytes, sizeof(bytes));
	for (ssize_t at = 0; at < n; at += (ssize_t)(sizeof(*event) + event->len)) {
		event = (const void *)(bytes + at);
		is_gone |= event->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT);
		has_news |= event->mask & IN_Q_OVERFLOW ||
			    (event->len && event->mask & (IN_CREATE | IN_MOVED_TO) &&
			     !strcmp(event->name, KUBELET_SOCK));
	}
	if (is_gone) {
		kubelet_lose_folder(kubelet);
	} else if (n > 0) {
		kubelet_look(kubelet, has_news);
	}
}

/* 0 or -errno. */
static int kubelet_watch(struct kubelet *kubelet)
{
	const uint32_t mask = IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE_SELF |
			      IN_MOVE_SELF | IN_ONLYDIR;
	const char *limit = "instances";

	kubelet->watch_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (kubelet->watch_fd >= 0) {
		if (inotify_add_watch(kubelet->watch_fd, kubelet->dir, mask) >= 0)
			return event_source_add(&kubelet->loop->poller, &kubelet->watch,
						kubelet->watch_fd, EPOLLIN, kubelet_on_news);
		limit = "watches";
	}
	if (errno != EMFILE && errno != ENOSPC)
		return -errno;
	log_warn("other programs have used up fs.inotify.max_user_%s: the folder %s is looked at"
		 " each second instead",
		 limit, kubelet->dir);
	kubelet->watch_fd = fd_close(kubelet->watch_fd);
	loop_timer_set(kubelet->loop, &kubelet->look, kubelet->loop->now_ns + KUBELET_LOOK_NS);
	return 0;
}

/* 0, -errno or KUBELET_E_TAKEN. */
static int kubelet_attach(struct kubelet *kubelet)
{
	kubelet->dir_fd = open(kubelet->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (kubelet->dir_fd < 0)
		return -errno;
	if (flock(kubelet->dir_fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? KUBELET_E_TAKEN : -errno;
	return kubelet_watch(kubelet);
}

/* 0 or KUBELET_E_TAKEN. */
static int kubelet_try_attach(struct kubelet *kubelet)
{
	int r = kubelet_attach(kubelet);

	if (!r) {
		kubelet->state = KUBELET_ABSENT;
		kubelet->retry_ns = KUBELET_RETRY_MIN_NS;
		kubelet_look(kubelet, true);
		return 0;
	}
	kubelet_detach(kubelet);
	if (r < 0)
		(void)log_errno(LOG_LEVEL_WARN, r, "cannot use the folder %s", kubelet->dir);
	kubelet_retry(kubelet, KUBELET_NO_FOLDER);
	return r > 0 ? r : 0;
}

static void kubelet_on_timer(struct loop_timer *timer)
{
	struct kubelet *kubelet = container_of(timer, struct kubelet, timer);

	switch (kubelet->state) {
	case KUBELET_NO_FOLDER:
		if (kubelet_try_attach(kubelet))
			log_warn("another plugin has the folder %s", kubelet->dir);
		break;
	case KUBELET_DUE:
		kubelet_register(kubelet);
		break;
	case KUBELET_REGISTERED:
		log_warn("nobody watches: the kubelet is asked again");
		kubelet_retry(kubelet, KUBELET_DUE);
		break;
	case KUBELET_ABSENT:
	case KUBELET_ASKED:
		break;
	}
}

/* ---- life -------------------------------------------------------------------- */

int kubelet_open(struct kubelet *kubelet, struct loop *loop, const char *dir, const char *resource,
		 void (*on_connection)(struct kubelet *kubelet, int fd))
{
	struct sockaddr_un address;

	*kubelet = (struct kubelet){
		.loop = loop,
		.dir = dir,
		.resource = resource,
		.on_connection = on_connection,
		.dir_fd = -1,
		.watch_fd = -1,
		.listen_fd = -1,
		.timer.on_due = kubelet_on_timer,
		.look.on_due = kubelet_on_look,
		.retry_ns = KUBELET_RETRY_MIN_NS,
	};
	(void)snprintf(kubelet->endpoint, sizeof(kubelet->endpoint), "%s.sock", resource);
	*strchr(kubelet->endpoint, '/') = '_';
	if (kubelet_address(kubelet, kubelet->endpoint, &address) ||
	    kubelet_address(kubelet, KUBELET_SOCK, &address))
		return KUBELET_E_LONG;
	return kubelet_try_attach(kubelet);
}

void kubelet_close(struct kubelet *kubelet)
{
	if (!kubelet->loop)
		return;
	if (kubelet->dir_fd >= 0 && kubelet_is_bound(kubelet))
		(void)unlinkat(kubelet->dir_fd, kubelet->endpoint, 0);
	kubelet_detach(kubelet);
}

void kubelet_flush(struct kubelet *kubelet)
{
	if (kubelet->is_client_done)
		transport_close(&kubelet->client);
	kubelet->is_client_done = false;
	transport_flush(&kubelet->client);
}
