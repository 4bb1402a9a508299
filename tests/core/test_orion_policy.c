/* SPDX-License-Identifier: Apache-2.0 */

/* Orion's policy: each rule, each reason to wait, each event, the deadlines, the counters. */

#include "core/orion/orion_policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define US 1000ull
#define MS 1000000ull
#define S  1000000000ull

/* 100 multiprocessors: beside HP 50 of them, and 250 us. */
static struct orion_policy_config config;
static struct orion_policy policy;
static uint64_t now;

static void rig_begin(uint32_t n_clients)
{
	orion_policy_config_default(&config);
	config.n_clients = n_clients;
	config.n_sms = 100;
	assert_null(orion_policy_config_check(&config));
	orion_policy_init(&policy, &config);
	now = 1000 * S;
}

static int rig_try(struct orion_policy_event event, uint64_t *ret_go)
{
	int r;

	event.now_ns = now;
	r = orion_policy_step(&policy, &event, ret_go);
	orion_policy_assert_valid(&policy);
	return r;
}

static uint64_t rig_step(struct orion_policy_event event)
{
	uint64_t go = 0;

	assert_int_equal(rig_try(event, &go), 0);
	return go;
}

static struct orion_policy_op op_of(uint32_t sms, uint64_t duration_ns)
{
	return (struct orion_policy_op){.sms = sms, .is_known = true, .duration_ns = duration_ns};
}

static struct orion_policy_op op_of_class(enum kernel_class class)
{
	return (struct orion_policy_op){10, true, 20 * US, class};
}

/* Whether it goes at once. */
static bool ask(uint32_t client, struct orion_policy_op op)
{
	return rig_step((struct orion_policy_event){
		       .type = ORION_POLICY_EVENT_ASK, .client = client, .op = op}) >>
		       client &
	       1;
}

static uint64_t complete_in(uint32_t client, struct orion_policy_op op, uint64_t measured_ns)
{
	return rig_step((struct orion_policy_event){.type = ORION_POLICY_EVENT_COMPLETE,
						    .client = client,
						    .op = op,
						    .measured_ns = measured_ns});
}

static uint64_t complete(uint32_t client, struct orion_policy_op op)
{
	return complete_in(client, op, ORION_POLICY_UNMEASURED);
}

static uint64_t tell(enum orion_policy_event_type type, uint32_t client)
{
	return rig_step((struct orion_policy_event){.type = type, .client = client});
}

static uint64_t at(uint64_t time)
{
	now = time;
	return tell(ORION_POLICY_EVENT_TIME, 0);
}

static const struct orion_policy_op hp_op = {.sms = 80, .is_known = true, .duration_ns = 100 * US};

static enum orion_policy_reason reason_of(uint32_t client)
{
	return orion_policy_reason_of(&policy, client);
}

/* ---- high priority ------------------------------------------------------------- */

static void high_priority_goes_at_once_whatever_is_in_flight(void **state)
{
	(void)state;
	rig_begin(2);
	for (int i = 0; i < 3; i++)
		assert_true(ask(1, op_of(100, S)));
	for (int i = 0; i < 3; i++)
		assert_true(ask(0, hp_op));
	assert_int_equal(policy.clients[0].load.n, 3);
	assert_int_equal(policy.counters.hp_ops_scheduled, 3);
}

/* ---- beside high priority -------------------------------------------------------- */

static void best_effort_goes_beside_high_priority_within_the_thresholds(void **state)
{
	static const struct {
		uint32_t sms;
		uint64_t us;
		bool is_known;
		enum orion_policy_reason reason;
	} table[] = {
		{1, 1, true, ORION_POLICY_WAIT_NOT},
		{50, 250, true, ORION_POLICY_WAIT_NOT},
		{0, 250, true, ORION_POLICY_WAIT_NOT},
		{51, 1, true, ORION_POLICY_WAIT_SMS},
		{UINT32_MAX, 1, true, ORION_POLICY_WAIT_SMS},
		{51, 251, true, ORION_POLICY_WAIT_SMS},
		{50, 251, true, ORION_POLICY_WAIT_DURATION},
		{0, UINT64_MAX / US, true, ORION_POLICY_WAIT_DURATION},
		{1, 0, false, ORION_POLICY_WAIT_DURATION}, /* it is taken to last 1 ms */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct orion_policy_op op = op_of(table[i].sms, table[i].us * US);

		op.is_known = table[i].is_known;
		rig_begin(2);
		assert_true(ask(0, hp_op));
		assert_int_equal(ask(1, op), table[i].reason == ORION_POLICY_WAIT_NOT);
		assert_int_equal(reason_of(1), table[i].reason);
	}
}

