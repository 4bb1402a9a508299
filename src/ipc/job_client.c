/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/job_client.h"

#include "ipc/msg.h"
#include "ipc/names.h"
#include "ipc/sock.h"
#include "util/clock.h"
#include "util/fd.h"
#include "util/text.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ANSWER_NS   (10 * CLOCK_NS_PER_SEC)
#define FAREWELL_NS (2 * CLOCK_NS_PER_SEC)
#define NEWS_NS     CLOCK_NS_PER_SEC

/*
 * A restarted scheduler waits 1.5 s for running programs before it lets anybody start. So the first
 * tries are quick, and a scheduler that stays away costs a try a second.
 */
#define RETRY_NS_MIN (20 * CLOCK_NS_PER_MS)
#define RETRY_NS_MAX CLOCK_NS_PER_SEC

/* Ten thousand waiting processes that ask once in so long are no burden. */
#define POSITION_NS CLOCK_NS_PER_SEC

/* The numbers of requests. */
enum { SEQ_ASK = 1, SEQ_END };

__attribute__((format(printf, 3, 4))) static int client_fail(struct job_client *client, int error,
							     const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(client->text, sizeof(client->text), format, args);
	va_end(args);
	text_sanitize(client->text);
	client->error = error;
	return error;
}

/* ---- the connection ------------------------------------------------------------ */

static const char *client_connect_text(int r)
{
	switch (-r) {
	case ENOENT:
		return "there is no such socket";
	case ECONNREFUSED:
		return "nobody listens on it";
	case EAGAIN:
		return "its queue of connections is full";
	default:
		return strerror(-r);
	}
}

static void client_disconnect(struct job_client *client)
{
	client->fd = fd_close(client->fd);
	client->is_pending = false;
}

static int client_send(struct job_client *client, uint16_t type, uint32_t seq, const void *body)
{
	struct msg msg;
	int r;

	(void)msg_encode(type, seq, body, &msg);
	r = sock_send(client->fd, &msg); /* a connection has room for our few requests */
	if (!r)
		return 0;
	client_disconnect(client);
	return client_fail(client, JOB_CLIENT_E_AWAY,
			   "the scheduler on %s/" NVSHARE_SOCK_NAME " has ended: %s",
			   sock_dir(client->dir), strerror(-r));
}

/* A full queue of connections is the one failure that a moment mends: tries until end_ns. */
static int client_connect(struct job_client *client, uint64_t end_ns)
{
	int fd = sock_connect(client->dir);

	while (fd == -EAGAIN && clock_now_ns() < end_ns) {
		clock_nap(RETRY_NS_MIN);
		fd = sock_connect(client->dir);
	}
	if (fd < 0)
		return client_fail(client, JOB_CLIENT_E_AWAY,
				   "no scheduler on %s/" NVSHARE_SOCK_NAME ": %s",
				   sock_dir(client->dir), client_connect_text(fd));
	client->fd = fd;
	return 0;
}

static int client_ask_place(struct job_client *client)
{
	const struct nvshare_submit_gang with_gang = {client->submit, client->gang};
	int r = client->gang.size
			? client_send(client, NVSHARE_MSG_SUBMIT_GANG, SEQ_ASK, &with_gang)
			: client_send(client, NVSHARE_MSG_SUBMIT, SEQ_ASK, &client->submit);

	client->is_pending = !r;
	return r;
}

/* ---- answers ------------------------------------------------------------------- */

/* The scheduler has no such job. A command that runs goes on; one that waits takes a new place. */
static int client_on_unknown(struct job_client *client)
{
	if (client->job.state != NVSHARE_JOB_WAITING) {
		client->is_unknown = true;
		client->due_ns = UINT64_MAX;
		client_disconnect(client);
		return JOB_CLIENT_E_REFUSED;
	}
	client->has_lost_place = true;
	client->job = (struct nvshare_job){.job = 0};
	return client_ask_place(client);
}

