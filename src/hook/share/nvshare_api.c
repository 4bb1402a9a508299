/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The functions of nvshare.h. A claim goes to the scheduler over a connection of its own, as with
 * nvsharectl, so that the caller gets the answer.
 */

#define NVSHARE_IS_LIBRARY
#include "nvshare/nvshare.h"

#include "hook/base/hook_options.h"
#include "hook/share/share.h"
#include "ipc/sock.h"
#include "util/clock.h"
#include "util/fd.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#define API_PATIENCE_NS CLOCK_NS_PER_SEC
#define API_CONNECT_NS  (10 * CLOCK_NS_PER_MS)

int nvshare_hint_prepare(uint32_t us)
{
	int saved_errno = errno, r = -EINVAL;

	if (us <= NVSHARE_HINT_US_MAX)
		r = share_hint(us);
	errno = saved_errno;
	return r;
}

int64_t nvshare_request_begin(void)
{
	int saved_errno = errno;
	int64_t r = share_request_begin();

	errno = saved_errno;
	return r;
}

int nvshare_request_end(int64_t request)
{
	int saved_errno = errno, r = share_request_end(request);

	errno = saved_errno;
	return r;
}

/* Until something can be read; 0, or -errno. */
static int api_wait(int fd, uint64_t end_ns)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int n;

	do
		n = clock_poll(&p, 1, end_ns);
	while (n < 0 && errno == EINTR);
	return n > 0 ? 0 : n < 0 ? -errno : -ETIMEDOUT;
}

static int api_result(const struct nvshare_result_msg *result)
{
	switch ((enum nvshare_result)result->code) {
	case NVSHARE_RESULT_OK:
		return 0;
	case NVSHARE_RESULT_DENIED:
		return -EACCES;
	case NVSHARE_RESULT_BUSY:
		return -EAGAIN;
	case NVSHARE_RESULT_INVALID:
	case NVSHARE_RESULT_COUNT:
		break;
	}
	return -EINVAL;
}

/* Many may ask at once, and a scheduler that starts has not come to it: its backlog is full. */
static int api_connect_until(uint64_t end_ns)
{
	int fd = sock_connect(hook_options()->sock_dir);

	while (fd == -EAGAIN && clock_now_ns() < end_ns) {
		clock_nap(API_CONNECT_NS);
		fd = sock_connect(hook_options()->sock_dir);
	}
	if (fd == -EAGAIN)
		return -ETIMEDOUT;
	return fd < 0 ? -ENOTCONN : fd;
}

static int api_ask(int fd, const struct nvshare_set *set, uint64_t end_ns)
{
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX + 1];
	struct msg msg;
	ssize_t n;
	int r;

	(void)msg_encode(NVSHARE_MSG_SET, 0, set, &msg);
	r = sock_send(fd, &msg); /* a fresh connection has room for one request */
	if (!r)
		r = api_wait(fd, end_ns);
	if (r)
		return r;
	n = sock_recv(fd, bytes, sizeof(bytes));
	if (n <= 0)
		return n < 0 ? (int)n : -ECONNRESET;
	if (msg_decode(bytes, (size_t)n, MSG_TO_TOOL, &msg) ||
	    msg.header.type != NVSHARE_MSG_RESULT)
		return -EPROTO;
	return api_result(&msg.body.result);
}

static uint32_t api_value(const struct nvshare_claim *claim, enum nvshare_key key)
{
	if (key == NVSHARE_KEY_PRIORITY)
		return claim->priority;
	if (key == NVSHARE_KEY_WEIGHT)
		return claim->weight;
	return key == NVSHARE_KEY_SLO ? claim->slo_us : claim->compute_limit;
}

/* The next scheduler might grant a refused claim, so it is not kept. */
static int api_claim(enum nvshare_key key, uint32_t value)
{
	struct nvshare_set set = {.value = value, .key = (uint32_t)key};
	int saved_errno = errno, r = -ENOTCONN, fd;
	struct nvshare_claim before;

	share_wanted(&before);
	share_claim(key, value);
	for (unsigned int i = 0; share_client(i, &set.client) && (i == 0 || r == 0); i++) {
		uint64_t end_ns = clock_now_ns() + API_PATIENCE_NS;

		fd = api_connect_until(end_ns);
		r = fd < 0 ? fd : api_ask(fd, &set, end_ns);
		(void)fd_close(fd);
	}
	/*
	 * A scheduler that ends, refuses the connection or answers with unknown messages counts as
	 * none.
	 */
	if (r == -ECONNRESET || r == -EPIPE || r == -EPROTO)
		r = -ENOTCONN;
	if (r == -EACCES || r == -EINVAL)
		share_claim(key, api_value(&before, key));
	errno = saved_errno;
	return r;
}

int nvshare_set_priority(enum nvshare_priority priority)
{
	if ((unsigned int)priority >= NVSHARE_PRIORITY_COUNT)
		return -EINVAL;
	return api_claim(NVSHARE_KEY_PRIORITY, (uint32_t)priority);
}

int nvshare_set_weight(uint32_t weight)
{
	if (weight < NVSHARE_WEIGHT_MIN || weight > NVSHARE_WEIGHT_MAX)
		return -EINVAL;
	return api_claim(NVSHARE_KEY_WEIGHT, weight);
}

int nvshare_set_slo(uint32_t us)
{
	return us > NVSHARE_SLO_US_MAX ? -EINVAL : api_claim(NVSHARE_KEY_SLO, us);
}

int nvshare_set_compute_limit(uint32_t percent)
{
	return percent > 100 ? -EINVAL : api_claim(NVSHARE_KEY_COMPUTE_LIMIT, percent);
}

/* A caller of another version may know of more, or of less. */
int nvshare_status(int device, struct nvshare_status *ret, size_t size)
{
	struct nvshare_status status = {0};
	int saved_errno = errno, r = share_status(device, &status);

	if (r == 0) {
		memset(ret, 0, size);
		memcpy(ret, &status, size < sizeof(status) ? size : sizeof(status));
	}
	errno = saved_errno;
	return r;
}
