/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Least slack first: the time until the SLO is over, or the bound of the wait where there
 * is none, less the time that such a run took so far. Slack shrinks for all that wait
 * alike, so their order stays as it was.
 */

#include "core/policy/policy.h"

#define RUN_MAX_NS SCHED_SLO_NS_MAX

/* Until when it must be chosen. */
static uint64_t deadline_latest_ns(const struct sched *sched, const struct sched_client *c)
{
	uint64_t slo_ns = c->claim.slo_ns ? c->claim.slo_ns : sched->config.wait_bound_ns;
	uint64_t run_ns = c->run_mean_ns < slo_ns ? c->run_mean_ns : slo_ns;

	return c->asked_ns + slo_ns - run_ns;
}

static uint64_t deadline_key(struct sched *sched, uint32_t client)
{
	return deadline_latest_ns(sched, &sched->clients[client]);
}

static void deadline_run(struct sched *sched, uint32_t client)
{
	sched->clients[client].turn_used_ns = 0;
}

static void deadline_charge(struct sched *sched, uint32_t client, uint64_t ns)
{
	struct sched_client *c = &sched->clients[client];

	c->turn_used_ns += ns;
	if (c->turn_used_ns > RUN_MAX_NS)
		c->turn_used_ns = RUN_MAX_NS;
}

static void deadline_stop(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	c->run_mean_ns = c->run_mean_ns == 0 ? c->turn_used_ns
					     : (c->run_mean_ns * 7 + c->turn_used_ns * 3) / 10;
}

/* One that has to hurry more ends the turn as late as it can. */
static uint64_t deadline_end(const struct sched *sched, uint32_t victim, uint32_t head,
			     uint64_t end_ns, uint64_t last_ns)
{
	const struct sched_client *v = &sched->clients[victim], *h = &sched->clients[head];
	uint64_t least_ns = v->turn_ns + (end_ns - v->turn_ns) / POLICY_TURN_PART;
	uint64_t until_ns = deadline_latest_ns(sched, h);

	(void)last_ns;
	if (h->claim.slo_ns == 0 || (v->claim.slo_ns && v->claim.slo_ns <= h->claim.slo_ns))
		return end_ns;
	if (until_ns < least_ns)
		until_ns = least_ns;
	return until_ns < end_ns ? until_ns : end_ns;
}

const struct policy policy_deadline = {
	.has_levels = false,
	.key = deadline_key,
	.end = deadline_end,
	.charge = deadline_charge,
	.run = deadline_run,
	.stop = deadline_stop,
};