static void what_is_in_flight_counts_for_the_thresholds(void **state)
{
	struct orion_policy_op small = op_of(20, 100 * US);

	(void)state;
	rig_begin(4);
	assert_true(ask(0, hp_op));
	assert_true(ask(1, small));
	assert_true(ask(1, small));
	assert_false(ask(1, op_of(11, US)));
	assert_int_equal(reason_of(1), ORION_POLICY_WAIT_SMS);
	assert_int_equal(tell(ORION_POLICY_EVENT_GIVE_UP, 1), 0);
	assert_false(ask(2, op_of(10, 51 * US)));
	assert_int_equal(reason_of(2), ORION_POLICY_WAIT_DURATION);
	assert_int_equal(complete(1, small), 1 << 2);
}

static void classes_complement_unless_they_are_known_to_be_the_same(void **state)
{
	(void)state;
	for (int hp = 0; hp < KERNEL_CLASS_COUNT_; hp++) {
		for (int be = 0; be < KERNEL_CLASS_COUNT_; be++) {
			bool is_same = hp == be && hp != KERNEL_CLASS_UNKNOWN;

			rig_begin(2);
			assert_true(ask(0, op_of_class(hp)));
			assert_int_equal(ask(1, op_of_class(be)), !is_same);
			assert_int_equal(reason_of(1),
					 is_same ? ORION_POLICY_WAIT_CLASS : ORION_POLICY_WAIT_NOT);
			rig_begin(2);
			policy.config.is_interference_aware = false;
			assert_true(ask(0, op_of_class(hp)));
			assert_true(ask(1, op_of_class(be)));
		}
	}
}

static void the_class_that_counts_is_that_of_the_current_operation(void **state)
{
	struct orion_policy_op compute = op_of_class(KERNEL_CLASS_COMPUTE);
	struct orion_policy_op memory = op_of_class(KERNEL_CLASS_MEMORY);

	(void)state;
	rig_begin(3);
	assert_true(ask(0, compute));
	assert_true(ask(0, memory));
	assert_false(ask(1, compute));
	assert_true(ask(2, memory));
	assert_int_equal(complete(0, compute), 1 << 1); /* the memory-bound one runs now */
	assert_false(ask(2, memory));
	assert_int_equal(reason_of(2), ORION_POLICY_WAIT_CLASS);
}

static void a_deep_queue_of_high_priority_keeps_its_order(void **state)
{
	struct orion_policy_op compute = op_of_class(KERNEL_CLASS_COMPUTE);
	struct orion_policy_op memory = op_of_class(KERNEL_CLASS_MEMORY);

	(void)state;
	rig_begin(2);
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < ORION_POLICY_HP_DEPTH; i++)
			assert_true(ask(0, i % 2 ? memory : compute));
		for (uint32_t i = 0; i < ORION_POLICY_HP_DEPTH; i++) {
			assert_false(ask(1, i % 2 ? memory : compute));
			(void)tell(ORION_POLICY_EVENT_GIVE_UP, 1);
			(void)complete(0, i % 2 ? memory : compute);
		}
		assert_true(ask(0, memory)); /* the ring begins at an odd index */
		(void)complete(0, memory);
	}
	/* Beyond the depth classes may be wrong, but nothing else is. */
	for (uint32_t i = 0; i < 3 * ORION_POLICY_HP_DEPTH; i++)
		assert_true(ask(0, compute));
	for (uint32_t i = 0; i < 3 * ORION_POLICY_HP_DEPTH; i++)
		(void)complete(0, compute);
	assert_int_equal(policy.clients[0].load.n, 0);
}

/* ---- high priority is idle --------------------------------------------------------- */

