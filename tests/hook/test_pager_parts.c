/* SPDX-License-Identifier: Apache-2.0 */

/* A restore whose budget is not enough for all that is out. */

#include "hook/pager/pager_plan.h"
#include "hook/pager/pager_share.h"
#include "vmm_rig.h"

static void a_restore_called_off_costs_no_second_copy(void **state)
{
	CUdeviceptr a = allocate(8 * MIB), b = allocate(4 * MIB);
	struct pager_move move;
	uint64_t copied;

	(void)state;
	fill(a, 8 * MIB, 1);
	fill(b, 4 * MIB, 2);
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	budget_set(0, 9 * MIB); /* enough for the larger one only */
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_PARTIAL);
	assert_int_equal(move.bytes, 8 * MIB);
	copied = fake.bytes_copied;
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(fake.bytes_copied, copied);
	budget_set(0, 64 * MIB);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	verify(a, 8 * MIB, 1);
	verify(b, 4 * MIB, 2);
}

/* Then the program may run without another restore, and write over what was copied. */
static void a_host_copy_is_not_trusted_once_nothing_is_out(void **state)
{
	CUdeviceptr a = allocate(8 * MIB), b = allocate(4 * MIB);
	struct pager_move move;

	(void)state;
	fill(a, 8 * MIB, 1);
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	budget_set(0, 9 * MIB);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_PARTIAL);
	release(b);
	fill(a, 8 * MIB, 5);
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	verify(a, 8 * MIB, 5);
}

static CUdeviceptr taken_back;

static bool take_back(CUdeviceptr addr, size_t size)
{
	(void)size;
	taken_back = addr;
	return true;
}

