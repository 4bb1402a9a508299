/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/status.h"
#include "cli/top.h"

#include <stdio.h>
#include <string.h>

#define BAR_WIDTH_MIN  8
#define BAR_WIDTH_MAX  50
#define NAME_WIDTH     12
#define NAME_WIDTH_MIN 4
#define NAMES_FROM     60 /* columns of a line that has room for the GPU's name */

/* Columns of the longest usual texts. */
#define FRAME_WIDTH (sizeof("GPU 99  [") - 1)
#define TEXT_WIDTH  (sizeof("] 99.9G of 99.9G, 99 run, 99 wait, busy 100 %") - 1)
#define HEAT_WIDTH  (sizeof(", 100C 1000W") - 1)

static const struct nvshare_status_gpu *gpu_before(const struct top *top,
						   const struct nvshare_status_gpu *gpu)
{
	for (size_t i = 0; top->before && i < top->before->n_gpus; i++) {
		const struct nvshare_status_gpu *before = &top->before->gpus[i];

		if (!memcmp(before->uuid, gpu->uuid, sizeof(gpu->uuid)))
			return before;
	}
	return NULL;
}

/* ", busy 83 %": clients' GPU time since the status before, or else what NVML says. "": unknown. */
static void gpu_busy(const struct top *top, const struct nvshare_status_gpu *gpu,
		     char ret_text[TOP_CELL_LEN])
{
	const struct nvshare_status_state *state = status_state(top->status, gpu->index);
	const struct nvshare_status_gpu *before = gpu_before(top, gpu);
	uint64_t now_ns = gpu->lc_gpu_ns + gpu->be_gpu_ns, was_ns;

	ret_text[0] = '\0';
	if (state && state->known & NVSHARE_STATE_KNOWS_UTILIZATION)
		(void)snprintf(ret_text, TOP_CELL_LEN, ", busy %u %%", state->utilization_percent);
	if (!before || now_ns == 0 || gpu->known_ns <= before->known_ns)
		return;
	was_ns = before->lc_gpu_ns + before->be_gpu_ns;
	if (now_ns >= was_ns)
		(void)snprintf(ret_text, TOP_CELL_LEN, ", busy %.0f %%",
			       100.0 * (double)(now_ns - was_ns) /
				       (double)(gpu->known_ns - before->known_ns));
}

/* ", error, Xid 79" stands in the place of ", busy 83 %". */
static void gpu_error(const struct nvshare_status_state *state, char ret_text[TOP_CELL_LEN])
{
	const char *name = status_gpu_state_names[state->state];

	if (state->xid)
		(void)snprintf(ret_text, TOP_CELL_LEN, ", %s, Xid %u", name, state->xid);
	else
		(void)snprintf(ret_text, TOP_CELL_LEN, ", %s", name);
}

/* ", 61C 312W". "": not known. */
static void gpu_heat(const struct nvshare_status_state *state, char ret_text[TOP_CELL_LEN])
{
	uint32_t known = state ? state->known : 0;
	char power[TOP_CELL_LEN] = "";

	if (known & NVSHARE_STATE_KNOWS_POWER)
		(void)snprintf(power, sizeof(power), " %.0fW", (double)state->power_mw / 1e3);
	if (known & NVSHARE_STATE_KNOWS_TEMPERATURE)
		(void)snprintf(ret_text, TOP_CELL_LEN, ", %uC%.32s", state->celsius, power);
	else
		(void)snprintf(ret_text, TOP_CELL_LEN, "%s%.32s", power[0] ? "," : "", power);
}

/* Without "NVIDIA ", which takes the place of what differs. */
static const char *gpu_name(const struct nvshare_status_gpu *gpu)
{
	size_t len = strlen("NVIDIA ");

	return strncmp(gpu->name, "NVIDIA ", len) ? gpu->name : gpu->name + len;
}

static bool heat_is_known(const struct status *status)
{
	for (size_t i = 0; i < status->n_states; i++) {
		if (status->states[i].known &
		    (NVSHARE_STATE_KNOWS_TEMPERATURE | NVSHARE_STATE_KNOWS_POWER))
			return true;
	}
	return false;
}

