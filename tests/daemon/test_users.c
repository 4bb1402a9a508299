/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/users.h"

#include "daemon/http/http_address.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ALICE 1000001u
#define BOB   1000002u
#define MANY  100000u

static const struct users_limits small = {
	.n_peers = 130,
	.n_refused = 8,
	.n_clients = 120,
	.n_pidfds = 20,
	.n_jobs = 16,
	.n_trusted = 10,
};

static int set_up(void **state)
{
	struct users *users = calloc(1, sizeof(*users));

	*state = users;
	return users ? users_init(users, &small) : -1;
}

static int tear_down(void **state)
{
	struct users *users = *state;

	users_deinit(users);
	free(users);
	return 0;
}

/* As many as uid gets; *ret_user is the last one's. */
static uint32_t admit_all(struct users *users, uid_t uid, struct user **ret_user)
{
	struct user *user;
	uint32_t n = 0;

	while ((user = users_admit(users, uid))) {
		*ret_user = user;
		n++;
	}
	return n;
}

static void a_user_alone_has_half_and_the_next_ones_find_some(void **state)
{
	struct users *users = *state;
	struct user *user = NULL;

	assert_int_equal(admit_all(users, ALICE, &user), 60);
	assert_int_equal(user->n_peers, 60);
	assert_int_equal(admit_all(users, BOB, &user), 30);
	assert_int_equal(user->uid, BOB);
	/* However many they are, a new one finds some until there are none but root's. */
	for (uid_t uid = MANY; users->n_peers < 120; uid++)
		assert_non_null(users_admit(users, uid));
	assert_null(users_admit(users, MANY + 1000));
	assert_int_equal(admit_all(users, 0, &user), 10);
	assert_int_equal(users->n_peers, 130);
}

static void what_a_user_gives_back_others_get(void **state)
{
	struct users *users = *state;
	struct user *alice = NULL;
	struct user *bob = NULL;

	assert_int_equal(admit_all(users, ALICE, &alice), 60);
	assert_int_equal(admit_all(users, BOB, &bob), 30);
	for (int i = 0; i < 60; i++)
		users_leave(users, alice, false);
	assert_int_equal(users->n_peers, 30);
	/* Alice is forgotten, and comes as somebody new. */
	alice = users_admit(users, ALICE);
	assert_int_equal(alice->n_peers, 1);
	assert_int_equal(admit_all(users, BOB, &bob), 30);
}

static void root_has_all_that_are_there(void **state)
{
	struct users *users = *state;
	struct user *root = NULL;

	assert_true(users_is_trusted(0));
	assert_true(users_is_trusted(geteuid()));
	assert_false(users_is_trusted(ALICE));
	assert_int_equal(admit_all(users, 0, &root), 130);
	for (uint32_t i = 0; i < small.n_clients; i++)
		assert_true(users_add_client(users, root));
	/* The rest is for tools. */
	assert_false(users_add_client(users, root));
	users_remove_client(users, root);
	assert_true(users_add_client(users, root));
}

static void clients_leave_their_user_room_for_tools(void **state)
{
	const struct users_limits limits = users_limits(1 << 20, 16384);
	struct users *users = *state;
	struct user *alice;
	uint32_t n = 0;

	users_deinit(users);
	assert_int_equal(users_init(users, &limits), 0);
	while ((alice = users_admit(users, ALICE)) && users_add_client(users, alice))
		n++;
	assert_non_null(alice); /* that one became no client, and may be a tool */
	assert_in_range(n, 7000, 8192);
	for (int i = 0; i < 7; i++)
		assert_non_null(users_admit(users, ALICE));
}

static void pidfds_are_shared_in_the_same_way(void **state)
{
	struct users *users = *state;
	struct user *alice = users_admit(users, ALICE);
	struct user *root = users_admit(users, 0);
	uint32_t n = 0;

	while (users_add_pidfd(users, alice))
		n++;
	assert_int_equal(n, 10);
	for (n = 0; users_add_pidfd(users, root); n++)
		;
	assert_int_equal(n, 10);
	users_remove_pidfd(users, alice);
	assert_true(users_add_pidfd(users, root));
}

