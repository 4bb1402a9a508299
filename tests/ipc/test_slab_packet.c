/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/slab_packet.h"

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

static const struct {
	enum slab_type type;
	enum slab_sender sender;
	uint32_t n, n_ids, n_fds;
} samples[] = {
	{SLAB_WANT, SLAB_FROM_CLIENT, 2048, 0, 0}, {SLAB_OFFER, SLAB_FROM_CLIENT, 64, 64, 64},
	{SLAB_RETURN, SLAB_FROM_CLIENT, 3, 3, 0},  {SLAB_BAD, SLAB_FROM_CLIENT, 1, 1, 0},
	{SLAB_UNMADE, SLAB_FROM_CLIENT, 5, 0, 0},  {SLAB_UNUSED, SLAB_FROM_CLIENT, 0, 0, 0},
	{SLAB_LENT, SLAB_FROM_SCHEDULER, 2, 2, 2}, {SLAB_MAY_MAKE, SLAB_FROM_SCHEDULER, 7, 0, 0},
	{SLAB_NONE, SLAB_FROM_SCHEDULER, 1, 0, 0}, {SLAB_WANTED, SLAB_FROM_SCHEDULER, 0, 0, 0},
};
#define N_SAMPLES (sizeof(samples) / sizeof(samples[0]))

static struct slab_packet sample(size_t i)
{
	struct slab_packet packet;

	slab_packet_init(&packet, samples[i].type, samples[i].n, 0);
	for (uint32_t k = 0; k < samples[i].n_ids; k++)
		packet.ids[k] = 1000 + k;
	return packet;
}

static bool is_good(size_t i, const struct slab_packet *packet)
{
	return slab_packet_check(packet, sizeof(*packet), samples[i].n_fds, samples[i].sender);
}

static void each_packet_is_taken_from_its_sender_alone(void **state)
{
	(void)state;
	assert_int_equal(N_SAMPLES, SLAB_TYPE_COUNT_);
	for (size_t i = 0; i < N_SAMPLES; i++) {
		struct slab_packet packet = sample(i);

		assert_true(is_good(i, &packet));
		assert_false(slab_packet_check(&packet, sizeof(packet), samples[i].n_fds,
					       samples[i].sender == SLAB_FROM_CLIENT
						       ? SLAB_FROM_SCHEDULER
						       : SLAB_FROM_CLIENT));
	}
}

static void a_wrong_size_magic_version_or_type_is_refused(void **state)
{
	struct slab_packet packet = sample(0);

	(void)state;
	assert_false(slab_packet_check(&packet, sizeof(packet) - 1, 0, SLAB_FROM_CLIENT));
	assert_false(slab_packet_check(&packet, sizeof(packet) + 1, 0, SLAB_FROM_CLIENT));
	packet.magic++;
	assert_false(is_good(0, &packet));
	packet = sample(0);
	packet.version++;
	assert_false(is_good(0, &packet));
	packet = sample(0);
	packet.type = SLAB_TYPE_COUNT_;
	assert_false(is_good(0, &packet));
}

static void numbers_beyond_their_range_are_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_SAMPLES; i++) {
		struct slab_packet packet = sample(i);

		packet.n = samples[i].n_ids ? SLAB_IDS_MAX + 1 : SLAB_WANT_MAX + 1;
		assert_false(is_good(i, &packet));
		packet = sample(i);
		packet.node = SLAB_NODE_MAX;
		assert_false(is_good(i, &packet));
		packet = sample(i);
		packet.bytes = 1;
		assert_int_equal(is_good(i, &packet), samples[i].type == SLAB_UNUSED);
	}
}

static void ids_that_are_zero_double_or_too_many_are_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_SAMPLES; i++) {
		struct slab_packet packet = sample(i);

		if (samples[i].n_ids < SLAB_IDS_MAX) {
			packet.ids[samples[i].n_ids] = 9;
			assert_false(is_good(i, &packet));
		}
		packet = sample(i);
		if (samples[i].n_ids) {
			packet.ids[0] = 0;
			assert_false(is_good(i, &packet));
		}
		packet = sample(i);
		if (samples[i].n_ids > 1) {
			packet.ids[1] = packet.ids[0];
			assert_false(is_good(i, &packet));
		}
	}
}

static void another_number_of_descriptors_is_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_SAMPLES; i++) {
		struct slab_packet packet = sample(i);

		assert_false(slab_packet_check(&packet, sizeof(packet), samples[i].n_fds + 1,
					       samples[i].sender));
		if (samples[i].n_fds)
			assert_false(slab_packet_check(&packet, sizeof(packet),
						       samples[i].n_fds - 1, samples[i].sender));
	}
}

static void descriptors_arrive_in_the_order_of_their_ids(void **state)
{
	struct slab_packet sent = sample(6), got;
	struct pass_many pass;
	size_t before = n_files();
	int pipes[2];
	int fds[2];

	(void)state;
	assert_int_equal(pipe(pipes), 0);
	fds[0] = pipes[1];
	fds[1] = pipes[0];
	assert_int_equal(slab_packet_send(ends[0], &sent, fds, 2), 0);
	assert_int_equal(slab_packet_recv(ends[1], SLAB_FROM_SCHEDULER, &got, &pass), 0);
	assert_memory_equal(&got, &sent, sizeof(sent));
	assert_int_equal(pass.n, 2);
	assert_int_equal(write(pass.fds[0], "x", 1), 1);
	assert_int_equal(read(pass.fds[1], &got, 1), 1);
	pass_many_close(&pass);
	close(pipes[0]);
	close(pipes[1]);
	assert_int_equal(n_files(), before);
}

static void descriptors_of_a_wrong_packet_are_the_callers(void **state)
{
	struct slab_packet sent = sample(0), got;
	struct pass_many pass;
	size_t before = n_files();
	uint8_t large[sizeof(sent) + 1] = {0};

	(void)state;
	assert_int_equal(slab_packet_send(ends[0], &sent, ends, 2), 0);
	assert_int_equal(slab_packet_recv(ends[1], SLAB_FROM_CLIENT, &got, &pass), -EBADMSG);
	assert_int_equal(pass.n, 2);
	pass_many_close(&pass);
	assert_int_equal(n_files(), before);
	sent = sample(0);
	memcpy(large, &sent, sizeof(sent));
	assert_int_equal(send(ends[0], large, sizeof(large), 0), sizeof(large));
	assert_int_equal(slab_packet_recv(ends[1], SLAB_FROM_CLIENT, &got, &pass), -EBADMSG);
	assert_int_equal(slab_packet_recv(ends[1], SLAB_FROM_CLIENT, &got, &pass), -EAGAIN);
	ends[0] = fd_close(ends[0]);
	assert_int_equal(slab_packet_recv(ends[1], SLAB_FROM_CLIENT, &got, &pass), -EPIPE);
	assert_int_equal(pass.n, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_packet_is_taken_from_its_sender_alone),
		cmocka_unit_test(a_wrong_size_magic_version_or_type_is_refused),
		cmocka_unit_test(numbers_beyond_their_range_are_refused),
		cmocka_unit_test(ids_that_are_zero_double_or_too_many_are_refused),
		cmocka_unit_test(another_number_of_descriptors_is_refused),
		cmocka_unit_test_setup_teardown(descriptors_arrive_in_the_order_of_their_ids,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(descriptors_of_a_wrong_packet_are_the_callers,
						set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
