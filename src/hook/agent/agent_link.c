/* SPDX-License-Identifier: Apache-2.0 */

/* The agent's connections: one a device, made, kept and made again. */

#include "hook/agent/agent_private.h"
#include "hook/base/hook_log.h"
#include "hook/base/hook_options.h"
#include "hook/base/own_fd.h"
#include "hook/memory/budget.h"
#include "hook/pager/backend.h"
#include "hook/pager/transfer.h"
#include "ipc/pass.h"
#include "ipc/sock.h"
#include "util/clock.h"
#include "util/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINK_REGISTER_NS     (2 * CLOCK_NS_PER_SEC)
#define LINK_PATIENCE_NS_MIN CLOCK_NS_PER_SEC
#define LINK_RECEIVE_MAX     64 /* messages, before other connections get their turn */

/* The process's comm, because ps and nvidia-smi show it. A thread may have another name. */
static void program_read_name(char *ret, size_t size)
{
	const struct hook_options *options = hook_options();
	ssize_t n = 0;
	int fd;

	if (options->name[0]) {
		(void)snprintf(ret, size, "%s", options->name);
		return;
	}
	fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		n = read(fd, ret, size - 1);
	(void)fd_close(fd);
	ret[n > 0 ? n : 0] = '\0';
	ret[strcspn(ret, "\n")] = '\0';
}

void agent_link_wrong(struct agent_link *link)
{
	link->is_wrong = true;
	link->is_broken = true;
}

/* A program without a context and with an open gate needs no scheduler. */
bool agent_link_wants_retry(const struct agent_link *link)
{
	return link->state == AGENT_LINK_BUSY ||
	       (link->state == AGENT_LINK_DOWN &&
		(link->lease.state == LEASE_ORPHAN || device_has_context(link->dev)));
}

/*
 * The descriptor must be forgotten before it is closed. The program may fork at any moment, and the
 * child closes the number that it finds here. By then a file of the program's may have it.
 */
static void link_disconnect(struct agent_link *link)
{
	int fd = link->fd;

	__atomic_store_n(&link->fd, -1, __ATOMIC_RELEASE);
	if (own_fd_of(fd) >= 0)
		(void)shutdown(fd, SHUT_RDWR); /* a child of this moment may still have it open */
	(void)own_fd_close(fd);
	transfer_close(link->dev);
	link->hand_bytes = 0;
	agent_spares_wanted(0);
	link->host_coming = 0;
	agent_moves_sync_coming();
}

/*
 * Settings of this program outlive the scheduler. It may have ended right after it sent one, and
 * the connection broke before we read it.
 */
static void link_hear_last_words(struct agent_link *link)
{
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX + 1];
	struct pass pass;
	struct msg msg;
	ssize_t n;

	for (int i = 0; i < LINK_RECEIVE_MAX; i++) {
		n = pass_recv(own_fd_of(link->fd), bytes, sizeof(bytes), &pass);
		pass_close(pass.fd);
		if (n <= 0)
			return;
		if (msg_decode(bytes, (size_t)n, MSG_TO_CLIENT, &msg) == 0 &&
		    msg.header.type == NVSHARE_MSG_SET_SHARE)
			share_adopt(link, &msg.body.set_share.claim);
	}
}

/* Magic and version stand at the same place in each version of the protocol. */
static void link_note_version(struct agent_link *link, const void *bytes)
{
	struct nvshare_msg_header header;

	memcpy(&header, bytes, sizeof(header));
	link->absence = AGENT_ABSENCE_VERSION;
	link->absence_detail = header.version;
}

void agent_link_refused(struct agent_link *link, const struct nvshare_registered *body)
{
	link->is_refused = true;
	link->absence =
		body->result == NVSHARE_REGISTER_FULL ? AGENT_ABSENCE_FULL : AGENT_ABSENCE_GPU;
}

/*
 * A scheduler may refuse before it has read our message. Then our send or the first read fails
 * (ECONNRESET), and the refusal can be read after it.
 */
static void link_hear_refusal(struct agent_link *link)
{
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX + 1];
	struct msg msg;
	ssize_t n;
	int r;

	for (int i = 0; i < LINK_RECEIVE_MAX && !link->absence; i++) {
		n = sock_recv(own_fd_of(link->fd), bytes, sizeof(bytes));
		if (n == -ECONNRESET)
			continue;
		if (n <= 0)
			return;
		r = msg_decode(bytes, (size_t)n, MSG_TO_CLIENT, &msg);
		if (r == MSG_E_VERSION)
			link_note_version(link, bytes);
		else if (!r && msg.header.type == NVSHARE_MSG_REGISTERED &&
			 msg.body.registered.result != NVSHARE_REGISTER_OK)
			agent_link_refused(link, &msg.body.registered);
	}
}

