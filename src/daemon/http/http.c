/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http/http.h"

#include "daemon/http/http_host.h"
#include "daemon/http/metrics.h"
#include "daemon/http/metrics_collect.h"
#include "daemon/http/page_html.h"
#include "daemon/server.h"
#include "util/clock.h"
#include "util/container_of.h"
#include "util/fd.h"
#include "util/log.h"
#include "util/parse.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#define HTTP_RETRY_NS (10 * CLOCK_NS_PER_SEC)

/* A connection ends then, however slowly its peer sends or reads. */
#define HTTP_LIFE_NS (10 * CLOCK_NS_PER_SEC)

/*
 * From one run of libmicrohttpd to the next. It reads what it refuses in small pieces, to the end,
 * so a peer could keep it busy all the time.
 */
#define HTTP_PAUSE_NS CLOCK_NS_PER_MS

/* Requests within this time get the same text, so a flood of them costs little. */
#define HTTP_FRESH_NS CLOCK_NS_PER_SEC

/* Of one connection: its headers, and what libmicrohttpd adds. Longer headers get 431. */
#define HTTP_MEMORY_BYTES ((size_t)16 * 1024)

/* ---- answers --------------------------------------------------------------- */

static void http_add_header(struct MHD_Response *response, const char *name, const char *value)
{
	(void)MHD_add_response_header(response, name, value);
}

/* NULL: no memory. text: malloc(); the response owns it. */
static struct MHD_Response *http_response(char *text, size_t len, enum MHD_ResponseMemoryMode mode,
					  const char *type)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(len, text, mode);

	if (!response)
		return NULL;
	http_add_header(response, "Content-Type", type);
	/* One request a connection: so the age of a connection is that of its request. */
	http_add_header(response, "Connection", "close");
	http_add_header(response, "Cache-Control", "no-store");
	http_add_header(response, "Cross-Origin-Resource-Policy", "same-origin");
	http_add_header(response, "X-Content-Type-Options", "nosniff");
	return response;
}

/* Text that another printed, in r. NULL: no memory. */
static struct MHD_Response *http_printed(int r, struct page_text *text, const char *type)
{
	struct MHD_Response *response;

	if (r)
		return NULL;
	response = http_response(text->at, text->len, MHD_RESPMEM_MUST_FREE, type);
	if (!response)
		free(text->at);
	return response;
}

/* NULL: no memory. */
static const struct metrics *http_collect(struct server *server)
{
	struct http *http = &server->http;

	if (!http->metrics)
		http->metrics = calloc(1, sizeof(*http->metrics));
	if (http->metrics)
		metrics_collect(server, http->metrics);
	return http->metrics;
}

static struct MHD_Response *http_make_metrics(struct server *server)
{
	const struct metrics *metrics = http_collect(server);
	struct metrics_text text;
	int r = metrics ? metrics_print(metrics, &text) : -ENOMEM;

	return http_printed(r, &(struct page_text){text.at, text.len},
			    "text/plain; version=0.0.4; charset=utf-8");
}

static struct MHD_Response *http_make_status(struct server *server)
{
	const struct metrics *metrics = http_collect(server);
	struct page_text text;
	int r = metrics ? page_json_status(metrics, &text) : -ENOMEM;

	return http_printed(r, &text, "application/json");
}

static struct MHD_Response *http_make_page(struct server *server)
{
	struct MHD_Response *response;

	(void)server;
	/* libmicrohttpd takes no const, and does not write. */
	response = http_response((char *)(uintptr_t)page_html, page_html_len,
				 MHD_RESPMEM_PERSISTENT, "text/html; charset=utf-8");
	if (!response)
		return NULL;
	http_add_header(response, "Content-Security-Policy", page_policy);
	http_add_header(response, "Referrer-Policy", "no-referrer");
	return response;
}

static const struct {
	const char *path;
	struct MHD_Response *(*make)(struct server *server);
} http_shared[HTTP_SHARED_COUNT] = {
	[HTTP_PAGE] = {"/", http_make_page},
	[HTTP_STATUS] = {"/status.json", http_make_status},
	[HTTP_METRICS] = {"/metrics", http_make_metrics},
};

static struct MHD_Response *http_shared_response(struct server *server, enum http_shared which)
{
	struct http_text *shared = &server->http.shared[which];