static void a_newcomer_of_high_priority_finds_one_long_kernel_at_most(void **state)
{
	struct orion_policy_op product = op_of(100, 5 * MS), small = op_of(100, 100 * US);

	(void)state;
	rig_begin(4);
	assert_true(ask(0, hp_op));
	(void)complete(0, hp_op);
	assert_true(ask(1, product));
	assert_false(ask(2, small));
	assert_int_equal(reason_of(2), ORION_POLICY_WAIT_DEPTH);
	assert_int_equal(complete(1, product), 1 << 2);
	assert_true(ask(3, small)); /* multiprocessors do not matter, the duration does */
	assert_false(ask(1, op_of(1, 801 * US)));
	assert_int_equal(complete(2, small), 1 << 1);
}

static void the_next_long_kernel_goes_just_before_the_end_of_the_last_one(void **state)
{
	struct orion_policy_op product = op_of(100, 5 * MS);

	(void)state;
	rig_begin(4);
	assert_true(ask(0, hp_op));
	(void)complete(0, hp_op);
	assert_true(ask(1, product));
	assert_false(ask(2, product));
	assert_int_equal(orion_policy_deadline(&policy), now + 5 * MS - 20 * US);
	assert_int_equal(at(now + 5 * MS - 20 * US - 1), 0);
	assert_int_equal(at(now + 1), 1 << 2);
	assert_false(ask(3, product)); /* one of them is not near its end */
	assert_int_equal(complete(1, product), 0);
	assert_int_equal(orion_policy_deadline(&policy), now + 5 * MS - 20 * US);
}

static void classes_do_not_matter_while_high_priority_is_idle(void **state)
{
	struct orion_policy_op compute = op_of_class(KERNEL_CLASS_COMPUTE);

	(void)state;
	rig_begin(2);
	assert_true(ask(0, compute));
	assert_false(ask(1, compute));
	assert_int_equal(complete(0, compute), 1 << 1);
}

static void an_unknown_kernel_is_measured_alone_while_high_priority_is_idle(void **state)
{
	struct orion_policy_op unknown = {.sms = 10};

	(void)state;
	rig_begin(3);
	assert_true(ask(0, hp_op));
	assert_false(ask(1, unknown));
	assert_int_equal(complete(0, hp_op), 1 << 1);
	assert_false(ask(2, op_of(1, 10 * US)));
	assert_int_equal(complete_in(1, unknown, 3 * MS), 1 << 2);
	assert_int_equal(policy.clients[1].served_ns, 3 * MS);
}

static void everything_goes_when_high_priority_is_not_present(void **state)
{
	struct orion_policy_op product = op_of(100, 5 * MS);

	(void)state;
	rig_begin(4);
	assert_false(orion_policy_is_hp_present(&policy));
	assert_true(ask(1, product));
	assert_true(ask(2, product));
	assert_true(ask(0, hp_op));
	assert_true(orion_policy_is_hp_present(&policy));
	now += MS;
	(void)complete(0, hp_op);
	assert_true(orion_policy_is_hp_present(&policy));
	assert_false(ask(1, product));
	assert_false(ask(2, product));
	assert_int_equal(orion_policy_deadline(&policy), now + S);
	assert_int_equal(at(now + S - 1), 0);
	assert_int_equal(at(now + 1), 1 << 1 | 1 << 2);
	assert_false(orion_policy_is_hp_present(&policy));
	assert_int_equal(orion_policy_deadline(&policy), ORION_POLICY_NO_DEADLINE);
	for (int i = 0; i < 100; i++)
		assert_true(ask(3, product));
}

static void high_priority_is_gone_when_its_thread_has_ended(void **state)
{
	struct orion_policy_op product = op_of(100, 5 * MS);

	(void)state;
	rig_begin(2);
	assert_true(ask(0, hp_op));
	assert_false(ask(1, product));
	assert_int_equal(tell(ORION_POLICY_EVENT_END, 0), 0); /* its operation still runs */
	assert_int_equal(complete(0, hp_op), 1 << 1);
	assert_true(ask(1, product));
	assert_true(ask(0, hp_op)); /* a new thread */
	(void)complete(0, hp_op);
	assert_false(ask(1, product));
	assert_int_equal(tell(ORION_POLICY_EVENT_END, 0), 1 << 1);
}

/* ---- patience ------------------------------------------------------------------------ */