bool agent_link_is_lost(const struct agent_link *link)
{
	return link->fd >= 0 && own_fd_of(link->fd) < 0;
}

void agent_link_close(struct agent_link *link)
{
	bool was_up = link->state == AGENT_LINK_UP;
	bool was_registering = link->state == AGENT_LINK_REGISTERING;
	enum agent_absence why;

	if (was_up)
		link_hear_last_words(link);
	else if (was_registering)
		link_hear_refusal(link);
	why = link->absence;
	link_disconnect(link);
	link->state = AGENT_LINK_DOWN;
	link->is_broken = false;
	link->is_watched = false;
	link->is_near = false;
	link->n_queued = 0;
	share_lost(link);
	if (was_registering) {
		agent_absence_begin(link, why ? why : AGENT_ABSENCE_TURNED_AWAY,
				    link->absence_detail);
		return;
	}
	if (was_up)
		agent_absence_mistrust(link);
	agent_absence_retry(link);
	if (was_up) {
		hook_debug("device %d: the scheduler is gone", (int)link->dev);
		agent_absence_miss(link);
		agent_lease_step(link, &(struct lease_event){.type = LEASE_EVENT_LOST});
	} else {
		agent_absence_settle(link);
	}
}

void agent_link_flush(struct agent_link *link)
{
	uint32_t n_sent = 0;
	int r = 0;

	while (n_sent < link->n_queued && !r) {
		r = sock_send(own_fd_of(link->fd), &link->queue[n_sent]);
		n_sent += !r;
	}
	link->n_queued -= n_sent;
	memmove(link->queue, &link->queue[n_sent], link->n_queued * sizeof(link->queue[0]));
	if (r && r != -EAGAIN)
		link->is_broken = true;
}

/*
 * A scheduler that has not read our few messages for so long is as good as gone. The connection is
 * closed and made again.
 */
void agent_link_send(struct agent_link *link, uint16_t type, const void *body)
{
	struct msg *msg;

	if (link->fd < 0 || link->is_broken)
		return;
	/* A long piece of the agent's work may send much before the loop flushes. */
	if (link->n_queued)
		agent_link_flush(link);
	if (link->n_queued == AGENT_QUEUE_MAX)
		link->is_broken = true;
	if (link->is_broken)
		return;
	msg = &link->queue[link->n_queued++];
	(void)msg_encode(type, 0, body, msg);
	if (link->n_queued == 1)
		agent_link_flush(link);
}

static bool link_is_waiting(const struct agent_link *link)
{
	return link->state == AGENT_LINK_UP &&
	       (link->lease.state == LEASE_ASKED ||
		(link->lease.state == LEASE_HOLDING && budget_wanting(link->dev)));
}

/*
 * A connection ends with the scheduler, but not when the scheduler hangs. So a client that waits
 * for it sends PING now and then. A client that runs, or wants nothing, sends none.
 */
uint64_t agent_link_listen(struct agent_link *link, uint64_t now_ns)
{
	uint64_t patience_ns = hook_options()->orphan_ns;

	if (patience_ns < LINK_PATIENCE_NS_MIN)
		patience_ns = LINK_PATIENCE_NS_MIN;
	if (!link_is_waiting(link)) {
		link->quiet_ns = 0;
		return AGENT_NEVER;
	}
	if (!link->quiet_ns) {
		link->quiet_ns = now_ns;
		link->ping_ns = 0;
	}
	if (!link->ping_ns && now_ns - link->quiet_ns >= patience_ns / 2) {
		link->ping_ns = now_ns;
		agent_link_send(link, NVSHARE_MSG_PING, &(struct nvshare_heartbeat){now_ns});
	}
	if (!link->ping_ns)
		return link->quiet_ns + patience_ns / 2;
	if (now_ns - link->ping_ns >= patience_ns) {
		hook_debug("device %d: the scheduler hangs", (int)link->dev);
		agent_link_wrong(link);
	}
	return link->ping_ns + patience_ns;
}

/* Only root's scheduler or this user's own may send descriptors: a hostile one could hang us. */
static bool link_may_send_descriptors(const struct agent_link *link)
{
	struct sock_peer scheduler;

	return sock_peer(link->fd, &scheduler) == 0 &&
	       (scheduler.uid == 0 || scheduler.uid == geteuid());
}

static bool link_may_hand_over(const struct agent_link *link)
{
	return backend_of(link->dev) == NVSHARE_BACKEND_VMM && transfer_supported(link->dev);
}