static int client_on_result(struct job_client *client, const struct nvshare_result_msg *result)
{
	bool was_pending = client->is_pending;

	client->is_pending = false;
	if (result->code == NVSHARE_RESULT_OK || !was_pending)
		return 0;
	(void)client_fail(client, JOB_CLIENT_E_REFUSED, "%s", result->text);
	/* A user with too many connections has some again later, and the place is kept meanwhile.
	 */
	if (result->code == NVSHARE_RESULT_BUSY && client->job.job) {
		client_disconnect(client);
		client->error = JOB_CLIENT_E_AWAY;
		return JOB_CLIENT_E_AWAY;
	}
	return client->job.job ? client_on_unknown(client) : JOB_CLIENT_E_REFUSED;
}

static void client_on_job(struct job_client *client, const struct nvshare_job *job,
			  bool *ret_is_news)
{
	if (client->job.job && job->job != client->job.job)
		return;
	client->is_pending = false;
	*ret_is_news |= memcmp(&client->job, job, sizeof(*job)) != 0;
	client->job = *job;
	text_sanitize(client->job.gpu_uuid);
	text_sanitize(client->job.name);
	text_sanitize(client->job.model);
	text_sanitize(client->job.type);
	text_sanitize(client->job.text);
}

static int client_on_packet(struct job_client *client, const void *bytes, size_t n,
			    bool *ret_is_news)
{
	struct nvshare_msg_header header;
	struct msg msg;
	int r = msg_decode(bytes, n, MSG_TO_TOOL, &msg);

	if (r == MSG_E_VERSION) {
		memcpy(&header, bytes, sizeof(header));
		client_disconnect(client);
		return client_fail(client, JOB_CLIENT_E_VERSION,
				   "the scheduler on %s/" NVSHARE_SOCK_NAME
				   " speaks version %u of the protocol, this program version %u",
				   sock_dir(client->dir), header.version, NVSHARE_PROTOCOL_VERSION);
	}
	if (r) {
		client_disconnect(client);
		return client_fail(client, JOB_CLIENT_E_AWAY,
				   "the scheduler on %s/" NVSHARE_SOCK_NAME
				   " does not answer as it should: %s",
				   sock_dir(client->dir), msg_error(r));
	}
	if (msg.header.type == NVSHARE_MSG_RESULT)
		return client_on_result(client, &msg.body.result);
	if (msg.header.type == NVSHARE_MSG_JOB) {
		client->is_end_answered |= msg.header.seq == SEQ_END;
		client_on_job(client, &msg.body.job, ret_is_news);
	}
	return 0;
}

/* Takes what is there. */
static int client_receive(struct job_client *client, bool *ret_is_news)
{
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX];
	int r = 0;

	while (!r && client->fd >= 0) {
		ssize_t n = sock_recv(client->fd, bytes, sizeof(bytes));

		if (n == -EAGAIN)
			return 0;
		if (n <= 0) {
			client_disconnect(client);
			return client_fail(client, JOB_CLIENT_E_AWAY,
					   "the scheduler on %s/" NVSHARE_SOCK_NAME
					   " closed the connection, or has ended",
					   sock_dir(client->dir));
		}
		r = client_on_packet(client, bytes, (size_t)n, ret_is_news);
	}
	return r;
}

/* ---- steps --------------------------------------------------------------------- */

static bool client_is_over(const struct job_client *client)
{
	return client->is_unknown || client->job.state == NVSHARE_JOB_DONE;
}

static int client_reconnect(struct job_client *client)
{
	struct nvshare_job_ref ref = {.job = client->job.job};
	int r = client_connect(client, 0);

	if (!r && !ref.job)
		return client_ask_place(client);
	if (!r)
		r = client_send(client, NVSHARE_MSG_ATTACH_JOB, SEQ_ASK, &ref);
	client->is_pending = !r;
	return r;
}

