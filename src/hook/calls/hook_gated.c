/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Generated bodies; cuda_hooks.def says what each kind is. All but LOCK and UNLOAD ask for room and
 * try again when the driver lacked memory. The driver takes memory by itself: it loads code at the
 * first launch, and a new stream has queues.
 */

#include "abi/cuda_structs.h"
#include "hook/calls/gone.h"
#include "hook/freeze/freeze.h"
#include "hook/gate/gate.h"
#include "hook/gate/green.h"
#include "hook/memory/oom_retry.h"
#include "hook/orion/orion.h"
#include "hook/pager/managed.h"
#include "hook/table/cuda_real.h"
#include "hook/table/hooks.h"

#define HOOK_BODY_OWN(stream, symbol, params, args)
#define HOOK_BODY_ENTER(enter, leave, refused, symbol, params, args)                           \
	CUresult symbol params                                                                 \
	{                                                                                      \
		CUresult(*real) params = __atomic_load_n(&cuda_real.symbol, __ATOMIC_RELAXED); \
		CUresult res;                                                                  \
                                                                                               \
		if (!real)                                                                     \
			return CUDA_ERROR_NOT_FOUND;                                           \
		if (refused)                                                                   \
			return CUDA_ERROR_INVALID_VALUE;                                       \
		enter();                                                                       \
		res = real args;                                                               \
		if (res == CUDA_ERROR_OUT_OF_MEMORY)                                           \
			ROOM_RETRY(res, real args);                                            \
		leave();                                                                       \
		return res;                                                                    \
	}

/* ---- addresses without memory ------------------------------------------------ */

#define REFUSES_NOTHING false
#define REFUSES_D       gone_bytes(dstDevice, ByteCount)
#define REFUSES_S       gone_bytes(srcDevice, ByteCount)
#define REFUSES_DS      (REFUSES_D || REFUSES_S)
#define REFUSES_ANY     (gone_bytes(dst, ByteCount) || gone_bytes(src, ByteCount))

#define REFUSES_FILL(size) gone_bytes(dstDevice, (uint64_t)N *(size))
#define REFUSES_AREA(size) gone_area(dstDevice, dstPitch, (uint64_t)Width *(size), Height)

#define REFUSES_RECT     gone_rect(pCopy)
#define REFUSES_BOX      gone_box(pCopy)
#define REFUSES_BOX_PEER gone_box_peer(pCopy)

/* ---- what names memory -------------------------------------------------------- */

static void walk_enter(void)
{
	gate_begin_walk();
	gate_enter();
}

static void walk_leave(void)
{
	gate_leave();
	gate_end_walk();
}

#define HOOK_BODY_GATE(stream, symbol, params, args) \
	HOOK_BODY_ENTER(gate_enter, gate_leave, REFUSES_NOTHING, symbol, params, args)
#define HOOK_BODY_COPY(stream, symbol, params, args) \
	HOOK_BODY_ENTER(gate_enter_copy, gate_leave, REFUSES_NOTHING, symbol, params, args)
#define HOOK_BODY_WALK(stream, symbol, params, args) \
	HOOK_BODY_ENTER(walk_enter, walk_leave, REFUSES_NOTHING, symbol, params, args)
#define HOOK_BODY_WORD(stream, symbol, params, args)                                             \
	HOOK_BODY_ENTER(gate_enter, gate_leave, gone_bytes(addr, sizeof(value)), symbol, params, \
			args)
#define HOOK_BODY_BATCH(stream, symbol, params, args)                                         \
	HOOK_BODY_ENTER(gate_enter, gate_leave, gone_batch(dsts, srcs, sizes, count), symbol, \
			params, args)

#define HOOK_BODY_WORDS(stream, symbol, params, args) \
	HOOK_BODY_ENTER(gate_enter, gate_leave, gone_words(paramArray, count), symbol, params, args)
#define HOOK_BODY_BOXES(stream, symbol, params, args) \
	HOOK_BODY_ENTER(gate_enter, gate_leave, gone_boxes(opList, numOps), symbol, params, args)

