/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_CHANNELS_H
#define NVS_HOOK_CHANNELS_H

/*
 * The book of channels that the driver's library has made for this process, with their groups,
 * devices and clients. rm_watch.c writes it.
 *
 * A client (of the resource manager) is bound to the open file that it was made on, and its
 * controls must go there. A channel lies in a group, or alone; a group lies on a device; a device
 * belongs to a client. An object that ends takes along the objects below it.
 *
 * Nothing is lost silently: once an object cannot be recorded, channels_why_lost() says so for
 * good.
 *
 * Threading: any thread. A short lock, which no thread keeps over a driver call.
 */

#include "abi/cuda_abi.h"
#include "abi/rm_abi.h"

#include <stdbool.h>
#include <stdint.h>

/* An object as the driver has made it. */
struct channels_new {
	int fd;
	uint32_t client, parent, handle, class;
	uint32_t engine; /* of a group */
	uint32_t gpu;    /* of a device: deviceId */
};

/* The file that a control goes to, and its object. */
struct channels_target {
	int fd;
	uint32_t client;
	uint32_t object;
};

/* Channels for one control: of one client on one GPU. */
struct channels_batch {
	struct channels_target subdevice;
	uint32_t n;
	uint32_t clients[RM_ABI_DISABLE_MAX];
	uint32_t channels[RM_ABI_DISABLE_MAX];
};

/* A channel without a group may do anything, so it counts as computing. */
enum channels_scope { CHANNELS_ALL, CHANNELS_COMPUTE, CHANNELS_REST };

/* All zero but the scope at first. Objects may come and go between two steps. */
struct channels_cursor {
	enum channels_scope scope;
	uint64_t subdevice;
	uint64_t channel;
};

struct channels_counts {
	uint32_t n_groups;
	uint32_t n_channels;   /* of the program */
	uint32_t n_compute;    /* of the program, in a compute group */
	uint32_t n_own;        /* of the library */
	uint32_t n_subdevices; /* controls of channels go to these */
	uint32_t n_going;      /* frees under way: their objects may be gone already */
	uint32_t n_orphans;    /* of the program, on no known subdevice */
	uint64_t generation;   /* grows whenever an object comes or goes */
};

/* Objects that the calling thread makes in between are the library's own. Nests. */
void channels_own_begin(void);
void channels_own_end(void);

/* The calling thread makes a context on dev, so a new group tells the driver's number of dev. */
void channels_device_begin(CUdevice dev);
void channels_device_end(void);

/*
 * ret_channel: the batch that switches the new channel, if it is one of the program's; else its n
 * is 0. Its descriptor is -1 where the channel was not recorded or lies on no known subdevice.
 */
void channels_add(const struct channels_new *made, struct channels_batch *ret_channel);

/*
 * Around the call that frees an object. end removes the object that begin found, even if a new one
 * has its handle by then. begin returns 0: the object is not in the book.
 */
uint64_t channels_free_begin(uint32_t client, uint32_t handle);
void channels_free_end(uint64_t serial, bool is_gone);
bool channels_has(uint32_t client, uint32_t handle);

/* The program's channels in the cursor's scope, in batches. false: there are no more. */
bool channels_next(struct channels_cursor *cursor, struct channels_batch *ret_batch);

/* The program's groups on a GPU of the driver's; *cursor is 0 at first. */
bool channels_next_group(uint32_t gpu, uint64_t *cursor, struct channels_target *ret_group);
/* false: it is no group of the program's. */
bool channels_group_gpu(uint32_t client, uint32_t handle, uint32_t *ret_gpu);
/* The driver's own timeslice of a group, before ours; 0: not known. */
uint64_t channels_timeslice(uint32_t client, uint32_t handle);
void channels_keep_timeslice(uint32_t client, uint32_t handle, uint64_t us);
bool channels_any_subdevice(struct channels_target *ret_subdevice);
bool channels_gpu_of(CUdevice dev, uint32_t *ret_gpu);

void channels_count(struct channels_counts *ret);

/* Why the book is not complete; NULL: it is. */
const char *channels_why_lost(void);
void channels_lose(const char *why); /* keeps the pointer; the first one counts */

void channels_after_fork_child(void);

#endif
