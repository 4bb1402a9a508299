/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIMGPU_SIM_FIXTURE_H
#define NVS_TESTS_SIMGPU_SIM_FIXTURE_H

/*
 * A node of its own for each test program, contexts and kernels, and other processes: the
 * program itself, started again with the name of a part to play, since a forked child of a
 * process that used CUDA can not use it.
 */

#include "abi/cuda_structs.h"
#include "simgpu/node/node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

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
extern const char sim_ptx[];

/* Those of sim_setup(). */
extern CUcontext sim_ctx;
extern CUmodule sim_module;

/* A context and a module for one test; a sticky error ends with them. */
int sim_setup(void **state);

int sim_teardown(void **state);
CUfunction sim_function(const char *name);

/* All of our kernels take 64 bit arguments first; 32 bit ones read the low half. */
CUresult sim_launch(const char *name, CUstream stream, uint64_t a, uint64_t b, uint64_t c,
		    uint64_t d);

CUresult sim_fill(CUstream stream, CUdeviceptr p, uint64_t n, uint32_t seed);

/* Wrong words in p[0..n), or UINT32_MAX when the device would not say. */
uint32_t sim_errors_in(CUdeviceptr p, uint64_t n, uint32_t seed);

uint64_t sim_memory_used(void);

/* Makes the node's folder, and says what the hardware is. */
void sim_environment(const char *gpus, const char *memory);

/*
 * Another process. It runs main() of this program with argv[1] = part; it says one byte on
 * its standard output when it is where the test wants it, and waits for its input to end.
 */
struct sim_peer {
	pid_t pid;
	int to, from;
};

struct sim_peer sim_peer_start(const char *part);

/* The byte that it said; 0 when it ended without one. */
char sim_peer_hear(const struct sim_peer *peer);

/* Exit status, or -signal. */
int sim_peer_end(struct sim_peer *peer);

/* In the peer: says c, and waits for the test's end of the conversation. */
void sim_peer_say(char c);

void sim_peer_wait(void);

#endif
