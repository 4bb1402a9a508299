/* SPDX-License-Identifier: Apache-2.0 */

/* Whether a driver is found to freeze, and what a refusal means. */

#include "hook/gate/device.h"
#include "hook/gate/gate.h"
#include "hook/table/cuda_real.h"
#include "lib/fake_rm.h"

#include <pthread.h>

#define CTX ((CUcontext)0x1000)

static uint32_t flag, late;

static CUresult alloc_flag(void **ret, size_t size, unsigned int flags)
{
	(void)flags;
	assert_int_equal(size, sizeof(flag));
	*ret = &flag;
	return CUDA_SUCCESS;
}

static CUresult make_stream(CUstream *ret, unsigned int flags)
{
	(void)flags;
	*ret = (CUstream)0x2000;
	return CUDA_SUCCESS;
}

static CUresult enter(CUcontext ctx)
{
	assert_ptr_equal(ctx, CTX);
	return CUDA_SUCCESS;
}

static CUresult leave(CUcontext *ret)
{
	*ret = CTX;
	return CUDA_SUCCESS;
}

static void land(void)
{
	__atomic_store_n(&flag, late, __ATOMIC_RELEASE);
}

static int visit;          /* atomic; 1: somebody is inside; 2: it may go */
static uint32_t leaves_at; /* it goes as that value is sent; 0: it stays */
static pthread_t leaver;

static bool has_turns; /* others have theirs first, and nothing stands still */
static pthread_t turn;

static void *land_in_turn(void *unused)
{
	clock_nap(8 * CLOCK_NS_PER_MS);
	land();
	return unused;
}

/* It lands at once, and while frozen with the control that ends that. */
static CUresult write_value(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	(void)stream;
	(void)flags;
	assert_ptr_equal((void *)(uintptr_t)addr, &flag);
	if (has_turns && late)
		pthread_join(turn, NULL);
	late = value;
	if (has_turns)
		return pthread_create(&turn, NULL, land_in_turn, NULL) ? CUDA_ERROR_OUT_OF_MEMORY
								       : CUDA_SUCCESS;
	if (value == leaves_at) {
		__atomic_store_n(&visit, 2, __ATOMIC_SEQ_CST);
		pthread_join(leaver, NULL);
	}
	if (freeze_is_on())
		fake_rm.meanwhile = land;
	else
		land();
	return CUDA_SUCCESS;
}

static int set_up(void **state)
{
	(void)fake_rm_setup(state);
	flag = 0;
	cuda_real.cuMemHostAlloc = alloc_flag;
	cuda_real.cuStreamCreate = make_stream;
	cuda_real.cuCtxPushCurrent_v2 = enter;
	cuda_real.cuCtxPopCurrent_v2 = leave;
	cuda_real.cuStreamWriteValue32_v2 = write_value;
	assert_true(device_context_add(CTX, 0, 0));
	fake_rm_make_channels(GROUP, 2);
	assert_null(freeze_why_not()); /* the control is known */
	return 0;
}

static void pause_freezes(void)
{
	clock_nap(110 * CLOCK_NS_PER_MS);
}

/* The next try that counts: it is some time after the last. */
static int prove_later(void)
{
	pause_freezes();
	return freeze_prove(0, CTX);
}

static void what_stands_still_is_proven(void **unused)
{
	(void)unused;
	assert_int_equal(freeze_prove(0, CTX), 0);
	assert_true(freeze_is_proven(0));
	assert_int_equal(fake_rm_n_off(), 0);
}

/* Others' time on the GPU may be longer than what a value has to stand still for. */
static void a_turn_of_others_is_not_taken_for_a_freeze(void **unused)
{
	(void)unused;
	has_turns = true;
	assert_int_equal(freeze_prove(0, CTX), FREEZE_E_UNPROVEN);
	pthread_join(turn, NULL);
	has_turns = false;
	assert_string_equal(freeze_why_not(), "work went on while frozen");
	assert_false(freeze_is_proven(0));
}

/* Else what the program sends could be what the value waits for. */
static void with_work_under_way_it_takes_a_closed_gate(void **unused)
{
	(void)unused;
	assert_int_equal(freeze_prove_busy(0, CTX), FREEZE_E_BUSY);
	assert_false(freeze_is_proven(0));
	gate_set(GATE_CLOSED);
	assert_int_equal(freeze_prove_busy(0, CTX), 0);
	gate_set(GATE_OPEN);
	assert_true(freeze_is_proven(0));
}

static void *visit_gate(void *unused)
{
	gate_enter();
	__atomic_store_n(&visit, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&visit, __ATOMIC_SEQ_CST) != 2)
		clock_nap(CLOCK_NS_PER_MS);
	gate_leave();
	return unused;
}

/* Somebody is inside, and the gate closed. */
static pthread_t close_behind_visitor(void)
{
	pthread_t visitor;

	__atomic_store_n(&visit, 0, __ATOMIC_SEQ_CST);
	assert_int_equal(pthread_create(&visitor, NULL, visit_gate, NULL), 0);
	virtual_clock_settle();
	assert_int_equal(__atomic_load_n(&visit, __ATOMIC_SEQ_CST), 1);
	gate_set(GATE_CLOSED);
	return visitor;
}

