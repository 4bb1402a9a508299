/* SPDX-License-Identifier: Apache-2.0 */
#include "hook/tickets/ticket_link.h"

#include "hook/base/hook_log.h"
#include "hook/base/hook_mutex.h"
#include "hook/base/hook_options.h"
#include "hook/base/own_fd.h"
#include "hook/gate/bell.h"
#include "ipc/sock.h"
#include "util/clock.h"
#include "util/fd.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#define ANSWER_NS  (30 * CLOCK_NS_PER_SEC)
#define CONNECT_NS (20 * CLOCK_NS_PER_MS) /* between two tries, while the scheduler is crowded */
#define HAND_MAX   256

static struct {
	struct hook_mutex lock; /* one exchange at a time */
	int fd;                 /* atomic: a forked child closes it; -1: none */
	uint32_t generation;    /* atomic */
	int hand[HAND_MAX];     /* atomic; -1: free */
} pair = {
	.lock = HOOK_MUTEX(HOOK_LOCK_TICKET_LINK),
	.fd = -1,
	.hand = {[0 ... HAND_MAX - 1] = -1},
};

/* ---- descriptors on their way ------------------------------------------------- */

int ticket_hand(int fd)
{
	for (size_t i = 0; fd >= 0 && i < HAND_MAX; i++) {
		int none = -1;

		if (__atomic_compare_exchange_n(&pair.hand[i], &none, fd, false, __ATOMIC_ACQ_REL,
						__ATOMIC_RELAXED))
			break;
	}
	return fd;
}

/* Forgotten before it is closed: by then it may be the number of a file of a child's. */
int ticket_drop(int fd)
{
	for (size_t i = 0; fd >= 0 && i < HAND_MAX; i++) {
		int noted = fd;

		if (__atomic_compare_exchange_n(&pair.hand[i], &noted, -1, false, __ATOMIC_ACQ_REL,
						__ATOMIC_RELAXED))
			break;
	}
	return fd_close(fd);
}

/* ---- the pair ------------------------------------------------------------------ */

/* A signal handler of the program's may run meanwhile. */
static int link_wait(int fd, uint64_t end_ns)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	int n;

	do
		n = clock_poll(&poll_fd, 1, end_ns);
	while (n < 0 && errno == EINTR);
	return n > 0 ? 0 : n < 0 ? -errno : -ETIMEDOUT;
}

static int link_connect(uint64_t end_ns)
{
	int fd = sock_connect(hook_options()->sock_dir);

	while (fd == -EAGAIN && clock_now_ns() < end_ns) {
		clock_nap(CONNECT_NS);
		fd = sock_connect(hook_options()->sock_dir);
	}
	return fd;
}

/* The answer to TICKETS: our end of the pair, or -errno. */
static int link_receive_end(int fd, uint64_t end_ns)
{
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX + 1];
	struct pass pass = {.fd = -1};
	struct msg msg;
	ssize_t n;
	int r = link_wait(fd, end_ns);

	if (r)
		return r;
	n = pass_recv(fd, bytes, sizeof(bytes), &pass);
	if (n > 0 && !msg_decode(bytes, (size_t)n, MSG_TO_TOOL, &msg)) {
		if (msg.header.type == NVSHARE_MSG_TICKET_PAIR && pass.fd >= 0)
			return pass.fd;
		if (msg.header.type == NVSHARE_MSG_RESULT)
			hook_debug("no tickets: %s", msg.body.result.text);
	}
	pass_close(pass.fd);
	return n == 0 ? -ECONNRESET : n < 0 ? (int)n : -EPROTO;
}

static int link_make(uint64_t end_ns)
{
	int fd = link_connect(end_ns), end;
	struct msg msg;

	if (fd < 0)
		return fd;
	(void)pass_allow(fd, true);
	(void)msg_encode(NVSHARE_MSG_TICKETS, 0, NULL, &msg);
	end = sock_send(fd, &msg); /* a fresh connection has room for one request */
	if (!end)
		end = link_receive_end(fd, end_ns);
	(void)fd_close(fd);
	if (end < 0)
		return end;
	end = own_fd_take(end);
	if (end < 0)
		return -EMFILE;
	__atomic_store_n(&pair.fd, end, __ATOMIC_RELEASE);
	(void)__atomic_add_fetch(&pair.generation, 1, __ATOMIC_RELEASE);
	return 0;
}

