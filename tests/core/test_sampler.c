/* SPDX-License-Identifier: Apache-2.0 */

/* When to look: whatever a program repeats itself in, the looks find what it has of the time. */

#include "core/meter/sampler.h"
#include "util/prng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define US   1000ull
#define MS   (1000 * US)
#define STEP MS

static uint64_t chance; /* prng.h */

/* A program that has work for work_ns, and then none for pause_ns, and so on. */
struct program {
	uint64_t work_ns, pause_ns;
};

static bool has_work(const struct program *program, uint64_t now_ns)
{
	return now_ns % (program->work_ns + program->pause_ns) < program->work_ns;
}

static uint64_t next_work(const struct program *program, uint64_t now_ns)
{
	uint64_t period_ns = program->work_ns + program->pause_ns;

	return has_work(program, now_ns) ? now_ns : (now_ns / period_ns + 1) * period_ns;
}

/*
 * For ns: who has none for two looks in a row is not looked at until it has some again, which is
 * noticed; each look is late_ns late, and the looks' own time is known of it. The sum of what
 * found work stood for.
 */
static uint64_t look_for(struct sampler *sampler, const struct program *program, uint64_t ns,
			 uint64_t late_ns)
{
	uint64_t now_ns = next_work(program, MS), sum_ns = 0, end_ns = now_ns + ns;
	uint32_t n_none = 0;

	sampler_start(sampler, now_ns);
	while (now_ns < end_ns) {
		bool found;
		uint64_t span_ns;

		now_ns = sampler->look_ns > now_ns ? sampler->look_ns : now_ns;
		now_ns += late_ns;
		found = has_work(program, now_ns);
		sampler_note_late(sampler, now_ns);
		span_ns = sampler_take(sampler, now_ns, STEP, prng_next(&chance));
		sum_ns += found ? span_ns : 0;
		n_none = found ? 0 : n_none + 1;
		if (n_none < 2)
			continue;
		n_none = 0;
		now_ns = next_work(program, now_ns);
		sampler_resume(sampler, now_ns, now_ns, STEP, prng_next(&chance));
	}
	return sum_ns;
}

static void expect_about(uint64_t got, uint64_t expected, uint64_t permille)
{
	uint64_t off = got > expected ? got - expected : expected - got;

	if (off * 1000 > expected * permille)
		fail_msg("%llu instead of %llu", (unsigned long long)got,
			 (unsigned long long)expected);
}

static const struct program programs[] = {
	{MS, 0},                       /* never ends */
	{500 * US, 500 * US},          /* in step with the looks */
	{100 * US, 900 * US},          /* much shorter than a step */
	{90 * US, 10 * US},            /* most of the time */
	{300 * US, 70 * US},           /* several in a step */
	{1300 * US, 700 * US},         /* in step with two */
	{200 * US, 6 * MS},            /* idle in between, and noticed when it begins */
	{1100 * US, 3 * MS},           /* the same, longer than a step */
	{2500 * US, 2 * MS},           /* its end is in the middle of a step */
	{200 * US, 800 * US + 10 * MS} /* begins a step each time */
};

static void expect_found(uint64_t late_ns, uint64_t permille)
{
	const uint64_t ns = 3000000 * MS; /* chance is below 0.5 % by then */

	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		const struct program *p = &programs[i];
		struct sampler sampler = {0};

		expect_about(look_for(&sampler, p, ns, late_ns),
			     ns / (p->work_ns + p->pause_ns) * p->work_ns, permille);
	}
}

static void finds_what_there_is(void **state)
{
	(void)state;
	expect_found(0, 20);
}

/* A wake-up comes some 60 us after its time; short work would seem shorter by that. */
static void finds_as_much_when_looks_are_late(void **state)
{
	(void)state;
	expect_found(60 * US, 25);
}

