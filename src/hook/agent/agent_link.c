/* SPDX-License-Identifier: Apache-2.0 */

/* The agent's connections: one a device, made, kept and made again. */

#include "hook/agent/agent_private.h"
#include "hook/gate/gate.h"
#include "hook/hook_log.h"
#include "hook/hook_options.h"
#include "hook/host/hostmem.h"
#include "hook/memory/backend.h"
#include "hook/memory/budget.h"
#include "hook/pager/transfer.h"
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
#define LINK_BACKOFF_NS_MIN  (100 * CLOCK_NS_PER_MS)
#define LINK_BACKOFF_NS_MAX  CLOCK_NS_PER_SEC       /* shorter than a restarted scheduler's grace */
#define LINK_AWAY_NS_MAX     (8 * CLOCK_NS_PER_SEC) /* of one that is there, and takes us not */
#define LINK_BUSY_NS         (2 * CLOCK_NS_PER_SEC) /* agent.h says so, too */
#define LINK_NAP_NS          (20 * CLOCK_NS_PER_MS)
#define LINK_PATIENCE_NS_MIN CLOCK_NS_PER_SEC
#define LINK_RECEIVE_MAX     64 /* messages, before others get their turn */

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

static void schedule_retry(struct agent_link *link)
{
	uint64_t max_ns = link->is_away ? LINK_AWAY_NS_MAX : LINK_BACKOFF_NS_MAX;

	if (link->backoff_ns > max_ns)
		link->backoff_ns = max_ns;
	link->retry_ns = clock_now_ns() + link->backoff_ns;
	link->backoff_ns *= 2;
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

/* Nobody takes us: the program goes on without, unless it is told not to. */
static void settle_absent(struct agent_link *link)
{
	if (agent_pair_owns(link))
		return;
	if (!hook_options()->require_scheduler) {
		agent_settle(link->dev, CUDA_SUCCESS);
		return;
	}
	if (!link->is_refused)
		hook_warn_once("NVSHARE_REQUIRE_SCHEDULER is set and no nvshare-scheduler answers; "
			       "the program gets CUDA_ERROR_SYSTEM_NOT_READY");
	agent_settle(link->dev, CUDA_ERROR_SYSTEM_NOT_READY);
}

/* Once for each time that it was there, else a program would wait for it for ever. */
static void miss(struct agent_link *link)
{
	if (!link->is_missed)
		budget_lost(link->dev);
	link->is_missed = true;
}

/*
 * A scheduler that is there, and has no time or room just now, has some in a moment: so long
 * who makes a context goes on waiting. After that the pauses grow, as all of its programs may
 * be at it. true: in a moment.
 */
static bool may_nap(struct agent_link *link, enum agent_absence why)
{
	uint64_t now_ns = clock_now_ns(), nap_ns = LINK_NAP_NS / 2 + now_ns % LINK_NAP_NS;

	if (link->is_away || (why != AGENT_ABSENCE_BUSY && why != AGENT_ABSENCE_TURNED_AWAY))
		return false;
	if (!link->busy_ns)
		link->busy_ns = now_ns + LINK_BUSY_NS;
	/* Each connection that it closes is work of its own. */
	if (why == AGENT_ABSENCE_TURNED_AWAY)
		nap_ns += LINK_BACKOFF_NS_MIN;
	link->retry_ns = now_ns + nap_ns;
	return link->retry_ns < link->busy_ns;
}

/* This try came to nothing. detail: as for agent_absence_tell(). */
static void give_up(struct agent_link *link, enum agent_absence why, uint32_t detail)
{
	if (may_nap(link, why)) {
		link->state = AGENT_LINK_BUSY;
		return;
	}
	link->state = AGENT_LINK_DOWN;
	link->busy_ns = 0;
	link->is_away = why != AGENT_ABSENCE_NO_SOCKET;
	if (link->is_away && !link->is_refused && why != AGENT_ABSENCE_DESCRIPTORS)
		miss(link); /* it is there */
	/* One that was lost is no news to who uses it; and several GPUs have words of their own. */
	if (!(why == AGENT_ABSENCE_NO_SOCKET &&
	      (link->was_registered || hook_options()->require_scheduler)) &&
	    !(link->is_refused && link->is_fixed))
		agent_absence_tell(why, detail);
	schedule_retry(link);
	settle_absent(link);
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
	link->door_bytes = 0;
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
	struct msg msg;
	ssize_t n;

	for (int i = 0; i < LINK_RECEIVE_MAX; i++) {
		n = sock_recv(link->fd, bytes, sizeof(bytes));
		if (n <= 0)
			return;
		if (msg_decode(bytes, (size_t)n, MSG_TO_CLIENT, &msg) == 0 &&
		    msg.header.type == NVSHARE_MSG_SET_SHARE)
			share_adopt(link, &msg.body.set_share_25.claim);
	}
}

void agent_link_close(struct agent_link *link)
{
	bool was_up = link->state == AGENT_LINK_UP;
	bool was_registering = link->state == AGENT_LINK_REGISTERING;
	enum agent_absence why = link->absence;

	if (was_up)
		hear_last_words(link);
	disconnect(link);
	link->state = AGENT_LINK_DOWN;
	link->is_broken = false;
	link->is_watched = false;
	link->is_near = false;
	link->n_queued = 0;
	share_lost(link);
	if (was_registering) {
		give_up(link, why ? why : AGENT_ABSENCE_TURNED_AWAY, link->absence_detail);
		return;
	}
	schedule_retry(link);
	if (was_up) {
		hook_debug("device %d: the scheduler is gone", (int)link->dev);
		miss(link);
		agent_lease_step(link, &(struct lease_event){.type = LEASE_EVENT_LOST});
	} else {
		settle_absent(link);
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
		link->is_broken = true;
	}
	return link->ping_ns + patience_ns;
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
		     (link->is_fixed ? NVSHARE_REGISTER_FIXED : 0);
	body.backend = backend_of(link->dev);
	if (body.backend == NVSHARE_BACKEND_VMM)
		transfer_open(link->dev, &body.door);
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
	link->absence = AGENT_ABSENCE_NONE;
	if (fd < 0) {
		hook_debug("device %d: no scheduler: %s", (int)link->dev, strerror(-fd));
		if (fd == -ECONNREFUSED)
			miss(link); /* its socket is there: it was killed */
		give_up(link, agent_absence_of(-fd), (uint32_t)-fd);
		return;
	}
	link->fd = fd;
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
		link->is_refused = true;
		link->is_broken = true;
		link->absence = body->result == NVSHARE_REGISTER_FULL ? AGENT_ABSENCE_FULL
								      : AGENT_ABSENCE_GPU;
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
	link->quiet_ns = 0;
	link->backoff_ns = LINK_BACKOFF_NS_MIN;
	link->orphan_ns = AGENT_NEVER;
	link->is_orphan_late = false;
	if (body->context_bytes)
		agent_set_context_bytes(link->dev, body->context_bytes);
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

	budget_read(link->dev, &mem);
	return mem.wanted + mem.wanted_pinned >= wanted;
}

/* Only what a scheduler says to a client gets here: msg_decode() refuses the rest. */
static void handle_message(struct agent_link *link, const struct msg *msg)
{
	struct lease_event event = {0};

	switch (msg->header.type) {
	case NVSHARE_MSG_REGISTERED:
		handle_registered(link, &msg->body.registered_14);
		return;
	case NVSHARE_MSG_HEARTBEAT:
		agent_link_send(link, NVSHARE_MSG_HEARTBEAT, &msg->body.heartbeat_13);
		return;
	case NVSHARE_MSG_SET_SHARE:
		if (link->state == AGENT_LINK_UP)
			share_set(link, &msg->body.set_share_25);
		else
			link->is_broken = true;
		return;
	case NVSHARE_MSG_LOCK_OK:
		event.type = LEASE_EVENT_LOCK_OK;
		event.grant = msg->body.lock_ok_5.grant;
		event.budget = msg->body.lock_ok_5.budget;
		event.epoch = msg->body.lock_ok_5.epoch;
		break;
	case NVSHARE_MSG_DROP_LOCK:
		event.type = LEASE_EVENT_DROP;
		event.grant = msg->body.drop_lock_6.grant;
		event.bytes = msg->body.drop_lock_6.bytes;
		event.epoch = msg->body.drop_lock_6.epoch;
		hostmem_set_others(msg->body.drop_lock_6.host_others);
		hostmem_set_coming(msg->body.drop_lock_6.host_coming);
		link->second_max = msg->body.drop_lock_6.second_max;
		link->charge = msg->body.drop_lock_6.charge;
		link->door = msg->body.drop_lock_6.door;
		link->door_bytes = msg->body.drop_lock_6.door_bytes;
		break;
	case NVSHARE_MSG_MEM_AVAILABLE:
		event.type = LEASE_EVENT_BUDGET;
		event.budget = msg->body.mem_available_11.budget;
		event.epoch = msg->body.mem_available_11.epoch;
		break;
	case NVSHARE_MSG_MEM_REFUSED:
		event.type = LEASE_EVENT_REFUSED;
		break;
	case NVSHARE_MSG_PREPARE_SWAP_OUT:
		event.type = LEASE_EVENT_PREPARE;
		event.bytes = msg->body.prepare_swap_out_12.bytes;
		event.due_ms = msg->body.prepare_swap_out_12.due_ms;
		hostmem_set_others(msg->body.prepare_swap_out_12.host_others);
		link->second_max = msg->body.prepare_swap_out_12.second_max;
		break;
	case NVSHARE_MSG_HOST_MEMORY:
		hostmem_set_others(msg->body.host_memory_27.others);
		agent_halt_wanted(link, msg->body.host_memory_27.wanted);
		hook_debug("others have %llu bytes of host memory, and lack %llu",
			   (unsigned long long)msg->body.host_memory_27.others,
			   (unsigned long long)msg->body.host_memory_27.wanted);
		return;
	case NVSHARE_MSG_WAIT_FOR_MEM:
		/* Memory that is being moved comes with what was asked for on top. */
		if (msg->body.wait_for_mem_10.why != NVSHARE_WAIT_SWAP &&
		    link->state == AGENT_LINK_UP && budget_drop_slack(link->dev))
			agent_lease_report(link, true);
		return;
	default:
		return; /* PING: for information */
	}
	if (link->state != AGENT_LINK_UP) {
		link->is_broken = true;
		return;
	}
	hook_debug("device %d: %s", (int)link->dev, msg_name(msg->header.type));
	if (event.type == LEASE_EVENT_REFUSED &&
	    !is_still_lacked(link, msg->body.mem_refused_15.wanted)) {
		agent_lease_want(link); /* told again: is that, too, never to be had? */
		return;
	}
	agent_lease_step(link, &event);
	/* A budget that is smaller than what a thread waits for: it must be told again. */
	if (link->lease.state == LEASE_HOLDING &&
	    (event.type == LEASE_EVENT_LOCK_OK || event.type == LEASE_EVENT_BUDGET))
		agent_lease_want(link);
}

/* Of any version: magic and version stay where they are. */
static void note_version(struct agent_link *link, const void *bytes)
{
	struct nvshare_msg_header header;

	memcpy(&header, bytes, sizeof(header));
	link->absence = AGENT_ABSENCE_VERSION;
	link->absence_detail = header.version;
}

/* true: a message was taken, and there may be more. */
static bool receive_one(struct agent_link *link)
{
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX + 1];
	struct msg msg;
	ssize_t n;
	int r;

	if (link->fd < 0 || link->is_broken)
		return false;
	n = sock_recv(link->fd, bytes, sizeof(bytes));
	if (n == -EAGAIN)
		return false;
	if (n <= 0) {
		link->is_broken = true;
		return false;
	}
	link->quiet_ns = 0;
	r = msg_decode(bytes, (size_t)n, MSG_TO_CLIENT, &msg);
	if (r) {
		if (r == MSG_E_VERSION && link->state == AGENT_LINK_REGISTERING)
			note_version(link, bytes);
		else
			hook_warn_once("the scheduler sent a message of another kind (%s); "
				       "are both of the same version?",
				       msg_error(r));
		link->is_broken = true;
		return false;
	}
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

	return link->fd < 0 || link->is_broken || poll(&fd, 1, wait_ms) > 0;
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
