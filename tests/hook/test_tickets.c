/* SPDX-License-Identifier: Apache-2.0 */

/* Memory of this process that others have open: its owner cannot leave it with the scheduler. */

#include "fake_ticket_descriptors.h"

#include "hook/base/random.h"
#include "hook/gate/gate.h"
#include "hook/pager/pager_share.h"
#include "hook/tickets/ticket_link.h"
#include "hook/tickets/tickets.h"
#include "util/clock.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CHUNK    ((size_t)2 << 20)
#define N_CHUNKS 70 /* more than a packet takes */
#define BASE     ((CUdeviceptr)0x7000000000)
#define SIZE     (N_CHUNKS * CHUNK)
#define CTX      ((CUcontext)0x1000)
#define NEVER    UINT64_MAX

/* ---- the pager ------------------------------------------------------------------------- */

static struct {
	bool is_out;
	size_t n_exports; /* that work; then the process has no more descriptors */
	unsigned int n_pinned_for_good;
	bool is_pinned;
	CUdeviceptr freed; /* an allocation that the pager does not know any more */
} memory;

static const struct pager_shared shared = {
	.base = BASE,
	.bytes = SIZE,
	.id = 1,
	.ctx = CTX,
	.addr = BASE,
	.size = SIZE,
	.chunk_size = CHUNK,
	.n_chunks = N_CHUNKS,
};

bool pager_is_shareable(CUdevice dev)
{
	return dev == 0;
}

/* A second allocation in the same chunk. */
#define SECOND (BASE + 4096)

bool pager_share(CUdeviceptr ptr, struct pager_shared *ret)
{
	*ret = shared;
	if (ptr == SECOND) {
		ret->base = SECOND;
		ret->bytes = 4096;
		ret->id = 2;
	}
	memory.is_pinned = true;
	return ptr == BASE || ptr == SECOND;
}

void pager_share_pin(const struct pager_shared *which)
{
	(void)which;
	memory.is_pinned = true;
}

void pager_share_unpin(const struct pager_shared *which)
{
	if (which->base != memory.freed)
		memory.is_pinned = false;
}

void pager_share_pin_for_good(const struct pager_shared *which)
{
	(void)which;
	memory.n_pinned_for_good++;
}

bool pager_share_is_in(const struct pager_shared *which)
{
	(void)which;
	return !memory.is_out;
}

int pager_share_chunk(const struct pager_shared *which, size_t chunk)
{
	(void)which;
	if (memory.is_out || !memory.n_exports)
		return -1;
	memory.n_exports--;
	return (int)(100 + chunk);
}

/* ---- the scheduler ----------------------------------------------------------------------- */

static struct {
	uint32_t generation; /* it counts the schedulers, too */
	bool is_away;
	bool is_full;
	bool has_ticket;
	bool is_ticket_out;
	bool is_ticket_seen;
	size_t n_chunks;
	unsigned int n_moves, n_withdrawn;
} scheduler;

static void begin_scheduler(void)
{
	uint32_t generation = scheduler.generation + 1;

	memset(&scheduler, 0, sizeof(scheduler));
	scheduler.generation = generation;
}

static enum ticket_reason scheduler_take(const struct ticket_packet *packet)
{
	if (!scheduler.has_ticket && scheduler.is_full)
		return TICKET_FULL;
	scheduler.has_ticket = true;
	scheduler.is_ticket_seen = scheduler.is_ticket_seen || packet->flags & TICKET_SEEN;
	if (packet->first == 0)
		scheduler.n_chunks = 0;
	scheduler.is_ticket_out = packet->type == TICKET_OUT;
	if (packet->type == TICKET_OUT)
		return TICKET_REASON_NONE_;
	assert_int_equal(packet->first, scheduler.n_chunks);
	scheduler.n_chunks += packet->n;
	return TICKET_REASON_NONE_;
}

