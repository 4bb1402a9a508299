/* SPDX-License-Identifier: Apache-2.0 */

/* The agent: running, growing, moving out and coming back. */

#include "lib/agent_rig.h"

static void registers(void)
{
	struct nvshare_register r;
	unsigned char uuid[16];
	int fd;

	check(prctl(PR_SET_NAME, "trainer") == 0);
	check(setenv("NVSHARE_POD", "lab/one", 1) == 0);
	fake_listen(rig_dir);
	fd = rig_begin(&r);
	memset(uuid, 0x40, sizeof(uuid));
	check(memcmp(r.gpu_uuid, uuid, sizeof(uuid)) == 0);
	check(r.gpu_total_bytes == FAKE_TOTAL);
	check(r.budget == 0);
	check(r.flags == 0);
	check(r.backend == NVSHARE_BACKEND_VMM);
	check(strcmp(r.name, "trainer") == 0);
	check(strcmp(r.pod, "lab/one") == 0);
	check(gate_get() == GATE_CLOSED);
	check(context_cost(0) == 16 * MIB);
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

	fake_listen(rig_dir);
	fd = rig_begin(NULL);
	user_start(&user, rig_pass_gate);
	msg = fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	check(msg.body.req_lock.mem.wanted == 0);
	rig_nap();
	check(!user_is_done(&user));
	fake_grant(fd, 1, 300 * MIB, 2);
	(void)user_finish(&user);
	wait_until(gate_get() == GATE_OPEN);
	check(budget_get(0) == 300 * MIB);
}

static void stops_when_told(void)
{
	struct nvshare_lock_released r;
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_set(is_working, 1);
	fake_drop(fd, 1, 60 * MIB, 4);
	wait_until(gate_get() == GATE_CLOSED && fake_get(n_records) > 0);
	check(fake_get(n_evictions) == 0); /* never under work that runs */
	fake_set(is_working, 0);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
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

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_set(is_working, 1);
	fake_drop(fd, 1, 0, 4);
	wait_until(gate_get() == GATE_CLOSED);
	user_start(&user, rig_pass_gate);
	wait_until(gate_wanted());
	fake_set(is_working, 0);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.wants == 1);
	check(!user_is_done(&user));
	fake_grant(fd, 2, 200 * MIB, 6);
	(void)user_finish(&user);
}

static void comes_back(void)
{
	struct user user = {0};
	struct nvshare_mem_update u;
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_drop(fd, 1, 60 * MIB, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	user_start(&user, rig_pass_gate);
	check(fake_expect(fd, NVSHARE_MSG_REQ_LOCK).body.req_lock.mem.swapped == 60 * MIB);
	fake_available(fd, 150 * MIB, 7);
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update;
	while (u.mem.swapped);
	check(u.budget == 100 * MIB && u.epoch == 7);
	check(u.moved == 60 * MIB && u.move_ns == 1000);
	check(u.mem.resident == 100 * MIB);
	check(!user_is_done(&user));
	fake_grant(fd, 2, 150 * MIB, 8);
	(void)user_finish(&user);
}

static int has_told;

/* From within the eviction, until the scheduler has heard of it. */
static bool tell(CUdevice dev, uint64_t bytes)
{
	if (__atomic_load_n(&has_told, __ATOMIC_SEQ_CST))
		return false;
	agent_moved_out(dev, bytes);
	return true;
}

/* Told to give 60 MiB, and 30 of them are gone and reported: the eviction goes on. */
static int begin_telling(void)
{
	struct nvshare_mem_update u;
	int fd = rig_begin_running();

	fake_set(evict_first, 30 * MIB);
	fake_driver.on_first = tell;
	fake_drop(fd, 1, 60 * MIB, 4);
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update;
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

	fake_listen(rig_dir);
	fd = begin_telling();
	__atomic_store_n(&has_told, 1, __ATOMIC_SEQ_CST);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.grant == 1 && r.outcome == NVSHARE_OUTCOME_SUCCESS);
	check(r.moved == 60 * MIB && r.budget == 40 * MIB);
}

static int is_read; /* what the connection had taken */

