/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_K8S_TRANSPORT_H
#define NVS_K8S_TRANSPORT_H

/*
 * A gRPC connection (k8s/grpc.h) on a Unix socket, in the loop. A round reads a bounded number of
 * bytes from each, so that a peer that floods waits for the others.
 *
 * Ownership: a transport owns its descriptor, and is part of an owner that outlives the round.
 * Threading: none.
 */

#include "k8s/grpc.h"
#include "k8s/loop.h"

struct transport;

/* The connection has ended, by r: -errno; 0: the peer left. The transport is closed already. */
typedef void transport_end_fn(struct transport *transport, int r);

/* Zeroed: closed. */
struct transport {
	struct loop *loop; /* NULL: closed */
	struct event_source source;
	struct loop_timer timer;
	struct grpc grpc;
	const uint8_t *out; /* of nghttp2: not sent yet */
	size_t out_len;
	transport_end_fn *on_end;
};

/*
 * Takes fd, non-blocking. service: as grpc_open_server(); NULL: a client. 0 or -errno: fd is closed
 * then. on_end never comes from within this function.
 */
int transport_open(struct transport *transport, struct loop *loop, int fd,
		   const struct grpc_service *service, transport_end_fn *on_end);

/* Ends it without on_end. Nothing happens if it is closed. */
void transport_close(struct transport *transport);

/*
 * Sends what can be sent now. An owner calls it once a round for each of its transports, because
 * answers may come from anywhere.
 */
void transport_flush(struct transport *transport);

#endif
