/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_CHANNELS_H
#define NVS_HOOK_CHANNELS_H

/*
 * The channels that the driver's library has made for this process, with the groups,
 * devices and clients that they belong to: only a book, kept by rm_watch.c.
 *
 * A client is bound to the open file that it was made on; controls must go by the same
 * one. A channel lies in a group (or alone), a group on a device, a device belongs to a
 * client; whoever goes takes along what is below it.
 *
 * Threading: any thread; one short lock, never held over a call of the driver. Nothing is
 * lost silently: what can not be recorded makes channels_why_lost() say so for ever.
 */

#include "abi/cuda_abi.h"
#include "abi/rm_abi.h"

#include <stdbool.h>
#include <stdint.h>

/* One object as the driver made it. */
struct channels_new {
	int fd;
	uint32_t client, parent, handle, class;
	uint32_t engine; /* of a group */
	uint32_t gpu;    /* of a device: deviceId */
};

/* Where a control on something goes, and on what. */
struct channels_target {
	int fd;
	uint32_t client;
	uint32_t object;
};

/* Channels that one control can take: of one client on one GPU. */
struct channels_batch {
	struct channels_target subdevice;
	uint32_t n;
	uint32_t clients[RM_ABI_DISABLE_MAX];
	uint32_t channels[RM_ABI_DISABLE_MAX];
};

/* A channel that lies in no group may do anything: it counts as computing. */
enum channels_scope { CHANNELS_ALL, CHANNELS_COMPUTE, CHANNELS_REST };

/* Zeroed, but for the scope: before the first. Objects that come and go in between do no harm. */
struct channels_cursor {
	enum channels_scope scope;
	uint64_t subdevice;
	uint64_t channel;
};

struct channels_counts {
	uint32_t n_groups;
	uint32_t n_channels;   /* of the program */
	uint32_t n_compute;    /* of those, in a compute group */
	uint32_t n_own;        /* of the library */
	uint32_t n_subdevices; /* through which they can be reached */
	uint32_t n_going;      /* frees under way: what they free may be gone already */
	uint32_t n_orphans;    /* of the program, on no known subdevice */
	uint64_t generation;   /* grows with everything that comes or goes */
};

/* What the calling thread makes in between is the library's own. Nests. */
void channels_own_begin(void);
void channels_own_end(void);

/* The calling thread makes a context on dev: tells which GPU of the driver's that is. */
void channels_device_begin(CUdevice dev);
void channels_device_end(void);

/*
 * ret_channel: the batch to switch it by when it is a channel of the program, else n is 0.
 * Its descriptor is -1 when there is no way to: it could not be recorded, or lies nowhere.
 */
void channels_add(const struct channels_new *made, struct channels_batch *ret_channel);
/*
 * Around the call that frees an object: end removes what begin found, and not one that was
 * made under the same handle meanwhile. 0: nothing of ours.
 */
uint64_t channels_free_begin(uint32_t client, uint32_t handle);
void channels_free_end(uint64_t serial, bool is_gone);
bool channels_has(uint32_t client, uint32_t handle);

/* The program's channels, those of the cursor's scope, in batches. false: that was the last. */
bool channels_next(struct channels_cursor *cursor, struct channels_batch *ret_batch);

/* The program's groups on a GPU of the driver's; *cursor is 0 at first. */
bool channels_next_group(uint32_t gpu, uint64_t *cursor, struct channels_target *ret_group);
bool channels_group_gpu(uint32_t client, uint32_t handle, uint32_t *ret_gpu); /* the program's */
/* The driver's own timeslice of a group, as it was before ours; 0: not known. */
uint64_t channels_timeslice(uint32_t client, uint32_t handle);
void channels_keep_timeslice(uint32_t client, uint32_t handle, uint64_t us);
bool channels_any_subdevice(struct channels_target *ret_subdevice);
bool channels_gpu_of(CUdevice dev, uint32_t *ret_gpu);

void channels_count(struct channels_counts *ret);

/* Something exists, or was done, that the book does not tell; NULL: it is complete. */
const char *channels_why_lost(void);
void channels_lose(const char *why); /* a string that stays; the first one counts */

void channels_after_fork_child(void);

#endif