	if (shared->response && server->now_ns - shared->made_ns < HTTP_FRESH_NS)
		return shared->response;
	if (shared->response)
		MHD_destroy_response(shared->response); /* answers under way keep it */
	shared->response = http_shared[which].make(server);
	shared->made_ns = server->now_ns;
	return shared->response;
}

static enum MHD_Result http_refuse(struct MHD_Connection *connection, unsigned int status,
				   const char *text, const char *allow)
{
	char *copy = strdup(text);
	struct MHD_Response *response =
		copy ? http_response(copy, strlen(copy), MHD_RESPMEM_MUST_FREE, "text/plain")
		     : NULL;
	enum MHD_Result r;

	if (!response) {
		free(copy);
		return MHD_NO; /* the connection ends */
	}
	if (allow)
		http_add_header(response, "Allow", allow);
	r = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return r;
}

/* response: NULL: no memory. */
static enum MHD_Result http_queue(struct MHD_Connection *connection, struct MHD_Response *response)
{
	if (!response)
		return http_refuse(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "no memory\n", NULL);
	return MHD_queue_response(connection, MHD_HTTP_OK, response);
}

/* Each viewer gets what it has not had; the text is made once a second. */
static enum MHD_Result http_answer_trace(struct server *server, struct MHD_Connection *connection)
{
	const char *arg = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "since");
	struct page_trace *trace = &server->http.trace;
	struct MHD_Response *response;
	enum MHD_Result r;
	struct page_text text;
	uint64_t since = 0;

	if (arg && parse_u64(arg, 0, UINT64_MAX, &since))
		return http_refuse(connection, MHD_HTTP_BAD_REQUEST, "since=NUMBER\n", NULL);
	if (!trace->made_ns || server->now_ns - trace->made_ns >= HTTP_FRESH_NS)
		(void)page_trace_make(trace, &server->trace, server->now_ns);
	response = http_printed(page_trace_since(trace, since, &text), &text, "application/json");
	r = http_queue(connection, response);
	if (response)
		MHD_destroy_response(response);
	return r;
}

struct http_host {
	const char *value; /* libmicrohttpd's; NULL: the header is empty */
	uint32_t n;
};

static enum MHD_Result http_on_header(void *context, enum MHD_ValueKind kind, const char *name,
				      const char *value)
{
	struct http_host *host = context;

	(void)kind;
	if (strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0) {
		host->value = value;
		host->n++;
	}
	return MHD_YES;
}

/*
 * NULL, or why the request is refused. Browsers do not know Unix sockets, and always send a Host:
 * a request without one is a tool's.
 */
static const char *http_refuse_host(const struct http_listener *listener,
				    struct MHD_Connection *connection)
{
	struct http_host host = {.n = 0};

	if (listener->address->at.ss_family == AF_UNIX)
		return NULL;
	(void)MHD_get_connection_values(connection, MHD_HEADER_KIND, http_on_header, &host);
	if (host.n == 0)
		return NULL;
	if (host.n == 1 &&
	    http_host_is_right(host.value ? host.value : "", listener->server->settings.http_hosts))
		return NULL;
	return "the Host header must be an IP address, localhost, or a name that"
	       " NVSHARE_HTTP_HOSTS lists\n";
}

/* Called with the headers. An answer then means that a body is not read. */
static enum MHD_Result http_on_request(void *context, struct MHD_Connection *connection,
				       const char *url, const char *method, const char *version,
				       const char *body, size_t *body_len, void **request)
{
	struct http_listener *listener = context;
	const char *refusal = http_refuse_host(listener, connection);
	enum http_shared which = 0;

	(void)version;
	(void)body;
	(void)body_len;
	(void)request;
	listener->server->http.n_answers++;
	if (refusal)
		return http_refuse(connection, MHD_HTTP_MISDIRECTED_REQUEST, refusal, NULL);
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return http_refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
				   "only GET and HEAD are allowed\n", "GET, HEAD");
	if (strcmp(url, "/trace.json") == 0)
		return http_answer_trace(listener->server, connection);
	while (which < HTTP_SHARED_COUNT && strcmp(url, http_shared[which].path) != 0)
		which++;
	if (which == HTTP_SHARED_COUNT)
		return http_refuse(connection, MHD_HTTP_NOT_FOUND,
				   "not found; there are /, /metrics, /status.json, /trace.json\n",
				   NULL);
	return http_queue(connection, http_shared_response(listener->server, which));
}

