/* SPDX-License-Identifier: Apache-2.0 */
#include "core/pool/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define ALICE 1000
#define BOB   2000

static struct pool pool;
static struct pool_answer answer;
static uint64_t last_id;

static int set_up(void **state)
{
	(void)state;
	memset(&pool, 0, sizeof(pool));
	pool_init(&pool, 100, POOL_BORROWERS_MAX);
	last_id = 0;
	return 0;
}

static uint32_t join(uint64_t process, uint32_t user, uint32_t domain)
{
	uint32_t borrower;

	assert_int_equal(pool_join(&pool, process, user, false, &borrower), 0);
	pool_domain(&pool, borrower, domain);
	return borrower;
}

static void want_of(uint32_t borrower, uint32_t n, uint32_t node, uint32_t n_more, uint32_t n_own)
{
	const struct pool_room room = {n_more, n_own};

	pool_want(&pool, borrower, n, node, &room, &answer);
	assert_int_equal(answer.n_lent + answer.n_make + answer.n_none, n);
	pool_assert_valid(&pool);
}

static void want(uint32_t borrower, uint32_t n)
{
	want_of(borrower, n, 0, 1000, 1000);
}

static void offer(uint32_t borrower, uint32_t n)
{
	while (n--)
		assert_true(pool_offer(&pool, borrower, ++last_id, 0) != POOL_NONE);
	pool_assert_valid(&pool);
}

static void give_back(uint32_t borrower, uint64_t first, uint64_t last)
{
	for (uint64_t id = first; id <= last; id++)
		pool_return(&pool, borrower, id, false);
	pool_assert_valid(&pool);
}

static uint32_t n_leaving(void)
{
	uint32_t n = 0;

	while (pool_leaving(&pool) != POOL_NONE)
		n++;
	pool_assert_valid(&pool);
	return n;
}

static void assert_answer(uint32_t n_lent, uint32_t n_make, uint32_t n_none)
{
	assert_int_equal(answer.n_lent, n_lent);
	assert_int_equal(answer.n_make, n_make);
	assert_int_equal(answer.n_none, n_none);
}

static void what_is_returned_is_lent_to_the_next_of_the_domain(void **state)
{
	uint32_t a = join(1, ALICE, 0), b = join(2, ALICE, 0);

	(void)state;
	want(a, 4);
	assert_answer(0, 4, 0);
	offer(a, 4);
	want(b, 2);
	assert_answer(0, 2, 0);
	pool_unmade(&pool, b, 2);
	give_back(a, 1, 3);
	want(b, 4);
	assert_answer(3, 1, 0);
	assert_int_equal(pool.ids[answer.slabs[0]], 1);
	assert_int_equal(n_leaving(), 0);
}

static void no_slab_crosses_domains_or_numa_nodes(void **state)
{
	uint32_t a = join(1, ALICE, 0), b = join(2, BOB, 1), c = join(3, ALICE, 0);

	(void)state;
	want(a, 4);
	offer(a, 4);
	give_back(a, 1, 4);
	want(b, 2);
	assert_answer(0, 2, 0);
	want_of(c, 2, 1, 1000, 1000);
	assert_answer(0, 2, 0);
	pool_domain(&pool, c, POOL_NONE);
	want(c, 1);
	assert_answer(0, 1, 0);
	assert_int_equal(pool.n_ready, 4);
}

static void a_borrower_of_another_domain_taints_its_slabs(void **state)
{
	uint32_t a = join(1, ALICE, 0), b = join(2, ALICE, 0);

	(void)state;
	want(a, 3);
	offer(a, 3);
	pool_domain(&pool, a, POOL_NONE);
	pool_domain(&pool, a, 0);
	give_back(a, 1, 2);
	assert_int_equal(n_leaving(), 2);
	pool_gone(&pool, a);
	assert_int_equal(n_leaving(), 1);
	want(b, 3);
	assert_answer(0, 3, 0);
}

