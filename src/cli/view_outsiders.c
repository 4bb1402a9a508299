/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/status.h"
#include "cli/view_private.h"

#include <stdio.h>

struct process_text {
	char s[NVSHARE_NAME_LEN + sizeof(" (pid 4294967295)")];
};

/* "python3 (pid 123)", or "pid 123" without a name. */
static struct process_text process_text(const struct nvshare_status_outsider *outsider)
{
	struct process_text named;

	if (outsider->name[0])
		(void)snprintf(named.s, sizeof(named.s), "%s (pid %u)", outsider->name,
			       outsider->pid);
	else
		(void)snprintf(named.s, sizeof(named.s), "pid %u", outsider->pid);
	return named;
}

void view_outsiders_print(FILE *out, const struct status *status,
			  const struct nvshare_status_gpu *gpu)
{
	uint32_t n_more = gpu->n_outsiders;
	uint64_t more = gpu->outside;
	const char *gap = "  outside   nvshare: ";

	for (size_t i = 0; i < status->n_outsiders; i++) {
		const struct nvshare_status_outsider *outsider = &status->outsiders[i];

		if (outsider->gpu != gpu->index)
			continue;
		(void)fprintf(out, "%s%s", gap, process_text(outsider).s);
		if (outsider->bytes)
			(void)fprintf(out, " with %s", view_size(outsider->bytes).s);
		gap = ", ";
		n_more -= n_more > 0;
		more -= outsider->bytes < more ? outsider->bytes : more;
	}
	if (n_more)
		(void)fprintf(out, "%s%u %s with %s", gap, n_more,
			      n_more < gpu->n_outsiders ? "more" : "unnamed", view_size(more).s);
	if (gpu->n_outsiders)
		(void)fputc('\n', out);
}

struct view_outsiders view_outsiders(const struct status *status, uint32_t index)
{
	const struct nvshare_status_outsider *first = NULL;
	const struct nvshare_status_gpu *gpu = NULL;
	struct view_outsiders text;

	for (size_t i = 0; i < status->n_gpus; i++)
		gpu = status->gpus[i].index == index ? &status->gpus[i] : gpu;
	for (size_t i = status->n_outsiders; i > 0; i--)
		first = status->outsiders[i - 1].gpu == index ? &status->outsiders[i - 1] : first;
	if (!gpu || !first)
		(void)snprintf(text.s, sizeof(text.s), "others, outside nvshare, have %s",
			       view_size(gpu ? gpu->external : 0).s);
	else if (gpu->n_outsiders > 1)
		(void)snprintf(text.s, sizeof(text.s), "%s and %u more, outside nvshare, have %s",
			       process_text(first).s, gpu->n_outsiders - 1,
			       view_size(gpu->outside).s);
	else
		(void)snprintf(text.s, sizeof(text.s), "%s, outside nvshare, has %s",
			       process_text(first).s, view_size(gpu->outside).s);
	return text;
}
