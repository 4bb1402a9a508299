/* SPDX-License-Identifier: Apache-2.0 */

/* How long requests and bursts took. */

#include "hook/base/hook_mutex.h"
#include "hook/share/share_private.h"

#include <stdlib.h>
#include <string.h>

#define TASKS_KEPT 256

/* All under the lock. */
static struct {
	struct hook_mutex lock;
	uint64_t n, n_violations, n_hints;
	uint32_t n_new, n_new_violations;
	uint64_t ns_total, ns_max;
	uint64_t last[TASKS_KEPT];
} tasks = {.lock = HOOK_MUTEX(HOOK_LOCK_SHARE_TASKS)};

bool share_tasks_add(uint64_t ns, uint32_t slo_us)
{
	bool is_violation = slo_us && ns > slo_us * 1000ull, is_first;

	hook_lock(&tasks.lock);
	tasks.last[tasks.n++ % TASKS_KEPT] = ns;
	tasks.ns_total += ns;
	if (ns > tasks.ns_max)
		tasks.ns_max = ns;
	tasks.n_violations += is_violation;
	is_first = tasks.n_new++ == 0;
	tasks.n_new_violations += is_violation;
	hook_unlock(&tasks.lock);
	return is_first;
}

bool share_tasks_are_new(void)
{
	bool are_new;

	hook_lock(&tasks.lock);
	are_new = tasks.n_new > 0;
	hook_unlock(&tasks.lock);
	return are_new;
}

void share_tasks_take(uint32_t *ret_n, uint32_t *ret_n_violations)
{
	hook_lock(&tasks.lock);
	*ret_n = tasks.n_new;
	*ret_n_violations = tasks.n_new_violations;
	tasks.n_new = 0;
	tasks.n_new_violations = 0;
	hook_unlock(&tasks.lock);
}

void share_tasks_hint(void)
{
	hook_lock(&tasks.lock);
	tasks.n_hints++;
	hook_unlock(&tasks.lock);
}

static int us_compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

void share_tasks_read(struct nvshare_status *ret)
{
	uint64_t sorted[TASKS_KEPT], n_kept;

	hook_lock(&tasks.lock);
	ret->n_tasks = tasks.n;
	ret->n_slo_violations = tasks.n_violations;
	ret->n_hints = tasks.n_hints;
	ret->task_ns_max = tasks.ns_max;
	n_kept = tasks.n < TASKS_KEPT ? tasks.n : TASKS_KEPT;
	memcpy(sorted, tasks.last, sizeof(sorted));
	if (tasks.n) {
		ret->task_ns_last = tasks.last[(tasks.n - 1) % TASKS_KEPT];
		ret->task_ns_avg = tasks.ns_total / tasks.n;
	}
	hook_unlock(&tasks.lock);
	if (!n_kept)
		return;
	qsort(sorted, n_kept, sizeof(sorted[0]), us_compare);
	ret->task_ns_p50 = sorted[(n_kept - 1) / 2];
	ret->task_ns_p99 = sorted[(n_kept * 99 + 99) / 100 - 1];
}

void share_tasks_reset(void)
{
	memset(&tasks, 0, sizeof(tasks));
	hook_mutex_renew(&tasks.lock, HOOK_LOCK_SHARE_TASKS);
}
