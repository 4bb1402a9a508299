/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Scores are whole numbers, so that every machine and every run gives the same order. A weight in
 * thousandths times bytes would not fit into 64 bits, so bytes are counted in KiB.
 */

#include "core/place/place.h"

#include "core/u64.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#define MIB       (1ull << 20)
#define SECOND_NS 1000000000ull
#define DAY_NS    (86400 * SECOND_NS)
#define POINT     1000u /* a score's unit is a thousandth */

void place_config_default(enum place_preset preset, struct place_config *ret_config)
{
	*ret_config = (struct place_config){
		.affinity_ran = 100,
		.affinity_room = 50,
		.weight_free = 40,
		.weight_utilization = 30,
		.weight_temperature = 20,
		.weight_idle = 10,
		.idle_full_ns = 600 * SECOND_NS,
		.models_max = 2,
		.model_ttl_ns = 3600 * SECOND_NS,
		.margin_bytes = 2000 * MIB,
		.margin_percent = 10,
		.turns_max = 4,
		.allowed = UINT32_MAX,
	};
	if (preset != PLACE_PRESET_SIMPLE)
		return;
	ret_config->affinity_room = 0;
	ret_config->weight_free = 0;
	ret_config->weight_free_gb = 1;
	ret_config->weight_utilization = 0;
	ret_config->weight_temperature = 10;
	ret_config->weight_idle = 0;
}

const char *place_config_check(const struct place_config *config)
{
	const struct {
		const char *name;
		uint64_t value, min, max;
	} fields[] = {
		{"affinity_ran", config->affinity_ran, 0, PLACE_WEIGHT_MAX},
		{"affinity_room", config->affinity_room, 0, PLACE_WEIGHT_MAX},
		{"weight_free", config->weight_free, 0, PLACE_WEIGHT_MAX},
		{"weight_free_gb", config->weight_free_gb, 0, 100},
		{"weight_utilization", config->weight_utilization, 0, PLACE_WEIGHT_MAX},
		{"weight_temperature", config->weight_temperature, 0, PLACE_WEIGHT_MAX},
		{"weight_idle", config->weight_idle, 0, PLACE_WEIGHT_MAX},
		{"idle_full_ns", config->idle_full_ns, SECOND_NS, DAY_NS},
		{"models_max", config->models_max, 1, PLACE_MODELS_MAX},
		{"model_ttl_ns", config->model_ttl_ns, 0, 365 * DAY_NS},
		{"margin_bytes", config->margin_bytes, 0, PLACE_BYTES_MAX},
		{"margin_percent", config->margin_percent, 0, 50},
		{"turns_max", config->turns_max, 1, SCHED_DEGREE_MAX},
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (!u64_is_within(fields[i].value, fields[i].min, fields[i].max))
			return fields[i].name;
	}
	return NULL;
}

void place_init(struct place *place, const struct place_config *config)
{
	memset(place, 0, sizeof(*place));
	place->config = *config;
}

static bool place_model_is_fresh(const struct place *place, const struct place_model *model,
				 uint64_t now_ns)
{
	return model->n_jobs > 0 || now_ns - model->used_ns < place->config.model_ttl_ns;
}

/* A configuration may have lowered models_max below what a GPU remembers. */
static uint32_t place_n_models(const struct place *place, const struct place_slot *slot)
{
	return (uint32_t)u64_min(slot->n_models, place->config.models_max);
}

static uint64_t place_affinity(const struct place *place, const struct place_slot *slot,
			       const struct place_name *model, uint64_t now_ns)
{
	uint32_t n_fresh = 0;

	if (!place_name_is_set(model))
		return 0;
	for (uint32_t i = 0; i < place_n_models(place, slot); i++) {
		const struct place_model *m = &slot->models[i];

		if (!place_model_is_fresh(place, m, now_ns))
			continue;
		n_fresh++;
		if (place_name_is_equal(&m->name, model))
			return (uint64_t)place->config.affinity_ran * POINT;
	}
	if (n_fresh < place->config.models_max)
		return (uint64_t)place->config.affinity_room * POINT;
	return 0;
}

/* The part of weight for a value from 0 to 100 of which less is better. */
static uint64_t place_by_lowness(uint32_t weight, uint32_t value)
{
	if (value == PLACE_UNKNOWN)
		value = 50;
	return (uint64_t)weight * POINT * (100 - u64_min(value, 100)) / 100;
}