/*
 * Columns for the names of all GPUs, so that their bars begin below each other. Beside heat, names
 * may be cut to what tells a card from others ("H100", "L40S").
 */
static size_t names_width(const struct status *status, size_t width)
{
	size_t longest = 0, room = NAME_WIDTH;

	for (size_t i = 0; i < status->n_gpus; i++) {
		size_t len = strlen(gpu_name(&status->gpus[i]));

		longest = len > longest ? len : longest;
	}
	if (heat_is_known(status))
		room = top_less(width, FRAME_WIDTH + TEXT_WIDTH + BAR_WIDTH_MIN + HEAT_WIDTH);
	room = room < NAME_WIDTH_MIN ? NAME_WIDTH_MIN : room > NAME_WIDTH ? NAME_WIDTH : room;
	return longest < room ? longest : room;
}

/* A bar of the usable memory: running clients, other clients, programs outside nvshare, free. */
static void draw_bar(const struct nvshare_status_gpu *gpu, struct top_line *line, size_t width)
{
	uint64_t others = top_less(top_less(top_less(gpu->usable, gpu->available), gpu->external),
				   gpu->running);
	const struct {
		uint64_t bytes;
		char mark;
	} parts[] = {{gpu->running, '#'}, {others, '+'}, {gpu->external, 'x'}};
	char bar[BAR_WIDTH_MAX + 1];
	uint64_t sum = 0;
	size_t at = 0;

	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		size_t end;

		sum += parts[i].bytes;
		end = gpu->usable
			      ? (size_t)((double)sum / (double)gpu->usable * (double)width + 0.5)
			      : 0;
		/* A small part is seen, too. */
		if (parts[i].bytes && end == at)
			end++;
		for (; at < end && at < width; at++)
			bar[at] = parts[i].mark;
	}
	for (; at < width; at++)
		bar[at] = '.';
	bar[at] = '\0';
	top_line_cell(line, bar, width, false);
}

/* Where bars would be too short with it, no GPU's line has its heat. */
void top_gpu_line(const struct top *top, const struct nvshare_status_gpu *gpu, size_t width,
		  struct top_line *line)
{
	const struct nvshare_status_state *state = status_state(top->status, gpu->index);
	char used[TOP_CELL_LEN], usable[TOP_CELL_LEN], busy[TOP_CELL_LEN], heat[TOP_CELL_LEN];
	char text[TOP_LINE_LEN];
	size_t heat_width = heat_is_known(top->status) ? HEAT_WIDTH : 0, bar;

	gpu_busy(top, gpu, busy);
	gpu_heat(state, heat);
	if (status_is_out(top->status, gpu->index)) {
		gpu_error(state, busy);
		line->style = TOP_STYLE_BAD;
	}
	(void)snprintf(text, sizeof(text), "GPU %-2u ", gpu->index);
	top_line_add(line, text, width);
	if (width >= NAMES_FROM)
		top_line_cell(line, gpu_name(gpu), names_width(top->status, width), false);
	top_line_add(line, " [", width);
	(void)snprintf(text, sizeof(text), "] %5s of %s, %u run, %u wait%s",
		       top_size(top_less(gpu->usable, gpu->available), used),
		       top_size(gpu->usable, usable), gpu->n_running, gpu->n_waiting, busy);
	bar = top_less(width,
		       line->width + (strlen(text) > TEXT_WIDTH ? strlen(text) : TEXT_WIDTH));
	if (bar < BAR_WIDTH_MIN + heat_width)
		heat[0] = '\0';
	else
		bar -= heat_width;
	bar = bar < BAR_WIDTH_MIN ? BAR_WIDTH_MIN : bar > BAR_WIDTH_MAX ? BAR_WIDTH_MAX : bar;
	if (line->width + bar < width)
		draw_bar(gpu, line, bar);
	top_line_add(line, text, width);
	top_line_add(line, heat, width);
}
