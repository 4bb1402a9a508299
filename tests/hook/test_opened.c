/* SPDX-License-Identifier: Apache-2.0 */

/* Memory of other processes: a driver that fails, and a scheduler that does not know a ticket. */

#include "fake_ticket_descriptors.h"

#include "hook/gate/gate.h"
#include "hook/table/cuda_real.h"
#include "hook/tickets/ticket_link.h"
#include "hook/tickets/tickets.h"
#include "lib/virtual_clock.h"
#include "util/clock.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CHUNK    ((size_t)2 << 20)
#define N_CHUNKS 3
#define BASE     ((CUdeviceptr)0x7000000000)
#define CTX      ((CUcontext)0x1000)
#define OTHER    ((CUcontext)0x2000)
#define HANDLE   7

/* ---- the scheduler ------------------------------------------------------------------- */

static struct {
	uint32_t generation;
	enum ticket_reason reason; /* TICKET_REASON_NONE_: it gives the memory */
	unsigned int n_asked;      /* OPEN */
	unsigned int n_parked;     /* PARK */
} scheduler;

static void scheduler_give(const struct ticket_packet *packet, struct ticket_packet *ret,
			   struct pass_many *ret_pass)
{
	/* The real one cuts a pair that asks for more. */
	assert_true(packet->first < N_CHUNKS);
	ticket_packet_init(ret, TICKET_MEMORY, packet->ticket);
	ret->first = packet->first;
	ret->n = N_CHUNKS - packet->first;
	ret->memory = (struct ticket_memory){
		.size = N_CHUNKS * CHUNK,
		.chunk_size = CHUNK,
		.bytes = N_CHUNKS * CHUNK,
		.n_chunks = N_CHUNKS,
	};
	ret_pass->n = ret->n;
	for (uint32_t i = 0; i < ret->n; i++)
		ret_pass->fds[i] = (int)(100 + packet->first + i);
}

int ticket_link_ask(const struct ticket_packet *packet, const int *fds, struct ticket_packet *ret,
		    struct pass_many *ret_pass, uint32_t *ret_generation)
{
	(void)fds;
	ret_pass->n = 0;
	if (ret_generation)
		*ret_generation = scheduler.generation;
	scheduler.n_parked += packet->type == TICKET_PARK;
	ticket_packet_init(ret, TICKET_TAKEN, packet->ticket);
	if (packet->type != TICKET_OPEN)
		return 0;
	scheduler.n_asked++;
	if (scheduler.reason == TICKET_REASON_NONE_) {
		scheduler_give(packet, ret, ret_pass);
		return 0;
	}
	ret->type = TICKET_NONE;
	ret->reason = scheduler.reason;
	return 0;
}

bool ticket_link_reach(void)
{
	return true;
}

bool ticket_link_is_up(void)
{
	return true;
}

uint32_t ticket_link_generation(void)
{
	return scheduler.generation;
}

/* ---- the driver ------------------------------------------------------------------------ */

static struct {
	bool is_mapped[N_CHUNKS];
	bool has_access[N_CHUNKS];
	unsigned int access_fails; /* the how manieth call from now on; 0: none */
	unsigned int unmap_fails;
} driver;

static size_t chunk_at(CUdeviceptr addr)
{
	size_t i = (addr - BASE) / CHUNK;

	assert_true(addr >= BASE && i < N_CHUNKS && addr == BASE + i * CHUNK);
	return i;
}

static bool is_due(unsigned int *fails)
{
	return *fails && --*fails == 0;
}

static _Thread_local CUcontext current = CTX;

static CUresult get_current(CUcontext *ret)
{
	*ret = current;
	return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *ret)
{
	*ret = 0;
	return CUDA_SUCCESS;
}

static CUresult reserve(CUdeviceptr *ret, size_t size, size_t alignment, CUdeviceptr addr,
			unsigned long long flags)
{
	(void)alignment;
	(void)addr;
	(void)flags;
	assert_int_equal(size, N_CHUNKS * CHUNK);
	*ret = BASE;
	return CUDA_SUCCESS;
}

static CUresult unreserve(CUdeviceptr addr, size_t size)
{
	assert_int_equal(addr, BASE);
	assert_int_equal(size, N_CHUNKS * CHUNK);
	return CUDA_SUCCESS;
}