static void every_moment_is_stood_for_once(void **state)
{
	struct sampler sampler = {0};
	uint64_t now_ns = 5 * MS, sum_ns = 0;

	(void)state;
	sampler_start(&sampler, now_ns);
	for (uint32_t i = 0; i < 10000; i++) {
		now_ns = sampler.look_ns > now_ns ? sampler.look_ns : now_ns;
		/* Now and then much too late; now and then asked to be earlier. */
		if (prng_below(&chance, 16) == 0)
			now_ns += prng_below(&chance, 9 * MS);
		if (prng_below(&chance, 4) == 0)
			sampler_hurry(&sampler, now_ns - prng_below(&chance, 100 * US));
		sum_ns += sampler_take(&sampler, now_ns, STEP, prng_next(&chance));
		assert_int_equal(sampler.begin_ns - 5 * MS, sum_ns);
		assert_true(sampler.look_ns < sampler.begin_ns + STEP);
		/* Nothing is stood for that is more than a step ahead, or left behind. */
		assert_true(sampler.begin_ns <= now_ns + STEP && sampler.begin_ns + STEP > now_ns);
	}
}

static void a_look_that_is_not_by_chance_stands_for_what_was(void **state)
{
	struct sampler sampler = {0};

	(void)state;
	sampler_start(&sampler, 10 * MS);
	assert_int_equal(sampler_take(&sampler, 10 * MS, STEP, prng_next(&chance)), 0);
	assert_int_equal(sampler.begin_ns, 10 * MS);
	sampler.look_ns = 10 * MS + 900 * US;
	sampler_hurry(&sampler, 10 * MS + 950 * US); /* not earlier */
	assert_false(sampler.is_early);
	sampler_hurry(&sampler, 10 * MS + 300 * US);
	assert_int_equal(sampler_take(&sampler, 10 * MS + 300 * US, STEP, prng_next(&chance)),
			 300 * US);
	assert_int_equal(sampler.begin_ns, 10 * MS + 300 * US);
	/* By chance again, and for a whole step. */
	assert_false(sampler.is_early);
	assert_int_equal(sampler_take(&sampler, sampler.look_ns, STEP, prng_next(&chance)), STEP);
	/* Too late for two more. */
	assert_int_equal(
		sampler_take(&sampler, sampler.look_ns + 2 * STEP, STEP, prng_next(&chance)),
		3 * STEP);
}

/* It stands for the step that it was planned in, and what resumes for its rest. */
static void steps_need_not_be_alike(void **state)
{
	struct sampler sampler = {0};

	(void)state;
	sampler_start(&sampler, 10 * MS);
	assert_int_equal(sampler_take(&sampler, 10 * MS, STEP / 8, prng_next(&chance)), 0);
	assert_in_range(sampler.look_ns, 10 * MS, 10 * MS + STEP / 8 - 1);
	assert_int_equal(sampler_take(&sampler, sampler.look_ns, STEP, prng_next(&chance)),
			 STEP / 8);
	assert_int_equal(sampler.begin_ns, 10 * MS + STEP / 8);
	sampler_resume(&sampler, 10 * MS + STEP / 8, 10 * MS + STEP / 8, STEP / 8, 0);
	assert_int_equal(sampler.begin_ns, 10 * MS + STEP / 8);
	assert_int_equal(sampler_take(&sampler, sampler.look_ns, STEP / 8, prng_next(&chance)),
			 STEP);
	assert_int_equal(sampler.begin_ns, 11 * MS + STEP / 8);
}

static void what_begins_in_a_step_is_of_that_step(void **state)
{
	struct sampler sampler = {
		.begin_ns = 10 * MS,
		.step_ns = STEP,
		.at_ns = 10 * MS + 600 * US,
		.look_ns = 10 * MS + 550 * US,
	};

	(void)state;
	/* Its look is to come. */
	sampler_resume(&sampler, 10 * MS + 200 * US, 10 * MS + 200 * US, STEP, prng_next(&chance));
	assert_int_equal(sampler.begin_ns, 10 * MS);
	assert_int_equal(sampler.look_ns, 10 * MS + 550 * US);
	/* It is due, but of a moment in which there is work. */
	sampler_resume(&sampler, 10 * MS + 580 * US, 10 * MS + 590 * US, STEP, prng_next(&chance));
	assert_int_equal(sampler.begin_ns, 10 * MS);
	assert_int_equal(sampler.look_ns, 10 * MS + 550 * US);
	/* It would have found nothing: the next step. */
	sampler_resume(&sampler, 10 * MS + 700 * US, 10 * MS + 700 * US, STEP, prng_next(&chance));
	assert_int_equal(sampler.begin_ns, 11 * MS);
	assert_in_range(sampler.look_ns, 11 * MS, 12 * MS - 1);
	/* It has been: the same step, which begins later. */
	sampler_resume(&sampler, 10 * MS + 900 * US, 10 * MS + 900 * US, STEP, prng_next(&chance));
	assert_int_equal(sampler.begin_ns, 11 * MS);
	/* Unless that is forgotten. */
	sampler_forget(&sampler);
	sampler_resume(&sampler, 11 * MS + 100 * US, 11 * MS + 100 * US, STEP, prng_next(&chance));
	assert_int_equal(sampler.begin_ns, 11 * MS + 100 * US);
	/* Long after: a new one. */
	sampler_resume(&sampler, 20 * MS + 1, 20 * MS + 50 * US, STEP, prng_next(&chance));
	assert_int_equal(sampler.begin_ns, 20 * MS + 1);
	assert_in_range(sampler.look_ns, 20 * MS + 1, 21 * MS);
}

