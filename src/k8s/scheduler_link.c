/* SPDX-License-Identifier: Apache-2.0 */
#include "k8s/scheduler_link.h"

#include "ipc/sock.h"
#include "util/container_of.h"
#include "util/fd.h"
#include "util/log.h"
#include "util/text.h"

#include <errno.h>
#include <string.h>

#define PACKETS_A_TURN 256

static void link_on_event(void *context, struct event_source *source, uint32_t events);

static void link_lose(struct scheduler_link *link, const char *why)
{
	event_source_remove(&link->source);
	link->fd = fd_close(link->fd);
	loop_timer_clear(&link->answer);
	link->is_asked = link->is_wanted = false;
	if (!link->is_told)
		log_warn("scheduler-lost dir='%s': %s", link->sock_dir, why);
	link->is_told = true;
	loop_timer_set(link->loop, &link->timer, link->loop->now_ns + link->retry_ns);
	link->retry_ns =
		2 * link->retry_ns < LINK_RETRY_MAX_NS ? 2 * link->retry_ns : LINK_RETRY_MAX_NS;
	link->owner->on_lost(link);
}

/* A connection has room for a few requests, so a failure is a loss. */
static void link_send(struct scheduler_link *link, uint16_t type, const void *body)
{
	struct msg msg;
	int r;

	if (link->fd < 0)
		return;
	(void)msg_encode(type, 1, body, &msg);
	r = sock_send(link->fd, &msg);
	if (r)
		link_lose(link, strerror(-r));
}

static void link_ask_status(struct scheduler_link *link)
{
	const struct nvshare_get_status body = {.flags = NVSHARE_GET_STATUS_STATES};

	link->is_asked = true;
	link->is_wanted = false;
	link->n_asked++;
	memset(&link->reading, 0, sizeof(link->reading));
	loop_timer_set(link->loop, &link->answer, link->loop->now_ns + LINK_ANSWER_NS);
	link_send(link, NVSHARE_MSG_GET_STATUS, &body);
}

static void link_want_status(struct scheduler_link *link)
{
	if (link->fd < 0)
		return;
	if (link->is_asked)
		link->is_wanted = true;
	else
		link_ask_status(link);
}

static void link_await_event(struct scheduler_link *link)
{
	const struct nvshare_get_events body = {.after = link->event_after, .waits = 1};

	link_send(link, NVSHARE_MSG_GET_EVENTS, &body);
}

uint64_t scheduler_link_ask(struct scheduler_link *link)
{
	link_want_status(link);
	return link->n_asked + link->is_wanted;
}

bool scheduler_link_is_up(const struct scheduler_link *link)
{
	return link->fd >= 0;
}

static void link_connect(struct scheduler_link *link)
{
	int r;

	link->fd = sock_connect(link->sock_dir);
	if (link->fd < 0) {
		link_lose(link, strerror(-link->fd));
		return;
	}
	r = event_source_add(&link->loop->poller, &link->source, link->fd, EPOLLIN, link_on_event);
	if (r) {
		link_lose(link, strerror(-r));
		return;
	}
	link->event_after = 0; /* numbers begin anew with a scheduler */
	loop_timer_set(link->loop, &link->timer, link->loop->now_ns + link->poll_ns);
	link_ask_status(link);
	link_await_event(link);
}

static void link_on_timer(struct loop_timer *timer)
{
	struct scheduler_link *link = container_of(timer, struct scheduler_link, timer);

	if (link->fd < 0) {
		link_connect(link);
		return;
	}
	loop_timer_set(link->loop, timer, link->loop->now_ns + link->poll_ns);
	link_want_status(link);
}

static void link_on_overdue(struct loop_timer *timer)
{
	link_lose(container_of(timer, struct scheduler_link, answer), "it does not answer");
}

static void link_take_event(struct scheduler_link *link, const struct nvshare_event *event)
{
	bool is_of_gpus = event->type == NVSHARE_EVENT_GPU_ERROR ||
			  event->type == NVSHARE_EVENT_GPU_UNRECOVERABLE ||
			  event->type == NVSHARE_EVENT_GPU_BACK ||
			  event->type == NVSHARE_EVENT_MONITOR_DOWN;

	link->event_after = event->id;
	if (is_of_gpus || event->n_missed)
		link_want_status(link);
	link_await_event(link);
}

static void link_take_end(struct scheduler_link *link)
{
	uint64_t number = link->n_asked;
	bool is_wanted = link->is_wanted;

	link->is_asked = false;
	loop_timer_clear(&link->answer);
	link->retry_ns = LINK_RETRY_MIN_NS;
	if (link->is_told || number == 1)
		log_info("scheduler-up dir='%s' gpus=%u", link->sock_dir, link->reading.n);
	link->is_told = false;
	link->owner->on_status(link, &link->reading, number);
	if (is_wanted && !link->is_asked)
		link_ask_status(link);
}

static void link_take(struct scheduler_link *link, struct msg *msg)
{
	switch (msg->header.type) {
	case NVSHARE_MSG_EVENT:
		link_take_event(link, &msg->body.event);
		break;
	case NVSHARE_MSG_RESULT:
		text_sanitize(msg->body.result.text);
		link_lose(link, msg->body.result.text);
		break;
	default:
		gpu_loads_take(&link->reading, msg);
		if (link->is_asked && link->reading.is_whole)
			link_take_end(link);
		break;
	}
}

static void link_on_event(void *context, struct event_source *source, uint32_t events)
{
	struct scheduler_link *link = container_of(source, struct scheduler_link, source);
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX];
	struct msg msg;

	(void)context;
	(void)events;
	for (unsigned int i = 0; i < PACKETS_A_TURN && link->fd >= 0; i++) {
		ssize_t n = sock_recv(link->fd, bytes, sizeof(bytes));
		int r = n > 0 ? msg_decode(bytes, (size_t)n, MSG_TO_TOOL, &msg) : 0;

		if (n == -EAGAIN)
			return;
		if (n <= 0)
			link_lose(link, n ? strerror((int)-n) : "it has ended");
		else if (r)
			link_lose(link, msg_error(r));
		else
			link_take(link, &msg);
	}
}

void scheduler_link_open(struct scheduler_link *link, struct loop *loop, const char *sock_dir,
			 uint64_t poll_ns, const struct scheduler_link_owner *owner)
{
	*link = (struct scheduler_link){
		.owner = owner,
		.loop = loop,
		.sock_dir = sock_dir,
		.poll_ns = poll_ns,
		.fd = -1,
		.timer.on_due = link_on_timer,
		.answer.on_due = link_on_overdue,
		.retry_ns = LINK_RETRY_MIN_NS,
	};
	loop_timer_set(loop, &link->timer, loop->now_ns);
}

void scheduler_link_close(struct scheduler_link *link)
{
	event_source_remove(&link->source);
	link->fd = fd_close(link->fd);
	loop_timer_clear(&link->timer);
	loop_timer_clear(&link->answer);
}