/* Others have it mapped: it goes last, if they give it back, and its copy is never trusted. */
static void shared_memory_goes_last_and_only_if_it_is_given_back(void **state)
{
	CUdeviceptr a = allocate(8 * MIB), b = allocate(4 * MIB);
	struct pager_shared shared;
	struct pager_move move;

	(void)state;
	fill(a, 8 * MIB, 1);
	fill(b, 4 * MIB, 2);
	assert_true(pager_share(a, &shared));
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(move.bytes, 4 * MIB); /* it is pinned */
	pager_share_unpin(&shared);
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(move.bytes, 0); /* nobody gives it back */
	assert_true(pager_share_is_in(&shared));
	fake.on_take_back = take_back;
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(pager_evict(0, 4 * MIB, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_true(pager_share_is_in(&shared) && !taken_back);
	assert_int_equal(pager_evict(0, 8 * MIB, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_false(pager_share_is_in(&shared));
	assert_int_equal(taken_back, a);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	fill(a, 8 * MIB, 7); /* by another process: the gate stays as it is */
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	verify(a, 8 * MIB, 7);
	verify(b, 4 * MIB, 2);
}

/* Sizes in MiB, in the order in which they go; 0: no more. */
static void goes_in_order(const size_t *sizes, const size_t *order)
{
	CUdeviceptr at[8];
	struct pager_plan plan;
	size_t n = 0;

	for (; sizes[n]; n++)
		at[n] = allocate(sizes[n] * MIB);
	assert_true(pager_plan_init(&plan, 0, PAGER_RESIDENT));
	pager_plan_cut(&plan, UINT64_MAX);
	assert_int_equal(plan.n_chunks, n);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(plan.chunks[i]->size, order[i] * MIB);
	pager_plan_deinit(&plan);
	while (n)
		release(at[--n]);
}

static void a_few_small_ones_go_first(void **state)
{
	static const struct {
		size_t sizes[8], order[8];
	} rows[] = {
		{{8, 2, 4, 8}, {2, 4, 8, 8}},
		{{8, 8}, {8, 8}},
		{{4}, {4}},
		{{8, 2, 2, 2, 2, 2}, {2, 2, 2, 2, 8, 2}}, /* not all of many */
		{{20, 22, 20}, {20, 22, 20}},             /* nor what takes its time */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		goes_in_order(rows[i].sizes, rows[i].order);
}

/* In MiB: what is moved at once, and by what who comes is behind who goes. */
static void large_allocations_have_large_chunks(void **state)
{
	static const struct {
		size_t size, chunk, rest;
	} rows[] = {
		{10, 0, 10},      {64, 64, 0},      {150, 64, 22},  {254, 64, 62},    {256, 128, 0},
		{1000, 128, 104}, {2046, 128, 126}, {2048, 256, 0}, {2500, 256, 196},
	};

	(void)state;
	fake.capacity = 4ull << 30;
	budget_set(0, fake.capacity);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		CUdeviceptr at = allocate(rows[i].size * MIB);
		struct pager_hold hold;
		struct pager_range *range;

		assert_true(pager_hold(at + (rows[i].size * MIB - 1), 1, &hold));
		range = hold.range;
		assert_int_equal(hold.end, range->n_chunks);
		assert_int_equal(hold.first, range->n_chunks - 1);
		for (size_t j = 0; j < range->n_chunks; j++) {
			bool is_rest = j + 1 == range->n_chunks && rows[i].rest;

			assert_int_equal(range->chunks[j].size,
					 (is_rest ? rows[i].rest : rows[i].chunk) * MIB);
		}
		pager_unhold(&hold, false);
		release(at);
	}
}

static int n_asked; /* for more */

static enum pager_more more_the_second_time(void)
{
	assert_true(fake.n_copies > 0); /* the bus has work */
	if (++n_asked % 2)
		return PAGER_MORE_NOT_YET;
	budget_set(0, budget_get(0) + 4 * MIB);
	return PAGER_MORE_GIVEN;
}

static void more_budget_is_taken_up_while_copies_are_on_their_way(void **state)
{
	CUdeviceptr a = allocate(8 * MIB), b = allocate(4 * MIB), c = allocate(4 * MIB);
	struct pager_move move;

	(void)state;
	n_asked = 0;
	fill(a, 8 * MIB, 1);
	fill(b, 4 * MIB, 2);
	fill(c, 4 * MIB, 3);
	evict_all();
	budget_set(0, 9 * MIB);
	fake.on_more = more_the_second_time;
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(n_asked, 4);
	assert_int_equal(move.bytes, 16 * MIB);
	assert_int_equal(counts().swapped, 0);
	verify(a, 8 * MIB, 1);
	verify(b, 4 * MIB, 2);
	verify(c, 4 * MIB, 3);
	release(a);
	release(b);
	release(c);
}

static enum pager_more not_before_the_copy_has_ended(void)
{
	n_asked++;
	assert_int_equal(fake.n_copies, 1);
	fake_run(1);
	return PAGER_MORE_NOT_YET;
}

static enum pager_more later(void)
{
	n_asked++;
	return PAGER_MORE_LATER;
}

/* The first answer is the last: nobody is asked with nothing on its way. */
static void restore_a_part(enum pager_more (*answer)(void), int outcome, uint64_t bytes)
{
	struct pager_move move;

	n_asked = 0;
	budget_set(0, 9 * MIB);
	fake.on_more = answer;
	assert_int_equal(pager_restore(0, &move), outcome);
	assert_int_equal(n_asked, 1);
	assert_int_equal(move.bytes, bytes);
	budget_set(0, BUDGET_UNLIMITED);
}

static void a_restore_ends_with_its_copies_when_no_more_budget_comes(void **state)
{
	CUdeviceptr a = allocate(8 * MIB), b = allocate(4 * MIB);

	(void)state;
	fill(a, 8 * MIB, 1);
	fill(b, 4 * MIB, 2);
	evict_all();
	restore_a_part(not_before_the_copy_has_ended, NVSHARE_OUTCOME_PARTIAL, 8 * MIB);
	evict_all();
	restore_a_part(later, NVSHARE_OUTCOME_PARTIAL, 8 * MIB);
	restore_all();
	verify(a, 8 * MIB, 1);
	verify(b, 4 * MIB, 2);
	release(a);
	release(b);
}

static enum pager_more more_as_a_copy_fails(void)
{
	n_asked++;
	fake_run(1);
	budget_set(0, BUDGET_UNLIMITED);
	fake_arm(2, CUDA_ERROR_LAUNCH_FAILED); /* cuEventQuery is the first */
	return PAGER_MORE_GIVEN;
}

static void a_copy_that_fails_ends_a_restore_that_was_given_more(void **state)
{
	CUdeviceptr a = allocate(8 * MIB), b = allocate(4 * MIB);

	(void)state;
	fill(a, 8 * MIB, 1);
	fill(b, 4 * MIB, 2);
	evict_all();
	restore_a_part(more_as_a_copy_fails, NVSHARE_OUTCOME_INVALID_STATE, 0);
	assert_int_equal(counts().swapped, 12 * MIB);
	restore_all();
	verify(a, 8 * MIB, 1);
	verify(b, 4 * MIB, 2);
	release(a);
	release(b);
}

int main(void)
{
#define PARTS_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		PARTS_TEST(a_restore_called_off_costs_no_second_copy),
		PARTS_TEST(a_host_copy_is_not_trusted_once_nothing_is_out),
		PARTS_TEST(shared_memory_goes_last_and_only_if_it_is_given_back),
		PARTS_TEST(a_few_small_ones_go_first),
		PARTS_TEST(large_allocations_have_large_chunks),
		PARTS_TEST(more_budget_is_taken_up_while_copies_are_on_their_way),
		PARTS_TEST(a_restore_ends_with_its_copies_when_no_more_budget_comes),
		PARTS_TEST(a_copy_that_fails_ends_a_restore_that_was_given_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
