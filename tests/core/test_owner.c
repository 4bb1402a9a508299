/* SPDX-License-Identifier: Apache-2.0 */

/* Turns among users: one card, clients too large for two, and one user who has many of them. */

#include "rig.h"

#define LARGE 100 /* GiB: all of the card */
#define MANY  60
#define ROOT  0
#define USER  65534
#define OTHER 100 /* the first client of another user than USER */

static struct rig rig;
static uint32_t granted[RIG_ACTIONS], n_granted;

/* Turns of 10 s, and 120 s until a wait makes first. */
static int set_up(void **state)
{
	(void)state;
	rig_init(&rig);
	n_granted = 0;
	rig.config.switch_mode = SCHED_SWITCH_FIXED;
	rig.config.switch_fixed_ns = 10 * S;
	assert_int_equal(rig_config(&rig), 0);
	return 0;
}

static void join(uint32_t client, uint32_t owner, enum sched_priority priority)
{
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_JOIN,
							     .client = client,
							     .owner = owner,
							     .claim = {.priority = priority}}),
			 0);
}

static void ask(uint32_t client, uint32_t owner, enum sched_priority priority)
{
	join(client, owner, priority);
	rig_request(&rig, client, rig_mem(0, LARGE, 0));
}

/* Does what a client does that is told so; it wants to go on. */
static void obey(const struct sched_action *a)
{
	if (a->type == SCHED_ACTION_GRANT)
		granted[n_granted++] = a->client;
	if (a->type == SCHED_ACTION_DROP)
		assert_int_equal(rig_release(&rig, a->client, rig_mem(0, LARGE, 0), true), 0);
	else if (a->type == SCHED_ACTION_BUDGET || a->type == SCHED_ACTION_GRANT)
		assert_int_equal(rig_memory(&rig, a->client, rig_mem(LARGE, 0, 0)), 0);
}

static void obey_all(void)
{
	for (uint32_t i = 0; i < rig.n; i++) {
		struct sched_action a = rig.did[i];

		obey(&a);
	}
	rig_clear(&rig);
}

/* All do as they are told until so much time has passed. */
static void go_on(uint64_t ns)
{
	uint64_t end_ns = rig.now + ns;

	for (obey_all(); rig.now < end_ns; obey_all())
		rig_at(&rig, rig.now + S);
}

/* How many turns began before that of client; it has had one. */
static uint32_t turns_before(uint32_t client)
{
	for (uint32_t i = 0; i < n_granted; i++) {
		if (granted[i] == client)
			return i;
	}
	fail_msg("client %u had no turn among %u", client, n_granted);
	return 0;
}

static uint32_t turns_of(uint32_t first, uint32_t last)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < n_granted; i++)
		n += granted[i] >= first && granted[i] <= last;
	return n;
}

static void many_of_a_user(enum sched_priority priority)
{
	for (uint32_t i = 0; i < MANY; i++)
		ask(i, USER, priority);
	obey_all();
}

static void set_policy(enum sched_policy policy, bool fair_users)
{
	rig.config.policy = policy;
	rig.config.fair_users = fair_users;
	assert_int_equal(rig_config(&rig), 0);
}

static void another_user_waits_for_two_turns_of_one_who_has_many(void **state)
{
	for (int policy = 0; policy < SCHED_POLICY_COUNT_; policy++) {
		(void)set_up(state);
		set_policy((enum sched_policy)policy, true);
		many_of_a_user(SCHED_PRIORITY_NORMAL);
		go_on(30 * S);
		n_granted = 0;
		ask(OTHER, ROOT, SCHED_PRIORITY_NORMAL);
		go_on(60 * S);
		assert_in_range(turns_before(OTHER), 0, 1);
	}
}

