/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/admission.h"

#include "daemon/peers/process.h"
#include "daemon/server.h"
#include "util/clock.h"
#include "util/fd.h"
#include "util/log.h"
#include "util/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

/*
 * A round of the loop accepts so many connections that stay, and so many in all. Connections that
 * have ended already cost little, but take the places of others in the listener's queue.
 */
#define STAYS_A_ROUND   64
#define ACCEPTS_A_ROUND 512

/* The owner, as the reaper knows it, of a connection without a slot. */
#define STRAY UINT32_MAX

/* How often the folder is looked at where it cannot be watched. */
#define LOOK_NS (60 * CLOCK_NS_PER_SEC)

/* The listener rests so long if accepting fails and closing connections does not help. */
#define LISTEN_REST_NS CLOCK_NS_PER_SEC

/* ---- those that say nothing -------------------------------------------------- */

/* The first in the list came first. */
static void admission_set_silence(struct server *server)
{
	uint64_t at_ns = DEADLINE_NEVER;

	if (server->admission.fresh)
		at_ns = server->admission.fresh->came_ns + server->settings.first_message_ns;
	deadline_set(&server->deadlines, &server->admission.silence, at_ns);
}

static void admission_await_message(struct server *server, struct peer *peer)
{
	peer->is_fresh = true;
	peer->came_ns = server->now_ns;
	DL_APPEND2(server->admission.fresh, peer, fresh_prev, fresh_next);
	admission_set_silence(server);
}

static void admission_forget(struct server *server, struct peer *peer)
{
	if (!peer->is_fresh)
		return;
	peer->is_fresh = false;
	DL_DELETE2(server->admission.fresh, peer, fresh_prev, fresh_next);
	admission_set_silence(server);
}

static void admission_on_silence(struct server *server, struct deadline *deadline)
{
	struct peer *peer;

	(void)deadline;
	while ((peer = server->admission.fresh) &&
	       peer->came_ns + server->settings.first_message_ns <= server->now_ns) {
		admission_forget(server, peer);
		server_close(server, peer, "it has said nothing");
	}
}

/* ---- turning away ------------------------------------------------------------- */

static void admission_answer_refused(struct server *server, struct peer *peer,
				     const struct msg *msg)
{
	struct nvshare_registered full = {.result = NVSHARE_REGISTER_FULL};
	struct nvshare_result_msg busy = {.code = NVSHARE_RESULT_BUSY};
	char owner[PODS_OWNER_LEN];

	if (msg->header.type == NVSHARE_MSG_REGISTER) {
		server_send_body(server, peer, NVSHARE_MSG_REGISTERED, 0, &full);
		return;
	}
	pods_print_owner(&server->pods, peer->pod.owner, owner);
	(void)snprintf(busy.text, sizeof(busy.text),
		       "the scheduler is busy: %s has as many connections as others leave it",
		       owner);
	server_send_body(server, peer, NVSHARE_MSG_RESULT, msg->header.seq, &busy);
}

bool admission_hear(struct server *server, struct peer *peer, const struct msg *msg)
{
	admission_forget(server, peer);
	if (!peer->is_refused)
		return true;
	admission_answer_refused(server, peer, msg);
	server_close(server, peer, NULL);
	return false;
}

/*
 * Nobody can send to fd any more. true: close() will not wait, because no packet with descriptors
 * is left in fd.
 */
static bool socket_is_drained(int fd)
{
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX];

	for (unsigned int i = 0; i < STAYS_A_ROUND; i++) {
		int next = sock_next(fd);

		if (next == SOCK_NEXT_NONE || next == SOCK_NEXT_END)
			return true;
		if (next == SOCK_NEXT_RIGHTS)
			return false;
		if (next == SOCK_NEXT_PACKET)
			(void)sock_recv(fd, bytes, sizeof(bytes));
	}
	return false;
}

/* false: the reaper has fd, and tells when the connection of slot is closed. */
static bool admission_close_or_reap(struct server *server, int fd, uint32_t slot)
{
	if (fd >= 0 && server->admission.listener.takes_rights) {
		(void)shutdown(fd, SHUT_RDWR);
		if (!socket_is_drained(fd)) {
			reaper_take(&server->admission.reaper, fd, slot);
			return false;
		}
	}
	(void)fd_close(fd);
	return true;
}

static void admission_rest(struct server *server)
{
	event_source_remove(&server->admission.accepting);
	deadline_set(&server->deadlines, &server->admission.rest, server->now_ns + LISTEN_REST_NS);
}

static void admission_close_stray(struct server *server, int fd)
{
	if (admission_close_or_reap(server, fd, STRAY))
		return;
	/* At the limit, further connections wait in the listener's queue. */
	if (++server->admission.n_strays >= ADMISSION_STRAYS_MAX)
		admission_rest(server);
}

