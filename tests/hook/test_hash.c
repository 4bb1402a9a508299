/* SPDX-License-Identifier: Apache-2.0 */

/* With a driver whose kernel is digest_of(), and each of whose calls can fail. */

#include "hook/clean/hash.h"

#include "hook/base/hook_options.h"
#include "hook/clean/hash_ptx.h"
#include "hook/table/cuda_real.h"
#include "util/prng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CTX    ((CUcontext)0x1000)
#define CTX2   ((CUcontext)0x2000)
#define STREAM ((CUstream)0x77)
#define MIB    (1ull << 20)

enum { MODULES_MAX = 64 };

enum kernel {
	KERNEL_RIGHT,
	KERNEL_NO_MEMORY, /* right for the key; says 1, 2, 3 of other pieces without reading them */
	KERNEL_WRONG,     /* all digests have a bit flipped */
	KERNEL_NEVER,     /* writes nothing */
	KERNEL_LAZY,      /* leaves the last piece out */
};

struct cuda_real cuda_real;

struct fake_module {
	CUcontext ctx;
	struct digest_key *key;
	void *buffer; /* the context's pinned memory */
};

static struct {
	CUcontext current;
	enum kernel kernel;
	struct hook_options options;
	struct fake_module modules[MODULES_MAX];
	size_t n_modules;
	size_t n_buffers;
	int n_calls;
	int fail_at; /* that call, from 1, answers fail_with; 0: none */
	CUresult fail_with;
	int n_multiprocessors;
	size_t key_bytes;
	/* Of the last launch. */
	unsigned int grid;
	uint64_t n_jobs;
	int n_launches, n_key_copies;
} fake;

const struct hook_options *hook_options(void)
{
	return &fake.options;
}

static CUresult fake_call(void)
{
	return ++fake.n_calls == fake.fail_at ? fake.fail_with : CUDA_SUCCESS;
}

static CUresult fake_get_current(CUcontext *ctx)
{
	CUresult res = fake_call();

	if (res == CUDA_SUCCESS)
		*ctx = fake.current;
	return res;
}

static CUresult fake_get_device(CUdevice *dev)
{
	*dev = 0;
	return fake_call();
}