/* The setting off: as among the processes of one user. */
static void without_the_setting_it_waits_for_all_of_them(void **state)
{
	(void)state;
	set_policy(SCHED_POLICY_PRIORITY, false);
	many_of_a_user(SCHED_PRIORITY_NORMAL);
	go_on(30 * S);
	n_granted = 0;
	ask(OTHER, ROOT, SCHED_PRIORITY_NORMAL);
	go_on(1000 * S);
	assert_in_range(turns_before(OTHER), 20, 2 * MANY);
}

static void users_take_turns_however_many_they_have(void **state)
{
	for (int policy = 0; policy < SCHED_POLICY_COUNT_; policy++) {
		(void)set_up(state);
		set_policy((enum sched_policy)policy, true);
		many_of_a_user(SCHED_PRIORITY_NORMAL);
		ask(OTHER, ROOT, SCHED_PRIORITY_NORMAL);
		ask(OTHER + 1, 1000, SCHED_PRIORITY_NORMAL);
		ask(OTHER + 2, 1000, SCHED_PRIORITY_NORMAL);
		go_on(50 * S);
		n_granted = 0;
		go_on(600 * S);
		assert_in_range(n_granted, 55, 62);
		assert_in_range(turns_of(0, MANY - 1), n_granted / 3 - 1, n_granted / 3 + 1);
		assert_in_range(turns_of(OTHER, OTHER), n_granted / 3 - 1, n_granted / 3 + 1);
		/* And the processes of one among themselves. */
		assert_in_range(turns_of(OTHER + 1, OTHER + 1), n_granted / 6 - 1,
				n_granted / 6 + 1);
	}
}

/* Of one user's own, many have waited for half of the bound, which makes them first. */
static void many_who_have_aged_do_not_make_another_user_wait(void **state)
{
	(void)state;
	many_of_a_user(SCHED_PRIORITY_NORMAL);
	go_on(200 * S);
	assert_true(rig.clients[MANY - 1].is_aged);
	n_granted = 0;
	ask(OTHER, ROOT, SCHED_PRIORITY_NORMAL);
	go_on(60 * S);
	assert_in_range(turns_before(OTHER), 0, 1);
}

/* Alone they have short turns, so that all are served within the bound. */
static void many_of_a_user_do_not_make_the_turns_of_others_short(void **state)
{
	(void)state;
	many_of_a_user(SCHED_PRIORITY_NORMAL);
	n_granted = 0;
	go_on(100 * S);
	assert_in_range(n_granted, 20, 34);
	ask(OTHER, ROOT, SCHED_PRIORITY_NORMAL);
	go_on(50 * S);
	n_granted = 0;
	go_on(400 * S);
	assert_in_range(n_granted, 38, 41);
}

/* A class goes before users, until a user has waited for half of the bound. */
static void a_higher_class_goes_first_until_the_other_user_has_aged(void **state)
{
	uint64_t from_ns;

	(void)state;
	many_of_a_user(SCHED_PRIORITY_HIGH);
	go_on(30 * S);
	n_granted = 0;
	from_ns = rig.now;
	ask(OTHER, ROOT, SCHED_PRIORITY_NORMAL);
	go_on(110 * S);
	assert_int_equal(turns_of(OTHER, OTHER), 0);
	go_on(40 * S);
	assert_int_equal(turns_of(OTHER, OTHER), 1);
	assert_in_range(rig.clients[OTHER].granted_ns, from_ns + 120 * S, from_ns + 150 * S);
}

/* One that has aged goes before the same user's others, but not with a lower class than theirs. */
static void a_user_has_the_class_of_its_highest(void **state)
{
	(void)state;
	ask(0, USER, SCHED_PRIORITY_HIGH);
	ask(1, USER, SCHED_PRIORITY_HIGH);
	ask(2, USER, SCHED_PRIORITY_LOW);
	ask(OTHER, ROOT, SCHED_PRIORITY_HIGH);
	ask(OTHER + 1, 1000, SCHED_PRIORITY_HIGH);
	go_on(1000 * S);
	n_granted = 0;
	go_on(600 * S);
	assert_true(turns_of(2, 2) > 0);
	assert_in_range(turns_of(0, 2), n_granted / 3 - 2, n_granted / 3 + 2);
}