static void place_add_parts(const struct place *place, uint32_t gpu,
			    const struct place_request *request, uint64_t now_ns,
			    struct place_score *s)
{
	const struct place_config *c = &place->config;
	const struct place_gpu *facts = &place->gpu[gpu].facts;
	uint64_t free_kib = s->free >> 10, total_kib = s->total >> 10;

	s->affinity = place_affinity(place, &place->gpu[gpu], &request->model, now_ns);
	if (total_kib > 0)
		s->by_free = free_kib * c->weight_free * POINT / total_kib;
	s->by_free += free_kib * c->weight_free_gb * POINT / (1000 * (MIB >> 10));
	s->by_utilization = place_by_lowness(c->weight_utilization, facts->utilization);
	s->by_temperature = place_by_lowness(c->weight_temperature, facts->temperature);
	s->by_idle = u64_min(facts->idle_ns, c->idle_full_ns) / 1000 * c->weight_idle * POINT /
		     (c->idle_full_ns / 1000);
	s->sum = s->affinity + s->by_free + s->by_utilization + s->by_temperature + s->by_idle;
}

/* Whether the job, which does not fit, may start all the same. */
static bool place_may_turn(const struct place *place, uint32_t gpu, const struct place_load *load,
			   const struct place_request *request, const struct place_score *s)
{
	const struct place_gpu *facts = &place->gpu[gpu].facts;
	uint64_t fixed = facts->external + facts->critical + load->critical;

	if (request->is_whole || request->need > u64_excess(s->total, s->margin + fixed))
		return false;
	return s->degree > 0 || s->n_on < place->config.turns_max;
}

/* Reasons that last stand before those that pass, so that the answer is the one that matters. */
static enum place_reason place_reason(const struct place *place, uint32_t gpu,
				      const struct place_load *load,
				      const struct place_request *request,
				      const struct place_score *s)
{
	const struct place_config *c = &place->config;
	uint32_t bit = 1u << gpu;

	if (request->gpu != PLACE_ANY && request->gpu != gpu)
		return PLACE_NOT_ASKED;
	if (!(c->allowed & bit))
		return PLACE_NOT_IN_SET;
	if (c->reserved & bit)
		return PLACE_RESERVED;
	if (request->need > u64_excess(s->total, s->margin))
		return PLACE_TOO_SMALL;
	if (place->gpu[gpu].facts.is_out)
		return PLACE_OUT;
	if (request->apart & bit)
		return PLACE_APART;
	if (s->degree > 0 && s->n_on >= s->degree)
		return PLACE_FULL;
	if (!s->is_fit && !place_may_turn(place, gpu, load, request, s))
		return PLACE_NO_ROOM;
	if (request->booked & bit)
		return PLACE_BOOKED;
	return PLACE_OK;
}

/* Of a GPU that jobs take load of. */
static void place_score_gpu(const struct place *place, uint32_t gpu, const struct place_load *load,
			    const struct place_request *request, uint64_t now_ns,
			    struct place_score *ret)
{
	const struct place_config *c = &place->config;
	const struct place_gpu *facts = &place->gpu[gpu].facts;

	memset(ret, 0, sizeof(*ret));
	ret->reason = PLACE_NO_GPU;
	if (!facts->is_known)
		return;
	ret->total = facts->total;
	ret->margin = u64_max(u64_min(c->margin_bytes, facts->total / 100 * c->margin_percent),
			      facts->reserve);
	ret->free = u64_excess(facts->total, facts->external + facts->others + load->charged);
	ret->n_on = facts->n_others + load->n_jobs;
	ret->degree = facts->degree;
	ret->is_fit = u64_excess(ret->free, ret->margin) >= request->need;
	ret->reason = place_reason(place, gpu, load, request, ret);
	/* A queue asks about many jobs that cannot start, and divisions are most of the cost. */
	if (ret->reason == PLACE_OK || request->is_explained)
		place_add_parts(place, gpu, request, now_ns, ret);
}

static bool place_is_better(const struct place_score *a, const struct place_score *b)
{
	if (a->is_fit != b->is_fit)
		return a->is_fit;
	if (!a->is_fit && a->n_on != b->n_on)
		return a->n_on < b->n_on;
	return a->sum > b->sum;
}

