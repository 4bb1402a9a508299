/* SPDX-License-Identifier: Apache-2.0 */
#include "mix.h"

/* A time by which a turn began: 0 is none at all, the largest is any. */
static uint64_t began(uint64_t now, uint64_t time)
{
	return time == 0 || time == UINT64_MAX ? time : mix_age(now, time) + 1;
}

void mix_memory(uint64_t *hash, const struct sched_memory *m)
{
	mix(hash, m->resident);
	mix(hash, m->swapped);
	mix(hash, m->pinned);
	mix(hash, m->wanted);
	mix(hash, m->wanted_pinned);
}

void mix_list(uint64_t *hash, const struct sched_client *clients, const struct list *list,
	      enum sched_link_kind kind)
{
	mix(hash, list->n);
	for (uint32_t i = list->first; i != SCHED_NONE; i = clients[i].link[kind].next)
		mix(hash, i);
}

void mix_client(uint64_t *hash, uint64_t now, const struct sched_client *c)
{
	const bool flags[] = {c->is_hung,
			      c->is_not_preemptible,
			      c->is_growing,
			      sched_has_drop(c),
			      c->task == SCHED_TASK_RESTORE,
			      c->is_retrying,
			      c->is_resting,
			      c->prepare == SCHED_PREPARE_NOW,
			      c->is_warned,
			      c->has_switched,
			      c->task == SCHED_TASK_DROP_PART,
			      c->prepare == SCHED_PREPARE_SOON};
	const uint64_t timers[] = {c->due_ns,   c->ready_ns, c->answer_ns,
				   c->retry_ns, c->bound_ns, c->beat_ns};
	bool is_coming = c->line == SCHED_LINE_COMING;

	mix(hash, c->state);
	if (c->state == SCHED_CLIENT_FREE)
		return;
	mix(hash, c->line);
	mix_memory(hash, &c->memory);
	mix(hash, c->promised);
	mix(hash, c->budget);
	mix(hash, c->epoch & 1);
	mix(hash, c->is_growing || c->line == SCHED_LINE_COMING ? c->budget_target : 0);
	mix(hash, c->line == SCHED_LINE_COMING ? c->load_bytes : 0);
	mix(hash, c->drop_bytes);
	mix(hash, sched_has_drop(c) ? c->epoch - c->drop_epoch : 0);
	for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++)
		mix(hash, flags[i]);
	for (size_t i = 0; i < sizeof(timers) / sizeof(*timers); i++)
		mix(hash, mix_ahead(now, timers[i]));
	mix(hash, c->silent_ns == SCHED_NO_DEADLINE ? UINT64_MAX : mix_age(now, c->silent_ns));
	mix(hash, c->state == SCHED_CLIENT_RUNNING ? mix_age(now, c->turn_ns) : 0);
	mix(hash, is_coming ? began(now, c->ends_ns) : 0);
	mix(hash, is_coming ? began(now, c->ends_blocked_ns) : 0);
	mix(hash, c->spared_ns == now);
	mix(hash, c->n_failed);
	mix(hash, c->prepare == SCHED_PREPARE_SOON ? c->told_bytes : 0);
}

void mix_forecast(uint64_t *hash, uint64_t now, const struct sched_client *clients,
		  const struct sched_forecast *f)
{
	bool grows = now < f->growth_ends_ns, is_new = now < f->newcomer_ends_ns;

	mix(hash, mix_ahead(now, f->growth_ends_ns));
	mix(hash, mix_ahead(now, f->newcomer_ends_ns));
	mix(hash, grows ? f->grown : 0);
	mix(hash, grows ? f->before : 0);
	mix(hash, grows ? mix_age(now, f->second_ns) : 0);
	mix(hash, grows ? f->grower : SCHED_NONE);
	mix(hash, is_new ? f->newcomer : SCHED_NONE);
	mix_list(hash, clients, &f->near, SCHED_LINK_TOLD);
}

void mix_owner(uint64_t *hash, const struct sched *sched, const struct sched_client *c)
{
	const struct sched_owner *o = &sched->clients[c->owner].own;

	mix(hash, c->owner);
	mix(hash, o->is_aged | (uint64_t)c->has_turn << 1);
	for (uint32_t i = 0; i < sched->n_clients; i++) {
		const struct sched_client *other = &sched->clients[i];

		if (other->state != SCHED_CLIENT_FREE)
			mix(hash, o->turn_ns < sched->clients[other->owner].own.turn_ns);
	}
	if (o->front != SCHED_NONE)
		mix(hash, mix_age(sched->now_ns, o->since_ns));
}

static void mix_minute(uint64_t *hash, uint64_t now, const struct sched_minute *minute)
{
	mix(hash, minute->ns);
	mix(hash, minute->ns == 0 ? 0 : now / 10000000000 - minute->tick);
}

void mix_sleeper(uint64_t *hash, const struct sched *sched, const struct sched_client *c)
{
	const struct sched_owner *o;

	if (c->state == SCHED_CLIENT_FREE)
		return;
	o = &sched->clients[c->owner].own;
	mix(hash, c->waking | (uint64_t)c->has_slept << 8 | (uint64_t)c->is_early << 9 |
			  (uint64_t)c->is_guest << 10 | (uint64_t)c->is_displaced << 11);
	mix(hash, c->had_ns);
	mix(hash, c->use_ns);
	mix(hash, c->waking == SCHED_WAKING_SOON || c->is_early ? c->early_cost_ns : 0);
	mix_minute(hash, sched->now_ns, &c->used_minute);
	mix_minute(hash, sched->now_ns, &c->had_minute);
	mix_minute(hash, sched->now_ns, &o->minute);
	mix(hash, o->n_on > 0 ? sched->gpus[c->gpu].wanted_ns - o->on_wanted_ns : 0);
	mix(hash, c->state >= SCHED_CLIENT_INCOMING
			  ? sched->gpus[c->gpu].wanted_ns - c->on_wanted_ns
			  : 0);
}

void mix_policy(uint64_t *hash, const struct sched *sched, const struct sched_client *c)
{
	const struct sched_owner *o;

	if (c->state == SCHED_CLIENT_FREE)
		return;
	o = &sched->clients[c->owner].own;
	mix(hash, c->claim.priority | (uint64_t)c->is_aged << 8 | (uint64_t)c->is_boosted << 9 |
			  (uint64_t)c->is_paused << 10 | (uint64_t)c->is_asking << 11);
	mix(hash, c->vtime_ns - o->vtime_ns[c->level]);
	mix(hash, (uint64_t)c->credit_ns);
	mix(hash, o->credit_round - c->credit_round);
	mix(hash, c->run_mean_ns);
	if (c->state >= SCHED_CLIENT_RUNNING) {
		mix(hash, c->turn_used_ns);
		mix(hash, mix_age(sched->now_ns, c->charged_ns));
	}
	if (c->line == SCHED_LINE_QUEUE)
		mix(hash, mix_age(sched->now_ns, c->asked_ns));
}