static void jobs_are_shared_in_the_same_way_and_keep_their_user(void **state)
{
	struct users *users = *state;
	struct user *alice = NULL, *last = NULL;
	uint32_t n = 0;

	while ((alice = users_add_job(users, ALICE))) {
		last = alice;
		n++;
	}
	assert_int_equal(n, 8);
	assert_int_equal(last->n_jobs, 8);
	assert_non_null(users_add_job(users, BOB));
	/* Neither a connection nor a job alone is the end of a user. */
	alice = users_admit(users, ALICE);
	assert_ptr_equal(alice, last);
	users_leave(users, alice, false);
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(last->uid, ALICE);
		users_remove_job(users, last);
	}
	assert_int_equal(users->n_jobs, 1);
	assert_int_equal(users_admit(users, ALICE)->n_jobs, 0);
}

static void few_of_each_user_are_told_that_they_are_turned_away(void **state)
{
	struct users *users = *state;
	struct user *alice = NULL;
	struct user *bob;

	assert_int_equal(admit_all(users, ALICE, &alice), 60);
	for (int i = 0; i < USERS_REFUSED_MAX; i++)
		assert_ptr_equal(users_refuse(users, ALICE), alice);
	assert_null(users_refuse(users, ALICE));
	assert_int_equal(alice->n_refused, USERS_REFUSED_MAX);
	/* They take none of the others' places. */
	assert_int_equal(admit_all(users, BOB, &bob), 30);
	users_leave(users, alice, true);
	assert_int_equal(alice->n_refused, USERS_REFUSED_MAX - 1);
	assert_non_null(users_refuse(users, ALICE));
	for (uid_t uid = MANY; users->n_refused < small.n_refused; uid++)
		assert_non_null(users_refuse(users, uid));
	assert_null(users_refuse(users, BOB));
}

static void as_many_users_as_connections_are_told_apart(void **state)
{
	struct users *users = *state;

	for (uint32_t round = 0; round < 3; round++) {
		struct user *all[120];

		for (uint32_t i = 0; i < 120; i++) {
			/* Some of one bucket. */
			all[i] = users_admit(users, MANY + i * USERS_BUCKETS);
			assert_non_null(all[i]);
		}
		for (uint32_t i = 0; i < 120; i++) {
			assert_int_equal(all[i]->uid, MANY + i * USERS_BUCKETS);
			assert_int_equal(all[i]->n_peers, 1);
			users_leave(users, all[i], false);
		}
		assert_int_equal(users->n_peers, 0);
	}
}

static void limits_follow_the_descriptors(void **state)
{
	static const uint64_t n_fds[] = {0, 1, 16, 64, 128, 129, 200, 1024, 4096, 20000, 1 << 20};

	(void)state;
	for (size_t i = 0; i < sizeof(n_fds) / sizeof(n_fds[0]); i++) {
		const struct users_limits limits = users_limits(n_fds[i], 16384);

		assert_true(limits.n_peers >= 1);
		assert_true(limits.n_peers + limits.n_refused <= 16384);
		assert_true(limits.n_clients <= limits.n_peers);
		assert_true(limits.n_trusted <= limits.n_peers);
		if (n_fds[i] >= 16)
			assert_true(limits.n_peers + limits.n_refused + limits.n_pidfds +
					    limits.n_jobs <=
				    n_fds[i]);
		if (n_fds[i] >= 1024)
			assert_true(limits.n_peers + limits.n_refused + limits.n_pidfds +
					    HTTP_FDS_MAX <
				    n_fds[i]);
		if (n_fds[i] >= 64) {
			assert_true(limits.n_clients < limits.n_peers);
			assert_true(limits.n_trusted < limits.n_peers);
		}
	}
	assert_int_equal(users_limits(1 << 20, 16384).n_peers, 16384 - 64);
	assert_int_equal(users_limits(1 << 20, 16384).n_pidfds, 16384);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_user_alone_has_half_and_the_next_ones_find_some),
		TEST(what_a_user_gives_back_others_get),
		TEST(root_has_all_that_are_there),
		TEST(clients_leave_their_user_room_for_tools),
		TEST(pidfds_are_shared_in_the_same_way),
		TEST(jobs_are_shared_in_the_same_way_and_keep_their_user),
		TEST(few_of_each_user_are_told_that_they_are_turned_away),
		TEST(as_many_users_as_connections_are_told_apart),
		TEST(limits_follow_the_descriptors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
