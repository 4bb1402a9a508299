/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the open gate costs a thread: gate_enter() and gate_leave() around an empty
 * function, against the function alone, in turn; medians. With several threads too,
 * since the open gate must write nothing that threads share.
 */
#include "hook/gate/gate.h"
#include "timing.h"
#include "util/clock.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

#define BENCH_CALLS   2000000u
#define BENCH_BATCHES 31
#define BENCH_THREADS 4

/* Stands for the driver's function; the compiler must neither inline nor drop it. */
__attribute__((noinline)) static int driver_call(int x)
{
	__asm__ volatile("" : "+r"(x));
	return x;
}

static double direct_ns(void)
{
	uint64_t start = clock_now_ns();
	uint32_t i;

	for (i = 0; i < BENCH_CALLS; i++)
		driver_call((int)i);
	return (double)(clock_now_ns() - start) / BENCH_CALLS;
}

static double gated_ns(void)
{
	uint64_t start = clock_now_ns();
	uint32_t i;

	for (i = 0; i < BENCH_CALLS; i++) {
		gate_enter();
		driver_call((int)i);
		gate_leave();
	}
	return (double)(clock_now_ns() - start) / BENCH_CALLS;
}

static void *run(void *ret)
{
	double values[BENCH_BATCHES];
	int i;

	for (i = 0; i < BENCH_BATCHES; i++)
		values[i] = gated_ns();
	*(double *)ret = timing_median(values, BENCH_BATCHES);
	return NULL;
}

int main(void)
{
	double direct[BENCH_BATCHES];
	double gated[BENCH_BATCHES];
	double each[BENCH_THREADS];
	pthread_t threads[BENCH_THREADS];
	double a, b;
	int i;

	for (i = 0; i < BENCH_BATCHES; i++) {
		direct[i] = direct_ns();
		gated[i] = gated_ns();
	}
	a = timing_median(direct, BENCH_BATCHES);
	b = timing_median(gated, BENCH_BATCHES);
	printf("gate, one thread: direct %.2f ns, gated %.2f ns, added %.2f ns (target 20)\n", a, b,
	       b - a);
	for (i = 0; i < BENCH_THREADS; i++)
		if (pthread_create(&threads[i], NULL, run, &each[i]))
			return 1;
	for (i = 0; i < BENCH_THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("gate, %d threads at once: gated %.2f ns (median thread)\n", BENCH_THREADS,
	       timing_median(each, BENCH_THREADS));
	return 0;
}