static CUresult import(CUmemGenericAllocationHandle *ret, void *fd, CUmemAllocationHandleType type)
{
	(void)type;
	*ret = (CUmemGenericAllocationHandle)(intptr_t)fd - 100 + HANDLE;
	return CUDA_SUCCESS;
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
	assert_true(handle >= HANDLE);
	return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr addr, size_t size, size_t offset,
		    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	size_t i = chunk_at(addr);

	(void)size;
	(void)offset;
	(void)flags;
	assert_int_equal(handle, HANDLE + i); /* the right one */
	if (driver.is_mapped[i])
		return CUDA_ERROR_INVALID_VALUE;
	driver.is_mapped[i] = true;
	driver.has_access[i] = false;
	return CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr addr, size_t size)
{
	size_t i = chunk_at(addr);

	(void)size;
	if (is_due(&driver.unmap_fails))
		return CUDA_ERROR_UNKNOWN;
	assert_true(driver.is_mapped[i]);
	driver.is_mapped[i] = false;
	return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr addr, size_t size, const CUmemAccessDesc *descs, size_t n)
{
	size_t i = chunk_at(addr);

	(void)size;
	(void)descs;
	assert_int_equal(n, 1);
	assert_true(driver.is_mapped[i]);
	if (is_due(&driver.access_fails))
		return CUDA_ERROR_UNKNOWN;
	driver.has_access[i] = true;
	return CUDA_SUCCESS;
}

static unsigned int n_mapped(void)
{
	unsigned int n = 0;

	for (size_t i = 0; i < N_CHUNKS; i++)
		n += driver.is_mapped[i];
	return n;
}

/* A kernel can work on all of it. */
static bool is_there(void)
{
	bool is_there = !opened_is_parked(0);

	for (size_t i = 0; i < N_CHUNKS; i++)
		is_there = is_there && driver.is_mapped[i] && driver.has_access[i];
	return is_there;
}

/* ---- the program ----------------------------------------------------------------------- */

static CUipcMemHandle handle = {.reserved = "nvshare ticket 1a ticket"};

static void park(void)
{
	struct nvshare_ticket_word word = {.word = NVSHARE_TICKET_PARK};

	memcpy(word.ticket, tickets_of(&handle), TICKET_LEN);
	tickets_hear(&word);
	opened_park();
}

static int begin(void **state)
{
	CUdeviceptr ptr;

	(void)state;
	memset(&scheduler, 0, sizeof(scheduler));
	memset(&driver, 0, sizeof(driver));
	scheduler.generation = 1;
	tickets_renew(true);
	return opened_open(&handle, &ptr) == CUDA_SUCCESS && ptr == BASE && is_there() ? 0 : -1;
}

/* Its memory can be unmapped in whole. */
static int end(void **state)
{
	(void)state;
	opened_context_gone(CTX);
	return n_mapped() || opened_is_there(0) ? -1 : 0;
}

/* What was lost is not parked, so that the program runs on and fails. */
static bool is_lost(void)
{
	return !opened_is_parked(0) && n_mapped() == 0;
}

/* Asks for so many seconds, while it is not there. false: it was lost meanwhile. */
static bool waits(unsigned int seconds)
{
	for (unsigned int i = 0; i < seconds; i++) {
		if (opened_return(0) || !opened_is_parked(0))
			return false;
		clock_nap(CLOCK_NS_PER_SEC);
	}
	return true;
}

static void access_that_fails_is_set_again(void **state)
{
	(void)state;
	for (unsigned int nth = 1; nth <= N_CHUNKS; nth++) {
		park();
		assert_int_equal(n_mapped(), 0);
		driver.access_fails = nth;
		assert_false(opened_return(0));
		assert_true(opened_is_parked(0));
		assert_true(opened_return(0));
		assert_true(is_there());
	}
}

static void memory_that_could_not_be_unmapped_is_there_still(void **state)
{
	(void)state;
	for (unsigned int nth = 1; nth <= N_CHUNKS; nth++) {
		scheduler.n_parked = 0;
		driver.unmap_fails = nth;
		park();
		assert_int_equal(n_mapped(), N_CHUNKS - nth + 1);
		assert_int_equal(scheduler.n_parked, 0); /* its owner must not release it */
		assert_true(opened_return(0));
		assert_true(is_there());
	}
	park();
	assert_int_equal(scheduler.n_parked, 1);
	assert_true(opened_return(0));
}

/* It was withdrawn, or its owner's pair was cut. In the latter case its owner leaves it again. */
static void a_ticket_that_the_scheduler_had_is_lost_soon(void **state)
{
	(void)state;
	park();
	scheduler.reason = TICKET_UNKNOWN;
	assert_true(waits(3));
	scheduler.reason = TICKET_AWAY;
	assert_true(waits(600));
	scheduler.reason = TICKET_UNKNOWN;
	assert_true(waits(4));
	scheduler.reason = TICKET_REASON_NONE_;
	assert_true(opened_return(0) && is_there());
	park();
	scheduler.reason = TICKET_UNKNOWN;
	assert_false(waits(6));
	assert_true(is_lost());
}

