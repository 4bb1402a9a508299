/* SPDX-License-Identifier: Apache-2.0 */

/* The agent, against a scheduler and a driver that do what the test says. */

#include "hook/agent/agent.h"

#include "fake_driver.h"
#include "fake_scheduler.h"
#include "hook/gate/gate.h"
#include "hook/memory/budget.h"
#include "util/clock.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#define CONTEXT ((CUcontext)0x1000)
#define OTHER   ((CUcontext)0x2000)
#define MIB     (1ull << 20)

static char dir[64];

static void nap(void)
{
	(void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

#define wait_until(condition)                                                       \
	do {                                                                        \
		uint64_t end_ns_ = clock_now_ns() + FAKE_WAIT_MS * CLOCK_NS_PER_MS; \
		while (!(condition) && clock_now_ns() < end_ns_)                    \
			nap();                                                      \
		check(condition);                                                   \
	} while (0)

/* ---- a thread of the program ------------------------------------------------- */

struct user {
	pthread_t thread;
	CUdevice dev;
	int is_done;
	CUresult res;
};

static void *use_device(void *arg)
{
	struct user *user = arg;

	user->res = agent_use_device(user->dev);
	__atomic_store_n(&user->is_done, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void *pass_gate(void *arg)
{
	struct user *user = arg;

	gate_enter();
	gate_leave();
	__atomic_store_n(&user->is_done, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void *take_memory(void *arg)
{
	struct user *user = arg;

	gate_enter();
	user->res = budget_take(0, 64 * MIB, BUDGET_PAGEABLE);
	gate_leave();
	__atomic_store_n(&user->is_done, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void *take_a_little(void *arg)
{
	struct user *user = arg;

	gate_enter();
	user->res = budget_take(0, 8 * MIB, BUDGET_PAGEABLE);
	gate_leave();
	return NULL;
}

static void start(struct user *user, void *(*body)(void *arg))
{
	user->is_done = 0;
	check(pthread_create(&user->thread, NULL, body, user) == 0);
}

static bool is_done(struct user *user)
{
	return __atomic_load_n(&user->is_done, __ATOMIC_SEQ_CST);
}

static CUresult finish(struct user *user)
{
	check(pthread_join(user->thread, NULL) == 0);
	return user->res;
}

/* Registers on device 0 and makes a context there; returns the scheduler's end. */
static int begin(struct nvshare_register *ret_register)
{
	struct user user = {.dev = 0};
	struct nvshare_register r;
	int fd;

	start(&user, use_device);
	r = fake_admit(&fd);
	check(finish(&user) == CUDA_SUCCESS);
	check(agent_add_context(CONTEXT, 0, 0));
	if (ret_register)
		*ret_register = r;
	return fd;
}

/* The same, and runs: with 100 MiB pageable on the card, and a budget of 200. */
static int begin_running(void)
{
	struct user user = {0};
	int fd = begin(NULL);

	start(&user, pass_gate);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	fake_grant(fd, 1, 200 * MIB, 2);
	(void)finish(&user);
	budget_force(0, 100 * MIB, BUDGET_PAGEABLE);
	return fd;
}

/* ---- tests --------------------------------------------------------------------- */

static void registers(void)
{
	struct nvshare_register r;
	unsigned char uuid[16];
	int fd;

	check(prctl(PR_SET_NAME, "trainer") == 0);
	check(setenv("NVSHARE_POD", "lab/one", 1) == 0);
	fake_listen(dir);
	fd = begin(&r);
	memset(uuid, 0x40, sizeof(uuid));
	check(memcmp(r.gpu_uuid, uuid, sizeof(uuid)) == 0);
	check(r.gpu_total_bytes == FAKE_TOTAL);
	check(r.budget == 0);
	check(r.flags == 0);
	check(r.backend == NVSHARE_BACKEND_VMM);
	check(strcmp(r.name, "trainer") == 0);
	check(strcmp(r.pod, "lab/one") == 0);
	check(gate_get() == GATE_CLOSED);
	check(agent_context_bytes(0) == 16 * MIB);
	check(agent_use_device(0) == CUDA_SUCCESS); /* once is enough */
	check(!fake_readable(fake_listener, 0));
	check(!fake_readable(fd, 0));
	check(fake_get(capture_mode) == CU_STREAM_CAPTURE_MODE_RELAXED);
}

static void runs_when_granted(void)
{
	struct user user = {0};
	struct msg msg;
	int fd;

	fake_listen(dir);
	fd = begin(NULL);
	start(&user, pass_gate);
	msg = fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	check(msg.body.req_lock_4.mem.wanted == 0);
	nap();
	check(!is_done(&user));
	fake_grant(fd, 1, 300 * MIB, 2);
	(void)finish(&user);
	check(gate_get() == GATE_OPEN);
	check(budget_get(0) == 300 * MIB);
}

static void stops_when_told(void)
{
	struct nvshare_lock_released r;
	int fd;

	fake_listen(dir);
	fd = begin_running();
	fake_set(is_working, 1);
	fake_drop(fd, 1, 60 * MIB, 4);
	wait_until(fake_get(n_records) == 1);
	check(gate_get() == GATE_CLOSED);
	check(fake_get(n_evictions) == 0); /* never under work that runs */
	fake_set(is_working, 0);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
	check(r.grant == 1 && r.epoch == 4);
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS);
	check(fake_get(evict_bytes) == 60 * MIB);
	check(r.moved == 60 * MIB && r.move_ns == 1000);
	check(r.mem.swapped == 60 * MIB && r.mem.resident == 40 * MIB);
	check(r.budget == 40 * MIB);
	check(r.wants == 0);
	check(gate_get() == GATE_CLOSED);
	check(budget_get(0) == 0);
}

static void says_that_it_wants_on(void)
{
	struct user user = {0};
	struct nvshare_lock_released r;
	int fd;

	fake_listen(dir);
	fd = begin_running();
	fake_set(is_working, 1);
	fake_drop(fd, 1, 0, 4);
	wait_until(gate_get() == GATE_CLOSED);
	start(&user, pass_gate);
	wait_until(gate_wanted());
	fake_set(is_working, 0);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
	check(r.wants == 1);
	check(!is_done(&user));
	fake_grant(fd, 2, 200 * MIB, 6);
	(void)finish(&user);
}

static void comes_back(void)
{
	struct user user = {0};
	struct nvshare_mem_update u;
	int fd;

	fake_listen(dir);
	fd = begin_running();
	fake_drop(fd, 1, 60 * MIB, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	start(&user, pass_gate);
	check(fake_expect(fd, NVSHARE_MSG_REQ_LOCK).body.req_lock_4.mem.swapped == 60 * MIB);
	fake_available(fd, 150 * MIB, 7);
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update_9;
	while (u.mem.swapped);
	check(u.budget == 100 * MIB && u.epoch == 7);
	check(u.moved == 60 * MIB && u.move_ns == 1000);
	check(u.mem.resident == 100 * MIB);
	check(!is_done(&user));
	fake_grant(fd, 2, 150 * MIB, 8);
	(void)finish(&user);
}

static void comes_back_in_parts(void)
{
	struct user user = {0};
	struct nvshare_lock_released r;
	struct nvshare_mem_update u;
	int fd;

	fake_listen(dir);
	fd = begin_running();
	fake_drop(fd, 1, 60 * MIB, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	start(&user, pass_gate);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	fake_available(fd, 80 * MIB, 7);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
	check(r.grant == 0 && r.epoch == 7 && r.outcome == NVSHARE_OUTCOME_PARTIAL);
	check(r.mem.resident == 70 * MIB && r.mem.swapped == 30 * MIB);
	check(r.moved == 0);
	check(!is_done(&user));
	fake_available(fd, 150 * MIB, 9);
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update_9;
	while (u.mem.swapped);
	check(u.epoch == 9);
	/* Both restores. */
	check(u.moved == 60 * MIB && u.move_ns == 1500);
	check(!is_done(&user));
	fake_grant(fd, 2, 150 * MIB, 10);
	(void)finish(&user);
}

static int has_told;

/* From within the eviction, until the scheduler has heard of it. */
static void tell(CUdevice dev, uint64_t bytes)
{
	while (!__atomic_load_n(&has_told, __ATOMIC_SEQ_CST)) {
		agent_moved_out(dev, bytes);
		nap();
	}
}

/* Told to give 60 MiB, and 30 of them are gone and reported: the eviction goes on. */
static int begin_telling(void)
{
	struct nvshare_mem_update u;
	int fd = begin_running();

	fake_set(evict_first, 30 * MIB);
	fake.on_first = tell;
	fake_drop(fd, 1, 60 * MIB, 4);
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update_9;
	while (!u.mem.swapped);
	check(u.epoch == 4 && u.moved == 0);
	check(u.mem.swapped == 30 * MIB && u.mem.resident == 70 * MIB);
	check(u.budget == 70 * MIB);
	return fd;
}

static void tells_how_far_it_has_moved_out(void)
{
	struct nvshare_lock_released r;
	int fd;

	fake_listen(dir);
	fd = begin_telling();
	__atomic_store_n(&has_told, 1, __ATOMIC_SEQ_CST);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
	check(r.grant == 1 && r.outcome == NVSHARE_OUTCOME_SUCCESS);
	check(r.moved == 60 * MIB && r.budget == 40 * MIB);
}

static void stays_stopped_when_a_part_was_told_as_gone(void)
{
	struct nvshare_lock_released r;
	int fd;

	fake_listen(dir);
	fd = begin_telling();
	fake_set(evict_outcome, NVSHARE_OUTCOME_SAVE_FAILED);
	__atomic_store_n(&has_told, 1, __ATOMIC_SEQ_CST);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
	check(r.grant == 1 && r.outcome == NVSHARE_OUTCOME_SUCCESS && r.wants == 1);
	check(r.budget == 70 * MIB);
	check(fake_get(n_restores) == 0);
	check(gate_get() == GATE_CLOSED);
}

/* What it mapped itself is there without any context. */
static void memory_moves_when_the_last_context_is_gone(void)
{
	struct nvshare_lock_released r;
	struct nvshare_mem_update u;
	struct user user = {0};
	int fd;

	fake_listen(dir);
	fd = begin_running();
	fake_set(can_freeze, 1); /* a second context can be had */
	(void)agent_forget_context(CONTEXT);
	fake_drop(fd, 1, 60 * MIB, 4);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS);
	check(r.moved == 60 * MIB && r.mem.swapped == 60 * MIB);
	start(&user, pass_gate);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	check(fake_get(n_second_drops) == 0);
	fake_available(fd, 150 * MIB, 7);
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update_9;
	while (u.epoch != 7);
	check(u.mem.swapped == 0 && u.mem.resident == 100 * MIB);
	wait_until(fake_get(n_second_drops) == 1);
	check(!is_done(&user));
	fake_grant(fd, 2, 150 * MIB, 8);
	(void)finish(&user);
}

/* It is not said to have moved, then. */
static void memory_stays_where_no_context_can_be_had(void)
{
	struct nvshare_lock_released r;
	struct user user = {0};
	int fd;

	fake_listen(dir);
	fd = begin_running();
	fake_drop(fd, 1, 60 * MIB, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	(void)agent_forget_context(CONTEXT);
	start(&user, pass_gate);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	fake_available(fd, 150 * MIB, 7);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
	check(r.outcome == NVSHARE_OUTCOME_INVALID_STATE && r.mem.swapped == 60 * MIB);
	fake_drop(fd, 0, 40 * MIB, 9);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
	check(r.outcome == NVSHARE_OUTCOME_INVALID_STATE && r.mem.resident == 40 * MIB);
	check(!is_done(&user));

	fake_set(can_freeze, 1);
	fake_available(fd, 150 * MIB, 11);
	do
		r.mem = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update_9.mem;
	while (r.mem.swapped);
	fake_grant(fd, 2, 150 * MIB, 12);
	(void)finish(&user);
}

static void frees_memory_while_stopped(void)
{
	struct nvshare_lock_released r;
	int fd;

	fake_listen(dir);
	fd = begin_running();
	fake_drop(fd, 1, 0, 4);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
	check(fake_get(n_evictions) == 0);
	check(r.budget == 100 * MIB);
	fake_drop(fd, 0, 100 * MIB, 5);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
	check(r.grant == 0 && r.epoch == 5 && r.budget == 0 && r.moved == 100 * MIB);
}

static void keeps_the_gpu_when_work_does_not_end(void)
{
	struct nvshare_lock_released r;
	int fd;

	check(setenv("NVSHARE_DRAIN_MAX_MS", "5", 1) == 0);
	fake_listen(dir);
	fd = begin_running();
	fake_set(is_working, 1);
	fake_drop(fd, 1, 60 * MIB, 4);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
	check(r.outcome == NVSHARE_OUTCOME_TIMEOUT);
	check(r.grant == 1 && r.budget == 200 * MIB);
	check(gate_get() == GATE_OPEN);
	check(fake_get(n_evictions) == 0);
}

/* A program that never lets go of the GPU, and can be frozen. */
static int begin_busy(void)
{
	int fd;

	check(setenv("NVSHARE_DRAIN_MS", "5", 1) == 0);
	fake_listen(dir);
	fd = begin_running();
	fake_set(is_working, 1);
	fake_set(can_freeze, 1);
	return fd;
}

static void freezes_work_that_does_not_end(void)
{
	struct nvshare_lock_released r;
	struct nvshare_mem_update u;
	int fd = begin_busy();

	fake_drop(fd, 1, 60 * MIB, 4);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.mem.swapped == 60 * MIB);
	check(r.wants == 1); /* it is in the middle of something */
	check(r.halt == NVSHARE_HALT_FREEZE);
	check(fake_get(n_freezes) == 1 && fake_get(evict_was_frozen) == 1);
	check(fake_get(n_seconds) == 1);
	check(fake_get(is_committed) == 1); /* whether the pager found anything to move or not */
	check(gate_get() == GATE_CLOSED);

	fake_available(fd, 150 * MIB, 7);
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update_9;
	while (u.mem.swapped);
	check(fake_get(n_thaws) == 0); /* not before it has the word to run */
	fake_grant(fd, 2, 150 * MIB, 8);
	wait_until(gate_get() == GATE_OPEN);
	check(fake_get(n_thaws) == 1);
}

/* A driver that can only wait for work until it ends. */
static void freezes_at_once_without_events(void)
{
	struct nvshare_lock_released r;
	int fd = begin_busy();

	cuda_real.cuCtxRecordEvent = NULL;
	fake_drop(fd, 1, 60 * MIB, 4);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.mem.swapped == 60 * MIB);
	check(fake_get(n_freezes) == 1 && fake_get(n_synchronizes) == 0);
}

/* Stopped for its turn alone; its memory is asked for when it is frozen already. */
static void frees_memory_while_frozen(void)
{
	struct nvshare_lock_released r;
	int fd = begin_busy();

	fake_drop(fd, 1, 0, 4);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.moved == 0);
	check(fake_get(n_freezes) == 1 && fake_get(n_seconds) == 1);
	fake_drop(fd, 0, 60 * MIB, 5);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.mem.swapped == 60 * MIB);
	check(fake_get(evict_was_frozen) == 1);
}

/* Thawed by the watchdog, then drained: what is asked for now is not that of a frozen one. */
static void frees_memory_when_drained_after_a_freeze(void)
{
	struct nvshare_lock_released r;
	int fd = begin_busy();

	fake_set(is_late, 1);
	fake_drop(fd, 1, 0, 4);
	wait_until(fake_get(n_freezes) == 1);
	fake_set(is_working, 0);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.wants == 0);
	fake_drop(fd, 0, 60 * MIB, 5);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.mem.swapped == 60 * MIB);
	check(fake_get(evict_was_frozen) == 0);
}

static void does_not_freeze_work_that_ends(void)
{
	struct nvshare_lock_released r;
	int fd = begin_busy();

	fake_set(is_working, 0);
	fake_drop(fd, 1, 60 * MIB, 4);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.wants == 0);
	check(fake_get(n_freezes) == 0 && fake_get(evict_was_frozen) == 0);
}

static void drains_when_it_can_not_freeze(void)
{
	struct nvshare_lock_released r;
	int fd;

	check(setenv("NVSHARE_DRAIN_MAX_MS", "50", 1) == 0);
	fd = begin_busy();
	fake_set(freeze_error, 5);
	fake_drop(fd, 1, 60 * MIB, 4);
	wait_until(fake_get(n_freezes) == 1);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
	check(r.outcome == NVSHARE_OUTCOME_TIMEOUT);
	check(fake_get(n_evictions) == 0);
	check(gate_get() == GATE_OPEN);
}

/* Thawed by the watchdog before anything was given up: again, by waiting, and again. */
static void drains_after_freezes_that_came_to_nothing(void)
{
	struct nvshare_lock_released r;
	struct user user = {0};
	int fd = begin_busy();

	fake_set(evict_outcome, NVSHARE_OUTCOME_TIMEOUT);
	for (uint64_t epoch = 4; epoch <= 6; epoch += 2) {
		fake_drop(fd, 1, 60 * MIB, epoch);
		r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
		check(r.outcome == NVSHARE_OUTCOME_TIMEOUT);
		wait_until(gate_get() == GATE_OPEN);
	}
	check(fake_get(n_freezes) == 2 && fake_get(n_thaws) == 2);
	fake_set(evict_outcome, 0);
	fake_set(is_working, 0);
	fake_drop(fd, 1, 60 * MIB, 8);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.halt == NVSHARE_HALT_FREEZE);
	check(fake_get(n_freezes) == 2);

	fake_set(is_working, 1);
	start(&user, pass_gate);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	fake_grant(fd, 2, 200 * MIB, 10);
	(void)finish(&user);
	fake_drop(fd, 2, 60 * MIB, 12);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && fake_get(n_freezes) == 3);
}

