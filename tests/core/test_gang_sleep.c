/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Gangs and sleepers: two cards of 74 GiB, turns of 10 s, links of 50 GiB a second. On each card a
 * client of 60 GiB never rests; the two are a gang where a test says so. Small ones have 25 GiB.
 */

#include "core/policy/sleeper.h"
#include "rig.h"

#define LARGE  60
#define SMALL  25
#define TINY   5
#define NOBODY SCHED_NONE

/* Large ones; small ones on the first card and on the second; one more on each. */
enum { LARGE_0, LARGE_1, SMALL_0, SMALL_1, OTHER_0, OTHER_1, N_CLIENTS };

static const uint32_t gpu_of[N_CLIENTS] = {0, 1, 0, 1, 0, 1};
static uint32_t gib_of[N_CLIENTS];

static struct rig rig;

static int set_up(void **state)
{
	(void)state;
	gib_of[LARGE_0] = gib_of[LARGE_1] = gib_of[OTHER_1] = LARGE;
	gib_of[SMALL_0] = gib_of[SMALL_1] = gib_of[OTHER_0] = SMALL;
	rig_init(&rig);
	rig.config.switch_mode = SCHED_SWITCH_FIXED;
	rig.config.switch_fixed_ns = 10 * S;
	assert_int_equal(rig_config(&rig), 0);
	for (uint32_t gpu = 0; gpu < 2; gpu++)
		assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_GPU,
								     .gpu = gpu,
								     .bytes = 74 * GIB,
								     .link_bandwidth = 50 * GIB}),
				 0);
	return 0;
}

static bool runs(uint32_t client)
{
	return rig_state(&rig, client) == SCHED_CLIENT_RUNNING;
}

/* client has brought in what its budget allows by now; more is to come where that is a part. */
static void bring_in(uint32_t client)
{
	const struct sched_client *c = &rig.clients[client];
	uint64_t size = gib_of[client] * GIB;

	if (c->budget >= size)
		(void)rig_memory(&rig, client, (struct sched_memory){.resident = size});
	else if (c->task == SCHED_TASK_RESTORE && c->budget > c->memory.resident)
		(void)rig_part(
			&rig, client,
			(struct sched_memory){.resident = c->budget, .swapped = size - c->budget});
}

/* All have done what they were told; that takes no time. */
static void obey(void)
{
	while (rig.n > 0) {
		struct sched_action did[RIG_ACTIONS];
		uint32_t n = rig.n;

		for (uint32_t i = 0; i < n; i++)
			did[i] = rig.did[i];
		rig_clear(&rig);
		for (uint32_t i = 0; i < n; i++) {
			struct sched_action a = did[i];
			struct sched_memory kept = rig.clients[a.client].memory;
			uint64_t out = a.bytes < kept.resident ? a.bytes : kept.resident;

			kept.resident -= out;
			kept.swapped += out;
			if (a.type == SCHED_ACTION_DROP)
				(void)rig_release(&rig, a.client, kept,
						  rig_state(&rig, a.client) != SCHED_CLIENT_IDLE);
			else if (a.type == SCHED_ACTION_GRANT || a.type == SCHED_ACTION_BUDGET)
				bring_in(a.client);
		}
	}
}

static void go_to(uint64_t ns)
{
	for (obey(); rig.now < ns; obey())
		rig_at(&rig, rig.now + 10 * MS < ns ? rig.now + 10 * MS : ns);
}

static void go_on(uint64_t ns)
{
	go_to(rig.now + ns);
}

static void ask(uint32_t client)
{
	rig_request(&rig, client, rig.clients[client].memory);
}

/* The account of gpu, now. */
static void set_account(uint32_t gpu, uint64_t ns)
{
	rig.sched.gpus[gpu].filled_ns = rig.now;
	rig.sched.gpus[gpu].moving_ns = (int64_t)ns;
}