static void an_operation_that_never_fits_goes_alone_after_patience(void **state)
{
	struct orion_policy_op product = op_of(100, 5 * MS), small = op_of(10, 100 * US);
	uint64_t asked;

	(void)state;
	rig_begin(3);
	assert_true(ask(0, hp_op));
	asked = now;
	assert_false(ask(1, product));
	assert_int_equal(orion_policy_deadline(&policy), asked + 100 * MS);
	now += MS;
	assert_true(ask(2, small)); /* passes it */
	assert_int_equal(orion_policy_deadline(&policy), ORION_POLICY_NO_DEADLINE);
	assert_int_equal(at(asked + 100 * MS), 0);
	assert_int_equal(reason_of(1), ORION_POLICY_WAIT_DRAIN);
	assert_false(ask(2, small)); /* passes it no more */
	assert_int_equal(reason_of(2), ORION_POLICY_WAIT_TURN);
	assert_int_equal(complete(2, small), 1 << 1);
	assert_int_equal(reason_of(2), ORION_POLICY_WAIT_SMS);
	assert_int_equal(complete(1, product), 1 << 2);
	assert_int_equal(policy.counters.total_wait_ns, 100 * MS);
}

static void patience_comes_by_time_where_nothing_is_in_flight(void **state)
{
	struct orion_policy_op product = op_of(100, 5 * MS);

	(void)state;
	rig_begin(3);
	assert_true(ask(0, hp_op));
	assert_false(ask(1, product));
	now += MS;
	assert_false(ask(2, product));
	assert_int_equal(at(now + 99 * MS - 1), 0);
	assert_int_equal(at(now + 1), 1 << 1);
	now += 5 * MS;
	assert_int_equal(complete(1, product), 1 << 2);
}

/* ---- the latency ----------------------------------------------------------------------- */

static void a_longer_latency_lets_more_go_and_waits_longer(void **state)
{
	struct orion_policy_event event = {.type = ORION_POLICY_EVENT_LATENCY};
	uint64_t go, asked;

	(void)state;
	rig_begin(3);
	assert_true(ask(0, hp_op));
	asked = now;
	assert_false(ask(1, op_of(10, 400 * US)));
	assert_false(ask(2, op_of(100, US)));
	event.hp_latency_ns = 20 * MS; /* 500 us */
	assert_int_equal(rig_step(event), 1 << 1);
	(void)complete(1, op_of(10, 400 * US));
	assert_int_equal(orion_policy_deadline(&policy), asked + 200 * MS);
	now += 50 * MS;
	event.hp_latency_ns = 5 * MS; /* patience is 50 ms */
	assert_int_equal(rig_step(event), 1 << 2);
	event.hp_latency_ns = 0;
	assert_int_equal(rig_try(event, &go), ORION_POLICY_E_VALUE);
	event.hp_latency_ns = ORION_POLICY_NS_MAX + 1;
	assert_int_equal(rig_try(event, &go), ORION_POLICY_E_VALUE);
	assert_int_equal(policy.config.hp_latency_ns, 5 * MS);
}

static void a_patience_that_is_set_does_not_follow_the_latency(void **state)
{
	struct orion_policy_event event = {.type = ORION_POLICY_EVENT_LATENCY,
					   .hp_latency_ns = 20 * MS};

	(void)state;
	rig_begin(2);
	config.patience_ns = 7 * MS;
	orion_policy_init(&policy, &config);
	assert_int_equal(policy.patience_ns, 7 * MS);
	(void)rig_step(event);
	assert_int_equal(policy.patience_ns, 7 * MS);
}

/* ---- whose turn --------------------------------------------------------------------------- */

/*
 * Kernels of one length for each of these clients, one in flight at a time, because HP is idle. All
 * of them wait all the time, in the end, too.
 */
static void serve(uint32_t n_clients, const uint64_t length[], uint64_t until_ns)
{
	uint64_t go, end = now + until_ns;
	uint32_t first;

	if (policy.be.n == 0) {
		assert_true(ask(0, hp_op));
		for (uint32_t i = 1; i < n_clients; i++)
			assert_false(ask(i, op_of(100, length[i])));
		go = complete(0, hp_op);
		first = (uint32_t)__builtin_ctzll(go);
		assert_false(ask(first, op_of(100, length[first])));
	}
	while (now < end) {
		uint32_t client = 1;

		while (policy.clients[client].load.n == 0)
			client++;
		now += length[client];
		go = complete(client, op_of(100, length[client]));
		client = (uint32_t)__builtin_ctzll(go);
		assert_int_equal(go, 1ull << client);
		assert_false(ask(client, op_of(100, length[client])));
	}
}