static enum ticket_reason scheduler_obey(const struct ticket_packet *packet)
{
	switch ((enum ticket_type)packet->type) {
	case TICKET_DEPOSIT:
	case TICKET_OUT:
		return scheduler_take(packet);
	case TICKET_MOVE:
		scheduler.n_moves++;
		scheduler.is_ticket_out = true;
		scheduler.n_chunks = 0;
		return TICKET_REASON_NONE_;
	case TICKET_WITHDRAW:
		scheduler.n_withdrawn++;
		scheduler.has_ticket = false;
		return TICKET_REASON_NONE_;
	case TICKET_OPEN:
	case TICKET_PARK:
	case TICKET_CLOSE:
	case TICKET_TAKEN:
	case TICKET_MEMORY:
	case TICKET_NONE:
	case TICKET_TYPE_COUNT_:
		break;
	}
	fail();
	return TICKET_UNKNOWN;
}

int ticket_link_ask(const struct ticket_packet *packet, const int *fds, struct ticket_packet *ret,
		    struct pass_many *ret_pass, uint32_t *ret_generation)
{
	enum ticket_reason reason;

	(void)fds;
	ret_pass->n = 0;
	if (ret_generation)
		*ret_generation = scheduler.generation;
	if (scheduler.is_away)
		return -ECONNREFUSED;
	reason = scheduler_obey(packet);
	ticket_packet_init(ret, reason ? TICKET_NONE : TICKET_TAKEN, packet->ticket);
	ret->reason = reason;
	return 0;
}

bool ticket_link_reach(void)
{
	return !scheduler.is_away;
}

bool ticket_link_is_up(void)
{
	return !scheduler.is_away;
}

uint32_t ticket_link_generation(void)
{
	return scheduler.generation;
}

/* ---- the program ------------------------------------------------------------------------- */

static uint64_t now_ns;

static uint64_t tick_after(uint64_t ns)
{
	now_ns += ns;
	return tickets_tick(now_ns);
}

/* Openers can get all of it. */
static bool is_left(void)
{
	return scheduler.has_ticket && !scheduler.is_ticket_out && scheduler.n_chunks == N_CHUNKS;
}

static void evict(void)
{
	assert_int_equal(tickets_take(BASE, SIZE), TICKETS_TAKEN);
	memory.is_out = true;
}

static void restore(void)
{
	memory.is_out = false;
	tickets_return();
}

/* Numbers of tickets: all bytes are 3, then 5, and so on. No ticket begins with an even byte. */
static struct {
	uint8_t last;
	bool is_agent_between; /* it looks while a thread has no ticket in the book yet */
} numbers;

bool random_fill(void *p, size_t n)
{
	numbers.last = (uint8_t)(numbers.last + 2) | 1;
	memset(p, numbers.last, n);
	if (numbers.is_agent_between)
		(void)tickets_tick(now_ns);
	return true;
}

static int begin(void **state)
{
	CUipcMemHandle handle;

	(void)state;
	memset(&memory, 0, sizeof(memory));
	memory.n_exports = SIZE_MAX;
	begin_scheduler();
	tickets_renew(true);
	now_ns += CLOCK_NS_PER_SEC;
	if (tickets_make(BASE, &handle) != CUDA_SUCCESS || !is_left())
		return -1;
	return tickets_tick(now_ns) == NEVER ? 0 : -1;
}

static int end(void **state)
{
	(void)state;
	scheduler.is_away = false;
	tickets_freed(BASE);
	return scheduler.has_ticket || tickets_tick(now_ns) != NEVER ? -1 : 0;
}

/* If it were withdrawn, openers would take the bytes for lost. */
static void memory_that_came_back_is_left_later(void **state)
{
	static const size_t lacking[] = {0, 10, 65};

	(void)state;
	for (size_t i = 0; i < sizeof(lacking) / sizeof(lacking[0]); i++) {
		evict();
		assert_int_equal(scheduler.n_moves, i + 1);
		memory.n_exports = lacking[i];
		restore();
		assert_true(scheduler.has_ticket && !is_left());
		assert_true(tick_after(CLOCK_NS_PER_SEC) <= now_ns + CLOCK_NS_PER_SEC);
		memory.n_exports = SIZE_MAX;
		assert_false(is_left());
		assert_int_equal(tick_after(CLOCK_NS_PER_SEC), NEVER);
		assert_true(is_left() && !scheduler.is_ticket_seen);
		assert_int_equal(scheduler.n_withdrawn, 0);
	}
}