static void link_close(void)
{
	(void)own_fd_close(__atomic_exchange_n(&pair.fd, -1, __ATOMIC_ACQ_REL));
}

uint32_t ticket_link_generation(void)
{
	return __atomic_load_n(&pair.generation, __ATOMIC_ACQUIRE);
}

/* The scheduler's end is not closed. An answer to another thread may wait to be read. */
bool ticket_link_is_up(void)
{
	struct pollfd fd = {.fd = own_fd_of(__atomic_load_n(&pair.fd, __ATOMIC_ACQUIRE)),
			    .events = POLLRDHUP};
	int saved_errno = errno, n;

	if (fd.fd < 0)
		return false;
	/* A signal that comes just now ends also a poll() that does not wait. */
	do
		n = poll(&fd, 1, 0);
	while (n < 0 && errno == EINTR);
	errno = saved_errno;
	return n >= 0 && !(n > 0 && fd.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL));
}

static int link_reach(uint64_t end_ns)
{
	if (ticket_link_is_up())
		return 0;
	link_close();
	return link_make(end_ns);
}

static void link_note_all(const struct pass_many *pass)
{
	for (size_t i = 0; i < pass->n; i++)
		(void)ticket_hand(pass->fds[i]);
}

/* -EBADMSG: a wrong answer, or one whose descriptors found no room here; the pair goes on. */
static int link_exchange(const struct ticket_packet *packet, struct ticket_packet *ret,
			 struct pass_many *ret_pass, uint64_t end_ns)
{
	int fd = own_fd_of(pair.fd), r;

	r = fd < 0 ? -EPIPE : link_wait(fd, end_ns);
	if (!r)
		r = ticket_packet_recv(fd, TICKET_FROM_SCHEDULER, ret, ret_pass);
	if (!r && memcmp(ret->ticket, packet->ticket, TICKET_LEN) != 0)
		r = -EBADMSG;
	if (!r)
		link_note_all(ret_pass);
	return r;
}

/* The lock is held. */
static int link_ask(const struct ticket_packet *packet, const int *fds, struct ticket_packet *ret,
		    struct pass_many *ret_pass)
{
	uint64_t end_ns = clock_now_ns() + ANSWER_NS;
	int r = link_reach(end_ns);

	if (r)
		return r;
	r = ticket_packet_send(own_fd_of(pair.fd), packet, fds);
	if (r == -EPIPE)
		link_close();
	if (r)
		return r;
	r = link_exchange(packet, ret, ret_pass, end_ns);
	/* An answer that comes later would be taken for that of the next question. */
	if (r && r != -EBADMSG)
		link_close();
	return r;
}

/* Threads that pthread_cancel() ends would keep the lock. */
static int link_begin(void)
{
	int cancel_state;

	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	hook_lock(&pair.lock);
	return cancel_state;
}

static void link_end(int cancel_state, uint32_t generation)
{
	bool is_lost = pair.fd < 0 || pair.generation != generation;

	hook_unlock(&pair.lock);
	(void)pthread_setcancelstate(cancel_state, NULL);
	if (is_lost && generation)
		bell_ring(); /* the agent brings the process's tickets to the next pair */
}

bool ticket_link_reach(void)
{
	int saved_errno = errno, cancel_state = link_begin(), r;
	uint32_t generation = pair.generation;

	r = link_reach(clock_now_ns() + ANSWER_NS);
	link_end(cancel_state, generation);
	errno = saved_errno;
	return !r;
}

int ticket_link_ask(const struct ticket_packet *packet, const int *fds, struct ticket_packet *ret,
		    struct pass_many *ret_pass, uint32_t *ret_generation)
{
	int saved_errno = errno, cancel_state = link_begin(), r;
	uint32_t generation = pair.generation;

	ret_pass->n = 0;
	r = link_ask(packet, fds, ret, ret_pass);
	if (ret_generation)
		*ret_generation = pair.generation;
	if (r) {
		pass_many_close(ret_pass);
		hook_debug("the scheduler takes and gives no tickets: %s", strerror(-r));
	}
	link_end(cancel_state, generation);
	errno = saved_errno;
	return r;
}

void ticket_link_after_fork_child(void)
{
	hook_mutex_renew(&pair.lock, HOOK_LOCK_TICKET_LINK);
	link_close();
	for (size_t i = 0; i < HAND_MAX; i++)
		(void)fd_close(__atomic_exchange_n(&pair.hand[i], -1, __ATOMIC_ACQ_REL));
}
