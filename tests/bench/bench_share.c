/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What a decision of the machine of shares costs, for 2 to 1,000 clients on one GPU of
 * which every tenth is critical: bursts begin and end, the others report what they do, and
 * every order is answered, without sockets. Each step of the core is timed by itself.
 *
 * The target: no decision above 20 us of the processor's time with 1,000 clients. The
 * longest is shown beside the 99.9th percentile: what an interrupt takes is counted too.
 */

#include "core/share/share.h"
#include "util/clock.h"
#include "util/prng.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CLIENTS_MAX 1000
#define ROUNDS      20000
#define STEPS_MAX   (ROUNDS * 40)
#define QUEUE       65536 /* orders that wait for their answers; a power of two */

static const uint32_t sizes[] = {2, 10, 100, 1000};
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

struct bench {
	struct share share;
	struct share_client clients[CLIENTS_MAX];
	struct share_event answers[QUEUE];
	uint64_t n_answered, n_orders;
	uint64_t busy_ns[CLIENTS_MAX];
	uint64_t now_ns, seed;
	uint64_t step_ns[STEPS_MAX];
	size_t n_steps;
	uint32_t n_clients, n_critical;
};

static struct bench bench;

/* Of this thread alone: others may want the processor meanwhile. */
static uint64_t cpu_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * CLOCK_NS_PER_SEC + (uint64_t)t.tv_nsec;
}

static void queue_answers(const struct share_actions *actions)
{
	for (uint32_t i = 0; i < actions->n; i++) {
		const struct share_action *act = &actions->at[i];

		if (act->type != SHARE_ACTION_SET)
			continue;
		bench.answers[bench.n_orders++ % QUEUE] = (struct share_event){
			.type = SHARE_EVENT_DONE,
			.client = act->client,
			.seq = act->seq,
			.took_ns = 600000,
			.is_held = act->hold_us > 0,
		};
		if (bench.n_orders - bench.n_answered > QUEUE) {
			fprintf(stderr, "bench_share: %d orders wait for answers\n", QUEUE);
			exit(1);
		}
	}
}

static void step(struct share_event *event)
{
	struct share_actions actions;
	uint64_t before_ns;

	event->now_ns = bench.now_ns;
	before_ns = cpu_ns();
	(void)share_step(&bench.share, event, &actions);
	if (bench.n_steps < STEPS_MAX)
		bench.step_ns[bench.n_steps++] = cpu_ns() - before_ns;
	queue_answers(&actions);
}

/* What is due, and the answers to all that was ordered. */
static void settle(void)
{
	struct share_event time = {.type = SHARE_EVENT_TIME};

	while (share_deadline(&bench.share) <= bench.now_ns || bench.n_answered < bench.n_orders) {
		if (bench.n_answered < bench.n_orders)
			step(&bench.answers[bench.n_answered++ % QUEUE]);
		else
			step(&time);
	}
}

static void tell(uint32_t client, enum share_activity activity, uint64_t value)
{
	struct share_event event = {
		.type = SHARE_EVENT_ACTIVITY,
		.client = client,
		.activity = activity,
		.busy_ns = bench.busy_ns[client],
		.value = value,
	};

	step(&event);
}

static void join_all(void)
{
	for (uint32_t i = 0; i < bench.n_clients; i++) {
		struct share_event join = {
			.type = SHARE_EVENT_JOIN,
			.client = i,
			.claim = {.class = i < bench.n_critical ? SHARE_CLASS_CRITICAL
								: SHARE_CLASS_NORMAL,
				  .weight = 100},
		};
		struct share_event run = {.type = SHARE_EVENT_RUN, .client = i, .running = true};

		step(&join);
		step(&run);
		settle();
		if (i >= bench.n_critical)
			tell(i, SHARE_ACTIVITY_BUSY, 0);
		settle();
	}
}

/* A request of a critical client, and meanwhile what a few of the others do. */
static void round_of_work(void)
{
	uint32_t lc = (uint32_t)prng_below(&bench.seed, bench.n_critical);
	uint32_t n_others = bench.n_clients - bench.n_critical;
	uint64_t took_ns = 500000 + prng_below(&bench.seed, 2000000);

	tell(lc, SHARE_ACTIVITY_BEGIN, 0);
	settle();
	for (int i = 0; i < 4; i++) {
		uint32_t be = bench.n_critical + (uint32_t)prng_below(&bench.seed, n_others);

		bench.now_ns += took_ns / 4;
		bench.busy_ns[be] += took_ns / 8;
		tell(be,
		     i < 2    ? SHARE_ACTIVITY_USE
		     : i == 2 ? SHARE_ACTIVITY_IDLE
			      : SHARE_ACTIVITY_BUSY,
		     0);
		settle();
	}
	bench.busy_ns[lc] += took_ns;
	tell(lc, SHARE_ACTIVITY_END, took_ns);
	settle();
	bench.now_ns += 1000000 + prng_below(&bench.seed, 20000000);
	settle();
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static double us_at(double part)
{
	return (double)bench.step_ns[(size_t)((double)(bench.n_steps - 1) * part)] / 1000;
}

static double mean_us(void)
{
	double sum = 0;

	for (size_t i = 0; i < bench.n_steps; i++)
		sum += (double)bench.step_ns[i];
	return sum / (double)bench.n_steps / 1000;
}

static double measure(uint32_t n)
{
	struct share_config config;
	double mean;

	bench = (struct bench){
		.n_clients = n, .n_critical = (n + 9) / 10, .now_ns = CLOCK_NS_PER_SEC, .seed = n};
	share_config_default(&config);
	share_init(&bench.share, bench.clients, n, &config);
	join_all();
	bench.n_steps = 0;
	for (int i = 0; i < ROUNDS && bench.n_steps < STEPS_MAX; i++)
		round_of_work();
	mean = mean_us();
	qsort(bench.step_ns, bench.n_steps, sizeof(bench.step_ns[0]), by_value);
	return mean;
}

int main(void)
{
	double first = 0;

	printf("a decision about shares, %d requests of critical clients (target: 20 us)\n"
	       " clients    steps  mean, us   p50, us   p99, us  p99.9, us  longest, us  mean ratio\n",
	       ROUNDS);
	for (size_t i = 0; i < N_SIZES; i++) {
		double mean = measure(sizes[i]);

		if (i == 0)
			first = mean;
		printf("%8u %8zu  %8.2f  %8.2f  %8.2f   %8.2f     %8.2f    %8.2f\n", sizes[i],
		       bench.n_steps, mean, us_at(0.5), us_at(0.99), us_at(0.999), us_at(1),
		       mean / first);
		(void)fflush(stdout);
	}
	return 0;
}