/* client, which runs, has computed for ns, and is idle. */
static void rest(uint32_t client, uint64_t ns)
{
	const struct sched_client *c = &rig.clients[client];

	assert_true(runs(client));
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_USED,
							     .client = client,
							     .gpu_ns = ns}),
			 0);
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_RELEASED,
							     .client = client,
							     .grant = c->grant,
							     .epoch = c->epoch,
							     .budget = gib_of[client] * GIB,
							     .memory = c->memory}),
			 0);
	obey();
}

static void join(uint32_t client, uint32_t gang, enum sched_priority priority)
{
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_JOIN,
							     .client = client,
							     .gpu = gpu_of[client],
							     .owner = 1000 + client,
							     .claim = {.priority = priority}}),
			 0);
	if (gang != NOBODY)
		assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_GANG,
								     .client = client,
								     .gang = gang}),
				 0);
}

/* client has the GPU, and its memory there. */
static void wait_for(uint32_t client)
{
	for (uint32_t n = 0; !runs(client); n++) {
		assert_true(n < 4000);
		go_on(100 * MS);
	}
}

/*
 * The small ones have had a first use and sleep; the large ones run, and have had something of
 * their turns.
 */
static void begin_as(uint32_t large_gang, uint32_t small_gang, enum sched_priority last_large)
{
	join(LARGE_0, large_gang, SCHED_PRIORITY_NORMAL);
	join(LARGE_1, large_gang, last_large);
	for (uint32_t i = LARGE_0; i <= LARGE_1; i++)
		rig_request(&rig, i, rig_mem(0, gib_of[i], 0));
	go_on(S);
	for (uint32_t i = SMALL_0; i <= SMALL_1; i++)
		join(i, small_gang, SCHED_PRIORITY_NORMAL);
	for (uint32_t i = SMALL_0; i <= SMALL_1; i++)
		rig_request(&rig, i, rig_mem(0, gib_of[i], 0));
	for (uint32_t i = SMALL_0; i <= SMALL_1; i++) {
		wait_for(i);
		if (small_gang == NOBODY)
			rest(i, 200 * MS);
	}
	for (uint32_t i = SMALL_0; i <= SMALL_1 && small_gang != NOBODY; i++)
		rest(i, 200 * MS);
	wait_for(LARGE_0);
	wait_for(LARGE_1);
	go_on(3 * S);
	assert_true(runs(LARGE_0) && runs(LARGE_1));
	for (uint32_t gpu = 0; gpu < 2; gpu++) {
		set_account(gpu, 6 * S); /* all that it holds */
		assert_int_equal(rig.sched.gpus[gpu].n_early, 0);
	}
}

static void begin_with_sleeping_gang(void)
{
	begin_as(NOBODY, 9, SCHED_PRIORITY_NORMAL);
}

static void begin_with_running_gang(void)
{
	begin_as(9, NOBODY, SCHED_PRIORITY_NORMAL);
}

/* ---- a gang that has slept -------------------------------------------------------- */

static void a_gang_that_has_slept_comes_early_on_all_gpus(void **state)
{
	(void)state;
	begin_with_sleeping_gang();
	rig_clear(&rig);
	ask(SMALL_0);
	ask(SMALL_1);
	go_on(20 * MS);
	assert_true(runs(SMALL_0) && runs(SMALL_1));
	assert_int_equal(rig_status(&rig, SMALL_0).early, SCHED_EARLY_CAME);
	assert_int_equal(rig_status(&rig, SMALL_1).early, SCHED_EARLY_CAME);
	assert_int_equal(rig_status(&rig, LARGE_0).early, SCHED_EARLY_MADE_WAY);
	assert_int_equal(rig_status(&rig, LARGE_1).early, SCHED_EARLY_MADE_WAY);
	rest(SMALL_0, 100 * MS);
	rest(SMALL_1, 100 * MS);
	go_on(20 * MS);
	assert_true(runs(LARGE_0) && runs(LARGE_1));
}

