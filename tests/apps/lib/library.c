/* SPDX-License-Identifier: Apache-2.0 */

#include "library.h"

#include "app.h"
#include "nvshare/nvshare.h"

#include <stdio.h>

void library_print(void)
{
	struct nvshare_status s;

	if (!nvshare_is_loaded() || nvshare_status(-1, &s, sizeof(s)) != 0)
		return;
	printf("%s library flags=%u slice_us=%llu busy_ms=%.3f gpu_ms=%.3f held_ms=%.3f holds=%llu "
	       "hold_failures=%llu hold_ms_last=%.3f hold_ms_max=%.3f\n",
	       app_name, s.flags, (unsigned long long)s.slice_us, (double)s.busy_ns / 1e6,
	       (double)s.gpu_ns / 1e6, (double)s.held_ns / 1e6, (unsigned long long)s.n_holds,
	       (unsigned long long)s.n_hold_failures, (double)s.hold_took_ns_last / 1e6,
	       (double)s.hold_took_ns_max / 1e6);
	printf("%s library tasks=%llu slo_violations=%llu hints=%llu task_ms_p50=%.3f "
	       "task_ms_p99=%.3f task_ms_max=%.3f\n",
	       app_name, (unsigned long long)s.n_tasks, (unsigned long long)s.n_slo_violations,
	       (unsigned long long)s.n_hints, (double)s.task_ns_p50 / 1e6,
	       (double)s.task_ns_p99 / 1e6, (double)s.task_ns_max / 1e6);
	fflush(stdout);
}
