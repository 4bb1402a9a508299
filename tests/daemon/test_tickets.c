/* SPDX-License-Identifier: Apache-2.0 */

/* The words of tickets, and the processes that they go to. Each process has a client on each GPU.
 */

#include "daemon/tickets/tickets.h"

#include "daemon/dispatch.h"
#include "daemon/peers/pauses.h"
#include "daemon/settings/settings.h"
#include "daemon/tickets/ticket_processes.h"
#include "daemon/tickets/ticket_uses.h"
#include "daemon/tools/status_fill.h"
#include "ipc/msg.h"
#include "server_rig.h"
#include "util/fd.h"
#include "util/log.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cmocka.h>

#define N_GPUS      2
#define N_PROCESSES 3
#define N_CLIENTS   (N_PROCESSES * N_GPUS)
#define N_SLOTS     (N_CLIENTS + 4)
#define MS          1000000ull
#define OWNER       1000

/* The pairs of the processes. Client i is of process i / N_GPUS, on GPU i % N_GPUS. */
enum { A, B, C };

static struct server_rig rig;
static struct server *server;
static int far_ends[N_SLOTS]; /* of the clients' sockets */

static struct ticket_link *link_of(uint32_t process)
{
	return &server->tickets.links[process];
}

static struct peer *peer_of(uint32_t process, uint32_t gpu)
{
	return &server->peers[process * N_GPUS + gpu];
}

static void enter(uint32_t place, pid_t pid)
{
	server->tickets.links[place] = (struct ticket_link){
		.pair.fd = -1,
		.pidfd = -1,
		.is_used = true,
		.obeys = true,
		.pid = pid,
		.uid = OWNER,
		.owner = OWNER,
	};
	assert_true(ticket_process_enter(server, link_of(place)));
}

static void event(struct sched_event event)
{
	assert_int_equal(dispatch_event(server, &event), 0);
}

/* A connection of a process, which is no client yet. */
static struct peer *connect_peer(uint32_t slot, pid_t pid)
{
	static struct user user;
	struct peer *peer = &server->peers[slot];
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fds), 0);
	far_ends[slot] = fds[1];
	*peer = (struct peer){
		.state = PEER_STATE_TOOL,
		.slot = slot,
		.id = slot + 1,
		.fd = fds[0],
		.pidfd = -1,
		.user = &user,
		.pod.owner = OWNER,
		.cred = {pid, OWNER, 1},
	};
	assert_int_equal(event_source_add(&server->poller, &peer->input, fds[0], EPOLLIN,
					  connections_on_event),
			 0);
	return peer;
}

static void into_gang(struct peer *peer, const char *name)
{
	struct nvshare_gang body = {.size = 1};

	(void)snprintf(body.name, sizeof(body.name), "%s", name);
	gangs_take(server, peer, &body);
}

static void register_client(struct peer *peer, uint32_t gpu)
{
	peer->state = PEER_STATE_CLIENT;
	peer->gpu = gpu;
	event((struct sched_event){.type = SCHED_EVENT_JOIN, .client = peer->slot, .gpu = gpu});
	shares_join(server, peer);
	tickets_client_joined(server, peer);
}

static void leave(struct peer *peer)
{
	shares_gone(server, peer);
	event((struct sched_event){.type = SCHED_EVENT_LEAVE, .client = peer->slot});
	gangs_forget(server, peer);
	if (peer->ticket_process)
		assert_int_equal(ticket_process_gang(peer->ticket_process), 0);
	tickets_client_left(peer);
	event_source_remove(&peer->input);
	peer->state = PEER_STATE_FREE;
}

static int set_up(void **state)
{
	static struct settings options;
	struct sched_actions actions = {.n = 0};

	(void)state;
	settings_default(&options);
	options.http.n = 0; /* others may have the address */
	if (server_rig_start(&rig, &options))
		return -1;
	server = rig.server;
	server->slots_used = N_SLOTS;
	for (uint32_t gpu = 0; gpu < N_GPUS; gpu++) {
		struct sched_event card = {
			.type = SCHED_EVENT_GPU, .gpu = gpu, .bytes = 1ull << 30};

		assert_int_equal(sched_step(&server->sched, &card, &actions), 0);
	}
	/* A tool of a process is no client of it. */
	(void)connect_peer(N_CLIENTS, 1 + A);
	for (uint32_t i = 0; i < N_CLIENTS; i++)
		(void)connect_peer(i, (pid_t)(1 + i / N_GPUS));
	/* Some clients are there before the pair of their process. */
	for (uint32_t i = 0; i < N_CLIENTS; i++) {
		if (i == N_GPUS) {
			for (uint32_t process = 0; process < N_PROCESSES; process++)
				enter(process, (pid_t)(1 + process));
		}
		register_client(&server->peers[i], i % N_GPUS);
		into_gang(&server->peers[i], "g");
	}
	return 0;
}

