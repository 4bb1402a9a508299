/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Twenty programs that pretend to sleep, beside a batch job: a closed loop in simulated time. They
 * gain nothing that twenty honest ones would not have. Each has 25 GiB of a card of 74, and the
 * batch job 50. The link moves 50 GiB a second.
 */

#include "rig.h"

#include <stdio.h>
#include <string.h>

#define BATCH     0
#define N         21 /* the batch job, and the others */
#define TICK      (20 * MS)
#define SPAN      (1200 * S)
#define STOP_NS   (50 * MS) /* a stop without its moves */
#define IDLE_NS   S         /* until an idle program gives the GPU up */
#define FOREVER   UINT64_MAX
#define TOLERATED 40 /* of 1000: two turns of the simulated time */

enum todo { NOTHING, ANSWER, RESTORE };

struct program {
	enum todo todo;
	uint64_t due_ns;
	uint64_t ask_ns; /* it wakes then; FOREVER */
	uint64_t bytes;
	uint64_t since_ns; /* it computes, or FOREVER */
	uint64_t idle_ns;  /* it has done what it wanted; FOREVER */
	uint64_t use_ns, left_ns;
	uint64_t had_ns;
};

static struct rig rig;
static struct program programs[N];
static uint64_t burst_ns, pause_ns;

static uint64_t size_of(uint32_t i)
{
	return (i == BATCH ? 50 : 25) * GIB;
}

static void later(uint32_t i, enum todo todo, uint64_t ns)
{
	programs[i].todo = todo;
	programs[i].due_ns = rig.now + ns;
}

static void pause_computing(uint32_t i)
{
	struct program *p = &programs[i];
	uint64_t ns;

	if (p->since_ns == FOREVER)
		return;
	ns = rig.now - p->since_ns;
	p->had_ns += ns;
	p->left_ns = i == BATCH || p->left_ns == FOREVER ? FOREVER
		     : ns < p->left_ns                   ? p->left_ns - ns
							 : 0;
	p->since_ns = FOREVER;
	(void)rig_step(&rig,
		       (struct sched_event){.type = SCHED_EVENT_USED, .client = i, .gpu_ns = ns});
}

static void hear(const struct sched_action *a)
{
	uint32_t i = a->client;

	if (a->type == SCHED_ACTION_DROP) {
		pause_computing(i);
		programs[i].bytes = a->bytes;
		later(i, ANSWER, STOP_NS + a->bytes / 50 * S / GIB);
	} else if (a->type == SCHED_ACTION_BUDGET && rig_state(&rig, i) != SCHED_CLIENT_RUNNING) {
		later(i, RESTORE, rig.clients[i].memory.swapped / 50 * S / GIB);
	} else if (a->type == SCHED_ACTION_GRANT) {
		programs[i].since_ns = rig.now;
	}
}

static void answer(uint32_t i)
{
	struct sched_memory m = rig.clients[i].memory;
	bool is_idle = rig_state(&rig, i) == SCHED_CLIENT_IDLE || programs[i].idle_ns != FOREVER;
	uint64_t bytes = programs[i].bytes < m.resident ? programs[i].bytes : m.resident;

	m.resident -= bytes;
	m.swapped += bytes;
	(void)rig_release(&rig, i, m, !is_idle);
	if (programs[i].idle_ns == FOREVER)
		return;
	programs[i].idle_ns = FOREVER;
	programs[i].left_ns = burst_ns;
	programs[i].ask_ns = rig.now + pause_ns;
}

static void restore(uint32_t i)
{
	uint64_t budget = rig.clients[i].budget, size = size_of(i);
	struct sched_memory m = {.resident = budget < size ? budget : size};

	m.swapped = size - m.resident;
	if (m.swapped > 0)
		(void)rig_part(&rig, i, m);
	else
		(void)rig_memory(&rig, i, m);
}

/* It has done what it wanted, and sleeps. */
static void rest(uint32_t i)
{
	struct sched_memory m = rig.clients[i].memory;

	programs[i].left_ns = burst_ns;
	programs[i].idle_ns = FOREVER;
	(void)rig_release(&rig, i, m, false);
	programs[i].ask_ns = rig.now + pause_ns;
}