static void undoes_an_eviction_that_fails(void)
{
	struct nvshare_lock_released r;
	int fd;

	fake_listen(dir);
	fd = begin_running();
	fake_set(evict_outcome, NVSHARE_OUTCOME_NO_HOST_MEMORY);
	fake_drop(fd, 1, 60 * MIB, 4);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
	check(r.outcome == NVSHARE_OUTCOME_NO_HOST_MEMORY);
	check(fake_get(n_restores) == 1);
	check(gate_get() == GATE_OPEN);
}

static void an_allocation_waits_for_room(void)
{
	struct user user = {0};
	struct nvshare_mem_update u;
	int fd;

	fake_listen(dir);
	fd = begin_running();
	fake_available(fd, 110 * MIB, 4);
	wait_until(budget_get(0) == 110 * MIB);
	start(&user, take_memory);
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update_9;
	while (!u.mem.wanted);
	check(u.mem.wanted == 54 * MIB);
	check(u.mem.resident == 100 * MIB);
	check(!is_done(&user));
	fake_available(fd, 164 * MIB, 6);
	check(finish(&user) == CUDA_SUCCESS);

	start(&user, take_memory);
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update_9;
	while (!u.mem.wanted);
	check(u.mem.wanted == 64 * MIB);
	fake_send(fd, NVSHARE_MSG_MEM_REFUSED, &(struct nvshare_mem_refused){.wanted = 64 * MIB});
	check(finish(&user) == CUDA_ERROR_OUT_OF_MEMORY);
}