/* All tickets and uses have ended. */
static int tear_down(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < TICKET_LINKS_MAX; i++)
		ticket_process_leave(server, link_of(i));
	for (uint32_t i = 0; i < N_SLOTS; i++) {
		if (server->peers[i].state == PEER_STATE_FREE)
			continue;
		(void)fd_close(server->peers[i].fd);
		(void)fd_close(far_ends[i]);
	}
	return server_rig_stop(&rig);
}

static struct ticket *new_ticket(uint32_t process)
{
	struct ticket *ticket = calloc(1, sizeof(*ticket));

	assert_non_null(ticket);
	ticket->link = link_of(process);
	ticket->told = TICKET_WORD_NONE;
	ticket->next = ticket->link->tickets;
	ticket->link->tickets = ticket;
	return ticket;
}

static void end_tickets(uint32_t process)
{
	struct ticket *ticket, *next;

	for (ticket = link_of(process)->tickets; ticket; ticket = next) {
		next = ticket->next;
		ticket_uses_drop(server, ticket);
		free(ticket);
	}
	link_of(process)->tickets = NULL;
}

/* The next word that a process has been told; NVSHARE_TICKET_COUNT: none. */
static uint32_t hear(uint32_t process)
{
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX];
	struct msg msg;
	ssize_t n;

	for (uint32_t gpu = 0; gpu < N_GPUS; gpu++) {
		while ((n = recv(far_ends[peer_of(process, gpu)->slot], bytes, sizeof(bytes), 0)) >
		       0) {
			assert_int_equal(msg_decode(bytes, (size_t)n, MSG_TO_CLIENT, &msg), 0);
			if (msg.header.type == NVSHARE_MSG_TICKET_WORD)
				return msg.body.ticket_word.word | msg.body.ticket_word.flags << 8;
		}
	}
	return NVSHARE_TICKET_COUNT;
}

static void settle(void)
{
	server->now_ns += 20 * MS;
	ticket_uses_on_due(server, &server->tickets.settle);
}

#define USED (NVSHARE_TICKET_USED << 8)

static void memory_moves_while_one_gang_has_it(void **state)
{
	struct ticket *ticket = new_ticket(A);

	(void)state;
	ticket_use_hold(server, ticket, link_of(B));
	settle();
	assert_int_equal(hear(A), NVSHARE_TICKET_MOVES);
	/* One client of the opener is in another gang. */
	into_gang(peer_of(B, 1), "other");
	settle();
	assert_int_equal(hear(A), NVSHARE_TICKET_STAYS);
	assert_int_equal(ticket_take(server, ticket), TICKET_STAYS);
	into_gang(peer_of(B, 1), "g");
	settle();
	assert_int_equal(hear(A), NVSHARE_TICKET_MOVES);
	/* It is in none before it says so. */
	register_client(connect_peer(N_CLIENTS + 1, 1 + B), 1);
	assert_int_equal(ticket_take(server, ticket), TICKET_STAYS);
	leave(&server->peers[N_CLIENTS + 1]);
	settle();
	assert_int_equal(ticket_take(server, ticket), TICKET_HELD);
	/* The same number, and another user. */
	connect_peer(N_CLIENTS + 2, 1 + B)->cred.uid = OWNER + 1;
	register_client(&server->peers[N_CLIENTS + 2], 1);
	assert_int_equal(ticket_take(server, ticket), TICKET_HELD);
	for (uint32_t gpu = 0; gpu < N_GPUS; gpu++)
		leave(peer_of(B, gpu));
	assert_int_equal(ticket_take(server, ticket), TICKET_STAYS);
	end_tickets(A);
}

static void a_process_ends_with_its_last_pair(void **state)
{
	struct ticket_process *process = link_of(A)->process;

	(void)state;
	assert_int_equal(process->n_clients, N_GPUS);
	enter(N_PROCESSES, 1 + A);
	assert_ptr_equal(link_of(N_PROCESSES)->process, process);
	ticket_process_leave(server, link_of(A));
	assert_ptr_equal(peer_of(A, 0)->ticket_process, process);
	ticket_process_leave(server, link_of(N_PROCESSES));
	assert_null(peer_of(A, 0)->ticket_process);
	assert_null(peer_of(A, 1)->ticket_process);
	/* A process that nobody knows has no clients. */
	enter(N_PROCESSES, 0);
	assert_int_equal(link_of(N_PROCESSES)->process->n_clients, 0);
	enter(N_PROCESSES + 1, 0);
	assert_ptr_not_equal(link_of(N_PROCESSES)->process, link_of(N_PROCESSES + 1)->process);
}