static CUresult fake_get_attribute(int *value, CUdevice_attribute attribute, CUdevice dev)
{
	assert_int_equal(attribute, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
	assert_int_equal(dev, 0);
	*value = fake.n_multiprocessors;
	return fake_call();
}

static CUresult fake_load_data(CUmodule *module, const void *image)
{
	struct fake_module *made = &fake.modules[fake.n_modules];
	CUresult res = fake_call();

	*module = (CUmodule)0x66; /* a driver may write it before it fails */
	if (res != CUDA_SUCCESS)
		return res;
	assert_ptr_equal(image, hash_ptx);
	assert_in_range(++fake.n_modules, 1, MODULES_MAX);
	made->ctx = fake.current;
	made->key = calloc(1, sizeof(*made->key));
	*module = (CUmodule)made;
	return CUDA_SUCCESS;
}

static CUresult fake_get_function(CUfunction *function, CUmodule module, const char *name)
{
	assert_string_equal(name, HASH_PTX_KERNEL);
	*function = (CUfunction)module;
	return fake_call();
}

static CUresult fake_get_global(CUdeviceptr *addr, size_t *bytes, CUmodule module, const char *name)
{
	assert_string_equal(name, HASH_PTX_KEY);
	*addr = (uintptr_t)((struct fake_module *)module)->key;
	*bytes = fake.key_bytes;
	return fake_call();
}

static struct fake_module *module_of_current(void)
{
	for (size_t i = 0; i < fake.n_modules; i++)
		if (fake.modules[i].ctx == fake.current)
			return &fake.modules[i];
	return NULL;
}

static CUresult fake_host_alloc(void **addr, size_t bytes, unsigned int flags)
{
	CUresult res = fake_call();

	assert_int_equal(flags, CU_MEMHOSTALLOC_DEVICEMAP);
	if (res != CUDA_SUCCESS)
		return res;
	assert_null(module_of_current()->buffer);
	*addr = module_of_current()->buffer = calloc(1, bytes);
	fake.n_buffers++;
	return CUDA_SUCCESS;
}

static CUresult fake_copy_in(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream)
{
	CUresult res = fake_call();

	assert_ptr_equal(stream, STREAM);
	assert_ptr_equal((void *)(uintptr_t)dst, module_of_current()->key);
	assert_int_equal(bytes, sizeof(struct digest_key));
	if (res != CUDA_SUCCESS)
		return res;
	memcpy((void *)(uintptr_t)dst, src, bytes);
	fake.n_key_copies++;
	return CUDA_SUCCESS;
}

static void compute(const struct digest_key *key, const struct hash_ptx_job *job, uint64_t i,
		    struct digest *ret)
{
	if (fake.kernel == KERNEL_NEVER ||
	    (fake.kernel == KERNEL_LAZY && i && i == fake.n_jobs - 1))
		return;
	if (fake.kernel == KERNEL_NO_MEMORY && i) {
		*ret = (struct digest){{1, 2, 3}};
		return;
	}
	digest_of(key, (const void *)(uintptr_t)job->addr, job->bytes, ret);
	if (fake.kernel == KERNEL_WRONG)
		ret->word[1] ^= 1;
}

static CUresult fake_launch(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
			    unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
			    unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
			    void **kernelParams, void **extra)
{
	const struct hash_ptx_job *jobs = *(void **)kernelParams[0];
	struct digest *digests = *(void **)kernelParams[1];
	const struct digest_key *key = *(void **)kernelParams[2];
	CUresult res = fake_call();

	if (res != CUDA_SUCCESS)
		return res;
	assert_ptr_equal(f, module_of_current());
	assert_ptr_equal(key, module_of_current()->key);
	assert_int_equal((uintptr_t)jobs % 16, 0);
	assert_int_equal(blockDimX, HASH_PTX_THREADS);
	assert_int_equal(gridDimY * gridDimZ * blockDimY * blockDimZ, 1);
	assert_int_equal(sharedMemBytes, 0);
	assert_ptr_equal(hStream, STREAM);
	assert_null(extra);
	fake.grid = gridDimX;
	fake.n_jobs = *(uint32_t *)kernelParams[3];
	fake.n_launches++;
	for (uint64_t i = 0; i < fake.n_jobs; i++)
		compute(key, &jobs[i], i, &digests[i]);
	return CUDA_SUCCESS;
}

static void install(void)
{
	cuda_real.cuCtxGetCurrent = fake_get_current;
	cuda_real.cuCtxGetDevice = fake_get_device;
	cuda_real.cuDeviceGetAttribute = fake_get_attribute;
	cuda_real.cuModuleLoadData = fake_load_data;
	cuda_real.cuModuleGetFunction = fake_get_function;
	cuda_real.cuModuleGetGlobal_v2 = fake_get_global;
	cuda_real.cuMemHostAlloc = fake_host_alloc;
	cuda_real.cuMemcpyHtoDAsync_v2 = fake_copy_in;
	cuda_real.cuLaunchKernel = fake_launch;
}

static int setup(void **state)
{
	(void)state;
	memset(&fake, 0, sizeof(fake));
	fake.options.clean = true;
	fake.current = CTX;
	fake.n_multiprocessors = 3;
	fake.key_bytes = sizeof(struct digest_key);
	install();
	return 0;
}

/* As the end of a context: its memory goes, and it is forgotten. */
static void context_end(CUcontext ctx)
{
	for (size_t i = 0; i < fake.n_modules; i++) {
		if (fake.modules[i].ctx != ctx)
			continue;
		free(fake.modules[i].key);
		free(fake.modules[i].buffer);
		fake.modules[i] = (struct fake_module){0};
	}
	hash_context_gone(ctx);
}

static int teardown(void **state)
{
	(void)state;
	context_end(CTX);
	context_end(CTX2);
	return 0;
}

static void *memory_make(size_t bytes)
{
	uint64_t *p = aligned_alloc(DIGEST_UNIT, bytes), seed = bytes;

	for (size_t i = 0; i < bytes / sizeof(*p); i++)
		p[i] = prng_next(&seed);
	return p;
}

static struct hash_span span_of(const void *p, uint64_t bytes)
{
	return (struct hash_span){.addr = (uintptr_t)p, .bytes = bytes};
}

/* One piece, in the current context. */
static struct digest digest_now(const void *p, uint64_t bytes)
{
	struct hash_span span = span_of(p, bytes);
	const struct digest *digests;

	assert_int_equal(hash_begin(STREAM, &span, 1), 1);
	digests = hash_end();
	assert_non_null(digests);
	return digests[0];
}

static void assert_useless(void)
{
	struct hash_span span = span_of(&span, DIGEST_UNIT);

	assert_false(hash_is_loaded());
	assert_int_equal(hash_begin(STREAM, &span, 1), 0);
	assert_null(hash_end());
	assert_int_equal(fake.n_launches, 0);
}

static void each_piece_of_each_span_has_its_digest(void **state)
{
	static const uint64_t bytes[] = {2 * MIB, 16, 5 * MIB + 48, 4 * MIB};
	struct hash_span spans[4];
	const struct digest *digests;
	struct digest right;

	(void)state;
	assert_true(hash_load());
	assert_true(hash_is_loaded());
	for (size_t i = 0; i < 4; i++)
		spans[i] = span_of(memory_make(bytes[i]), bytes[i]);
	assert_int_equal(hash_begin(STREAM, spans, 4), 4);
	digests = hash_end();
	assert_non_null(digests);
	for (size_t i = 0; i < 4; i++) {
		for (uint64_t at = 0; at < bytes[i]; at += HASH_PIECE, digests++) {
			uint64_t rest = bytes[i] - at;

			digest_of(module_of_current()->key,
				  (const char *)(uintptr_t)spans[i].addr + at,
				  rest < HASH_PIECE ? rest : HASH_PIECE, &right);
			assert_memory_equal(digests, &right, sizeof(right));
		}
		free((void *)(uintptr_t)spans[i].addr);
	}
	assert_int_equal(fake.n_jobs, 1 + 1 + 1 + 3 + 2);
	assert_int_equal(hash_pieces(bytes[2]), 3);
}

static void there_are_no_more_blocks_than_run_or_have_work(void **state)
{
	void *p = memory_make(16 * MIB);
	struct hash_span span = span_of(p, 16 * MIB);

	(void)state;
	assert_true(hash_load());
	digest_now(p, 16);
	assert_int_equal(fake.grid, 2);
	assert_int_equal(hash_begin(STREAM, &span, 1), 1);
	assert_int_equal(fake.grid, 3 * HASH_PTX_BLOCKS);
	free(p);
}

static void it_loads_once_a_context(void **state)
{
	void *p = memory_make(MIB);
	struct digest one, other;

	(void)state;
	assert_true(hash_load());
	assert_true(hash_load());
	assert_int_equal(fake.n_modules, 1);
	one = digest_now(p, MIB);
	fake.current = CTX2;
	assert_false(hash_is_loaded());
	assert_true(hash_load());
	assert_int_equal(fake.n_modules, 2);
	assert_int_equal(fake.n_buffers, 2);
	other = digest_now(p, MIB);
	assert_memory_equal(&one, &other, sizeof(one)); /* one key a process */
	free(p);
}

static void a_context_that_ended_is_forgotten(void **state)
{
	(void)state;
	assert_true(hash_load());
	hash_context_gone(CTX2); /* never seen */
	assert_true(hash_is_loaded());
	context_end(CTX);
	assert_useless();
	assert_true(hash_load()); /* the next context has its handle */
	assert_int_equal(fake.n_modules, 2);
}

static void without_a_context_there_is_nothing(void **state)
{
	(void)state;
	fake.current = NULL;
	assert_false(hash_load());
	assert_int_equal(fake.n_modules, 0);
	assert_useless();
}

static void switched_off_it_asks_the_driver_nothing(void **state)
{
	(void)state;
	fake.options.clean = false;
	assert_false(hash_load());
	assert_int_equal(fake.n_calls, 0);
	assert_useless();
}

static void a_driver_that_lacks_a_function_is_refused(void **state)
{
	void **const members[] = {
		(void **)&cuda_real.cuCtxGetCurrent,      (void **)&cuda_real.cuCtxGetDevice,
		(void **)&cuda_real.cuDeviceGetAttribute, (void **)&cuda_real.cuModuleLoadData,
		(void **)&cuda_real.cuModuleGetFunction,  (void **)&cuda_real.cuModuleGetGlobal_v2,
		(void **)&cuda_real.cuMemHostAlloc,       (void **)&cuda_real.cuMemcpyHtoDAsync_v2,
		(void **)&cuda_real.cuLaunchKernel,
	};

	(void)state;
	for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
		install();
		*members[i] = NULL;
		assert_false(hash_load());
		assert_int_equal(fake.n_modules, 0);
		assert_useless();
	}
	install();
	assert_true(hash_load());
}

