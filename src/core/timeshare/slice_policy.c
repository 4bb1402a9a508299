/* SPDX-License-Identifier: Apache-2.0 */

#include "core/timeshare/slice_policy.h"

#include "core/timeshare/usage.h"
#include "core/timeshare/weights.h"

#define TOOK_MAX (3600ull * 1000000000) /* ns; keeps the products from overflow */

#define TIGHT_US 10000u
#define AMPLE_US 1000u

#define WAIT_FACTOR 10u

#define FEEDBACK_MIN 100u /* us */
#define FEEDBACK_MAX 10000u
#define AIM_PERCENT  80u
#define ERROR_MIN    (-4 * (int64_t)TIMESHARE_PPM) /* far too late is more than far too early */
#define ERROR_MAX    (int64_t) TIMESHARE_PPM
#define LATE_WEIGHT  20 /* brings the 95th percentile to the aim, not the mean */
#define SUM_MAX      (10 * (int64_t)TIMESHARE_PPM) /* times I it is the whole output */

static const uint64_t levels_us[TIMESHARE_LEVELS] = {10000000, 1000000, 100000, 10000, 1000, 100};

static bool client_is_critical(const struct timeshare_client *c)
{
	return c->claim.class == TIMESHARE_CLASS_CRITICAL;
}

void slice_policy_join(struct timeshare_client *c)
{
	static const uint32_t levels[TIMESHARE_CLASS_COUNT_] = {5, 4, 3, 0};

	c->pace = (struct timeshare_pace){.level = levels[c->part.class]};
	c->pace_ns = TIMESHARE_NO_DEADLINE;
}

/* ---- slack ----------------------------------------------------------------- */

void slice_policy_look(struct timeshare *timeshare, uint32_t client)
{
	struct timeshare_client *c = &timeshare->clients[client];
	int64_t mean_ns = (int64_t)c->pace.mean_ns, slack_ns;
	uint64_t now_ns = timeshare->now_ns,
		 from_ns = timeshare_is_in_burst(c) ? c->pace.begin_ns : now_ns;

	c->pace_ns = TIMESHARE_NO_DEADLINE;
	c->pace.slack = TIMESHARE_SLACK_NONE;
	if (timeshare->config.slice_rule != TIMESHARE_RULE_SLACK || !client_is_critical(c) ||
	    !c->claim.slo_us)
		return;
	slack_ns = (int64_t)c->claim.slo_us * 1000 - (int64_t)(now_ns - from_ns) - mean_ns;
	if (slack_ns < 0) {
		c->pace.slack = TIMESHARE_SLACK_LATE;
		return;
	}
	c->pace.slack = TIMESHARE_SLACK_TIGHT;
	if (slack_ns >= mean_ns / 10) {
		c->pace.slack = TIMESHARE_SLACK_AMPLE;
		slack_ns -= mean_ns / 10;
	}
	if (timeshare_is_in_burst(c))
		c->pace_ns = now_ns + (uint64_t)slack_ns + 1;
}

/* ---- levels ---------------------------------------------------------------- */

static void client_change_level(struct timeshare_pace *pace, uint32_t level, uint64_t gpu_ns)
{
	pace->level = level;
	pace->gpu_ns = gpu_ns;
	pace->work_ns = 0;
}

void slice_policy_report(struct timeshare *timeshare, uint32_t client)
{
	struct timeshare_client *c = &timeshare->clients[client];
	struct timeshare_pace *pace = &c->pace;
	uint64_t gpu_ns = usage_ns(timeshare, client), used_ns;

	/* By our own clock, because a client could report any time of waiting. */
	pace->work_ns += pace->was_busy ? timeshare->now_ns - pace->at_ns : 0;
	pace->at_ns = timeshare->now_ns;
	pace->was_busy = c->work == TIMESHARE_WORK_BUSY;
	if (timeshare->config.slice_rule != TIMESHARE_RULE_EXPONENTIAL || client_is_critical(c))
		return;
	if (timeshare->gpus[c->gpu].n_active[TIMESHARE_CLASS_CRITICAL] == 0 ||
	    gpu_ns < pace->gpu_ns) {
		client_change_level(pace, pace->level, gpu_ns);
		return;
	}
	used_ns = gpu_ns - pace->gpu_ns;
	if (used_ns >= levels_us[pace->level] * 1000)
		client_change_level(pace, pace->level + (pace->level + 1 < TIMESHARE_LEVELS),
				    gpu_ns);
	else if (pace->level > 1 && pace->work_ns >= used_ns &&
		 pace->work_ns - used_ns >= levels_us[pace->level - 1] * 1000 * WAIT_FACTOR)
		client_change_level(pace, pace->level - 1, gpu_ns);
}

/* ---- feedback -------------------------------------------------------------- */

static int64_t value_between(int64_t value, int64_t min, int64_t max)
{
	value = value < min ? min : value;
	return value < max ? value : max;
}

/* The slice for an output of 0. */
static int64_t pid_base(const struct timeshare_config *config)
{
	return value_between((int64_t)config->be_slice_us, FEEDBACK_MIN, FEEDBACK_MAX);
}