static void clients_are_served_for_equal_times(void **state)
{
	static const uint64_t length[] = {0, MS, 2 * MS, 5 * MS, 20 * MS};
	uint64_t least = UINT64_MAX, most = 0;

	(void)state;
	rig_begin(5);
	serve(5, length, S - 100 * MS);
	for (uint32_t i = 1; i < 5; i++) {
		uint64_t served = policy.clients[i].served_ns;

		least = served < least ? served : least;
		most = served > most ? served : most;
	}
	assert_true(least >= 200 * MS && most - least <= 20 * MS);
}

static void a_client_that_was_idle_catches_up_by_a_latency_at_most(void **state)
{
	static const uint64_t length[] = {0, MS, MS, MS};
	uint64_t served;

	(void)state;
	rig_begin(4);
	serve(3, length, 400 * MS);
	served = policy.clients[1].served_ns;
	assert_false(ask(3, op_of(100, MS)));
	serve(4, length, 40 * MS);
	assert_true(policy.clients[3].served_ns >= 19 * MS); /* 10 ms, and a third of 30 ms */
	assert_true(policy.clients[3].served_ns <= 21 * MS);
	assert_true(policy.clients[1].served_ns - served >= 9 * MS);
}

static void what_was_measured_replaces_what_was_taken(void **state)
{
	(void)state;
	rig_begin(4);
	assert_true(ask(0, hp_op));
	assert_true(ask(1, op_of(10, 10 * US)));
	assert_true(ask(2, op_of(10, 50 * US)));
	(void)complete_in(1, op_of(10, 10 * US), 900 * US);
	(void)complete_in(2, op_of(10, 50 * US), 50 * US);
	assert_true(ask(3, op_of(50, 200 * US)));
	assert_false(ask(1, op_of(10, 10 * US)));
	now++;
	assert_false(ask(2, op_of(50, 200 * US)));
	assert_int_equal(complete(3, op_of(50, 200 * US)), 1 << 2);
	assert_int_equal(reason_of(1), ORION_POLICY_WAIT_SMS);
}

/* Client 2 has kernels of 1 ms in flight, one after the other: how many until another one goes. */
static uint64_t n_until_another_goes(void)
{
	struct orion_policy_op product = op_of(100, MS);
	uint64_t n = 0;

	for (; policy.clients[2].load.n > 0; n++) {
		assert_false(ask(2, product));
		(void)complete(2, product);
	}
	return n;
}

static void one_long_operation_locks_its_client_out_for_two_patiences_at_most(void **state)
{
	struct orion_policy_op product = op_of(100, MS);
	uint64_t n;

	(void)state;
	rig_begin(3);
	assert_true(ask(0, hp_op));
	(void)complete(0, hp_op);
	assert_true(ask(1, product));
	assert_false(ask(2, product));
	now += 900 * MS;
	assert_int_equal(complete_in(1, product, 900 * MS), 1 << 2);
	assert_false(ask(1, product));
	n = n_until_another_goes();
	assert_true(n >= 190 && n <= 202);
}

static void a_correction_counts_though_the_tag_was_at_its_limit(void **state)
{
	struct orion_policy_op product = op_of(100, S);
	uint64_t n;

	(void)state;
	rig_begin(3);
	assert_true(ask(0, hp_op));
	(void)complete(0, hp_op);
	assert_true(ask(1, product));
	assert_false(ask(1, product));
	assert_false(ask(2, op_of(100, MS)));
	assert_int_equal(complete_in(1, product, 150 * MS), 1 << 2);
	n = n_until_another_goes();
	assert_true(n >= 145 && n <= 152);
}

