/* SPDX-License-Identifier: Apache-2.0 */

/* Placement: each part of a score, each reason, the order of the GPUs, the models they remember. */

#include "core/place/place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define S   1000000000ull

static struct place place;
static struct place_score scores[PLACE_GPUS_MAX];
static uint64_t now = 10000 * S;

static struct place_name name_of(const char *text)
{
	struct place_name name;

	assert_int_equal(place_name_set(text, strlen(text), &name), 0);
	return name;
}

/* n cards of 80 GiB, idle and cold; no margin but what the test sets. */
static void place_reset(enum place_preset preset, uint32_t n)
{
	struct place_config config;

	place_config_default(preset, &config);
	assert_null(place_config_check(&config));
	config.margin_bytes = 0;
	place_init(&place, &config);
	for (uint32_t i = 0; i < n; i++)
		place.gpu[i].facts = (struct place_gpu){.is_known = true, .total = 80 * GIB};
}

static struct place_request request_of(uint64_t gib)
{
	return (struct place_request){.need = gib * GIB, .gpu = PLACE_ANY};
}

static uint32_t choose(struct place_request request)
{
	return place_choose(&place, &request, now, scores);
}

/* ---- the score ------------------------------------------------------------------- */

static void the_balanced_score_adds_up_its_five_parts(void **state)
{
	struct place_request request = request_of(1);
	struct place_gpu *facts;

	(void)state;
	place_reset(PLACE_PRESET_BALANCED, 1);
	facts = &place.gpu[0].facts;
	(void)choose(request);
	assert_int_equal(scores[0].sum, (40 + 30 + 20) * 1000);
	facts->others = 20 * GIB;
	facts->external = 10 * GIB;
	place.gpu[0].load.charged = 10 * GIB;
	facts->utilization = 25;
	facts->temperature = 60;
	facts->idle_ns = 300 * S;
	request.model = name_of("m");
	(void)choose(request);
	assert_int_equal(scores[0].free, 40 * GIB);
	assert_int_equal(scores[0].affinity, 50000);
	assert_int_equal(scores[0].by_free, 20000);
	assert_int_equal(scores[0].by_utilization, 22500);
	assert_int_equal(scores[0].by_temperature, 8000);
	assert_int_equal(scores[0].by_idle, 5000);
	assert_int_equal(scores[0].sum, 105500);
	place_model_begin(&place, 0, &request.model, now);
	(void)choose(request);
	assert_int_equal(scores[0].affinity, 100000);
}

static void the_simple_score_counts_model_free_bytes_and_coolness(void **state)
{
	struct place_request request = request_of(1);

	(void)state;
	place_reset(PLACE_PRESET_SIMPLE, 1);
	request.model = name_of("m");
	place.gpu[0].facts.total = 40000 * MIB;
	place.gpu[0].facts.others = 15500 * MIB;
	place.gpu[0].facts.temperature = 45;
	place.gpu[0].facts.utilization = 90;
	place.gpu[0].facts.idle_ns = 1000 * S;
	(void)choose(request);
	assert_int_equal(scores[0].sum, 24500 + 5500); /* 24500 / 1000, and 55 / 10 */
	place_model_begin(&place, 0, &request.model, now);
	(void)choose(request);
	assert_int_equal(scores[0].sum, 100000 + 24500 + 5500);
}

static void a_fact_that_is_not_known_counts_half(void **state)
{
	(void)state;
	place_reset(PLACE_PRESET_BALANCED, 1);
	place.gpu[0].facts.utilization = PLACE_UNKNOWN;
	place.gpu[0].facts.temperature = PLACE_UNKNOWN;
	(void)choose(request_of(1));
	assert_int_equal(scores[0].by_utilization, 15000);
	assert_int_equal(scores[0].by_temperature, 10000);
	place.gpu[0].facts.utilization = 101;
	place.gpu[0].facts.temperature = 150;
	place.gpu[0].facts.idle_ns = UINT64_MAX;
	(void)choose(request_of(1));
	assert_int_equal(scores[0].by_utilization, 0);
	assert_int_equal(scores[0].by_temperature, 0);
	assert_int_equal(scores[0].by_idle, 10000);
}

