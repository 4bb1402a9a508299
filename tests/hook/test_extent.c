/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/host/extent.h"

#include "util/prng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void takes_the_smallest_part_that_is_large_enough(void **state)
{
	struct extent e;
	uint64_t addr[5], got;

	(void)state;
	extent_init(&e);
	assert_int_equal(extent_add(&e, 0x10000, 16 * 512), 0);
	for (size_t i = 0; i < 5; i++)
		assert_int_equal(extent_alloc(&e, (i + 1) * 512, &addr[i]), 0);
	assert_int_equal(extent_free(&e, addr[3], NULL), 0); /* a hole of 4 */
	assert_int_equal(extent_free(&e, addr[1], NULL), 0); /* a hole of 2; 1 at the end */
	assert_int_equal(extent_alloc(&e, 513, &got), 0);
	assert_int_equal(got, addr[1]);
	assert_int_equal(extent_alloc(&e, 512 * 3, &got), 0);
	assert_int_equal(got, addr[3]);
	assert_int_equal(extent_largest(&e), 512);
	assert_int_equal(extent_alloc(&e, 1024, &got), EXTENT_E_FULL);
	assert_int_equal(extent_alloc(&e, UINT64_MAX, &got), EXTENT_E_FULL);
	assert_true(extent_is_valid(&e));
	extent_deinit(&e);
}

static void neighbours_are_joined_but_regions_never(void **state)
{
	struct extent e;
	struct extent_region region;
	uint64_t a, b, c;

	(void)state;
	extent_init(&e);
	assert_int_equal(extent_add(&e, 4096, 1024), 0);
	assert_int_equal(extent_add(&e, 4096 + 1024, 512), 0); /* touches the first */
	assert_int_equal(extent_largest(&e), 1024);
	assert_int_equal(extent_alloc(&e, 512, &c), 0);
	assert_int_equal(c, 4096 + 1024);
	assert_int_equal(extent_alloc(&e, 512, &a), 0);
	assert_int_equal(extent_alloc(&e, 512, &b), 0);
	assert_int_equal(extent_remove(&e, 4096), EXTENT_E_UNKNOWN);
	assert_int_equal(extent_free(&e, a, &region), 0);
	assert_false(region.is_empty);
	assert_int_equal(extent_free(&e, c, &region), 0);
	assert_true(region.is_empty);
	assert_int_equal(region.addr, 4096 + 1024);
	assert_int_equal(region.size, 512);
	assert_int_equal(extent_free(&e, b, &region), 0);
	assert_true(region.is_empty);
	assert_int_equal(region.size, 1024);
	assert_true(extent_is_valid(&e));
	assert_int_equal(extent_remove(&e, 4096 + 1024), 0);
	assert_int_equal(extent_remove(&e, 4096), 0);
	assert_int_equal(extent_largest(&e), 0);
	extent_deinit(&e);
}

static void a_part_in_use_can_be_made_two(void **state)
{
	struct extent_region region;
	struct extent e;
	uint64_t a;

	(void)state;
	extent_init(&e);
	assert_int_equal(extent_add(&e, 4096, 4096), 0);
	assert_int_equal(extent_alloc(&e, 4096, &a), 0);
	assert_int_equal(extent_split(&e, a, 0), EXTENT_E_UNKNOWN);
	assert_int_equal(extent_split(&e, a, 4096), EXTENT_E_UNKNOWN);
	assert_int_equal(extent_split(&e, a, 100), EXTENT_E_UNKNOWN);
	assert_int_equal(extent_split(&e, a + 512, 512), EXTENT_E_UNKNOWN);
	assert_int_equal(extent_split(&e, a, 1024), 0);
	assert_true(extent_is_valid(&e));
	assert_int_equal(extent_free(&e, a, &region), 0);
	assert_false(region.is_empty);
	assert_int_equal(extent_largest(&e), 1024);
	assert_int_equal(extent_free(&e, a + 1024, &region), 0);
	assert_true(region.is_empty);
	assert_int_equal(extent_split(&e, a, 512), EXTENT_E_UNKNOWN);
	assert_true(extent_is_valid(&e));
	extent_deinit(&e);
}

static void wrong_addresses_are_refused(void **state)
{
	struct extent e;
	uint64_t a;

	(void)state;
	extent_init(&e);
	assert_int_equal(extent_free(&e, 512, NULL), EXTENT_E_UNKNOWN);
	assert_int_equal(extent_add(&e, 512, 2048), 0);
	assert_int_equal(extent_free(&e, 512, NULL), EXTENT_E_UNKNOWN);
	assert_int_equal(extent_alloc(&e, 1024, &a), 0);
	assert_int_equal(extent_free(&e, a + 512, NULL), EXTENT_E_UNKNOWN);
	assert_int_equal(extent_free(&e, a, NULL), 0);
	assert_int_equal(extent_free(&e, a, NULL), EXTENT_E_UNKNOWN);
	assert_int_equal(extent_remove(&e, 1024), EXTENT_E_UNKNOWN);
	extent_deinit(&e);
}

/* 50,000 live parts; no two overlap (a map of owners says so); all come back as one. */
static void fifty_thousand_parts_never_overlap(void **state)
{
	enum { N = 50000, UNITS = 400000 };
	uint64_t *addrs = calloc(N, sizeof(*addrs)), rng = 1;
	unsigned char *owned = calloc(UNITS, 1), *sizes = calloc(N, 1);
	struct extent_region region;
	struct extent e;

	(void)state;
	assert_true(addrs && owned && sizes);
	extent_init(&e);
	assert_int_equal(extent_add(&e, 0, (uint64_t)UNITS * 512), 0);
	for (size_t step = 0; step < 6 * (size_t)N; step++) {
		size_t i = prng_below(&rng, N);

		if (sizes[i]) {
			assert_int_equal(extent_free(&e, addrs[i], NULL), 0);
			for (size_t u = 0; u < sizes[i]; u++)
				owned[addrs[i] / 512 + u] = 0;
			sizes[i] = 0;
		} else {
			sizes[i] = (unsigned char)(1 + prng_below(&rng, 7));
			assert_int_equal(extent_alloc(&e, sizes[i] * 512u - 100, &addrs[i]), 0);
			for (size_t u = 0; u < sizes[i]; u++)
				assert_int_equal(owned[addrs[i] / 512 + u]++, 0);
		}
	}
	assert_true(extent_is_valid(&e));
	for (size_t i = 0; i < N; i++) {
		if (sizes[i])
			assert_int_equal(extent_free(&e, addrs[i], &region), 0);
	}
	assert_true(region.is_empty);
	assert_int_equal(region.size, (uint64_t)UNITS * 512);
	assert_int_equal(e.n_used, 0);
	assert_true(extent_is_valid(&e));
	extent_deinit(&e);
	free(addrs);
	free(owned);
	free(sizes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(takes_the_smallest_part_that_is_large_enough),
		cmocka_unit_test(neighbours_are_joined_but_regions_never),
		cmocka_unit_test(a_part_in_use_can_be_made_two),
		cmocka_unit_test(wrong_addresses_are_refused),
		cmocka_unit_test(fifty_thousand_parts_never_overlap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
