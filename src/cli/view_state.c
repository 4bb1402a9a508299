/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/status.h"
#include "cli/view_private.h"

#include <stdio.h>

static void state_print_values(FILE *out, const struct nvshare_status_state *state)
{
	if (state->known & NVSHARE_STATE_KNOWS_TEMPERATURE)
		(void)fprintf(out, ", %u C", state->celsius);
	if (state->known & NVSHARE_STATE_KNOWS_POWER)
		(void)fprintf(out, ", %.0f W", (double)state->power_mw / 1e3);
	if (state->known & NVSHARE_STATE_KNOWS_UTILIZATION)
		(void)fprintf(out, ", busy %u %% of the time", state->utilization_percent);
}

void view_state_print(FILE *out, const struct status *status, uint32_t gpu, bool has_colours)
{
	const struct nvshare_status_state *state = status_state(status, gpu);
	bool is_out = status_is_out(status, gpu);

	if (!state || (state->age_ns == UINT64_MAX && !is_out))
		return;
	(void)fprintf(out, "  state     %s", is_out && has_colours ? VIEW_RED : "");
	if (is_out && state->xid)
		(void)fprintf(out, "%s, Xid %u", status_gpu_state_names[state->state], state->xid);
	else
		(void)fputs(status_gpu_state_names[state->state], out);
	if (is_out)
		(void)fprintf(out, ": no client gets a turn there%s",
			      has_colours ? VIEW_RESET : "");
	else
		state_print_values(out, state);
	(void)fputc('\n', out);
}