/* More than the connection takes; and, once it has been read, more than may be queued. */
static bool tell_much(CUdevice dev, uint64_t bytes)
{
	uint64_t n = 0;

	(void)bytes;
	while (n < 2000)
		agent_moved_out(dev, ++n * 64 * MIB);
	__atomic_store_n(&has_told, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&is_read, __ATOMIC_SEQ_CST) == 0)
		rig_nap();
	for (int i = 0; i < 16; i++)
		agent_moved_out(dev, ++n * 64 * MIB);
	return false;
}

static void tells_on_when_the_scheduler_has_not_read_for_a_while(void)
{
	struct nvshare_lock_released r;
	struct msg msg;
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_set(evict_first, 30 * MIB);
	fake_driver.on_first = tell_much;
	fake_drop(fd, 1, 1ull << 40, 4);
	wait_until(__atomic_load_n(&has_told, __ATOMIC_SEQ_CST));
	while (recv(fd, &msg, sizeof(msg), MSG_DONTWAIT) > 0)
		;
	__atomic_store_n(&is_read, 1, __ATOMIC_SEQ_CST);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.grant == 1 && r.outcome == NVSHARE_OUTCOME_SUCCESS);
}

static void stays_stopped_when_a_part_was_told_as_gone(void)
{
	struct nvshare_lock_released r;
	int fd;

	fake_listen(rig_dir);
	fd = begin_telling();
	fake_set(evict_outcome, NVSHARE_OUTCOME_SAVE_FAILED);
	__atomic_store_n(&has_told, 1, __ATOMIC_SEQ_CST);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
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

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_set(can_freeze, 1); /* a second context can be had */
	(void)agent_forget_context(CONTEXT);
	fake_drop(fd, 1, 60 * MIB, 4);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS);
	check(r.moved == 60 * MIB && r.mem.swapped == 60 * MIB);
	user_start(&user, rig_pass_gate);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	check(fake_get(n_second_drops) == 0);
	fake_available(fd, 150 * MIB, 7);
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update;
	while (u.epoch != 7);
	check(u.mem.swapped == 0 && u.mem.resident == 100 * MIB);
	wait_until(fake_get(n_second_drops) == 1);
	check(!user_is_done(&user));
	fake_grant(fd, 2, 150 * MIB, 8);
	(void)user_finish(&user);
}

/* It is not said to have moved, then. */
static void memory_stays_where_no_context_can_be_had(void)
{
	struct nvshare_lock_released r;
	struct user user = {0};
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_drop(fd, 1, 60 * MIB, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	(void)agent_forget_context(CONTEXT);
	user_start(&user, rig_pass_gate);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	fake_available(fd, 150 * MIB, 7);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_INVALID_STATE && r.mem.swapped == 60 * MIB);
	fake_drop(fd, 0, 40 * MIB, 9);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_INVALID_STATE && r.mem.resident == 40 * MIB);
	check(!user_is_done(&user));

	fake_set(can_freeze, 1);
	fake_available(fd, 150 * MIB, 11);
	do
		r.mem = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update.mem;
	while (r.mem.swapped);
	fake_grant(fd, 2, 150 * MIB, 12);
	(void)user_finish(&user);
}

static void frees_memory_while_stopped(void)
{
	struct nvshare_lock_released r;
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_drop(fd, 1, 0, 4);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(fake_get(n_evictions) == 0);
	check(r.budget == 100 * MIB);
	fake_drop(fd, 0, 100 * MIB, 5);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.grant == 0 && r.epoch == 5 && r.budget == 0 && r.moved == 100 * MIB);
}

/* A restore kept budget that was too little for its next chunk; that is all others lack. */
static void unused_budget_goes_before_memory(void)
{
	struct nvshare_drop_lock drop = {.bytes = 30 * MIB, .epoch = 5, .charge = 130 * MIB};
	struct nvshare_lock_released r;
	struct nvshare_mem_update u;
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_drop(fd, 1, 0, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	fake_send(fd, NVSHARE_MSG_DROP_LOCK, &drop);
	u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update;
	check(u.budget == 100 * MIB && u.epoch == 5);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.moved == 0 && r.budget == 100 * MIB);

	drop = (struct nvshare_drop_lock){.bytes = 30 * MIB, .epoch = 7, .charge = 110 * MIB};
	fake_send(fd, NVSHARE_MSG_DROP_LOCK, &drop);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.moved == 20 * MIB);
	check(r.budget == 80 * MIB);
}