/* ---- connections ----------------------------------------------------------- */

/* libmicrohttpd sees the end, and closes the descriptor. */
static void http_end(struct http_listener *listener, struct http_connection *at)
{
	(void)shutdown(at->fd, SHUT_RDWR);
	at->since_ns = listener->server->now_ns;
	listener->is_ready = true;
}

/* The oldest one, other than newest, ends where all places are taken: the next to come finds one.
 */
static void http_keep_room(struct http_listener *listener, const struct http_connection *newest)
{
	struct http_connection *oldest = NULL;

	for (uint32_t i = 0; i < HTTP_CONNECTIONS_MAX; i++) {
		struct http_connection *at = &listener->connections[i];

		if (at->fd < 0)
			return;
		if (at != newest && (!oldest || at->since_ns < oldest->since_ns))
			oldest = at;
	}
	http_end(listener, oldest);
}

static void http_set_expiry(struct http_listener *listener)
{
	uint64_t oldest_ns = DEADLINE_NEVER;

	for (uint32_t i = 0; i < HTTP_CONNECTIONS_MAX; i++) {
		const struct http_connection *at = &listener->connections[i];

		if (at->fd >= 0 && at->since_ns < oldest_ns)
			oldest_ns = at->since_ns;
	}
	deadline_set(&listener->server->deadlines, &listener->expiry,
		     oldest_ns == DEADLINE_NEVER ? DEADLINE_NEVER : oldest_ns + HTTP_LIFE_NS);
}

static void http_on_connection(void *context, struct MHD_Connection *connection, void **place,
			       enum MHD_ConnectionNotificationCode code)
{
	struct http_listener *listener = context;
	struct http_connection *at = *place;

	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		listener->has_room = true;
		if (at)
			at->fd = -1;
		return;
	}
	for (uint32_t i = 0; i < HTTP_CONNECTIONS_MAX; i++) {
		at = &listener->connections[i];
		if (at->fd >= 0)
			continue;
		at->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)
				 ->connect_fd;
		at->since_ns = listener->server->now_ns;
		*place = at;
		http_keep_room(listener, at);
		return;
	}
}

static void http_on_expiry(struct server *server, struct deadline *deadline)
{
	struct http_listener *listener = container_of(deadline, struct http_listener, expiry);

	for (uint32_t i = 0; i < HTTP_CONNECTIONS_MAX; i++) {
		struct http_connection *at = &listener->connections[i];

		if (at->fd < 0 || server->now_ns - at->since_ns < HTTP_LIFE_NS)
			continue;
		http_end(listener, at);
	}
}

/* ---- the loop -------------------------------------------------------------- */

static void http_on_ready(void *context, struct event_source *source, uint32_t events)
{
	struct server *server = context;
	(void)server;
	(void)events;
	container_of(source, struct http_listener, source)->is_ready = true;
}

static void http_on_pause_end(struct server *server, struct deadline *deadline)
{
	struct http_listener *listener = container_of(deadline, struct http_listener, pause);

	if (event_source_update(&listener->source, EPOLLIN))
		deadline_set(&server->deadlines, deadline, server->now_ns + HTTP_PAUSE_NS);
}

static void http_on_wait(struct server *server, struct deadline *deadline)
{
	(void)server;
	container_of(deadline, struct http_listener, wait)->is_ready = true;
}

static void http_serve_listener(struct server *server, struct http_listener *listener)
{
	MHD_UNSIGNED_LONG_LONG ms;
	uint64_t wait_ns = DEADLINE_NEVER;

	listener->is_ready = listener->has_room = false;
	(void)MHD_run(listener->daemon);
	if (!event_source_update(&listener->source, 0))
		deadline_set(&server->deadlines, &listener->pause, server->now_ns + HTTP_PAUSE_NS);
	if (MHD_get_timeout(listener->daemon, &ms) == MHD_YES)
		wait_ns = server->now_ns + ms * CLOCK_NS_PER_MS;
	/*
	 * A full listener does not look at its socket. It must run once more after a connection has
	 * ended: only at the begin of a run does it look again.
	 */
	if (listener->has_room)
		wait_ns = server->now_ns;
	if (wait_ns < server->now_ns + HTTP_PAUSE_NS)
		wait_ns = server->now_ns + HTTP_PAUSE_NS;
	deadline_set(&server->deadlines, &listener->wait, wait_ns);
	http_set_expiry(listener);
}