static void a_client_that_high_priority_keeps_back_has_a_claim_to_one_patience(void **state)
{
	struct orion_policy_op compute = op_of_class(KERNEL_CLASS_COMPUTE);
	struct orion_policy_op small = op_of(10, 250 * US), product = op_of(100, MS);
	uint64_t n;

	(void)state;
	compute.duration_ns = 100 * US; /* its end is not near */
	rig_begin(3);
	assert_true(ask(0, compute));
	assert_false(ask(2, compute));
	for (int i = 0; i < 2000; i++) { /* 500 ms */
		assert_true(ask(1, small));
		(void)complete(1, small);
	}
	assert_int_equal(complete(0, compute), 1 << 2);
	assert_false(ask(1, product));
	assert_false(ask(2, product));
	assert_int_equal(complete(2, compute), 1 << 2);
	n = n_until_another_goes();
	assert_true(n >= 97 && n <= 102);
}

static void a_shorter_latency_lowers_the_limit_of_tags(void **state)
{
	struct orion_policy_event event = {.type = ORION_POLICY_EVENT_LATENCY, .hp_latency_ns = MS};
	struct orion_policy_op product = op_of(100, MS);
	uint64_t n;

	(void)state;
	rig_begin(3);
	assert_true(ask(0, hp_op));
	(void)complete(0, hp_op);
	assert_true(ask(1, product));
	assert_false(ask(2, product));
	assert_int_equal(complete_in(1, product, S), 1 << 2);
	assert_false(ask(1, product)); /* its tag is 200 ms above the floor */
	assert_int_equal(rig_step(event), 0);
	n = n_until_another_goes();
	assert_true(n >= 19 && n <= 22);
}

static void a_large_operation_that_could_go_alone_is_not_passed(void **state)
{
	struct orion_policy_op small = op_of(10, 50 * US), large = op_of(50, 250 * US);

	(void)state;
	rig_begin(4);
	assert_true(ask(0, hp_op));
	assert_true(ask(1, small));
	assert_false(ask(2, large));
	assert_false(ask(3, small)); /* it fits, and would pass it */
	assert_int_equal(reason_of(3), ORION_POLICY_WAIT_TURN);
	assert_int_equal(complete(1, small), 1 << 2);
	assert_int_equal(complete(2, large), 1 << 3);
}

static void several_clients_may_go_at_once(void **state)
{
	struct orion_policy_op product = op_of(100, MS), small = op_of(10, 200 * US);
	uint64_t go;

	(void)state;
	rig_begin(64);
	assert_true(ask(0, hp_op));
	(void)complete(0, hp_op);
	assert_true(ask(1, product));
	for (uint32_t i = 2; i < 64; i++)
		assert_false(ask(i, small));
	go = complete(1, product);
	assert_int_equal(__builtin_popcountll(go), 5);
	assert_int_equal(policy.be.ns, MS);
	go |= at(now + S); /* HP is not present */
	assert_int_equal(__builtin_popcountll(go), 62);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void a_client_that_gives_up_makes_way(void **state)
{
	struct orion_policy_op small = op_of(10, 50 * US);

	(void)state;
	for (int is_end = 0; is_end < 2; is_end++) {
		rig_begin(4);
		assert_true(ask(0, hp_op));
		assert_true(ask(1, small));
		assert_false(ask(2, op_of(50, 250 * US)));
		assert_false(ask(3, small));
		now += 5 * US;
		assert_int_equal(
			tell(is_end ? ORION_POLICY_EVENT_END : ORION_POLICY_EVENT_GIVE_UP, 2),
			1 << 3);
		assert_int_equal(policy.counters.be_ops_rejected, 2);
		assert_int_equal(policy.counters.be_ops_scheduled, 2);
		assert_int_equal(policy.counters.total_wait_ns, 10 * US);
	}
}

static void an_operation_that_was_never_submitted_serves_nobody(void **state)
{
	struct orion_policy_op small = op_of(10, 50 * US);
	uint64_t tag;

	(void)state;
	rig_begin(2);
	tag = policy.clients[1].tag_ns;
	assert_true(ask(1, small));
	(void)complete_in(1, small, 0);
	assert_int_equal(policy.clients[1].served_ns, 0);
	assert_int_equal(policy.clients[1].tag_ns, tag);
	assert_int_equal(policy.be.n, 0);
}

static void events_that_make_no_sense_are_refused(void **state)
{
	struct orion_policy_op big = op_of(60, 50 * US), small = op_of(10, 50 * US);
	struct orion_policy_op bad = {.class = KERNEL_CLASS_COUNT_};
	const struct {
		enum orion_policy_event_type type;
		uint32_t client;
		struct orion_policy_op op;
		int r;
	} table[] = {
		{ORION_POLICY_EVENT_ASK, 3, small, ORION_POLICY_E_CLIENT},
		{ORION_POLICY_EVENT_ASK, UINT32_MAX, small, ORION_POLICY_E_CLIENT},
		{ORION_POLICY_EVENT_ASK, 2, small, ORION_POLICY_E_STATE},
		{ORION_POLICY_EVENT_ASK, 1, bad, ORION_POLICY_E_VALUE},
		{ORION_POLICY_EVENT_ASK, 0, bad, ORION_POLICY_E_VALUE},
		{ORION_POLICY_EVENT_GIVE_UP, 0, small, ORION_POLICY_E_STATE},
		{ORION_POLICY_EVENT_GIVE_UP, 1, small, ORION_POLICY_E_STATE},
		{ORION_POLICY_EVENT_GIVE_UP, 3, small, ORION_POLICY_E_CLIENT},
		{ORION_POLICY_EVENT_COMPLETE, 2, big, ORION_POLICY_E_STATE},
		{ORION_POLICY_EVENT_COMPLETE, 1, big, ORION_POLICY_E_STATE},
		{ORION_POLICY_EVENT_COMPLETE, 1, op_of(10, 51 * US), ORION_POLICY_E_STATE},
		{ORION_POLICY_EVENT_COMPLETE, 3, small, ORION_POLICY_E_CLIENT},
		{ORION_POLICY_EVENT_END, 3, small, ORION_POLICY_E_CLIENT},
	};

	(void)state;
	rig_begin(3);
	assert_true(ask(0, hp_op));
	assert_true(ask(1, small));
	assert_false(ask(2, big));
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct orion_policy was = policy;
		uint64_t go = 99;

		now++;
		assert_int_equal(rig_try((struct orion_policy_event){.type = table[i].type,
								     .client = table[i].client,
								     .op = table[i].op},
					 &go),
				 table[i].r);
		assert_int_equal(go, 99);
		assert_memory_equal(&was, &policy, sizeof(was));
	}
}

