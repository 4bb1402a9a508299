/* SPDX-License-Identifier: Apache-2.0 */

/* What clients claim of the GPU's time, and what they are charged for. */

#include "rig.h"

static struct rig rig;

static int set_up(void **state)
{
	(void)state;
	rig_init(&rig);
	return 0;
}

static void a_claim_out_of_range_is_refused(void **state)
{
	static const struct sched_claim bad[] = {
		{.priority = SCHED_PRIORITY_COUNT_},
		{.weight = SCHED_WEIGHT_MAX + 1},
		{.slo_ns = SCHED_SLO_NS_MAX + 1},
	};
	const struct sched_claim good = {SCHED_PRIORITY_CRITICAL, SCHED_WEIGHT_MAX,
					 SCHED_SLO_NS_MAX};
	struct sched_event join = {.type = SCHED_EVENT_JOIN, .client = 1};
	struct sched_event claim = {.type = SCHED_EVENT_CLAIM};

	(void)state;
	rig_run(&rig, 0, 10);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		join.claim = bad[i];
		assert_int_equal(rig_step(&rig, join), SCHED_E_CONFIG);
		assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_FREE);
		claim.claim = bad[i];
		assert_int_equal(rig_step(&rig, claim), SCHED_E_CONFIG);
	}
	claim.claim = good;
	assert_int_equal(rig_step(&rig, claim), 0);
	assert_int_equal(rig_status(&rig, 0).claim.priority, SCHED_PRIORITY_CRITICAL);
	assert_int_equal(rig_status(&rig, 0).claim.slo_ns, SCHED_SLO_NS_MAX);
	claim.claim.weight = 0;
	assert_int_equal(rig_step(&rig, claim), 0);
	assert_int_equal(rig_status(&rig, 0).claim.weight, SCHED_WEIGHT_DEFAULT);
}

static void used_gpu_time_adds_up(void **state)
{
	struct sched_event used = {.type = SCHED_EVENT_USED, .gpu_ns = 3 * S};

	(void)state;
	rig_run(&rig, 0, 10);
	assert_int_equal(rig_step(&rig, used), 0);
	used.gpu_ns = UINT64_MAX;
	assert_int_equal(rig_step(&rig, used), 0);
	assert_int_equal(rig_status(&rig, 0).used_ns, 86403 * S);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_claim_out_of_range_is_refused, set_up),
		cmocka_unit_test_setup(used_gpu_time_adds_up, set_up),
	};

	return cmocka_run_group_tests_name("core/sched_claim", tests, NULL, NULL);
}