uint64_t job_client_near_ns(const struct nvshare_job *job)
{
	return job->limit_ns ? job->limit_ns / 10 * 9 : UINT64_MAX;
}

/*
 * Only the scheduler knows which time counts. So that a job whose time stands still is not asked
 * all the time, its warning may come a hundredth of the limit late.
 */
static uint64_t client_near_pause_ns(const struct nvshare_job *job)
{
	uint64_t left_ns = job_client_near_ns(job) - job->counted_ns;
	uint64_t least_ns = job->limit_ns / 100;

	return left_ns > least_ns ? left_ns : least_ns;
}

static void client_plan(struct job_client *client, uint64_t now_ns)
{
	const struct nvshare_job *job = &client->job;

	client->due_ns = UINT64_MAX;
	if (client_is_over(client))
		return;
	if (client->fd < 0) {
		client->due_ns = now_ns + client->retry_ns;
		client->retry_ns *= 2;
		if (client->retry_ns > RETRY_NS_MAX)
			client->retry_ns = RETRY_NS_MAX;
	} else if (client->is_asking_position && client->job.state == NVSHARE_JOB_WAITING) {
		client->due_ns = now_ns + POSITION_NS;
	} else if (job->state == NVSHARE_JOB_RUNNING && job->limit_ns &&
		   job->counted_ns < job_client_near_ns(job)) {
		client->due_ns = now_ns + client_near_pause_ns(job);
	}
}

int job_client_step(struct job_client *client, bool *ret_is_news)
{
	uint64_t now_ns = clock_now_ns();
	bool is_due = now_ns >= client->due_ns;
	int r = 0;

	*ret_is_news = false;
	if (client_is_over(client))
		return client->is_unknown ? client->error : 0;
	if (client->fd < 0 && is_due)
		r = client_reconnect(client);
	else if (client->fd >= 0 && is_due && !client->is_pending && client->job.job)
		r = client_send(client, NVSHARE_MSG_GET_JOBS, SEQ_ASK,
				&(struct nvshare_get_jobs){.job = client->job.job});
	if (!r && client->fd >= 0)
		r = client_receive(client, ret_is_news);
	if (!r && client->fd >= 0 && !client->is_pending)
		client->retry_ns = RETRY_NS_MIN;
	if (is_due || client->fd < 0 || client->due_ns == UINT64_MAX || *ret_is_news)
		client_plan(client, now_ns);
	if (!r && client->fd < 0 && !client_is_over(client))
		r = client->error;
	return r;
}

/* Until its input, its due time, or end_ns. */
static void client_sleep(const struct job_client *client, uint64_t end_ns)
{
	struct pollfd pfd = {.fd = client->fd, .events = POLLIN};

	(void)clock_poll(&pfd, 1, client->due_ns < end_ns ? client->due_ns : end_ns);
}

void job_client_init(struct job_client *client, const char *dir)
{
	*client = (struct job_client){
		.dir = dir,
		.fd = -1,
		.due_ns = UINT64_MAX,
		.retry_ns = RETRY_NS_MIN,
	};
}

void job_client_deinit(struct job_client *client)
{
	client_disconnect(client);
}

static int client_give_up(struct job_client *client)
{
	client_disconnect(client);
	return client_fail(client, JOB_CLIENT_E_AWAY,
			   "the scheduler on %s/" NVSHARE_SOCK_NAME
			   " has not answered in 10 seconds",
			   sock_dir(client->dir));
}

int job_client_submit(struct job_client *client, const struct nvshare_submit *submit)
{
	return job_client_submit_gang(client, submit, &(struct nvshare_gang){.size = 0});
}

