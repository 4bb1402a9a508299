/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The proof that a freeze freezes: a value that the GPU is to write, into memory that the
 * processor can look at. First without a freeze, so that nothing which the driver does at
 * a first use is taken for one, nor work of the program that is ahead: streams share the
 * hardware's queues.
 *
 * What asks the driver is a thread that ends with it. The driver may keep it waiting, for room
 * in a queue or for a lock of a thread that waits for room: as long as a kernel takes.
 */

#include "hook/base/hook_log.h"
#include "hook/base/hook_mutex.h"
#include "hook/base/thread.h"
#include "hook/freeze/freeze_private.h"
#include "hook/gate/device.h"
#include "hook/gate/gate.h"
#include "hook/table/cuda_real.h"
#include "util/clock.h"

#include <string.h>

#define PROVE_STILL_NS (5 * CLOCK_NS_PER_MS)    /* so long nothing may land, at least */
#define PROVE_TURNS    3                        /* and so often as long as one waits for its turn */
#define PROVE_LAND_NS  (2000 * CLOCK_NS_PER_MS) /* so long it may take to, with nothing ahead */
#define PROVE_SOON_NS  (50 * CLOCK_NS_PER_MS)   /* where there may be work ahead */
#define PROVE_QUIET_NS (10 * CLOCK_NS_PER_MS)   /* for who is about to leave the gate */
#define PROVE_LIMIT_NS (500 * CLOCK_NS_PER_MS)
#define PROVE_PAUSE_NS 50000

/* One refusal may be of that moment. So many, so far apart, are the driver's answer. */
#define PROVE_REFUSALS_MAX 3
#define PROVE_REFUSED_NS   (100 * CLOCK_NS_PER_MS)

#define PROVE_STACK_SIZE (1u << 20) /* driver calls run on it */

#define HOST_DEVICEMAP      2u
#define STREAM_NON_BLOCKING 1u

enum sending { SENDING_NOT, SENDING_NOW, SENDING_NO_MEANS, SENDING_REFUSED };

/*
 * One a GPU, for all tries: what was sent and has not landed is waited for by the next. The
 * stream and the flag go with their context; to free the flag is to wait for all work.
 */
struct proof {
	bool is_proven; /* atomic */
	CUcontext ctx;  /* lock; of the stream and the flag; NULL: there are none */
	CUstream stream;
	uint32_t *flag;
	uint32_t sent;               /* the last value; it grows */
	uint32_t sending;            /* atomic; enum sending; while NOW the rest is the sender's */
	struct device_context *held; /* by the sender */
};

static struct hook_mutex lock = HOOK_MUTEX(HOOK_LOCK_FREEZE_PROVE);
static struct proof proofs[DEVICE_COUNT_MAX];

static unsigned int n_refusals; /* the agent's: in a row, of those that count */
static uint64_t refused_ns;     /* the last of them */

bool freeze_is_proven(CUdevice dev)
{
	return dev >= 0 && dev < DEVICE_COUNT_MAX &&
	       __atomic_load_n(&proofs[dev].is_proven, __ATOMIC_ACQUIRE);
}

/* ---- the sender's thread --------------------------------------------------------- */

static CUresult submit(const struct proof *proof)
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

static bool has_means(struct proof *proof)
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

static void *send_value(void *arg)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	enum sending end = SENDING_NO_MEANS;
	struct proof *proof = arg;
	struct device_context *held = proof->held;
	CUcontext popped;

	thread_name("nvshare-prove");
	/* Else it would break a capture of another thread. */
	if (cuda_real.cuThreadExchangeStreamCaptureMode)
		(void)cuda_real.cuThreadExchangeStreamCaptureMode(&mode);
	if (cuda_real.cuCtxPushCurrent_v2(proof->ctx) == CUDA_SUCCESS) {
		if (has_means(proof))
			end = submit(proof) == CUDA_SUCCESS ? SENDING_NOT : SENDING_REFUSED;
		(void)cuda_real.cuCtxPopCurrent_v2(&popped);
	}
	__atomic_store_n(&proof->sending, end, __ATOMIC_RELEASE);
	device_context_drop(held);
	return NULL;
}

