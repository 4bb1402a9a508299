/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_HOOK_GANG_RIG_H
#define NVS_TESTS_HOOK_GANG_RIG_H

/* A process on two GPUs, and the scheduler's ends of its connections. */

#include "lib/share_hook_rig.h"

/* Takes in a client, as a scheduler that knows gangs does. */
static inline struct nvshare_register admit(int *ret_fd)
{
	struct nvshare_registered body = {
		.client = 7, .context_bytes = 16 * MIB, .flags = NVSHARE_REGISTERED_GANG};
	struct msg msg;

	*ret_fd = fake_accept();
	msg = fake_expect(*ret_fd, NVSHARE_MSG_REGISTER);
	fake_send(*ret_fd, NVSHARE_MSG_REGISTERED, &body);
	return msg.body.registration;
}

static inline void expect_gang(int fd, const char *name, uint32_t size)
{
	struct nvshare_gang gang = fake_expect(fd, NVSHARE_MSG_GANG).body.gang;

	check(strcmp(gang.name, name) == 0 && gang.size == size);
}

/* The process's connections, by device. */
struct gpus {
	int fd[2];
};

/* The first GPU has a context, and the program computes there. */
static inline void begin_on_first(struct gpus *g)
{
	static struct user user = {.dev = 0};

	user_start(&user, rig_use_device);
	(void)admit(&g->fd[0]);
	check(user_finish(&user) == CUDA_SUCCESS);
	check(agent_add_context(CONTEXT, 0, 0));
	user_start(&user, rig_pass_gate);
	(void)fake_expect(g->fd[0], NVSHARE_MSG_REQ_LOCK);
	fake_grant(g->fd[0], 1, 200 * MIB, 2);
	(void)user_finish(&user);
	budget_force(0, 100 * MIB, BUDGET_PAGEABLE);
}

static inline void add_second(struct gpus *g)
{
	static struct user user = {.dev = 1};
	struct nvshare_register r;

	user_start(&user, rig_use_device);
	r = admit(&g->fd[1]);
	check(r.gpu_uuid[0] == 0x41 && r.flags == 0);
	check(user_finish(&user) == CUDA_SUCCESS);
}

/* Computes on both, with 100 MiB on each, and a budget of 200. Grants: 1 and 2. */
static inline void begin_on_both(struct gpus *g)
{
	static struct user user = {0};

	fake_listen(rig_dir);
	begin_on_first(g);
	add_second(g);
	expect_gang(g->fd[0], "", 0);
	expect_gang(g->fd[1], "", 0);
	check(agent_add_context(OTHER, 1, 0));
	wait_until(gate_get() == GATE_CLOSED);
	user_start(&user, rig_pass_gate);
	(void)fake_expect(g->fd[1], NVSHARE_MSG_REQ_LOCK);
	fake_grant(g->fd[1], 2, 200 * MIB, 2);
	(void)user_finish(&user);
	budget_force(1, 100 * MIB, BUDGET_PAGEABLE);
}

static inline uint64_t swapped_on(CUdevice dev)
{
	struct nvshare_mem mem;

	budget_read(dev, &mem);
	return mem.swapped;
}

static inline struct nvshare_lock_released expect_released(int fd)
{
	return fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
}

#endif