/* It asks for more than it lacks, unless others had to stop for that. */
static void what_is_waited_for_is_what_is_missing(void)
{
	struct nvshare_wait_for_mem wait = {.why = NVSHARE_WAIT_SWAP};
	struct nvshare_mem_update u;
	struct user user = {0};
	int fd;

	fake_listen(dir);
	fd = begin_running();
	fake_available(fd, 102 * MIB, 4);
	wait_until(budget_get(0) == 102 * MIB);
	start(&user, take_a_little);
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update_9;
	while (!u.mem.wanted);
	check(u.mem.wanted == 62 * MIB);
	fake_send(fd, NVSHARE_MSG_WAIT_FOR_MEM, &wait);
	fake_send(fd, NVSHARE_MSG_HEARTBEAT, &(struct nvshare_heartbeat){0});
	(void)fake_expect(fd, NVSHARE_MSG_HEARTBEAT);
	wait.why = NVSHARE_WAIT_MEMORY;
	fake_send(fd, NVSHARE_MSG_WAIT_FOR_MEM, &wait);
	u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update_9;
	check(u.mem.wanted == 6 * MIB);
	fake_available(fd, 108 * MIB, 6);
	check(finish(&user) == CUDA_SUCCESS);
}

static void a_refusal_of_more_than_it_lacks_now_is_an_old_one(void)
{
	struct user user = {0};
	struct nvshare_mem_update u;
	int fd;

	fake_listen(dir);
	fd = begin_running();
	fake_available(fd, 110 * MIB, 4);
	wait_until(budget_get(0) == 110 * MIB);
	start(&user, take_memory);
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update_9;
	while (!u.mem.wanted);
	fake_send(fd, NVSHARE_MSG_MEM_REFUSED,
		  &(struct nvshare_mem_refused){.wanted = 54 * MIB + 1});
	u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update_9;
	check(u.mem.wanted == 54 * MIB);
	check(!is_done(&user));
	fake_available(fd, 164 * MIB, 6);
	check(finish(&user) == CUDA_SUCCESS);
}

