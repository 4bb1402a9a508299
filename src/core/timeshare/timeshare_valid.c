/* SPDX-License-Identifier: Apache-2.0 */

/* The invariants, computed anew from all clients: for tests and debug builds. */

#include "core/timeshare/burst.h"
#include "core/timeshare/timeshare.h"
#include "core/timeshare/timeshare_part.h"
#include "core/timeshare/timeshare_update.h"
#include "core/timeshare/weights.h"

#include <assert.h>
#include <string.h>

struct sums {
	uint32_t n_running, n_active[TIMESHARE_CLASS_COUNT_], n_wanting, n_bursting, n_holders,
		n_late;
	uint32_t n_pending, n_computing, n_slos;
	uint64_t weights, rests, loose;
	uint32_t n_present;
};

static void check_timers(const struct timeshare *timeshare, uint32_t client)
{
	const struct timeshare_client *c = &timeshare->clients[client];
	const uint64_t all[] = {c->linger_ns, c->burst_end_ns, c->hint_ns, c->answer_ns,
				c->renew_ns,  c->retry_ns,     c->pace_ns, c->silent_ns};
	uint64_t first = TIMESHARE_NO_DEADLINE;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		first = all[i] < first ? all[i] : first;
	assert(c->due_ns == first);
	if (first == TIMESHARE_NO_DEADLINE)
		return;
	assert(c->heap_at < timeshare->n_timers &&
	       timeshare->clients[c->heap_at].heap_slot == client);
	if (c->heap_at > 0)
		assert(timeshare->clients[timeshare->clients[(c->heap_at - 1) / 2].heap_slot]
			       .due_ns <= first);
}

static void check_flags(const struct timeshare *timeshare, const struct timeshare_client *c)
{
	const struct timeshare_part *part = &c->part;

	assert(part->is_running == (c->state == TIMESHARE_CLIENT_RUNNING));
	assert(!part->is_active || part->is_running);
	assert(!part->is_wanting || (part->is_active && part->class != TIMESHARE_CLASS_CRITICAL));
	assert(!part->is_bursting || (part->is_active && part->class == TIMESHARE_CLASS_CRITICAL));
	assert(!part->is_holding || (part->is_active && part->class == TIMESHARE_CLASS_CRITICAL));
	assert(!part->is_late || part->is_bursting);
	assert(part->loose <= TIMESHARE_ONE);
	assert(!part->loose ||
	       (c->work == TIMESHARE_WORK_BUSY && part->class == TIMESHARE_CLASS_CRITICAL));
	assert(!part->loose || !part->is_bursting);
	assert(c->pace_ns == TIMESHARE_NO_DEADLINE ||
	       (timeshare_is_in_burst(c) && c->claim.slo_us));
	assert(c->pace.level < TIMESHARE_LEVELS);
	assert(part->weight == c->claim.weight);
	assert(part->class == timeshare_part_class(timeshare, &c->claim) ||
	       c >= timeshare->clients + timeshare->n_clients - timeshare->n_stale);
	assert(c->told.seq_done <= c->told.seq);
	assert(c->told.slice_us == 0 || (c->told.slice_us >= TIMESHARE_SLICE_MIN &&
					 c->told.slice_us <= TIMESHARE_SLICE_MAX));
}

/* src/core/timeshare/README.md has the states. A timer runs exactly in the states that it ends. */
static void check_states(const struct timeshare_client *c)
{
	bool is_hinted = c->burst == TIMESHARE_BURST_HINTED;
	bool is_off = c->hold == TIMESHARE_HOLD_TOLD || c->hold == TIMESHARE_HOLD_TIMED;

	assert(timeshare_is_in_burst(c) == (c->burst_end_ns != TIMESHARE_NO_DEADLINE));
	assert(c->hint_ns == TIMESHARE_NO_DEADLINE || is_hinted ||
	       c->burst == TIMESHARE_BURST_PLANNED);
	assert(!is_hinted || c->hint_ns != TIMESHARE_NO_DEADLINE);
	assert((c->work == TIMESHARE_WORK_BUSY) == (c->silent_ns != TIMESHARE_NO_DEADLINE));
	assert((c->hold == TIMESHARE_HOLD_FAILED) == (c->retry_ns != TIMESHARE_NO_DEADLINE));
	assert(is_off == (c->told.hold_seq > 0));
	assert(c->hold != TIMESHARE_HOLD_TIMED || c->told.seq_done < c->told.hold_seq);
	assert(!c->is_overdue || c->burst != TIMESHARE_BURST_REQUEST);
}

static void sums_add_client(const struct timeshare *timeshare, uint32_t client, struct sums *sums)
{
	const struct timeshare_client *c = &timeshare->clients[client];
	const struct timeshare_part *part = &c->part;

	sums->n_running += part->is_running;
	sums->n_active[part->class] += part->is_active;
	sums->n_slos += part->is_active && part->slo_us;
	sums->n_wanting += part->is_wanting;
	sums->n_bursting += part->is_bursting;
	sums->n_holders += part->is_holding;
	sums->n_late += part->is_late;
	sums->loose += part->loose;
	sums->n_pending += c->hold == TIMESHARE_HOLD_TIMED;
	sums->n_computing += part->is_active && part->class != TIMESHARE_CLASS_CRITICAL &&
			     c->hold != TIMESHARE_HOLD_FAILED && !burst_holds(timeshare, client);
	if (c->usage.is_present) {
		sums->weights += (uint64_t)c->usage.slice_us * c->usage.part;
		sums->rests += (uint64_t)c->usage.slice_us * (1024 - c->usage.part);
		sums->n_present++;
	}
	assert(c->usage.use_ppm <= TIMESHARE_PPM && c->usage.part <= 1024);
}

