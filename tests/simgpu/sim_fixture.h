/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIMGPU_SIM_FIXTURE_H
#define NVS_TESTS_SIMGPU_SIM_FIXTURE_H

/*
 * A node of its own for each test program, contexts and kernels, and other processes: the
 * program itself, started again with the name of a part to play, since a forked child of a
 * process that used CUDA can not use it.
 */

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "abi/cuda_structs.h"
#include "simgpu/node/node.h"

#define CU_HOOK(kind, base, symbol, since, stream, params, args) CUresult symbol params;
#define CU_REAL(base, symbol, since, stream, params)             CUresult symbol params;
#include "hook/table/cuda_hooks.def"

CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent);
CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev);
CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd);
CUresult cuDeviceGetDevResource(CUdevice dev, CUdevResource *resource, CUdevResourceType type);
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *desc, CUdevResource *resources,
				   unsigned int n);
CUresult cuGetErrorName(CUresult error, const char **pStr);
CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n);
CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
				 size_t n, const CUDA_KERNEL_NODE_PARAMS *params);
CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n,
			      const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx);
CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags);
CUresult cuGraphDestroy(CUgraph hGraph);
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
					   const CUDA_KERNEL_NODE_PARAMS *params);
CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
			      CUgraphExecUpdateResultInfo *resultInfo);
CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes);
CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type);
CUresult cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event);
CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr);
CUresult cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute,
				CUdeviceptr devPtr, size_t count);
CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name);
CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name);
CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority);
CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
				   cuuint64_t *id_out, CUgraph *graph_out,
				   const CUgraphNode **dependencies_out,
				   size_t *numDependencies_out);
int nvshare_sim_counter(unsigned int counter, uint64_t *ret);

#define MIB  ((size_t)1 << 20)
#define PAGE (2 * MIB)

#define assert_cuda(call) assert_int_equal(call, CUDA_SUCCESS)

/* The simulated GPU reads names alone; a real one would want bodies. */
static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
			  "/* .entry in_a_comment() */\n"
			  ".visible .global .align 4 .b8 table[256];\n"
			  ".visible .global .u32 counter;\n"
			  ".visible .entry nvs_empty() { ret; }\n"
			  ".visible .entry nvs_fill_u32(.param .u64 p) { ret; }\n"
			  ".visible .entry nvs_verify_u32(.param .u64 p) { ret; }\n"
			  ".visible .entry nvs_lcg_u32(.param .u64 p) { ret; }\n"
			  ".visible .entry nvs_axpy_f32(.param .u64 p) { ret; }\n"
			  ".visible .entry nvs_touch_u8(.param .u64 p) { ret; }\n"
			  ".visible .entry nvs_spin(.param .u64 p) { ret; }\n"
			  ".visible .entry nvs_sum_u32(.param .u64 p) { ret; }\n"
			  ".visible .entry nvs_count(.param .u64 p) { ret; }\n"
			  ".visible .entry somebody_elses(.param .u64 p) { ret; }\n";

static CUcontext ctx;
static CUmodule module;
static char sim_dir[] = "/tmp/nvshare-test-sim-XXXXXX";

/* A context and a module for one test; a sticky error ends with them. */
static inline int sim_setup(void **state)
{
	(void)state;
	assert_cuda(cuCtxCreate_v2(&ctx, 0, 0));
	assert_cuda(cuModuleLoadData(&module, ptx));
	return 0;
}

static inline int sim_teardown(void **state)
{
	CUcontext current;

	(void)state;
	assert_cuda(cuCtxGetCurrent(&current));
	if (current == ctx)
		assert_cuda(cuCtxDestroy_v2(ctx));
	ctx = NULL;
	return 0;
}

static inline CUfunction function(const char *name)
{
	CUfunction f;

	assert_cuda(cuModuleGetFunction(&f, module, name));
	return f;
}

/* All of our kernels take 64 bit arguments first; 32 bit ones read the low half. */
static inline CUresult launch4(const char *name, CUstream stream, uint64_t a, uint64_t b,
			       uint64_t c, uint64_t d)
{
	void *params[4] = {&a, &b, &c, &d};

	return cuLaunchKernel(function(name), 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
}

static inline CUresult fill(CUstream stream, CUdeviceptr p, uint64_t n, uint32_t seed)
{
	return launch4("nvs_fill_u32", stream, p, n, seed, 0);
}

/* Wrong words in p[0..n), or UINT32_MAX when the device would not say. */
static inline uint32_t errors_in(CUdeviceptr p, uint64_t n, uint32_t seed)
{
	CUdeviceptr counter;
	uint32_t errors = UINT32_MAX;

	if (cuMemAlloc_v2(&counter, 4) || cuMemsetD32_v2(counter, 0, 1) ||
	    launch4("nvs_verify_u32", NULL, p, n, seed, counter) ||
	    cuMemcpyDtoH_v2(&errors, counter, 4) || cuMemFree_v2(counter))
		return UINT32_MAX;
	return errors;
}

static inline uint64_t memory_used(void)
{
	size_t free_bytes, total;

	assert_cuda(cuMemGetInfo_v2(&free_bytes, &total));
	return total - free_bytes;
}

static inline void sim_environment(const char *gpus, const char *memory)
{
	if (!mkdtemp(sim_dir))
		abort();
	setenv("NVSHARE_SIM_DIR", sim_dir, 1);
	setenv("NVSHARE_SIM_GPUS", gpus, 1);
	setenv("NVSHARE_SIM_MEMORY", memory, 1);
	setenv("NVSHARE_SIM_CONTEXT", "2MiB", 1);
	setenv("NVSHARE_SIM_BANDWIDTH", "64GiB", 1);
	unsetenv("NVSHARE_SIM_MIG");
	unsetenv("NVSHARE_SIM_FAIL");
	unsetenv("CUDA_VISIBLE_DEVICES");
}

static inline void sim_remove(void)
{
	static const char *const names[] = {"node", "node.new", "lock", "inject"};
	char path[64];
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(path, sizeof(path), "%s/%s", sim_dir, names[i]);
		unlink(path);
	}
	rmdir(sim_dir);
}

/*
 * Another process. It runs main() of this program with argv[1] = part; it says one byte on
 * its standard output when it is where the test wants it, and waits for its input to end.
 */
struct peer {
	pid_t pid;
	int to, from;
};

static inline struct peer peer_start(const char *part)
{
	struct peer peer;
	int in[2], out[2];

	assert_int_equal(pipe(in), 0);
	assert_int_equal(pipe(out), 0);
	peer.pid = fork();
	if (peer.pid == 0) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		close(in[0]), close(in[1]), close(out[0]), close(out[1]);
		execl("/proc/self/exe", "peer", part, (char *)NULL);
		_exit(127);
	}
	assert_true(peer.pid > 0);
	close(in[0]), close(out[1]);
	peer.to = in[1];
	peer.from = out[0];
	return peer;
}

/* The byte that it said; 0 when it ended without one. */
static inline char peer_hear(const struct peer *peer)
{
	char c = 0;

	return read(peer->from, &c, 1) == 1 ? c : 0;
}

/* Exit status, or -signal. */
static inline int peer_end(struct peer *peer)
{
	int status;

	close(peer->to);
	assert_int_equal(waitpid(peer->pid, &status, 0), peer->pid);
	close(peer->from);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* In the peer: says c, and waits for the test's end of the conversation. */
static inline void peer_say(char c)
{
	if (write(1, &c, 1) != 1)
		_exit(1);
}

static inline void peer_wait(void)
{
	char c;

	while (read(0, &c, 1) > 0)
		;
}

#endif
