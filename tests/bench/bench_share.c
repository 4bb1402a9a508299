/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What a decision of the machine of shares costs. Each step of the core is timed by itself,
 * without sockets; every order is answered.
 *
 * First the usual: for 2 to 1,000 clients on one GPU of which every tenth is critical bursts
 * begin and end, with hints or without, the others report what they do, claims change; then
 * the same under each rule for slices, and with energy counted. Then what concerns all 1,000
 * at once, again and again.
 *
 * The target: no decision above 20 us of the processor's time with 1,000 clients. All is done
 * RUNS times in the very same way, and the least that a step took counts: what an interrupt
 * or a cold page takes is no cost of a decision.
 */

#include "core/timeshare/timeshare.h"
#include "timing.h"
#include "util/clock.h"
#include "util/prng.h"

#include <stdio.h>
#include <stdlib.h>

#define CLIENTS_MAX 1000
#define ROUNDS      20000
#define STEPS_MAX   (ROUNDS * 60)
#define QUEUE       65536 /* orders that wait for their answers; a power of two */
#define REPEATS     50
#define RUNS        5
#define SECOND      CLOCK_NS_PER_SEC

struct bench {
	struct timeshare share;
	struct timeshare_client clients[CLIENTS_MAX];
	struct timeshare_event answers[QUEUE];
	uint64_t n_answered, n_orders;
	uint64_t busy_ns[CLIENTS_MAX];
	uint64_t now_ns, seed;
	size_t n_steps;
	bool is_timed;
	uint32_t n_clients, n_critical;
	bool is_mute; /* nobody answers */
};

static struct bench bench;
static uint64_t step_ns[STEPS_MAX]; /* the least of the runs so far */
static uint32_t n_run;