static void an_allocation_waits_for_room(void)
{
	struct user user = {0};
	struct nvshare_mem_update u;
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_available(fd, 110 * MIB, 4);
	wait_until(budget_get(0) == 110 * MIB);
	user_start(&user, rig_take_memory);
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update;
	while (!u.mem.wanted);
	check(u.mem.wanted == 54 * MIB);
	check(u.mem.resident == 100 * MIB);
	check(!user_is_done(&user));
	fake_available(fd, 164 * MIB, 6);
	check(user_finish(&user) == CUDA_SUCCESS);

	user_start(&user, rig_take_memory);
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update;
	while (!u.mem.wanted);
	check(u.mem.wanted == 64 * MIB);
	fake_send(fd, NVSHARE_MSG_MEM_REFUSED, &(struct nvshare_mem_refused){.wanted = 64 * MIB});
	check(user_finish(&user) == CUDA_ERROR_OUT_OF_MEMORY);
}

/* It asks for more than it lacks, unless others had to stop for that. */
static void what_is_waited_for_is_what_is_missing(void)
{
	struct nvshare_wait_for_mem wait = {.why = NVSHARE_WAIT_SWAP};
	struct nvshare_mem_update u;
	struct user user = {0};
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_available(fd, 102 * MIB, 4);
	wait_until(budget_get(0) == 102 * MIB);
	user_start(&user, rig_take_a_little);
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update;
	while (!u.mem.wanted);
	check(u.mem.wanted == 62 * MIB);
	fake_send(fd, NVSHARE_MSG_WAIT_FOR_MEM, &wait);
	fake_send(fd, NVSHARE_MSG_HEARTBEAT, &(struct nvshare_heartbeat){0});
	(void)fake_expect(fd, NVSHARE_MSG_HEARTBEAT);
	wait.why = NVSHARE_WAIT_MEMORY;
	fake_send(fd, NVSHARE_MSG_WAIT_FOR_MEM, &wait);
	do /* a report of before may still be on its way */
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update;
	while (u.mem.wanted == 62 * MIB);
	check(u.mem.wanted == 6 * MIB);
	fake_available(fd, 108 * MIB, 6);
	check(user_finish(&user) == CUDA_SUCCESS);
}

static void a_refusal_of_more_than_it_lacks_now_is_an_old_one(void)
{
	struct user user = {0};
	struct nvshare_mem_update u;
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_available(fd, 110 * MIB, 4);
	wait_until(budget_get(0) == 110 * MIB);
	user_start(&user, rig_take_memory);
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update;
	while (!u.mem.wanted);
	fake_send(fd, NVSHARE_MSG_MEM_REFUSED,
		  &(struct nvshare_mem_refused){.wanted = 54 * MIB + 1});
	u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update;
	check(u.mem.wanted == 54 * MIB);
	check(!user_is_done(&user));
	fake_available(fd, 164 * MIB, 6);
	check(user_finish(&user) == CUDA_SUCCESS);
}

/* A process that waits for memory can be switched out meanwhile. */
static void is_stopped_inside_an_allocation(void)
{
	struct user user = {0};
	struct nvshare_mem_update u;
	struct nvshare_lock_released r;
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_available(fd, 100 * MIB, 4);
	wait_until(budget_get(0) == 100 * MIB);
	user_start(&user, rig_take_memory);
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update;
	while (!u.mem.wanted);
	fake_drop(fd, 1, 100 * MIB, 6);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.wants == 1);
	check(r.mem.wanted >= 64 * MIB && r.mem.swapped == 100 * MIB);
	fake_available(fd, 164 * MIB, 7);
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update;
	while (u.mem.swapped);
	check(!user_is_done(&user)); /* room alone is not the turn */
	fake_grant(fd, 2, 164 * MIB, 8);
	check(user_finish(&user) == CUDA_SUCCESS);
}

