/* SPDX-License-Identifier: Apache-2.0 */
#include "core/place/estimate.h"

#include "core/u64.h"

#include <assert.h>
#include <string.h>

#define MIB             (1ull << 20)
#define UNIT_BYTES_MAX  (1ull << 40)
#define TYPE_PERCENT    100u
#define PERCENT_MAX     10000u
#define OOM_PERCENT_MAX 1000u
#define USED(estimate) \
	((struct list_slots){&(estimate)->entries[0].link, sizeof(struct estimate_entry)})

void estimate_config_default(struct estimate_config *ret_config)
{
	*ret_config = (struct estimate_config){
		.base_bytes = 4000 * MIB,
		.unit_bytes = 2 * MIB,
		.units_default = 500,
		.oom_percent = 120,
		.n_types = 4,
		.types = {{{"optimization"}, 120},
			  {{"stability"}, 150},
			  {{"heat-capacity"}, 200},
			  {{"bulk-modulus"}, 130}},
	};
}

const char *estimate_config_check(const struct estimate_config *config)
{
	if (!u64_is_within(config->base_bytes, 1, ESTIMATE_BYTES_MAX))
		return "base_bytes";
	if (config->unit_bytes > UNIT_BYTES_MAX)
		return "unit_bytes";
	if (config->units_default > ESTIMATE_UNITS_MAX)
		return "units_default";
	if (!u64_is_within(config->oom_percent, 100, OOM_PERCENT_MAX))
		return "oom_percent";
	if (config->n_types > ESTIMATE_TYPES_MAX)
		return "n_types";
	if (config->n_models > ESTIMATE_MODELS_MAX)
		return "n_models";
	for (uint32_t i = 0; i < config->n_types; i++) {
		if (!u64_is_within(config->types[i].percent, 1, PERCENT_MAX))
			return "types";
	}
	for (uint32_t i = 0; i < config->n_models; i++) {
		if (!u64_is_within(config->models[i].base_bytes, 1, ESTIMATE_BYTES_MAX))
			return "models";
	}
	return NULL;
}

void estimate_init(struct estimate *estimate, struct estimate_entry *entries, uint32_t n,
		   const struct estimate_config *config)
{
	assert(n > 0);
	memset(entries, 0, n * sizeof(*entries));
	*estimate = (struct estimate){.config = *config, .entries = entries, .n_entries = n};
	list_init(&estimate->used);
	list_init(&estimate->unused);
	for (uint32_t i = 0; i < n; i++)
		list_push_back(USED(estimate), &estimate->unused, i);
}

/* bytes * percent / 100, within 1 and most. Bytes are at most 2^50 here, so nothing overflows. */
static uint64_t estimate_scale(uint64_t bytes, uint64_t percent, uint64_t most)
{
	return u64_max(u64_min(bytes / 100 * percent + bytes % 100 * percent / 100, most), 1);
}

static uint64_t estimate_formula(const struct estimate_config *c, const struct estimate_work *work,
				 uint64_t units)
{
	uint64_t bytes = c->base_bytes;
	uint32_t percent = TYPE_PERCENT;

	for (uint32_t i = 0; i < c->n_models; i++) {
		if (place_name_is_equal(&c->models[i].name, &work->model))
			bytes = c->models[i].base_bytes;
	}
	for (uint32_t i = 0; i < c->n_types; i++) {
		if (place_name_is_equal(&c->types[i].name, &work->type))
			percent = c->types[i].percent;
	}
	if (units > 0 && c->unit_bytes > ESTIMATE_BYTES_MAX / units)
		return ESTIMATE_BYTES_MAX;
	return estimate_scale(bytes + units * c->unit_bytes, percent, ESTIMATE_BYTES_MAX);
}

static bool estimate_has_name(const struct estimate_work *work)
{
	return place_name_is_set(&work->model) || place_name_is_set(&work->type);
}

/* Work of which nothing is known has no units, so that its estimate is the base. */
static uint64_t estimate_units(const struct estimate *estimate, const struct estimate_work *work)
{
	if (work->has_units)
		return u64_min(work->units, ESTIMATE_UNITS_MAX);
	return estimate_has_name(work) ? estimate->config.units_default : 0;
}

static uint32_t estimate_find(const struct estimate *estimate, const struct estimate_work *work)
{
	uint32_t i = estimate->used.last;

	while (i != LIST_END) {
		const struct estimate_entry *e = &estimate->entries[i];

		if (e->owner == work->owner && place_name_is_equal(&e->model, &work->model) &&
		    place_name_is_equal(&e->type, &work->type))
			break;
		i = e->link.prev;
	}
	return i;
}

/*
 * bytes * from / whole, within 1 and ESTIMATE_BYTES_MAX, which none of them passes. The product may
 * have 88 bits, so the part below 1 of from / whole is cut to 19 bits.
 */
static uint64_t estimate_ratio(uint64_t bytes, uint64_t from, uint64_t whole)
{
	uint64_t times = from / whole, rest = from % whole;

	if (times > ESTIMATE_BYTES_MAX / bytes)
		return ESTIMATE_BYTES_MAX;
	for (; whole >= 1u << 19; whole >>= 1)
		rest >>= 1;
	return u64_max(u64_min(bytes * times + bytes * rest / whole, ESTIMATE_BYTES_MAX), 1);
}