static void act(uint32_t i)
{
	struct program *p = &programs[i];
	enum todo todo = p->todo;

	if (todo != NOTHING && rig.now >= p->due_ns) {
		p->todo = NOTHING;
		if (todo == ANSWER)
			answer(i);
		else
			restore(i);
	}
	if (rig.now >= p->ask_ns) {
		p->ask_ns = FOREVER;
		rig_request(&rig, i, rig.clients[i].memory);
	}
	if (p->since_ns != FOREVER && p->left_ns != FOREVER &&
	    rig.now - p->since_ns >= p->left_ns) {
		pause_computing(i);
		p->idle_ns = rig.now;
	}
	if (p->idle_ns != FOREVER && rig.now - p->idle_ns >= IDLE_NS &&
	    rig_state(&rig, i) == SCHED_CLIENT_RUNNING)
		rest(i);
}

static void hear_all(void)
{
	for (uint32_t i = 0; i < rig.n; i++) {
		struct sched_action a = rig.did[i];

		hear(&a);
	}
	rig_clear(&rig);
}

struct setting {
	enum sched_policy policy;
	bool is_one_user;
	uint32_t moving_percent;
	uint64_t burst_ns, pause_ns;
};

static void begin(const struct setting *set)
{
	rig_init(&rig);
	rig.config.policy = set->policy;
	rig.config.moving_percent = set->moving_percent;
	assert_int_equal(rig_config(&rig), 0);
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_GPU,
							     .bytes = 74 * GIB,
							     .link_bandwidth = 50 * GIB}),
			 0);
	burst_ns = set->burst_ns;
	pause_ns = set->pause_ns;
	memset(programs, 0, sizeof(programs));
	for (uint32_t i = 0; i < N; i++) {
		uint32_t owner = i == BATCH || set->is_one_user ? 1 : 2;

		programs[i].since_ns = FOREVER;
		programs[i].ask_ns = FOREVER;
		programs[i].idle_ns = FOREVER;
		programs[i].left_ns = i == BATCH ? FOREVER : burst_ns;
		assert_int_equal(
			rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_JOIN,
							    .client = i,
							    .owner = owner,
							    .memory = {.swapped = size_of(i)}}),
			0);
		rig_request(&rig, i, (struct sched_memory){.swapped = size_of(i)});
	}
}

/* Of 1000, the batch job's part of the time. */
static uint64_t batch_share(const struct setting *set)
{
	uint64_t end_ns, others_ns = 0;

	begin(set);
	for (end_ns = rig.now + SPAN; rig.now < end_ns;) {
		hear_all();
		for (uint32_t i = 0; i < N; i++) {
			act(i);
			hear_all();
		}
		rig_at(&rig, rig.now + TICK);
	}
	for (uint32_t i = 1; i < N; i++)
		others_ns += programs[i].had_ns;
	printf("policy %d, %s, %u %% to move, %4.1f s of work, %4.1f s of rest: the batch job has %.3f"
	       ", the others %.3f, %u early\n",
	       (int)set->policy, set->is_one_user ? "one user " : "two users", set->moving_percent,
	       set->burst_ns == FOREVER ? 0. : (double)set->burst_ns / 1e9,
	       (double)set->pause_ns / 1e9, (double)programs[BATCH].had_ns / SPAN,
	       (double)others_ns / SPAN, (unsigned int)rig.sched.gpus[0].n_early);
	return programs[BATCH].had_ns / (SPAN / 1000);
}

/* With early switches the batch job has no less than without, or with as many honest programs. */
static void check(enum sched_policy policy, bool is_one_user)
{
	static const struct {
		uint64_t burst_ns, pause_ns;
	} ways[] = {{100 * MS, 500 * MS}, {500 * MS, 5 * S}, {2 * S, 100 * MS}, {2 * S, 8 * S}};
	struct setting honest = {policy, is_one_user, 20, FOREVER, 0};
	uint64_t fair = batch_share(&honest);

	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		struct setting pretend = {policy, is_one_user, 20, ways[i].burst_ns,
					  ways[i].pause_ns};
		struct setting off = pretend;
		uint64_t without, with;

		off.moving_percent = 0;
		without = batch_share(&off);
		with = batch_share(&pretend);
		assert_true(with + TOLERATED >= (without < fair ? without : fair));
	}
}

static void twenty_of_another_user_gain_nothing(void **state)
{
	(void)state;
	for (int policy = 0; policy < SCHED_POLICY_COUNT_; policy++)
		check((enum sched_policy)policy, false);
}

static void twenty_of_the_same_user_gain_nothing(void **state)
{
	(void)state;
	for (int policy = 0; policy < SCHED_POLICY_COUNT_; policy++)
		check((enum sched_policy)policy, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(twenty_of_another_user_gain_nothing),
		cmocka_unit_test(twenty_of_the_same_user_gain_nothing),
	};

	return cmocka_run_group_tests_name("core/pretenders", tests, NULL, NULL);
}