static void admission_free_slot(struct server *server, struct peer *peer)
{
	peer_deinit(peer);
	pods_leave(&server->pods, &peer->pod);
	users_leave(&server->users, peer->user, peer->is_refused);
	server->free_slots[server->n_free_slots++] = peer->slot;
}

void admission_leave(struct server *server, struct peer *peer)
{
	int fd = peer->fd;

	admission_forget(server, peer);
	peer->fd = -1;
	if (admission_close_or_reap(server, fd, peer->slot)) {
		admission_free_slot(server, peer);
		return;
	}
	peer_deinit(peer);
	peer->state = PEER_STATE_REAPED;
}

static void admission_on_reaped(void *context, struct event_source *source, uint32_t events)
{
	struct server *server = context;
	uint32_t slot;

	(void)source;
	(void)events;
	while (reaper_done(&server->admission.reaper, &slot)) {
		if (slot == STRAY)
			server->admission.n_strays--;
		else
			admission_free_slot(server, &server->peers[slot]);
	}
}

/* ---- accepting ---------------------------------------------------------------- */

static void admission_log_turned_away(struct server *server, const struct pod *pod, uid_t uid)
{
	server_log(server, pod->owner, LOG_LEVEL_WARN,
		   "turned-away uid=%u pod=%s connections=%u: no room for another of this user",
		   (unsigned int)uid, TEXT_QUOTED(pod->name), server->users.n_peers);
}

/* Takes fd. */
static void admission_add_peer(struct server *server, int fd)
{
	struct sock_peer cred;
	struct pod pod = {.kind = POD_KIND_NONE};
	struct user *user = NULL;
	struct peer *peer;
	bool is_refused = false;
	uint32_t slot;

	if (sock_peer(fd, &cred) == 0) {
		pods_join(&server->pods, server->settings.pods_dir, fd, &cred, &pod);
		user = users_admit(&server->users, pod.owner);
		is_refused = !user;
		if (is_refused) {
			admission_log_turned_away(server, &pod, cred.uid);
			user = users_refuse(&server->users, pod.owner);
		}
	}
	if (!user) {
		pods_leave(&server->pods, &pod);
		admission_close_stray(server, fd);
		return;
	}
	slot = server->n_free_slots ? server->free_slots[--server->n_free_slots]
				    : server->slots_used++;
	peer = &server->peers[slot];
	peer->slot = slot;
	peer_init(peer, fd, &cred);
	peer->pod = pod;
	peer->user = user;
	peer->is_refused = is_refused;
	if (event_source_add(&server->poller, &peer->input, fd, EPOLLIN, connections_on_event)) {
		admission_leave(server, peer);
		return;
	}
	flow_charge(server, peer, 1);
	if (!is_refused)
		process_connected(server, peer);
	admission_await_message(server, peer);
}

