/* SPDX-License-Identifier: Apache-2.0 */

/* Threads that touch memory together, on a machine that shows what is taken when it is there. */

#include "hook/host/touched.h"

#include "hook/host/hostmem.h"
#include "lib/virtual_clock.h"
#include "util/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB  (1ull << 20)
#define SLAB (64 * MIB)
#define LEFT (100 * MIB) /* of the machine's memory: one slab, not two */

static int n_asked;
static bool is_plenty, is_given_back;

static void nap(void)
{
	clock_nap(CLOCK_NS_PER_MS);
}

/* In place of the library's: the first two ask at the same time, and nothing is there yet. */
uint64_t hostmem_available(uint64_t used)
{
	int n = __atomic_add_fetch(&n_asked, 1, __ATOMIC_SEQ_CST);

	(void)used;
	if (is_given_back)
		touched_give_back();
	if (is_plenty)
		return UINT64_MAX;
	for (int i = 0; i < 10000 && __atomic_load_n(&n_asked, __ATOMIC_SEQ_CST) < 2; i++)
		nap();
	return n <= 2 ? LEFT : 0;
}

static void together_they_take_no_more_than_is_left(void **state)
{
	size_t size;
	void *addr;
	int n = 0;

	(void)state;
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		skip();
	touched_want(16 * SLAB, 0, true, NULL);
	while (touched_wait(&addr, &size)) {
		munmap(addr, size);
		n++;
	}
	assert_int_equal(n, 1);
	assert_int_equal(touched_bytes(), 0);
}

/* Others may be moving their memory just then. */
static void what_nobody_waits_for_comes_slowly(void **state)
{
	uint64_t start_ns = clock_now_ns();
	size_t size;
	void *addr;
	int n = 0;

	(void)state;
	is_plenty = true;
	touched_want(4 * SLAB, 0, false, NULL);
	while (n < 4) {
		nap();
		if (!touched_take(&addr, &size))
			continue;
		munmap(addr, size);
		n++;
	}
	assert_true(clock_now_ns() - start_ns >= 30 * CLOCK_NS_PER_MS);
	/* Asked for slowly, and waited for after all: nothing is lost. */
	touched_want(4 * SLAB, 0, false, NULL);
	for (n = 0; touched_wait(&addr, &size); n++)
		munmap(addr, size);
	assert_int_equal(n, 4);
	assert_int_equal(touched_bytes(), 0);
}

static void what_is_given_back_does_not_come(void **state)
{
	size_t size;
	void *addr;

	(void)state;
	is_plenty = true;
	touched_want(64 * SLAB, 0, false, NULL);
	touched_give_back();
	assert_false(touched_wait(&addr, &size));
	assert_int_equal(touched_bytes(), 0);
}

static int n_told;

static void told(void)
{
	__atomic_add_fetch(&n_told, 1, __ATOMIC_SEQ_CST);
}

/* touched_bytes() has it until then: who has told others so has to tell them of less. */
static void what_is_given_back_while_it_comes_is_told(void **state)
{
	(void)state;
	is_plenty = true;
	is_given_back = true; /* as it is begun */
	touched_want(SLAB, 0, true, told);
	for (int i = 0; i < 10000 && !__atomic_load_n(&n_told, __ATOMIC_SEQ_CST); i++)
		nap();
	assert_int_equal(__atomic_load_n(&n_told, __ATOMIC_SEQ_CST), 1);
	assert_int_equal(touched_bytes(), 0);
	is_given_back = false;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(together_they_take_no_more_than_is_left),
		cmocka_unit_test(what_nobody_waits_for_comes_slowly),
		cmocka_unit_test(what_is_given_back_does_not_come),
		cmocka_unit_test(what_is_given_back_while_it_comes_is_told),
	};

	virtual_clock_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