/* A process that waits for memory can be switched out meanwhile. */
static void is_stopped_inside_an_allocation(void)
{
	struct user user = {0};
	struct nvshare_mem_update u;
	struct nvshare_lock_released r;
	int fd;

	fake_listen(dir);
	fd = begin_running();
	fake_available(fd, 100 * MIB, 4);
	wait_until(budget_get(0) == 100 * MIB);
	start(&user, take_memory);
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update_9;
	while (!u.mem.wanted);
	fake_drop(fd, 1, 100 * MIB, 6);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.wants == 1);
	check(r.mem.wanted >= 64 * MIB && r.mem.swapped == 100 * MIB);
	fake_available(fd, 164 * MIB, 7);
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update_9;
	while (u.mem.swapped);
	check(!is_done(&user)); /* room alone is not the turn */
	fake_grant(fd, 2, 164 * MIB, 8);
	check(finish(&user) == CUDA_SUCCESS);
}

static void reports_are_coalesced(void)
{
	uint64_t begin_ns, elapsed_ms;
	struct msg msg;
	int fd, n = 0;

	fake_listen(dir);
	fd = begin_running();
	begin_ns = clock_now_ns();
	for (int i = 0; i < 20000; i++) {
		budget_force(0, 1, NVSHARE_PINNED_ARRAY);
		budget_give(0, 1, NVSHARE_PINNED_ARRAY);
		if (i % 1000 == 0)
			nap();
	}
	budget_force(0, 77, NVSHARE_PINNED_ARRAY);
	do {
		msg = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE);
		n++;
	} while (msg.body.mem_update_9.mem.pinned[NVSHARE_PINNED_ARRAY] != 77);
	elapsed_ms = (clock_now_ns() - begin_ns) / CLOCK_NS_PER_MS;
	check((uint64_t)n <= elapsed_ms / 10 + 2);
}

