/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/ticket_packet.h"

#include "util/fd.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "../hook/open_files.h"

static int ends[2];

static int set_up(void **state)
{
	(void)state;
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
}

static int tear_down(void **state)
{
	(void)state;
	ends[0] = fd_close(ends[0]);
	ends[1] = fd_close(ends[1]);
	return 0;
}

static const uint8_t id[TICKET_LEN] = {1, 2, 3};

static const struct ticket_memory memory = {
	.size = 10000, .chunk_size = 4000, .offset = 500, .bytes = 9500, .n_chunks = 3};

static const struct {
	enum ticket_type type;
	enum ticket_sender sender;
	uint32_t first, n, reason;
} samples[] = {
	{TICKET_DEPOSIT, TICKET_FROM_PROGRAM, 1, 2, 0},
	{TICKET_WITHDRAW, TICKET_FROM_PROGRAM, 0, 0, 0},
	{TICKET_OPEN, TICKET_FROM_PROGRAM, 64, 0, 0},
	{TICKET_TAKEN, TICKET_FROM_SCHEDULER, 0, 0, 0},
	{TICKET_MEMORY, TICKET_FROM_SCHEDULER, 0, 3, 0},
	{TICKET_NONE, TICKET_FROM_SCHEDULER, 0, 0, TICKET_FULL},
	{TICKET_MOVE, TICKET_FROM_PROGRAM, 0, 0, 0},
	{TICKET_OUT, TICKET_FROM_PROGRAM, 0, 0, 0},
	{TICKET_PARK, TICKET_FROM_PROGRAM, 0, 0, 0},
	{TICKET_CLOSE, TICKET_FROM_PROGRAM, 0, 0, 0},
};
#define N_SAMPLES (sizeof(samples) / sizeof(samples[0]))

static struct ticket_packet sample(size_t i)
{
	struct ticket_packet packet;

	ticket_packet_init(&packet, samples[i].type, id);
	packet.first = samples[i].first;
	packet.n = samples[i].n;
	packet.reason = samples[i].reason;
	if (packet.n || packet.type == TICKET_OUT)
		packet.memory = memory;
	return packet;
}

static bool is_good(size_t i, const struct ticket_packet *packet)
{
	return ticket_packet_check(packet, sizeof(*packet), packet->n, samples[i].sender);
}

static void each_packet_is_taken_from_its_sender_alone(void **state)
{
	(void)state;
	assert_int_equal(N_SAMPLES, TICKET_TYPE_COUNT_);
	for (size_t i = 0; i < N_SAMPLES; i++) {
		struct ticket_packet packet = sample(i);

		assert_true(is_good(i, &packet));
		assert_false(ticket_packet_check(&packet, sizeof(packet), packet.n,
						 samples[i].sender == TICKET_FROM_PROGRAM
							 ? TICKET_FROM_SCHEDULER
							 : TICKET_FROM_PROGRAM));
		assert_false(ticket_packet_check(&packet, sizeof(packet) - 1, packet.n,
						 samples[i].sender));
		assert_false(ticket_packet_check(&packet, sizeof(packet), packet.n + 1,
						 samples[i].sender));
	}
}

/* Each field that a packet has no use for, and each that is out of its range. */
static void a_packet_with_one_wrong_field_is_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_SAMPLES; i++) {
		struct ticket_packet packet = sample(i);

		packet.magic++;
		assert_false(is_good(i, &packet));
		packet = sample(i);
		packet.version++;
		assert_false(is_good(i, &packet));
		packet = sample(i);
		packet.type = TICKET_TYPE_COUNT_;
		assert_false(is_good(i, &packet));
		packet = sample(i);
		packet.flags = TICKET_OBEYS << 1;
		assert_false(is_good(i, &packet));
		packet = sample(i);
		memset(packet.ticket, 0, sizeof(packet.ticket));
		assert_false(is_good(i, &packet));
		packet = sample(i);
		packet.reason = packet.reason ? 0 : TICKET_UNKNOWN;
		assert_false(is_good(i, &packet));
		packet = sample(i);
		packet.reason = TICKET_REASON_COUNT_;
		assert_false(is_good(i, &packet));
		packet = sample(i);
		packet.first = packet.n ? 3 : TICKET_CHUNKS_MAX;
		assert_false(is_good(i, &packet));
		packet = sample(i);
		if (packet.memory.size)
			packet.memory.bytes = 0;
		else
			packet.memory.bytes = 1;
		assert_false(is_good(i, &packet));
	}
}

