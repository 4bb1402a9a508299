/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The proof that a freeze freezes. The GPU is told to write a value into host memory, and the
 * processor looks whether it lands.
 *
 * The first value is sent without a freeze. Else a first use in the driver, or work of the program
 * ahead in the same hardware queue, would look like a freeze.
 *
 * Each value is submitted by a thread of its own, the sender. The driver may keep that thread for
 * as long as a kernel takes: for room in a queue, or for a lock of a thread that waits for room.
 */

#include "hook/base/hook_log.h"
#include "hook/base/hook_mutex.h"
#include "hook/base/thread.h"
#include "hook/freeze/freeze_private.h"
#include "hook/gate/device.h"
#include "hook/gate/gate.h"
#include "hook/table/cuda_real.h"
#include "util/clock.h"
#include "util/thread_name.h"

#include <string.h>

#define PROVE_STILL_NS (5 * CLOCK_NS_PER_MS)    /* no value may land for so long, at least */
#define PROVE_TURNS    3                        /* or for so many times the wait for a turn */
#define PROVE_LAND_NS  (2000 * CLOCK_NS_PER_MS) /* a value lands within it if no work is ahead */
#define PROVE_SOON_NS  (50 * CLOCK_NS_PER_MS)   /* the patience where work may be ahead */
#define PROVE_QUIET_NS (10 * CLOCK_NS_PER_MS)   /* for threads that are about to leave the gate */
#define PROVE_LIMIT_NS (500 * CLOCK_NS_PER_MS)  /* of the freeze */
#define PROVE_PAUSE_NS 50000

/* One refusal may be chance. So many, so far apart, are the driver's answer. */
#define PROVE_REFUSALS_MAX 3
#define PROVE_REFUSED_NS   (100 * CLOCK_NS_PER_MS)

#define PROVE_STACK_SIZE (1u << 20) /* driver calls run on it */

#define HOST_DEVICEMAP      2u
#define STREAM_NON_BLOCKING 1u

/* The sender: done, at work, without the means to submit, refused by the driver. */
enum sending { SENDING_NOT, SENDING_NOW, SENDING_NO_MEANS, SENDING_REFUSED };

/*
 * One a GPU, for all tries: a try first waits for the value of the one before. Stream and flag end
 * with their context. Nobody frees the flag, because that would wait for all work.
 */
struct proof {
	bool is_proven;   /* atomic */
	uint32_t sending; /* atomic; enum sending; while it is NOW the sender owns what follows */
	CUcontext ctx;    /* lock; of the stream and the flag; NULL: there are none */
	CUstream stream;
	uint32_t *flag;
	uint32_t sent;               /* the last value; it grows */
	struct device_context *held; /* by the sender */
};

static struct {
	struct hook_mutex lock;
	struct proof proofs[DEVICE_COUNT_MAX];
	unsigned int n_refusals; /* the agent's; in a row */
	uint64_t refused_ns;     /* the agent's; when the last one was */
} prover = {.lock = HOOK_MUTEX(HOOK_LOCK_FREEZE_PROVE)};

bool freeze_is_proven(CUdevice dev)
{
	return dev >= 0 && dev < DEVICE_COUNT_MAX &&
	       __atomic_load_n(&prover.proofs[dev].is_proven, __ATOMIC_ACQUIRE);
}

/* ---- the sender's thread --------------------------------------------------------- */

static CUresult proof_submit(const struct proof *proof)
{
	CUresult (*write)(CUstream s, CUdeviceptr addr, cuuint32_t v, unsigned int flags) =
		cuda_real.cuStreamWriteValue32_v2;
	CUdeviceptr addr = (CUdeviceptr)(uintptr_t)proof->flag;
	CUresult res = CUDA_ERROR_NOT_SUPPORTED;

	if (write)
		res = write(proof->stream, addr, proof->sent, 0);
	if (res != CUDA_SUCCESS && cuda_real.cuStreamWriteValue32)
		res = cuda_real.cuStreamWriteValue32(proof->stream, addr, proof->sent, 0);
	return res;
}

static bool proof_has_means(struct proof *proof)
{
	void *flag = NULL;

	if (!proof->flag &&
	    cuda_real.cuMemHostAlloc(&flag, sizeof(uint32_t), HOST_DEVICEMAP) == CUDA_SUCCESS) {
		memset(flag, 0, sizeof(uint32_t));
		proof->flag = flag;
	}
	if (proof->flag && !proof->stream &&
	    cuda_real.cuStreamCreate(&proof->stream, STREAM_NON_BLOCKING) != CUDA_SUCCESS)
		proof->stream = NULL;
	return proof->flag && proof->stream;
}

