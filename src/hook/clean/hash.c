/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A context keeps its module and its pinned memory until its end. To unload or free them would
 * wait for the GPU, which the program may be using, or be frozen on.
 *
 * The first piece of each job is the key on the card, whose digest is known. So a kernel that was
 * compiled wrongly, that read another key or that never ran is found out in every job.
 */

#include "hook/clean/hash.h"

#include "hook/base/hook_log.h"
#include "hook/base/hook_mutex.h"
#include "hook/base/hook_options.h"
#include "hook/base/random.h"
#include "hook/clean/hash_ptx.h"
#include "hook/table/cuda_real.h"

#include <stdlib.h>
#include <string.h>

#define JOBS (HASH_PIECES_MAX + 1) /* with the key */

/* No digest has such a word. */
#define NOT_WRITTEN UINT64_MAX

/* Pinned memory: what the kernel reads and writes over the bus. */
struct hash_buffer {
	struct hash_ptx_job jobs[JOBS];
	struct digest digests[JOBS];
	struct digest_key key; /* from here it goes to the card */
};

struct hash_context {
	struct hash_context *next; /* hash::contexts */
	CUcontext ctx;
	bool is_refused; /* for good */
	CUmodule module;
	CUfunction kernel;
	CUdeviceptr key;
	unsigned int grid;
	struct hash_buffer *buffer; /* NULL: not loaded yet */
	bool is_keyed;              /* a job has found the key on the card */
	bool is_busy;
	size_t n_jobs; /* of the job under way */
};

static struct {
	struct hook_mutex lock;
	struct hash_context *contexts;
	bool has_key;
	struct digest_key key;
	struct digest key_digest;
} hash = {.lock = HOOK_MUTEX(HOOK_LOCK_HASH)};

/* Of the current context; NULL: none. */
static struct hash_context *hash_find(CUcontext *ret_ctx)
{
	struct hash_context *c;

	*ret_ctx = NULL;
	if (!cuda_real.cuCtxGetCurrent || cuda_real.cuCtxGetCurrent(ret_ctx) != CUDA_SUCCESS)
		return NULL;
	hook_lock(&hash.lock);
	for (c = hash.contexts; c && c->ctx != *ret_ctx; c = c->next)
		;
	hook_unlock(&hash.lock);
	return c;
}

static struct hash_context *hash_current(void)
{
	CUcontext ctx;
	struct hash_context *c = hash_find(&ctx);

	return c && c->buffer ? c : NULL;
}

static struct hash_context *hash_new(CUcontext ctx)
{
	struct hash_context *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->ctx = ctx;
	hook_lock(&hash.lock);
	c->next = hash.contexts;
	hash.contexts = c;
	hook_unlock(&hash.lock);
	return c;
}

/* Once a process. */
static bool key_make(void)
{
	hook_lock(&hash.lock);
	if (!hash.has_key && random_fill(&hash.key, sizeof(hash.key))) {
		digest_key_trim(&hash.key);
		digest_of(&hash.key, &hash.key, sizeof(hash.key), &hash.key_digest);
		hash.has_key = true;
	}
	hook_unlock(&hash.lock);
	return hash.has_key;
}

static bool hash_has_driver(void)
{
	return cuda_real.cuModuleLoadData && cuda_real.cuModuleGetFunction &&
	       cuda_real.cuModuleGetGlobal_v2 && cuda_real.cuMemHostAlloc &&
	       cuda_real.cuMemcpyHtoDAsync_v2 && cuda_real.cuLaunchKernel &&
	       cuda_real.cuCtxGetDevice && cuda_real.cuDeviceGetAttribute;
}

static CUresult hash_load_grid(struct hash_context *c)
{
	int n = 0;
	CUdevice dev;
	CUresult res = cuda_real.cuCtxGetDevice(&dev);

	if (res == CUDA_SUCCESS)
		res = cuda_real.cuDeviceGetAttribute(&n, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
						     dev);
	if (res == CUDA_SUCCESS && n < 1)
		res = CUDA_ERROR_NOT_SUPPORTED;
	c->grid = (unsigned int)n * HASH_PTX_BLOCKS;
	return res;
}

static CUresult hash_load_module(struct hash_context *c)
{
	size_t key_bytes = 0;
	CUresult res = CUDA_SUCCESS;

	if (!c->module)
		res = cuda_real.cuModuleLoadData(&c->module, hash_ptx);
	if (res != CUDA_SUCCESS) {
		c->module = NULL;
		return res;
	}
	res = cuda_real.cuModuleGetFunction(&c->kernel, c->module, HASH_PTX_KERNEL);
	if (res == CUDA_SUCCESS)
		res = cuda_real.cuModuleGetGlobal_v2(&c->key, &key_bytes, c->module, HASH_PTX_KEY);
	if (res == CUDA_SUCCESS && key_bytes != sizeof(struct digest_key))
		res = CUDA_ERROR_INVALID_IMAGE;
	return res;
}

/* The last step. */
static CUresult hash_load_buffer(struct hash_context *c)
{
	struct hash_buffer *buffer;
	void *addr;
	CUresult res = cuda_real.cuMemHostAlloc(&addr, sizeof(*buffer), CU_MEMHOSTALLOC_DEVICEMAP);

	if (res != CUDA_SUCCESS)
		return res;
	buffer = addr;
	buffer->key = hash.key;
	c->buffer = buffer;
	return CUDA_SUCCESS;
}