/* The output, from -TIMESHARE_PPM for the shortest slice to TIMESHARE_PPM for the longest. */
static int64_t pid_control(struct timeshare_pid *pid, uint64_t slo_us, uint64_t took_us)
{
	int64_t aim_us = (int64_t)(slo_us * AIM_PERCENT / 100), error, change;

	aim_us = aim_us ? aim_us : 1;
	error = (aim_us - (int64_t)took_us) * (int64_t)TIMESHARE_PPM / aim_us;
	error = value_between(error, ERROR_MIN, ERROR_MAX);
	change = pid->us ? error - pid->last_ppm : 0;
	pid->last_ppm = error;
	pid->sum_ppm = value_between(pid->sum_ppm + error * (error < 0 ? LATE_WEIGHT : 1), -SUM_MAX,
				     SUM_MAX);
	return value_between(error / 2 + pid->sum_ppm / 10 + change / 20, -(int64_t)TIMESHARE_PPM,
			     (int64_t)TIMESHARE_PPM);
}

static void pid_feed_back(struct timeshare *timeshare, struct timeshare_gpu *g, uint32_t slo_us,
			  uint64_t took_us)
{
	struct timeshare_pid *pid = &g->pid;
	int64_t base_us = pid_base(&timeshare->config), out, max_us, us, step_us;

	if (pid->slo_us && slo_us > pid->slo_us)
		return;
	pid->slo_us = slo_us;
	out = pid_control(pid, slo_us, took_us);
	max_us = value_between((int64_t)slo_us / 2, base_us, FEEDBACK_MAX);
	us = base_us +
	     (out > 0 ? max_us - base_us : base_us - FEEDBACK_MIN) * out / (int64_t)TIMESHARE_PPM;
	/* A change costs a message to each of the others, so small changes are left out. */
	step_us = us - (int64_t)pid->us;
	if (pid->us && us > FEEDBACK_MIN && us < max_us &&
	    (step_us < 0 ? -step_us : step_us) < us / 4)
		return;
	pid->us = (uint64_t)us;
	g->is_dirty = true;
}

/* ---- bursts ---------------------------------------------------------------- */

void slice_policy_begin(struct timeshare *timeshare, struct timeshare_client *c)
{
	c->pace.begin_ns = timeshare->now_ns;
}

void slice_policy_end(struct timeshare *timeshare, struct timeshare_client *c, uint64_t ns)
{
	struct timeshare_gpu *g = &timeshare->gpus[c->gpu];

	ns = ns < TOOK_MAX ? ns : TOOK_MAX;
	c->pace.mean_ns = c->pace.mean_ns ? (c->pace.mean_ns * 7 + ns * 3) / 10 : ns;
	if (timeshare->config.slice_rule == TIMESHARE_RULE_FEEDBACK && c->part.is_bursting &&
	    c->claim.slo_us && g->n_wanting > 0 && !g->is_holding && !g->is_capped)
		pid_feed_back(timeshare, g, c->claim.slo_us, ns / 1000);
}

/* ---- slices ---------------------------------------------------------------- */

void slice_policy_plan(struct timeshare *timeshare, uint32_t gpu)
{
	struct timeshare_gpu *g = &timeshare->gpus[gpu];

	/* A value found for an SLO holds as long as any active client has that SLO. */
	if (timeshare->config.slice_rule != TIMESHARE_RULE_FEEDBACK ||
	    !weights_has_slo(timeshare, gpu, g->pid.slo_us))
		g->pid = (struct timeshare_pid){0};
}

uint64_t slice_policy_others(const struct timeshare_config *config, const struct timeshare_gpu *gpu)
{
	if (config->slice_rule == TIMESHARE_RULE_SLACK && gpu->n_late > 0)
		return TIMESHARE_SLICE_MIN;
	if (config->slice_rule == TIMESHARE_RULE_FEEDBACK && gpu->pid.us)
		return gpu->pid.us;
	return config->be_slice_us;
}

static uint64_t slack_slice(const struct timeshare_client *c, uint64_t us)
{
	switch (c->pace.slack) {
	case TIMESHARE_SLACK_NONE:
	case TIMESHARE_SLACK_LATE:
		return us;
	case TIMESHARE_SLACK_TIGHT:
		return us < TIGHT_US ? us : TIGHT_US;
	case TIMESHARE_SLACK_AMPLE:
		return us < AMPLE_US ? us : AMPLE_US;
	}
	return us;
}

uint64_t slice_policy_slice(const struct timeshare_config *config, const struct timeshare_gpu *gpu,
			    const struct timeshare_client *c, uint64_t us)
{
	uint32_t n_critical = gpu->n_active[TIMESHARE_CLASS_CRITICAL];

	if (gpu->is_capped)
		return us;
	switch (config->slice_rule) {
	case TIMESHARE_RULE_FIXED:
	case TIMESHARE_RULE_FEEDBACK:
	case TIMESHARE_RULE_COUNT_:
		return us;
	case TIMESHARE_RULE_SLACK:
		return slack_slice(c, us);
	case TIMESHARE_RULE_EXPONENTIAL:
		if (n_critical == 0 || (client_is_critical(c) && n_critical > 1))
			return us;
		return client_is_critical(c) ? levels_us[0] : levels_us[c->pace.level];
	}
	return us;
}