static void owners_hear_once_that_openers_are_at_work(void **state)
{
	struct ticket *first = new_ticket(A);

	(void)state;
	ticket_use_hold(server, first, link_of(B));
	ticket_use_hold(server, new_ticket(A), link_of(B));
	settle();
	assert_int_equal(hear(A), NVSHARE_TICKET_MOVES);
	assert_int_equal(hear(A), NVSHARE_TICKET_MOVES);
	for (uint32_t gpu = 0; gpu < N_GPUS; gpu++)
		event((struct sched_event){.type = SCHED_EVENT_REQUEST,
					   .client = peer_of(B, gpu)->slot});
	assert_int_equal(hear(A), NVSHARE_TICKET_MOVES | USED);
	assert_int_equal(hear(A), NVSHARE_TICKET_COUNT);
	/* Another opener begins while it is at work. */
	event((struct sched_event){.type = SCHED_EVENT_REQUEST, .client = peer_of(C, 0)->slot});
	ticket_use_hold(server, first, link_of(C));
	assert_int_equal(first->n_at_work, 2);
	ticket_use_close(server, first, link_of(C));
	assert_int_equal(first->n_at_work, 1);
	leave(peer_of(B, 0));
	assert_int_equal(hear(A), NVSHARE_TICKET_COUNT);
	leave(peer_of(B, 1));
	assert_int_equal(hear(A), NVSHARE_TICKET_MOVES);
	assert_int_equal(hear(A), NVSHARE_TICKET_COUNT);
	end_tickets(A);
}

static bool is_paused(uint32_t process)
{
	return peer_of(process, 0)->pauses & PAUSE_TICKETS &&
	       peer_of(process, 1)->pauses & PAUSE_TICKETS;
}

static void an_opener_that_opens_again_is_told_again(void **state)
{
	struct ticket *ticket = new_ticket(A);

	(void)state;
	event((struct sched_event){.type = SCHED_EVENT_REQUEST, .client = peer_of(B, 0)->slot});
	ticket_use_hold(server, ticket, link_of(B));
	server->now_ns += MS;
	assert_int_equal(ticket_take(server, ticket), TICKET_HELD);
	assert_int_equal(hear(B), NVSHARE_TICKET_PARK);
	ticket_use_park(ticket, link_of(B));
	assert_int_equal(ticket_take(server, ticket), TICKET_REASON_NONE_);
	/* The memory has been out and is back; its owner wants it within the time of that word. */
	ticket->is_out = false;
	ticket_use_hold(server, ticket, link_of(B));
	server->now_ns += 150 * MS;
	assert_int_equal(ticket_take(server, ticket), TICKET_HELD);
	assert_int_equal(hear(B), NVSHARE_TICKET_PARK);
	assert_false(is_paused(B));
	server->now_ns += 9 * MS;
	assert_int_equal(ticket_take(server, ticket), TICKET_HELD);
	assert_false(is_paused(B));
	/* More of the same memory is no new hold. */
	ticket_use_hold(server, ticket, link_of(B));
	server->now_ns += MS;
	assert_int_equal(ticket_take(server, ticket), TICKET_HELD);
	assert_true(is_paused(B));
	assert_int_equal(hear(B), NVSHARE_TICKET_COUNT);
	ticket_use_park(ticket, link_of(B));
	assert_int_equal(ticket_take(server, ticket), TICKET_REASON_NONE_);
	assert_false(is_paused(B));
	end_tickets(A);
}

static uint32_t shown(uint32_t process)
{
	struct nvshare_status_client status;

	status_fill_client(server, peer_of(process, 0), &status);
	return status.flags & (NVSHARE_CLIENT_PAUSED | NVSHARE_CLIENT_PARKING);
}

static void such_a_pause_is_no_operators(void **state)
{
	struct ticket *ticket = new_ticket(A);
	struct peer *opener = peer_of(B, 0);

	(void)state;
	event((struct sched_event){.type = SCHED_EVENT_REQUEST, .client = opener->slot});
	ticket_use_hold(server, ticket, link_of(B));
	server->now_ns += MS;
	assert_int_equal(ticket_take(server, ticket), TICKET_HELD);
	assert_int_equal(shown(B), 0);
	server->now_ns += 10 * MS;
	assert_int_equal(ticket_take(server, ticket), TICKET_HELD);
	assert_int_equal(shown(B), NVSHARE_CLIENT_PARKING);
	/* An operator's begins and ends beside it. */
	assert_int_equal(pauses_set(server, opener, PAUSE_OPERATOR, true), 0);
	assert_int_equal(shown(B), NVSHARE_CLIENT_PARKING | NVSHARE_CLIENT_PAUSED);
	assert_int_equal(pauses_set(server, opener, PAUSE_OPERATOR, false), 0);
	assert_int_equal(shown(B), NVSHARE_CLIENT_PARKING);
	assert_int_equal(pauses_set(server, opener, PAUSE_OPERATOR, true), 0);
	ticket_use_park(ticket, link_of(B));
	assert_int_equal(ticket_take(server, ticket), TICKET_REASON_NONE_);
	assert_int_equal(shown(B), NVSHARE_CLIENT_PAUSED);
	end_tickets(A);
}