/* Nobody has it, so nobody is asked for it. */
static void memory_that_is_owed_may_leave_the_card_again(void **state)
{
	(void)state;
	evict();
	memory.n_exports = 0;
	restore();
	evict();
	assert_int_equal(scheduler.n_moves, 1);
	memory.n_exports = SIZE_MAX;
	assert_int_equal(tick_after(CLOCK_NS_PER_SEC), NEVER);
	assert_false(is_left());
	restore();
	assert_true(is_left() && !scheduler.is_ticket_seen);
	assert_int_equal(scheduler.n_withdrawn, 0);
	evict();
	assert_int_equal(scheduler.n_moves, 2);
	restore();
}

/* Its descriptors would keep the memory on the card. */
static void memory_of_which_the_scheduler_has_a_part_is_asked_for(void **state)
{
	(void)state;
	evict();
	memory.n_exports = 65;
	restore();
	assert_true(scheduler.n_chunks > 0 && !is_left());
	evict();
	assert_int_equal(scheduler.n_moves, 2);
	assert_int_equal(scheduler.n_chunks, 0);
	memory.n_exports = SIZE_MAX;
	restore();
	assert_true(is_left() && !scheduler.is_ticket_seen);
}

static void memory_comes_back_while_no_scheduler_runs(void **state)
{
	(void)state;
	evict();
	scheduler.is_away = true;
	restore();
	assert_true(tick_after(CLOCK_NS_PER_SEC) != NEVER);
	begin_scheduler();
	tickets_renew(true);
	(void)tick_after(CLOCK_NS_PER_SEC);
	assert_true(is_left() && !scheduler.is_ticket_seen);
	assert_int_equal(tickets_tick(now_ns), NEVER);
}

/* The memory is in, so an earlier scheduler may have given it to others. */
static void a_new_scheduler_hears_of_memory_that_cannot_be_left(void **state)
{
	(void)state;
	begin_scheduler();
	memory.n_exports = 10;
	tickets_renew(true);
	assert_true(scheduler.has_ticket && scheduler.is_ticket_out && scheduler.is_ticket_seen);
	memory.n_exports = SIZE_MAX;
	assert_int_equal(tick_after(CLOCK_NS_PER_SEC), NEVER);
	assert_true(is_left() && scheduler.is_ticket_seen);
	assert_int_equal(scheduler.n_withdrawn, 0);
}

static void a_new_scheduler_without_room_is_asked_again(void **state)
{
	(void)state;
	evict();
	begin_scheduler();
	scheduler.is_full = true;
	tickets_renew(true);
	for (unsigned int i = 0; i < 10; i++)
		assert_true(tick_after(CLOCK_NS_PER_SEC) != NEVER);
	scheduler.is_full = false;
	assert_int_equal(tick_after(CLOCK_NS_PER_SEC), NEVER);
	assert_true(scheduler.has_ticket && scheduler.is_ticket_out);
	restore();
	assert_true(is_left());
}

