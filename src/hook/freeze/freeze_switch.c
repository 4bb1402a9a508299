/* SPDX-License-Identifier: Apache-2.0 */

/* The driver's controls: channels off and on, timeslices. */

#include "hook/base/hook_log.h"
#include "hook/freeze/freeze_private.h"
#include "hook/freeze/ioctl_next.h"
#include "hook/gate/device.h"
#include "util/clock.h"

#include <errno.h>
#include <string.h>

enum {
	OFF_TRIES = 10, /* a channel may end between the look at the book and the control */
	ON_TRIES = 5,
	ON_TRIES_GOING = 1000,
	ON_PAUSE_NS = 1000000,
};

/* Indexed by the driver's number of the GPU, which is small. */
static struct {
	uint64_t us[DEVICE_COUNT_MAX]; /* atomic; 0: the driver's own */
} timeslices;

int freeze_switch(const struct channels_batch *batch, bool is_off)
{
	struct rm_abi_disable_channels params = {
		.bDisable = is_off,
		.numChannels = batch->n,
	};
	int r;

	memcpy(params.hClientList, batch->clients, batch->n * sizeof(batch->clients[0]));
	memcpy(params.hChannelList, batch->channels, batch->n * sizeof(batch->channels[0]));
	r = ioctl_control(batch->subdevice.fd, batch->subdevice.client, batch->subdevice.object,
			  RM_ABI_CMD_DISABLE_CHANNELS, &params, sizeof(params));
	if (r)
		hook_debug("freeze: %s %u channels: %s %d", is_off ? "taking off" : "putting back",
			   batch->n, r < 0 ? "error" : "status", r < 0 ? -r : r);
	return r;
}

static int channels_switch_off(enum channels_scope scope)
{
	struct channels_cursor cursor = {.scope = scope};
	struct channels_batch batch;
	uint32_t n = 0;
	int r = 0;

	while (r == 0 && channels_next(&cursor, &batch)) {
		r = freeze_switch(&batch, true);
		n += batch.n;
	}
	if (r)
		return FREEZE_E_REFUSED;
	return n ? 0 : FREEZE_E_NO_CHANNELS;
}

/*
 * A thread that frees a channel may be preempted after the driver has freed it and before the book
 * knows. A refusal in that time says nothing about the driver.
 */
int freeze_switch_off(enum channels_scope scope)
{
	struct channels_counts before, after;
	int r = FREEZE_E_REFUSED;

	for (unsigned int i = 0; i < OFF_TRIES && r == FREEZE_E_REFUSED; i++) {
		channels_count(&before);
		if (before.n_orphans)
			return FREEZE_E_REFUSED;
		r = channels_switch_off(scope);
		channels_count(&after);
		if (r == FREEZE_E_REFUSED && !before.n_going && !after.n_going &&
		    after.generation == before.generation)
			return FREEZE_E_REFUSED;
	}
	return r == FREEZE_E_REFUSED ? FREEZE_E_BUSY : r;
}

/* For the same reason a channel that cannot be put back in that time does not count as off. */
static bool channel_put_back(const struct channels_batch *one, bool is_again)
{
	struct channels_counts before;

	for (unsigned int try = 1;; try++) {
		channels_count(&before);
		if (freeze_switch(one, false) == 0 ||
		    !channels_has(one->clients[0], one->channels[0]))
			return true;
		if (is_again || try >= (before.n_going ? ON_TRIES_GOING : ON_TRIES))
			return false;
		clock_nap(ON_PAUSE_NS);
	}
}

/* One by one, because a channel that is gone would keep the others off. */
static bool batch_put_back(const struct channels_batch *batch, bool is_again)
{
	struct channels_batch one = {.subdevice = batch->subdevice, .n = 1};
	bool are_all = true;

	for (uint32_t i = 0; i < batch->n; i++) {
		one.clients[0] = batch->clients[i];
		one.channels[0] = batch->channels[i];
		are_all = channel_put_back(&one, is_again) && are_all;
	}
	return are_all;
}

int freeze_switch_on(enum channels_scope scope, bool is_again)
{
	struct channels_cursor cursor = {.scope = scope};
	struct channels_batch batch;
	bool are_all = true;

	while (channels_next(&cursor, &batch)) {
		if (freeze_switch(&batch, false) != 0)
			are_all = batch_put_back(&batch, is_again) && are_all;
	}
	return are_all ? 0 : FREEZE_E_REFUSED;
}

/* ---- timeslices ---------------------------------------------------------------- */

static int group_set_timeslice(const struct channels_target *group, uint64_t us)
{
	return ioctl_control(group->fd, group->client, group->object, RM_ABI_CMD_SET_TIMESLICE, &us,
			     sizeof(us));
}

/* Keeps the driver's own timeslice before the first of ours, which ends by setting it again. */
static void group_keep_timeslice(const struct channels_target *group)
{
	uint64_t us = 0;

	if (!channels_timeslice(group->client, group->object) &&
	    ioctl_control(group->fd, group->client, group->object, RM_ABI_CMD_GET_TIMESLICE, &us,
			  sizeof(us)) == 0)
		channels_keep_timeslice(group->client, group->object, us);
}

void freeze_on_group(int fd, uint32_t client, uint32_t group, uint64_t us)
{
	const struct channels_target target = {.fd = fd, .client = client, .object = group};
	uint64_t ours_us;
	uint32_t gpu;

	if (!channels_group_gpu(client, group, &gpu) || gpu >= DEVICE_COUNT_MAX)
		return;
	if (us)
		channels_keep_timeslice(client, group, us);
	ours_us = __atomic_load_n(&timeslices.us[gpu], __ATOMIC_RELAXED);
	if (!ours_us)
		return;
	group_keep_timeslice(&target);
	(void)group_set_timeslice(&target, ours_us);
}

int freeze_set_timeslice(CUdevice dev, uint64_t us)
{
	struct channels_target group;
	uint64_t cursor = 0, group_us;
	uint32_t gpu;
	int r = 0;

	if (!channels_gpu_of(dev, &gpu) || gpu >= DEVICE_COUNT_MAX)
		return -ENODEV;
	if (__atomic_exchange_n(&timeslices.us[gpu], us, __ATOMIC_RELAXED) == us)
		return 0; /* groups that come later get it, too */
	while (channels_next_group(gpu, &cursor, &group)) {
		group_keep_timeslice(&group);
		group_us = us ? us : channels_timeslice(group.client, group.object);
		if (group_us && group_set_timeslice(&group, group_us) != 0 &&
		    channels_has(group.client, group.object))
			r = FREEZE_E_REFUSED;
	}
	return r;
}

void freeze_switch_after_fork_child(void)
{
	memset(&timeslices, 0, sizeof(timeslices));
}
