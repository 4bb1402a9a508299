/* SPDX-License-Identifier: Apache-2.0 */

#include "core/forecast.h"

#include "core/act.h"
#include "core/fit.h"
#include "core/list.h"
#include "core/u64.h"

#define MS_NS     1000000ull
#define SECOND_NS (1000 * MS_NS)

/* Growth is measured over the last second that is over, and the one that is not. */
#define RATE_SECONDS 2

/* A rate of two seconds says nothing of what comes after a minute. */
#define HORIZON_MAX_NS (60 * SECOND_NS)

/* Without growth for so long nothing is coming any more. */
#define CALM_NS (5 * SECOND_NS)

/* The bytes that a program without any may come to want, and the most that one client is told. */
#define NEWCOMER_PART 4 /* of what is usable */
#define EACH_PART     8

/* Of one place: that many are looked at. */
#define LOOK_MAX 16

/* One alone has nobody in its way. */
static bool forecast_is_possible(const struct sched *sched, uint32_t gpu)
{
	return sched->config.prepare_ns > 0 && sched->gpus[gpu].n_clients > 1;
}

void forecast_grown(struct sched *sched, uint32_t client, uint64_t bytes)
{
	uint32_t gpu = sched->clients[client].gpu;
	struct sched_forecast *f = &sched->gpus[gpu].forecast;
	uint64_t total = sched->gpus[gpu].total;

	if (bytes == 0 || !forecast_is_possible(sched, gpu))
		return;
	if (sched->now_ns - f->second_ns >= RATE_SECONDS * SECOND_NS) {
		f->before = 0;
		f->grown = 0;
		f->second_ns = sched->now_ns;
	} else if (sched->now_ns - f->second_ns >= SECOND_NS) {
		f->before = f->grown;
		f->grown = 0;
		f->second_ns += SECOND_NS;
	}
	f->grown = u64_min(f->grown + bytes, total);
	f->grower = client;
	f->growth_ends_ns = sched->now_ns + CALM_NS;
}

void forecast_joined(struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	struct sched_forecast *f = &sched->gpus[c->gpu].forecast;

	if (!forecast_is_possible(sched, c->gpu) || c->memory.resident + c->memory.swapped > 0)
		return;
	f->newcomer = client;
	f->newcomer_ends_ns = sched->now_ns + CALM_NS;
}

void forecast_left(struct sched *sched, uint32_t client)
{
	struct sched_forecast *f = &sched->gpus[sched->clients[client].gpu].forecast;

	forecast_forget(sched, client);
	if (f->grower == client)
		f->growth_ends_ns = f->grown = f->before = 0;
	if (f->newcomer == client)
		f->newcomer_ends_ns = 0;
}

/* client is who the others may have to make room for. */
static bool is_cause(const struct sched *sched, const struct sched_forecast *f, uint32_t client)
{
	if (sched->now_ns < f->newcomer_ends_ns)
		return client == f->newcomer;
	return client == f->grower;
}

/*
 * The bytes that will be wanted on top of those that there are. No sum overflows: each is a card at
 * most.
 */
static uint64_t expected_bytes(const struct sched *sched, uint32_t gpu)
{
	const struct sched_forecast *f = &sched->gpus[gpu].forecast;
	uint64_t horizon_ms = u64_min(sched->config.prepare_ns, HORIZON_MAX_NS) / MS_NS;
	uint64_t usable = fit_usable(sched, gpu), bytes = 0;

	if (!forecast_is_possible(sched, gpu))
		return 0;
	if (sched->now_ns < f->growth_ends_ns)
		bytes = (f->before + f->grown) * horizon_ms / (RATE_SECONDS * 1000);
	if (sched->now_ns < f->newcomer_ends_ns)
		bytes = u64_max(bytes, usable / NEWCOMER_PART);
	return u64_min(bytes, usable);
}

/* Of these bytes, what there is no room for. */
static uint64_t lacking_bytes(const struct sched *sched, uint32_t gpu, uint64_t bytes)
{
	const struct sched_sums *sums = &sched->gpus[gpu].sums;
	uint64_t want = sums->charged + sums->reserved + bytes;
	uint64_t room = fit_usable(sched, gpu) + sums->asked;

	return bytes > 0 && want > room ? want - room : 0;
}

static void forecast_emit(struct sched *sched, uint32_t client, uint64_t bytes)
{
	act_emit(sched, (struct sched_action){
				.type = SCHED_ACTION_PREPARE, .client = client, .bytes = bytes});
}

void forecast_forget(struct sched *sched, uint32_t client)
{
	struct sched_client *c = &sched->clients[client];

	if (c->prepare != SCHED_PREPARE_SOON)
		return;
	c->prepare = SCHED_PREPARE_NONE;
	list_remove(LIST_SLOTS(sched->clients, SCHED_LINK_TOLD), &sched->gpus[c->gpu].forecast.near,
		    client);
}

