/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SHARE_HOOK_RIG_H
#define NVS_TESTS_SHARE_HOOK_RIG_H

/* A program with a share of the GPU's time, as its scheduler and its threads see it. */

#define NVSHARE_IS_LIBRARY /* not weak: they are linked in */
#include "hook/share/share.h"

#include "agent_rig.h"
#include "hook/base/hook_options.h"

#define HOUR_US 3600000000ull

static uint64_t last_seq;

/* What it is told to take, and its answer. */
static inline struct nvshare_share_set share_out_use(int fd, uint64_t slice_us, uint64_t hold_us,
						     const struct nvshare_claim *claim,
						     uint64_t use_ppm)
{
	struct nvshare_set_share body = {
		.seq = ++last_seq,
		.slice_us = slice_us,
		.hold_us = hold_us,
		.use_ppm = use_ppm,
	};
	struct msg msg;

	body.claim = claim ? *claim : hook_options()->claim;
	fake_send(fd, NVSHARE_MSG_SET_SHARE, &body);
	do
		msg = fake_expect(fd, NVSHARE_MSG_SHARE_SET);
	while (msg.body.share_set.seq != last_seq);
	return msg.body.share_set;
}

static inline struct nvshare_share_set share_out(int fd, uint64_t slice_us, uint64_t hold_us,
						 const struct nvshare_claim *claim)
{
	return share_out_use(fd, slice_us, hold_us, claim, 1000000);
}

static inline struct nvshare_activity expect_activity(int fd, enum nvshare_activity_kind kind)
{
	struct nvshare_activity a;

	do
		a = fake_expect(fd, NVSHARE_MSG_ACTIVITY).body.activity;
	while (a.kind != kind);
	return a;
}

/* It runs, and can be frozen. */
static inline int begin_holdable(void)
{
	fake_listen(dir);
	fake_set(can_freeze, 1);
	fake_set(is_proven, 1);
	return begin_running();
}

static const struct nvshare_claim critical __attribute__((unused)) = {
	.priority = NVSHARE_PRIORITY_CRITICAL, .weight = 100, .slo_us = 1};

static inline void submit(void)
{
	gate_enter();
	gate_leave();
}

/* There is one as soon as the agent has looked at the GPU for the first time. */
static inline struct nvshare_status own_status(void)
{
	struct nvshare_status status;

	wait_until(nvshare_status(-1, &status, sizeof(status)) == 0);
	return status;
}

#endif
