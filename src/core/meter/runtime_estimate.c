/* SPDX-License-Identifier: Apache-2.0 */

#include "core/meter/runtime_estimate.h"

bool runtime_set_use(struct runtime_estimate *ran, uint64_t use_ppm)
{
	bool had_others = ran->has_others;

	ran->has_others = use_ppm > 0;
	ran->use_ppm = use_ppm < RAN_PPM ? use_ppm : RAN_PPM;
	return ran->has_others != had_others;
}

void runtime_count(struct runtime_estimate *ran, uint64_t ns, bool is_here)
{
	if (is_here)
		ran->ns += ns;
	else
		ran->maybe_ns += ns;
}

void runtime_answered(struct runtime_estimate *ran)
{
	if (!ran->maybe_ns)
		return;
	if (!ran->has_others)
		ran->ns += ran->maybe_ns;
	else if (ran->was_here)
		ran->ns += ran->maybe_ns * ran->use_ppm / RAN_PPM;
	ran->n_together = 0;
	ran->maybe_ns = 0;
	ran->was_late = true;
}

void runtime_asked(struct runtime_estimate *ran)
{
	runtime_answered(ran);
	ran->was_here = ran->was_late;
	ran->was_late = false;
}

void runtime_found(struct runtime_estimate *ran)
{
	ran->n_together = 0;
}

void runtime_ended(struct runtime_estimate *ran, bool is_reached, bool has_waited, bool counts)
{
	bool is_together = is_reached && ran->has_others && !has_waited;

	if (ran->maybe_ns) {
		if (ran->has_others && is_reached && has_waited)
			ran->n_together = 0;
		else
			ran->ns += ran->maybe_ns;
		if (is_together && counts && ++ran->n_together == RAN_TOGETHER_MAX)
			ran->is_blind = true;
	}
	ran->maybe_ns = 0;
	ran->was_late = false;
	ran->was_here = false;
}
