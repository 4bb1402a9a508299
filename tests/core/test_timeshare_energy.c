/* SPDX-License-Identifier: Apache-2.0 */

/* What clients' work costs in energy, and which holds are worth theirs. */

#include "time_rig.h"

#include "core/timeshare/energy.h"

static struct time_rig rig;

enum { LC, BE };

#define WATT 1000u /* mW */

static int set_up(void **state)
{
	(void)state;
	time_rig_init(&rig);
	return 0;
}

static int power(uint32_t gpu, uint64_t mw)
{
	return time_rig_step(&rig, (struct timeshare_event){
					   .type = TIMESHARE_EVENT_POWER, .gpu = gpu, .value = mw});
}

/* ---- whose energy ---------------------------------------------------------- */

static uint64_t joules(uint32_t client)
{
	struct timeshare_client_status status;

	timeshare_client_status(&rig.share, client, &status);
	return status.energy_uj / 1000000;
}

static void compute(uint32_t client, uint64_t ns)
{
	uint64_t busy_ns = rig.clients[client].usage.busy_ns + ns;

	time_rig_in(&rig, ns);
	assert_int_equal(
		time_rig_step(&rig, (struct timeshare_event){.type = TIMESHARE_EVENT_ACTIVITY,
							     .client = client,
							     .activity = TIMESHARE_ACTIVITY_USE,
							     .busy_ns = busy_ns}),
		0);
}

static void energy_is_power_times_gpu_time(void **state)
{
	(void)state;
	time_rig_join(&rig, BE, TIMESHARE_CLASS_NORMAL, 100);
	compute(BE, 2 * S);
	assert_int_equal(joules(BE), 0); /* the power is not known */
	assert_int_equal(power(0, 300 * WATT), 0);
	assert_int_equal(joules(BE), 600);
	compute(BE, 3 * S);
	assert_int_equal(joules(BE), 1500);
	assert_int_equal(power(1, 700 * WATT), 0); /* another one */
	assert_int_equal(power(0, 100 * WATT), 0);
	assert_int_equal(joules(BE), 1500);
	compute(BE, 3 * S);
	assert_int_equal(joules(BE), 1800);
	time_rig_in(&rig, 100 * S); /* without work */
	assert_int_equal(joules(BE), 1800);
}

static void what_is_shared_adds_up(void **state)
{
	uint64_t sum;

	(void)state;
	time_rig_join(&rig, 0, TIMESHARE_CLASS_NORMAL, 100);
	time_rig_join(&rig, 1, TIMESHARE_CLASS_NORMAL, 300);
	time_rig_busy(&rig, 0);
	time_rig_busy(&rig, 1);
	assert_int_equal(power(0, 500 * WATT), 0);
	for (uint32_t i = 0; i < 100; i++) {
		uint64_t busy_ns = rig.clients[0].usage.busy_ns + 100 * MS;

		compute(1, 100 * MS);
		assert_int_equal(
			time_rig_step(&rig,
				      (struct timeshare_event){.type = TIMESHARE_EVENT_ACTIVITY,
							       .activity = TIMESHARE_ACTIVITY_USE,
							       .busy_ns = busy_ns}),
			0);
	}
	sum = joules(0) + joules(1);
	assert_in_range(sum, 4900, 5000);
	assert_in_range(joules(0), 1200, 1300);
}

static void what_is_corrected_is_not_paid_twice(void **state)
{
	struct timeshare_client *c = &rig.clients[BE];

	(void)state;
	time_rig_join(&rig, BE, TIMESHARE_CLASS_NORMAL, 100);
	assert_int_equal(power(0, 100 * WATT), 0);
	c->usage.gpu_ns = 5 * S;
	energy_charge(&rig.share, BE);
	assert_int_equal(joules(BE), 500);
	c->usage.gpu_ns = 4 * S;
	energy_charge(&rig.share, BE);
	c->usage.gpu_ns = 5 * S;
	energy_charge(&rig.share, BE);
	assert_int_equal(joules(BE), 500);
	c->usage.gpu_ns = 6 * S;
	energy_charge(&rig.share, BE);
	assert_int_equal(joules(BE), 600);
}

