/* SPDX-License-Identifier: Apache-2.0 */
#include "k8s/transport.h"

#include "util/container_of.h"
#include "util/fd.h"

#include <errno.h>
#include <sys/socket.h>

#define READ_BYTES   16384
#define READS_A_TURN 4

static void transport_end(struct transport *transport, int r)
{
	transport_close(transport);
	transport->on_end(transport, r);
}

/* 0, or -errno: the connection has ended; -ENOTCONN: the peer has left. */
static int transport_read(struct transport *transport)
{
	uint8_t bytes[READ_BYTES];

	for (unsigned int i = 0; i < READS_A_TURN; i++) {
		ssize_t n = recv(transport->source.fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		int r;

		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		if (n == 0)
			return -ENOTCONN;
		r = grpc_receive(&transport->grpc, bytes, (size_t)n, transport->loop->now_ns);
		if (r)
			return r;
	}
	return 0;
}

/* 0, or -errno as above. */
static int transport_write(struct transport *transport)
{
	for (;;) {
		ssize_t n;

		if (!transport->out_len) {
			n = grpc_send(&transport->grpc, &transport->out, transport->loop->now_ns);
			if (n <= 0)
				return (int)n;
			transport->out_len = (size_t)n;
		}
		n = send(transport->source.fd, transport->out, transport->out_len,
			 MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		transport->out += n;
		transport->out_len -= (size_t)n;
	}
}

void transport_flush(struct transport *transport)
{
	uint32_t events = EPOLLIN;
	int r;

	if (!transport->loop)
		return;
	r = transport_write(transport);
	if (!r && !transport->out_len && grpc_has_ended(&transport->grpc))
		r = -ENOTCONN;
	if (!r) {
		events |= transport->out_len ? (uint32_t)EPOLLOUT : 0;
		r = event_source_update(&transport->source, events);
	}
	if (r)
		transport_end(transport, r == -ENOTCONN ? 0 : r);
	else
		loop_timer_set(transport->loop, &transport->timer, grpc_due(&transport->grpc));
}

static void transport_on_event(void *context, struct event_source *source, uint32_t events)
{
	struct transport *transport = container_of(source, struct transport, source);
	int r = 0;

	(void)context;
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		r = transport_read(transport);
	if (r)
		transport_end(transport, r == -ENOTCONN ? 0 : r);
}

static void transport_on_due(struct loop_timer *timer)
{
	struct transport *transport = container_of(timer, struct transport, timer);
	int r = grpc_expire(&transport->grpc, transport->loop->now_ns);

	if (r)
		transport_end(transport, r);
}

int transport_open(struct transport *transport, struct loop *loop, int fd,
		   const struct grpc_service *service, transport_end_fn *on_end)
{
	int r;

	*transport = (struct transport){
		.source = transport->source, /* what it was removed from */
		.timer.on_due = transport_on_due,
		.on_end = on_end,
	};
	r = service ? grpc_open_server(&transport->grpc, service, loop->now_ns)
		    : grpc_open_client(&transport->grpc, loop->now_ns);
	if (!r) {
		r = event_source_add(&loop->poller, &transport->source, fd, EPOLLIN,
				     transport_on_event);
		if (r)
			grpc_close(&transport->grpc);
	}
	if (r) {
		(void)fd_close(fd);
		return r;
	}
	transport->loop = loop;
	return 0;
}

void transport_close(struct transport *transport)
{
	int fd = transport->source.fd;

	if (!transport->loop)
		return;
	transport->loop = NULL;
	loop_timer_clear(&transport->timer);
	event_source_remove(&transport->source);
	grpc_close(&transport->grpc);
	(void)fd_close(fd);
}
