/* SPDX-License-Identifier: Apache-2.0 */

/* The agent and descriptors: those that it waits for, and those that it does not. */

#include "hook/table/cuda_real.h"
#include "ipc/pass.h"
#include "lib/agent_rig.h"

#include <errno.h>

#define NOBODY 65534

static CUresult attribute(int *value, CUdevice_attribute which, CUdevice dev)
{
	(void)dev;
	*value = which == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
	return CUDA_SUCCESS;
}

static CUresult export(void *shareable, CUmemGenericAllocationHandle handle,
		       CUmemAllocationHandleType type, unsigned long long flags)
{
	(void)shareable;
	(void)handle;
	(void)type;
	(void)flags;
	return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult import(CUmemGenericAllocationHandle *handle, void *shareable,
		       CUmemAllocationHandleType type)
{
	(void)handle;
	(void)shareable;
	(void)type;
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* A driver that could. */
static void enable(void)
{
	cuda_real.cuDeviceGetAttribute = attribute;
	cuda_real.cuMemExportToShareableHandle = export;
	cuda_real.cuMemImportFromShareableHandle = import;
	fake_listen(rig_dir);
}

static void pass_message(int fd, enum nvshare_msg_type type, const void *body, int passed)
{
	struct msg msg;
	size_t size = msg_encode((uint16_t)type, 0, body, &msg);

	check(pass_send(fd, &msg, size, passed) == 0);
	check(close(passed) == 0);
}

/* The agent has closed the other one of a pair. */
static void expect_closed(int end)
{
	struct pollfd p = {.fd = end};

	check(clock_poll(&p, 1, clock_now_ns() + FAKE_WAIT_MS * CLOCK_NS_PER_MS) == 1);
	check(p.revents & (POLLHUP | POLLERR));
	check(close(end) == 0);
}

static bool is_closed(int end)
{
	struct pollfd p = {.fd = end};

	return poll(&p, 1, 0) == 1;
}

static void make_pair(int ret_ends[2])
{
	check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret_ends) == 0);
}

/* By the time of the answer all that was sent before has been taken. */
static void expect_answer(int fd)
{
	static uint64_t nonce;

	fake_send(fd, NVSHARE_MSG_HEARTBEAT, &(struct nvshare_heartbeat){++nonce});
	check(fake_expect(fd, NVSHARE_MSG_HEARTBEAT).body.heartbeat.nonce == nonce);
}

static void a_source_is_kept_until_it_ends(void)
{
	struct nvshare_register r;
	int fd, ends[2];

	enable();
	fd = rig_begin(&r);
	check(r.flags == NVSHARE_REGISTER_HANDOVER);
	make_pair(ends);
	pass_message(fd, NVSHARE_MSG_HANDOVER, NULL, ends[1]);
	expect_answer(fd);
	check(!is_closed(ends[0]));
	check(send(ends[0], "x", 1, 0) == 1); /* none of ours */
	expect_closed(ends[0]);
	make_pair(ends);
	pass_message(fd, NVSHARE_MSG_HANDOVER, NULL, ends[1]);
	expect_answer(fd);
	check(!is_closed(ends[0]));
	check(close(fd) == 0); /* with the scheduler goes all that it introduced */
	expect_closed(ends[0]);
}

static void a_sink_is_for_one_eviction(void)
{
	struct nvshare_drop_lock drop = {
		.grant = 1, .bytes = 60 * MIB, .epoch = 4, .hand_bytes = 60 * MIB};
	int fd, ends[2];

	enable();
	fd = rig_begin_running();
	make_pair(ends);
	pass_message(fd, NVSHARE_MSG_DROP_LOCK, &drop, ends[1]);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	expect_closed(ends[0]);
}

/* The order has crossed a LOCK_RELEASED: it is of a grant that is over. */
static void an_order_that_leads_to_nothing_leaves_no_sink(void)
{
	const struct nvshare_drop_lock drop = {
		.grant = 7, .bytes = 60 * MIB, .epoch = 4, .hand_bytes = 60 * MIB};
	int fd, ends[2];

	enable();
	fd = rig_begin_running();
	make_pair(ends);
	pass_message(fd, NVSHARE_MSG_DROP_LOCK, &drop, ends[1]);
	expect_closed(ends[0]);
	expect_answer(fd);
}

static void one_that_nobody_waits_for_is_closed(void)
{
	const struct nvshare_drop_lock drop = {.grant = 1, .bytes = 60 * MIB, .epoch = 4};
	int fd, ends[2];

	enable();
	fd = rig_begin_running();
	make_pair(ends);
	pass_message(fd, NVSHARE_MSG_PING, NULL, ends[1]);
	expect_closed(ends[0]);
	make_pair(ends);
	pass_message(fd, NVSHARE_MSG_DROP_LOCK, &drop, ends[1]);
	expect_closed(ends[0]);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	expect_answer(fd);
	/* A message that is none, with which the connection ends, too. */
	make_pair(ends);
	check(pass_send(fd, "x", 1, ends[1]) == 0);
	check(close(ends[1]) == 0);
	expect_closed(ends[0]);
}

/* Nobody could open it: a program goes on without. */
static void a_message_that_has_lost_its_descriptor_is_no_harm(void)
{
	const struct nvshare_drop_lock drop = {
		.grant = 1, .bytes = 60 * MIB, .epoch = 4, .hand_bytes = 60 * MIB};
	int fd;

	enable();
	fd = rig_begin_running();
	fake_send(fd, NVSHARE_MSG_HANDOVER, NULL);
	fake_send(fd, NVSHARE_MSG_DROP_LOCK, &drop);
	check(fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released.outcome ==
	      NVSHARE_OUTCOME_SUCCESS);
}

/* A scheduler of neither root's nor this user's. New kernels refuse what it passes. */
static void another_user_s_scheduler_is_taken_nothing_from(void)
{
	struct nvshare_register r;
	int fd, ends[2], r_pass;
	struct msg msg;
	size_t size = msg_encode(NVSHARE_MSG_HANDOVER, 0, NULL, &msg);

	if (geteuid() != 0)
		return;
	enable();
	check(seteuid(NOBODY) == 0);
	check(listen(fake_listener, 16) == 0); /* whoever listens is known to whom connects */
	check(seteuid(0) == 0);
	fd = rig_begin(&r);
	check(r.flags == 0);
	make_pair(ends);
	r_pass = pass_send(fd, &msg, size, ends[1]);
	check(r_pass == 0 || r_pass == -EPERM);
	check(close(ends[1]) == 0);
	expect_closed(ends[0]);
	expect_answer(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		child_test(a_source_is_kept_until_it_ends),
		child_test(a_sink_is_for_one_eviction),
		child_test(an_order_that_leads_to_nothing_leaves_no_sink),
		child_test(one_that_nobody_waits_for_is_closed),
		child_test(a_message_that_has_lost_its_descriptor_is_no_harm),
		child_test(another_user_s_scheduler_is_taken_nothing_from),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