static void every_part_keeps_its_size_at_the_limits(void **state)
{
	struct place_config *c;

	(void)state;
	place_reset(PLACE_PRESET_BALANCED, 1);
	c = &place.config;
	c->weight_free = c->weight_utilization = c->weight_temperature = c->weight_idle =
		PLACE_WEIGHT_MAX;
	c->weight_free_gb = 100;
	c->idle_full_ns = 86400 * S;
	assert_null(place_config_check(c));
	place.gpu[0].facts.total = PLACE_BYTES_MAX;
	place.gpu[0].facts.idle_ns = UINT64_MAX;
	(void)choose(request_of(1));
	assert_int_equal(scores[0].by_free, 1000000 + PLACE_BYTES_MAX / MIB * 100);
	assert_int_equal(scores[0].by_utilization, 1000000);
	assert_int_equal(scores[0].by_temperature, 1000000);
	assert_int_equal(scores[0].by_idle, 1000000);
}

/* ---- reasons --------------------------------------------------------------------- */

static void the_margin_is_a_part_of_the_card_or_the_reserve(void **state)
{
	static const struct {
		uint64_t total_mib, reserve_mib, margin_mib;
	} table[] = {
		{80000, 0, 2000},   {80000, 4000, 4000}, {16000, 0, 1600},
		{16000, 800, 1600}, {20000, 0, 2000},    {0, 0, 0},
	};

	(void)state;
	place_reset(PLACE_PRESET_BALANCED, 1);
	place.config.margin_bytes = 2000 * MIB;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct place_request request = {.gpu = PLACE_ANY, .need = 1};
		uint64_t most = (table[i].total_mib - table[i].margin_mib) * MIB;

		place.gpu[0].facts.total = table[i].total_mib * MIB;
		place.gpu[0].facts.reserve = table[i].reserve_mib * MIB;
		if (most)
			request.need = most;
		assert_int_equal(choose(request), most ? 0 : PLACE_NONE);
		assert_in_range(scores[0].margin, (table[i].margin_mib * MIB) / 1024 * 1023,
				table[i].margin_mib * MIB);
		request.need = most + 100; /* the percentage is rounded down by less than this */
		assert_int_equal(choose(request), PLACE_NONE);
		assert_int_equal(scores[0].reason, PLACE_TOO_SMALL);
	}
}

/* GPU 0 has exactly one fault each time; the reasons before it do not hold. */
static void each_reason_excludes_a_gpu(void **state)
{
	struct place_request request;

	(void)state;
	for (int reason = PLACE_OK; reason < PLACE_REASON_COUNT_; reason++) {
		struct place_slot *slot = &place.gpu[0];

		place_reset(PLACE_PRESET_BALANCED, 2);
		request = request_of(60);
		slot->load.n_jobs = 2;
		slot->facts.degree = 4;
		switch ((enum place_reason)reason) {
		case PLACE_OK:
			break;
		case PLACE_NO_GPU:
			slot->facts.is_known = false;
			break;
		case PLACE_NOT_ASKED:
			request.gpu = 1;
			break;
		case PLACE_NOT_IN_SET:
			place.config.allowed = 2;
			break;
		case PLACE_RESERVED:
			place.config.reserved = 1;
			break;
		case PLACE_TOO_SMALL:
			slot->facts.total = 59 * GIB;
			break;
		case PLACE_OUT:
			slot->facts.is_out = true;
			break;
		case PLACE_APART:
			request.apart = 1;
			break;
		case PLACE_FULL:
			slot->facts.n_others = 2;
			break;
		case PLACE_NO_ROOM:
			request.is_whole = true;
			slot->load.charged = 21 * GIB;
			break;
		case PLACE_BOOKED:
			request.booked = 1;
			break;
		case PLACE_REASON_COUNT_:
			break;
		}
		slot->facts.idle_ns = UINT64_MAX; /* the better one, if it can be chosen */
		assert_int_equal(choose(request), reason == PLACE_OK ? 0 : 1);
		assert_int_equal(scores[0].reason, reason);
		assert_int_equal(scores[1].reason, PLACE_OK);
		assert_int_equal(scores[2].reason, PLACE_NO_GPU);
		assert_string_not_equal(place_reason_text((enum place_reason)reason), "unknown");
	}
}