static void reports_are_coalesced(void)
{
	uint64_t begin_ns, elapsed_ms;
	struct msg msg;
	int fd, n = 0;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	begin_ns = clock_now_ns();
	for (int i = 0; i < 20000; i++) {
		budget_force(0, 1, NVSHARE_PINNED_ARRAY);
		budget_give(0, 1, NVSHARE_PINNED_ARRAY);
		if (i % 1000 == 0)
			rig_nap();
	}
	budget_force(0, 77, NVSHARE_PINNED_ARRAY);
	do {
		msg = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE);
		n++;
	} while (msg.body.mem_update.mem.pinned[NVSHARE_PINNED_ARRAY] != 77);
	elapsed_ms = (clock_now_ns() - begin_ns) / CLOCK_NS_PER_MS;
	check((uint64_t)n <= elapsed_ms / 10 + 2);
}

static void unused_budget_goes_back_when_somebody_waits(void)
{
	struct nvshare_mem_update u;
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_available(fd, 900 * MIB, 4);
	wait_until(budget_get(0) == 900 * MIB);
	fake_send(fd, NVSHARE_MSG_PREPARE_SWAP_OUT,
		  &(struct nvshare_prepare_swap_out){.bytes = 10 * MIB, .due_ms = 100000});
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update;
	while (u.epoch != 4 || u.budget == 900 * MIB);
	check(u.budget == 356 * MIB);
	check(budget_get(0) == 356 * MIB);
	check(fake_get(n_prepares) == 1 && fake_get(n_urgent) == 0);
}

static void an_idle_process_gives_the_gpu_up(void)
{
	struct nvshare_lock_released r;
	int fd;

	check(setenv("NVSHARE_IDLE_MS", "1", 1) == 0);
	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_set(is_working, 1);
	fake_send(fd, NVSHARE_MSG_PREPARE_SWAP_OUT,
		  &(struct nvshare_prepare_swap_out){.due_ms = 100000});
	wait_until(fake_get(n_records) > 0);
	wait_until(gate_get() == GATE_OPEN); /* a kernel runs: not idle */
	fake_set(is_working, 0);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.grant == 1 && r.outcome == NVSHARE_OUTCOME_SUCCESS && r.budget == 100 * MIB);
	check(gate_get() == GATE_CLOSED);
}

static void a_process_that_waits_for_memory_is_not_idle(void)
{
	struct user user = {0};
	int fd;

	check(setenv("NVSHARE_IDLE_MS", "1", 1) == 0);
	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_available(fd, 110 * MIB, 4);
	wait_until(budget_get(0) == 110 * MIB);
	user_start(&user, rig_take_memory);
	wait_until(budget_wanting(0));
	fake_send(fd, NVSHARE_MSG_PREPARE_SWAP_OUT,
		  &(struct nvshare_prepare_swap_out){.bytes = 10 * MIB, .due_ms = 100000});
	wait_until(fake_get(n_prepares) > 0);
	clock_nap(10 * CLOCK_NS_PER_SEC);
	check(gate_get() == GATE_OPEN && !user_is_done(&user));
	fake_available(fd, 164 * MIB, 6);
	check(user_finish(&user) == CUDA_SUCCESS);
	wait_until(gate_get() == GATE_CLOSED);
}

static void answers_heartbeats(void)
{
	struct nvshare_heartbeat beat = {.nonce = 4711};
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin(NULL);
	fake_send(fd, NVSHARE_MSG_HEARTBEAT, &beat);
	check(fake_expect(fd, NVSHARE_MSG_HEARTBEAT).body.heartbeat.nonce == 4711);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		child_test(registers),
		child_test(runs_when_granted),
		child_test(stops_when_told),
		child_test(says_that_it_wants_on),
		child_test(comes_back),
		child_test(tells_how_far_it_has_moved_out),
		child_test(tells_on_when_the_scheduler_has_not_read_for_a_while),
		child_test(stays_stopped_when_a_part_was_told_as_gone),
		child_test(memory_moves_when_the_last_context_is_gone),
		child_test(memory_stays_where_no_context_can_be_had),
		child_test(frees_memory_while_stopped),
		child_test(unused_budget_goes_before_memory),
		child_test(an_allocation_waits_for_room),
		child_test(what_is_waited_for_is_what_is_missing),
		child_test(a_refusal_of_more_than_it_lacks_now_is_an_old_one),
		child_test(is_stopped_inside_an_allocation),
		child_test(reports_are_coalesced),
		child_test(unused_budget_goes_back_when_somebody_waits),
		child_test(an_idle_process_gives_the_gpu_up),
		child_test(a_process_that_waits_for_memory_is_not_idle),
		child_test(answers_heartbeats),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