static void one_pause_stops_all_openers_of_a_gang(void **state)
{
	struct ticket *ticket = new_ticket(A);

	(void)state;
	for (uint32_t process = B; process <= C; process++) {
		event((struct sched_event){.type = SCHED_EVENT_REQUEST,
					   .client = peer_of(process, 0)->slot});
		ticket_use_hold(server, ticket, link_of(process));
	}
	server->now_ns += MS;
	assert_int_equal(ticket_take(server, ticket), TICKET_HELD);
	server->now_ns += 10 * MS;
	assert_int_equal(ticket_take(server, ticket), TICKET_HELD);
	assert_true(is_paused(B) != is_paused(C));
	for (uint32_t process = B; process <= C; process++)
		assert_int_equal(sched_client_state(&server->sched, peer_of(process, 0)->slot),
				 SCHED_CLIENT_STOPPING);
	end_tickets(A);
}

static void openers_that_must_not_stop_keep_the_memory_in(void **state)
{
	struct ticket *ticket = new_ticket(A);

	(void)state;
	ticket_use_hold(server, ticket, link_of(B));
	server->settings.config.anti_thrash = false;
	assert_int_equal(ticket_take(server, ticket), TICKET_HELD);
	event((struct sched_event){.type = SCHED_EVENT_REQUEST, .client = peer_of(B, 1)->slot});
	assert_int_equal(ticket_take(server, ticket), TICKET_STAYS);
	/* One that has given it back may run on. */
	ticket_use_park(ticket, link_of(B));
	assert_int_equal(ticket_take(server, ticket), TICKET_REASON_NONE_);
	end_tickets(A);
}

static void pairs_of_one_process_are_paused_as_one(void **state)
{
	struct ticket *ticket = new_ticket(A);

	(void)state;
	enter(N_PROCESSES, 1 + B);
	event((struct sched_event){.type = SCHED_EVENT_REQUEST, .client = peer_of(B, 0)->slot});
	ticket_use_hold(server, ticket, link_of(B));
	ticket_use_hold(server, ticket, link_of(N_PROCESSES));
	server->now_ns += MS;
	assert_int_equal(ticket_take(server, ticket), TICKET_HELD);
	server->now_ns += 10 * MS;
	assert_int_equal(ticket_take(server, ticket), TICKET_HELD);
	assert_true(is_paused(B));
	ticket_use_close(server, ticket, link_of(N_PROCESSES));
	assert_true(is_paused(B));
	ticket_use_close(server, ticket, link_of(B));
	assert_false(is_paused(B));
	end_tickets(A);
}

static uint32_t n_told(uint32_t process)
{
	uint32_t n = 0;

	for (const struct ticket *ticket = link_of(process)->tickets; ticket; ticket = ticket->next)
		n += ticket->told == NVSHARE_TICKET_MOVES;
	return n;
}

static void thousands_of_words_close_no_connection(void **state)
{
	enum { N = 3000 };
	uint32_t n_heard = 0, n_passes = 0;

	(void)state;
	for (uint32_t i = 0; i < N; i++)
		(void)new_ticket(A);
	/* The process reads only between two passes. */
	for (; n_heard < N && n_passes < N; n_passes++) {
		uint32_t word;

		deadline_clear(&server->deadlines, &server->tickets.settle);
		settle();
		assert_false(peer_of(A, 0)->is_closing);
		assert_int_equal(deadline_is_set(&server->tickets.settle), n_told(A) < N);
		while ((word = hear(A)) != NVSHARE_TICKET_COUNT) {
			assert_int_equal(word, NVSHARE_TICKET_MOVES);
			n_heard++;
		}
		connections_handle(server, peer_of(A, 0), EPOLLOUT);
	}
	assert_int_equal(n_heard, N);
	assert_in_range(n_passes, 2, 100);
	settle();
	assert_int_equal(hear(A), NVSHARE_TICKET_COUNT);
	end_tickets(A);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(memory_moves_while_one_gang_has_it),
		TEST(a_process_ends_with_its_last_pair),
		TEST(owners_hear_once_that_openers_are_at_work),
		TEST(an_opener_that_opens_again_is_told_again),
		TEST(such_a_pause_is_no_operators),
		TEST(one_pause_stops_all_openers_of_a_gang),
		TEST(openers_that_must_not_stop_keep_the_memory_in),
		TEST(pairs_of_one_process_are_paused_as_one),
		TEST(thousands_of_words_close_no_connection),
	};

	log_open("nvshare-scheduler", LOG_LEVEL_INFO, open("/dev/null", O_WRONLY | O_CLOEXEC));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