static void a_look_of_a_moment_that_has_passed_is_behind(void **state)
{
	struct sampler sampler = {0};
	const uint64_t begin_ns = 10 * MS, now_ns = begin_ns + 100 * US;

	(void)state;
	sampler_resume(&sampler, begin_ns, now_ns, STEP, 99 * US);
	assert_true(sampler.is_behind);
	assert_false(sampler.is_ahead);
	/* It stands for its step, and no other. */
	assert_int_equal(sampler_take(&sampler, now_ns, STEP, 0), STEP);
	sampler_forget(&sampler);
	sampler_resume(&sampler, begin_ns, now_ns, STEP, 101 * US);
	assert_false(sampler.is_behind);
	/* One that was planned before may be behind when work begins late in its step. */
	sampler_resume(&sampler, begin_ns + 50 * US, begin_ns + 150 * US, STEP, 0);
	assert_int_equal(sampler.at_ns, begin_ns + 101 * US);
	assert_true(sampler.is_behind);
	assert_false(sampler.is_ahead);
	sampler_hurry(&sampler, begin_ns + 60 * US);
	assert_int_equal(sampler.at_ns, begin_ns + 60 * US);
	assert_false(sampler.is_behind);
}

static void time_off_is_none(void **state)
{
	struct sampler sampler = {0};
	uint64_t look_ns;

	(void)state;
	sampler_start(&sampler, 10 * MS);
	(void)sampler_take(&sampler, 10 * MS, STEP, prng_next(&chance));
	look_ns = sampler.look_ns;
	sampler_skip(&sampler, 7 * MS);
	assert_int_equal(sampler.begin_ns, 17 * MS);
	assert_int_equal(sampler.look_ns, look_ns + 7 * MS);
	assert_int_equal(sampler_take(&sampler, sampler.look_ns, STEP, prng_next(&chance)), STEP);
}

static void only_planned_looks_are_late(void **state)
{
	struct sampler sampler = {0};

	(void)state;
	sampler_start(&sampler, 10 * MS);
	sampler_note_late(&sampler, 10 * MS + 80 * US);
	assert_int_equal(sampler.late_ns, 0);
	sampler.is_ahead = true;
	sampler_note_late(&sampler, 10 * MS + SAMPLER_LATE_NS_MAX); /* the machine was busy */
	assert_int_equal(sampler.late_ns, 0);
	for (uint32_t i = 0; i < 100; i++)
		sampler_note_late(&sampler, 10 * MS + 80 * US);
	expect_about(sampler.late_ns, 80 * US, 5);
	/* Not before the beginning of all time. */
	sampler.begin_ns = 0;
	sampler_resume(&sampler, 1, 1, 2, 0);
	assert_int_equal(sampler.look_ns, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds_what_there_is),
		cmocka_unit_test(finds_as_much_when_looks_are_late),
		cmocka_unit_test(every_moment_is_stood_for_once),
		cmocka_unit_test(a_look_that_is_not_by_chance_stands_for_what_was),
		cmocka_unit_test(steps_need_not_be_alike),
		cmocka_unit_test(what_begins_in_a_step_is_of_that_step),
		cmocka_unit_test(a_look_of_a_moment_that_has_passed_is_behind),
		cmocka_unit_test(time_off_is_none),
		cmocka_unit_test(only_planned_looks_are_late),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