/* ---- the agent's ------------------------------------------------------------------ */

static enum sending sending(const struct proof *proof)
{
	return (enum sending)__atomic_load_n(&proof->sending, __ATOMIC_ACQUIRE);
}

static bool has_landed(const struct proof *proof)
{
	return !proof->flag || __atomic_load_n(proof->flag, __ATOMIC_ACQUIRE) == proof->sent;
}

static bool lands(const struct proof *proof, uint64_t within_ns)
{
	uint64_t end_ns = clock_now_ns() + within_ns;

	while (!has_landed(proof)) {
		if (clock_now_ns() >= end_ns)
			return false;
		clock_nap(PROVE_PAUSE_NS);
	}
	return true;
}

/* The next value. SENDING_NOW: the driver keeps the sender for longer than that. */
static enum sending send_next(struct proof *proof, uint64_t within_ns)
{
	uint64_t end_ns = clock_now_ns() + within_ns;

	proof->sent++;
	if (!device_context_hold_this(proof->ctx, &proof->held))
		return SENDING_NO_MEANS;
	__atomic_store_n(&proof->sending, SENDING_NOW, __ATOMIC_RELEASE);
	if (thread_start(send_value, proof, PROVE_STACK_SIZE)) {
		device_context_drop(proof->held);
		__atomic_store_n(&proof->sending, SENDING_NO_MEANS, __ATOMIC_RELEASE);
	}
	while (sending(proof) == SENDING_NOW && clock_now_ns() < end_ns)
		clock_nap(PROVE_PAUSE_NS);
	return sending(proof);
}

static int unproven(enum freeze_why why)
{
	freeze_why_set(why);
	return FREEZE_E_UNPROVEN;
}

static int refused(void)
{
	uint64_t now_ns = clock_now_ns();

	if (n_refusals && now_ns - refused_ns < PROVE_REFUSED_NS)
		return FREEZE_E_BUSY;
	refused_ns = now_ns;
	return ++n_refusals < PROVE_REFUSALS_MAX ? FREEZE_E_BUSY : unproven(FREEZE_WHY_REFUSED);
}

/* What is not sent does not land. Nothing is wrong with it. */
static int not_sent(struct proof *proof, enum sending how, enum freeze_why why)
{
	if (how == SENDING_NOW)
		return FREEZE_E_BUSY;
	proof->sent--;
	__atomic_store_n(&proof->sending, SENDING_NOT, __ATOMIC_RELEASE);
	return how == SENDING_REFUSED ? unproven(why) : FREEZE_E_BUSY;
}

/* Sends one that nothing holds up, and waits for it; *ret_ns: how long that took. */
static int land_next(struct proof *proof, bool is_idle, uint64_t *ret_ns)
{
	uint64_t patience_ns = is_idle ? PROVE_LAND_NS : PROVE_SOON_NS, start_ns = clock_now_ns();
	enum sending how = send_next(proof, patience_ns);

	if (how != SENDING_NOT)
		return not_sent(proof, how, FREEZE_WHY_NO_WRITES);
	if (!lands(proof, patience_ns))
		return is_idle ? unproven(FREEZE_WHY_NO_WRITES) : FREEZE_E_BUSY;
	*ret_ns = clock_now_ns() - start_ns;
	return 0;
}

/*
 * How long nothing may land while all is frozen. One value lands at once or not, as the moment
 * has it; one that is sent right after it waits for all others' turns, if it has to wait for
 * its own, and is not to be taken for frozen by that. *ret_visits: who may send something behind
 * it; whoever has left by then has sent it ahead.
 */
static int measure_still(struct proof *proof, bool is_idle, uint64_t *ret_visits, uint64_t *ret_ns)
{
	uint64_t took_ns;
	int r = land_next(proof, is_idle, &took_ns);

	*ret_visits = gate_visits();
	if (!r)
		r = land_next(proof, is_idle, &took_ns);
	if (r)
		return r;
	*ret_ns = took_ns * PROVE_TURNS;
	if (*ret_ns < PROVE_STILL_NS)
		*ret_ns = PROVE_STILL_NS;
	return *ret_ns < PROVE_LIMIT_NS / 2 ? 0 : FREEZE_E_BUSY;
}

