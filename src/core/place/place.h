/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_PLACE_H
#define NVS_CORE_PLACE_H

/*
 * Placement: which GPU a job is to run on. Each GPU gets a score, or a reason why the job cannot
 * start there. The answer has every part of the score, so that a user can be told why.
 *
 * A score is the sum of these parts, in thousandths of a point. Each weight is a setting:
 *
 *	affinity     affinity_ran if the GPU remembers the job's model; affinity_room if it
 *	             remembers fewer than models_max models; else 0. Without a model: 0
 *	free         weight_free * free / total, and weight_free_gb for each 1000 MiB that are free
 *	utilization  weight_utilization * (100 - utilization) / 100
 *	temperature  weight_temperature * (100 - temperature) / 100
 *	idle         weight_idle * idle time / idle_full_ns, at most weight_idle
 *
 * PLACE_PRESET_BALANCED has 100, 50, 40, 0, 30, 20, 10. PLACE_PRESET_SIMPLE has 100, 0, 0, 1, 0,
 * 10, 0: a remembered model counts 100, each 1000 MiB one point, ten degrees one point.
 *
 * The job fits where free bytes are at least its need and the margin. Such a GPU stands before one
 * on which the job would take turns. Among the former the score decides; among the latter the
 * number of programs and jobs there, then the score. The lower index wins a tie. Turns bring a job
 * no bytes of those who take none, which are external and critical programs.
 *
 * Pure: the caller gives facts and time. The state is bytes, without a pointer.
 * Ownership: struct place is the caller's. Threading: none; one caller at a time.
 */

#include "core/place/place_name.h"
#include "core/sched.h"

#include <stdbool.h>
#include <stdint.h>

#define PLACE_GPUS_MAX   SCHED_GPUS_MAX
#define PLACE_ANY        UINT32_MAX /* request.gpu: any GPU */
#define PLACE_NONE       UINT32_MAX /* no GPU */
#define PLACE_UNKNOWN    UINT32_MAX /* utilization or temperature: not known */
#define PLACE_MODELS_MAX 8
#define PLACE_WEIGHT_MAX 1000
#define PLACE_BYTES_MAX  (1ull << 44) /* 16 TiB: of a card, of a need */

enum place_preset { PLACE_PRESET_BALANCED, PLACE_PRESET_SIMPLE, PLACE_PRESET_COUNT_ };

/* Weights are points, to PLACE_WEIGHT_MAX. */
struct place_config {
	uint32_t affinity_ran;
	uint32_t affinity_room;
	uint32_t weight_free;
	uint32_t weight_free_gb; /* for each 1000 MiB, to 100 */
	uint32_t weight_utilization;
	uint32_t weight_temperature;
	uint32_t weight_idle;
	uint64_t idle_full_ns;   /* default 600 s; not 0 */
	uint32_t models_max;     /* remembered for each GPU, 1 to PLACE_MODELS_MAX; default 2 */
	uint64_t model_ttl_ns;   /* after the model's last job there has ended; default 3600 s */
	uint64_t margin_bytes;   /* kept free on each card; default 2000 MiB */
	uint32_t margin_percent; /* but at most so much of the card, 0..50; default 10 */
	uint32_t turns_max;      /* where the sharing degree is 0: so many programs and jobs at
				  * most where they do not all fit, 1 to SCHED_DEGREE_MAX;
				  * default 4 */
	uint32_t allowed;        /* job_gpus: bit i is GPU i; default all */
	uint32_t reserved;       /* the same: GPUs that no job gets; default none */
};

/* Facts of a GPU, as the caller knows them. */
struct place_gpu {
	bool is_known;        /* false: the index stands for no GPU, and the rest is 0 */
	bool is_out;          /* it has an error */
	uint64_t total;       /* bytes, to PLACE_BYTES_MAX */
	uint64_t reserve;     /* bytes that the scheduler keeps in no budget */
	uint64_t external;    /* bytes of programs that are no clients: they take no turns */
	uint64_t others;      /* bytes: footprints of clients that are no job's */
	uint64_t critical;    /* bytes of others that stay: their clients are critical */
	uint32_t n_others;    /* clients that are no job's */
	uint32_t degree;      /* the GPU's sharing degree: 1 in the modes serial and concurrent; 0:
			       * any number */
	uint32_t utilization; /* percent; PLACE_UNKNOWN gives half of the weight */
	uint32_t temperature; /* degrees Celsius, above 100 is 100; PLACE_UNKNOWN: the same */
	uint64_t idle_ns;     /* no client has computed there for so long */
};