/* A list has n members, each linked back to the one before. */
static void check_list(const struct timeshare *timeshare, const struct list *list,
		       enum timeshare_link_kind kind)
{
	uint32_t n = 0, prev = TIMESHARE_NONE;

	for (uint32_t at = list->first; at != TIMESHARE_NONE;
	     at = timeshare->clients[at].link[kind].next) {
		assert(timeshare->clients[at].link[kind].prev == prev);
		assert(n < list->n);
		n++;
		prev = at;
	}
	assert(n == list->n && list->last == prev);
}

static void check_gpu(const struct timeshare *timeshare, uint32_t gpu, const struct sums *sums)
{
	const struct timeshare_gpu *g = &timeshare->gpus[gpu];

	check_list(timeshare, &g->running, TIMESHARE_LINK_RUNNING);
	check_list(timeshare, &g->usage.present, TIMESHARE_LINK_PRESENT);
	assert(g->n_sweep == 0 || g->running.n > 0);
	assert(g->sweep_at == TIMESHARE_NONE ||
	       (g->n_sweep > 0 && timeshare->clients[g->sweep_at].part.is_running &&
		timeshare->clients[g->sweep_at].gpu == gpu));
	assert(g->running.n == sums->n_running && g->usage.present.n == sums->n_present);
	assert(!memcmp(g->n_active, sums->n_active, sizeof(sums->n_active)));
	for (int i = 0; i < TIMESHARE_CLASS_COUNT_; i++)
		weights_assert_valid(timeshare, &g->weights[i], sums->n_active[i]);
	weights_assert_valid(timeshare, &g->slos, sums->n_slos);
	assert(g->is_dirty || !g->pid.slo_us || weights_has_slo(timeshare, gpu, g->pid.slo_us));
	assert(g->n_wanting == sums->n_wanting && g->n_bursting == sums->n_bursting);
	assert(g->n_late == sums->n_late && g->loose == sums->loose);
	assert(g->n_holders == sums->n_holders && g->n_pending == sums->n_pending);
	assert(g->usage.weights == sums->weights && g->usage.rests == sums->rests);
	assert(g->usage.given_ns <= g->usage.wall_ns);
	assert(g->usage.class_ns[0] + g->usage.class_ns[1] <= g->usage.given_ns);
	assert(g->power_mw <= TIMESHARE_POWER_MAX);
	assert(g->budget_uj <= timeshare->config.energy_budget_w * 10000000ull);
	assert(g->credit <= burst_credit_max(&timeshare->config));
	if (g->is_dirty)
		return;
	/* While a critical client is active, at most one of the others computes. */
	assert(!g->is_taking || sums->n_computing <= 1);
	assert(!g->is_holding || (sums->n_computing == 0 && !g->is_capped && !g->is_slow));
	assert(!g->is_taking || sums->n_active[TIMESHARE_CLASS_CRITICAL] > 0);
	assert(g->turn == TIMESHARE_NONE || g->is_taking);
	assert(g->leaving == TIMESHARE_NONE || g->is_taking);
	/* The leaving client owes an answer by a deadline, or is about to be asked. */
	assert(g->leaving == TIMESHARE_NONE || timeshare->clients[g->leaving].is_dirty ||
	       timeshare->clients[g->leaving].answer_ns != TIMESHARE_NO_DEADLINE);
	assert(g->is_shared == (g->running.n > 1));
}

void timeshare_assert_valid(const struct timeshare *timeshare)
{
	struct sums sums[TIMESHARE_GPUS_MAX];
	uint32_t n_timers = 0, n_dirty = 0;

	memset(sums, 0, sizeof(sums));
	for (uint32_t i = 0; i < timeshare->n_clients; i++) {
		const struct timeshare_client *c = &timeshare->clients[i];

		if (c->state == TIMESHARE_CLIENT_FREE)
			continue;
		check_timers(timeshare, i);
		check_flags(timeshare, c);
		check_states(c);
		sums_add_client(timeshare, i, &sums[c->gpu]);
		n_timers += c->due_ns != TIMESHARE_NO_DEADLINE;
		n_dirty += c->is_dirty;
	}
	assert(n_timers == timeshare->n_timers && n_dirty == timeshare->dirty.n);
	check_list(timeshare, &timeshare->dirty, TIMESHARE_LINK_DIRTY);
	for (uint32_t i = 0; i < TIMESHARE_GPUS_MAX; i++)
		check_gpu(timeshare, i, &sums[i]);
	/* No client is left out: when none is pending, each has its slice. */
	for (uint32_t i = 0; i < timeshare->n_clients && !timeshare_update_is_pending(timeshare);
	     i++)
		assert(timeshare->clients[i].state == TIMESHARE_CLIENT_FREE ||
		       timeshare->gpus[timeshare->clients[i].gpu].is_dirty ||
		       timeshare_update_has_slice(timeshare, i));
}