static void a_gang_of_which_one_has_computed_long_waits(void **state)
{
	(void)state;
	begin_with_sleeping_gang();
	rig.clients[SMALL_1].has_slept = false;
	ask(SMALL_0);
	ask(SMALL_1);
	go_on(2 * S);
	assert_true(runs(LARGE_0) && runs(LARGE_1));
	assert_int_equal(rig.sched.gpus[0].n_early, 0);
}

static void a_gang_waits_for_the_account_of_each_gpu(void **state)
{
	(void)state;
	begin_with_sleeping_gang();
	set_account(0, 0);
	set_account(1, 0);
	ask(SMALL_0);
	set_account(0, 6 * S);
	ask(SMALL_1);
	go_on(S);
	assert_true(runs(LARGE_0) && runs(LARGE_1));
	/* The second card's account fills with a fifth of the time. */
	wait_for(SMALL_0);
	assert_true(runs(SMALL_1));
	assert_int_equal(rig.sched.gpus[0].n_early, 1);
	assert_int_equal(rig.sched.gpus[1].n_early, 1);
}

static void a_member_that_wakes_later_joins_early(void **state)
{
	uint64_t grant;

	(void)state;
	begin_with_sleeping_gang();
	ask(SMALL_0);
	go_on(20 * MS);
	assert_true(runs(SMALL_0) && runs(LARGE_1));
	grant = rig.clients[SMALL_0].grant;
	ask(SMALL_1);
	go_on(20 * MS);
	assert_true(runs(SMALL_0) && runs(SMALL_1));
	assert_int_equal(rig.clients[SMALL_0].grant, grant);
}

/* What the gang lacks is on the other card, and fills slowly. */
static void a_sleeper_passes_a_gang_that_waits_for_another_account(void **state)
{
	(void)state;
	begin_with_sleeping_gang();
	join(OTHER_0, NOBODY, SCHED_PRIORITY_NORMAL);
	rig_request(&rig, OTHER_0, rig_mem(0, SMALL, 0));
	wait_for(OTHER_0);
	rest(OTHER_0, 200 * MS);
	wait_for(LARGE_0);
	go_on(3 * S);
	set_account(0, 0);
	set_account(1, 0);
	ask(SMALL_0);
	ask(SMALL_1);
	set_account(0, 6 * S);
	ask(OTHER_0);
	go_on(20 * MS);
	assert_true(runs(OTHER_0));
	assert_int_equal(rig_status(&rig, OTHER_0).early, SCHED_EARLY_CAME);
}

/* Sleepers that wait for one account come in the order in which they woke, whatever they cost. */
static void a_sleeper_waits_behind_a_gang_for_their_own_account(void **state)
{
	(void)state;
	gib_of[SMALL_0] = LARGE;
	begin_with_sleeping_gang();
	join(OTHER_0, NOBODY, SCHED_PRIORITY_NORMAL);
	rig_request(&rig, OTHER_0, rig_mem(0, gib_of[OTHER_0], 0));
	wait_for(OTHER_0);
	rest(OTHER_0, 200 * MS);
	wait_for(LARGE_0);
	go_on(3 * S);
	/* Enough for the last one alone. */
	set_account(0, 1600 * MS);
	ask(SMALL_0);
	ask(SMALL_1);
	ask(OTHER_0);
	go_on(20 * MS);
	assert_true(runs(LARGE_0));
	assert_int_equal(rig.sched.gpus[0].n_early, 0);
}

/* It has done nothing that sleepers do not. */
static void a_member_that_is_called_off_is_a_sleeper_still(void **state)
{
	(void)state;
	begin_with_sleeping_gang();
	ask(SMALL_0);
	go_on(20 * MS);
	assert_true(runs(SMALL_0));
	set_account(1, 0);
	ask(SMALL_1);
	go_on(20 * MS);
	assert_int_equal(rig_state(&rig, SMALL_0), SCHED_CLIENT_WAITING);
	assert_true(sleeper_is(&rig.sched, SMALL_0));
	wait_for(SMALL_0);
	assert_true(runs(SMALL_1));
	assert_int_equal(rig.sched.gpus[1].n_early, 1);
}

