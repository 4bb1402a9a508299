/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Passers: small clients that come and go all the time, beside the head of the queue, which wants
 * nearly all of the card. One card of 100 GiB, turns of 10 s. What moves takes 20 ms a GiB.
 */

#include "rig.h"

#define STEP   (20 * MS)
#define LATEST (200 * S)
#define NEVER  (10 * LATEST)

struct program {
	uint64_t size; /* GiB */
	uint64_t use_ns, think_ns;
	uint64_t from_ns;       /* in its state */
	uint64_t in_ns, out_ns; /* its answers are due; 0: none */
	uint64_t out;           /* bytes that it is told to give up */
	bool is_at_rest;
};

static struct rig rig;
static struct program programs[RIG_CLIENTS];
static uint32_t n_programs;

static int set_up(void **state)
{
	(void)state;
	rig_init(&rig);
	rig.config.switch_mode = SCHED_SWITCH_FIXED;
	rig.config.switch_fixed_ns = 10 * S;
	rig.config.moving_percent = 0;
	assert_int_equal(rig_config(&rig), 0);
	n_programs = 0;
	return 0;
}

static uint32_t start(uint64_t size, uint64_t use_ns, uint64_t think_ns)
{
	uint32_t client = n_programs++;

	programs[client] = (struct program){.size = size,
					    .use_ns = use_ns,
					    .think_ns = think_ns,
					    .from_ns = rig.now,
					    .is_at_rest = true};
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_JOIN,
							     .client = client,
							     .owner = client}),
			 0);
	return client;
}

static void listen(void)
{
	for (uint32_t i = 0; i < rig.n; i++) {
		const struct sched_action *a = &rig.did[i];
		struct program *p = &programs[a->client];

		if (a->type == SCHED_ACTION_DROP) {
			p->out = a->bytes / GIB;
			p->out_ns = rig.now + p->out * STEP + 1;
		} else if (a->type == SCHED_ACTION_BUDGET || a->type == SCHED_ACTION_GRANT) {
			uint64_t has = rig.clients[a->client].memory.resident / GIB;

			p->in_ns = rig.now + (p->size - has) * STEP + 1;
		}
	}
	rig_clear(&rig);
}

static void answer(uint32_t client)
{
	struct program *p = &programs[client];
	const struct sched_client *c = &rig.clients[client];
	uint64_t has = c->memory.resident / GIB, may = c->budget / GIB;

	if (p->out_ns && rig.now >= p->out_ns) {
		uint64_t out = p->out < has ? p->out : has;

		p->out_ns = p->in_ns = 0;
		(void)rig_release(&rig, client, rig_mem(has - out, p->size - has + out, 0),
				  !p->is_at_rest);
	} else if (p->in_ns && rig.now >= p->in_ns) {
		uint64_t in = may < p->size ? may : p->size;

		p->in_ns = 0;
		p->from_ns = rig.now;
		if (rig_state(&rig, client) == SCHED_CLIENT_INCOMING && in < p->size)
			(void)rig_part(&rig, client, rig_mem(in, p->size - in, 0));
		else
			(void)rig_memory(&rig, client, rig_mem(in, p->size - in, 0));
	}
	listen();
}

static void live(uint32_t client)
{
	struct program *p = &programs[client];
	const struct sched_client *c = &rig.clients[client];
	uint64_t has = c->memory.resident / GIB;

	answer(client);
	if (p->is_at_rest && !p->out_ns && rig.now >= p->from_ns + p->think_ns) {
		p->is_at_rest = false;
		rig_request(&rig, client, rig_mem(has, p->size - has, 0));
	} else if (!p->is_at_rest && !p->in_ns && !p->out_ns &&
		   rig_state(&rig, client) == SCHED_CLIENT_RUNNING && has == p->size &&
		   rig.now >= p->from_ns + p->use_ns) {
		p->is_at_rest = true;
		p->from_ns = rig.now;
		(void)rig_release(&rig, client, c->memory, false);
	}
	listen();
}

static void pass_time(uint64_t ns)
{
	for (uint64_t end_ns = rig.now + ns; rig.now < end_ns;) {
		rig_at(&rig, rig.now + STEP);
		listen();
		for (uint32_t i = 0; i < n_programs; i++)
			live(i);
	}
}

/* How long client has waited when it runs; LATEST: it does not. */
static uint64_t waits(uint32_t client)
{
	uint64_t from_ns = rig.now;

	while (rig_state(&rig, client) != SCHED_CLIENT_RUNNING && rig.now - from_ns < LATEST)
		pass_time(STEP);
	return rig.now - from_ns;
}

/* A usual turn, those who are due before it, and the turns of the last: then it comes. */
static void who_wants_the_whole_card_gets_it_beside_those_who_come_and_go(void **state)
{
	for (uint64_t size = 12; size <= 30; size += 9) {
		for (uint64_t n = 1; n <= 40; n += 3) {
			uint32_t large;

			(void)set_up(state);
			(void)start(40, NEVER, 0);
			for (uint64_t i = 0; i < n; i++)
				(void)start(size, (100 + 7 * i) * MS, 300 * MS);
			pass_time(20 * S);
			large = start(99, 5 * S, 5 * S);
			assert_in_range(waits(large), 0, 60 * S);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(
			who_wants_the_whole_card_gets_it_beside_those_who_come_and_go, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
