/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_HTTP_H
#define NVS_DAEMON_HTTP_H

/*
 * Metrics and the page by HTTP: libmicrohttpd inside the loop, without threads. All of it is
 * read-only.
 *
 * Everybody may connect, so nothing here may delay a decision. libmicrohttpd's epoll is a source
 * of the loop, and is served at most once a millisecond, after clients and tools. The text is made
 * at most once a second for all requests, and each round sends a part of it. Connections are few,
 * their memory is bounded, and each serves one request and ends within HTTP_LIFE_NS.
 *
 * An address that is taken is no reason to end: the log names it, and it is tried again.
 *
 * Threading: the loop's.
 */

#include "daemon/deadlines.h"
#include "daemon/http/http_address.h"
#include "daemon/http/page_json.h"
#include "util/event_source.h"

#include <stdbool.h>
#include <stdint.h>

struct MHD_Daemon;
struct MHD_Response;
struct metrics;
struct server;

struct http_connection {
	int fd;            /* libmicrohttpd's; -1: the place is free */
	uint64_t since_ns; /* when it came */
};

struct http_listener {
	const struct http_address *address;
	struct MHD_Daemon *daemon; /* NULL: it does not listen */
	struct event_source source;
	struct deadline wait;   /* libmicrohttpd has work by then */
	struct deadline pause;  /* its source is watched again; not set: it is watched */
	struct deadline expiry; /* the oldest connection ends */
	bool is_ready;          /* in this round */
	bool has_room;          /* a connection has ended in this run */
	bool is_failed;         /* the log says so */
	struct server *server;
	struct http_connection connections[HTTP_CONNECTIONS_MAX];
};

/* Answers that all requests of a second share. */
enum http_shared { HTTP_PAGE, HTTP_STATUS, HTTP_METRICS, HTTP_SHARED_COUNT };

struct http_text {
	struct MHD_Response *response; /* NULL: not made yet */
	uint64_t made_ns;
};

struct http {
	struct http_addresses addresses;
	struct http_listener listeners[HTTP_ADDRESSES_MAX];
	struct deadline retry;
	struct metrics *metrics; /* as collected last; NULL: never */
	struct http_text shared[HTTP_SHARED_COUNT];
	struct page_trace trace; /* all requests of a second share it, too */
	uint64_t n_answers;
};

/* Failures are logged, and tried again later. */
void http_open(struct server *server);
void http_close(struct server *server);

/* Serves the listeners that are ready, once. */
void http_serve(struct server *server);

#endif