/* To the program the memory of the managed backend is plain, and plain memory does not move. */
static bool places_are_plain(const CUdeviceptr *ptrs, size_t count)
{
	for (size_t i = 0; ptrs && i < count; i++) {
		if (managed_find(ptrs[i]))
			return true;
	}
	return false;
}

#define HOOK_BODY_PLACE(stream, symbol, params, args) \
	HOOK_BODY_ENTER(gate_enter, gate_leave, managed_find(devPtr), symbol, params, args)
#define HOOK_BODY_PLACES(stream, symbol, params, args)                                          \
	HOOK_BODY_ENTER(gate_enter, gate_leave, places_are_plain(dptrs, count), symbol, params, \
			args)

/* ---- what submits work ------------------------------------------------------- */

#define HOOK_BODY_WORK(enter, its_stream, work, refused, symbol, params, args)                 \
	CUresult symbol params                                                                 \
	{                                                                                      \
		CUresult(*real) params = __atomic_load_n(&cuda_real.symbol, __ATOMIC_RELAXED); \
		struct orion_call call;                                                        \
		CUresult res;                                                                  \
                                                                                               \
		if (!real)                                                                     \
			return CUDA_ERROR_NOT_FOUND;                                           \
		if (refused)                                                                   \
			return CUDA_ERROR_INVALID_VALUE;                                       \
		ORION_BEGIN(&call, its_stream, work);                                          \
		enter();                                                                       \
		orion_mark(&call);                                                             \
		res = real args;                                                               \
		if (res == CUDA_ERROR_OUT_OF_MEMORY)                                           \
			ROOM_RETRY(res, real args);                                            \
		orion_end(&call, res);                                                         \
		gate_leave();                                                                  \
		return res;                                                                    \
	}

/* The stream of a call, for the driver's functions without a suffix. */
#define STREAM_legacy(stream) (stream)
#define STREAM_ptsz(stream)   ((stream) ? (stream) : CU_STREAM_PER_THREAD)
#define STREAM_implicit       CU_STREAM_LEGACY
#define STREAM_ptds           CU_STREAM_PER_THREAD

#define STREAM_OF_legacy   STREAM_legacy(hStream)
#define STREAM_OF_ptsz     STREAM_ptsz(hStream)
#define STREAM_OF_implicit STREAM_implicit
#define STREAM_OF_ptds     STREAM_ptds