static void power_that_can_not_be_is_refused(void **state)
{
	(void)state;
	assert_int_equal(power(0, TIMESHARE_POWER_MAX), 0);
	assert_int_equal(power(0, TIMESHARE_POWER_MAX + 1), TIMESHARE_E_VALUE);
	assert_int_equal(power(TIMESHARE_GPUS_MAX, WATT), TIMESHARE_E_NO_GPU);
	assert_int_equal(rig.share.gpus[0].power_mw, TIMESHARE_POWER_MAX);
}

/* ---- which holds ----------------------------------------------------------- */

struct row {
	uint32_t watt;
	uint32_t mean_us, part; /* of 1024: its kernels run */
	uint32_t slo_us, tail_us;
	uint64_t slice_us; /* its own */
	bool is_held;
};

static void saving_node(const struct row *row)
{
	struct timeshare_client *c = &rig.clients[LC];

	time_rig_init(&rig);
	rig.config.is_saving = true;
	rig.config.be_slice_us = 200;
	assert_int_equal(time_rig_config(&rig), 0);
	assert_int_equal(
		time_rig_step(&rig, (struct timeshare_event){.type = TIMESHARE_EVENT_JOIN,
							     .client = LC,
							     .claim = {TIMESHARE_CLASS_CRITICAL,
								       100, row->slo_us, 0}}),
		0);
	time_rig_run(&rig, LC, true);
	time_rig_join(&rig, BE, TIMESHARE_CLASS_NORMAL, 100);
	time_rig_busy(&rig, BE);
	assert_int_equal(power(0, row->watt * WATT), 0);
	/* Holding has been the better one, as far as latency goes. */
	time_rig_arm(&rig, LC, TIMESHARE_ARM_HOLD);
	for (int i = 0; i < TIMESHARE_WARNINGS_; i++) {
		c->arms[i].n[TIMESHARE_ARM_SLICES] = 2;
		c->arms[i].ns[TIMESHARE_ARM_SLICES][0] = row->tail_us * 1000;
		c->arms[i].ns[TIMESHARE_ARM_SLICES][1] = row->tail_us * 1000;
		c->arms[i].calls = 256;
	}
	c->pace.mean_ns = row->mean_us * US;
	c->usage.part = row->part;
	c->told.slice_us = row->slice_us;
}

static const struct row rows[] = {
	/* Two switches in both: nothing is gained. */
	{300, 12000, 1024, 0, 50000, 5000000, false},
	{300, 12000, 512, 0, 50000, 5000000, false},
	{300, 0, 0, 0, 0, 5000000, false},
	/* The SLO. */
	{300, 12000, 1024, 15000, 15000, 5000000, false},
	{300, 12000, 1024, 15000, 15001, 5000000, true},
	{300, 12000, 32, 15000, 15001, 5000000, true},
	{0, 12000, 32, 15000, 15001, 5000000, true},
	{0, 12000, 32, 15000, 15000, 5000000, false},
	/* Short slices: 22 switches of 60.88 mJ, or two and what it leaves unused. */
	{300, 12000, 1024, 0, 50000, 1000, true},
	{300, 12000, 678, 0, 50000, 1000, true},
	{300, 12000, 677, 0, 50000, 1000, false},
	{300, 1100, 1024, 0, 50000, 1000, false},
	{300, 1200, 1024, 0, 50000, 1000, true},
	/* Without the power only what is moved counts. */
	{0, 12000, 32, 0, 50000, 1000, true},
};

static void holds_are_for_the_slo_or_to_save(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		saving_node(&rows[i]);
		time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
		assert_int_equal(time_rig_is_held(&rig, BE), rows[i].is_held);
		saving_node(&rows[i]);
		time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_HINT, 100 * US);
		assert_int_equal(time_rig_is_held(&rig, BE), rows[i].is_held);
		/* Unasked, the one with the shorter tail. */
		saving_node(&rows[i]);
		rig.config.is_saving = false;
		assert_int_equal(time_rig_config(&rig), 0);
		time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
		assert_true(time_rig_is_held(&rig, BE));
	}
}

/* Breaks its SLO, and leaves the GPU unused while it holds: 3.6 J. */
static const struct row costly = {300, 12288, 48, 10000, 15000, 5000000, true};

