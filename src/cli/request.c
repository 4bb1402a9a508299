/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include "ipc/sock.h"
#include "util/fd.h"
#include "util/text.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ANSWER_MS   10000
#define CONNECT_MS  50
#define CONNECT_MAX 100 /* tries while the scheduler's backlog is full */

static FILE *report_file; /* NULL: the standard error */

void request_report_to(FILE *file)
{
	report_file = file;
}

void request_report(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vfprintf(report_file ? report_file : stderr, format, args);
	va_end(args);
}

/* The two usual errors, in words for an administrator. */
static const char *connect_error_text(int r)
{
	switch (-r) {
	case ENOENT:
		return "there is no such socket";
	case ECONNREFUSED:
		return "nobody listens on it";
	default:
		return strerror(-r);
	}
}

int request_open(int *ret_fd)
{
	int fd = -EAGAIN;

	for (int i = 0; i < CONNECT_MAX && fd == -EAGAIN; i++) {
		fd = sock_connect(NULL);
		if (fd == -EAGAIN)
			(void)poll(NULL, 0, CONNECT_MS);
	}
	if (fd >= 0) {
		*ret_fd = fd;
		return CLI_EXIT_OK;
	}
	if (fd == -EAGAIN) {
		request_report("nvsharectl: the scheduler on %s/" NVSHARE_SOCK_NAME
			       " is busy: its queue of connections has been full for 5 seconds; "
			       "try again\n",
			       sock_dir(NULL));
		return CLI_EXIT_NO_SCHEDULER;
	}
	request_report("nvsharectl: no scheduler on %s/" NVSHARE_SOCK_NAME ": %s\n"
		       "Start one with 'nvshare-scheduler' as root. Or set NVSHARE_SOCK_DIR to a"
		       " directory of yours,\n"
		       "for the scheduler, for this command and for the programs.\n",
		       sock_dir(NULL), connect_error_text(fd));
	return CLI_EXIT_NO_SCHEDULER;
}

/* The scheduler has no room, or another version. Only its log tells which. */
static int report_closed(const char *how)
{
	request_report("nvsharectl: the scheduler on %s/" NVSHARE_SOCK_NAME
		       " refused this connection, or has ended (%s): look at its log\n",
		       sock_dir(NULL), how);
	return CLI_EXIT_NO_SCHEDULER;
}

int request_send(int fd, uint16_t type, const void *body)
{
	struct msg msg;
	int r;

	(void)msg_encode(type, 1, body, &msg);
	r = sock_send(fd, &msg); /* a fresh connection has room for one request */
	return r ? report_closed(strerror(-r)) : CLI_EXIT_OK;
}

/* Any user may have started the scheduler, so its texts must not reach a terminal as they are. */
static void sanitize_texts(struct msg *msg)
{
	switch (msg->header.type) {
	case NVSHARE_MSG_STATUS_NODE:
		text_sanitize(msg->body.status_node.version);
		break;
	case NVSHARE_MSG_STATUS_GPU:
		text_sanitize(msg->body.status_gpu.name);
		break;
	case NVSHARE_MSG_STATUS_OUTSIDER:
		text_sanitize(msg->body.status_outsider.name);
		break;
	case NVSHARE_MSG_STATUS_CLIENT:
		text_sanitize(msg->body.status_client.name);
		text_sanitize(msg->body.status_client.pod);
		break;
	case NVSHARE_MSG_JOB_GANG:
		text_sanitize(msg->body.job_gang.name);
		break;
	case NVSHARE_MSG_STATUS_GANG:
		text_sanitize(msg->body.status_gang.name);
		break;
	case NVSHARE_MSG_CONFIG:
		text_sanitize(msg->body.config.name);
		text_sanitize(msg->body.config.value);
		text_sanitize(msg->body.config.origin);
		break;
	case NVSHARE_MSG_EVENT:
		text_sanitize(msg->body.event.uuid);
		text_sanitize(msg->body.event.message);
		break;
	case NVSHARE_MSG_JOB:
		text_sanitize(msg->body.job.gpu_uuid);
		text_sanitize(msg->body.job.name);
		text_sanitize(msg->body.job.model);
		text_sanitize(msg->body.job.type);
		text_sanitize(msg->body.job.text);
		break;
	case NVSHARE_MSG_RESULT:
		text_sanitize(msg->body.result.text);
		break;
	}
}

static int report_version(const uint8_t *bytes)
{
	struct nvshare_msg_header header;

	memcpy(&header, bytes, sizeof(header));
	request_report("nvsharectl: the scheduler on %s/" NVSHARE_SOCK_NAME
		       " speaks version %u of the protocol, this nvsharectl version %u: use the "
		       "nvsharectl of the scheduler's release\n",
		       sock_dir(NULL), header.version, NVSHARE_PROTOCOL_VERSION);
	return CLI_EXIT_NO_SCHEDULER;
}

/* wait_ms: -1: for ever. */
static int request_receive_within(int fd, int wait_ms, struct msg *ret_msg)
{
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX];
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	const char *text;
	ssize_t n;
	int r;

	do {
		r = poll(&pfd, 1, wait_ms);
	} while (r < 0 && errno == EINTR);
	n = r > 0 ? sock_recv(fd, bytes, sizeof(bytes)) : -ETIMEDOUT;
	if (n > 0) {
		r = msg_decode(bytes, (size_t)n, MSG_TO_TOOL, ret_msg);
		if (!r)
			sanitize_texts(ret_msg);
		if (!r && ret_msg->header.type == NVSHARE_MSG_RESULT &&
		    ret_msg->body.result.code == NVSHARE_RESULT_BUSY) {
			request_report("nvsharectl: %s\n", ret_msg->body.result.text);
			return CLI_EXIT_NO_SCHEDULER;
		}
		if (!r)
			return CLI_EXIT_OK;
		if (r == MSG_E_VERSION)
			return report_version(bytes);
		text = msg_error(r);
	} else if (n == -ETIMEDOUT) {
		text = "no answer in 10 seconds";
	} else {
		return report_closed("it closed the connection");
	}
	request_report("nvsharectl: the scheduler on %s/" NVSHARE_SOCK_NAME
		       " does not answer as it should: %s\n",
		       sock_dir(NULL), text);
	return CLI_EXIT_NO_SCHEDULER;
}

int request_set(int fd, uint16_t type, const void *body, struct nvshare_result_msg *ret_result)
{
	struct msg msg;
	int r = request_send(fd, type, body);

	if (!r)
		r = request_receive(fd, &msg);
	if (r)
		return r;
	if (msg.header.type != NVSHARE_MSG_RESULT) {
		request_report("nvsharectl: the scheduler gives a wrong answer: %s\n",
			       msg_name(msg.header.type));
		return CLI_EXIT_NO_SCHEDULER;
	}
	*ret_result = msg.body.result;
	return CLI_EXIT_OK;
}

int request_receive(int fd, struct msg *ret_msg)
{
	return request_receive_within(fd, ANSWER_MS, ret_msg);
}

int request_await(int fd, struct msg *ret_msg)
{
	return request_receive_within(fd, -1, ret_msg);
}