/* ---- a gang that makes way --------------------------------------------------------- */

static void a_gang_makes_way_on_all_gpus_and_is_back(void **state)
{
	(void)state;
	begin_with_running_gang();
	join(OTHER_1, NOBODY, SCHED_PRIORITY_NORMAL);
	rig_request(&rig, OTHER_1, rig_mem(0, LARGE, 0));
	ask(SMALL_0);
	go_on(20 * MS);
	assert_true(runs(SMALL_0));
	assert_int_equal(rig_status(&rig, SMALL_0).early, SCHED_EARLY_CAME);
	assert_int_equal(rig_status(&rig, LARGE_0).early, SCHED_EARLY_MADE_WAY);
	assert_int_equal(rig_status(&rig, LARGE_1).early, SCHED_EARLY_MADE_WAY);
	/* The other card is kept for the gang: its memory has not moved. */
	assert_int_equal(rig_state(&rig, OTHER_1), SCHED_CLIENT_WAITING);
	assert_int_equal(rig.clients[LARGE_1].memory.swapped, 0);
	rest(SMALL_0, 100 * MS);
	go_on(20 * MS);
	assert_true(runs(LARGE_0) && runs(LARGE_1));
	assert_int_equal(rig_state(&rig, OTHER_1), SCHED_CLIENT_WAITING);
	/* Its turn goes on, and ends. */
	wait_for(OTHER_1);
	assert_int_equal(rig_state(&rig, LARGE_0), SCHED_CLIENT_WAITING);
}

static void a_gang_that_drains_makes_way_and_is_back(void **state)
{
	const struct sched_client *c = &rig.clients[LARGE_1];

	(void)state;
	begin_with_running_gang();
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_MEMORY,
							     .client = LARGE_1,
							     .epoch = c->epoch,
							     .budget = c->budget,
							     .memory = c->memory,
							     .stops = SCHED_STOPS_DRAINING}),
			 0);
	rig_clear(&rig);
	ask(SMALL_0);
	assert_int_equal(rig_state(&rig, LARGE_1), SCHED_CLIENT_STOPPING);
	assert_true(c->is_displaced);
	assert_true(runs(LARGE_0));
	go_on(20 * MS);
	assert_true(runs(SMALL_0));
	assert_int_equal(rig_status(&rig, SMALL_0).early, SCHED_EARLY_CAME);
	assert_int_equal(rig_status(&rig, LARGE_0).early, SCHED_EARLY_MADE_WAY);
	assert_int_equal(rig_status(&rig, LARGE_1).early, SCHED_EARLY_MADE_WAY);
	rest(SMALL_0, 100 * MS);
	go_on(20 * MS);
	assert_true(runs(LARGE_0) && runs(LARGE_1));
}

static void a_gang_is_back_when_the_visit_is_too_long(void **state)
{
	(void)state;
	begin_with_running_gang();
	ask(SMALL_0);
	go_on(20 * MS);
	assert_true(runs(SMALL_0));
	go_on(2600 * MS);
	assert_true(runs(LARGE_0) && runs(LARGE_1));
	assert_false(sleeper_is(&rig.sched, SMALL_0));
}

static void the_accounts_of_all_gpus_pay(void **state)
{
	int64_t had;

	(void)state;
	begin_with_running_gang();
	set_account(1, 0);
	ask(SMALL_0);
	go_on(S);
	assert_true(runs(LARGE_0) && runs(LARGE_1));
	wait_for(SMALL_0);
	assert_int_equal(rig_status(&rig, SMALL_0).early, SCHED_EARLY_CAME);
	had = rig.sched.gpus[1].moving_ns;
	go_on(S);
	rest(SMALL_0, S);
	go_on(20 * MS);
	assert_true(runs(LARGE_0) && runs(LARGE_1));
	assert_true(rig.sched.gpus[1].moving_ns <= had - (int64_t)S);
}

