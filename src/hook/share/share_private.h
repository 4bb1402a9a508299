/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_SHARE_PRIVATE_H
#define NVS_HOOK_SHARE_PRIVATE_H

/*
 * What the parts share. share.c: the scheduler's word, and the tick; share_off.c: off the
 * GPU and on again; share_meter.c: when to look for work; share_gpu.c: is there some on a GPU;
 * share_here.c: and is it on it, or waiting for others; share_limit.c: the program's own limit;
 * share_burst.c: requests, bursts and hints, told to the scheduler; share_warm.c: the context on
 * the GPU ahead of them; share_tasks.c: how long they took; share_api.c: what other threads ask.
 */

#include "hook/agent/agent_link.h"
#include "hook/share/share.h"

#define SHARE_NEVER AGENT_NEVER
#define SHARE_PPM   1000000u

/* share.c. n_calls: of END, else 0 */
void share_tell(enum nvshare_activity_kind kind, uint64_t value, uint32_t n_calls, uint64_t now_ns);

/* ---- share_off.c: reasons to be off, each with its end --------------------------- */

enum share_reason { SHARE_REASON_HOLD, SHARE_REASON_LIMIT, SHARE_REASON_COUNT_ };

struct share_off_stats {
	uint64_t held_ns; /* until now */
	uint64_t n_holds, n_failures;
	uint64_t took_ns_last, took_ns_max;
};

/* Off until then, or for another reason longer. An enum nvshare_outcome. */
uint32_t share_off_begin(CUdevice dev, enum share_reason reason, uint64_t until_ns);
void share_off_end(enum share_reason reason);
bool share_off_is(enum share_reason reason);
bool share_off_is_on(void); /* for whatever reason */
bool share_off_can(CUdevice dev);
bool share_off_may_be(void);        /* by a freeze or the gate: not a program with several GPUs */
void share_off_prove(CUdevice dev); /* so that a hold finds it done */
uint64_t share_off_tick(uint64_t now_ns);
void share_off_stats(uint64_t now_ns, struct share_off_stats *ret);
void share_off_reset(void);

/* ---- share_meter.c ---------------------------------------------------------------- */

/* Of all GPUs together. */
struct share_meter {
	bool is_busy;      /* work is on one, or was a moment ago */
	uint64_t busy_ns;  /* in all */
	uint64_t begin_ns; /* of this time of being busy */
	uint64_t idle_ns;  /* when it ended, or seems to have; 0: it goes on */
};

struct share_meter_gpu {
	bool is_busy;     /* there is work on it, or was a moment ago */
	uint64_t busy_ns; /* in all, with work */
	uint64_t ran_ns;  /* of that, on the GPU; 0: not known, or none yet */
	bool is_blind;    /* ran_ns can not be known */
};

/* How closely to look, by who wants to know; the later ones give all that the earlier do. */
enum share_look {
	SHARE_LOOK_NONE,
	SHARE_LOOK_COARSE, /* how much it is, for the status: some 100 times a second */
	SHARE_LOOK_USUAL,  /* a limit, others beside it: 1000 times */
	SHARE_LOOK_FINE,   /* when work ends, within a fraction of a ms */
};

void share_meter_tick(uint64_t now_ns, enum share_look look);
uint64_t share_meter_due(void);
void share_meter_forget(void); /* idle: what has passed the gate meanwhile was nothing */
void share_meter_read(struct share_meter *ret);
void share_meter_read_gpu(CUdevice dev, struct share_meter_gpu *ret);
/* Of the time with work on dev, this is its own, as far as is known; 0: it is alone there. */
void share_meter_set_use(CUdevice dev, uint64_t use_ppm);
/* Looks again when there may have been so much more than was counted, if that is earlier. */
void share_meter_soon(uint64_t now_ns, uint64_t ns);
void share_meter_reset(void);

/* ---- share_here.c ----------------------------------------------------------------- */

enum share_here {
	SHARE_HERE_BLIND,   /* it can not be told */
	SHARE_HERE_WAITING, /* it has not been on the GPU since it was asked last */
	SHARE_HERE_ASKED,   /* it has */
};

/*
 * Of the contexts on dev. knows_work: not of those whose work is done, as the drain's event says.
 * share_here_is(): some 20 us later; on the GPU, if there is work.
 */
enum share_here share_here_ask(CUdevice dev, bool knows_work);
bool share_here_is(CUdevice dev, bool knows_work);

/*
 * When the last work is done and it was asked meanwhile: it was not on the GPU until it was
 * answered, some time before that. drain_probe_start() has to have been told to take the time.
 */
bool share_here_waited(CUdevice dev);

void share_here_forget(CUdevice dev); /* the answers: of what comes next they would say nothing */

/* ---- share_limit.c ---------------------------------------------------------------- */

/* Its own of the time that it was busy on dev: up to date, and that. */
void share_limit_count(CUdevice dev, uint64_t use_ppm);
uint64_t share_limit_gpu_ns(CUdevice dev);
/* After share_limit_count(). */
uint64_t share_limit_tick(CUdevice dev, uint64_t now_ns, uint32_t percent);
void share_limit_reset(void);

/* ---- share_burst.c ---------------------------------------------------------------- */

/* is_often: what is told decides about somebody now; else it is for the status alone. */
uint64_t share_burst_tick(uint64_t now_ns, enum share_look look, bool is_often);
void share_burst_lost(void);              /* the scheduler: what it was told is void */
void share_burst_forgotten(bool runs_on); /* by a scheduler that has told it to stop */
void share_burst_again(void); /* it listens from now on: at work or not, told before or not */
void share_burst_reset(void);

/* ---- share_warm.c: the contexts brought onto their GPUs ahead of their work ---------- */

void share_warm_prepare(void); /* the first time may take milliseconds */
void share_warm(void);

/* ---- share_api.c: what other threads have said, since the last call ---------------- */

struct share_api_news {
	bool has_hint;
	uint64_t hint_ns;    /* when the request begins; 0: it does not */
	bool is_hint_last;   /* none has begun since that was said */
	uint32_t n_open;     /* requests */
	bool has_begun;      /* ever */
	uint32_t n_ended;    /* since the last call */
	uint64_t longest_ns; /* of those */
};

void share_api_take(struct share_api_news *ret);
void share_api_publish(CUdevice dev, const struct nvshare_status *status);
/* Publishes it, unless something else than that has been claimed by now: then false. */
bool share_api_admit(CUdevice dev, const struct nvshare_claim *claimed,
		     const struct nvshare_status *status);
/* The scheduler has changed a claim: what has changed is wanted from now on, of the next one too.
 */
void share_api_adopt(const struct nvshare_claim *before, const struct nvshare_claim *after);
void share_api_reset(void);

/* ---- share_tasks.c: any thread ------------------------------------------------------ */

/* True if it is the first since the last share_tasks_take(). */
bool share_tasks_add(uint64_t ns, uint32_t slo_us);
bool share_tasks_are_new(void); /* there is something to take */
/* How many there were since the last call, and of those, that took longer than their SLO. */
void share_tasks_take(uint32_t *ret_n, uint32_t *ret_n_violations);
void share_tasks_hint(void);
void share_tasks_read(struct nvshare_status *ret);
void share_tasks_reset(void);

#endif