static void prove_beside_leaver(uint32_t at, int expected, unsigned int n_freezes)
{
	struct freeze_stats stats;

	leaver = close_behind_visitor();
	leaves_at = at;
	assert_int_equal(freeze_prove_busy(0, CTX), expected);
	assert_int_equal(freeze_is_proven(0), !expected);
	freeze_stats(&stats);
	assert_int_equal(stats.n_freezes, n_freezes);
	pause_freezes();
	assert_int_equal(freeze_prove_busy(0, CTX), 0);
	gate_set(GATE_OPEN);
}

/* Whoever leaves meanwhile may have sent something; who stays inside has not, or not yet. */
static void who_leaves_meanwhile_may_have_sent_something(void **unused)
{
	(void)unused;
	prove_beside_leaver(3, FREEZE_E_BUSY, 1);
}

/* The program does not stand still for what proves nothing. */
static void nothing_is_frozen_for_a_proof_that_is_spoilt(void **unused)
{
	(void)unused;
	prove_beside_leaver(2, FREEZE_E_BUSY, 0);
}

static void what_was_sent_ahead_of_the_last_value_is_not_waited_for(void **unused)
{
	(void)unused;
	prove_beside_leaver(1, 0, 1);
}

static void who_stays_inside_has_sent_nothing(void **unused)
{
	pthread_t visitor = close_behind_visitor();

	(void)unused;
	assert_int_equal(freeze_prove_busy(0, CTX), 0);
	gate_set(GATE_OPEN);
	__atomic_store_n(&visit, 2, __ATOMIC_SEQ_CST);
	pthread_join(visitor, NULL);
}

static void a_refusal_may_be_of_that_moment(void **unused)
{
	(void)unused;
	fake_rm.refuse_from = 1;
	assert_int_equal(freeze_prove(0, CTX), FREEZE_E_BUSY);
	assert_int_equal(prove_later(), FREEZE_E_BUSY);
	assert_null(freeze_why_not());
	fake_rm.refuse_from = 0;
	assert_int_equal(prove_later(), 0);
	assert_true(freeze_is_proven(0));
}

static void a_driver_that_goes_on_refusing_is_believed(void **unused)
{
	(void)unused;
	fake_rm.refuse_from = 1;
	assert_int_equal(freeze_prove(0, CTX), FREEZE_E_BUSY);
	assert_int_equal(prove_later(), FREEZE_E_BUSY);
	assert_int_equal(prove_later(), FREEZE_E_UNPROVEN);
	assert_string_equal(freeze_why_not(), "the driver refused to freeze");
	fake_rm.refuse_from = 0;
	assert_int_equal(prove_later(), FREEZE_E_OFF);
}

static void what_stays_off_is_put_back_later(void **unused)
{
	uint64_t now_ns = CLOCK_NS_PER_SEC, due_ns, pause_ns = 0;

	(void)unused;
	assert_int_equal(freeze_tick(now_ns), UINT64_MAX);
	assert_int_equal(freeze_begin(UINT64_MAX), 0);
	assert_int_equal(freeze_tick(now_ns), UINT64_MAX);
	fake_rm.refuse_on = 10000;
	assert_int_equal(freeze_end(), FREEZE_E_REFUSED);
	due_ns = freeze_tick(now_ns);
	for (int i = 0; i < 100; i++) {
		assert_true(due_ns > now_ns && due_ns - now_ns >= pause_ns);
		assert_true(due_ns - now_ns < 60 * CLOCK_NS_PER_SEC);
		pause_ns = due_ns - now_ns;
		assert_int_equal(freeze_tick(due_ns - 1), due_ns);
		now_ns = due_ns;
		due_ns = freeze_tick(now_ns);
		assert_int_equal(fake_rm_n_off(), 2);
	}
	assert_true(pause_ns > CLOCK_NS_PER_SEC);
	fake_rm.refuse_on = 2; /* the list, and the first of it */
	due_ns = freeze_tick(due_ns);
	assert_int_equal(fake_rm_n_off(), 1);
	assert_int_equal(freeze_tick(due_ns), UINT64_MAX);
	assert_int_equal(fake_rm_n_off(), 0);
	assert_int_equal(freeze_begin(UINT64_MAX), FREEZE_E_OFF); /* once was enough */
}

int main(void)
{
#define PROVE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, fake_rm_teardown)
	const struct CMUnitTest tests[] = {
		PROVE_TEST(what_stands_still_is_proven),
		PROVE_TEST(a_turn_of_others_is_not_taken_for_a_freeze),
		PROVE_TEST(with_work_under_way_it_takes_a_closed_gate),
		PROVE_TEST(who_leaves_meanwhile_may_have_sent_something),
		PROVE_TEST(nothing_is_frozen_for_a_proof_that_is_spoilt),
		PROVE_TEST(what_was_sent_ahead_of_the_last_value_is_not_waited_for),
		PROVE_TEST(who_stays_inside_has_sent_nothing),
		PROVE_TEST(a_refusal_may_be_of_that_moment),
		PROVE_TEST(a_driver_that_goes_on_refusing_is_believed),
		PROVE_TEST(what_stays_off_is_put_back_later),
	};

	return fake_rm_run_all_apart(tests, sizeof(tests) / sizeof(tests[0]));
}