void http_serve(struct server *server)
{
	for (uint32_t i = 0; i < server->http.addresses.n; i++) {
		if (server->http.listeners[i].is_ready)
			http_serve_listener(server, &server->http.listeners[i]);
	}
}

/* ---- listening ------------------------------------------------------------- */

__attribute__((format(printf, 2, 0))) static void http_log(void *context, const char *format,
							   va_list args)
{
	char line[256];

	(void)context;
	(void)vsnprintf(line, sizeof(line), format, args);
	line[strcspn(line, "\n")] = '\0';
	log_debug("http %s", line);
}

/* 0 or -errno. */
static int http_start(struct server *server, struct http_listener *listener)
{
	int fd = http_address_listen(listener->address), r;

	if (fd < 0)
		return fd;
	listener->daemon = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_USE_ERROR_LOG, 0, NULL, NULL, http_on_request, listener,
		MHD_OPTION_EXTERNAL_LOGGER, http_log, NULL, MHD_OPTION_LISTEN_SOCKET, fd,
		MHD_OPTION_CONNECTION_LIMIT, (unsigned int)HTTP_CONNECTIONS_MAX,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, HTTP_MEMORY_BYTES,
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned int)(HTTP_LIFE_NS / CLOCK_NS_PER_SEC),
		MHD_OPTION_NOTIFY_CONNECTION, http_on_connection, listener, MHD_OPTION_END);
	if (!listener->daemon) {
		(void)fd_close(fd);
		return -ENOMEM;
	}
	r = event_source_add(
		&server->poller, &listener->source,
		MHD_get_daemon_info(listener->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd, EPOLLIN,
		http_on_ready);
	if (r) {
		MHD_stop_daemon(listener->daemon);
		listener->daemon = NULL;
	}
	return r;
}

static void http_try(struct server *server, struct http_listener *listener)
{
	const char *text = listener->address->text;
	int r = http_start(server, listener);

	if (!r) {
		log_info("http address=%s", text);
		return;
	}
	if (!listener->is_failed)
		(void)log_errno(
			LOG_LEVEL_WARN, r,
			"http-failed address=%s: no metrics and no page there until it is free;"
			" NVSHARE_HTTP_ADDRESS names another one, or 0 for none",
			text);
	listener->is_failed = true;
	deadline_set(&server->deadlines, &server->http.retry, server->now_ns + HTTP_RETRY_NS);
}

static void http_on_retry(struct server *server, struct deadline *deadline)
{
	(void)deadline;
	for (uint32_t i = 0; i < server->http.addresses.n; i++) {
		if (!server->http.listeners[i].daemon)
			http_try(server, &server->http.listeners[i]);
	}
}

void http_open(struct server *server)
{
	struct http *http = &server->http;

	http->addresses = server->settings.http;
	http->retry.on_due = http_on_retry;
	for (uint32_t i = 0; i < http->addresses.n; i++) {
		struct http_listener *listener = &http->listeners[i];

		listener->address = &http->addresses.at[i];
		listener->server = server;
		listener->wait.on_due = http_on_wait;
		listener->pause.on_due = http_on_pause_end;
		listener->expiry.on_due = http_on_expiry;
		for (uint32_t j = 0; j < HTTP_CONNECTIONS_MAX; j++)
			listener->connections[j].fd = -1;
		http_try(server, listener);
	}
}

void http_close(struct server *server)
{
	struct http *http = &server->http;

	for (uint32_t i = 0; i < http->addresses.n; i++) {
		if (!http->listeners[i].daemon)
			continue;
		event_source_remove(&http->listeners[i].source);
		MHD_stop_daemon(http->listeners[i].daemon);
	}
	for (uint32_t i = 0; i < HTTP_SHARED_COUNT; i++) {
		if (http->shared[i].response)
			MHD_destroy_response(http->shared[i].response);
	}
	page_trace_deinit(&http->trace);
	free(http->metrics);
}