static bool burst_holds_others(void)
{
	bool is_held;

	time_rig_arm(&rig, LC, TIMESHARE_ARM_HOLD);
	rig.clients[LC].usage.part = costly.part;
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	is_held = time_rig_is_held(&rig, BE);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_END, costly.mean_us * US);
	rig.clients[LC].pace.mean_ns = costly.mean_us * US;
	return is_held;
}

static void holds_are_paid_from_the_budget(void **state)
{
	(void)state;
	saving_node(&costly);
	for (uint32_t i = 0; i < 100; i++)
		assert_true(burst_holds_others()); /* there is none */
	rig.config.energy_budget_w = 1;
	assert_int_equal(time_rig_config(&rig), 0);
	/* Ten joules, of which 3.5136 go each time. */
	assert_true(burst_holds_others());
	assert_true(burst_holds_others());
	assert_false(burst_holds_others());
	time_rig_in(&rig, 541 * MS); /* 2.9728 are left */
	assert_true(burst_holds_others());
	assert_false(burst_holds_others());
	/* No more than ten seconds are saved up. */
	time_rig_in(&rig, 3600 * S);
	time_rig_does(&rig, BE, TIMESHARE_ACTIVITY_USE, 0);
	assert_true(burst_holds_others());
	assert_true(burst_holds_others());
	assert_false(burst_holds_others());
}

static void what_saves_costs_no_budget(void **state)
{
	static const struct row saves = {300, 12000, 1024, 0, 50000, 1000, true};

	(void)state;
	saving_node(&saves);
	rig.config.energy_budget_w = 1;
	assert_int_equal(time_rig_config(&rig), 0);
	for (uint32_t i = 0; i < 1000; i++) {
		time_rig_arm(&rig, LC, TIMESHARE_ARM_HOLD);
		rig.clients[LC].usage.part = saves.part;
		rig.clients[LC].told.slice_us = saves.slice_us;
		time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
		assert_true(time_rig_is_held(&rig, BE));
		time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_END, saves.mean_us * US);
	}
	assert_int_equal(rig.share.gpus[0].budget_uj, 10000000);
}

static void the_other_one_is_tried_now_and_then(void **state)
{
	static const struct row slices = {300, 12000, 1024, 0, 5000, 5000000, false};
	static const struct row hold = {300, 12000, 1024, 1000, 5000, 5000000, true};
	const struct row *both[] = {&slices, &hold};
	struct timeshare_arm *arm = &rig.clients[LC].arms[TIMESHARE_WARNING_PAUSE];

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		saving_node(both[i]);
		for (int k = 0; k < TIMESHARE_WARNINGS_; k++)
			rig.clients[LC].arms[k].n_bursts = 1024;
		time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
		assert_int_equal(time_rig_is_held(&rig, BE), !both[i]->is_held);
		/* The first ones take turns. */
		for (uint32_t n = 0; n < 64; n++) {
			saving_node(both[i]);
			arm->n_noted = n;
			arm->n[TIMESHARE_ARM_HOLD] = (n + 1) / 2;
			arm->n[TIMESHARE_ARM_SLICES] = n / 2;
			time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
			assert_int_equal(time_rig_is_held(&rig, BE), n % 2 == 0);
		}
		saving_node(both[i]);
		arm->n_bursts = 32;
		time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
		assert_int_equal(time_rig_is_held(&rig, BE), both[i]->is_held);
	}
}

static void a_budget_that_can_not_be_is_refused(void **state)
{
	(void)state;
	rig.config.energy_budget_w = 10001;
	assert_int_equal(time_rig_config(&rig), TIMESHARE_E_VALUE);
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(energy_is_power_times_gpu_time),
		TEST(what_is_shared_adds_up),
		TEST(what_is_corrected_is_not_paid_twice),
		TEST(power_that_can_not_be_is_refused),
		TEST(holds_are_for_the_slo_or_to_save),
		TEST(holds_are_paid_from_the_budget),
		TEST(what_saves_costs_no_budget),
		TEST(the_other_one_is_tried_now_and_then),
		TEST(a_budget_that_can_not_be_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
