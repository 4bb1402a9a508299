/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/memory/ledger.h"

#include "nvshare/protocol.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define CTX1 ((CUcontext)0x1000)
#define CTX2 ((CUcontext)0x2000)
#define POOL 77

static void add(enum ledger_class class, uint64_t key, uint64_t bytes, CUcontext ctx,
		uint64_t owner)
{
	struct ledger_entry entry = {.class = class,
				     .key = key,
				     .bytes = bytes,
				     .owner = owner,
				     .ctx = ctx,
				     .dev = 1,
				     .kind = NVSHARE_PINNED_ASYNC};

	assert_int_equal(ledger_add(&entry), 0);
}

static int reset(void **state)
{
	(void)state;
	ledger_after_fork_child();
	return 0;
}

static void drop(const struct ledger_entry *entry)
{
	(void)entry;
}

/* What a test has left: its entries are the heap's. */
static int clear(void **state)
{
	(void)state;
	ledger_context_gone(CTX1, drop);
	ledger_context_gone(CTX2, drop);
	(void)ledger_remove(LEDGER_POOL, POOL, NULL);
	return ledger_count() == 0 ? 0 : -1;
}

static void an_entry_is_found_by_key(void **state)
{
	struct ledger_entry entry;

	(void)state;
	add(LEDGER_ADDRESS, 1000, 100, CTX1, 0);
	add(LEDGER_ADDRESS, 1100, 50, CTX1, 0);
	add(LEDGER_ARRAY, 1000, 7, CTX1, 0); /* another class: another key */
	assert_true(ledger_find(LEDGER_ARRAY, 1000, &entry));
	assert_int_equal(entry.bytes, 7);
	assert_true(ledger_find(LEDGER_ADDRESS, 1100, &entry));
	assert_int_equal(entry.key, 1100);
	assert_false(ledger_find(LEDGER_ADDRESS, 1001, NULL));
	assert_int_equal(ledger_add(&entry), LEDGER_E_EXISTS);
	assert_true(ledger_remove(LEDGER_ADDRESS, 1000, &entry));
	assert_int_equal(entry.bytes, 100);
	assert_false(ledger_remove(LEDGER_ADDRESS, 1000, NULL));
	assert_int_equal(ledger_count(), 2);
}

static uint64_t gone_bytes;

static void count_gone(const struct ledger_entry *entry)
{
	gone_bytes += entry->bytes;
	assert_ptr_equal(entry->ctx, CTX1);
	assert_int_equal(ledger_count(), 2); /* the lock is not held */
}

static void a_context_takes_its_entries_of_every_class(void **state)
{
	(void)state;
	gone_bytes = 0;
	add(LEDGER_ADDRESS, 1, 1, CTX1, 0);
	add(LEDGER_ARRAY, 2, 10, CTX1, 0);
	add(LEDGER_GRAPH, 3, 100, CTX1, 0);
	add(LEDGER_ADDRESS, 4, 1000, CTX2, 0);
	add(LEDGER_POOL, POOL, 10000, NULL, 0);
	ledger_context_gone(CTX1, count_gone);
	assert_int_equal(gone_bytes, 111);
	assert_int_equal(ledger_count(), 2);
}

static void a_pool_knows_what_came_from_it(void **state)
{
	(void)state;
	add(LEDGER_POOL, POOL, 0, NULL, 0);
	add(LEDGER_ADDRESS, 1000, 30, CTX1, POOL);
	add(LEDGER_ADDRESS, 2000, 40, CTX1, POOL);
	add(LEDGER_ADDRESS, 3000, 50, CTX1, 78);
	assert_int_equal(ledger_owner_bytes(POOL), 70);
	assert_true(ledger_remove(LEDGER_ADDRESS, 1000, NULL));
	assert_int_equal(ledger_owner_bytes(POOL), 40);
	assert_int_equal(ledger_owner_bytes(78), 0);
	assert_int_equal(ledger_resize(LEDGER_POOL, POOL, 500), 500);
	assert_int_equal(ledger_resize(LEDGER_POOL, POOL, 100), -400);
	assert_int_equal(ledger_resize(LEDGER_POOL, 99, 100), 0);
}

static void fifty_thousand_entries_are_kept_apart(void **state)
{
	enum { N = 50000 };
	struct ledger_entry entry;

	(void)state;
	for (uint64_t i = 0; i < N; i++)
		add(LEDGER_ADDRESS, i * 7919 % N * 512 + 512, 512, CTX1, 0);
	for (uint64_t i = 0; i < N; i++) {
		assert_true(ledger_find(LEDGER_ADDRESS, i * 512 + 512, &entry));
		assert_int_equal(entry.key, i * 512 + 512);
	}
	for (uint64_t i = 0; i < N; i++)
		assert_true(ledger_remove(LEDGER_ADDRESS, i * 512 + 512, NULL));
	assert_int_equal(ledger_count(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(an_entry_is_found_by_key, reset, clear),
		cmocka_unit_test_setup_teardown(a_context_takes_its_entries_of_every_class, reset,
						clear),
		cmocka_unit_test_setup_teardown(a_pool_knows_what_came_from_it, reset, clear),
		cmocka_unit_test_setup_teardown(fifty_thousand_entries_are_kept_apart, reset,
						clear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