static void unused_budget_goes_back_when_somebody_waits(void)
{
	struct nvshare_mem_update u;
	int fd;

	fake_listen(dir);
	fd = begin_running();
	fake_available(fd, 900 * MIB, 4);
	wait_until(budget_get(0) == 900 * MIB);
	fake_send(fd, NVSHARE_MSG_PREPARE_SWAP_OUT,
		  &(struct nvshare_prepare_swap_out){.bytes = 10 * MIB, .due_ms = 100000});
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update_9;
	while (u.epoch != 4 || u.budget == 900 * MIB);
	check(u.budget == 356 * MIB);
	check(budget_get(0) == 356 * MIB);
	check(fake_get(n_prepares) == 1);
}

static void an_idle_process_gives_the_gpu_up(void)
{
	struct nvshare_lock_released r;
	int fd;

	check(setenv("NVSHARE_IDLE_MS", "1", 1) == 0);
	fake_listen(dir);
	fd = begin_running();
	fake_set(is_working, 1);
	fake_send(fd, NVSHARE_MSG_PREPARE_SWAP_OUT,
		  &(struct nvshare_prepare_swap_out){.due_ms = 100000});
	wait_until(fake_get(n_records) > 0);
	check(gate_get() == GATE_OPEN); /* a kernel runs: not idle */
	fake_set(is_working, 0);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released_7;
	check(r.grant == 1 && r.outcome == NVSHARE_OUTCOME_SUCCESS && r.budget == 100 * MIB);
	check(gate_get() == GATE_CLOSED);
}

static void answers_heartbeats(void)
{
	struct nvshare_heartbeat beat = {.nonce = 4711};
	int fd;

	fake_listen(dir);
	fd = begin(NULL);
	fake_send(fd, NVSHARE_MSG_HEARTBEAT, &beat);
	check(fake_expect(fd, NVSHARE_MSG_HEARTBEAT).body.heartbeat_13.nonce == 4711);
}