static void a_job_takes_turns_as_far_as_the_sharing_degree_allows(void **state)
{
	static const struct {
		uint32_t degree, n_others, n_jobs;
		bool is_fit, is_whole;
		enum place_reason reason;
	} table[] = {
		{4, 1, 2, false, false, PLACE_OK},      {4, 1, 3, false, false, PLACE_FULL},
		{4, 1, 3, true, false, PLACE_FULL},     {4, 1, 2, false, true, PLACE_NO_ROOM},
		{1, 0, 0, false, false, PLACE_OK},      {1, 0, 1, true, false, PLACE_FULL},
		{0, 0, 3, false, false, PLACE_OK},      {0, 0, 4, false, false, PLACE_NO_ROOM},
		{0, 1, 3, false, false, PLACE_NO_ROOM}, {0, 50, 50, true, false, PLACE_OK},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct place_request request = request_of(60);

		place_reset(PLACE_PRESET_BALANCED, 1);
		request.is_whole = table[i].is_whole;
		place.gpu[0].facts.degree = table[i].degree;
		place.gpu[0].facts.n_others = table[i].n_others;
		place.gpu[0].load.n_jobs = table[i].n_jobs;
		place.gpu[0].load.charged = table[i].is_fit ? 20 * GIB : 20 * GIB + 1;
		(void)choose(request);
		assert_int_equal(scores[0].is_fit, table[i].is_fit);
		assert_int_equal(scores[0].reason, table[i].reason);
	}
}

static void nobody_takes_turns_with_bytes_of_others_than_clients(void **state)
{
	(void)state;
	place_reset(PLACE_PRESET_BALANCED, 1);
	place.gpu[0].facts.others = 70 * GIB;
	place.gpu[0].facts.external = 20 * GIB;
	assert_int_equal(choose(request_of(60)), 0);
	place.gpu[0].facts.external++;
	assert_int_equal(choose(request_of(60)), PLACE_NONE);
	assert_int_equal(scores[0].reason, PLACE_NO_ROOM);
}

static void nobody_takes_turns_with_bytes_of_critical_programs(void **state)
{
	(void)state;
	place_reset(PLACE_PRESET_BALANCED, 1);
	place.gpu[0].facts.others = 70 * GIB;
	place.gpu[0].facts.critical = 12 * GIB;
	place.gpu[0].load =
		(struct place_load){.charged = 40 * GIB, .critical = 8 * GIB, .n_jobs = 2};
	assert_int_equal(choose(request_of(60)), 0);
	place.gpu[0].facts.critical++;
	assert_int_equal(choose(request_of(60)), PLACE_NONE);
	assert_int_equal(scores[0].reason, PLACE_NO_ROOM);
	place.gpu[0].facts.critical--;
	place.gpu[0].load.critical++;
	assert_int_equal(choose(request_of(60)), PLACE_NONE);
}

static void a_gpu_that_jobs_will_leave_can_be_waited_for(void **state)
{
	struct place_request request = request_of(60);

	(void)state;
	place_reset(PLACE_PRESET_BALANCED, 1);
	request.is_whole = true;
	request.apart = request.booked = 1;
	place.gpu[0].load = (struct place_load){.charged = 50 * GIB, .n_jobs = 1};
	place.gpu[0].facts.degree = 1;
	assert_true(place_can_empty(&place, 0, &request));
	place.gpu[0].facts.others = 20 * GIB;
	assert_true(place_can_empty(&place, 0, &request));
	place.gpu[0].facts.others = 21 * GIB;
	assert_false(place_can_empty(&place, 0, &request));
	place.gpu[0].facts.others = 0;
	place.gpu[0].facts.n_others = 1;
	assert_false(place_can_empty(&place, 0, &request));
	assert_false(place_can_empty(&place, 1, &request));
}

