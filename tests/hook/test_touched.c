/* SPDX-License-Identifier: Apache-2.0 */

/* Threads that touch memory together, on a machine that shows what is taken when it is there. */

#include "hook/host/touched.h"

#include "hook/host/hostmem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB  (1ull << 20)
#define SLAB (64 * MIB)
#define LEFT (100 * MIB) /* of the machine's memory: one slab, not two */

static int n_asked;

static void nap(void)
{
	const struct timespec pause = {.tv_nsec = 1000000};

	(void)nanosleep(&pause, NULL);
}

/* In place of the library's: the first two ask at the same time, and nothing is there yet. */
uint64_t hostmem_available(uint64_t used)
{
	int n = __atomic_add_fetch(&n_asked, 1, __ATOMIC_SEQ_CST);

	(void)used;
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(together_they_take_no_more_than_is_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