static void ready_slabs_of_others_make_room(void **state)
{
	uint32_t a = join(1, ALICE, 0), b = join(2, BOB, 1);

	(void)state;
	want(a, 4);
	offer(a, 4);
	give_back(a, 1, 3);
	want_of(b, 5, 0, 1, 1000);
	assert_answer(0, 4, 1);
	assert_int_equal(n_leaving(), 3);
}

static void a_borrower_keeps_to_its_own_control_group(void **state)
{
	uint32_t a = join(1, ALICE, 0), b = join(2, ALICE, 0);
	uint32_t n;

	(void)state;
	want(a, 4);
	offer(a, 4);
	give_back(a, 1, 2);
	pool_unused(&pool, a, 2);
	want_of(b, 5, 0, 1000, 3);
	assert_answer(2, 1, 2);
	assert_int_equal(pool_ask(&pool, &n), POOL_NONE);
}

static void those_with_most_unused_are_asked_first(void **state)
{
	uint32_t a = join(1, ALICE, 0), b = join(2, ALICE, 0), c = join(3, BOB, 1), n;

	(void)state;
	want(a, 4);
	offer(a, 4);
	want(b, 4);
	offer(b, 4);
	pool_unused(&pool, a, 2);
	pool_unused(&pool, b, 3);
	want_of(c, 4, 0, 0, 1000);
	assert_answer(0, 0, 4);
	assert_int_equal(pool_ask(&pool, &n), a);
	assert_int_equal(n, 1);
	assert_int_equal(pool_ask(&pool, &n), b);
	assert_int_equal(n, 3);
	assert_int_equal(pool_ask(&pool, &n), POOL_NONE);
	give_back(b, 5, 7);
	pool_forget_lacks(&pool);
	assert_int_equal(pool_ask(&pool, &n), a);
	assert_int_equal(n, 0);
	assert_int_equal(pool_ask(&pool, &n), b);
	assert_int_equal(n, 0);
	assert_int_equal(pool_ask(&pool, &n), POOL_NONE);
}

static void a_dead_borrowers_slabs_come_back_when_it_is_gone(void **state)
{
	uint32_t a = join(1, ALICE, 0), b = join(2, ALICE, 0);

	(void)state;
	want(a, 8);
	offer(a, 4);
	pool_cut(&pool, a);
	pool_assert_valid(&pool);
	assert_int_equal(pool.n_promised, 0);
	want_of(b, 4, 0, 0, 1000);
	assert_answer(0, 0, 4);
	pool_gone(&pool, a);
	want_of(b, 4, 0, 0, 1000);
	assert_answer(4, 0, 0);
}

static void a_process_that_comes_back_has_its_slabs_again(void **state)
{
	uint32_t a = join(1, ALICE, 0), again, liar;

	(void)state;
	want(a, 2);
	offer(a, 2);
	pool_cut(&pool, a);
	liar = join(2, ALICE, 0);
	again = join(1, ALICE, 0);
	assert_int_equal(pool_offer(&pool, liar, 1, 0), POOL_NONE);
	assert_int_equal(pool_offer(&pool, again, 1, 0), POOL_NONE);
	assert_int_equal(pool.borrowers[again].n_lent, 1);
	assert_int_equal(pool.borrowers[liar].n_lent, 0);
	pool_gone(&pool, a);
	pool_assert_valid(&pool);
	assert_int_equal(pool.n_ready, 1);
	give_back(again, 1, 1);
	assert_int_equal(pool.n_ready, 2);
}

static void a_restarted_scheduler_takes_what_it_never_allowed(void **state)
{
	uint32_t a = join(1, ALICE, 0);

	(void)state;
	offer(a, 10);
	assert_int_equal(pool.n_lent, 10);
	assert_int_equal(pool_offer(&pool, a, 3, 0), POOL_NONE);
	give_back(a, 1, 20);
	assert_int_equal(pool.n_ready, 10);
}

