/* SPDX-License-Identifier: Apache-2.0 */
#include "buffer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_SUM    (1u << 19) /* words of a checked sum: 2 MiB */
#define BUFFER_STAGE  (4u << 20)
#define BUFFER_WINDOW 4096u
#define BUFFER_ROW    4000u       /* of a pitch allocation; its pitch is more */
#define BUFFER_PIECE  (20u << 20) /* virtual memory comes in such pieces, like PyTorch's */
#define BUFFER_PERIOD 251u        /* x of floats: 0 .. 250, again and again */

/* Exports the memory once, so that another process could have it. */
static void export(CUmemGenericAllocationHandle handle)
{
	int fd;

	APP_CALL(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					      0));
	close(fd);
}

/* Maps many handles side by side in one range, and gives access to all at once. */
static void alloc_vmm(struct buffer *b, struct app *app, uint64_t bytes)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, app->dev}};
	CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	uint64_t at, size;
	size_t granularity;

	if (b->kind == BUFFER_SHARED)
		prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	APP_CALL(cuMemGetAllocationGranularity(&granularity, &prop,
					       CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	b->bytes = (bytes + granularity - 1) / granularity * granularity;
	b->handles = calloc(b->bytes / BUFFER_PIECE + 1, sizeof(b->handles[0]));
	if (!b->handles)
		app_exit(APP_EXIT_DRIVER, "no host memory");
	APP_CALL(cuMemAddressReserve(&b->p, b->bytes, 0, 0, 0));
	for (at = 0; at < b->bytes; at += size) {
		CUmemGenericAllocationHandle *handle = &b->handles[at / BUFFER_PIECE];

		size = b->bytes - at < BUFFER_PIECE ? b->bytes - at : BUFFER_PIECE;
		APP_CALL(cuMemCreate(handle, size, &prop, 0));
		if (b->kind == BUFFER_SHARED)
			export(*handle);
		APP_CALL(cuMemMap(b->p + at, size, 0, *handle, 0));
	}
	APP_CALL(cuMemSetAccess(b->p, b->bytes, &access, 1));
}

/* Unmaps the first piece by itself, and the others in one call. */
static void free_vmm(struct buffer *b)
{
	uint64_t first = b->bytes < BUFFER_PIECE ? b->bytes : BUFFER_PIECE;
	uint64_t at;

	APP_CALL(cuMemUnmap(b->p, first));
	for (at = 0; at < b->bytes; at += BUFFER_PIECE)
		APP_CALL(cuMemRelease(b->handles[at / BUFFER_PIECE]));
	if (b->bytes > first)
		APP_CALL(cuMemUnmap(b->p + first, b->bytes - first));
	APP_CALL(cuMemAddressFree(b->p, b->bytes));
	free(b->handles);
	b->handles = NULL;
}

void buffer_alloc(struct buffer *b, struct app *app, uint64_t bytes, CUstream stream)
{
	size_t pitch;

	b->bytes = bytes / 16 * 16;
	switch (b->kind) {
	case BUFFER_PLAIN:
		APP_CALL(cuMemAlloc(&b->p, b->bytes));
		break;
	case BUFFER_PITCH:
		APP_CALL(cuMemAllocPitch(&b->p, &pitch, BUFFER_ROW, bytes / 4096 + 1, 16));
		b->bytes = pitch * (bytes / 4096 + 1) / 16 * 16;
		break;
	case BUFFER_ASYNC:
		APP_CALL(cuMemAllocAsync(&b->p, b->bytes, stream));
		break;
	case BUFFER_VMM:
	case BUFFER_SHARED:
		alloc_vmm(b, app, b->bytes);
		break;
	case BUFFER_MANAGED:
		APP_CALL(cuMemAllocManaged(&b->p, b->bytes, CU_MEM_ATTACH_GLOBAL));
		break;
	}
}

void buffer_free(struct buffer *b, CUstream stream)
{
	switch (b->kind) {
	case BUFFER_ASYNC:
		APP_CALL(cuMemFreeAsync(b->p, stream));
		break;
	case BUFFER_VMM:
	case BUFFER_SHARED:
		free_vmm(b);
		break;
	case BUFFER_PLAIN:
	case BUFFER_PITCH:
	case BUFFER_MANAGED:
		APP_CALL(cuMemFree(b->p));
		break;
	}
	b->p = 0;
}

/* The expected words at .. at + n of the buffer. */
static void expect_floats(const struct buffer *b, uint64_t at, uint64_t n, float *ret)
{
	uint64_t n_half = b->bytes / 8;
	uint32_t x = (uint32_t)((at % n_half + b->seed) % BUFFER_PERIOD);
	uint64_t i;

	for (i = 0; i < n; i++) {
		if (at + i == n_half)
			x = b->seed % BUFFER_PERIOD;
		ret[i] = at + i < n_half ? (float)x : (float)x * (float)b->n_passes;
		if (++x == BUFFER_PERIOD)
			x = 0;
	}
}

static void expect_words(const struct buffer *b, uint64_t at, uint64_t n, uint32_t *ret)
{
	struct app_affine f = app_affine_power(b->n_rounds);
	uint64_t i;

	for (i = 0; i < n; i++)
		ret[i] = app_expect_u32(f, b->seed, at + i);
}

static void fill_floats(struct buffer *b, CUstream stream)
{
	uint64_t n_half = b->bytes / 8;
	uint64_t at;
	float *stage = malloc(BUFFER_STAGE);

	if (!stage)
		app_exit(APP_EXIT_DRIVER, "no host memory");
	for (at = 0; at < n_half; at += BUFFER_STAGE / 4) {
		uint64_t n = n_half - at < BUFFER_STAGE / 4 ? n_half - at : BUFFER_STAGE / 4;

		expect_floats(b, at, n, stage);
		/* The driver has read pageable memory when the call returns. */
		APP_CALL(cuMemcpyHtoDAsync(b->p + at * 4, stage, n * 4, stream));
	}
	APP_CALL(cuStreamSynchronize(stream));
	free(stage);
	APP_CALL(cuMemsetD32(b->p + n_half * 4, 0, n_half));
	APP_CALL(cuCtxSynchronize());
}

void buffer_fill(struct buffer *b, struct app *app, CUstream stream)
{
	uint64_t n = b->bytes / 4;
	uint32_t n_wrong;

	b->n_rounds = 0;
	b->n_passes = 0;
	if (b->is_float) {
		fill_floats(b, stream);
		return;
	}
	app_fill(app, b->p, n, b->seed, stream);
	n_wrong = app_verify(app, b->p, n, b->seed, stream);
	if (n_wrong)
		app_exit(APP_EXIT_WRONG, "%u of %llu words are wrong after the fill", n_wrong,
			 (unsigned long long)n);
}

void buffer_submit(const struct buffer *b, struct app *app, uint32_t rounds, CUstream stream)
{
	uint64_t n_half = b->bytes / 8;

	if (b->is_float)
		app_axpy(app, b->p + n_half * 4, b->p, 1.0f, n_half, stream);
	else
		app_lcg(app, b->p, b->bytes / 4, rounds, stream);
}

void buffer_count(struct buffer *b, uint32_t rounds)
{
	b->n_passes++;
	b->n_rounds += rounds;
}

/* stage: room for n words twice. */
static uint64_t check_range(const struct buffer *b, uint64_t at, uint64_t n, uint32_t *stage,
			    uint64_t *ret_first)
{
	uint32_t *expected = stage + n;
	uint64_t n_wrong = 0;
	uint64_t i;

	APP_CALL(cuMemcpyDtoH(stage, b->p + at * 4, n * 4));
	if (b->is_float)
		expect_floats(b, at, n, (float *)expected);
	else
		expect_words(b, at, n, expected);
	if (!memcmp(stage, expected, n * 4))
		return 0;
	for (i = 0; i < n; i++) {
		if (stage[i] == expected[i])
			continue;
		if (n_wrong++ == 0)
			*ret_first = at + i;
	}
	return n_wrong;
}

uint64_t buffer_check_sample(const struct buffer *b, uint64_t *ret_first)
{
	uint32_t stage[2 * BUFFER_WINDOW / 4];
	uint64_t n_all = b->bytes / 4;
	uint64_t n = n_all < BUFFER_WINDOW / 4 ? n_all : BUFFER_WINDOW / 4;
	const uint64_t at[] = {0, (n_all - n) / 2, n_all - n};
	uint64_t n_wrong = 0;
	size_t i;

	for (i = 0; i < 3 && !n_wrong; i++)
		n_wrong = check_range(b, at[i], n, stage, ret_first);
	return n_wrong;
}

uint64_t buffer_check_all(const struct buffer *b, uint64_t *ret_first)
{
	uint64_t n_all = b->bytes / 4;
	uint64_t n_wrong = 0;
	uint64_t at, first;
	uint32_t *stage = malloc(2 * BUFFER_STAGE);

	if (!stage)
		app_exit(APP_EXIT_DRIVER, "no host memory");
	for (at = 0; at < n_all; at += BUFFER_STAGE / 4) {
		uint64_t n = n_all - at < BUFFER_STAGE / 4 ? n_all - at : BUFFER_STAGE / 4;
		uint64_t wrong = check_range(b, at, n, stage, &first);

		if (wrong && !n_wrong)
			*ret_first = first;
		n_wrong += wrong;
	}
	free(stage);
	return n_wrong;
}

/* The expected low half of the sum of n words from `at` on. */
static uint32_t expect_sum(const struct buffer *b, uint64_t at, uint64_t n)
{
	struct app_affine f = app_affine_power(b->n_rounds);
	/* The sum of the indices. One factor is even: it is halved first, so no bit is lost. */
	uint64_t last = n - 1 + 2 * at;
	uint32_t indices = n % 2 ? (uint32_t)(last / 2 * n) : (uint32_t)(n / 2 * last);

	return (uint32_t)n * (f.mul * b->seed + f.add) + f.mul * KERNELS_STEP * indices;
}

uint64_t buffer_check_sums(const struct buffer *b, struct app *app, uint64_t *ret_first)
{
	uint64_t n_words = b->bytes / 4;
	uint64_t n_pieces = (n_words + BUFFER_SUM - 1) / BUFFER_SUM;
	uint64_t *sums = calloc(n_pieces, sizeof(*sums));
	uint64_t n_wrong = 0;
	uint64_t i;
	CUdeviceptr out;

	if (!sums)
		app_exit(APP_EXIT_DRIVER, "no host memory");
	APP_CALL(cuMemAlloc(&out, n_pieces * sizeof(*sums)));
	APP_CALL(cuMemcpyHtoD(out, sums, n_pieces * sizeof(*sums)));
	for (i = 0; i < n_pieces; i++) {
		uint64_t at = i * BUFFER_SUM;
		uint64_t n = n_words - at < BUFFER_SUM ? n_words - at : BUFFER_SUM;
		CUdeviceptr p = b->p + at * 4, sum = out + i * sizeof(*sums);
		void *params[] = {&p, &n, &sum};

		app_check(app_launch(app->k.sum_u32, n, NULL, params), "launch of nvs_sum_u32");
	}
	APP_CALL(cuCtxSynchronize());
	APP_CALL(cuMemcpyDtoH(sums, out, n_pieces * sizeof(*sums)));
	APP_CALL(cuMemFree(out));
	for (i = 0; i < n_pieces; i++) {
		uint64_t at = i * BUFFER_SUM;
		uint64_t n = n_words - at < BUFFER_SUM ? n_words - at : BUFFER_SUM;

		if ((uint32_t)sums[i] != expect_sum(b, at, n) && n_wrong++ == 0)
			*ret_first = at;
	}
	free(sums);
	return n_wrong;
}