/*
 * A value that lands is no proof that the next one would not wait, unless nothing else runs,
 * or nothing is sent between the two. What is spoilt ends there: the program stands still for it.
 */
static int prove(struct proof *proof, bool is_idle)
{
	uint64_t patience_ns = is_idle ? PROVE_LAND_NS : PROVE_SOON_NS;
	uint64_t visits, still_ns;
	enum sending how;
	bool moved;
	int r;

	r = measure_still(proof, is_idle, &visits, &still_ns);
	if (!r && !is_idle && gate_visits() != visits)
		r = FREEZE_E_BUSY;
	if (r)
		return r;
	r = freeze_begin(PROVE_LIMIT_NS);
	if (r)
		return r == FREEZE_E_REFUSED ? refused() : r;
	n_refusals = 0;
	how = send_next(proof, is_idle ? PROVE_LIMIT_NS / 2 : PROVE_SOON_NS / 2);
	if (how != SENDING_NOT) {
		(void)freeze_end();
		return not_sent(proof, how, FREEZE_WHY_WRITE_FAILED);
	}
	moved = lands(proof, still_ns);
	/* Committed for a moment: a watchdog that has thawed would make a liar of either. */
	if (!freeze_commit())
		return FREEZE_E_BUSY;
	(void)freeze_end();
	if (!lands(proof, patience_ns))
		return is_idle ? unproven(FREEZE_WHY_NEVER_WENT_ON) : FREEZE_E_BUSY;
	if (moved)
		return unproven(FREEZE_WHY_WENT_ON);
	/* What was sent between the two may have been what the second one waited for. */
	return is_idle || gate_visits() == visits ? 0 : FREEZE_E_BUSY;
}

/* Of the context that is there now; what there was of another's is left to it. */
static void take_context(struct proof *proof, CUcontext ctx)
{
	hook_lock(&lock);
	if (proof->ctx != ctx)
		*proof = (struct proof){.ctx = ctx};
	hook_unlock(&lock);
}

static int prove_when(CUdevice dev, CUcontext ctx, bool is_idle)
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
	proof = &proofs[dev];
	how = sending(proof);
	if (how != SENDING_NOT)
		return not_sent(proof, how, FREEZE_WHY_NO_WRITES);
	take_context(proof, ctx);
	if (!lands(proof, is_idle ? PROVE_LAND_NS : 0)) /* what was sent before */
		return is_idle ? unproven(FREEZE_WHY_NEVER_WENT_ON) : FREEZE_E_BUSY;
	r = prove(proof, is_idle);
	if (r == 0)
		__atomic_store_n(&proof->is_proven, true, __ATOMIC_RELEASE);
	return r;
}

int freeze_prove(CUdevice dev, CUcontext ctx)
{
	return prove_when(dev, ctx, true);
}

/* Most who are inside launch something, and leave soon; who waits for room in a queue may stay. */
int freeze_prove_busy(CUdevice dev, CUcontext ctx)
{
	uint64_t end_ns = clock_now_ns() + PROVE_QUIET_NS;

	if (gate_get() != GATE_CLOSED)
		return FREEZE_E_BUSY;
	while (!freeze_why_not() && !freeze_is_proven(dev) && !gate_quiet() &&
	       clock_now_ns() < end_ns)
		clock_nap(PROVE_PAUSE_NS);
	return prove_when(dev, ctx, false);
}

void freeze_context_gone(CUcontext ctx)
{
	hook_lock(&lock);
	for (CUdevice dev = 0; dev < DEVICE_COUNT_MAX; dev++) {
		struct proof *proof = &proofs[dev];

		if (proof->ctx != ctx)
			continue;
		proof->ctx = NULL;
		proof->stream = NULL;
		proof->flag = NULL;
		proof->sent = 0;
		__atomic_store_n(&proof->sending, SENDING_NOT, __ATOMIC_RELEASE);
	}
	hook_unlock(&lock);
}

void freeze_prove_after_fork_child(void)
{
	hook_mutex_renew(&lock, HOOK_LOCK_FREEZE_PROVE);
	memset(proofs, 0, sizeof(proofs));
	n_refusals = 0;
}