/* Its memory stays whatever comes, or is gone. */
static bool forecast_spares(const struct sched_client *c)
{
	return c->level == SCHED_PRIORITY_CRITICAL || fit_pageable(c) == 0;
}

static bool forecast_take_back(struct sched *sched, uint32_t gpu, bool is_all)
{
	uint32_t next;

	for (uint32_t i = sched->gpus[gpu].forecast.near.first; i != SCHED_NONE; i = next) {
		next = sched->clients[i].link[SCHED_LINK_TOLD].next;
		if (!is_all && !forecast_spares(&sched->clients[i]))
			continue;
		if (!act_has_room(sched))
			return false;
		forecast_forget(sched, i);
		forecast_emit(sched, i, 0);
	}
	return true;
}

static void forecast_tell(struct sched *sched, uint32_t client, uint64_t bytes)
{
	struct sched_client *c = &sched->clients[client];

	if (c->prepare != SCHED_PREPARE_SOON)
		list_push_back(LIST_SLOTS(sched->clients, SCHED_LINK_TOLD),
			       &sched->gpus[c->gpu].forecast.near, client);
	c->prepare = SCHED_PREPARE_SOON;
	c->told_bytes = bytes;
	forecast_emit(sched, client, bytes);
	c->silent_ns = sched->now_ns;
	act_emit(sched, (struct sched_action){.type = SCHED_ACTION_BEAT, .client = client});
}

/*
 * Host memory that is there stays as long as any is wanted, so less than it was told is no news;
 * nor is a little more. The client must have heard what it was told last: a stopped process would
 * find its buffers full of what comes and goes.
 */
static bool forecast_is_news(const struct sched_client *c, uint64_t bytes)
{
	return bytes > 0 && c->silent_ns == SCHED_NO_DEADLINE &&
	       (c->prepare != SCHED_PREPARE_SOON || bytes > c->told_bytes + c->told_bytes / 4);
}

/* In the order in which they would be asked, until *left is 0. */
static bool forecast_tell_place(struct sched *sched, uint32_t gpu, enum sched_place place,
				uint64_t *left)
{
	const struct sched_gpu *g = &sched->gpus[gpu];
	uint64_t each_max = fit_usable(sched, gpu) / EACH_PART;

	for (uint32_t i = g->place[place].first, n = 0;
	     i != SCHED_NONE && *left > 0 && n < LOOK_MAX;
	     i = sched->clients[i].link[SCHED_LINK_PLACE].next, n++) {
		const struct sched_client *c = &sched->clients[i];
		uint64_t bytes = u64_min(u64_min(fit_pageable(c), each_max), *left);

		if (is_cause(sched, &g->forecast, i) || forecast_spares(c))
			continue;
		*left -= bytes;
		/* A client that was told that somebody waits has it ready already. */
		if (c->prepare == SCHED_PREPARE_NOW || !forecast_is_news(c, bytes) ||
		    (c->prepare != SCHED_PREPARE_SOON && g->forecast.near.n >= FORECAST_NEAR_MAX))
			continue;
		if (!act_has_room(sched))
			return false;
		forecast_tell(sched, i, bytes);
	}
	return true;
}

bool forecast_update(struct sched *sched, uint32_t gpu)
{
	const struct sched_gpu *g = &sched->gpus[gpu];
	uint64_t bytes, left;

	/* A client that waits is no forecast any more (notice.c). */
	if (g->forecast.near.n == 0 && g->queue.n > 0)
		return true;
	bytes = expected_bytes(sched, gpu);
	left = lacking_bytes(sched, gpu, bytes);
	/* Told once, it is over only when there is a good deal of room. */
	if (!forecast_take_back(sched, gpu, lacking_bytes(sched, gpu, bytes + bytes / 4) == 0))
		return false;
	if (g->queue.n > 0)
		return true;
	if (!forecast_tell_place(sched, gpu, SCHED_PLACE_IDLE, &left))
		return false;
	for (int place = SCHED_PLACE_RUNNING_LOW;
	     place <= SCHED_PLACE_RUNNING_HIGH && sched->config.anti_thrash; place++) {
		if (!forecast_tell_place(sched, gpu, (enum sched_place)place, &left))
			return false;
	}
	return true;
}

uint64_t forecast_wake_ns(const struct sched *sched, uint32_t gpu)
{
	const struct sched_forecast *f = &sched->gpus[gpu].forecast;

	if (f->near.n == 0)
		return SCHED_NO_DEADLINE;
	return u64_max(u64_max(f->growth_ends_ns, f->newcomer_ends_ns), sched->now_ns);
}
