/* SPDX-License-Identifier: Apache-2.0 */

/* A file of its own: a test of the agent has another one. */

#include "hook/orion/orion_status.h"

#include "hook/orion/orion_private.h"

bool orion_status_read(struct orion_status *ret)
{
	const struct orion_policy_counters *c = &orion.policy.counters;
	bool is_started;

	/* The agent asks often, and most processes have no such scheduler. */
	if (!__atomic_load_n(&orion_is_started, __ATOMIC_RELAXED))
		return false;
	hook_lock(&orion.lock);
	is_started = orion.state == ORION_SCHEDULES;
	*ret = (struct orion_status){
		.n_clients = orion.n_clients,
		.n_waiting = (uint32_t)__builtin_popcountll(orion.policy.waiting),
		.hp_ops = c->hp_ops_scheduled,
		.be_ops = c->be_ops_scheduled,
		.be_waits = c->be_ops_rejected,
		.wait_us = c->total_wait_ns / 1000,
	};
	/* Threads without an index may wait as one client more. */
	if (ret->n_waiting > ret->n_clients)
		ret->n_waiting = ret->n_clients;
	hook_unlock(&orion.lock);
	return is_started;
}