static void a_slab_that_lies_ready_is_offered_by_nobody(void **state)
{
	uint32_t a = join(1, ALICE, 0), b = join(2, ALICE, 0);

	(void)state;
	offer(a, 1);
	give_back(a, 1, 1);
	assert_int_equal(pool_offer(&pool, b, 1, 0), POOL_NONE);
	assert_int_equal(pool.n_ready, 1);
	assert_int_equal(pool.n_lent, 0);
	pool_assert_valid(&pool);
}

static void a_bad_slab_is_lent_to_nobody(void **state)
{
	uint32_t a = join(1, ALICE, 0), b = join(2, ALICE, 0);

	(void)state;
	offer(a, 2);
	pool_return(&pool, b, 1, true);
	pool_return(&pool, a, 1, true);
	assert_int_equal(n_leaving(), 1);
	assert_int_equal(pool.n_ready, 0);
	assert_true(pool_offer(&pool, b, 1, 0) != POOL_NONE);
}

static void a_user_leaves_half_to_others(void **state)
{
	uint32_t a = join(1, ALICE, 0), b = join(2, BOB, 1), root;

	(void)state;
	want(a, 100);
	assert_answer(0, 50, 50);
	offer(a, 50);
	assert_int_equal(pool_offer(&pool, a, 1000, 0), POOL_NONE);
	want(b, 100);
	assert_answer(0, 25, 75);
	assert_int_equal(pool_join(&pool, 3, 0, true, &root), 0);
	want(root, 100);
	assert_answer(0, 25, 75);
}

static void a_user_leaves_places_to_others(void **state)
{
	uint32_t borrower, n = 0;

	(void)state;
	while (pool_join(&pool, 1, ALICE, false, &borrower) == 0)
		n++;
	assert_int_equal(n, POOL_BORROWERS_MAX / 2);
	assert_int_equal(pool_join(&pool, 1, BOB, false, &borrower), 0);
	while (pool_join(&pool, 1, 0, true, &borrower) == 0)
		n++;
	assert_int_equal(n, POOL_BORROWERS_MAX - 1);
	pool_assert_valid(&pool);
}

static void a_lower_limit_drops_what_is_ready(void **state)
{
	uint32_t a = join(1, ALICE, 0);

	(void)state;
	offer(a, 6);
	give_back(a, 1, 3);
	pool_shrink(&pool, 5);
	assert_int_equal(n_leaving(), 1);
	pool_shrink(&pool, 0);
	assert_int_equal(n_leaving(), 2);
	assert_int_equal(pool.n_lent, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(what_is_returned_is_lent_to_the_next_of_the_domain, set_up),
		cmocka_unit_test_setup(no_slab_crosses_domains_or_numa_nodes, set_up),
		cmocka_unit_test_setup(a_borrower_of_another_domain_taints_its_slabs, set_up),
		cmocka_unit_test_setup(ready_slabs_of_others_make_room, set_up),
		cmocka_unit_test_setup(a_borrower_keeps_to_its_own_control_group, set_up),
		cmocka_unit_test_setup(those_with_most_unused_are_asked_first, set_up),
		cmocka_unit_test_setup(a_dead_borrowers_slabs_come_back_when_it_is_gone, set_up),
		cmocka_unit_test_setup(a_process_that_comes_back_has_its_slabs_again, set_up),
		cmocka_unit_test_setup(a_restarted_scheduler_takes_what_it_never_allowed, set_up),
		cmocka_unit_test_setup(a_slab_that_lies_ready_is_offered_by_nobody, set_up),
		cmocka_unit_test_setup(a_bad_slab_is_lent_to_nobody, set_up),
		cmocka_unit_test_setup(a_user_leaves_half_to_others, set_up),
		cmocka_unit_test_setup(a_user_leaves_places_to_others, set_up),
		cmocka_unit_test_setup(a_lower_limit_drops_what_is_ready, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