int job_client_submit_gang(struct job_client *client, const struct nvshare_submit *submit,
			   const struct nvshare_gang *gang)
{
	uint64_t end_ns = clock_now_ns() + ANSWER_NS;
	bool is_news, was_there;
	int r;

	client_disconnect(client);
	client->submit = *submit;
	client->gang = *gang;
	client->job = (struct nvshare_job){.job = 0};
	client->is_unknown = false;
	client->has_lost_place = false;
	client->retry_ns = RETRY_NS_MIN;
	r = client_connect(client, end_ns);
	if (!r)
		r = client_ask_place(client);
	was_there = !r;
	while (!client->job.job && (!r || (r == JOB_CLIENT_E_AWAY && was_there))) {
		if (clock_now_ns() >= end_ns)
			return client_give_up(client);
		/* One that restarts now is back soon, and may have the place already. */
		if (client->fd < 0) {
			clock_nap(RETRY_NS_MIN);
			r = client_connect(client, 0);
			r = r ? r : client_ask_place(client);
			continue;
		}
		client_sleep(client, end_ns);
		r = client_receive(client, &is_news);
	}
	client_plan(client, clock_now_ns());
	/* The connection may have ended right behind the answer. The place is there. */
	return client->job.job ? 0 : r;
}

const char *job_client_cut(const struct job_client *client, char *buf, size_t size)
{
	if (client->job.priority >= client->submit.priority)
		return NULL;
	(void)snprintf(buf, size,
		       "priority %s is given, not %s: what users may claim is the scheduler's"
		       " NVSHARE_PRIORITY_MAX",
		       names_priority[client->job.priority],
		       names_priority[client->submit.priority]);
	return buf;
}

int job_client_await_start(struct job_client *client, job_client_fn *on_news, void *arg)
{
	client->is_asking_position = on_news != NULL;
	client->due_ns = clock_now_ns();
	for (;;) {
		uint64_t news_ns = clock_now_ns() + NEWS_NS;
		bool is_news;
		int r = job_client_step(client, &is_news);

		if (r && r != JOB_CLIENT_E_AWAY)
			return r;
		if (client->job.state == NVSHARE_JOB_DONE)
			return client_fail(client, JOB_CLIENT_E_REFUSED, "%s", client->job.text);
		if (client->job.job && client->job.state != NVSHARE_JOB_WAITING) {
			client->is_asking_position = false;
			client->due_ns = client->fd < 0 ? clock_now_ns() : UINT64_MAX;
			return 0;
		}
		if (on_news && !on_news(&client->job, r == JOB_CLIENT_E_AWAY, arg))
			return client_fail(client, JOB_CLIENT_E_CALLER, "given up");
		client_sleep(client, on_news ? news_ns : UINT64_MAX);
	}
}

int job_client_ended(struct job_client *client, uint32_t exit_code, uint32_t signal, uint32_t flags)
{
	const struct nvshare_job_ended ended = {
		.job = client->job.job,
		.exit_code = exit_code,
		.signal = signal,
		.flags = flags,
	};
	uint64_t end_ns = clock_now_ns() + FAREWELL_NS;
	uint32_t n_retries = client->job.n_retries;
	bool is_told = false, is_news;
	int r = 0;

	client->is_asking_position = false;
	client->is_end_answered = false;
	if (client->fd < 0)
		client->due_ns = clock_now_ns();
	while (!client_is_over(client) && !client->is_end_answered && clock_now_ns() < end_ns) {
		r = job_client_step(client, &is_news);
		if (r && r != JOB_CLIENT_E_AWAY)
			return r;
		is_told = is_told && !r; /* a new connection is told again */
		/* Unless the scheduler has heard, and lost the connection with its answer. */
		if (client->job.n_retries != n_retries)
			return 0;
		if (!r && !is_told && !client->is_pending && client->job.job) {
			r = client_send(client, NVSHARE_MSG_JOB_ENDED, SEQ_END, &ended);
			is_told = !r;
		}
		if (!client_is_over(client) && !client->is_end_answered)
			client_sleep(client, end_ns);
	}
	if (client->is_unknown)
		return client->error;
	return client_is_over(client) || client->is_end_answered ? 0 : JOB_CLIENT_E_AWAY;
}