/* How many calls a load makes that succeeds. */
static int calls_of_load(void)
{
	int n;

	assert_true(hash_load());
	n = fake.n_calls;
	context_end(CTX);
	(void)setup(NULL);
	return n;
}

static void fail_call(int call, CUresult res)
{
	fake.n_calls = 0;
	fake.fail_at = call;
	fake.fail_with = res;
}

static void a_load_that_fails_is_final(void **state)
{
	int n = calls_of_load(), n_modules;

	(void)state;
	for (int call = 2; call <= n; call++) { /* the first one asks for the context */
		(void)setup(NULL);
		fail_call(call, CUDA_ERROR_INVALID_PTX);
		assert_false(hash_load());
		assert_useless();
		n_modules = (int)fake.n_modules;
		fail_call(0, CUDA_SUCCESS);
		assert_false(hash_load());
		assert_int_equal(fake.n_calls, 1);
		assert_int_equal(fake.n_modules, n_modules);
		assert_int_equal(fake.n_buffers, 0);
		context_end(CTX);
	}
}

static void memory_that_is_lacking_may_be_there_later(void **state)
{
	void *p = memory_make(MIB);
	int n = calls_of_load();

	(void)state;
	for (int call = 1; call <= n; call++) {
		(void)setup(NULL);
		fail_call(call, CUDA_ERROR_OUT_OF_MEMORY);
		assert_false(hash_load());
		assert_useless();
		fail_call(0, CUDA_SUCCESS);
		assert_true(hash_load());
		assert_int_equal(fake.n_modules, 1); /* what it had, it kept */
		assert_int_equal(fake.n_buffers, 1);
		digest_now(p, MIB);
		context_end(CTX);
	}
	free(p);
}

