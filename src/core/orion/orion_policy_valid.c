/* SPDX-License-Identifier: Apache-2.0 */

/* Every invariant. The simulation and the tests check them after each step. */

#include "core/orion/orion_policy.h"

#include <assert.h>

static void orion_policy_client_assert_valid(const struct orion_policy *policy, uint32_t client)
{
	const struct orion_policy_client *c = &policy->clients[client];
	const struct orion_policy_load *load = &c->load;

	assert(load->sms <= load->n * policy->config.n_sms);
	assert(load->ns >= load->n * ORION_POLICY_NS_MIN);
	assert(load->n > 0 || load->ns == 0);
	if (!(policy->waiting >> client & 1))
		return;
	assert(c->asked_ns <= policy->now_ns);
	assert(c->op.sms <= policy->config.n_sms);
	assert(c->op.duration_ns >= ORION_POLICY_NS_MIN);
	assert(c->tag_ns >= policy->floor_ns);
	assert(c->tag_ns <= policy->floor_ns + 2 * policy->patience_ns + load->ns);
	/* Nothing waits without a cause: of another client, or of HP. */
	assert(orion_policy_reason_of(policy, client) != ORION_POLICY_WAIT_NOT);
	assert(orion_policy_is_hp_present(policy));
	if (policy->be.n == 0) {
		assert(load->n == 0 && policy->clients[ORION_POLICY_HP].load.n > 0);
		assert(policy->now_ns - c->asked_ns < policy->patience_ns);
	}
}

void orion_policy_assert_valid(const struct orion_policy *policy)
{
	uint32_t n_clients = policy->config.n_clients;
	struct orion_policy_load sum = {0};

	assert(!orion_policy_config_check(&policy->config));
	assert(!(policy->waiting & 1)); /* HP never waits */
	for (uint32_t client = 0; client < ORION_POLICY_CLIENTS_MAX; client++) {
		const struct orion_policy_load *load = &policy->clients[client].load;

		assert(client < n_clients || (load->n == 0 && !(policy->waiting >> client & 1)));
		orion_policy_client_assert_valid(policy, client);
		if (client == ORION_POLICY_HP)
			continue;
		sum.n += load->n;
		sum.sms += load->sms;
		sum.ns += load->ns;
	}
	assert(sum.n == policy->be.n && sum.sms == policy->be.sms && sum.ns == policy->be.ns);
	assert(policy->hp_first < ORION_POLICY_HP_DEPTH);
	assert(!policy->is_hp_ended || policy->hp_until_ns == 0);
	assert(policy->hp_until_ns <= policy->now_ns + policy->config.presence_ns);
	assert(orion_policy_deadline(policy) > policy->now_ns);
}
