/* SPDX-License-Identifier: Apache-2.0 */

#include "core/meter/sampler.h"

#define LATE_PART 8 /* of what is new, in what is usual */

void sampler_start(struct sampler *sampler, uint64_t now_ns)
{
	sampler->begin_ns = now_ns;
	sampler->at_ns = now_ns;
	sampler->look_ns = now_ns;
	sampler->is_ahead = false;
	sampler->is_behind = false;
	sampler->is_early = true;
}

void sampler_hurry(struct sampler *sampler, uint64_t at_ns)
{
	if (at_ns >= sampler->look_ns)
		return;
	sampler->at_ns = at_ns;
	sampler->look_ns = at_ns;
	sampler->is_behind = false;
	sampler->is_early = true;
}

static void sampler_note_when(struct sampler *sampler, uint64_t now_ns)
{
	sampler->is_ahead = sampler->look_ns > now_ns;
	sampler->is_behind = sampler->at_ns <= now_ns;
}

static void sampler_plan(struct sampler *sampler, uint64_t now_ns, uint64_t step_ns,
			 uint64_t chance)
{
	uint64_t at_ns = sampler->begin_ns + chance % step_ns;

	sampler->step_ns = step_ns;
	sampler->at_ns = at_ns;
	sampler->look_ns = at_ns > sampler->late_ns ? at_ns - sampler->late_ns : 0;
	sampler->is_early = false;
	sampler_note_when(sampler, now_ns);
}

void sampler_resume(struct sampler *sampler, uint64_t begin_ns, uint64_t now_ns, uint64_t step_ns,
		    uint64_t chance)
{
	uint64_t end_ns = sampler->begin_ns + sampler->step_ns;

	if (begin_ns >= end_ns || (sampler->is_early && begin_ns >= sampler->begin_ns)) {
		sampler->begin_ns = begin_ns;
	} else if (begin_ns >= sampler->begin_ns) {
		if (sampler->at_ns > begin_ns) {
			sampler_note_when(sampler, now_ns);
			return;
		}
		sampler->begin_ns = end_ns;
	}
	sampler_plan(sampler, now_ns, step_ns, chance);
}

void sampler_forget(struct sampler *sampler)
{
	sampler->begin_ns = 0;
	sampler->step_ns = 0;
}

void sampler_skip(struct sampler *sampler, uint64_t ns)
{
	sampler->begin_ns += ns;
	sampler->at_ns += ns;
	sampler->look_ns += ns;
}

void sampler_note_late(struct sampler *sampler, uint64_t at_ns)
{
	uint64_t late_ns = at_ns > sampler->look_ns ? at_ns - sampler->look_ns : 0;

	if (!sampler->is_ahead || !late_ns || late_ns >= SAMPLER_LATE_NS_MAX)
		return;
	sampler->late_ns -= sampler->late_ns / LATE_PART;
	sampler->late_ns += late_ns / LATE_PART;
}

/* Its step, and those that it came too late for. */
static uint64_t sampler_span(const struct sampler *sampler, uint64_t now_ns)
{
	uint64_t late_ns = now_ns > sampler->at_ns ? now_ns - sampler->at_ns : 0;

	if (sampler->is_early)
		return now_ns > sampler->begin_ns ? now_ns - sampler->begin_ns : 0;
	return (1 + late_ns / sampler->step_ns) * sampler->step_ns;
}

uint64_t sampler_take(struct sampler *sampler, uint64_t now_ns, uint64_t step_ns, uint64_t chance)
{
	uint64_t ns = sampler_span(sampler, now_ns);

	sampler->begin_ns += ns;
	sampler_plan(sampler, now_ns, step_ns, chance);
	return ns;
}