/* Of this thread alone: others may want the processor meanwhile. */
static void queue_answers(const struct timeshare_actions *actions)
{
	for (uint32_t i = 0; i < actions->n; i++) {
		const struct timeshare_action *act = &actions->at[i];

		if (act->type != TIMESHARE_ACTION_SET || bench.is_mute)
			continue;
		bench.answers[bench.n_orders++ % QUEUE] = (struct timeshare_event){
			.type = TIMESHARE_EVENT_DONE,
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

static void record(uint64_t ns)
{
	uint64_t *least_ns = &step_ns[bench.n_steps];

	if (!bench.is_timed)
		return;
	if (bench.n_steps == STEPS_MAX) {
		fprintf(stderr, "bench_share: more than %d steps: too much is done for so little\n",
			STEPS_MAX);
		exit(1);
	}
	*least_ns = n_run == 0 || ns < *least_ns ? ns : *least_ns;
	bench.n_steps++;
}

static void step(struct timeshare_event *event)
{
	struct timeshare_actions actions;
	uint64_t before_ns;

	event->now_ns = bench.now_ns;
	before_ns = timing_cpu_ns();
	(void)timeshare_step(&bench.share, event, &actions);
	record(timing_cpu_ns() - before_ns);
	queue_answers(&actions);
}

/* What is due, and the answers to all that was ordered. */
static void settle(void)
{
	struct timeshare_event time = {.type = TIMESHARE_EVENT_TIME};

	while (timeshare_deadline(&bench.share) <= bench.now_ns ||
	       bench.n_answered < bench.n_orders) {
		if (bench.n_answered < bench.n_orders)
			step(&bench.answers[bench.n_answered++ % QUEUE]);
		else
			step(&time);
	}
}

static void tell(uint32_t client, enum timeshare_activity activity, uint64_t value)
{
	struct timeshare_event event = {
		.type = TIMESHARE_EVENT_ACTIVITY,
		.client = client,
		.activity = activity,
		.busy_ns = bench.busy_ns[client],
		.value = value,
	};

	step(&event);
}

/* The first n_critical are critical; the others all have work. */
static void begin(uint32_t n, uint32_t n_critical, const struct timeshare_config *config)
{
	bench = (struct bench){
		.n_clients = n, .n_critical = n_critical, .now_ns = SECOND, .seed = n};
	timeshare_init(&bench.share, bench.clients, n, config);
	for (uint32_t i = 0; i < n; i++) {
		struct timeshare_event join = {
			.type = TIMESHARE_EVENT_JOIN,
			.client = i,
			.claim = {.class = i < n_critical ? TIMESHARE_CLASS_CRITICAL
							  : TIMESHARE_CLASS_NORMAL,
				  .weight = 100,
				  .slo_us = i < n_critical ? 2000 : 0},
		};
		struct timeshare_event run = {
			.type = TIMESHARE_EVENT_RUN, .client = i, .running = true};

		step(&join);
		step(&run);
		settle();
		if (i >= n_critical)
			tell(i, TIMESHARE_ACTIVITY_BUSY, 0);
		settle();
	}
}

/* ---- the usual ------------------------------------------------------------------- */

struct usual {
	const char *name;
	uint32_t n_clients;
	bool has_hints, has_claims, is_saving;
	enum timeshare_rule rule;
};

static const struct usual usuals[] = {
	{"bursts", 2, false, false, false, TIMESHARE_RULE_FIXED},
	{"bursts", 10, false, false, false, TIMESHARE_RULE_FIXED},
	{"bursts", 100, false, false, false, TIMESHARE_RULE_FIXED},
	{"bursts", 1000, false, false, false, TIMESHARE_RULE_FIXED},
	{"bursts, hints", 1000, true, false, false, TIMESHARE_RULE_FIXED},
	{"bursts, hints, claims", 1000, true, true, false, TIMESHARE_RULE_FIXED},
	{"the same, rule slack", 1000, true, true, false, TIMESHARE_RULE_SLACK},
	{"the same, rule exponential", 1000, true, true, false, TIMESHARE_RULE_EXPONENTIAL},
	{"the same, rule feedback", 1000, true, true, false, TIMESHARE_RULE_FEEDBACK},
	{"bursts, hints, claims, energy", 1000, true, true, true, TIMESHARE_RULE_FIXED},
};

static void claim_weight(uint32_t client, uint32_t weight)
{
	struct timeshare_event event = {.type = TIMESHARE_EVENT_CLAIM,
					.client = client,
					.claim = bench.clients[client].claim};

	event.claim.weight = weight;
	step(&event);
}

/* A request of a critical client, and meanwhile what a few of the others do. */
static void round_of_work(const struct usual *usual)
{
	uint32_t lc = (uint32_t)prng_below(&bench.seed, bench.n_critical);
	uint32_t n_others = bench.n_clients - bench.n_critical;
	uint64_t took_ns = 500000 + prng_below(&bench.seed, 2000000);

	if (usual->has_hints) {
		tell(lc, TIMESHARE_ACTIVITY_HINT, 2000000);
		settle();
		bench.now_ns += 2000000;
		settle();
	}
	tell(lc, TIMESHARE_ACTIVITY_BEGIN, 0);
	settle();
	for (int i = 0; i < 4; i++) {
		uint32_t be = bench.n_critical + (uint32_t)prng_below(&bench.seed, n_others);

		bench.now_ns += took_ns / 4;
		bench.busy_ns[be] += took_ns / 8;
		tell(be,
		     i < 2    ? TIMESHARE_ACTIVITY_USE
		     : i == 2 ? TIMESHARE_ACTIVITY_IDLE
			      : TIMESHARE_ACTIVITY_BUSY,
		     0);
		settle();
		if (usual->has_claims && i == 0)
			claim_weight(be, 1 + (uint32_t)prng_below(&bench.seed, 1000));
	}
	bench.busy_ns[lc] += took_ns;
	tell(lc, TIMESHARE_ACTIVITY_END, took_ns);
	settle();
	bench.now_ns += 1000000 + prng_below(&bench.seed, 20000000);
	settle();
}

static double us_at(double part)
{
	return (double)step_ns[(size_t)((double)(bench.n_steps - 1) * part)] / 1000;
}

static void print(const char *name)
{
	double sum_ns = 0;

	for (size_t i = 0; i < bench.n_steps; i++)
		sum_ns += (double)step_ns[i];
	timing_sort(step_ns, bench.n_steps);
	printf("  %-42s %7u %8zu %7.2f %7.2f %7.2f %7.2f %8.2f\n", name, bench.n_clients,
	       bench.n_steps, sum_ns / (double)bench.n_steps / 1000, us_at(0.5), us_at(0.99),
	       us_at(0.999), us_at(1));
	(void)fflush(stdout);
}

static void measure(const struct usual *usual)
{
	struct timeshare_event power = {.type = TIMESHARE_EVENT_POWER, .value = 300000};
	struct timeshare_config config;

	timeshare_config_default(&config);
	config.slice_rule = usual->rule;
	config.is_saving = usual->is_saving;
	for (n_run = 0; n_run < RUNS; n_run++) {
		begin(usual->n_clients, (usual->n_clients + 9) / 10, &config);
		step(&power);
		bench.is_timed = true;
		for (int i = 0; i < ROUNDS; i++)
			round_of_work(usual);
	}
	print(usual->name);
}

/* ---- what concerns all ------------------------------------------------------------- */

#define LC   0u /* the one that is critical; all others are equals with work */
#define LAST (CLIENTS_MAX - 1)

static void pause_and_begin(void)
{
	tell(LC, TIMESHARE_ACTIVITY_END, 1000000);
	settle();
	bench.now_ns += 2 * SECOND;
	settle();
	bench.is_timed = true;
	tell(LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	settle();
}

/* Nobody holds any more, and all have long slices again. */
static void pause_only(void)
{
	tell(LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	settle();
	tell(LC, TIMESHARE_ACTIVITY_END, 1000000);
	settle();
	bench.is_timed = true;
	bench.now_ns += 2 * SECOND;
	settle();
}

static void come(uint32_t client, const struct timeshare_claim *claim)
{
	struct timeshare_event join = {
		.type = TIMESHARE_EVENT_JOIN, .client = client, .claim = *claim};
	struct timeshare_event run = {
		.type = TIMESHARE_EVENT_RUN, .client = client, .running = true};

	bench.busy_ns[client] = 0;
	step(&join);
	step(&run);
	settle();
}

static void leave_and_come(uint32_t client, enum timeshare_activity activity)
{
	struct timeshare_event event = {.type = TIMESHARE_EVENT_LEAVE, .client = client};
	struct timeshare_claim claim = bench.clients[client].claim;

	bench.is_timed = true;
	step(&event);
	settle();
	come(client, &claim);
	tell(client, activity, 0);
	settle();
}

static void critical_leaves(void)
{
	leave_and_come(LC, TIMESHARE_ACTIVITY_BEGIN);
}

/* Whose turn it is. */
static void equal_leaves(void)
{
	uint32_t turn = bench.share.gpus[0].turn;

	leave_and_come(turn == TIMESHARE_NONE ? LAST : turn, TIMESHARE_ACTIVITY_BUSY);
}

/* All have another slice, for the least weight is another; and back. */
static void least_weight_changes(void)
{
	bench.is_timed = true;
	claim_weight(LAST, 50);
	settle();
	claim_weight(LAST, 100);
	settle();
}

static void configure(const struct timeshare_config *config)
{
	struct timeshare_event event = {.type = TIMESHARE_EVENT_CONFIG, .config = config};

	step(&event);
	settle();
}

static void slices_are_configured(void)
{
	struct timeshare_config config = bench.share.config;

	bench.is_timed = true;
	config.be_slice_us += 100;
	config.equal_slice_us += 100;
	configure(&config);
	config.be_slice_us -= 100;
	config.equal_slice_us -= 100;
	configure(&config);
}

static void classes_are_configured(void)
{
	struct timeshare_config config = bench.share.config;

	bench.is_timed = true;
	config.has_classes = !config.has_classes;
	configure(&config);
	config.has_classes = !config.has_classes;
	configure(&config);
}

/* They count as active for a second after their work, which has ended for all at once. */
static void all_pause(void)
{
	for (uint32_t i = 1; i < CLIENTS_MAX; i++)
		tell(i, TIMESHARE_ACTIVITY_IDLE, 0);
	settle();
	bench.is_timed = true;
	bench.now_ns += 2 * SECOND;
	settle();
	for (uint32_t i = 1; i < CLIENTS_MAX; i++)
		tell(i, TIMESHARE_ACTIVITY_BUSY, 0);
	settle();
}

/*
 * None of them answers any more. Silence ends their work as far as the machine knows, so each
 * says afterwards that it has work: else there is nobody to be held beside the next burst.
 */
static void all_are_mute(void)
{
	pause_and_begin();
	bench.is_timed = true;
	bench.is_mute = true;
	tell(LC, TIMESHARE_ACTIVITY_END, 1000000);
	bench.now_ns += SECOND;
	tell(LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	bench.now_ns += SECOND;
	settle();
	bench.is_mute = false;
	bench.now_ns += 20 * SECOND;
	settle();
	bench.is_timed = false;
	for (uint32_t i = 1; i < CLIENTS_MAX; i++)
		tell(i, TIMESHARE_ACTIVITY_BUSY, 0);
	settle();
}

struct worst {
	const char *name;
	void (*happen)(void);
	bool is_beside_burst; /* else nobody has been critical for a while */
};

static const struct worst worsts[] = {
	{"a critical one comes after a pause", pause_and_begin, true},
	{"the critical one pauses", pause_only, true},
	{"the critical one leaves, and comes again", critical_leaves, true},
	{"whose turn it is leaves, and comes again", equal_leaves, true},
	{"an equal leaves, and comes again", equal_leaves, false},
	{"the least weight is another, and back", least_weight_changes, false},
	{"other slices by CONFIG, and back", slices_are_configured, false},
	{"other slices by CONFIG during a burst", slices_are_configured, true},
	{"classes by CONFIG, off and on", classes_are_configured, false},
	{"classes by CONFIG during a burst", classes_are_configured, true},
	{"999 pause at once, and work again", all_pause, false},
	{"nobody answers, during bursts", all_are_mute, true},
};

static void measure_worst(const struct worst *worst)
{
	struct timeshare_config config;

	timeshare_config_default(&config);
	for (n_run = 0; n_run < RUNS; n_run++) {
		begin(CLIENTS_MAX, 1, &config);
		if (worst->is_beside_burst)
			tell(LC, TIMESHARE_ACTIVITY_BEGIN, 0);
		else
			bench.now_ns += 2 * SECOND;
		settle();
		for (int i = 0; i < REPEATS; i++) {
			worst->happen();
			bench.is_timed = false;
		}
	}
	print(worst->name);
}

int main(void)
{
	printf("a decision about shares, us, the least of %d runs (target: 20)\n"
	       "  %-42s clients    steps    mean     p50     p99   p99.9  longest\n",
	       RUNS, "");
	printf(" %d requests of critical clients\n", ROUNDS);
	for (size_t i = 0; i < sizeof(usuals) / sizeof(usuals[0]); i++)
		measure(&usuals[i]);
	printf(" what concerns all, %d times\n", REPEATS);
	for (size_t i = 0; i < sizeof(worsts) / sizeof(worsts[0]); i++)
		measure_worst(&worsts[i]);
	return 0;
}