static void a_clock_that_goes_back_does_no_harm(void **state)
{
	(void)state;
	rig_begin(2);
	assert_true(ask(0, hp_op));
	now -= 10 * S;
	assert_false(ask(1, op_of(100, US)));
	assert_int_equal(policy.clients[1].asked_ns, 1000 * S);
}

static void counters_add_up(void **state)
{
	struct orion_policy_op big = op_of(60, 50 * US), small = op_of(10, 50 * US);

	(void)state;
	rig_begin(3);
	assert_true(ask(0, hp_op));
	assert_true(ask(1, small));
	assert_false(ask(2, big));
	now += 3 * MS;
	(void)tell(ORION_POLICY_EVENT_TIME, 0); /* it still waits, and counts once */
	assert_int_equal(policy.counters.total_wait_ns, 0);
	(void)complete(1, small);
	assert_int_equal(complete(0, hp_op), 1 << 2);
	assert_int_equal(policy.counters.hp_ops_scheduled, 1);
	assert_int_equal(policy.counters.be_ops_scheduled, 2);
	assert_int_equal(policy.counters.be_ops_rejected, 1);
	assert_int_equal(policy.counters.total_wait_ns, 3 * MS);
}

/* ---- settings ------------------------------------------------------------------------------- */

static void settings_have_their_defaults_and_their_ranges(void **state)
{
	static const struct {
		const char *name;
		size_t offset, size;
		uint64_t least, most;
	} table[] = {
#define FIELD(name, least, most) \
	{#name, offsetof(struct orion_policy_config, name), sizeof(config.name), least, most}
		FIELD(n_clients, 1, 64),
		FIELD(n_sms, 1, 65535),
		FIELD(sm_threshold_ppm, 0, 1000000),
		FIELD(dur_threshold_ppm, 0, 1000000),
		FIELD(depth_ppm, 0, 1000000),
		FIELD(lead_ns, 0, ORION_POLICY_NS_MAX),
		FIELD(hp_latency_ns, 1000, 3600 * S),
		FIELD(patience_ns, 0, 3600 * S),
		FIELD(unknown_ns, 1000, 3600 * S),
		FIELD(presence_ns, 0, 3600 * S),
#undef FIELD
	};

	(void)state;
	orion_policy_config_default(&config);
	assert_null(orion_policy_config_check(&config));
	assert_int_equal(config.sm_threshold_ppm, 500000);
	assert_int_equal(config.dur_threshold_ppm, 25000);
	assert_int_equal(config.depth_ppm, 100000);
	assert_int_equal(config.lead_ns, 20 * US);
	assert_int_equal(config.hp_latency_ns, 10 * MS);
	assert_true(config.is_interference_aware);
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		const uint64_t values[] = {table[i].least, table[i].most, table[i].most + 1,
					   table[i].least - 1};

		for (size_t k = 0; k < (table[i].least > 0 ? 4 : 3); k++) {
			const char *bad;

			orion_policy_config_default(&config);
			memcpy((char *)&config + table[i].offset, &values[k], table[i].size);
			bad = orion_policy_config_check(&config);
			if (k < 2)
				assert_null(bad);
			else
				assert_string_equal(bad, table[i].name);
		}
	}
}