/* Whether the bytes of critical jobs count follows from the load that is asked about. */
static void turns_beside_critical_jobs_depend_on_the_load_that_is_given(void **state)
{
	static const struct {
		uint64_t running_gib, given_gib; /* of critical jobs */
		bool can;
	} rows[] = {{0, 0, true},  {0, 20, true},  {0, 21, false},
		    {21, 0, true}, {21, 20, true}, {21, 21, false}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct place_load load = {.n_jobs = 1, .critical = rows[i].given_gib * GIB};
		struct place_request request = request_of(60);

		place_reset(PLACE_PRESET_BALANCED, 1);
		place.gpu[0].facts.others = 70 * GIB;
		place.gpu[0].load.critical = rows[i].running_gib * GIB;
		assert_int_equal(place_can_beside(&place, 0, &load, &request), rows[i].can);
		assert_true(place_can_empty(&place, 0, &request));
	}
}

static void the_reason_for_all_is_the_one_that_may_end_first(void **state)
{
	(void)state;
	memset(scores, 0, sizeof(scores));
	for (int i = 0; i < PLACE_GPUS_MAX; i++)
		scores[i].reason = PLACE_NO_GPU;
	assert_int_equal(place_reason_of(scores), PLACE_NO_GPU);
	scores[3].reason = PLACE_NOT_ASKED;
	assert_int_equal(place_reason_of(scores), PLACE_NOT_ASKED);
	scores[15].reason = PLACE_TOO_SMALL;
	assert_int_equal(place_reason_of(scores), PLACE_TOO_SMALL);
	scores[4].reason = PLACE_OUT;
	assert_int_equal(place_reason_of(scores), PLACE_OUT);
	scores[5].reason = PLACE_FULL;
	assert_int_equal(place_reason_of(scores), PLACE_FULL);
	scores[0].reason = PLACE_NO_ROOM;
	assert_int_equal(place_reason_of(scores), PLACE_NO_ROOM);
	scores[1].reason = PLACE_BOOKED;
	assert_int_equal(place_reason_of(scores), PLACE_BOOKED);
}

/* ---- the order ------------------------------------------------------------------- */

static void the_best_gpu_is_chosen(void **state)
{
	(void)state;
	place_reset(PLACE_PRESET_BALANCED, 4);
	assert_int_equal(choose(request_of(10)), 0); /* a tie */
	place.gpu[2].facts.idle_ns = S;
	assert_int_equal(choose(request_of(10)), 2);
	/* Where it fits stands before where it would take turns, whatever the score. */
	place.gpu[2].load = (struct place_load){.charged = 71 * GIB, .n_jobs = 1};
	place.gpu[1].load.n_jobs = 3;
	place.gpu[1].facts.temperature = 100;
	for (int i = 0; i < 4; i++)
		place.gpu[i].facts.utilization = i == 2 ? 0 : 100;
	place.gpu[0].facts.others = place.gpu[3].facts.others = 71 * GIB;
	assert_int_equal(choose(request_of(10)), 1);
	/* Where it takes turns, few stand before many. */
	place.gpu[1].load.charged = 71 * GIB;
	place.gpu[0].facts.n_others = 1;
	place.gpu[3].facts.n_others = 2;
	assert_int_equal(choose(request_of(10)), 2);
	place.gpu[2].load.n_jobs = 2;
	assert_int_equal(choose(request_of(10)), 0);
}

/* ---- models ---------------------------------------------------------------------- */

static uint64_t affinity(const char *model)
{
	struct place_request request = request_of(1);

	request.model = name_of(model);
	(void)choose(request);
	return scores[0].affinity / 1000;
}

static void model_ran(const char *model)
{
	struct place_name name = name_of(model);

	place_model_begin(&place, 0, &name, now);
	place_model_end(&place, 0, &name, now);
}

static void a_gpu_remembers_two_models_the_least_recently_used_one_goes(void **state)
{
	(void)state;
	place_reset(PLACE_PRESET_BALANCED, 1);
	assert_int_equal(affinity("a"), 50);
	model_ran("a");
	assert_int_equal(affinity("a"), 100);
	assert_int_equal(affinity("b"), 50);
	model_ran("b");
	assert_int_equal(affinity("c"), 0);
	model_ran("a");
	model_ran("c");
	assert_int_equal(affinity("a"), 100);
	assert_int_equal(affinity("b"), 0);
	assert_int_equal(affinity("c"), 100);
	assert_int_equal(affinity(""), 0);
	model_ran("");
	assert_int_equal(place.gpu[0].n_models, 2);
	place_model_forget(&place, 0);
	assert_int_equal(affinity("a"), 50);
}

