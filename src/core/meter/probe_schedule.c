/* SPDX-License-Identifier: Apache-2.0 */

#include "core/meter/probe_schedule.h"
#include "core/u64.h"

#define CALL       256u
#define CALLS_MAX  (1u << 20) /* at once: keeps products from overflow */
#define RAN_NS_MAX (1ull << 40)

static uint64_t probe_new_calls(struct probe_schedule *asked, uint64_t n_calls)
{
	uint64_t n = n_calls - asked->n_calls;

	asked->n_calls = n_calls;
	return u64_min(n, CALLS_MAX);
}

void probe_schedule_begin(struct probe_schedule *asked, bool is_all, uint64_t n_calls,
			  uint64_t ran_ns)
{
	if (asked->n == 0)
		asked->n_calls = n_calls; /* later ones begin with calls before they are heard of */
	asked->is_now = is_all || asked->n < ASKED_FIRST || asked->n % ASKED_EVERY == 0;
	asked->n += asked->n < UINT32_MAX;
	asked->begin_ran_ns = ran_ns;
	if (!asked->is_now)
		return;
	asked->rest_busy_ns = 0;
	asked->rest_ns = 0;
	asked->rest_ran_ns = 0;
}

void probe_schedule_forget(struct probe_schedule *asked)
{
	*asked = (struct probe_schedule){.n_calls = asked->n_calls};
}

/* As far as is known. */
static uint64_t probe_run(const struct probe_schedule *asked, uint64_t n)
{
	return asked->calls ? u64_min(asked->ran_ns * CALL / asked->calls, RAN_NS_MAX) * n : 0;
}

static bool probe_is_far_from(uint64_t ran_ns, uint64_t thought_ns)
{
	if (ran_ns < ASKED_SURE_NS && thought_ns < ASKED_SURE_NS)
		return false;
	return ran_ns > 2 * thought_ns || ran_ns < thought_ns / 2;
}

void probe_schedule_end(struct probe_schedule *asked, uint64_t n_calls, uint64_t ran_ns)
{
	uint64_t n = probe_new_calls(asked, n_calls);
	uint64_t new_ns = u64_min(ran_ns - asked->begin_ran_ns, RAN_NS_MAX);

	if (!asked->is_now)
		return;
	if (asked->n <= ASKED_FIRST || !probe_is_far_from(new_ns, probe_run(asked, n)))
		asked->n_wrong = 0;
	else if (++asked->n_wrong == ASKED_WRONG)
		probe_schedule_forget(asked);
	asked->calls -= asked->calls / ASKED_SUM;
	asked->calls += n * CALL;
	asked->ran_ns -= asked->ran_ns / ASKED_SUM;
	asked->ran_ns += new_ns;
}

uint64_t probe_schedule_part(struct probe_schedule *asked, uint64_t busy_ns, uint64_t n_calls)
{
	uint64_t n = probe_new_calls(asked, n_calls), ns;

	if (!asked->calls)
		return busy_ns;
	asked->rest_busy_ns += busy_ns;
	asked->rest_ns += probe_run(asked, n);
	ns = u64_min(asked->rest_ns, asked->rest_busy_ns + ASKED_SLACK_NS);
	if (ns <= asked->rest_ran_ns)
		return 0;
	ns -= asked->rest_ran_ns;
	asked->rest_ran_ns += ns;
	return ns;
}