static void link_send_register(struct agent_link *link)
{
	struct nvshare_register body = {
		.gpu_total_bytes = link->total,
	};

	link->is_running = lease_is_open(&link->lease) && device_has_context(link->dev) &&
			   !agent_lease_is_out(link->dev);
	memcpy(body.gpu_uuid, link->uuid, sizeof(body.gpu_uuid));
	agent_lease_memory(link->dev, &body.mem);
	link->reported = body.mem;
	body.budget = agent_lease_budget(link->dev, &body.mem);
	body.flags = (link->is_running ? NVSHARE_REGISTER_RUNNING : 0) |
		     (link->was_registered ? NVSHARE_REGISTER_RECONNECT : 0) |
		     (link->may_hand_over ? NVSHARE_REGISTER_HANDOVER : 0);
	body.backend = backend_of(link->dev);
	share_wanted(&body.claim);
	link->claimed = body.claim;
	program_read_name(body.name, sizeof(body.name));
	(void)snprintf(body.pod, sizeof(body.pod), "%s", hook_options()->pod);
	agent_link_send(link, NVSHARE_MSG_REGISTER, &body);
}

/* An own descriptor, or -errno. */
static int link_open(void)
{
	int fd;

	if (!agent_absence_has_descriptors())
		return -EMFILE;
	fd = sock_connect(hook_options()->sock_dir);
	if (fd < 0)
		return fd;
	fd = own_fd_take(fd);
	return fd < 0 ? -EMFILE : fd;
}

void agent_link_connect(struct agent_link *link)
{
	int fd = link_open();
	bool is_trusted;

	link->is_refused = false;
	link->is_wrong = false;
	link->absence = AGENT_ABSENCE_NONE;
	if (fd < 0) {
		hook_debug("device %d: no scheduler: %s", (int)link->dev, strerror(-fd));
		if (fd == -ECONNREFUSED)
			agent_absence_miss(link); /* it left its socket, so it was killed */
		agent_absence_begin(link, agent_absence_of(-fd), (uint32_t)-fd);
		return;
	}
	link->fd = fd;
	is_trusted = link_may_send_descriptors(link);
	link->may_hand_over = is_trusted && link_may_hand_over(link);
	link->may_borrow = is_trusted && agent_slabs_may_borrow(link);
	if (link->may_hand_over || link->may_borrow)
		(void)pass_allow(fd, true);
	link->state = AGENT_LINK_REGISTERING;
	link->register_ns = clock_now_ns() + LINK_REGISTER_NS;
	link_send_register(link);
}

void agent_link_register_again(struct agent_link *link)
{
	link_disconnect(link);
	link->n_queued = 0;
	agent_link_connect(link);
}

/* true: it has taken a message, and there may be more. */
static bool link_receive_one(struct agent_link *link)
{
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX + 1];
	struct pass pass;
	struct msg msg;
	ssize_t n;
	int r;

	if (link->fd < 0 || link->is_broken)
		return false;
	n = pass_recv(own_fd_of(link->fd), bytes, sizeof(bytes), &pass);
	if (n == -EAGAIN)
		return false;
	if (n <= 0) {
		pass_close(pass.fd);
		link->is_broken = true;
		return false;
	}
	link->quiet_ns = 0;
	r = msg_decode(bytes, (size_t)n, MSG_TO_CLIENT, &msg);
	if (r) {
		pass_close(pass.fd);
		if (r == MSG_E_VERSION && link->state == AGENT_LINK_REGISTERING)
			link_note_version(link, bytes);
		else
			hook_warn_once("the scheduler sent a message of another kind (%s); "
				       "are both of the same version?",
				       msg_error(r));
		agent_link_wrong(link);
		return false;
	}
	agent_message_take_descriptor(link, &msg, pass.fd);
	agent_message_handle(link, &msg);
	return true;
}

void agent_link_receive(struct agent_link *link)
{
	for (int i = 0; i < LINK_RECEIVE_MAX && link_receive_one(link); i++)
		;
}

bool agent_link_hear(const struct agent_link *link, int wait_ms)
{
	struct pollfd fd = {.fd = own_fd_of(link->fd), .events = POLLIN};

	return fd.fd < 0 || link->is_broken ||
	       clock_poll(&fd, 1, clock_now_ns() + (uint64_t)wait_ms * CLOCK_NS_PER_MS) > 0;
}

unsigned int agent_link_receive_during(struct agent_link *link, unsigned int mask)
{
	static const uint8_t during[] = {
#define NVSHARE_MSG(id, NAME, field, body, direction, during) [id] = AGENT_DURING_##during,
#include "nvshare/messages.def"
#undef NVSHARE_MSG
	};
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX + 1];
	struct msg msg;
	ssize_t n;

	if (link->fd < 0 || link->is_broken)
		return AGENT_DURING_NEVER;
	n = sock_peek(own_fd_of(link->fd), bytes, sizeof(bytes));
	if (n <= 0 && n != -EAGAIN)
		link->is_broken = true;
	if (n <= 0 || msg_decode(bytes, (size_t)n, MSG_TO_CLIENT, &msg) ||
	    !(during[msg.header.type] & mask) || !link_receive_one(link))
		return AGENT_DURING_NEVER;
	return during[msg.header.type];
}