/* Its owner may stand still, and has the bytes. */
static void a_new_scheduler_that_has_not_heard_of_it_is_asked_for_minutes(void **state)
{
	(void)state;
	park();
	scheduler.generation++;
	scheduler.reason = TICKET_STARTING;
	assert_true(waits(5));
	scheduler.reason = TICKET_UNKNOWN;
	assert_true(waits(280));
	scheduler.reason = TICKET_REASON_NONE_;
	assert_true(opened_return(0) && is_there());
	park();
	scheduler.generation++;
	scheduler.reason = TICKET_UNKNOWN;
	assert_true(waits(280));
	assert_false(waits(30)); /* an owner that has ended says no more */
	assert_true(is_lost());
}

/* From then on the new scheduler says when the owner has ended. */
static void a_new_scheduler_that_has_heard_of_it_knows_its_end(void **state)
{
	(void)state;
	park();
	scheduler.generation++;
	scheduler.reason = TICKET_UNKNOWN;
	assert_true(waits(200));
	scheduler.reason = TICKET_AWAY;
	assert_true(waits(1));
	scheduler.reason = TICKET_UNKNOWN;
	assert_true(waits(4));
	assert_false(waits(3));
	assert_true(is_lost());
}

static void a_scheduler_without_room_is_asked_again(void **state)
{
	(void)state;
	park();
	scheduler.reason = TICKET_FULL;
	assert_true(waits(600));
	scheduler.reason = TICKET_REASON_NONE_;
	assert_true(opened_return(0) && is_there());
}

/* Nothing is lost then, so the program need not wait for long. */
static void a_first_open_of_an_unknown_ticket_fails_at_once(void **state)
{
	CUdeviceptr ptr;
	uint64_t begin_ns;

	opened_context_gone(CTX);
	scheduler.reason = TICKET_UNKNOWN;
	begin_ns = clock_now_ns();
	assert_int_equal(opened_open(&handle, &ptr), CUDA_ERROR_INVALID_VALUE);
	assert_true(clock_now_ns() - begin_ns < CLOCK_NS_PER_SEC);
	(void)state;
}

static void *open_in_another_context(void *res)
{
	CUdeviceptr ptr;

	current = OTHER;
	*(CUresult *)res = opened_open(&handle, &ptr);
	return NULL;
}

/* It stands there as long as the memory is away, which its owner would not get then. */
static void a_thread_at_the_gate_keeps_no_memory_on_the_card(void **state)
{
	CUresult res = CUDA_SUCCESS;
	pthread_t thread;

	(void)state;
	gate_set(GATE_CLOSED);
	assert_int_equal(pthread_create(&thread, NULL, open_in_another_context, &res), 0);
	while (!gate_wanted())
		clock_nap(CLOCK_NS_PER_MS);
	park();
	assert_int_equal(n_mapped(), 0);
	assert_int_equal(scheduler.n_parked, 1);
	assert_true(opened_return(0));
	scheduler.reason = TICKET_UNKNOWN;
	gate_set(GATE_OPEN);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(res, CUDA_ERROR_INVALID_VALUE);
	assert_true(is_there());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(access_that_fails_is_set_again, begin, end),
		cmocka_unit_test_setup_teardown(memory_that_could_not_be_unmapped_is_there_still,
						begin, end),
		cmocka_unit_test_setup_teardown(a_ticket_that_the_scheduler_had_is_lost_soon, begin,
						end),
		cmocka_unit_test_setup_teardown(
			a_new_scheduler_that_has_not_heard_of_it_is_asked_for_minutes, begin, end),
		cmocka_unit_test_setup_teardown(a_new_scheduler_that_has_heard_of_it_knows_its_end,
						begin, end),
		cmocka_unit_test_setup_teardown(a_scheduler_without_room_is_asked_again, begin,
						end),
		cmocka_unit_test_setup_teardown(a_thread_at_the_gate_keeps_no_memory_on_the_card,
						begin, end),
		cmocka_unit_test_setup_teardown(a_first_open_of_an_unknown_ticket_fails_at_once,
						begin, end),
	};
	int n_failed;

	cuda_real.cuCtxGetCurrent = get_current;
	cuda_real.cuCtxGetDevice = get_device;
	cuda_real.cuMemAddressReserve = reserve;
	cuda_real.cuMemAddressFree = unreserve;
	cuda_real.cuMemImportFromShareableHandle = import;
	cuda_real.cuMemRelease = release;
	cuda_real.cuMemMap = map;
	cuda_real.cuMemUnmap = unmap;
	cuda_real.cuMemSetAccess = set_access;
	gate_set(GATE_OPEN);
	virtual_clock_start();
	n_failed = cmocka_run_group_tests(tests, NULL, NULL);
	virtual_clock_stop();
	return n_failed;
}
