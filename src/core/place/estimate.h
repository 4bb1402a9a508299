/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_ESTIMATE_H
#define NVS_CORE_ESTIMATE_H

/*
 * How much memory a job is likely to need, by its model, its type and its units (atoms, tokens,
 * images: whatever the user counts).
 *
 * Unknown work gets the formula: (base + units * unit_bytes) * factor of the type. The base is that
 * of the model in the configuration, else base_bytes. A job that names neither model, type nor
 * units gets base_bytes alone. A job that names some of them, but no units, has units_default.
 *
 * Work that has run before gets what it took. The table keeps up to ESTIMATE_POINTS peaks for each
 * owner, model and type, each with its units. The same units get their peak. Other units get the
 * peak of the nearest ones, scaled as the formula says. A larger peak counts at once, a smaller one
 * by a quarter: old - (old - new) / 4. After an out-of-memory end the estimate or the peak, the
 * larger one, counts times oom_percent.
 *
 * Work without a model and a type is of every kind, so nothing is learned of it.
 *
 * Estimates are each owner's own: else one user's peaks could make the jobs of others wait.
 *
 * Pure. The table is bytes, linked by slot number; the least recently used entry goes first.
 * Ownership: the caller owns struct estimate and the array of entries. Threading: none.
 */

#include "core/list.h"
#include "core/place/place_name.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ESTIMATE_POINTS     4
#define ESTIMATE_TYPES_MAX  16
#define ESTIMATE_MODELS_MAX 32
#define ESTIMATE_UNITS_MAX  1000000000ull
#define ESTIMATE_BYTES_MAX  (1ull << 44) /* 16 TiB, as PLACE_BYTES_MAX */

struct estimate_config {
	uint64_t base_bytes;    /* default 4000 MiB; 1 to ESTIMATE_BYTES_MAX */
	uint64_t unit_bytes;    /* default 2 MiB; to 1 TiB */
	uint64_t units_default; /* default 500; to ESTIMATE_UNITS_MAX */
	uint32_t oom_percent;   /* default 120; 100 to 1000 */
	uint32_t n_types, n_models;
	struct {
		struct place_name name;
		uint32_t percent;    /* 1 to 10000 */
	} types[ESTIMATE_TYPES_MAX]; /* default: optimization 120, stability 150, heat-capacity 200,
				      * bulk-modulus 130; any other type: 100 */
	struct {
		struct place_name name;
		uint64_t base_bytes;   /* 1 to ESTIMATE_BYTES_MAX */
	} models[ESTIMATE_MODELS_MAX]; /* default: none */
};

struct estimate_work {
	uint32_t owner;                /* a number for the user */
	struct place_name model, type; /* may both be not set */
	bool has_units;
	uint64_t units; /* to ESTIMATE_UNITS_MAX */
};

struct estimate_point {
	uint64_t units;
	uint64_t bytes; /* 1 to ESTIMATE_BYTES_MAX */
};

struct estimate_entry {
	uint32_t owner;
	struct place_name model, type;
	uint32_t n_points;
	struct estimate_point points[ESTIMATE_POINTS]; /* most recent first */
	struct list_link link;                         /* estimate::used, or estimate::unused */
};

struct estimate {
	struct estimate_config config;
	struct estimate_entry *entries;
	uint32_t n_entries;
	struct list used; /* least recently used first */
	struct list unused;
};

/* Where the bytes of an estimate come from. */
enum estimate_source {
	ESTIMATE_FORMULA, /* no such work is known */
	ESTIMATE_SCALED,  /* the peak of other units */
	ESTIMATE_LEARNED, /* the peak of these units */
};

void estimate_config_default(struct estimate_config *ret_config);

/* NULL, or the name of the first field that is out of its range. */
const char *estimate_config_check(const struct estimate_config *config);

/* entries: n of them, at least 1; kept, and used, until the last call. The table is empty. */
void estimate_init(struct estimate *estimate, struct estimate_entry *entries, uint32_t n,
		   const struct estimate_config *config);

/*
 * The bytes that work is likely to need, 1 to ESTIMATE_BYTES_MAX. ret_source may be NULL. Takes
 * time in proportion to the entries (1 us for 256). The entry counts as used only when something is
 * learned.
 */
uint64_t estimate_bytes(const struct estimate *estimate, const struct estimate_work *work,
			enum estimate_source *ret_source);

/*
 * work has ended, and its programs had peak bytes at the most. peak 0 is no news. The caller must
 * not tell the peak of a job that failed before it had its memory: the smaller peak would count.
 */
void estimate_learn(struct estimate *estimate, const struct estimate_work *work, uint64_t peak);

/*
 * The library has reported that work ran out of memory. had: the bytes that the job was placed
 * with, by estimate or by the user. most: the most that the largest card can give; the estimate
 * stays within it, so that the job can be placed at all. Returns the new estimate.
 */
uint64_t estimate_learn_oom(struct estimate *estimate, const struct estimate_work *work,
			    uint64_t had, uint64_t peak, uint64_t most);

/* bytes is the estimate of work from now on: from a record. work has units. */
void estimate_restore(struct estimate *estimate, const struct estimate_work *work, uint64_t bytes);

/* Aborts if an invariant is broken. For tests. */
void estimate_assert_valid(const struct estimate *estimate);

#endif
