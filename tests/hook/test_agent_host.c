/* SPDX-License-Identifier: Apache-2.0 */

/* The agent where host memory is short: what it gives back to others, and what it asks for. */

#include "hook/host/hostmem.h"
#include "lib/agent_rig.h"

static void set_host(uint64_t bytes, uint64_t used)
{
	fake_set(host, bytes);
	fake_set(host_used, used);
	bell_memory_changed(0);
}

static void tell_host(int fd, uint64_t others, uint64_t wanted)
{
	struct nvshare_host_memory body = {.others = others, .wanted = wanted};

	fake_send(fd, NVSHARE_MSG_HOST_MEMORY, &body);
}

static void expect_host(int fd, uint64_t bytes)
{
	while (fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update.mem.host != bytes)
		;
}

/* Messages are answered in order: when this one is, all before it have been heard. */
static void sync_with(int fd)
{
	struct nvshare_heartbeat beat = {.nonce = 7};

	fake_send(fd, NVSHARE_MSG_HEARTBEAT, &beat);
	(void)fake_expect(fd, NVSHARE_MSG_HEARTBEAT);
}

/* In a context of the program's the agent might wait for its work. */
static void gives_back_nothing_of_one_that_runs_without_a_second_context(void)
{
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	set_host(96 * MIB, 0);
	expect_host(fd, 96 * MIB);
	tell_host(fd, 0, 40 * MIB);
	sync_with(fd);
	check(fake_get(n_gives) == 0);
	fake_drop(fd, 1, 0, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	expect_host(fd, 48 * MIB);
}

/* 96 MiB of it, none in use, and a second context to give it back in. */
static int begin_with_host(void)
{
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_set(has_second, 1);
	set_host(96 * MIB, 0);
	expect_host(fd, 96 * MIB);
	return fd;
}

static void gives_back_what_others_lack_and_no_more(void)
{
	int fd = begin_with_host();

	tell_host(fd, 0, 40 * MIB);
	expect_host(fd, 48 * MIB); /* by 16 at a time */
	check(fake_get(n_gives) == 3);
	tell_host(fd, 50 * MIB, 40 * MIB); /* the same lack: others have more, and not yet enough */
	sync_with(fd);
	for (int i = 0; i < 20; i++)
		rig_nap();
	check(fake_get(n_gives) == 3);
	tell_host(fd, 0, 1);
	expect_host(fd, 32 * MIB);
	tell_host(fd, 0, 1ull << 40);
	expect_host(fd, 0);
}

static void gives_back_later_what_is_in_use_now(void)
{
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_set(has_second, 1);
	set_host(96 * MIB, 96 * MIB);
	expect_host(fd, 96 * MIB);
	tell_host(fd, 0, 40 * MIB);
	sync_with(fd);
	check(fake_get(host) == 96 * MIB);
	set_host(96 * MIB, 64 * MIB);
	expect_host(fd, 64 * MIB);
	tell_host(fd, 0, 0);
	sync_with(fd);
	set_host(64 * MIB, 0);
	sync_with(fd);
	check(fake_get(host) == 64 * MIB); /* nobody lacks any more */
}

static void takes_nothing_ahead_while_others_lack(void)
{
	struct nvshare_prepare_swap_out prepare = {.bytes = 10 * MIB, .due_ms = 1000};
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	tell_host(fd, 0, MIB);
	fake_send(fd, NVSHARE_MSG_PREPARE_SWAP_OUT, &prepare);
	sync_with(fd);
	check(fake_get(n_prepares) == 0);
	tell_host(fd, 0, 0);
	fake_send(fd, NVSHARE_MSG_PREPARE_SWAP_OUT, &prepare);
	sync_with(fd);
	check(fake_get(n_prepares) == 1);
	tell_host(fd, 0, MIB);
	fake_drop(fd, 1, 60 * MIB, 4); /* what is ordered is */
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	check(fake_get(n_prepares) == 2);
}

/* Nobody waits: it is not looked whether it is idle, and the budget stays its own. */
static void what_is_foreseen_takes_host_memory_and_nothing_else(void)
{
	struct nvshare_prepare_swap_out foreseen = {.bytes = 1000 * MIB, .pager_context_max = MIB};
	struct nvshare_prepare_swap_out waits = {.bytes = 10 * MIB, .due_ms = 100000};
	int fd;

	check(setenv("NVSHARE_IDLE_MS", "1", 1) == 0);
	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_set(can_freeze, 1);
	fake_available(fd, 900 * MIB, 4);
	wait_until(budget_get(0) == 900 * MIB);
	fake_send(fd, NVSHARE_MSG_PREPARE_SWAP_OUT, &foreseen);
	sync_with(fd);
	check(fake_get(n_touches) == 1 && fake_get(touched) == 100 * MIB); /* what there is */
	fake_set(host, 64 * MIB);
	bell_ring();               /* a slab is there */
	expect_host(fd, 64 * MIB); /* others count with it */
	fake_set(n_slabs, 2);
	for (int i = 0; i < 50; i++) {
		bell_ring();
		rig_nap();
	}
	sync_with(fd);
	check(fake_get(n_slabs) == 2); /* in the program's context, while it runs */
	check(gate_get() == GATE_OPEN && budget_get(0) == 900 * MIB);
	check(fake_get(n_prepares) == 0 && fake_get(n_seconds) == 0 && fake_get(n_proofs) == 0);

	fake_send(fd, NVSHARE_MSG_PREPARE_SWAP_OUT, &waits);
	wait_until(fake_get(n_slabs) == 0); /* there is a second context for them now */
	check(fake_get(n_prepares) == 1 && fake_get(n_seconds) > 0 && fake_get(n_touches) == 1);
}

static void touches_no_more_when_it_is_called_off_or_others_lack(void)
{
	struct nvshare_prepare_swap_out foreseen = {.bytes = 10 * MIB}, off = {0};
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	tell_host(fd, 0, MIB);
	fake_send(fd, NVSHARE_MSG_PREPARE_SWAP_OUT, &foreseen);
	sync_with(fd);
	check(fake_get(n_touches) == 0);
	tell_host(fd, 0, 0);
	fake_send(fd, NVSHARE_MSG_PREPARE_SWAP_OUT, &foreseen);
	sync_with(fd);
	check(fake_get(n_touches) == 1 && fake_get(touched) == 10 * MIB);
	fake_send(fd, NVSHARE_MSG_PREPARE_SWAP_OUT, &off);
	sync_with(fd);
	check(fake_get(n_touches) == 2 && fake_get(touched) == 0);
}

static void what_is_only_touched_goes_to_those_who_lack_it(void)
{
	struct nvshare_prepare_swap_out foreseen = {.bytes = 100 * MIB};
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_send(fd, NVSHARE_MSG_PREPARE_SWAP_OUT, &foreseen);
	sync_with(fd);
	fake_set(n_slabs, 2);
	fake_set(host, 96 * MIB);
	bell_ring();
	expect_host(fd, 96 * MIB);
	tell_host(fd, 0, 60 * MIB);
	expect_host(fd, 64 * MIB); /* of one that runs in its own contexts: no more */
	check(fake_get(n_gives) == 0);
}

/* Else they lack less than what is not there, and ask for what they were given already. */
static void tells_of_less_than_it_told(void)
{
	int fd = begin_with_host();

	fake_set(host, 64 * MIB); /* what was being touched when it was given back */
	bell_ring();
	expect_host(fd, 64 * MIB);
	tell_host(fd, 0, 16 * MIB);
	expect_host(fd, 48 * MIB);
}

/* What is on the card of one that is idle goes first, and it is not at work in its contexts. */
static void an_idle_one_makes_host_memory_ready(void)
{
	struct nvshare_prepare_swap_out foreseen = {.bytes = 10 * MIB};
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_drop(fd, 1, 0, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	fake_send(fd, NVSHARE_MSG_PREPARE_SWAP_OUT, &foreseen);
	sync_with(fd);
	check(fake_get(n_touches) == 1 && fake_get(touched) == 10 * MIB);
	fake_set(n_slabs, 2);
	bell_ring();
	wait_until(fake_get(n_slabs) == 0);
}

static int begin_idle(void)
{
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_drop(fd, 1, 0, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	return fd;
}

/* Nobody else rings: it goes on by itself, with pauses. */
static void all_is_registered_without_a_further_word(void)
{
	struct nvshare_prepare_swap_out foreseen = {.bytes = 10 * MIB};
	int fd = begin_idle();
	uint64_t begin_ns;

	fake_set(register_ms, 20);
	fake_send(fd, NVSHARE_MSG_PREPARE_SWAP_OUT, &foreseen);
	sync_with(fd);
	fake_set(n_slabs, 8);
	begin_ns = clock_now_ns();
	bell_ring();
	wait_until(fake_get(n_slabs) == 0);
	check(clock_now_ns() - begin_ns >= (8 * 20 + 7 * 40) * CLOCK_NS_PER_MS);
}

/* Another program may have to be frozen just then, which would wait for the driver. */
static void what_a_stop_has_left_is_not_registered(void)
{
	struct user user = {0};

	fake_listen(rig_dir);
	(void)rig_begin_waiting(&user);
	fake_set(n_slabs, 3);
	for (int i = 0; i < 20; i++) {
		bell_ring();
		rig_nap();
	}
	check(fake_get(n_slabs) == 3);
}

/* The pager context of an idle one has gone, and with it the registration of what is out. */
static void memory_is_registered_again_with_pauses(void)
{
	uint64_t begin_ns;
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_set(can_freeze, 1);
	fake_set(has_second, 1);
	fake_set(n_loose, 8);
	fake_set(host, 60 * MIB);
	fake_set(register_ms, 20);
	fake_drop(fd, 1, 100 * MIB, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	wait_until(fake_get(n_loose) == 7);
	begin_ns = clock_now_ns();
	wait_until(fake_get(n_loose) == 0);
	check(clock_now_ns() - begin_ns >= 6 * 60 * CLOCK_NS_PER_MS);
}

static int is_given;

/* From within the eviction, until others have given enough back. */
static bool await_host(CUdevice dev, uint64_t bytes)
{
	if (hostmem_available(0) < 20 * MIB) {
		check(agent_await_host(dev, bytes, 20 * MIB));
		return true;
	}
	__atomic_store_n(&is_given, 1, __ATOMIC_SEQ_CST);
	return false;
}

/* A fifth of what it is asked for has gone, and it tells that more would, and what it lacks. */
static int begin_lacking(bool (*on_first)(CUdevice dev, uint64_t bytes))
{
	struct nvshare_mem_update u;
	int fd;

	check(setenv("NVSHARE_HOST_MEMORY_LIMIT", "100MiB", 1) == 0);
	fake_listen(rig_dir);
	fd = rig_begin_running();
	hostmem_set_others(100 * MIB);
	fake_set(evict_first, 12 * MIB); /* less than it would tell otherwise */
	fake_driver.on_first = on_first;
	fake_send(fd, NVSHARE_MSG_DROP_LOCK,
		  &(struct nvshare_drop_lock){
			  .grant = 1, .bytes = 60 * MIB, .epoch = 4, .host_others = 100 * MIB});
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update;
	while (!u.mem.host_wanted);
	check(u.mem.host_wanted == 20 * MIB && u.epoch == 4);
	check(u.mem.swapped == 12 * MIB && u.budget == 88 * MIB);
	return fd;
}

static void tells_what_it_lacks_and_hears_what_others_gave(void)
{
	struct nvshare_heartbeat beat = {.nonce = 4711};
	struct nvshare_lock_released r;
	int fd = begin_lacking(await_host);

	/* The one who lacks it is not taken for dead, whatever comes first. */
	fake_send(fd, NVSHARE_MSG_WAIT_FOR_MEM,
		  &(struct nvshare_wait_for_mem){.missing = MIB, .why = NVSHARE_WAIT_MEMORY});
	fake_send(fd, NVSHARE_MSG_HEARTBEAT, &beat);
	check(fake_expect(fd, NVSHARE_MSG_HEARTBEAT).body.heartbeat.nonce == 4711);
	check(!__atomic_load_n(&is_given, __ATOMIC_SEQ_CST));
	tell_host(fd, 90 * MIB, 0);
	sync_with(fd);
	check(!__atomic_load_n(&is_given, __ATOMIC_SEQ_CST));
	/* Somebody has changed its weight meanwhile. */
	fake_send(fd, NVSHARE_MSG_SET_SHARE,
		  &(struct nvshare_set_share){.seq = 1, .slice_us = 10000});
	tell_host(fd, 80 * MIB, 0);
	(void)fake_expect(fd, NVSHARE_MSG_SHARE_SET);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.moved == 60 * MIB);
	check(r.mem.host_wanted == 0);
}

/* What it was told, and what lets it end. */
static bool await_the_end(CUdevice dev, uint64_t bytes)
{
	if (agent_await_host(dev, bytes, 20 * MIB))
		return true;
	__atomic_store_n(&is_given, 1, __ATOMIC_SEQ_CST);
	return false;
}

static void awaits_nothing_from_a_scheduler_that_is_gone(void)
{
	int fd = begin_lacking(await_the_end);

	fake_gone(rig_dir);
	check(close(fd) == 0);
	wait_until(__atomic_load_n(&is_given, __ATOMIC_SEQ_CST));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		child_test(gives_back_nothing_of_one_that_runs_without_a_second_context),
		child_test(gives_back_what_others_lack_and_no_more),
		child_test(gives_back_later_what_is_in_use_now),
		child_test(takes_nothing_ahead_while_others_lack),
		child_test(what_is_foreseen_takes_host_memory_and_nothing_else),
		child_test(touches_no_more_when_it_is_called_off_or_others_lack),
		child_test(what_is_only_touched_goes_to_those_who_lack_it),
		child_test(tells_of_less_than_it_told),
		child_test(an_idle_one_makes_host_memory_ready),
		child_test(all_is_registered_without_a_further_word),
		child_test(what_a_stop_has_left_is_not_registered),
		child_test(memory_is_registered_again_with_pauses),
		child_test(tells_what_it_lacks_and_hears_what_others_gave),
		child_test(awaits_nothing_from_a_scheduler_that_is_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