static bool is_out_of_descriptors(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

/*
 * The daemon is out of descriptors. The listener stays readable, so the loop would spin. Giving
 * up the spare descriptor lets it accept one connection and close it.
 */
static void admission_turn_away(struct server *server)
{
	int fd;

	server->admission.spare_fd = fd_close(server->admission.spare_fd);
	fd = listener_accept(&server->admission.listener);
	if (fd < 0 && is_out_of_descriptors(errno))
		admission_rest(server); /* the node itself is out of descriptors */
	if (fd >= 0)
		admission_close_stray(server, fd);
	server->admission.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	server_log(server, QUOTA_NOBODY, LOG_LEVEL_WARN,
		   "turned-away connections=%u: out of file descriptors", server->users.n_peers);
}

/* The peer has closed the connection already. A loop of connect() and close() makes many such. */
static bool admission_is_gone(const struct server *server, int fd)
{
	uint8_t byte;

	return server->admission.listener.takes_rights ? sock_next(fd) == SOCK_NEXT_END
						       : sock_peek(fd, &byte, sizeof(byte)) == 0;
}

void admission_accept(struct server *server)
{
	unsigned int n_stay = 0;

	for (unsigned int i = 0; i < ACCEPTS_A_ROUND && n_stay < STAYS_A_ROUND; i++) {
		int fd;

		if (deadline_is_set(&server->admission.rest))
			return;
		fd = listener_accept(&server->admission.listener);
		if (fd >= 0 && admission_is_gone(server, fd)) {
			(void)fd_close(fd);
			continue;
		}
		if (fd >= 0) {
			admission_add_peer(server, fd);
			n_stay++;
			continue;
		}
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		if (is_out_of_descriptors(errno))
			admission_turn_away(server);
		return;
	}
}

static void admission_on_connect(void *context, struct event_source *source, uint32_t events)
{
	struct server *server = context;
	(void)source;
	(void)events;
	admission_accept(server);
}

static int admission_listen(struct server *server)
{
	return event_source_add(&server->poller, &server->admission.accepting,
				server->admission.listener.fd, EPOLLIN, admission_on_connect);
}

/* ---- the socket's name --------------------------------------------------------- */

/*
 * Somebody may have removed a name, as a cleaner of /run does. New programs would not find it.
 * Where it cannot be made anew for now (in a sticky folder somebody may have taken the name),
 * clients that are there go on, and it is tried again.
 */
static void admission_check_name(struct server *server)
{
	struct admission *admission = &server->admission;
	int old_fd = -1, r;

	if (listener_is_whole(&admission->listener) || server->is_ending)
		return;
	r = listener_renew(&admission->listener, &old_fd);
	if (!r && old_fd >= 0) {
		event_source_remove(&admission->accepting);
		admission_close_stray(server, old_fd);
		r = deadline_is_set(&admission->rest) ? 0 : admission_listen(server);
	}
	if (!r) {
		log_warn("the socket '%s' or its lock was removed, and is there again",
			 admission->listener.addr.sun_path);
		return;
	}
	if (r != LISTENER_E_TAKEN && r != -ESTALE) {
		if (!deadline_is_set(&admission->look))
			log_warn("the socket '%s' or its lock was removed, and cannot be made anew"
				 " (%s): it is tried again each minute",
				 admission->listener.addr.sun_path,
				 r < 0 ? strerror(-r) : "something else has its name");
		deadline_set(&server->deadlines, &admission->look, server->now_ns + LOOK_NS);
		return;
	}
	log_error(
		"the socket '%s' was removed and cannot be made anew (%s): this scheduler ends, start"
		" it again",
		admission->listener.addr.sun_path,
		r < 0 ? strerror(-r) : "another scheduler has its folder");
	admission->lost_r = r;
	server->is_ending = true;
}

/* Others' files in the folder, as in /tmp, are no reason to look. */
static bool admission_concerns(const char *bytes, ssize_t len)
{
	const struct inotify_event *event;

	for (ssize_t at = 0; at < len; at += (ssize_t)(sizeof(*event) + event->len)) {
		event = (const void *)(bytes + at);
		if (event->mask & (IN_Q_OVERFLOW | IN_MOVE_SELF | IN_IGNORED) ||
		    (event->len && listener_has_name(event->name)))
			return true;
	}
	return false;
}

static void admission_on_folder(void *context, struct event_source *source, uint32_t events)
{
	_Alignas(struct inotify_event) char bytes[4096];
	ssize_t n = read(source->fd, bytes, sizeof(bytes));

	(void)events;
	if (admission_concerns(bytes, n))
		admission_check_name(context);
}

static void admission_on_look(struct server *server, struct deadline *deadline)
{
	if (!server->admission.folder.poller)
		deadline_set(&server->deadlines, deadline, server->now_ns + LOOK_NS);
	admission_check_name(server);
}

/* Where nothing happens in the folder, this wakes nobody. */
static void admission_watch(struct server *server)
{
	struct admission *admission = &server->admission;
	char path[32];
	int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

	admission->look.on_due = admission_on_look;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", admission->listener.dir_fd);
	if (fd >= 0 && inotify_add_watch(fd, path, IN_DELETE | IN_MOVE | IN_MOVE_SELF) >= 0 &&
	    event_source_add(&server->poller, &admission->folder, fd, EPOLLIN,
			     admission_on_folder) == 0)
		return;
	log_warn("the socket's folder is looked at once a minute, since it cannot be watched: %s"
		 " (fs.inotify.max_user_instances and max_user_watches are the usual limits)",
		 strerror(errno));
	(void)fd_close(fd);
	deadline_set(&server->deadlines, &admission->look, server->now_ns + LOOK_NS);
}

static void admission_on_rested(struct server *server, struct deadline *deadline)
{
	if (server->admission.n_strays >= ADMISSION_STRAYS_MAX || admission_listen(server))
		deadline_set(&server->deadlines, deadline, server->now_ns + LISTEN_REST_NS);
}

/* The reaper is needed where peers may send descriptors, because closing those may hang. */
int admission_open(struct server *server)
{
	struct reaper *reaper = &server->admission.reaper;
	int r = 0;

	server->admission.silence.on_due = admission_on_silence;
	server->admission.rest.on_due = admission_on_rested;
	if (server->admission.listener.takes_rights)
		r = reaper_init(reaper, SERVER_PEERS_MAX + ADMISSION_STRAYS_MAX);
	if (!r && server->admission.listener.takes_rights)
		r = event_source_add(&server->poller, &server->admission.reaped, reaper->event_fd,
				     EPOLLIN, admission_on_reaped);
	if (!r)
		r = admission_listen(server);
	if (!r)
		admission_watch(server);
	return r;
}
