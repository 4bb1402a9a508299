/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_ORION_PRIVATE_H
#define NVS_HOOK_ORION_PRIVATE_H

/*
 * The parts of the scheduler inside the process. One mutex guards all of it, and no thread keeps it
 * over a driver call. A function "under the lock" is called with it; some give it up for a while,
 * and say so.
 *
 * A flight is one piece of work from the question until its completion is seen:
 *
 *     asked -> let go -> submitted, with an event behind it -> completed
 *
 * Only one thread at a time looks at events (is_polling). It alone takes flights off their streams,
 * and streams off the list, so it may read them without the lock.
 */

#ifndef NVSHARE_IS_LIBRARY
#define NVSHARE_IS_LIBRARY
#endif
#include "nvshare/orion.h"

#include "core/orion/kernel_profile.h"
#include "core/orion/orion_policy.h"
#include "hook/base/hook_mutex.h"
#include "hook/orion/orion.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* The last client of the policy is threads without an index, on streams of nobody. */
_Static_assert(ORION_CLIENTS_MAX + 1 == ORION_POLICY_CLIENTS_MAX, "a mask has a bit for each");

struct orion_event {
	struct orion_event *next;
	CUevent event;
};

/* A context, and its events that are in no flight. */
struct orion_context {
	struct orion_context *prev, *next;
	CUcontext ctx;
	CUcontext owner; /* of a green context: its primary one, with which it ends */
	CUdevice dev;
	struct orion_event *plain;    /* without time */
	struct orion_event *stamping; /* with time */
};

struct orion_stream {
	struct orion_stream *prev, *next;
	struct orion_context *context;
	const void *key;              /* its handle, or gate_thread_stream() */
	uint32_t client;              /* that used it last; ORION_POLICY_NONE: none has */
	uint32_t n_inside;            /* flights that are not submitted */
	bool is_gone;                 /* the program has destroyed it */
	struct orion_flight *flights; /* submitted, the oldest one first */
};

struct orion_flight {
	struct orion_flight *prev, *next;
	struct orion_stream *stream;
	uint32_t generation; /* of the scheduler that it asked */
	uint32_t client;     /* of the policy */
	bool is_asked;       /* the policy knows of it */
	bool is_measured;
	struct orion_policy_op op;
	struct orion_work work;
	uint64_t key;                    /* of its profile */
	struct orion_event *start, *end; /* NULL: none */
};

/* A function as the driver describes it, for one size of blocks; or a graph's durations. */
struct orion_kernel {
	const void *function; /* NULL: the slot is free */
	uint32_t threads, shared;
	uint32_t blocks_per_sm; /* 0: unknown */
	uint64_t hash;          /* of the name */
	char *name;             /* NULL: a graph */
	uint64_t graph_ns;      /* mean of a graph's durations */
	uint32_t n_measured;    /* of a graph */
};

#define ORION_KERNELS_MAX  4096u /* slots; a power of 2 */
#define ORION_PROFILES_MAX 4096u

enum orion_state {
	ORION_OFF,
	ORION_TAKES,     /* orion_init() */
	ORION_SCHEDULES, /* orion_start_scheduler() */
};

struct orion_client {
	uint32_t n_threads;             /* that have its index */
	uint32_t next_ticket, n_served; /* threads of one client ask one after the other */
};

struct orion {
	struct hook_mutex lock;
	pthread_cond_t changed; /* a client may go; a poll, a call or a flight has ended */
	enum orion_state state;
	bool is_disabled;
	bool is_ending;         /* a thread ends it, and waits for calls; none is taken meanwhile */
	bool is_inited;         /* by orion_init(), and not by the start alone */
	bool is_policy_ready;   /* the device is known */
	bool was_started;       /* so the counters of the policy mean something */
	bool is_polling;        /* a thread looks at events */
	bool has_poller;        /* a thread that waits looks at them again and again */
	bool is_profiling;      /* everything is measured */
	bool is_config_known;   /* the settings are read */
	uint32_t generation;    /* of the scheduler */
	uint32_t n_clients;     /* of the program */
	uint32_t n_inside;      /* flights that are not submitted */
	uint32_t n_flights;     /* that are */
	uint32_t n_since_check; /* of known kernels, so that one of some is measured again */
	uint64_t go;            /* clients that may go and have not seen it */
	uint64_t passed;        /* clients whose wait has ended without the policy */
	struct orion_client clients[ORION_POLICY_CLIENTS_MAX];
	struct orion_config config;
	struct orion_policy policy;
	struct orion_context *contexts;
	struct orion_stream *streams;
	struct orion_flight *unused; /* flights */
	struct orion_kernel *kernels;
	uint32_t n_kernels;
	struct kernel_profiles profiles; /* entries NULL: no memory for them yet */
	struct kernel_profile_name model, gpu;
};

extern struct orion orion;

/* Written under the lock. */
extern bool orion_is_started;
/* It was started once. Handles that end are forgotten even while it takes no calls. */
extern bool orion_has_books;

/* ---- orion_client.c ---- */

/* The client of the calling thread in a scheduler of n_clients; ORION_NO_CLIENT: none. */
int orion_thread_client(void);
void orion_thread_forget(void); /* in a forked child */

/* ---- orion_ask.c; under the lock ---- */

/* Waits until the flight may go. Gives the lock up meanwhile. Sets is_asked if the policy knows. */
void orion_ask(struct orion_flight *flight);
/* One event for the policy; clients that may go hear of it. */
int orion_step(struct orion_policy_event *event);
void orion_release(void); /* ends all waits: what waits is submitted without the policy */

/* ---- orion_flight.c; under the lock ---- */

/* The books of ctx, which is current. NULL: no memory. Gives the lock up. */
struct orion_context *orion_context_get(CUcontext ctx);
struct orion_stream *orion_stream_get(struct orion_context *context, const void *key);
struct orion_flight *orion_flight_new(void); /* NULL: no memory */
void orion_flight_free(struct orion_flight *flight);
/* Looks at the events of all streams, and ends what is done. Gives the lock up. */
void orion_poll(void);
void orion_drop_flights(void); /* all of them; nobody polls */

/* ---- orion_kernel.c; under the lock ---- */

/* Fills what the policy is to know of the flight's work. Gives the lock up. */
void orion_kernel_describe(struct orion_flight *flight);
void orion_kernel_learn(const struct orion_flight *flight, uint64_t ns);
bool orion_profiles_ready(void); /* makes the table; false: no memory */
void orion_kernels_clear(void);

/* ---- orion_device.c ---- */

/* Under the lock; gives it up. Prepares the policy for the device. false: it is not known. */
bool orion_device_ready(void);
/* Of the device that is scheduled, as the driver has it; "" where it does not say. Not under it. */
void orion_device_name(char *buf, size_t size);

/* ---- orion_first.c ---- */

bool orion_sees_calls(void);

/* ---- orion_profile_file.c; not under the lock ---- */

int orion_profile_load(const char *path);
int orion_profile_save(const char *path);

#endif
