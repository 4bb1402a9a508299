/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_TRANSFER_H
#define NVS_HOOK_TRANSFER_H

/*
 * Physical memory that goes from a program that is evicted to the one that comes in, as a
 * descriptor in a datagram, so that it is not freed: the driver fills freed memory with
 * zeros on the engine that copies to the card. Who takes memory over has a door, a socket
 * that the scheduler names only to those that could read its memory anyway, and overwrites
 * all of what it takes. Nothing here has to work: what does not go out, is not taken, or
 * lies there for a second is closed, which frees it.
 *
 * Threading: the agent's thread, but for transfer_supported(), transfer_close_kept() and
 * transfer_after_fork_child(). It has one descriptor in hand at a time, which a child that is
 * forked meanwhile closes like the others.
 * Errors: none but "no"; descriptors belong to whom the function says.
 */

#include "abi/cuda_abi.h"
#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NVSHARE_TRANSFER, and the driver can export memory of dev. Makes a driver call. */
bool transfer_supported(CUdevice dev);

/* A new door, in place of one that there was; all zero: none could be had. */
void transfer_open(CUdevice dev, struct nvshare_door *ret_door);
/* The door goes, with all that lies there. */
void transfer_close(CUdevice dev);

/* For poll(): readable, transfer_receive(). -1: nothing is to be waited for. */
int transfer_fd(CUdevice dev, uint64_t now_ns);
void transfer_receive(CUdevice dev);
/*
 * Frees what nobody has needed for a second, and all if nothing is out that could need it. When
 * it is to be called again; UINT64_MAX: never.
 */
uint64_t transfer_tick(CUdevice dev, uint64_t now_ns, bool is_needed);

/* Until the next call up to bytes of what dev gives up go to door; 0: nothing does. */
void transfer_aim(CUdevice dev, const struct nvshare_door *door, uint64_t bytes);
bool transfer_is_aimed(CUdevice dev);
/* A descriptor of memory that is to be given up, in hand; -1: it is to be freed. */
int transfer_export(CUdevice dev, CUmemGenericAllocationHandle handle);
/* Takes fd. false: it did not go out, and if nothing else holds the memory, it is free. */
bool transfer_send(CUdevice dev, int fd, size_t size);

/*
 * A handle of memory of that size that lay in the door, with another program's bytes in it.
 * The driver does not export what was imported, so its descriptor is kept, to hand it on.
 * It keeps the memory as the handle does: transfer_close_kept() when that is released.
 */
bool transfer_import(CUdevice dev, size_t size, CUmemGenericAllocationHandle *ret_handle,
		     unsigned int *ret_kept);

/* Takes fd. 0: too many are kept, it is closed. */
unsigned int transfer_keep(int fd);
/* The descriptor, in hand now; -1: kept was 0. */
int transfer_take_kept(unsigned int kept);
void transfer_close_kept(unsigned int kept); /* any thread; 0: none */
/* Takes and closes what was in hand; -1: nothing. */
void transfer_discard(int fd);

/* Frees all that lies there. false: there was nothing. */
bool transfer_drop(CUdevice dev);

/* Makes each call that this takes of the driver once, on exportable memory of the caller's. */
void transfer_probe(CUmemGenericAllocationHandle handle);

void transfer_after_fork_child(void);

#endif
