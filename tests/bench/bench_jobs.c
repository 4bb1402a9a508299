/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The cost of a step of the queue of jobs, with 10,000 that wait for 8 GPUs: jobs end and others
 * start in their place, jobs come, are cancelled, report memory. The rows differ in what waits:
 * jobs that take turns, of one owner, of 100, of one each; jobs that wait for room, which the
 * search has to look at in vain; and the worst case, in which each lane is full of those.
 *
 * All is done RUNS times in the very same way, and the least that a step took counts.
 */

#include "core/jobs/jobs.h"
#include "core/place/estimate.h"
#include "timing.h"
#include "util/prng.h"

#include <stdio.h>
#include <stdlib.h>

#define QUEUED 10000
#define SLOTS  (QUEUED + 100)
#define GPUS   8
#define STEPS  20000
#define RUNS   3
#define GIB    (1ull << 30)
#define S      1000000000ull

enum kind { KIND_TURNS, KIND_ROOM, KIND_WORST };

static const struct row {
	const char *name;
	enum kind kind;
	uint32_t n_owners;
} rows[] = {
	{"turns, one owner", KIND_TURNS, 1},
	{"turns, 100 owners", KIND_TURNS, 100},
	{"turns, 10,000 owners", KIND_TURNS, QUEUED},
	{"half wait for room, 100 owners", KIND_ROOM, 100},
	{"every lane waits in vain, 100 owners", KIND_WORST, 100},
};

static struct jobs jobs;
static struct job slots[SLOTS];
static uint64_t took_ns[STEPS], status_ns;
static uint64_t now_ns, last_id, seed;
static uint32_t n_starts;

static uint64_t step(struct jobs_event event, struct jobs_actions *ret_actions)
{
	uint64_t before = timing_cpu_ns();

	event.now_ns = now_ns;
	if (jobs_step(&jobs, &event, ret_actions))
		abort();
	return timing_cpu_ns() - before;
}

static struct jobs_event any_job(const struct row *row, uint32_t job)
{
	struct jobs_event event = {.type = JOBS_EVENT_SUBMIT, .job = job};

	event.id = ++last_id;
	event.since_ns = now_ns;
	event.owner = (uint32_t)prng_below(&seed, row->n_owners);
	event.priority = (uint32_t)prng_below(&seed, 3) * 50;
	event.limit_ns = 86400 * S;
	event.request = (struct jobs_request){.need = 20 * GIB, .gpu = PLACE_ANY};
	event.request.model.text[0] = (char)('a' + prng_below(&seed, 20));
	if (row->kind != KIND_TURNS && prng_below(&seed, 2)) {
		event.request.is_whole = true;
		event.request.need = 70 * GIB;
	}
	if (row->kind == KIND_WORST) {
		event.request.need = 70 * GIB;
		event.request.gpu = (uint32_t)prng_below(&seed, GPUS + 1);
		if (event.request.gpu == GPUS)
			event.request.gpu = PLACE_ANY;
	}
	return event;
}

static void begin(const struct row *row)
{
	struct jobs_event event = {.type = JOBS_EVENT_GPU};
	struct jobs_actions actions;
	struct jobs_config config;

	jobs_config_default(&config);
	config.pass_ns = 86400 * S; /* a booking would spare looks */
	seed = 1;
	last_id = now_ns = 0;
	jobs_init(&jobs, slots, SLOTS, &config);
	event.facts = (struct place_gpu){.is_known = true, .total = 80 * GIB, .degree = 4};
	/* Programs that are no jobs leave places, but too little memory for what waits. */
	if (row->kind == KIND_WORST) {
		event.facts.external = 30 * GIB;
		event.facts.degree = 0;
	}
	for (event.gpu = 0; event.gpu < GPUS; event.gpu++)
		(void)step(event, &actions);
	for (uint32_t i = 0; i < SLOTS && jobs_n_queued(&jobs) < QUEUED; i++)
		(void)step(any_job(row, i), &actions);
}

static uint32_t any_in(enum jobs_state a, enum jobs_state b)
{
	uint32_t from = (uint32_t)prng_below(&seed, SLOTS);

	for (uint32_t n = 0; n < SLOTS; n++) {
		uint32_t i = (from + n) % SLOTS;

		if (slots[i].state == a || slots[i].state == b)
			return i;
	}
	return JOBS_NONE;
}