uint32_t place_choose(const struct place *place, const struct place_request *request,
		      uint64_t now_ns, struct place_score ret_scores[PLACE_GPUS_MAX])
{
	uint32_t best = PLACE_NONE;

	for (uint32_t gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
		struct place_score *s = &ret_scores[gpu];

		place_score_gpu(place, gpu, &place->gpu[gpu].load, request, now_ns, s);
		if (s->reason == PLACE_OK &&
		    (best == PLACE_NONE || place_is_better(s, &ret_scores[best])))
			best = gpu;
	}
	return best;
}

bool place_can_beside(const struct place *place, uint32_t gpu, const struct place_load *load,
		      const struct place_request *request)
{
	struct place_request free = *request;
	struct place_score score;

	free.booked = 0;
	place_score_gpu(place, gpu, load, &free, 0,
			&score); /* without time: only the reason counts */
	return score.reason == PLACE_OK;
}

bool place_can_empty(const struct place *place, uint32_t gpu, const struct place_request *request)
{
	static const struct place_load none;
	struct place_request alone = *request;

	alone.apart = 0;
	return place_can_beside(place, gpu, &none, &alone);
}

enum place_reason place_reason_of(const struct place_score scores[PLACE_GPUS_MAX])
{
	/* The first one that some GPU has. */
	static const enum place_reason order[] = {
		PLACE_BOOKED,    PLACE_NO_ROOM,  PLACE_FULL,       PLACE_APART,     PLACE_OUT,
		PLACE_TOO_SMALL, PLACE_RESERVED, PLACE_NOT_IN_SET, PLACE_NOT_ASKED,
	};

	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		for (uint32_t gpu = 0; gpu < PLACE_GPUS_MAX; gpu++) {
			if (scores[gpu].reason == order[i])
				return order[i];
		}
	}
	return PLACE_NO_GPU;
}

const char *place_reason_text(enum place_reason reason)
{
	switch (reason) {
	case PLACE_OK:
		return "the job can start there";
	case PLACE_NO_GPU:
		return "there is no such GPU";
	case PLACE_NOT_ASKED:
		return "the job names another GPU";
	case PLACE_NOT_IN_SET:
		return "job_gpus lacks it";
	case PLACE_RESERVED:
		return "it is reserved";
	case PLACE_TOO_SMALL:
		return "the card is too small";
	case PLACE_OUT:
		return "it has an error";
	case PLACE_APART:
		return "a job to keep away from is there";
	case PLACE_FULL:
		return "its sharing degree is reached";
	case PLACE_NO_ROOM:
		return "it has too little free memory";
	case PLACE_BOOKED:
		return "a job that has waited for long is next there";
	case PLACE_REASON_COUNT_:
		break;
	}
	return "unknown";
}

static uint32_t place_model_find(const struct place_slot *slot, const struct place_name *name)
{
	uint32_t i = 0;

	while (i < slot->n_models && !place_name_is_equal(&slot->models[i].name, name))
		i++;
	return i;
}

/* Makes the model at index, or a new one, the first one. Models that run stay longest. */
static struct place_model *place_model_touch(struct place *place, struct place_slot *slot,
					     const struct place_name *name, uint64_t now_ns)
{
	uint32_t at = place_model_find(slot, name);
	struct place_model model = {.name = *name};

	if (at < slot->n_models) {
		model = slot->models[at];
	} else if (slot->n_models < place->config.models_max) {
		slot->n_models++;
	} else {
		slot->n_models = place->config.models_max;
		for (at = slot->n_models - 1; at > 0 && slot->models[at].n_jobs > 0; at--)
			;
		if (slot->models[at].n_jobs > 0)
			at = slot->n_models - 1;
	}
	memmove(&slot->models[1], &slot->models[0], at * sizeof(model));
	model.used_ns = now_ns;
	slot->models[0] = model;
	return &slot->models[0];
}

void place_model_begin(struct place *place, uint32_t gpu, const struct place_name *model,
		       uint64_t now_ns)
{
	if (place_name_is_set(model))
		place_model_touch(place, &place->gpu[gpu], model, now_ns)->n_jobs++;
}

void place_model_end(struct place *place, uint32_t gpu, const struct place_name *model,
		     uint64_t now_ns)
{
	struct place_model *m;

	if (!place_name_is_set(model))
		return;
	m = place_model_touch(place, &place->gpu[gpu], model, now_ns);
	/* It may have been forgotten meanwhile. */
	if (m->n_jobs > 0)
		m->n_jobs--;
}

void place_model_forget(struct place *place, uint32_t gpu)
{
	struct place_slot *slot = &place->gpu[gpu];

	memset(slot->models, 0, sizeof(slot->models));
	slot->n_models = 0;
}
