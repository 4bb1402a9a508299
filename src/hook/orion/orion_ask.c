/* SPDX-License-Identifier: Apache-2.0 */

/* A thread asks the policy, and waits. */

#include "hook/orion/orion_private.h"

#include "util/clock.h"

#include <sys/prctl.h>

static uint64_t ask_bit(uint32_t client)
{
	return 1ull << client;
}

int orion_step(struct orion_policy_event *event)
{
	uint64_t go = 0, due_ns = orion_policy_deadline(&orion.policy);
	int r = orion_policy_step(&orion.policy, event, &go);

	if (r != 0)
		return r;
	go &= ~ask_bit(ORION_POLICY_HP); /* which never waits */
	orion.go |= go;
	/* The thread that polls may sleep until the deadline as it was. */
	if (go || orion_policy_deadline(&orion.policy) < due_ns)
		(void)pthread_cond_broadcast(&orion.changed);
	return 0;
}

void orion_release(void)
{
	uint64_t waiting = orion.is_policy_ready ? orion.policy.waiting : 0;

	while (waiting) {
		struct orion_policy_event event = {
			.type = ORION_POLICY_EVENT_GIVE_UP,
			.client = (uint32_t)__builtin_ctzll(waiting),
			.now_ns = clock_now_ns(),
		};

		waiting &= waiting - 1;
		orion.passed |= ask_bit(event.client);
		(void)orion_step(&event);
	}
	(void)pthread_cond_broadcast(&orion.changed);
}

/* The time has come that the policy waits for. */
static void ask_tick(void)
{
	struct orion_policy_event event = {.type = ORION_POLICY_EVENT_TIME};

	event.now_ns = clock_now_ns();
	if (event.now_ns >= orion_policy_deadline(&orion.policy))
		(void)orion_step(&event);
}

static bool ask_is_over(uint32_t client)
{
	return (orion.go | orion.passed) & ask_bit(client);
}

/*
 * The thread looks for completed work until its client may go. The next one that waits takes this
 * over. The kernel rounds a thread's sleep up by 50 us, which is longer than many kernels; so the
 * thread asks for less meanwhile.
 */
static void ask_poll(uint32_t client)
{
	int slack_ns = prctl(PR_GET_TIMERSLACK);

	orion.has_poller = true;
	(void)prctl(PR_SET_TIMERSLACK, 1000);
	for (;;) {
		uint64_t end_ns;

		orion_poll();
		ask_tick();
		if (ask_is_over(client))
			break;
		end_ns = orion_policy_deadline(&orion.policy);
		if (orion.n_flights > 0 || orion.is_polling)
			end_ns = clock_now_ns() + (uint64_t)orion.config.poll_interval_us * 1000;
		(void)hook_wait_until(&orion.changed, &orion.lock, end_ns);
	}
	if (slack_ns > 0)
		(void)prctl(PR_SET_TIMERSLACK, slack_ns);
	orion.has_poller = false;
	(void)pthread_cond_broadcast(&orion.changed);
}

static void ask_wait(uint32_t client)
{
	while (!ask_is_over(client)) {
		if (orion.has_poller)
			hook_wait(&orion.changed, &orion.lock);
		else
			ask_poll(client);
	}
}

/* false: the wait has ended without the policy. */
static bool ask_best_effort(struct orion_flight *flight, struct orion_policy_event *event)
{
	uint64_t bit = ask_bit(flight->client);
	bool may_go;

	/* Beside high priority the policy must not count what has long been done. */
	if (orion_policy_is_hp_present(&orion.policy))
		orion_poll();
	event->now_ns = clock_now_ns();
	if (flight->generation != orion.generation || orion.is_disabled || orion_step(event) != 0)
		return false;
	ask_wait(flight->client);
	may_go = orion.go & bit;
	orion.go &= ~bit;
	orion.passed &= ~bit;
	return may_go;
}

void orion_ask(struct orion_flight *flight)
{
	struct orion_client *client = &orion.clients[flight->client];
	struct orion_policy_event event = {
		.type = ORION_POLICY_EVENT_ASK,
		.client = flight->client,
		.op = flight->op,
	};
	uint32_t ticket;

	if (flight->client == ORION_POLICY_HP) {
		event.now_ns = clock_now_ns();
		flight->is_asked =
			flight->generation == orion.generation && orion_step(&event) == 0;
		return;
	}
	/* The policy knows of one question a client, and its threads' work is in their order. */
	ticket = client->next_ticket++;
	while (client->n_served != ticket)
		hook_wait(&orion.changed, &orion.lock);
	flight->is_asked = ask_best_effort(flight, &event);
	client->n_served++;
	if (client->n_served != client->next_ticket)
		(void)pthread_cond_broadcast(&orion.changed);
}
