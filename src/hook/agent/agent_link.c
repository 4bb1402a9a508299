/* SPDX-License-Identifier: Apache-2.0 */

/* The agent's connections: one a device, made, kept and made again. */

#include "core/u64.h"
#include "hook/agent/agent_private.h"
#include "hook/base/hook_log.h"
#include "hook/base/hook_options.h"
#include "hook/gate/gate.h"
#include "hook/host/hostmem.h"
#include "hook/memory/budget.h"
#include "hook/memory/context_cost.h"
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
#define LINK_RECEIVE_MAX     64           /* messages, before others get their turn */
#define LINK_BYTES_MAX       (1ull << 48) /* above any card or machine, as in a report */

/* comm, not argv[0]: it is what ps and nvidia-smi show, and threads may have renamed theirs. */
static void read_name(char *ret, size_t size)
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

/* Without a context or a closed gate there is nothing that a scheduler should know of. */
bool agent_link_wants_retry(const struct agent_link *link)
{
	return link->state == AGENT_LINK_BUSY ||
	       (link->state == AGENT_LINK_DOWN &&
		(link->lease.state == LEASE_ORPHAN || device_has_context(link->dev)));
}

bool agent_link_is_coming(const struct agent_link *link)
{
	return link->state == AGENT_LINK_BUSY || link->state == AGENT_LINK_REGISTERING;
}

/*
 * Forgotten first: the program may fork at any moment, and its child closes what is noted
 * here, which by then may be the number of a file of the program's.
 */
static void disconnect(struct agent_link *link)
{
	int fd = link->fd;

	__atomic_store_n(&link->fd, -1, __ATOMIC_RELEASE);
	if (fd >= 0)
		(void)shutdown(fd, SHUT_RDWR); /* a child may have it, from a fork just now */
	(void)fd_close(fd);
	transfer_close(link->dev);
	link->hand_bytes = 0;
	agent_halt_wanted(link, 0);
	hostmem_set_coming(0);
}

/*
 * What somebody has set of this program is kept, also if the scheduler has ended right after it
 * had said so: what failed was to answer, or a read that said no more than that it has ended.
 */
static void hear_last_words(struct agent_link *link)
{
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX + 1];
	struct pass pass;
	struct msg msg;
	ssize_t n;

	for (int i = 0; i < LINK_RECEIVE_MAX; i++) {
		n = pass_recv(link->fd, bytes, sizeof(bytes), &pass);
		pass_close(pass.fd);
		if (n <= 0)
			return;
		if (msg_decode(bytes, (size_t)n, MSG_TO_CLIENT, &msg) == 0 &&
		    msg.header.type == NVSHARE_MSG_SET_SHARE)
			share_adopt(link, &msg.body.set_share.claim);
	}
}

/* Of any version: magic and version stay where they are. */
static void note_version(struct agent_link *link, const void *bytes)
{
	struct nvshare_msg_header header;

	memcpy(&header, bytes, sizeof(header));
	link->absence = AGENT_ABSENCE_VERSION;
	link->absence_detail = header.version;
}

static void note_refusal(struct agent_link *link, const struct nvshare_registered *body)
{
	link->is_refused = true;
	link->absence =
		body->result == NVSHARE_REGISTER_FULL ? AGENT_ABSENCE_FULL : AGENT_ABSENCE_GPU;
}

/*
 * A scheduler may refuse before it has read what we sent. Then sending fails, or the first read
 * (ECONNRESET), and the refusal lies behind that.
 */
static void hear_refusal(struct agent_link *link)
{
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX + 1];
	struct msg msg;
	ssize_t n;
	int r;

	for (int i = 0; i < LINK_RECEIVE_MAX && !link->absence; i++) {
		n = sock_recv(link->fd, bytes, sizeof(bytes));
		if (n == -ECONNRESET)
			continue;
		if (n <= 0)
			return;
		r = msg_decode(bytes, (size_t)n, MSG_TO_CLIENT, &msg);
		if (r == MSG_E_VERSION)
			note_version(link, bytes);
		else if (!r && msg.header.type == NVSHARE_MSG_REGISTERED &&
			 msg.body.registered.result != NVSHARE_REGISTER_OK)
			note_refusal(link, &msg.body.registered);
	}
}

void agent_link_close(struct agent_link *link)
{
	bool was_up = link->state == AGENT_LINK_UP;
	bool was_registering = link->state == AGENT_LINK_REGISTERING;
	enum agent_absence why;

	if (was_up)
		hear_last_words(link);
	else if (was_registering)
		hear_refusal(link);
	why = link->absence;
	disconnect(link);
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
		r = sock_send(link->fd, &link->queue[n_sent]);
		n_sent += !r;
	}
	link->n_queued -= n_sent;
	memmove(link->queue, &link->queue[n_sent], link->n_queued * sizeof(link->queue[0]));
	if (r && r != -EAGAIN)
		link->is_broken = true;
}

