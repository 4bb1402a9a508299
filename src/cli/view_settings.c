/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/view_settings.h"

#include "cli/view.h"

#include "ipc/names.h"
#include "util/clock.h"

#include <stdarg.h>

struct line {
	FILE *out;
	uint32_t n; /* of its parts so far */
};

__attribute__((format(printf, 2, 3))) static void line_add(struct line *line, const char *format,
							   ...)
{
	va_list args;

	(void)fputs(line->n++ ? ", " : "  settings  ", line->out);
	va_start(args, format);
	(void)vfprintf(line->out, format, args);
	va_end(args);
}

static double seconds(uint64_t ns)
{
	return (double)ns / (double)CLOCK_NS_PER_SEC;
}

void view_settings_print(FILE *out, const struct nvshare_status_node *node,
			 const struct nvshare_status_gpu *gpu)
{
	struct line line = {out, 0};

	if (gpu->mode != node->mode)
		line_add(&line, "mode %s", names_mode[gpu->mode]);
	if (gpu->sharing_degree != node->sharing_degree && gpu->sharing_degree)
		line_add(&line, "at most %u program%s at once", gpu->sharing_degree,
			 view_plural(gpu->sharing_degree));
	else if (gpu->sharing_degree != node->sharing_degree)
		line_add(&line, "any number of programs at once");
	if (gpu->tq_ns != node->tq_ns)
		line_add(&line, "quantum %g s", seconds(gpu->tq_ns));
	if (gpu->switch_mode != node->switch_mode && gpu->switch_mode == NVSHARE_SWITCH_AUTO)
		line_add(&line, "switch time auto");
	else if (gpu->switch_mode != node->switch_mode ||
		 gpu->switch_fixed_ns != node->switch_fixed_ns)
		line_add(&line, "switch time %g s", seconds(gpu->switch_fixed_ns));
	if (gpu->max_runtime_ns != node->max_runtime_ns)
		line_add(&line, "max runtime %g s", seconds(gpu->max_runtime_ns));
	if (gpu->reserve_percent != node->reserve_percent)
		line_add(&line, "reserve %u %%", gpu->reserve_percent);
	if (line.n)
		(void)fputc('\n', out);
}