/* A GPU that has two members of the gang lost no more time than one that has one. */
static void an_account_pays_once_for_all_members_on_its_gpu(void **state)
{
	int64_t had;

	(void)state;
	gib_of[LARGE_1] = gib_of[OTHER_1] = LARGE / 2;
	begin_with_running_gang();
	join(OTHER_1, 9, SCHED_PRIORITY_NORMAL);
	rig_request(&rig, OTHER_1, rig_mem(0, gib_of[OTHER_1], 0));
	wait_for(OTHER_1);
	wait_for(LARGE_0);
	go_on(3 * S);
	set_account(0, 6 * S);
	set_account(1, 6 * S);
	had = rig.sched.gpus[1].moving_ns;
	ask(SMALL_0);
	go_on(20 * MS);
	assert_true(runs(SMALL_0));
	go_on(S);
	rest(SMALL_0, S);
	go_on(20 * MS);
	assert_true(runs(LARGE_0) && runs(LARGE_1) && runs(OTHER_1));
	assert_in_range(had - rig.sched.gpus[1].moving_ns, S, S + 100 * MS);
}

/* However many cards have sleepers, the gang keeps its part of the time. */
static void sleepers_on_all_gpus_take_no_more_of_a_gang_than_the_setting(void **state)
{
	uint64_t off_ns = 0, span_ns = 400 * S, began_ns;

	(void)state;
	begin_with_running_gang();
	for (began_ns = rig.now; rig.now < began_ns + span_ns; go_on(100 * MS)) {
		assert_int_equal(runs(LARGE_0), runs(LARGE_1));
		off_ns += rig.clients[LARGE_0].is_displaced ? 100 * MS : 0;
		for (uint32_t i = SMALL_0; i <= SMALL_1; i++) {
			const struct sched_client *c = &rig.clients[i];

			if (c->state == SCHED_CLIENT_IDLE)
				ask(i);
			else if (runs(i) && rig.now - c->granted_ns >= S)
				rest(i, 100 * MS);
		}
	}
	assert_true(rig.sched.gpus[0].n_early + rig.sched.gpus[1].n_early > 20);
	/* A fifth, and what the accounts held at first. */
	assert_in_range(off_ns, span_ns / 20, span_ns / 5 + 6 * S);
}

static void a_gang_with_a_member_of_a_higher_class_goes_on(void **state)
{
	(void)state;
	begin_as(9, NOBODY, SCHED_PRIORITY_HIGH);
	ask(SMALL_0);
	go_on(4 * S);
	assert_true(runs(LARGE_0) && runs(LARGE_1));
	assert_int_equal(rig.sched.gpus[0].n_early, 0);
}

static void a_gang_goes_on_while_a_turn_is_due_on_another_gpu(void **state)
{
	(void)state;
	begin_with_running_gang();
	join(OTHER_1, NOBODY, SCHED_PRIORITY_NORMAL);
	rig_request(&rig, OTHER_1, rig_mem(0, LARGE, 0));
	obey();
	/* As if it had aged. */
	rig.clients[rig.clients[OTHER_1].owner].own.is_aged = true;
	rig.clients[OTHER_1].front_band = 1;
	ask(SMALL_0);
	obey();
	assert_int_equal(rig.sched.gpus[0].n_early, 0);
	assert_true(runs(LARGE_0) && runs(LARGE_1));
}

/* What keeps a sleeper from coming is on the other GPU, and goes: nothing happens on its own. */
static void a_sleeper_comes_when_a_client_has_come_on_another_gpu(void **state)
{
	(void)state;
	begin_with_running_gang();
	join(OTHER_1, NOBODY, SCHED_PRIORITY_NORMAL);
	gib_of[OTHER_1] = TINY;
	rig_request(&rig, OTHER_1, rig_mem(0, gib_of[OTHER_1], 0));
	assert_int_equal(rig_state(&rig, OTHER_1), SCHED_CLIENT_INCOMING);
	ask(SMALL_0);
	assert_int_equal(rig_state(&rig, SMALL_0), SCHED_CLIENT_WAITING);
	assert_int_equal(rig.sched.gpus[0].n_early, 0);
	obey();
	assert_int_equal(rig.sched.gpus[0].n_early, 1);
	assert_true(runs(SMALL_0));
	assert_int_equal(rig_status(&rig, SMALL_0).early, SCHED_EARLY_CAME);
}