static void obey_as(uint64_t gib)
{
	for (uint32_t i = 0; i < rig.n; i++) {
		struct sched_action a = rig.did[i];

		if (a.type == SCHED_ACTION_GRANT)
			granted[n_granted++] = a.client;
		if (a.type == SCHED_ACTION_DROP)
			(void)rig_release(&rig, a.client, rig_mem(0, gib, 0), true);
		else if (a.type == SCHED_ACTION_BUDGET || a.type == SCHED_ACTION_GRANT)
			(void)rig_memory(&rig, a.client, rig_mem(gib, 0, 0));
	}
	rig_clear(&rig);
}

/* Ten of many small ones fit at a time, and others come as soon as one gives up by itself. */
static void passers_of_one_user_do_not_hold_up_another(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < MANY; i++) {
		join(i, USER, SCHED_PRIORITY_NORMAL);
		rig_request(&rig, i, rig_mem(0, 10, 0));
	}
	for (int i = 0; i < 120 && n_granted < MANY; i++) {
		obey_as(10);
		rig_at(&rig, rig.now + S);
	}
	ask(OTHER, ROOT, SCHED_PRIORITY_NORMAL);
	for (uint32_t i = 0; rig_state(&rig, OTHER) == SCHED_CLIENT_WAITING; i++) {
		assert_in_range(i, 0, 25);
		obey_as(10);
		if (rig_state(&rig, i % MANY) == SCHED_CLIENT_RUNNING)
			(void)rig_release(&rig, i % MANY, rig_mem(0, 10, 0), true);
		rig_at(&rig, rig.now + S);
	}
}

/* Small ones that come and go beside large ones: its large one has its turns all the same. */
static void finding_room_at_once_costs_a_user_no_turn(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		join(OTHER + i, i, SCHED_PRIORITY_NORMAL);
		rig_request(&rig, OTHER + i, rig_mem(0, 80, 0));
	}
	/* Of a higher class, so that it is its user's front, and the first of all. */
	join(0, 2, SCHED_PRIORITY_HIGH);
	for (int i = 0; i < 300; i++) {
		obey_as(80);
		rig_request(&rig, 0, rig_mem(0, 0, 0));
		assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
		rig_clear(&rig);
		rig_at(&rig, rig.now + S / 2);
		obey_as(80);
		assert_int_equal(rig_release(&rig, 0, rig_mem(0, 0, 0), false), 0);
		rig_at(&rig, rig.now + S / 2);
	}
	assert_in_range(turns_of(OTHER, OTHER + 2), 27, 32);
	assert_in_range(turns_of(OTHER + 2, OTHER + 2), 8, 11);
}

/* Its first process can not come in: pinned bytes of another lock it out. */
static void one_that_cannot_come_does_not_hold_up_its_user(void **state)
{
	(void)state;
	rig_join(&rig, 50);
	rig_request(&rig, 50, rig_want(rig_mem(0, 0, 0), 0, 20));
	assert_int_equal(rig_memory(&rig, 50, rig_mem(0, 0, 20)), 0);
	rig_clear(&rig);
	for (uint32_t i = 0; i < 2; i++) {
		join(i, USER, SCHED_PRIORITY_NORMAL);
		rig_request(&rig, i, rig_mem(0, 80, 0));
	}
	join(OTHER, ROOT, SCHED_PRIORITY_NORMAL);
	rig_request(&rig, OTHER, rig_mem(0, 90, 0));
	assert_int_equal(rig_why(&rig, OTHER), SCHED_WAIT_STUCK);
	join(OTHER + 1, ROOT, SCHED_PRIORITY_NORMAL);
	rig_request(&rig, OTHER + 1, rig_mem(0, 80, 0));
	assert_true(rig.clients[OTHER].is_front);
	for (int i = 0; i < 120; i++) {
		obey_as(80);
		rig_at(&rig, rig.now + S);
	}
	assert_true(turns_of(0, 1) >= 4);
	assert_true(turns_of(OTHER + 1, OTHER + 1) >= 4);
}