static void *proof_send_value(void *arg)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	enum sending end = SENDING_NO_MEANS;
	struct proof *proof = arg;
	struct device_context *held = proof->held;
	CUcontext popped;

	thread_name("nvshare-prove");
	/* In another mode it would break captures of other threads. */
	if (cuda_real.cuThreadExchangeStreamCaptureMode)
		(void)cuda_real.cuThreadExchangeStreamCaptureMode(&mode);
	if (cuda_real.cuCtxPushCurrent_v2(proof->ctx) == CUDA_SUCCESS) {
		if (proof_has_means(proof))
			end = proof_submit(proof) == CUDA_SUCCESS ? SENDING_NOT : SENDING_REFUSED;
		(void)cuda_real.cuCtxPopCurrent_v2(&popped);
	}
	__atomic_store_n(&proof->sending, end, __ATOMIC_RELEASE);
	device_context_drop(held);
	return NULL;
}

/* ---- the agent's ------------------------------------------------------------------ */

static enum sending proof_sending(const struct proof *proof)
{
	return (enum sending)__atomic_load_n(&proof->sending, __ATOMIC_ACQUIRE);
}

static bool proof_has_landed(const struct proof *proof)
{
	return !proof->flag || __atomic_load_n(proof->flag, __ATOMIC_ACQUIRE) == proof->sent;
}

static bool proof_lands(const struct proof *proof, uint64_t within_ns)
{
	uint64_t end_ns = clock_now_ns() + within_ns;

	while (!proof_has_landed(proof)) {
		if (clock_now_ns() >= end_ns)
			return false;
		clock_nap(PROVE_PAUSE_NS);
	}
	return true;
}

/* Sends the next value. SENDING_NOW: the driver keeps the sender for longer than within_ns. */
static enum sending proof_send(struct proof *proof, uint64_t within_ns)
{
	uint64_t end_ns = clock_now_ns() + within_ns;

	proof->sent++;
	if (!device_context_hold_this(proof->ctx, &proof->held))
		return SENDING_NO_MEANS;
	__atomic_store_n(&proof->sending, SENDING_NOW, __ATOMIC_RELEASE);
	if (thread_start(proof_send_value, proof, PROVE_STACK_SIZE)) {
		device_context_drop(proof->held);
		__atomic_store_n(&proof->sending, SENDING_NO_MEANS, __ATOMIC_RELEASE);
	}
	while (proof_sending(proof) == SENDING_NOW && clock_now_ns() < end_ns)
		clock_nap(PROVE_PAUSE_NS);
	return proof_sending(proof);
}

static int prover_give_up(enum freeze_why why)
{
	freeze_why_set(why);
	return FREEZE_E_UNPROVEN;
}

/* The driver has refused a freeze. */
static int prover_refused(void)
{
	uint64_t now_ns = clock_now_ns();

	if (prover.n_refusals && now_ns - prover.refused_ns < PROVE_REFUSED_NS)
		return FREEZE_E_BUSY;
	prover.refused_ns = now_ns;
	return ++prover.n_refusals < PROVE_REFUSALS_MAX ? FREEZE_E_BUSY
							: prover_give_up(FREEZE_WHY_REFUSED);
}

/* The last value was not sent, and will not land: the next one has its number. */
static int proof_not_sent(struct proof *proof, enum sending how, enum freeze_why why)
{
	if (how == SENDING_NOW)
		return FREEZE_E_BUSY;
	proof->sent--;
	__atomic_store_n(&proof->sending, SENDING_NOT, __ATOMIC_RELEASE);
	return how == SENDING_REFUSED ? prover_give_up(why) : FREEZE_E_BUSY;
}

/* Sends a value, without a freeze, and waits until it lands. *ret_ns: how long that took. */
static int proof_land_next(struct proof *proof, bool is_idle, uint64_t *ret_ns)
{
	uint64_t patience_ns = is_idle ? PROVE_LAND_NS : PROVE_SOON_NS, start_ns = clock_now_ns();
	enum sending how = proof_send(proof, patience_ns);

	if (how != SENDING_NOT)
		return proof_not_sent(proof, how, FREEZE_WHY_NO_WRITES);
	if (!proof_lands(proof, patience_ns))
		return is_idle ? prover_give_up(FREEZE_WHY_NO_WRITES) : FREEZE_E_BUSY;
	*ret_ns = clock_now_ns() - start_ns;
	return 0;
}

/*
 * *ret_ns: for how long no value may land while all is frozen. The first value lands at once or
 * after a while, by chance. The second one follows at once, so it waits for the turns of all other
 * processes if it has to wait for its own. That wait must not look like a freeze.
 *
 * *ret_visits: the threads that may submit work after the first value. The work of a thread that
 * has left before is ahead of it.
 */
static int proof_measure_still(struct proof *proof, bool is_idle, uint64_t *ret_visits,
			       uint64_t *ret_ns)
{
	uint64_t took_ns;
	int r = proof_land_next(proof, is_idle, &took_ns);

	*ret_visits = gate_visits();
	if (!r)
		r = proof_land_next(proof, is_idle, &took_ns);
	if (r)
		return r;
	*ret_ns = took_ns * PROVE_TURNS;
	if (*ret_ns < PROVE_STILL_NS)
		*ret_ns = PROVE_STILL_NS;
	return *ret_ns < PROVE_LIMIT_NS / 2 ? 0 : FREEZE_E_BUSY;
}