static void each_reason_has_a_text_of_its_own(void **state)
{
	(void)state;
	for (int i = 0; i < ORION_POLICY_REASON_COUNT_; i++) {
		for (int k = 0; k < i; k++)
			assert_string_not_equal(orion_policy_reason_text(i),
						orion_policy_reason_text(k));
		assert_string_not_equal(orion_policy_reason_text(i),
					orion_policy_reason_text(ORION_POLICY_REASON_COUNT_));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(high_priority_goes_at_once_whatever_is_in_flight),
		cmocka_unit_test(best_effort_goes_beside_high_priority_within_the_thresholds),
		cmocka_unit_test(what_is_in_flight_counts_for_the_thresholds),
		cmocka_unit_test(classes_complement_unless_they_are_known_to_be_the_same),
		cmocka_unit_test(the_class_that_counts_is_that_of_the_current_operation),
		cmocka_unit_test(a_deep_queue_of_high_priority_keeps_its_order),
		cmocka_unit_test(a_newcomer_of_high_priority_finds_one_long_kernel_at_most),
		cmocka_unit_test(the_next_long_kernel_goes_just_before_the_end_of_the_last_one),
		cmocka_unit_test(classes_do_not_matter_while_high_priority_is_idle),
		cmocka_unit_test(an_unknown_kernel_is_measured_alone_while_high_priority_is_idle),
		cmocka_unit_test(everything_goes_when_high_priority_is_not_present),
		cmocka_unit_test(high_priority_is_gone_when_its_thread_has_ended),
		cmocka_unit_test(an_operation_that_never_fits_goes_alone_after_patience),
		cmocka_unit_test(patience_comes_by_time_where_nothing_is_in_flight),
		cmocka_unit_test(a_longer_latency_lets_more_go_and_waits_longer),
		cmocka_unit_test(a_patience_that_is_set_does_not_follow_the_latency),
		cmocka_unit_test(clients_are_served_for_equal_times),
		cmocka_unit_test(a_client_that_was_idle_catches_up_by_a_latency_at_most),
		cmocka_unit_test(what_was_measured_replaces_what_was_taken),
		cmocka_unit_test(one_long_operation_locks_its_client_out_for_two_patiences_at_most),
		cmocka_unit_test(a_correction_counts_though_the_tag_was_at_its_limit),
		cmocka_unit_test(
			a_client_that_high_priority_keeps_back_has_a_claim_to_one_patience),
		cmocka_unit_test(a_shorter_latency_lowers_the_limit_of_tags),
		cmocka_unit_test(a_large_operation_that_could_go_alone_is_not_passed),
		cmocka_unit_test(several_clients_may_go_at_once),
		cmocka_unit_test(a_client_that_gives_up_makes_way),
		cmocka_unit_test(an_operation_that_was_never_submitted_serves_nobody),
		cmocka_unit_test(events_that_make_no_sense_are_refused),
		cmocka_unit_test(a_clock_that_goes_back_does_no_harm),
		cmocka_unit_test(counters_add_up),
		cmocka_unit_test(settings_have_their_defaults_and_their_ranges),
		cmocka_unit_test(each_reason_has_a_text_of_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