/* The program has passed its handle on, so a second handle that cannot be made ends nothing. */
static void a_second_handle_that_fails_leaves_the_first(void **state)
{
	CUipcMemHandle handle;

	(void)state;
	begin_scheduler();
	memory.n_exports = 0;
	assert_int_equal(tickets_make(BASE, &handle), CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(scheduler.n_withdrawn, 0);
	memory.n_exports = SIZE_MAX;
	assert_int_equal(tick_after(CLOCK_NS_PER_SEC), NEVER);
	assert_true(is_left());
}

static void a_first_handle_that_fails_leaves_nothing(void **state)
{
	CUipcMemHandle handle;

	(void)state;
	tickets_freed(BASE);
	assert_int_equal(scheduler.n_withdrawn, 1);
	memory.n_exports = 65;
	assert_int_equal(tickets_make(BASE, &handle), CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(scheduler.n_withdrawn, 2);
	assert_false(scheduler.has_ticket);
	assert_true(memory.is_pinned);
	assert_int_equal(tickets_tick(now_ns), NEVER);
	assert_false(memory.is_pinned); /* nobody has it */
}

/* Programs may have it open that the new scheduler does not know. */
static void memory_that_an_earlier_scheduler_gave_away_stays_pinned(void **state)
{
	(void)state;
	begin_scheduler();
	tickets_freed(BASE);
	assert_int_equal(scheduler.n_withdrawn, 1);
	assert_int_equal(tickets_tick(now_ns), NEVER);
	assert_true(memory.is_pinned);
}

static void memory_that_is_freed_while_it_is_owed_is_withdrawn(void **state)
{
	(void)state;
	evict();
	memory.n_exports = 0;
	restore();
	tickets_freed(BASE);
	assert_int_equal(scheduler.n_withdrawn, 1);
	assert_int_equal(tick_after(CLOCK_NS_PER_SEC), NEVER);
}

/* Else the memory would leave the card, and its descriptor would lie with the scheduler. */
static void memory_of_a_ticket_in_the_making_stays_pinned(void **state)
{
	struct nvshare_ticket_word word = {.word = NVSHARE_TICKET_MOVES};
	CUipcMemHandle handle;

	(void)state;
	memset(word.ticket, numbers.last, sizeof(word.ticket));
	tickets_hear(&word);
	numbers.is_agent_between = true;
	assert_int_equal(tickets_make(SECOND, &handle), CUDA_SUCCESS);
	numbers.is_agent_between = false;
	assert_true(memory.is_pinned);
	(void)tick_after(CLOCK_NS_PER_SEC);
	assert_true(memory.is_pinned);
	tickets_freed(SECOND);
	memory.freed = SECOND;
	(void)tick_after(CLOCK_NS_PER_SEC);
	assert_false(memory.is_pinned);
	scheduler.has_ticket = true; /* the first one: it knows one of them only */
}

/* The owner would come in for nothing, once its memory is out again. */
static void a_word_that_crosses_the_return_calls_for_nothing(void **state)
{
	struct nvshare_ticket_word word = {.word = NVSHARE_TICKET_WANTED};

	(void)state;
	memset(word.ticket, numbers.last, sizeof(word.ticket));
	evict();
	tickets_hear(&word);
	assert_true(tickets_are_wanted());
	restore();
	tickets_hear(&word);
	evict();
	assert_false(tickets_are_wanted());
	restore();
}

static void memory_that_may_move_is_not_pinned(void **state)
{
	struct nvshare_ticket_word word = {.word = NVSHARE_TICKET_MOVES};

	(void)state;
	assert_true(memory.is_pinned);
	memset(word.ticket, numbers.last, sizeof(word.ticket));
	tickets_hear(&word);
	(void)tick_after(CLOCK_NS_PER_SEC);
	assert_false(memory.is_pinned);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(memory_of_a_ticket_in_the_making_stays_pinned,
						begin, end),
		cmocka_unit_test_setup_teardown(a_word_that_crosses_the_return_calls_for_nothing,
						begin, end),
		cmocka_unit_test_setup_teardown(memory_that_may_move_is_not_pinned, begin, end),
		cmocka_unit_test_setup_teardown(memory_that_came_back_is_left_later, begin, end),
		cmocka_unit_test_setup_teardown(memory_that_is_owed_may_leave_the_card_again, begin,
						end),
		cmocka_unit_test_setup_teardown(
			memory_of_which_the_scheduler_has_a_part_is_asked_for, begin, end),
		cmocka_unit_test_setup_teardown(memory_comes_back_while_no_scheduler_runs, begin,
						end),
		cmocka_unit_test_setup_teardown(a_new_scheduler_hears_of_memory_that_cannot_be_left,
						begin, end),
		cmocka_unit_test_setup_teardown(a_new_scheduler_without_room_is_asked_again, begin,
						end),
		cmocka_unit_test_setup_teardown(a_second_handle_that_fails_leaves_the_first, begin,
						end),
		cmocka_unit_test_setup_teardown(a_first_handle_that_fails_leaves_nothing, begin,
						end),
		cmocka_unit_test_setup_teardown(
			memory_that_an_earlier_scheduler_gave_away_stays_pinned, begin, end),
		cmocka_unit_test_setup_teardown(memory_that_is_freed_while_it_is_owed_is_withdrawn,
						begin, end),
	};

	gate_set(GATE_OPEN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