/* Flags say what the sender of a packet has, so each packet may have its own alone. */
static void only_a_packet_of_memory_or_an_open_has_flags(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_SAMPLES; i++) {
		bool is_left = samples[i].type == TICKET_DEPOSIT || samples[i].type == TICKET_OUT;
		struct ticket_packet packet = sample(i);

		packet.flags = TICKET_SEEN;
		assert_int_equal(is_good(i, &packet), is_left);
		packet.flags = TICKET_OBEYS;
		assert_int_equal(is_good(i, &packet), is_left || samples[i].type == TICKET_OPEN);
	}
}

static void sizes_of_memory_fit_each_other(void **state)
{
	struct ticket_memory m = memory;

	(void)state;
	assert_true(ticket_memory_check(&m));
	m.offset++;
	assert_false(ticket_memory_check(&m));
	m = memory;
	m.n_chunks = 2;
	assert_false(ticket_memory_check(&m));
	m = memory;
	m.chunk_size = 0;
	assert_false(ticket_memory_check(&m));
	m = memory;
	m.size = 0;
	assert_false(ticket_memory_check(&m));
	m = (struct ticket_memory){
		.size = UINT64_MAX, .chunk_size = UINT64_MAX, .bytes = 1, .n_chunks = 1};
	assert_false(ticket_memory_check(&m));
	m = memory;
	m.offset = UINT64_MAX;
	assert_false(ticket_memory_check(&m));
	m = (struct ticket_memory){.size = TICKET_CHUNKS_MAX + 1,
				   .chunk_size = 1,
				   .bytes = 1,
				   .n_chunks = TICKET_CHUNKS_MAX + 1};
	assert_false(ticket_memory_check(&m));
}

static void a_packet_travels_with_its_descriptors(void **state)
{
	struct ticket_packet packet = sample(4), got;
	int fds[3] = {ends[0], ends[1], ends[0]};
	struct pass_many pass;
	size_t before = n_files();

	(void)state;
	assert_int_equal(ticket_packet_send(ends[0], &packet, fds), 0);
	assert_int_equal(ticket_packet_recv(ends[1], TICKET_FROM_SCHEDULER, &got, &pass), 0);
	assert_memory_equal(&got, &packet, sizeof(got));
	assert_int_equal(pass.n, 3);
	pass_many_close(&pass);
	assert_int_equal(n_files(), before);
	ends[0] = fd_close(ends[0]);
	assert_int_equal(ticket_packet_recv(ends[1], TICKET_FROM_SCHEDULER, &got, &pass), -EPIPE);
}

static void a_wrong_packets_descriptors_are_the_receivers(void **state)
{
	struct ticket_packet packet = sample(4), got;
	struct pass_many pass;
	int fds[3] = {ends[0], ends[1], ends[0]};

	(void)state;
	packet.memory.n_chunks = 9;
	assert_int_equal(ticket_packet_send(ends[0], &packet, fds), 0);
	assert_int_equal(ticket_packet_recv(ends[1], TICKET_FROM_SCHEDULER, &got, &pass), -EBADMSG);
	assert_int_equal(pass.n, 3);
	pass_many_close(&pass);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_packet_is_taken_from_its_sender_alone),
		cmocka_unit_test(a_packet_with_one_wrong_field_is_refused),
		cmocka_unit_test(only_a_packet_of_memory_or_an_open_has_flags),
		cmocka_unit_test(sizes_of_memory_fit_each_other),
		cmocka_unit_test_setup_teardown(a_packet_travels_with_its_descriptors, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_wrong_packets_descriptors_are_the_receivers,
						set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