static void goes_on_when_the_scheduler_is_lost(void)
{
	struct nvshare_register r;
	int fd;

	fake_listen(dir);
	fd = begin_running();
	check(close(fd) == 0);
	fd = fake_accept();
	check(gate_get() == GATE_OPEN);
	check(budget_get(0) == BUDGET_UNLIMITED);
	r = fake_expect(fd, NVSHARE_MSG_REGISTER).body.register_1;
	check(r.flags == (NVSHARE_REGISTER_RUNNING | NVSHARE_REGISTER_RECONNECT));
	check(r.budget == 100 * MIB && r.mem.resident == 100 * MIB);
	fake_registered(fd, NVSHARE_REGISTER_OK);
	fake_grant(fd, 9, 150 * MIB, 2);
	wait_until(budget_get(0) == 150 * MIB);
	check(gate_get() == GATE_OPEN);
}

static void waits_for_a_lost_scheduler_when_stopped(void)
{
	struct user user = {0};
	struct nvshare_register r;
	int fd;

	fake_listen(dir);
	fd = begin_running();
	fake_drop(fd, 1, 60 * MIB, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	check(close(fd) == 0);
	fd = fake_accept();
	check(gate_get() == GATE_CLOSED);
	r = fake_expect(fd, NVSHARE_MSG_REGISTER).body.register_1;
	check(r.flags == NVSHARE_REGISTER_RECONNECT);
	check(r.mem.swapped == 60 * MIB && r.budget == 40 * MIB);
	fake_registered(fd, NVSHARE_REGISTER_OK);
	start(&user, pass_gate);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	check(fake_get(n_restores) == 0);
}

static void an_orphan_helps_itself(void)
{
	struct user user = {0};
	int fd;

	check(setenv("NVSHARE_ORPHAN_TIMEOUT_SEC", "0", 1) == 0);
	fake_listen(dir);
	fd = begin_running();
	fake_drop(fd, 1, 60 * MIB, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	start(&user, pass_gate);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	fake_set(restore_outcome, NVSHARE_OUTCOME_INVALID_STATE); /* no room yet */
	fake_gone(dir);
	check(close(fd) == 0);
	wait_until(fake_get(n_restores) == 1);
	wait_until(fake_get(n_evictions) == 2); /* half of it in would be in others' way */
	check(fake_get(evict_bytes) == UINT64_MAX);
	check(!is_done(&user));
	fake_set(restore_outcome, 0);
	(void)finish(&user);
	check(gate_get() == GATE_OPEN);
	check(budget_get(0) == BUDGET_UNLIMITED);
}

/* One that is stopped, or waits for memory, asks; silence is as good as a loss. */
static void a_scheduler_that_hangs_is_lost(void)
{
	struct user user = {0};
	struct nvshare_register r;
	int old, fd;

	check(setenv("NVSHARE_ORPHAN_TIMEOUT_SEC", "1", 1) == 0);
	fake_listen(dir);
	old = begin_running();
	fake_drop(old, 1, 60 * MIB, 4);
	(void)fake_expect(old, NVSHARE_MSG_LOCK_RELEASED);
	start(&user, pass_gate);
	(void)fake_expect(old, NVSHARE_MSG_REQ_LOCK);
	for (int i = 0; i < 3; i++) {
		struct msg ping = fake_expect(old, NVSHARE_MSG_PING);

		fake_send(old, NVSHARE_MSG_PING, &ping.body.heartbeat_23);
	}
	(void)fake_expect(old, NVSHARE_MSG_PING); /* not answered any more */
	r = fake_admit(&fd);
	check(r.flags == NVSHARE_REGISTER_RECONNECT && r.mem.swapped == 60 * MIB);
	check(fake_readable(old, 0)); /* its end */
	check(recv(old, &r, sizeof(r), 0) == 0);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	check(!is_done(&user));
	fake_grant(fd, 1, 200 * MIB, 2);
	(void)finish(&user);
}

static void a_thread_that_lacks_memory_notices_a_hang(void)
{
	struct user user = {0};
	int old, fd;

	check(setenv("NVSHARE_ORPHAN_TIMEOUT_SEC", "1", 1) == 0);
	fake_listen(dir);
	old = begin_running();
	budget_force(0, 100 * MIB, BUDGET_PAGEABLE);
	start(&user, take_memory);
	(void)fake_expect(old, NVSHARE_MSG_PING);
	check(!is_done(&user));
	fd = fake_accept();
	check(fake_expect(fd, NVSHARE_MSG_REGISTER).body.register_1.flags ==
	      (NVSHARE_REGISTER_RUNNING | NVSHARE_REGISTER_RECONNECT));
	check(finish(&user) == CUDA_SUCCESS); /* unmanaged, meanwhile */
}

static void runs_without_a_scheduler_and_joins_one(void)
{
	struct nvshare_register r;
	int fd;

	check(agent_use_device(0) == CUDA_SUCCESS);
	check(gate_get() == GATE_OPEN);
	check(agent_context_bytes(0) == FAKE_TOTAL / 32);
	check(agent_add_context(CONTEXT, 0, 0));
	budget_force(0, 5 * MIB, NVSHARE_PINNED_CONTEXT);
	fake_listen(dir);
	r = fake_admit(&fd);
	check(r.flags == NVSHARE_REGISTER_RUNNING);
	check(r.budget == 5 * MIB);
	check(gate_get() == GATE_OPEN);
}

static void can_be_told_to_need_a_scheduler(void)
{
	struct user user = {.dev = 0};
	int fd;

	check(setenv("NVSHARE_REQUIRE_SCHEDULER", "1", 1) == 0);
	check(agent_use_device(0) == CUDA_ERROR_SYSTEM_NOT_READY);
	fake_listen(dir);
	start(&user, use_device);
	(void)fake_admit(&fd);
	check(finish(&user) == CUDA_SUCCESS);
}

static void a_scheduler_that_does_not_answer_is_none(void)
{
	fake_listen(dir);
	check(agent_use_device(0) == CUDA_SUCCESS);
	check(gate_get() == GATE_OPEN);
}

static void nonsense_ends_the_connection_and_nothing_else(void)
{
	int fd;

	fake_listen(dir);
	fd = begin_running();
	check(send(fd, "nonsense", 8, MSG_NOSIGNAL) == 8);
	fd = fake_accept();
	(void)fake_expect(fd, NVSHARE_MSG_REGISTER);
	check(gate_get() == GATE_OPEN);
}

/* Else it would be taken for one whose memory can be moved at any time. */
static void what_has_begun_while_it_registered_registers_again(void)
{
	struct user user = {.dev = 0};
	struct nvshare_register r;
	int old, fd;

	fake_listen(dir);
	start(&user, use_device);
	old = fake_accept();
	check(fake_expect(old, NVSHARE_MSG_REGISTER).body.register_1.flags == 0);
	check(agent_add_context(CONTEXT, 0, 0)); /* by a thread that had waited long enough */
	fake_registered(old, NVSHARE_REGISTER_OK);
	r = fake_admit(&fd);
	check(r.flags == NVSHARE_REGISTER_RUNNING);
	check(finish(&user) == CUDA_SUCCESS);
	check(gate_get() == GATE_OPEN);
	fake_grant(fd, 1, 200 * MIB, 2);
	wait_until(budget_get(0) == 200 * MIB);
}

static void a_second_gpu_makes_both_fixed(void)
{
	struct user user = {.dev = 1};
	struct nvshare_register r;
	int fd, fd_first, fd_second;

	fake_listen(dir);
	fd = begin_running();
	start(&user, use_device);
	r = fake_admit(&fd_second);
	check(r.gpu_uuid[0] == 0x41);
	check(r.flags == NVSHARE_REGISTER_FIXED);
	r = fake_admit(&fd_first);
	check(r.gpu_uuid[0] == 0x40);
	check(r.flags ==
	      (NVSHARE_REGISTER_FIXED | NVSHARE_REGISTER_RUNNING | NVSHARE_REGISTER_RECONNECT));
	check(finish(&user) == CUDA_SUCCESS);
	check(recv(fd, &r, sizeof(r), 0) >= 0);
	check(gate_get() == GATE_CLOSED); /* until it may use both */
	start(&user, pass_gate);
	(void)fake_expect(fd_second, NVSHARE_MSG_REQ_LOCK);
	check(!is_done(&user));
	fake_grant(fd_second, 1, 100 * MIB, 2);
	(void)finish(&user);
}

static void a_second_gpu_can_be_refused(void)
{
	struct user user = {.dev = 1};
	int fd, fd_second;

	fake_listen(dir);
	fd = begin_running();
	start(&user, use_device);
	fd_second = fake_accept();
	(void)fake_expect(fd_second, NVSHARE_MSG_REGISTER);
	fake_registered(fd_second, NVSHARE_REGISTER_NO_FIT);
	check(finish(&user) == CUDA_ERROR_NOT_SUPPORTED);
	check(gate_get() == GATE_OPEN);
	fake_send(fd, NVSHARE_MSG_HEARTBEAT, &(struct nvshare_heartbeat){.nonce = 1});
	(void)fake_expect(fd, NVSHARE_MSG_HEARTBEAT); /* the first one is as it was */
}

static void a_second_gpu_is_refused_when_the_first_can_not_be_fixed(void)
{
	struct user user = {.dev = 1};
	struct nvshare_register r;
	int fd, fd_second;

	fake_listen(dir);
	(void)begin_running();
	start(&user, use_device);
	(void)fake_admit(&fd_second);
	fd = fake_accept();
	(void)fake_expect(fd, NVSHARE_MSG_REGISTER);
	fake_registered(fd, NVSHARE_REGISTER_NO_FIT);
	check(finish(&user) == CUDA_ERROR_NOT_SUPPORTED);
	r = fake_admit(&fd);
	check(r.flags == (NVSHARE_REGISTER_RUNNING | NVSHARE_REGISTER_RECONNECT));
	check(gate_get() == GATE_OPEN);
}

static void a_forked_child_starts_afresh(void)
{
	int fd, status;
	pid_t pid;

	fake_listen(dir);
	fd = begin_running();
	fake_drop(fd, 1, 10 * MIB, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	check(gate_get() == GATE_CLOSED);
	pid = fork();
	check(pid >= 0);
	if (pid == 0) {
		struct nvshare_mem mem;

		check(gate_get() == GATE_OPEN);
		gate_enter();
		gate_leave();
		budget_read(0, &mem);
		check(mem.resident == 0 && mem.swapped == 0);
		check(budget_get(0) == BUDGET_UNLIMITED);
		agent_memory_changed(0);
		agent_want_memory(0);
		agent_stop(); /* nothing to stop */
		/* The parent's connection is not the child's: only the parent keeps it open. */
		(void)pause();
		_exit(0);
	}
	fake_send(fd, NVSHARE_MSG_HEARTBEAT, &(struct nvshare_heartbeat){.nonce = 1});
	(void)fake_expect(fd, NVSHARE_MSG_HEARTBEAT);
	check(gate_get() == GATE_CLOSED);
	agent_stop();
	check(kill(pid, SIGKILL) == 0);
	check(waitpid(pid, &status, 0) == pid);
	check(WIFSIGNALED(status)); /* no check of the child's had failed */
}

static void exiting_passes_the_gate(void)
{
	struct user user = {0};
	int fd;

	fake_listen(dir);
	fd = begin_running();
	fake_drop(fd, 1, 60 * MIB, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	start(&user, pass_gate);
	wait_until(gate_wanted());
	agent_stop();
	gate_enter(); /* would block for ever */
	gate_leave();
	check(budget_get(0) == BUDGET_UNLIMITED);
	check(gate_get() == GATE_CLOSED); /* what the other thread would touch is out */
	(void)finish(&user);              /* but it is not kept for ever */
	agent_stop();
}

static void exiting_opens_the_gate_when_nothing_is_out(void)
{
	struct user user = {0};
	int fd;

	fake_listen(dir);
	fd = begin_running();
	fake_set(is_working, 1); /* stopped in the middle of a drain */
	fake_drop(fd, 1, 60 * MIB, 4);
	wait_until(gate_get() == GATE_CLOSED);
	start(&user, pass_gate);
	wait_until(gate_wanted());
	agent_stop();
	check(gate_get() == GATE_OPEN);
	(void)finish(&user);
	check(agent_use_device(1) == CUDA_SUCCESS); /* answers, and does nothing */
}

/* ---- each in a process of its own --------------------------------------------- */

static void in_child(void **state)
{
	void (*body)(void) = (void (*)(void))(uintptr_t)*state;
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		(void)alarm(120);
		fake_install();
		fake_dir(dir, sizeof(dir));
		body();
		fake_gone(dir);
		(void)rmdir(dir);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

#define child_test(body)                                               \
	{                                                              \
#body, in_child, NULL, NULL, (void *)(uintptr_t)(body) \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		child_test(registers),
		child_test(runs_when_granted),
		child_test(stops_when_told),
		child_test(says_that_it_wants_on),
		child_test(comes_back),
		child_test(comes_back_in_parts),
		child_test(tells_how_far_it_has_moved_out),
		child_test(stays_stopped_when_a_part_was_told_as_gone),
		child_test(memory_moves_when_the_last_context_is_gone),
		child_test(memory_stays_where_no_context_can_be_had),
		child_test(frees_memory_while_stopped),
		child_test(keeps_the_gpu_when_work_does_not_end),
		child_test(freezes_work_that_does_not_end),
		child_test(freezes_at_once_without_events),
		child_test(frees_memory_while_frozen),
		child_test(frees_memory_when_drained_after_a_freeze),
		child_test(does_not_freeze_work_that_ends),
		child_test(drains_when_it_can_not_freeze),
		child_test(drains_after_freezes_that_came_to_nothing),
		child_test(undoes_an_eviction_that_fails),
		child_test(an_allocation_waits_for_room),
		child_test(what_is_waited_for_is_what_is_missing),
		child_test(a_refusal_of_more_than_it_lacks_now_is_an_old_one),
		child_test(is_stopped_inside_an_allocation),
		child_test(reports_are_coalesced),
		child_test(unused_budget_goes_back_when_somebody_waits),
		child_test(an_idle_process_gives_the_gpu_up),
		child_test(answers_heartbeats),
		child_test(goes_on_when_the_scheduler_is_lost),
		child_test(waits_for_a_lost_scheduler_when_stopped),
		child_test(an_orphan_helps_itself),
		child_test(a_scheduler_that_hangs_is_lost),
		child_test(a_thread_that_lacks_memory_notices_a_hang),
		child_test(runs_without_a_scheduler_and_joins_one),
		child_test(can_be_told_to_need_a_scheduler),
		child_test(a_scheduler_that_does_not_answer_is_none),
		child_test(nonsense_ends_the_connection_and_nothing_else),
		child_test(what_has_begun_while_it_registered_registers_again),
		child_test(a_second_gpu_makes_both_fixed),
		child_test(a_second_gpu_can_be_refused),
		child_test(a_second_gpu_is_refused_when_the_first_can_not_be_fixed),
		child_test(a_forked_child_starts_afresh),
		child_test(exiting_passes_the_gate),
		child_test(exiting_opens_the_gate_when_nothing_is_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
