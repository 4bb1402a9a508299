/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_K8S_GRPC_H
#define NVS_K8S_GRPC_H

/*
 * One gRPC connection as a machine without a socket: bytes in, bytes out (HTTP/2 by nghttp2,
 * plaintext, prior knowledge). A server takes unary calls and streams its answers where asked to.
 * A client makes unary calls.
 *
 * The peer may be hostile. Each limit is named below, and nghttp2 has limits of its own for
 * floods of PING, SETTINGS, CONTINUATION and RST_STREAM. A call that breaks a limit fails with a
 * status, and a connection that breaks HTTP/2 ends.
 *
 * The caller gives the time. Ownership: calls belong to their connection. A pointer to a call is
 * valid until on_gone() or the answer's end. Threading: none.
 */

#include "k8s/grpc_frame.h"

#include <stdbool.h>
#include <sys/types.h>

#define GRPC_STREAMS_MAX  32             /* calls of a peer at once */
#define GRPC_BUFFERED_MAX (8u << 20)     /* bytes of requests that are not complete, of all calls */
#define GRPC_HEADERS_MAX  16384          /* bytes of a call's headers, as HTTP/2 counts them */
#define GRPC_REQUEST_NS   10000000000ull /* a call's request takes no longer */
#define GRPC_ANSWER_NS    30000000000ull /* a peer gets, or takes, an answer within this time */
#define GRPC_IDLE_NS      60000000000ull /* a connection without a call ends after this time */
#define GRPC_PATH_LEN     96

struct grpc;
struct grpc_call;
struct nghttp2_session;

struct grpc_service {
	/* A whole request. It is answered now or later, by one of the functions below. */
	void (*on_request)(struct grpc_call *call, const uint8_t *message, size_t len);
	/* A call is over before its answer was complete. The call is freed afterwards. */
	void (*on_gone)(struct grpc_call *call);
	void *owner;
};

/* text: "" or the peer's reason. message: NULL unless code is GRPC_OK. */
typedef void grpc_done_fn(void *owner, enum grpc_code code, const char *text,
			  const uint8_t *message, size_t len);

enum grpc_state {
	GRPC_READING,   /* its request comes in; or, of a client, its answer */
	GRPC_ASKED,     /* the service owes the answer */
	GRPC_STREAMING, /* the service sends messages until grpc_fail() */
	GRPC_ANSWERED,  /* the answer goes out */
};

struct grpc_call {
	struct grpc *grpc;
	struct grpc_call *prev, *next; /* grpc::calls */
	int32_t stream;
	enum grpc_state state;
	uint64_t due_ns; /* UINT64_MAX: it has time */
	bool is_reset;
	bool is_post, is_grpc, is_encoded; /* headers of a request or an answer */
	size_t headers_len;
	char path[GRPC_PATH_LEN];
	struct grpc_bytes in, out;
	size_t out_at;
	unsigned int code; /* enum grpc_code: of the answer */
	char text[GRPC_TEXT_LEN];
	grpc_done_fn *on_done; /* client */
	void *owner;           /* client */
	/* For the service: its list, and what it likes to note. */
	struct grpc_call *list_prev, *list_next;
	uint64_t mark;
};

struct grpc {
	struct nghttp2_session *session;
	const struct grpc_service *service; /* NULL: a client */
	struct grpc_call *calls;
	uint32_t n_calls;
	size_t buffered;
	uint64_t idle_ns; /* the connection ends then, unless a call begins */
	uint64_t now_ns;
};

/* grpc: zeroed. service is borrowed. 0 or -ENOMEM. */
int grpc_open_server(struct grpc *grpc, const struct grpc_service *service, uint64_t now_ns);
int grpc_open_client(struct grpc *grpc, uint64_t now_ns);

/* Ends all calls: services get on_gone(), clients GRPC_UNAVAILABLE. Zeroes grpc. */
void grpc_close(struct grpc *grpc);

/* Takes bytes of the peer. 0, or -EPROTO or -ENOMEM: the connection is to be closed. */
int grpc_receive(struct grpc *grpc, const uint8_t *bytes, size_t len, uint64_t now_ns);

/*
 * The next bytes for the peer: their number, 0 (none now), or -EPROTO or -ENOMEM as above.
 * *ret_bytes is valid until the next call of this function.
 */
ssize_t grpc_send(struct grpc *grpc, const uint8_t **ret_bytes, uint64_t now_ns);
bool grpc_wants_to_send(const struct grpc *grpc);

/* Neither side has more to say. */
bool grpc_has_ended(const struct grpc *grpc);

/* When grpc_expire() has something to do. */
uint64_t grpc_due(const struct grpc *grpc);

/* Resets calls that are too slow. 0, or -ETIMEDOUT: the connection is to be closed. */
int grpc_expire(struct grpc *grpc, uint64_t now_ns);

/* Tells the peer to begin no more calls here. */
void grpc_goodbye(struct grpc *grpc);

/* The answer of a server's call, in state GRPC_ASKED. */
void grpc_reply(struct grpc_call *call, const void *message, size_t len);

/* The same as an error, or the end of a stream. The text is fit for a log. */
__attribute__((format(printf, 3, 4))) void grpc_fail(struct grpc_call *call, enum grpc_code code,
						     const char *format, ...);

/* The answer is a stream from now on; nothing of it has gone out yet. */
void grpc_stream(struct grpc_call *call);

/* All messages so far are with the peer's flow control. Only then the next one may be pushed. */
bool grpc_is_drained(const struct grpc_call *call);

/* 0, -ENOMEM or -EMSGSIZE. */
int grpc_push(struct grpc_call *call, const void *message, size_t len);

/* A client's call. on_done comes once. 0 or -ENOMEM. */
int grpc_ask(struct grpc *grpc, const char *path, const void *message, size_t len,
	     grpc_done_fn *on_done, void *owner);

#endif