/* Memory that is lacking can be there the next time. */
static bool hash_load_context(struct hash_context *c)
{
	CUresult res = hash_load_grid(c);

	if (res == CUDA_SUCCESS)
		res = hash_load_module(c);
	if (res == CUDA_SUCCESS)
		res = hash_load_buffer(c);
	c->is_refused = res != CUDA_SUCCESS && res != CUDA_ERROR_OUT_OF_MEMORY;
	hook_debug("context %p: the kernel for digests is loaded: %d", (void *)c->ctx, (int)res);
	return res == CUDA_SUCCESS;
}

bool hash_load(void)
{
	CUcontext ctx;
	struct hash_context *c;

	if (!hook_options()->clean || !hash_has_driver())
		return false;
	c = hash_find(&ctx);
	if (c && c->buffer)
		return true;
	if (!ctx || (c && c->is_refused) || !key_make())
		return false;
	if (!c)
		c = hash_new(ctx);
	return c && hash_load_context(c);
}

bool hash_is_loaded(void)
{
	return hash_current() != NULL;
}

static bool span_is_valid(const struct hash_span *span)
{
	return span->bytes && span->addr % DIGEST_UNIT == 0 && span->bytes % DIGEST_UNIT == 0;
}

static void job_add(struct hash_context *c, CUdeviceptr addr, uint64_t bytes)
{
	struct hash_buffer *buffer = c->buffer;

	buffer->jobs[c->n_jobs] = (struct hash_ptx_job){.addr = addr, .bytes = bytes};
	buffer->digests[c->n_jobs].word[0] = NOT_WRITTEN;
	c->n_jobs++;
}

static void job_add_span(struct hash_context *c, const struct hash_span *span)
{
	for (uint64_t at = 0; at < span->bytes; at += HASH_PIECE) {
		uint64_t rest = span->bytes - at;

		job_add(c, span->addr + at, rest < HASH_PIECE ? rest : HASH_PIECE);
	}
}

/* Returns how many spans have found room; 0: one is not valid. */
static size_t job_fill(struct hash_context *c, const struct hash_span *spans, size_t n)
{
	size_t i;

	c->n_jobs = 0;
	job_add(c, c->key, sizeof(struct digest_key));
	for (i = 0; i < n; i++) {
		if (!span_is_valid(&spans[i]))
			return 0;
		if (spans[i].bytes > (JOBS - c->n_jobs) * (uint64_t)HASH_PIECE)
			break;
		job_add_span(c, &spans[i]);
	}
	return i;
}

/* Stream order puts the key there before the kernel reads it. */
static CUresult job_put_key(struct hash_context *c, CUstream stream)
{
	if (c->is_keyed)
		return CUDA_SUCCESS;
	return cuda_real.cuMemcpyHtoDAsync_v2(c->key, &c->buffer->key, sizeof(struct digest_key),
					      stream);
}

static CUresult job_launch(struct hash_context *c, CUstream stream)
{
	uint64_t jobs = (uintptr_t)c->buffer->jobs, digests = (uintptr_t)c->buffer->digests;
	uint64_t key = c->key;
	uint32_t n = (uint32_t)c->n_jobs;
	void *params[] = {&jobs, &digests, &key, &n};

	return cuda_real.cuLaunchKernel(c->kernel, n < c->grid ? n : c->grid, 1, 1,
					HASH_PTX_THREADS, 1, 1, 0, stream, params, NULL);
}

size_t hash_begin(CUstream stream, const struct hash_span *spans, size_t n)
{
	struct hash_context *c = hash_current();
	size_t n_taken;
	CUresult res;

	if (!c || c->is_busy)
		return 0;
	n_taken = job_fill(c, spans, n);
	if (!n_taken)
		return 0;
	res = job_put_key(c, stream);
	if (res == CUDA_SUCCESS)
		res = job_launch(c, stream);
	if (res != CUDA_SUCCESS) {
		hook_debug("context %p: no digests: error %d", (void *)c->ctx, (int)res);
		return 0;
	}
	c->is_busy = true;
	return n_taken;
}

static bool job_is_right(const struct hash_context *c)
{
	const struct digest *digests = c->buffer->digests;

	for (size_t i = 0; i < c->n_jobs; i++)
		if (digests[i].word[0] == NOT_WRITTEN)
			return false;
	return memcmp(&digests[0], &hash.key_digest, sizeof(digests[0])) == 0;
}

const struct digest *hash_end(void)
{
	struct hash_context *c = hash_current();

	if (!c || !c->is_busy)
		return NULL;
	c->is_busy = false;
	c->is_keyed = job_is_right(c);
	if (c->is_keyed)
		return &c->buffer->digests[1];
	hook_debug("context %p: the digests are wrong", (void *)c->ctx);
	return NULL;
}

void hash_context_gone(CUcontext ctx)
{
	struct hash_context **link, *c;

	hook_lock(&hash.lock);
	for (link = &hash.contexts; (c = *link) && c->ctx != ctx; link = &c->next)
		;
	if (c)
		*link = c->next;
	hook_unlock(&hash.lock);
	free(c);
}

/* A child has no contexts. The parent's list may have been half changed, so it is left alone. */
void hash_after_fork_child(void)
{
	hook_mutex_renew(&hash.lock, HOOK_LOCK_HASH);
	hash.contexts = NULL;
	hash.has_key = false;
}