/* A critical one that does not fit beside another one waits; that gives its user's others nothing.
 */
static void a_critical_one_that_waits_makes_no_other_of_its_user_first(void **state)
{
	(void)state;
	join(50, 1000, SCHED_PRIORITY_CRITICAL);
	rig_request(&rig, 50, rig_mem(0, 20, 0));
	(void)rig_memory(&rig, 50, rig_mem(20, 0, 0));
	rig_clear(&rig);
	join(51, USER, SCHED_PRIORITY_CRITICAL);
	rig_request(&rig, 51, rig_mem(0, 90, 0));
	assert_int_equal(rig_why(&rig, 51), SCHED_WAIT_STUCK);
	for (uint32_t i = 0; i < 3; i++) {
		join(i, USER, SCHED_PRIORITY_NORMAL);
		rig_request(&rig, i, rig_mem(0, 70, 0));
	}
	join(OTHER, ROOT, SCHED_PRIORITY_NORMAL);
	rig_request(&rig, OTHER, rig_mem(0, 70, 0));
	for (int i = 0; i < 110; i++) {
		obey_as(70);
		rig_at(&rig, rig.now + S);
	}
	assert_in_range(turns_of(0, 2), 4, 7);
	assert_in_range(turns_of(OTHER, OTHER), 4, 7);
}

/* Places in the queue: no more turns than that before it. */
static void positions_count_the_turns_of_others(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 5; i++)
		ask(i, USER, SCHED_PRIORITY_NORMAL);
	obey_all();
	rig_at(&rig, S);
	ask(OTHER, ROOT, SCHED_PRIORITY_NORMAL);
	assert_int_equal(rig_status(&rig, 1).position, 1);
	assert_int_equal(rig_status(&rig, OTHER).position, 2);
	assert_int_equal(rig_status(&rig, 2).position, 3);
	assert_int_equal(rig_status(&rig, 3).position, 5);
	assert_int_equal(rig_status(&rig, 4).position, 5);
}

static void the_setting_changes_while_they_wait(void **state)
{
	(void)state;
	many_of_a_user(SCHED_PRIORITY_NORMAL);
	ask(OTHER, ROOT, SCHED_PRIORITY_NORMAL);
	for (int i = 0; i < 4; i++) {
		set_policy(SCHED_POLICY_PRIORITY, i % 2);
		go_on(15 * S);
	}
	n_granted = 0;
	go_on(60 * S);
	assert_in_range(turns_of(OTHER, OTHER), 2, 4);
	for (uint32_t i = 0; i < MANY; i++)
		rig_leave(&rig, i);
	rig_leave(&rig, OTHER);
	assert_int_equal(rig.sched.gpus[0].n_owners, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup(test, set_up)
		T(another_user_waits_for_two_turns_of_one_who_has_many),
		T(without_the_setting_it_waits_for_all_of_them),
		T(users_take_turns_however_many_they_have),
		T(many_who_have_aged_do_not_make_another_user_wait),
		T(many_of_a_user_do_not_make_the_turns_of_others_short),
		T(a_higher_class_goes_first_until_the_other_user_has_aged),
		T(a_user_has_the_class_of_its_highest),
		T(passers_of_one_user_do_not_hold_up_another),
		T(finding_room_at_once_costs_a_user_no_turn),
		T(one_that_cannot_come_does_not_hold_up_its_user),
		T(a_critical_one_that_waits_makes_no_other_of_its_user_first),
		T(positions_count_the_turns_of_others),
		T(the_setting_changes_while_they_wait),
#undef T
	};

	return cmocka_run_group_tests_name("core/owner", tests, NULL, NULL);
}