static void a_sleeper_comes_when_one_of_a_higher_class_leaves_another_gpu(void **state)
{
	(void)state;
	begin_with_running_gang();
	join(OTHER_1, NOBODY, SCHED_PRIORITY_HIGH);
	rig_request(&rig, OTHER_1, rig_mem(0, gib_of[OTHER_1], 0));
	assert_int_equal(rig_state(&rig, OTHER_1), SCHED_CLIENT_WAITING);
	ask(SMALL_0);
	assert_int_equal(rig.sched.gpus[0].n_early, 0);
	/* Nothing can change by itself, and the scheduler sleeps. */
	assert_true(sched_deadline(&rig.sched) > rig.now + 100 * MS);
	rig_leave(&rig, OTHER_1);
	obey();
	assert_int_equal(rig.sched.gpus[0].n_early, 1);
	assert_true(runs(SMALL_0));
}

/* Sleepers on both GPUs wait, and each look at one of them could lead to a look at the other. */
static void gpus_that_watch_each_other_sleep(void **state)
{
	(void)state;
	begin_with_running_gang();
	set_account(0, 0);
	set_account(1, 0);
	ask(SMALL_0);
	ask(SMALL_1);
	assert_int_equal(rig.sched.gpus[0].watchers, 1 << 1);
	assert_int_equal(rig.sched.gpus[1].watchers, 1 << 0);
	assert_true(sched_deadline(&rig.sched) > rig.now + 100 * MS);
	assert_int_equal(rig.sched.gpus[0].n_early + rig.sched.gpus[1].n_early, 0);
}

/* The gang's GPUs are kept for it, but not from those that go before it. */
static void a_critical_client_comes_while_a_gang_makes_way(void **state)
{
	(void)state;
	begin_with_running_gang();
	join(OTHER_1, NOBODY, SCHED_PRIORITY_CRITICAL);
	ask(SMALL_0);
	assert_int_equal(rig_state(&rig, LARGE_1), SCHED_CLIENT_STOPPING);
	assert_int_equal(rig.sched.gpus[1].sums.n_displaced, 1);
	gib_of[OTHER_1] = TINY;
	rig_request(&rig, OTHER_1, rig_mem(0, gib_of[OTHER_1], 0));
	assert_int_equal(rig_state(&rig, LARGE_1), SCHED_CLIENT_STOPPING);
	assert_int_equal(rig_state(&rig, OTHER_1), SCHED_CLIENT_INCOMING);
}

static void others_wait_while_a_gang_makes_way(void **state)
{
	(void)state;
	begin_with_running_gang();
	join(OTHER_1, NOBODY, SCHED_PRIORITY_NORMAL);
	ask(SMALL_0);
	assert_int_equal(rig_state(&rig, LARGE_1), SCHED_CLIENT_STOPPING);
	gib_of[OTHER_1] = TINY;
	rig_request(&rig, OTHER_1, rig_mem(0, gib_of[OTHER_1], 0));
	assert_int_equal(rig_state(&rig, OTHER_1), SCHED_CLIENT_WAITING);
}

/* SMALL_1 lacks host memory when its visit is over, so the gang cannot come back yet. */
static void a_sleeper_comes_while_a_gang_that_made_way_cannot_come_back(void **state)
{
	(void)state;
	begin_with_running_gang();
	ask(SMALL_1);
	wait_for(SMALL_1);
	rig_at(&rig, rig.now + 3 * S);
	assert_true(sched_has_drop(&rig.clients[SMALL_1]));
	rig_clear(&rig);
	assert_int_equal(rig_fail_as(&rig, SMALL_1, 3, true), 0);
	obey();
	assert_true(rig.clients[SMALL_1].is_retrying);
	assert_true(rig.clients[LARGE_0].is_displaced && !runs(LARGE_0));
	ask(SMALL_0);
	obey();
	assert_true(runs(SMALL_0) && rig.clients[SMALL_0].is_guest);
}