/* The part of a GPU that jobs take. */
struct place_load {
	uint64_t charged;  /* bytes: of each job its reservation or its footprint, the larger one */
	uint64_t critical; /* bytes of charged that stay: their jobs are critical */
	uint32_t n_jobs;   /* that have been started and have not ended */
};

struct place_model {
	struct place_name name;
	uint64_t used_ns; /* a job of this model began or ended */
	uint32_t n_jobs;  /* that run now: the model is not forgotten before they end */
};

struct place_slot {
	struct place_gpu facts;
	struct place_load load;
	struct place_model models[PLACE_MODELS_MAX]; /* most recently used first */
	uint32_t n_models;
};

struct place {
	struct place_config config;
	struct place_slot gpu[PLACE_GPUS_MAX];
};

struct place_request {
	uint64_t need;           /* bytes, 1 to PLACE_BYTES_MAX */
	struct place_name model; /* not set: none */
	uint32_t gpu;            /* its index, or PLACE_ANY */
	uint32_t apart;          /* mask of the GPUs that the job must keep away from */
	uint32_t booked;         /* mask of the GPUs that are kept for other jobs */
	bool is_whole;           /* waits for room: starts only where it fits */
	bool is_explained;       /* the parts of the score are wanted of all GPUs, not only of those
				  * where the job can start */
};

/* Why a job cannot start on a GPU now. The first one that applies. */
enum place_reason {
	PLACE_OK,
	PLACE_NO_GPU,     /* the index stands for no GPU */
	PLACE_NOT_ASKED,  /* the request names another GPU */
	PLACE_NOT_IN_SET, /* job_gpus lacks it */
	PLACE_RESERVED,
	PLACE_TOO_SMALL, /* the need and the margin are more than the card has */
	PLACE_OUT,       /* it has an error; until it is back */
	PLACE_APART,     /* a job that this one keeps away from is there */
	PLACE_FULL,      /* as many programs and jobs are there as its sharing degree allows */
	PLACE_NO_ROOM,   /* is_whole: too few bytes are free; else turns_max are there already, or
			  * external leaves too few bytes for its turns */
	PLACE_BOOKED,    /* another job has waited for long, and is next there */
	PLACE_REASON_COUNT_
};

/*
 * The answer for a GPU. All but the parts of the score are set whatever the reason, unless it is
 * PLACE_NO_GPU. The parts are 0 where they were not wanted.
 */
struct place_score {
	enum place_reason reason;
	bool is_fit;                  /* need and margin are free */
	uint64_t total, margin, free; /* bytes; margin: the larger of margin and reserve */
	uint32_t n_on;                /* programs that are no job's, and jobs */
	uint32_t degree;              /* 0: any number */
	/* thousandths of a point */
	uint64_t affinity, by_free, by_utilization, by_temperature, by_idle, sum;
};

void place_config_default(enum place_preset preset, struct place_config *ret_config);

/* NULL, or the name of the first field that is out of its range. */
const char *place_config_check(const struct place_config *config);

/* config: checked. No GPU is known, and no model is remembered. */
void place_init(struct place *place, const struct place_config *config);

/*
 * Scores every GPU for request. Returns the index of the best one, or PLACE_NONE if the job cannot
 * start now. Takes time in proportion to PLACE_GPUS_MAX.
 */
uint32_t place_choose(const struct place *place, const struct place_request *request,
		      uint64_t now_ns, struct place_score ret_scores[PLACE_GPUS_MAX]);

/* Whether the job could start on gpu if no other job was there. */
bool place_can_empty(const struct place *place, uint32_t gpu, const struct place_request *request);

/* The same if the jobs there had this load; of request's masks only apart counts. */
bool place_can_beside(const struct place *place, uint32_t gpu, const struct place_load *load,
		      const struct place_request *request);

/*
 * The one reason that stands for all GPUs, of scores for which none is PLACE_OK: the one that is
 * likely to end first. PLACE_TOO_SMALL, PLACE_RESERVED, PLACE_NOT_IN_SET, PLACE_NOT_ASKED and
 * PLACE_NO_GPU mean that the job waits for another GPU or another configuration.
 */
enum place_reason place_reason_of(const struct place_score scores[PLACE_GPUS_MAX]);

/* "the card is too small": for tables and messages, without a full stop. */
const char *place_reason_text(enum place_reason reason);

/* A job of model began on gpu, or ended there. Does nothing if model is not set. */
void place_model_begin(struct place *place, uint32_t gpu, const struct place_name *model,
		       uint64_t now_ns);
void place_model_end(struct place *place, uint32_t gpu, const struct place_name *model,
		     uint64_t now_ns);

/* The index stands for another GPU, or for none: its models are forgotten. load stays. */
void place_model_forget(struct place *place, uint32_t gpu);

#endif