uint64_t estimate_bytes(const struct estimate *estimate, const struct estimate_work *work,
			enum estimate_source *ret_source)
{
	uint64_t units = estimate_units(estimate, work), distance, nearest = UINT64_MAX;
	uint64_t formula = estimate_formula(&estimate->config, work, units);
	uint32_t slot = estimate_find(estimate, work);
	const struct estimate_point *best = NULL;
	enum estimate_source source = ESTIMATE_FORMULA;

	for (uint32_t i = 0; slot != LIST_END && i < estimate->entries[slot].n_points; i++) {
		const struct estimate_point *p = &estimate->entries[slot].points[i];

		distance = u64_max(u64_excess(p->units, units), u64_excess(units, p->units));
		if (distance >= nearest)
			continue;
		nearest = distance;
		best = p;
	}
	if (best)
		source = nearest == 0 ? ESTIMATE_LEARNED : ESTIMATE_SCALED;
	if (ret_source)
		*ret_source = source;
	if (!best)
		return formula;
	if (nearest == 0)
		return best->bytes;
	return estimate_ratio(best->bytes, formula,
			      estimate_formula(&estimate->config, work, best->units));
}

/* The entry of work, made if need be, as the most recently used one. */
static struct estimate_entry *estimate_touch(struct estimate *estimate,
					     const struct estimate_work *work)
{
	uint32_t slot = estimate_find(estimate, work);
	struct estimate_entry *e;

	if (slot != LIST_END) {
		list_remove(USED(estimate), &estimate->used, slot);
	} else {
		struct list *from = estimate->unused.n > 0 ? &estimate->unused : &estimate->used;

		slot = from->first;
		list_remove(USED(estimate), from, slot);
		e = &estimate->entries[slot];
		e->owner = work->owner;
		e->model = work->model;
		e->type = work->type;
		e->n_points = 0;
	}
	list_push_back(USED(estimate), &estimate->used, slot);
	return &estimate->entries[slot];
}

/* Sets the point of these units, and makes it the first one; the last one may go for it. */
static void estimate_set_point(struct estimate_entry *e, uint64_t units, uint64_t bytes)
{
	uint32_t at = 0;

	while (at < e->n_points && e->points[at].units != units)
		at++;
	if (at == e->n_points) {
		if (e->n_points < ESTIMATE_POINTS)
			e->n_points++;
		at = e->n_points - 1;
	}
	memmove(&e->points[1], &e->points[0], at * sizeof(e->points[0]));
	e->points[0] = (struct estimate_point){units, bytes};
}

void estimate_restore(struct estimate *estimate, const struct estimate_work *work, uint64_t bytes)
{
	estimate_set_point(estimate_touch(estimate, work), estimate_units(estimate, work), bytes);
}

void estimate_learn(struct estimate *estimate, const struct estimate_work *work, uint64_t peak)
{
	enum estimate_source source;
	uint64_t old = estimate_bytes(estimate, work, &source);

	if (peak == 0 || !estimate_has_name(work))
		return;
	peak = u64_min(peak, ESTIMATE_BYTES_MAX);
	if (source == ESTIMATE_LEARNED && peak < old)
		peak = old - (old - peak) / 4;
	estimate_restore(estimate, work, peak);
}

uint64_t estimate_learn_oom(struct estimate *estimate, const struct estimate_work *work,
			    uint64_t had, uint64_t peak, uint64_t most)
{
	uint64_t bytes = u64_max(had, peak);

	bytes = u64_min(u64_max(bytes, estimate_bytes(estimate, work, NULL)), ESTIMATE_BYTES_MAX);
	bytes = estimate_scale(bytes, estimate->config.oom_percent,
			       u64_min(most, ESTIMATE_BYTES_MAX));
	if (estimate_has_name(work))
		estimate_restore(estimate, work, bytes);
	return bytes;
}

void estimate_assert_valid(const struct estimate *estimate)
{
	uint32_t n = 0;

	for (uint32_t i = estimate->used.first; i != LIST_END; i = estimate->entries[i].link.next) {
		const struct estimate_entry *e = &estimate->entries[i];
		struct estimate_work work = {.owner = e->owner, .model = e->model, .type = e->type};

		assert(i < estimate->n_entries && ++n <= estimate->n_entries);
		assert(estimate_find(estimate, &work) == i);
		assert(e->n_points > 0 && e->n_points <= ESTIMATE_POINTS);
		for (uint32_t p = 0; p < e->n_points; p++) {
			assert(u64_is_within(e->points[p].bytes, 1, ESTIMATE_BYTES_MAX));
			assert(e->points[p].units <= ESTIMATE_UNITS_MAX);
			for (uint32_t q = 0; q < p; q++)
				assert(e->points[q].units != e->points[p].units);
		}
	}
	assert(n == estimate->used.n && n + estimate->unused.n == estimate->n_entries);
}
