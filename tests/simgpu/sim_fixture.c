/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_fixture.h"

#include "node_dir.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

const char sim_ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
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
		       ".visible .entry nvs_meet(.param .u64 p) { ret; }\n"
		       ".visible .entry somebody_elses(.param .u64 p) { ret; }\n";

CUcontext sim_ctx;
CUmodule sim_module;

int sim_setup(void **state)
{
	(void)state;
	assert_cuda(cuCtxCreate_v2(&sim_ctx, 0, 0));
	assert_cuda(cuModuleLoadData(&sim_module, sim_ptx));
	return 0;
}

int sim_teardown(void **state)
{
	CUcontext current;

	(void)state;
	assert_cuda(cuCtxGetCurrent(&current));
	if (current == sim_ctx)
		assert_cuda(cuCtxDestroy_v2(sim_ctx));
	sim_ctx = NULL;
	return 0;
}

CUfunction sim_function(const char *name)
{
	CUfunction f;

	assert_cuda(cuModuleGetFunction(&f, sim_module, name));
	return f;
}

CUresult sim_launch(const char *name, CUstream stream, uint64_t a, uint64_t b, uint64_t c,
		    uint64_t d)
{
	void *params[4] = {&a, &b, &c, &d};

	return cuLaunchKernel(sim_function(name), 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
}

CUresult sim_fill(CUstream stream, CUdeviceptr p, uint64_t n, uint32_t seed)
{
	return sim_launch("nvs_fill_u32", stream, p, n, seed, 0);
}

uint32_t sim_errors_in(CUdeviceptr p, uint64_t n, uint32_t seed)
{
	CUdeviceptr counter;
	uint32_t errors = UINT32_MAX;

	if (cuMemAlloc_v2(&counter, 4) || cuMemsetD32_v2(counter, 0, 1) ||
	    sim_launch("nvs_verify_u32", NULL, p, n, seed, counter) ||
	    cuMemcpyDtoH_v2(&errors, counter, 4) || cuMemFree_v2(counter))
		return UINT32_MAX;
	return errors;
}

uint64_t sim_memory_used(void)
{
	size_t free_bytes, total;

	assert_cuda(cuMemGetInfo_v2(&free_bytes, &total));
	return total - free_bytes;
}

void sim_environment(const char *gpus, const char *memory)
{
	if (node_dir_make())
		abort();
	setenv("NVSHARE_SIM_GPUS", gpus, 1);
	setenv("NVSHARE_SIM_MEMORY", memory, 1);
	setenv("NVSHARE_SIM_CONTEXT", "2MiB", 1);
	setenv("NVSHARE_SIM_BANDWIDTH", "64GiB", 1);
	unsetenv("NVSHARE_SIM_MIG");
	unsetenv("NVSHARE_SIM_FAIL");
	unsetenv("CUDA_VISIBLE_DEVICES");
}

struct sim_peer sim_peer_start(const char *part)
{
	struct sim_peer peer;
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

char sim_peer_hear(const struct sim_peer *peer)
{
	char c = 0;

	return read(peer->from, &c, 1) == 1 ? c : 0;
}

int sim_peer_end(struct sim_peer *peer)
{
	int status;

	close(peer->to);
	assert_int_equal(waitpid(peer->pid, &status, 0), peer->pid);
	close(peer->from);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void sim_peer_say(char c)
{
	if (write(1, &c, 1) != 1)
		_exit(1);
}

void sim_peer_wait(void)
{
	char c;

	while (read(0, &c, 1) > 0)
		;
}