/* The only member of a gang makes way as a client without one does. */
static void a_gang_that_is_not_bound_keeps_no_gpu(void **state)
{
	(void)state;
	begin_as(NOBODY, NOBODY, SCHED_PRIORITY_NORMAL);
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_GANG,
							     .client = LARGE_1,
							     .gang = 9}),
			 0);
	join(OTHER_1, NOBODY, SCHED_PRIORITY_NORMAL);
	ask(SMALL_1);
	assert_int_equal(rig_state(&rig, LARGE_1), SCHED_CLIENT_STOPPING);
	assert_true(rig.clients[LARGE_1].is_displaced);
	gib_of[OTHER_1] = TINY;
	rig_request(&rig, OTHER_1, rig_mem(0, gib_of[OTHER_1], 0));
	assert_int_equal(rig_state(&rig, LARGE_1), SCHED_CLIENT_STOPPING);
	assert_int_equal(rig_state(&rig, OTHER_1), SCHED_CLIENT_INCOMING);
}

/* The other member goes while this one stops: nothing is kept any more. */
static void a_gang_that_comes_apart_keeps_no_gpu(void **state)
{
	(void)state;
	begin_with_running_gang();
	join(OTHER_1, NOBODY, SCHED_PRIORITY_NORMAL);
	ask(SMALL_0);
	gib_of[OTHER_1] = TINY;
	rig_request(&rig, OTHER_1, rig_mem(0, gib_of[OTHER_1], 0));
	assert_int_equal(rig_state(&rig, OTHER_1), SCHED_CLIENT_WAITING);
	rig_leave(&rig, LARGE_0);
	assert_int_equal(rig_state(&rig, LARGE_1), SCHED_CLIENT_STOPPING);
	assert_int_equal(rig_state(&rig, OTHER_1), SCHED_CLIENT_INCOMING);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, set_up)
	const struct CMUnitTest tests[] = {
		TEST(a_gang_that_has_slept_comes_early_on_all_gpus),
		TEST(a_gang_of_which_one_has_computed_long_waits),
		TEST(a_gang_waits_for_the_account_of_each_gpu),
		TEST(a_member_that_wakes_later_joins_early),
		TEST(a_sleeper_passes_a_gang_that_waits_for_another_account),
		TEST(a_sleeper_waits_behind_a_gang_for_their_own_account),
		TEST(a_member_that_is_called_off_is_a_sleeper_still),
		TEST(a_gang_makes_way_on_all_gpus_and_is_back),
		TEST(a_gang_that_drains_makes_way_and_is_back),
		TEST(a_gang_is_back_when_the_visit_is_too_long),
		TEST(the_accounts_of_all_gpus_pay),
		TEST(an_account_pays_once_for_all_members_on_its_gpu),
		TEST(sleepers_on_all_gpus_take_no_more_of_a_gang_than_the_setting),
		TEST(a_gang_with_a_member_of_a_higher_class_goes_on),
		TEST(a_gang_goes_on_while_a_turn_is_due_on_another_gpu),
		TEST(a_sleeper_comes_when_a_client_has_come_on_another_gpu),
		TEST(a_sleeper_comes_when_one_of_a_higher_class_leaves_another_gpu),
		TEST(gpus_that_watch_each_other_sleep),
		TEST(a_critical_client_comes_while_a_gang_makes_way),
		TEST(others_wait_while_a_gang_makes_way),
		TEST(a_sleeper_comes_while_a_gang_that_made_way_cannot_come_back),
		TEST(a_gang_that_is_not_bound_keeps_no_gpu),
		TEST(a_gang_that_comes_apart_keeps_no_gpu),
	};

	return cmocka_run_group_tests_name("core/gang_sleep", tests, NULL, NULL);
}
