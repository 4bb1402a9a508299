/* SPDX-License-Identifier: Apache-2.0 */

#include "core/timeshare/energy.h"

#include "core/timeshare/preempt_choice.h"
#include "core/timeshare/slice_policy.h"
#include "core/timeshare/usage.h"

#define PJ_UJ       1000000u
#define NJ_UJ       1000u
#define SWITCH_UJ   880u    /* 2 * 44 MB * 10 pJ */
#define SWITCH_NS   200000u /* a switch takes so long, at the GPU's power */
#define PARTS       1024u   /* the unit of timeshare_usage::part */
#define SAVED_NS    (10ull * 1000000000)
#define SLICE_ALONE 2048u /* us: the driver's usual timeslice */

static uint64_t power_uj(uint64_t ns, uint64_t mw)
{
	return ns / PJ_UJ * mw + ns % PJ_UJ * mw / PJ_UJ;
}

uint64_t energy_uj(const struct timeshare *timeshare, uint32_t client)
{
	const struct timeshare_client *c = &timeshare->clients[client];
	uint64_t gpu_ns = usage_ns(timeshare, client), new_ns;

	new_ns = gpu_ns > c->energy.gpu_ns ? gpu_ns - c->energy.gpu_ns : 0;
	return c->energy.uj + power_uj(new_ns, timeshare->gpus[c->gpu].power_mw);
}

void energy_charge(struct timeshare *timeshare, uint32_t client)
{
	struct timeshare_client *c = &timeshare->clients[client];
	uint64_t gpu_ns = usage_ns(timeshare, client);

	/* A report may correct the time downwards. That time is not charged again. */
	if (timeshare->gpus[c->gpu].power_mw == 0 || gpu_ns <= c->energy.gpu_ns)
		return;
	c->energy.uj = energy_uj(timeshare, client);
	c->energy.gpu_ns = gpu_ns;
}

static uint64_t energy_budget_max(const struct timeshare_config *config)
{
	return config->energy_budget_w * (SAVED_NS / NJ_UJ);
}

void energy_fill(struct timeshare *timeshare, uint32_t gpu)
{
	timeshare->gpus[gpu].budget_uj = energy_budget_max(&timeshare->config);
	timeshare->gpus[gpu].budget_ns = timeshare->now_ns;
}

/* Takes uj from the budget. false: there is less. */
static bool energy_pay(struct timeshare *timeshare, struct timeshare_gpu *g, uint64_t uj)
{
	uint64_t ns = timeshare->now_ns - g->budget_ns,
		 max_uj = energy_budget_max(&timeshare->config);

	if (timeshare->config.energy_budget_w == 0)
		return true;
	ns = ns < SAVED_NS ? ns : SAVED_NS;
	g->budget_ns = timeshare->now_ns;
	g->budget_uj += timeshare->config.energy_budget_w * ns / NJ_UJ;
	g->budget_uj = g->budget_uj < max_uj ? g->budget_uj : max_uj;
	if (uj > g->budget_uj)
		return false;
	g->budget_uj -= uj;
	return true;
}

static enum timeshare_arm_kind energy_choose(struct timeshare *timeshare,
					     const struct timeshare_client *c,
					     const struct timeshare_arm *arm)
{
	struct timeshare_gpu *g = &timeshare->gpus[c->gpu];
	uint64_t switch_uj = SWITCH_UJ + power_uj(SWITCH_NS, g->power_mw);
	uint64_t idle_ns = c->pace.mean_ns / PARTS * (PARTS - c->usage.part);
	uint64_t own_us = c->told.slice_us ? c->told.slice_us : SLICE_ALONE;
	uint64_t round_us = own_us + slice_policy_others(&timeshare->config, g);
	uint64_t hold_uj = 2 * switch_uj + power_uj(idle_ns, g->power_mw);
	uint64_t slices_uj = 2 * switch_uj * (c->pace.mean_ns / 1000 / round_us + 1);
	bool is_broken =
		c->claim.slo_us && preempt_choice_tail(arm, TIMESHARE_ARM_SLICES) > c->claim.slo_us;

	if (!is_broken && slices_uj <= hold_uj)
		return TIMESHARE_ARM_SLICES;
	if (!energy_pay(timeshare, g, hold_uj > slices_uj ? hold_uj - slices_uj : 0))
		return TIMESHARE_ARM_SLICES;
	return TIMESHARE_ARM_HOLD;
}

enum timeshare_arm_kind energy_arm(struct timeshare *timeshare, const struct timeshare_client *c,
				   enum timeshare_warning warning, enum timeshare_arm_kind kind)
{
	const struct timeshare_arm *arm = &c->arms[warning];

	if (!timeshare->config.is_saving || preempt_choice_is_first(arm))
		return kind;
	kind = energy_choose(timeshare, c, arm);
	if (!preempt_choice_is_trial(arm))
		return kind;
	return kind == TIMESHARE_ARM_HOLD ? TIMESHARE_ARM_SLICES : TIMESHARE_ARM_HOLD;
}