/*
 * A scheduler that does not read for so long that our few messages do not fit is as good
 * as gone: the connection is given up, and made again.
 */
void agent_link_send(struct agent_link *link, uint16_t type, const void *body)
{
	struct msg *msg;

	if (link->fd < 0 || link->is_broken)
		return;
	/* Work of the agent's may send much before the loop looks whether more can be sent. */
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

static bool is_waiting(const struct agent_link *link)
{
	return link->state == AGENT_LINK_UP &&
	       (link->lease.state == LEASE_ASKED ||
		(link->lease.state == LEASE_HOLDING && budget_wanting(link->dev)));
}

/*
 * A connection tells of the scheduler's death, not that it hangs. Whoever waits for it
 * asks now and then whether it is still there; who runs, or wants nothing, sends nothing.
 */
uint64_t agent_link_listen(struct agent_link *link, uint64_t now_ns)
{
	uint64_t patience_ns = hook_options()->orphan_ns;

	if (patience_ns < LINK_PATIENCE_NS_MIN)
		patience_ns = LINK_PATIENCE_NS_MIN;
	if (!is_waiting(link)) {
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

/* Descriptors are taken of root's scheduler or this user's own: any other could hang us. */
static bool may_hand_over(const struct agent_link *link)
{
	struct sock_peer scheduler;

	return backend_of(link->dev) == NVSHARE_BACKEND_VMM && transfer_supported(link->dev) &&
	       sock_peer(link->fd, &scheduler) == 0 &&
	       (scheduler.uid == 0 || scheduler.uid == geteuid());
}

static void send_register(struct agent_link *link)
{
	struct nvshare_register body = {
		.gpu_total_bytes = link->total,
	};

	link->is_running = lease_is_open(&link->lease) && device_has_context(link->dev);
	memcpy(body.gpu_uuid, link->uuid, sizeof(body.gpu_uuid));
	agent_lease_memory(link->dev, &body.mem);
	link->reported = body.mem;
	body.budget = agent_lease_budget(link->dev, &body.mem);
	body.flags = (link->is_running ? NVSHARE_REGISTER_RUNNING : 0) |
		     (link->was_registered ? NVSHARE_REGISTER_RECONNECT : 0) |
		     (link->is_fixed ? NVSHARE_REGISTER_FIXED : 0) |
		     (link->may_hand_over ? NVSHARE_REGISTER_HANDOVER : 0);
	body.backend = backend_of(link->dev);
	share_wanted(&body.claim);
	link->claimed = body.claim;
	read_name(body.name, sizeof(body.name));
	(void)snprintf(body.pod, sizeof(body.pod), "%s", hook_options()->pod);
	agent_link_send(link, NVSHARE_MSG_REGISTER, &body);
}

void agent_link_connect(struct agent_link *link)
{
	int fd = agent_absence_has_descriptors() ? sock_connect(hook_options()->sock_dir) : -EMFILE;

	link->is_refused = false;
	link->is_wrong = false;
	link->absence = AGENT_ABSENCE_NONE;
	if (fd < 0) {
		hook_debug("device %d: no scheduler: %s", (int)link->dev, strerror(-fd));
		if (fd == -ECONNREFUSED)
			agent_absence_miss(link); /* its socket is there: it was killed */
		agent_absence_begin(link, agent_absence_of(-fd), (uint32_t)-fd);
		return;
	}
	link->fd = fd;
	link->may_hand_over = may_hand_over(link);
	if (link->may_hand_over)
		(void)pass_allow(fd, true);
	link->state = AGENT_LINK_REGISTERING;
	link->register_ns = clock_now_ns() + LINK_REGISTER_NS;
	send_register(link);
}

/*
 * REGISTER said that nothing has begun here; but a thread may have made a context since,
 * and the scheduler would take the memory of work that runs. Asked with the gate closed,
 * so that what has not begun by now will not.
 */
static bool has_begun_since(struct agent_link *link)
{
	if (link->is_running || !lease_is_open(&link->lease))
		return false;
	gate_set(GATE_CLOSED);
	if (!device_has_context(link->dev))
		return false;
	agent_lease_sync_gate();
	return true;
}

static void register_again(struct agent_link *link)
{
	disconnect(link);
	link->n_queued = 0;
	agent_link_connect(link);
}

/* Who asked for none is told nothing; a later one may have been given by nvsharectl. */
static void check_priority(const struct agent_link *link, const struct nvshare_claim *given)
{
	if (!link->was_registered && link->claimed.priority > NVSHARE_PRIORITY_NORMAL &&
	    given->priority < link->claimed.priority)
		hook_warn_once("priority %s is given, not %s: what users may claim is the "
			       "scheduler's NVSHARE_PRIORITY_MAX",
			       hook_options_priority(given->priority),
			       hook_options_priority(link->claimed.priority));
}

static void handle_registered(struct agent_link *link, const struct nvshare_registered *body)
{
	if (link->state != AGENT_LINK_REGISTERING) {
		link->is_broken = true;
		return;
	}
	if (body->result != NVSHARE_REGISTER_OK) {
		note_refusal(link, body);
		link->is_broken = true;
		return;
	}
	if (has_begun_since(link)) {
		register_again(link);
		return;
	}
	if (!share_admitted(link, body)) {
		agent_lease_sync_gate();
		register_again(link);
		return;
	}
	hook_debug("device %d: registered as client %u", (int)link->dev, body->client);
	link->state = AGENT_LINK_UP;
	check_priority(link, &body->claim);
	share_registered(link, body);
	link->was_registered = true;
	link->is_missed = false;
	link->is_away = false;
	link->busy_ns = 0;
	link->up_ns = clock_now_ns();
	link->quiet_ns = 0;
	link->backoff_ns = AGENT_BACKOFF_NS_MIN;
	link->orphan_ns = AGENT_NEVER;
	link->is_orphan_late = false;
	if (body->context_bytes && body->context_bytes <= link->total)
		context_cost_learn(link->dev, body->context_bytes);
	budget_set_reserve(link->dev, body->reserve_percent);
	agent_lease_step(link, &(struct lease_event){.type = LEASE_EVENT_REGISTERED,
						     .running = link->is_running});
	if (link->lease.state == LEASE_HOLDING)
		agent_lease_want(link);
	if (!agent_pair_owns(link))
		agent_settle(link->dev, CUDA_SUCCESS);
}

/* What was refused may have been given up, or come to be less, while the answer came. */
static bool is_still_lacked(const struct agent_link *link, uint64_t wanted)
{
	struct nvshare_mem mem;
	uint64_t lacked;

	budget_read(link->dev, &mem);
	lacked = mem.wanted + mem.wanted_pinned;
	return lacked && lacked >= wanted;
}

/* Driver and budget count in bytes of this card: more would be no budget at all. */
static uint64_t possible_budget(const struct agent_link *link, uint64_t budget)
{
	if (backend_of(link->dev) == NVSHARE_BACKEND_MANAGED)
		return u64_min(budget, LINK_BYTES_MAX);
	return u64_min(budget, link->total);
}

/* Sums of them do not overflow. */
static void take_others(uint64_t others)
{
	hostmem_set_others(u64_min(others, LINK_BYTES_MAX));
}

/* Takes fd, which may be -1: one that comes with a message that has none is closed. */
static void take_passed(struct agent_link *link, const struct msg *msg, int fd)
{
	bool is_drop = msg->header.type == NVSHARE_MSG_DROP_LOCK;
	bool is_awaited = link->may_hand_over && link->state == AGENT_LINK_UP;

	if (is_drop) /* for this order, whatever became of an earlier one */
		link->hand_bytes = fd >= 0 && is_awaited ? msg->body.drop_lock.hand_bytes : 0;
	if (is_drop && link->hand_bytes)
		transfer_set_sink(link->dev, fd);
	else if (msg->header.type == NVSHARE_MSG_HANDOVER && is_awaited && fd >= 0)
		transfer_add_source(link->dev, fd);
	else
		pass_close(fd);
}

/* Only what a scheduler says to a client gets here: msg_decode() refuses the rest. */
static void handle_message(struct agent_link *link, const struct msg *msg)
{
	struct lease_event event = {0};

	switch (msg->header.type) {
	case NVSHARE_MSG_REGISTERED:
		handle_registered(link, &msg->body.registered);
		return;
	case NVSHARE_MSG_HEARTBEAT:
		agent_link_send(link, NVSHARE_MSG_HEARTBEAT, &msg->body.heartbeat);
		return;
	case NVSHARE_MSG_SET_SHARE:
		if (link->state == AGENT_LINK_UP)
			share_set(link, &msg->body.set_share);
		else
			link->is_broken = true;
		return;
	case NVSHARE_MSG_LOCK_OK:
		budget_set_bound(link->dev, UINT64_MAX);
		event.type = LEASE_EVENT_LOCK_OK;
		event.grant = msg->body.lock_ok.grant;
		event.budget = possible_budget(link, msg->body.lock_ok.budget);
		event.epoch = msg->body.lock_ok.epoch;
		break;
	case NVSHARE_MSG_DROP_LOCK:
		event.type = LEASE_EVENT_DROP;
		event.grant = msg->body.drop_lock.grant;
		event.bytes = msg->body.drop_lock.bytes;
		event.epoch = msg->body.drop_lock.epoch;
		take_others(msg->body.drop_lock.host_others);
		hostmem_set_coming(
			u64_min(msg->body.drop_lock.host_coming,
				u64_min(msg->body.drop_lock.host_others, LINK_BYTES_MAX)));
		link->second_max = msg->body.drop_lock.pager_context_max;
		link->charge = msg->body.drop_lock.charge;
		break;
	case NVSHARE_MSG_MEM_AVAILABLE:
		event.type = LEASE_EVENT_BUDGET;
		event.budget = possible_budget(link, msg->body.mem_available.budget);
		event.epoch = msg->body.mem_available.epoch;
		break;
	case NVSHARE_MSG_MEM_REFUSED:
		event.type = LEASE_EVENT_REFUSED;
		budget_set_bound(link->dev, msg->body.mem_refused.limit);
		break;
	case NVSHARE_MSG_PREPARE_SWAP_OUT:
		event.type = LEASE_EVENT_PREPARE;
		event.bytes = msg->body.prepare_swap_out.bytes;
		event.due_ms = msg->body.prepare_swap_out.due_ms;
		take_others(msg->body.prepare_swap_out.host_others);
		link->second_max = msg->body.prepare_swap_out.pager_context_max;
		break;
	case NVSHARE_MSG_HOST_MEMORY:
		take_others(msg->body.host_memory.others);
		agent_halt_wanted(link, msg->body.host_memory.wanted);
		hook_debug("others have %llu bytes of host memory, and lack %llu",
			   (unsigned long long)msg->body.host_memory.others,
			   (unsigned long long)msg->body.host_memory.wanted);
		return;
	case NVSHARE_MSG_WAIT_FOR_MEM:
		/* Memory that is being moved comes with what was asked for on top. */
		if (msg->body.wait_for_mem.why != NVSHARE_WAIT_SWAP &&
		    link->state == AGENT_LINK_UP && budget_drop_slack(link->dev))
			agent_lease_report(link, true);
		return;
	default:
		return; /* PING: for information; HANDOVER: what came with it has been taken */
	}
	if (link->state != AGENT_LINK_UP) {
		link->is_broken = true;
		return;
	}
	hook_debug("device %d: %s", (int)link->dev, msg_name(msg->header.type));
	if (event.type == LEASE_EVENT_REFUSED &&
	    !is_still_lacked(link, msg->body.mem_refused.wanted)) {
		agent_lease_want(link); /* told again: is that, too, never to be had? */
		return;
	}
	agent_lease_step(link, &event);
	if (event.type == LEASE_EVENT_LOCK_OK && link->lease.state == LEASE_HOLDING)
		link->mistrust_ns = 0;
	/* A budget that is smaller than what a thread waits for: it must be told again. */
	if (link->lease.state == LEASE_HOLDING &&
	    (event.type == LEASE_EVENT_LOCK_OK || event.type == LEASE_EVENT_BUDGET))
		agent_lease_want(link);
}

/* true: a message was taken, and there may be more. */
static bool receive_one(struct agent_link *link)
{
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX + 1];
	struct pass pass;
	struct msg msg;
	ssize_t n;
	int r;

	if (link->fd < 0 || link->is_broken)
		return false;
	n = pass_recv(link->fd, bytes, sizeof(bytes), &pass);
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
			note_version(link, bytes);
		else
			hook_warn_once("the scheduler sent a message of another kind (%s); "
				       "are both of the same version?",
				       msg_error(r));
		agent_link_wrong(link);
		return false;
	}
	take_passed(link, &msg, pass.fd);
	handle_message(link, &msg);
	return true;
}

void agent_link_receive(struct agent_link *link)
{
	for (int i = 0; i < LINK_RECEIVE_MAX && receive_one(link); i++)
		;
}

bool agent_link_hear(const struct agent_link *link, int wait_ms)
{
	struct pollfd fd = {.fd = link->fd, .events = POLLIN};

	return link->fd < 0 || link->is_broken ||
	       clock_poll(&fd, 1, clock_now_ns() + (uint64_t)wait_ms * CLOCK_NS_PER_MS) > 0;
}

bool agent_link_receive_if(struct agent_link *link, uint16_t type)
{
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX + 1];
	struct msg msg;
	ssize_t n;

	if (link->fd < 0 || link->is_broken)
		return false;
	n = sock_peek(link->fd, bytes, sizeof(bytes));
	if (n <= 0 && n != -EAGAIN)
		link->is_broken = true;
	return n > 0 && msg_decode(bytes, (size_t)n, MSG_TO_CLIENT, &msg) == 0 &&
	       msg.header.type == type && receive_one(link);
}