static uint32_t work_threads(unsigned int x, unsigned int y, unsigned int z)
{
	uint64_t n = (uint64_t)x * y * z;

	return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

static struct orion_work work_of_config(const CUlaunchConfig *c, CUfunction f)
{
	if (!c)
		return (struct orion_work){.kind = ORION_KERNEL};
	return (struct orion_work){
		.kind = ORION_KERNEL,
		.function = f,
		.blocks = (uint64_t)c->gridDimX * c->gridDimY * c->gridDimZ,
		.threads = work_threads(c->blockDimX, c->blockDimY, c->blockDimZ),
		.shared = c->sharedMemBytes,
	};
}

static struct orion_work work_of_copy(enum orion_kind kind, uint64_t width, uint64_t height,
				      uint64_t depth)
{
	return (struct orion_work){.kind = kind, .bytes = width * height * depth};
}

#define WORK_KERNEL                                                       \
	((struct orion_work){                                             \
		.kind = ORION_KERNEL,                                     \
		.function = f,                                            \
		.blocks = (uint64_t)gridDimX * gridDimY * gridDimZ,       \
		.threads = work_threads(blockDimX, blockDimY, blockDimZ), \
		.shared = sharedMemBytes,                                 \
	})
#define WORK_GRAPH ((struct orion_work){.kind = ORION_GRAPH, .function = hGraphExec})
/* The program's structure may be anything: the driver is to say so. */
#define WORK_RECT \
	work_of_copy(ORION_COPY_BUS, pCopy ? pCopy->WidthInBytes : 0, pCopy ? pCopy->Height : 0, 1)
#define WORK_BOX                                                                                 \
	work_of_copy(ORION_COPY_BUS, pCopy ? pCopy->WidthInBytes : 0, pCopy ? pCopy->Height : 0, \
		     pCopy ? pCopy->Depth : 0)

#define HOOK_BODY_LAUNCH(stream, symbol, params, args)                                       \
	HOOK_BODY_WORK(gate_enter, STREAM_OF_##stream, WORK_KERNEL, REFUSES_NOTHING, symbol, \
		       params, args)
#define HOOK_BODY_LAUNCHEX(stream, symbol, params, args)                             \
	HOOK_BODY_WORK(gate_enter, STREAM_##stream(config ? config->hStream : NULL), \
		       work_of_config(config, f), REFUSES_NOTHING, symbol, params, args)
#define HOOK_BODY_GRAPH(stream, symbol, params, args)                                       \
	HOOK_BODY_WORK(gate_enter, STREAM_OF_##stream, WORK_GRAPH, REFUSES_NOTHING, symbol, \
		       params, args)
#define HOOK_BODY_LINE(enter, kind, refused, stream, symbol, params, args)                      \
	HOOK_BODY_WORK(enter, STREAM_OF_##stream, work_of_copy(kind, ByteCount, 1, 1), refused, \
		       symbol, params, args)
#define HOOK_BODY_MOVE(stream, symbol, params, args) \
	HOOK_BODY_LINE(gate_enter, ORION_COPY_BUS, REFUSES_NOTHING, stream, symbol, params, args)
#define HOOK_BODY_MOVE_S(stream, symbol, params, args) \
	HOOK_BODY_LINE(gate_enter, ORION_COPY_BUS, REFUSES_S, stream, symbol, params, args)
#define HOOK_BODY_MOVE_DS(stream, symbol, params, args) \
	HOOK_BODY_LINE(gate_enter, ORION_COPY_BUS, REFUSES_DS, stream, symbol, params, args)
#define HOOK_BODY_MOVE_ANY(stream, symbol, params, args) \
	HOOK_BODY_LINE(gate_enter, ORION_COPY_BUS, REFUSES_ANY, stream, symbol, params, args)
#define HOOK_BODY_BRING_D(stream, symbol, params, args) \
	HOOK_BODY_LINE(gate_enter_copy, ORION_COPY_BUS, REFUSES_D, stream, symbol, params, args)
#define HOOK_BODY_SHIFT(stream, symbol, params, args) \
	HOOK_BODY_LINE(gate_enter, ORION_COPY_DEVICE, REFUSES_NOTHING, stream, symbol, params, args)
#define HOOK_BODY_SHIFT_D(stream, symbol, params, args) \
	HOOK_BODY_LINE(gate_enter, ORION_COPY_DEVICE, REFUSES_D, stream, symbol, params, args)
#define HOOK_BODY_SHIFT_S(stream, symbol, params, args) \
	HOOK_BODY_LINE(gate_enter, ORION_COPY_DEVICE, REFUSES_S, stream, symbol, params, args)
#define HOOK_BODY_SHIFT_DS(stream, symbol, params, args) \
	HOOK_BODY_LINE(gate_enter, ORION_COPY_DEVICE, REFUSES_DS, stream, symbol, params, args)
#define HOOK_BODY_RECT(stream, symbol, params, args)                                            \
	HOOK_BODY_WORK(gate_enter, STREAM_OF_##stream, WORK_RECT, REFUSES_RECT, symbol, params, \
		       args)
#define HOOK_BODY_BOX(stream, symbol, params, args) \
	HOOK_BODY_WORK(gate_enter, STREAM_OF_##stream, WORK_BOX, REFUSES_BOX, symbol, params, args)
#define HOOK_BODY_BOX_PEER(stream, symbol, params, args)                                           \
	HOOK_BODY_WORK(gate_enter, STREAM_OF_##stream, WORK_BOX, REFUSES_BOX_PEER, symbol, params, \
		       args)

#define HOOK_BODY_FILL(size, stream, symbol, params, args)                                      \
	HOOK_BODY_WORK(gate_enter, STREAM_OF_##stream,                                          \
		       work_of_copy(ORION_COPY_DEVICE, N, size, 1), REFUSES_FILL(size), symbol, \
		       params, args)
#define HOOK_BODY_AREA(size, stream, symbol, params, args)                                       \
	HOOK_BODY_WORK(gate_enter, STREAM_OF_##stream,                                           \
		       work_of_copy(ORION_COPY_DEVICE, Width, Height, size), REFUSES_AREA(size), \
		       symbol, params, args)
#define HOOK_BODY_FILL8(stream, symbol, params, args) \
	HOOK_BODY_FILL(1, stream, symbol, params, args)
#define HOOK_BODY_FILL16(stream, symbol, params, args) \
	HOOK_BODY_FILL(2, stream, symbol, params, args)
#define HOOK_BODY_FILL32(stream, symbol, params, args) \
	HOOK_BODY_FILL(4, stream, symbol, params, args)
#define HOOK_BODY_AREA8(stream, symbol, params, args) \
	HOOK_BODY_AREA(1, stream, symbol, params, args)
#define HOOK_BODY_AREA16(stream, symbol, params, args) \
	HOOK_BODY_AREA(2, stream, symbol, params, args)
#define HOOK_BODY_AREA32(stream, symbol, params, args) \
	HOOK_BODY_AREA(4, stream, symbol, params, args)

/* ---- control -------------------------------------------------------------------- */

/* The second try is inside the gate, so that nothing takes away the room that was made for it. */
#define HOOK_BODY_ROOM(made, symbol, params, args)                                             \
	CUresult symbol params                                                                 \
	{                                                                                      \
		CUresult(*real) params = __atomic_load_n(&cuda_real.symbol, __ATOMIC_RELAXED); \
		CUresult res;                                                                  \
                                                                                               \
		if (!real)                                                                     \
			return CUDA_ERROR_NOT_FOUND;                                           \
		res = FREEZE_AROUND(real args);                                                \
		if (res == CUDA_ERROR_OUT_OF_MEMORY) {                                         \
			gate_enter();                                                          \
			ROOM_RETRY(res, real args);                                            \
			gate_leave();                                                          \
		}                                                                              \
		if (res == CUDA_SUCCESS) {                                                     \
			made;                                                                  \
		}                                                                              \
		return res;                                                                    \
	}

#define HOOK_BODY_CONTROL(stream, symbol, params, args) \
	HOOK_BODY_ROOM((void)0, symbol, params, args)
#define HOOK_BODY_STREAM(stream, symbol, params, args) \
	HOOK_BODY_ROOM(green_stream_made(*phStream, NULL), symbol, params, args)
#define HOOK_BODY_STREAM_OF(stream, symbol, params, args) \
	HOOK_BODY_ROOM(green_stream_made(*phStream, greenCtx), symbol, params, args)

#define HOOK_BODY_LOCKED(before, symbol, params, args)                                         \
	CUresult symbol params                                                                 \
	{                                                                                      \
		CUresult(*real) params = __atomic_load_n(&cuda_real.symbol, __ATOMIC_RELAXED); \
                                                                                               \
		before;                                                                        \
		return real ? FREEZE_AROUND(real args) : CUDA_ERROR_NOT_FOUND;                 \
	}

#define HOOK_BODY_LOCK(stream, symbol, params, args) HOOK_BODY_LOCKED((void)0, symbol, params, args)
#define HOOK_BODY_UNLOAD(stream, symbol, params, args) \
	HOOK_BODY_LOCKED(orion_code_gone(), symbol, params, args)

#define CU_HOOK(kind, base, symbol, since, stream, params, args) \
	HOOK_BODY_##kind(stream, symbol, params, args)
#define CU_REAL(base, symbol, since, stream, params)
#include "hook/table/cuda_hooks.def"
