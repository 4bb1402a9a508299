/* SPDX-License-Identifier: Apache-2.0 */

#include "share_hook_rig.h"

const struct nvshare_claim rig_critical = {
	.priority = NVSHARE_PRIORITY_CRITICAL, .weight = 100, .slo_us = 1};

static uint64_t last_seq;

struct nvshare_share_set share_out_use(int fd, uint64_t slice_us, uint64_t hold_us,
				       const struct nvshare_claim *claim, uint64_t use_ppm)
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

struct nvshare_share_set share_out(int fd, uint64_t slice_us, uint64_t hold_us,
				   const struct nvshare_claim *claim)
{
	return share_out_use(fd, slice_us, hold_us, claim, 1000000);
}

struct nvshare_activity rig_expect_activity(int fd, enum nvshare_activity_kind kind)
{
	struct nvshare_activity a;

	do
		a = fake_expect(fd, NVSHARE_MSG_ACTIVITY).body.activity;
	while (a.kind != kind);
	return a;
}

int rig_begin_holdable(void)
{
	fake_listen(rig_dir);
	fake_set(can_freeze, 1);
	fake_set(is_proven, 1);
	return rig_begin_running();
}

void rig_submit(void)
{
	gate_enter();
	gate_leave();
}

struct nvshare_status rig_own_status(void)
{
	struct nvshare_status status;

	wait_until(nvshare_status(-1, &status, sizeof(status)) == 0);
	return status;
}
