/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_METRICS_H
#define NVS_DAEMON_METRICS_H

/*
 * Numbers of the node become the text that Prometheus reads (format 0.0.4). One table names all
 * metrics (metrics_table.c): name, type, unit, labels and help.
 *
 * A GPU's series have the labels gpu and UUID, as those of dcgm-exporter. A client's series also
 * have client, and namespace and pod if the client named them. Names come from strangers. They are
 * sanitized already (util/text.h), so that they are UTF-8 without controls, and are escaped here.
 *
 * Pure but for memory. Threading: none.
 */

#include "core/histogram.h"
#include "core/sched.h"
#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* More clients are in the sums of their GPU, and have no series. */
#define METRICS_CLIENTS_MAX 1024

struct metrics_node {
	struct nvshare_status_node status;
	uint64_t n_lines_dropped; /* of the log */
	uint64_t n_answers;       /* of HTTP, so far */
	uint64_t wait_bound_ns;
	uint64_t n_events[NVSHARE_EVENT_COUNT];
	uint32_t n_unlisted; /* clients without series */
	uint32_t n_gangs, n_gang_members;
	struct nvshare_status_pool pool;
	uint32_t n_jobs_waiting, n_jobs_running;
	uint64_t n_jobs_submitted, n_jobs_started, n_jobs_retried, n_jobs_refused, n_jobs_failed;
	uint64_t n_jobs_ended[NVSHARE_JOB_END_COUNT];
	struct histogram jobs_wait;
};

struct metrics_gpu {
	struct nvshare_status_gpu status;
	uint64_t n_grants, n_stop_failures, n_refusals;
	uint64_t used;                            /* bytes: reported by clients, or external */
	uint64_t resident, swapped, pinned, host; /* bytes of all clients */
	uint32_t n_hung, n_stopped, n_doubted, n_unstoppable, n_paused; /* clients */
	uint32_t n_waiters[NVSHARE_WAIT_COUNT];
	double busy_ratio;          /* since its first client */
	double next_switch_seconds; /* NAN: none is planned */
	/* By NVML; NAN: unknown. */
	double celsius, watts, joules, nvml_ratio;
	bool is_state[NVSHARE_STATE_COUNT]; /* one is true */
	bool is_out;
	struct histogram queue_wait, stop, wake, preempt;
};

struct metrics_client {
	struct nvshare_status_client status;
	uint64_t pinned;      /* bytes */
	uint64_t wanted;      /* bytes that a blocked allocation lacks */
	double wait_seconds;  /* in the queue by now; 0: it does not wait */
	double slo_seconds;   /* NAN: it has none */
	double compute_limit; /* NAN: it has none */
	double energy_joules; /* NAN: unknown */
	/* Of the scheduler in its process; NAN: there is none. */
	double orion_clients, orion_waiting, orion_hp_ops, orion_be_ops, orion_be_waits;
	double orion_wait_seconds;
	struct nvshare_clean clean;
	struct nvshare_status_gang gang; /* its number is 0: of none */
	struct nvshare_status_wait wait; /* its obstacle is 0: it waits for turns, or not at all */
	uint32_t place;                  /* of its GPU in metrics::gpus */
	bool is_running, is_hung, is_stopped, is_doubted, is_preemptible, is_paused;
};

struct metrics {
	struct metrics_node node;
	uint32_t n_gpus, n_clients;
	struct metrics_gpu gpus[SCHED_GPUS_MAX];
	struct metrics_client clients[METRICS_CLIENTS_MAX];
};

enum metrics_type { METRICS_GAUGE, METRICS_COUNTER, METRICS_HISTOGRAM };

/* Whose series: the labels, and the struct of the field. */
enum metrics_scope { METRICS_OF_NODE, METRICS_OF_GPU, METRICS_OF_CLIENT };

/* How the field becomes a number. */
enum metrics_form {
	METRICS_INFO, /* no field: 1, and the words are labels */
	METRICS_BOOL,
	METRICS_U32,
	METRICS_U64,
	METRICS_NS,      /* uint64_t: seconds */
	METRICS_SLICE,   /* uint64_t in microseconds: seconds */
	METRICS_PERCENT, /* uint32_t: a ratio */
	METRICS_DOUBLE,  /* NAN: no series */
	METRICS_BUCKETS, /* struct histogram: seconds */
};

/* Rows of one name stand together, and differ in `label`. */
struct metrics_row {
	const char *name;
	const char *label; /* 'direction="out"'; NULL: none */
	const char *help;
	enum metrics_type type;
	enum metrics_scope scope;
	enum metrics_form form;
	size_t offset;
};

extern const struct metrics_row metrics_table[];
extern const size_t metrics_table_len;

struct metrics_text {
	char *at; /* malloc(); the caller frees it */
	size_t len, size;
};

/* 0, or -ENOMEM: ret_text is empty. Takes about 100 ns a series. */
int metrics_print(const struct metrics *metrics, struct metrics_text *ret_text);

#endif