/*
 * A value has landed. The next one may still have to wait, unless no other work runs or none comes
 * between the two. So a try ends as soon as work may have come: the program stands still for it.
 */
static int proof_try(struct proof *proof, bool is_idle)
{
	uint64_t patience_ns = is_idle ? PROVE_LAND_NS : PROVE_SOON_NS;
	uint64_t visits, still_ns;
	enum sending how;
	bool moved;
	int r;

	r = proof_measure_still(proof, is_idle, &visits, &still_ns);
	if (!r && !is_idle && gate_visits() != visits)
		r = FREEZE_E_BUSY;
	if (r)
		return r;
	r = freeze_begin(PROVE_LIMIT_NS);
	if (r)
		return r == FREEZE_E_REFUSED ? prover_refused() : r;
	prover.n_refusals = 0;
	how = proof_send(proof, is_idle ? PROVE_LIMIT_NS / 2 : PROVE_SOON_NS / 2);
	if (how != SENDING_NOT) {
		(void)freeze_end();
		return proof_not_sent(proof, how, FREEZE_WHY_WRITE_FAILED);
	}
	moved = proof_lands(proof, still_ns);
	/* The commit shows that the watchdog has not thawed in between. */
	if (!freeze_commit())
		return FREEZE_E_BUSY;
	(void)freeze_end();
	if (!proof_lands(proof, patience_ns))
		return is_idle ? prover_give_up(FREEZE_WHY_NEVER_WENT_ON) : FREEZE_E_BUSY;
	if (moved)
		return prover_give_up(FREEZE_WHY_WENT_ON);
	/* The second value may have waited for work that came between the two. */
	return is_idle || gate_visits() == visits ? 0 : FREEZE_E_BUSY;
}

/* Makes it a proof of ctx. The means of another context are left to that one. */
static void proof_take_context(struct proof *proof, CUcontext ctx)
{
	hook_lock(&prover.lock);
	if (proof->ctx != ctx)
		*proof = (struct proof){.ctx = ctx};
	hook_unlock(&prover.lock);
}

static int prove_device(CUdevice dev, CUcontext ctx, bool is_idle)
{
	struct proof *proof;
	enum sending how;
	int r;

	if (freeze_why_not())
		return FREEZE_E_OFF;
	if (freeze_is_proven(dev))
		return 0;
	if (dev < 0 || dev >= DEVICE_COUNT_MAX || !cuda_real.cuMemHostAlloc ||
	    !cuda_real.cuStreamCreate)
		return FREEZE_E_BUSY;
	proof = &prover.proofs[dev];
	how = proof_sending(proof);
	if (how != SENDING_NOT)
		return proof_not_sent(proof, how, FREEZE_WHY_NO_WRITES);
	proof_take_context(proof, ctx);
	/* The value of the try before. */
	if (!proof_lands(proof, is_idle ? PROVE_LAND_NS : 0))
		return is_idle ? prover_give_up(FREEZE_WHY_NEVER_WENT_ON) : FREEZE_E_BUSY;
	r = proof_try(proof, is_idle);
	if (r == 0)
		__atomic_store_n(&proof->is_proven, true, __ATOMIC_RELEASE);
	return r;
}

int freeze_prove(CUdevice dev, CUcontext ctx)
{
	return prove_device(dev, ctx, true);
}

/* Most threads inside launch something and leave. One that waits for room in a queue may stay. */
int freeze_prove_busy(CUdevice dev, CUcontext ctx)
{
	uint64_t end_ns = clock_now_ns() + PROVE_QUIET_NS;

	if (gate_get() != GATE_CLOSED)
		return FREEZE_E_BUSY;
	while (!freeze_why_not() && !freeze_is_proven(dev) && !gate_quiet() &&
	       clock_now_ns() < end_ns)
		clock_nap(PROVE_PAUSE_NS);
	return prove_device(dev, ctx, false);
}

void freeze_context_gone(CUcontext ctx)
{
	hook_lock(&prover.lock);
	for (CUdevice dev = 0; dev < DEVICE_COUNT_MAX; dev++) {
		struct proof *proof = &prover.proofs[dev];

		if (proof->ctx != ctx)
			continue;
		proof->ctx = NULL;
		proof->stream = NULL;
		proof->flag = NULL;
		proof->sent = 0;
		__atomic_store_n(&proof->sending, SENDING_NOT, __ATOMIC_RELEASE);
	}
	hook_unlock(&prover.lock);
}

void freeze_prove_after_fork_child(void)
{
	memset(&prover, 0, sizeof(prover));
	hook_mutex_renew(&prover.lock, HOOK_LOCK_FREEZE_PROVE);
}