/* An end, after which another job starts; a submission; a cancellation; a report; a GPU's load. */
static struct jobs_event any_event(const struct row *row)
{
	struct jobs_event event = {.gpu = (uint32_t)prng_below(&seed, GPUS)};
	uint64_t what = prng_below(&seed, 8);
	uint32_t on = any_in(JOBS_STARTED, JOBS_RUNNING);

	if (jobs_n_queued(&jobs) < QUEUED)
		return any_job(row, any_in(JOBS_FREE, JOBS_DONE));
	if (what < 4 && on != JOBS_NONE) {
		event.type = what < 2 ? JOBS_EVENT_ENDED : JOBS_EVENT_PROGRAMS;
		event.job = on;
		event.end = JOBS_END_SUCCESS;
		event.n_programs = 1;
		event.footprint = prng_below(&seed, 20 * GIB);
	} else if (what < 6) {
		event.type = JOBS_EVENT_CANCEL;
		event.job = any_in(JOBS_QUEUED, JOBS_QUEUED);
	} else {
		event.type = JOBS_EVENT_GPU;
		event.facts = jobs.place.gpu[event.gpu].facts;
		event.facts.utilization = (uint32_t)prng_below(&seed, 101);
		event.facts.others = prng_below(&seed, GIB);
	}
	return event;
}

static void run(const struct row *row, bool is_first)
{
	struct jobs_actions actions;

	begin(row);
	n_starts = 0;
	for (uint32_t i = 0; i < STEPS; i++) {
		struct jobs_event event;
		uint64_t ns;

		now_ns += prng_below(&seed, S / 10);
		event = any_event(row);
		if (event.type == JOBS_EVENT_SUBMIT && slots[event.job].state == JOBS_DONE)
			(void)step((struct jobs_event){.type = JOBS_EVENT_FORGET, .job = event.job},
				   &actions);
		ns = step(event, &actions);
		for (uint32_t k = 0; k < actions.n; k++)
			n_starts += actions.at[k].type == JOBS_ACTION_START;
		if (is_first || ns < took_ns[i])
			took_ns[i] = ns;
	}
}

/* The mean over all that wait: position and reason. */
static uint64_t ask_all(void)
{
	struct jobs_status status;
	uint64_t before = timing_cpu_ns();

	for (uint32_t i = 0; i < SLOTS; i++)
		jobs_status(&jobs, i, now_ns, &status);
	return (timing_cpu_ns() - before) / SLOTS;
}

/* Of work that no entry knows, so that all are looked at. */
static void time_estimate(void)
{
	static struct estimate_entry entries[256];
	struct estimate_work work = {.has_units = true, .model.text = "model"};
	struct estimate_config config;
	struct estimate estimate;
	uint64_t sum = 0, before;

	estimate_config_default(&config);
	estimate_init(&estimate, entries, 256, &config);
	for (work.owner = 0; work.owner < 256; work.owner++)
		estimate_learn(&estimate, &work, GIB);
	work.model.text[0] = 'M';
	before = timing_cpu_ns();
	for (work.owner = 0; work.owner < 10000; work.owner++)
		sum += estimate_bytes(&estimate, &work, NULL);
	printf("  an estimate among 256 entries: %.2f us (%u MiB)\n",
	       (double)(timing_cpu_ns() - before) / 10000 / 1000,
	       (unsigned int)(sum / 10000 >> 20));
}

int main(void)
{
	printf("a step of the queue of jobs, us, %d jobs wait for %d GPUs, the least of %d runs\n"
	       "  %-38s starts    mean     p50     p99   p99.9 longest  status\n",
	       QUEUED, GPUS, RUNS, "");
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		uint64_t sum = 0;

		for (int i = 0; i < RUNS; i++)
			run(&rows[r], i == 0);
		for (uint32_t i = 0; i < STEPS; i++)
			sum += took_ns[i];
		status_ns = ask_all();
		timing_sort(took_ns, STEPS);
		printf("  %-38s %6u %7.2f %7.2f %7.2f %7.2f %7.2f %7.2f\n", rows[r].name, n_starts,
		       (double)sum / STEPS / 1000, (double)took_ns[STEPS / 2] / 1000,
		       (double)took_ns[STEPS / 100 * 99] / 1000,
		       (double)took_ns[STEPS / 1000 * 999] / 1000,
		       (double)took_ns[STEPS - 1] / 1000, (double)status_ns / 1000);
		(void)fflush(stdout);
	}
	time_estimate();
	return 0;
}
