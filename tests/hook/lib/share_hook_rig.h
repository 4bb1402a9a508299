/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SHARE_HOOK_RIG_H
#define NVS_TESTS_SHARE_HOOK_RIG_H

/* A program with a share of the GPU's time, as its scheduler and its threads see it. */

#define NVSHARE_IS_LIBRARY /* not weak: they are linked in */
#include "hook/share/share.h"

#include "agent_rig.h"
#include "hook/base/hook_options.h"
#include "hook/freeze/freeze.h"

#define HOUR_US 3600000000ull

/* What it is told to take, and its answer. */
struct nvshare_share_set share_out_use(int fd, uint64_t slice_us, uint64_t hold_us,
				       const struct nvshare_claim *claim, uint64_t use_ppm);
struct nvshare_share_set share_out(int fd, uint64_t slice_us, uint64_t hold_us,
				   const struct nvshare_claim *claim);
struct nvshare_activity rig_expect_activity(int fd, enum nvshare_activity_kind kind);

/* It runs, and can be frozen. */
int rig_begin_holdable(void);

extern const struct nvshare_claim rig_critical;

void rig_submit(void);

/* There is one as soon as the agent has looked at the GPU for the first time. */
struct nvshare_status rig_own_status(void);

#endif
