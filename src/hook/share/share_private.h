/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_SHARE_PRIVATE_H
#define NVS_HOOK_SHARE_PRIVATE_H

/*
 * The parts: share.c has the scheduler's settings and the tick; share_off.c takes the program off
 * the GPU and on again; share_meter.c decides when to look for work; share_gpu.c looks on a GPU;
 * share_here.c tells whether that work is on the GPU or waits; share_limit.c has the program's own
 * limit; share_burst.c reports requests, bursts and hints; share_warm.c gets contexts onto the GPU
 * ahead; share_tasks.c measures tasks; share_api.c serves other threads.
 */

#include "hook/agent/agent_link.h"
#include "hook/share/share.h"

#define SHARE_NEVER AGENT_NEVER
#define SHARE_PPM   1000000u

/* share.c. Reports to the scheduler. n_calls: of END, else 0. */
void share_tell(enum nvshare_activity_kind kind, uint64_t value, uint32_t n_calls, uint64_t now_ns);

/* ---- share_off.c: reasons to be off, each with its end --------------------------- */

enum share_reason { SHARE_REASON_HOLD, SHARE_REASON_LIMIT, SHARE_REASON_COUNT_ };

struct share_off_stats {
	uint64_t held_ns; /* until now */
	uint64_t n_holds, n_failures;
	uint64_t took_ns_last, took_ns_max;
};

/*
 * Off until until_ns, or longer for another reason or another GPU. An enum nvshare_outcome;
 * INVALID_STATE: nothing is done for a program that is stopped.
 */
uint32_t share_off_begin(CUdevice dev, enum share_reason reason, uint64_t until_ns);
void share_off_end(CUdevice dev, enum share_reason reason);
bool share_off_is(enum share_reason reason); /* on some GPU */
bool share_off_is_for(CUdevice dev, enum share_reason reason);
bool share_off_is_on(void);         /* for some reason */
void share_off_prove(CUdevice dev); /* proves the freeze ahead of the first hold */
uint64_t share_off_tick(uint64_t now_ns);
void share_off_stats(uint64_t now_ns, struct share_off_stats *ret);
void share_off_reset(void);

/* ---- share_meter.c ---------------------------------------------------------------- */

/* All GPUs together. */
struct share_meter {
	bool is_busy;      /* a GPU has work, or had some a moment ago */
	uint64_t busy_ns;  /* the sum */
	uint64_t begin_ns; /* when it became busy last */
	uint64_t idle_ns;  /* when that ended, or seems to have; 0: it goes on */
};

struct share_meter_gpu {
	bool is_busy;     /* it has work, or had some a moment ago */
	uint64_t busy_ns; /* the sum of times with work */
	uint64_t ran_ns;  /* the part on the GPU; 0: unknown, or none yet */
	bool is_blind;    /* ran_ns cannot be known */
};

/* How closely to look. Each level gives all that the ones before give. */
enum share_look {
	SHARE_LOOK_NONE,
	SHARE_LOOK_COARSE, /* for the status: about 100 times a second */
	SHARE_LOOK_USUAL,  /* for a limit, or with others beside it: 1000 times a second */
	SHARE_LOOK_FINE,   /* for the end of work, within a fraction of a millisecond */
};

void share_meter_tick(uint64_t now_ns, enum share_look look);
uint64_t share_meter_due(void);
void share_meter_forget(void); /* idle: no work came through the gate meanwhile */
void share_meter_read(struct share_meter *ret);
void share_meter_read_gpu(CUdevice dev, struct share_meter_gpu *ret);
/* use_ppm: its own part of the time with work on dev, as far as is known; 0: it is alone there. */
void share_meter_set_use(CUdevice dev, uint64_t use_ppm);
/* The next look comes no later than when ns more of work may have passed than were counted. */
void share_meter_soon(uint64_t now_ns, uint64_t ns);
void share_meter_reset(void);

/* ---- share_here.c ----------------------------------------------------------------- */

enum share_here {
	SHARE_HERE_BLIND,   /* it cannot be told */
	SHARE_HERE_WAITING, /* the program has not been on the GPU since the last question */
	SHARE_HERE_ASKED,   /* the question is under way */
};

/*
 * Asks the contexts on dev whether they are on the GPU. knows_work: skips contexts whose work is
 * done by the drain's event. share_here_is() has the answer some 20 us later: on the GPU, if it has
 * work.
 */
enum share_here share_here_ask(CUdevice dev, bool knows_work);
bool share_here_is(CUdevice dev, bool knows_work);

/*
 * The last work is done. true: a question was asked meanwhile, and the program came onto the GPU
 * only when it was answered, some time before the end. drain_probe_time() must have been called.
 */
bool share_here_waited(CUdevice dev);

void share_here_forget(CUdevice dev); /* drops answers, which say nothing of later work */

/* ---- share_limit.c ---------------------------------------------------------------- */

/* Counts the program's own part of its busy time on dev; and that part so far. */
void share_limit_count(CUdevice dev, uint64_t use_ppm);
uint64_t share_limit_gpu_ns(CUdevice dev);
/* After share_limit_count(). The program is off all of its GPUs while dev is above its limit. */
uint64_t share_limit_tick(CUdevice dev, uint64_t now_ns, uint32_t percent);
void share_limit_reset(void);

/* ---- share_burst.c ---------------------------------------------------------------- */

/* is_often: reports decide about other clients now; else they are for the status alone. */
uint64_t share_burst_tick(uint64_t now_ns, enum share_look look, bool is_often);
void share_burst_lost(void);              /* the scheduler is lost, with all reports */
void share_burst_forgotten(bool runs_on); /* a scheduler that stops us has forgotten reports */
void share_burst_again(void);             /* the scheduler listens from now on: report anew */
void share_burst_reset(void);

/* ---- share_warm.c: gets contexts onto their GPUs ahead of their work ------------------ */

void share_warm_prepare(void); /* the first time may take milliseconds */
void share_warm(void);

/* ---- share_api.c: requests and hints of other threads since the last call ------------ */

struct share_api_news {
	bool has_hint;
	uint64_t hint_ns;    /* when the request begins; 0: it does not */
	bool is_hint_last;   /* no request has begun since the hint */
	uint32_t n_open;     /* open requests */
	bool has_begun;      /* some request has begun since the start of the process */
	uint32_t n_ended;    /* requests that have ended since the last call */
	uint64_t longest_ns; /* the longest of them */
};

void share_api_take(struct share_api_news *ret);
void share_api_publish(CUdevice dev, const struct nvshare_status *status);
/* Publishes it. false, and nothing is published: something else has been claimed by now. */
bool share_api_admit(CUdevice dev, const struct nvshare_claim *claimed,
		     const struct nvshare_status *status);
/* The scheduler has changed a claim. The change is wanted of later schedulers, too. */
void share_api_adopt(const struct nvshare_claim *before, const struct nvshare_claim *after);
void share_api_reset(void);

/* ---- share_tasks.c: any thread ------------------------------------------------------ */

/* true: it is the first task since the last share_tasks_take(). */
bool share_tasks_add(uint64_t ns, uint32_t slo_us);
bool share_tasks_are_new(void); /* share_tasks_take() has something */
/* The tasks since the last call, and those of them that took longer than their SLO. */
void share_tasks_take(uint32_t *ret_n, uint32_t *ret_n_violations);
void share_tasks_hint(void);
void share_tasks_read(struct nvshare_status *ret);
void share_tasks_reset(void);

#endif