static void a_strange_card_is_refused(void **state)
{
	(void)state;
	fake.n_multiprocessors = 0;
	assert_false(hash_load());
	assert_useless();
	context_end(CTX);
	(void)setup(NULL);
	fake.key_bytes--;
	assert_false(hash_load());
	assert_useless();
}

static void a_job_that_the_driver_refuses_can_be_tried_again(void **state)
{
	void *p = memory_make(MIB);
	struct hash_span span = span_of(p, MIB);

	(void)state;
	assert_true(hash_load());
	for (int call = 1; call <= 3; call++) { /* context, key, launch */
		fail_call(call, CUDA_ERROR_UNKNOWN);
		assert_int_equal(hash_begin(STREAM, &span, 1), 0);
		assert_int_equal(fake.n_calls, call);
		fail_call(0, CUDA_SUCCESS);
		assert_null(hash_end());
	}
	assert_int_equal(fake.n_launches, 0);
	digest_now(p, MIB);
	free(p);
}

static void the_key_goes_to_the_card_once(void **state)
{
	void *p = memory_make(MIB);

	(void)state;
	assert_true(hash_load());
	for (int i = 0; i < 3; i++)
		digest_now(p, MIB);
	assert_int_equal(fake.n_key_copies, 1);
	free(p);
}

static void a_context_has_one_job_at_a_time(void **state)
{
	void *p = memory_make(MIB);
	struct hash_span span = span_of(p, MIB);

	(void)state;
	assert_true(hash_load());
	assert_int_equal(hash_begin(STREAM, &span, 1), 1);
	assert_int_equal(hash_begin(STREAM, &span, 1), 0);
	assert_int_equal(fake.n_launches, 1);
	fake.current = CTX2;
	assert_null(hash_end());
	assert_true(hash_load());
	digest_now(p, MIB);
	fake.current = CTX;
	assert_non_null(hash_end());
	assert_null(hash_end());
	digest_now(p, MIB);
	free(p);
}