static void a_model_is_forgotten_an_hour_after_its_last_job(void **state)
{
	struct place_name name = name_of("a");

	(void)state;
	place_reset(PLACE_PRESET_BALANCED, 1);
	place_model_begin(&place, 0, &name, now);
	now += 7200 * S;
	assert_int_equal(affinity("a"), 100); /* it runs */
	place_model_end(&place, 0, &name, now);
	now += 3600 * S - 1;
	assert_int_equal(affinity("a"), 100);
	assert_int_equal(affinity("b"), 50);
	now++;
	assert_int_equal(affinity("a"), 50);
	model_ran("b");
	assert_int_equal(affinity("c"), 50); /* a is still listed, but counts no more */
}

static void a_model_that_runs_is_forgotten_last(void **state)
{
	struct place_name a = name_of("a"), b = name_of("b");

	(void)state;
	place_reset(PLACE_PRESET_BALANCED, 1);
	place_model_begin(&place, 0, &a, now);
	model_ran("b");
	model_ran("c");
	assert_int_equal(affinity("a"), 100);
	assert_int_equal(affinity("b"), 0);
	place_model_begin(&place, 0, &b, now); /* both run: the older one goes */
	model_ran("d");
	place_model_end(&place, 0, &a, now); /* it was forgotten */
	assert_int_equal(affinity("a"), 100);
	for (uint32_t i = 0; i < place.gpu[0].n_models; i++)
		assert_true(place.gpu[0].models[i].n_jobs <= 1);
}

static void fewer_models_are_remembered_when_the_configuration_says_so(void **state)
{
	(void)state;
	place_reset(PLACE_PRESET_BALANCED, 1);
	model_ran("a");
	model_ran("b");
	place.config.models_max = 1;
	assert_int_equal(affinity("a"), 0);
	assert_int_equal(affinity("b"), 100);
	model_ran("c");
	assert_int_equal(place.gpu[0].n_models, 1);
	assert_int_equal(affinity("c"), 100);
}

static void a_config_out_of_range_is_named(void **state)
{
	struct place_config config;

	(void)state;
	place_config_default(PLACE_PRESET_BALANCED, &config);
	config.weight_idle = PLACE_WEIGHT_MAX + 1;
	assert_string_equal(place_config_check(&config), "weight_idle");
	place_config_default(PLACE_PRESET_SIMPLE, &config);
	assert_null(place_config_check(&config));
	config.models_max = 0;
	assert_string_equal(place_config_check(&config), "models_max");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_balanced_score_adds_up_its_five_parts),
		cmocka_unit_test(the_simple_score_counts_model_free_bytes_and_coolness),
		cmocka_unit_test(a_fact_that_is_not_known_counts_half),
		cmocka_unit_test(every_part_keeps_its_size_at_the_limits),
		cmocka_unit_test(the_margin_is_a_part_of_the_card_or_the_reserve),
		cmocka_unit_test(each_reason_excludes_a_gpu),
		cmocka_unit_test(a_job_takes_turns_as_far_as_the_sharing_degree_allows),
		cmocka_unit_test(nobody_takes_turns_with_bytes_of_others_than_clients),
		cmocka_unit_test(nobody_takes_turns_with_bytes_of_critical_programs),
		cmocka_unit_test(a_gpu_that_jobs_will_leave_can_be_waited_for),
		cmocka_unit_test(turns_beside_critical_jobs_depend_on_the_load_that_is_given),
		cmocka_unit_test(the_reason_for_all_is_the_one_that_may_end_first),
		cmocka_unit_test(the_best_gpu_is_chosen),
		cmocka_unit_test(a_gpu_remembers_two_models_the_least_recently_used_one_goes),
		cmocka_unit_test(a_model_is_forgotten_an_hour_after_its_last_job),
		cmocka_unit_test(a_model_that_runs_is_forgotten_last),
		cmocka_unit_test(fewer_models_are_remembered_when_the_configuration_says_so),
		cmocka_unit_test(a_config_out_of_range_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