static void a_job_takes_as_many_spans_as_it_has_room_for(void **state)
{
	enum { N = 40 };
	struct hash_span spans[N];
	const struct digest *digests;

	(void)state;
	fake.kernel = KERNEL_NO_MEMORY;
	assert_true(hash_load());
	for (size_t i = 0; i < N; i++)
		spans[i] = (struct hash_span){.addr = i << 31, .bytes = 2048 * MIB};
	assert_int_equal(hash_begin(STREAM, spans, N), 32);
	assert_int_equal(fake.n_jobs, 1 + HASH_PIECES_MAX);
	digests = hash_end();
	assert_non_null(digests);
	assert_int_equal(digests[HASH_PIECES_MAX - 1].word[2], 3);
	spans[1].bytes += DIGEST_UNIT;
	assert_int_equal(hash_begin(STREAM, spans, N), 31);
	assert_non_null(hash_end());
	spans[1].bytes = (uint64_t)HASH_PIECES_MAX * HASH_PIECE;
	assert_int_equal(hash_begin(STREAM, spans, 2), 1);
	assert_non_null(hash_end());
	assert_int_equal(hash_begin(STREAM, spans + 1, 1), 1);
	assert_non_null(hash_end());
	spans[1].bytes += DIGEST_UNIT;
	assert_int_equal(hash_begin(STREAM, spans + 1, 1), 0);
	spans[1].bytes = UINT64_MAX / DIGEST_UNIT * DIGEST_UNIT;
	assert_int_equal(hash_begin(STREAM, spans + 1, 1), 0);
}

static void spans_that_are_not_as_described_are_refused(void **state)
{
	static const struct hash_span wrong[] = {
		{.addr = 0x1000, .bytes = 0},
		{.addr = 0x1008, .bytes = 32},
		{.addr = 0x1000, .bytes = 24},
	};

	(void)state;
	assert_true(hash_load());
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(hash_begin(STREAM, &wrong[i], 1), 0);
	assert_int_equal(hash_begin(STREAM, wrong, 0), 0);
	assert_int_equal(fake.n_launches, 0);
	assert_null(hash_end());
}

static void a_kernel_that_is_wrong_is_found_out(void **state)
{
	static const enum kernel kernels[] = {KERNEL_WRONG, KERNEL_NEVER, KERNEL_LAZY};
	void *p = memory_make(4 * MIB);
	struct hash_span span = span_of(p, 4 * MIB);

	(void)state;
	assert_true(hash_load());
	digest_now(p, MIB);
	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
		fake.kernel = kernels[i];
		assert_int_equal(hash_begin(STREAM, &span, 1), 1);
		assert_null(hash_end());
		fake.kernel = KERNEL_RIGHT;
		digest_now(p, MIB);
	}
	free(p);
}

/* The program's stray write, or a context that lost its memory. */
static void a_key_that_was_overwritten_is_found_out(void **state)
{
	void *p = memory_make(MIB);
	struct hash_span span = span_of(p, MIB);

	(void)state;
	assert_true(hash_load());
	digest_now(p, MIB);
	module_of_current()->key->rows[3][5][1] ^= 4;
	assert_int_equal(hash_begin(STREAM, &span, 1), 1);
	assert_null(hash_end());
	digest_now(p, MIB); /* it was put there again */
	free(p);
}

static void a_forked_child_has_another_key(void **state)
{
	void *p = memory_make(MIB);
	struct digest of_parent, of_child;
	CUcontext parent = fake.current;

	(void)state;
	assert_true(hash_load());
	of_parent = digest_now(p, MIB);
	context_end(parent);
	hash_after_fork_child();
	assert_false(hash_is_loaded());
	assert_true(hash_load());
	of_child = digest_now(p, MIB);
	for (size_t i = 0; i < DIGEST_SUMS; i++)
		assert_int_not_equal(of_parent.word[i], of_child.word[i]);
	free(p);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(each_piece_of_each_span_has_its_digest),
		TEST(there_are_no_more_blocks_than_run_or_have_work),
		TEST(it_loads_once_a_context),
		TEST(a_context_that_ended_is_forgotten),
		TEST(without_a_context_there_is_nothing),
		TEST(switched_off_it_asks_the_driver_nothing),
		TEST(a_driver_that_lacks_a_function_is_refused),
		TEST(a_load_that_fails_is_final),
		TEST(memory_that_is_lacking_may_be_there_later),
		TEST(a_strange_card_is_refused),
		TEST(a_job_that_the_driver_refuses_can_be_tried_again),
		TEST(the_key_goes_to_the_card_once),
		TEST(a_context_has_one_job_at_a_time),
		TEST(a_job_takes_as_many_spans_as_it_has_room_for),
		TEST(spans_that_are_not_as_described_are_refused),
		TEST(a_kernel_that_is_wrong_is_found_out),
		TEST(a_key_that_was_overwritten_is_found_out),
		TEST(a_forked_child_has_another_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
