/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_TRANSFER_H
#define NVS_HOOK_TRANSFER_H

/*
 * Physical memory that an evicted program hands over to the program that comes in, as a descriptor
 * in a packet. It is not freed on the way, because the driver would fill freed memory with zeros,
 * on the engine that copies to the card.
 *
 * The scheduler introduces two programs that could read each other's memory anyway. It makes a pair
 * of sockets without a name, and sends each program one end. The giver has a sink. The taker has a
 * source for each giver, and overwrites all memory that it takes.
 *
 * Nothing here has to work. Memory that cannot be sent, that nobody takes, or that lies here for a
 * second is freed.
 *
 * Threading: the agent's thread, but for transfer_can_export(), transfer_supported(),
 * transfer_close_kept(), transfer_copy_kept() and transfer_after_fork_child(). The agent has one
 * descriptor in hand at a time. A child that is forked meanwhile closes it like the others. Errors:
 * none but "no". Each function says which descriptors it takes.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The driver can export memory of dev. Makes a driver call. */
bool transfer_can_export(CUdevice dev);
/* The same, and NVSHARE_TRANSFER is on. */
bool transfer_supported(CUdevice dev);

#define TRANSFER_SOURCES_MAX 8 /* for each device; a new one takes the oldest one's place */

/* Takes fd, from which memory of dev may come until its other end is closed. */
void transfer_add_source(CUdevice dev, int fd);
/* Takes fd, where the next transfer_aim() sends memory of dev. Closes an earlier sink. */
void transfer_set_sink(CUdevice dev, int fd);
/* Closes sink and sources, and frees all memory that has come. */
void transfer_close(CUdevice dev);

/* The sources, for poll(): call transfer_receive() when one is readable. Returns how many. */
size_t transfer_fds(CUdevice dev, int ret_fds[TRANSFER_SOURCES_MAX]);
void transfer_receive(CUdevice dev);
/*
 * Frees memory that has lain here for a second, and all of it unless is_needed. Returns when to
 * call it again; UINT64_MAX: never.
 */
uint64_t transfer_tick(CUdevice dev, uint64_t now_ns, bool is_needed);

/*
 * Until the next call up to bytes of memory that dev gives up go into its sink. 0: none does, and
 * the sink is closed.
 */
void transfer_aim(CUdevice dev, uint64_t bytes);
bool transfer_is_aimed(CUdevice dev);
/* A descriptor of memory that is given up; it is in hand then. -1: free the memory instead. */
int transfer_export(CUdevice dev, CUmemGenericAllocationHandle handle);
/* Takes fd. false: it was not sent, and the memory is freed unless something else holds it. */
bool transfer_send(CUdevice dev, int fd, size_t size);

/*
 * A handle of memory of this size that has come, with another program's bytes in it. The driver
 * does not export imported memory, so its descriptor is kept, to hand it on. The descriptor holds
 * the memory as the handle does: call transfer_close_kept() when that is released.
 */
bool transfer_import(CUdevice dev, size_t size, CUmemGenericAllocationHandle *ret_handle,
		     unsigned int *ret_kept);

/* Takes fd. 0: too many are kept, and it is closed. */
unsigned int transfer_keep(int fd);
/* The kept descriptor, which is in hand then; -1: kept was 0. */
int transfer_take_kept(unsigned int kept);
void transfer_close_kept(unsigned int kept); /* any thread; 0: none */
/* A copy, which the caller owns; -1: none. For any thread that has made the kept memory's chunk
 * busy. */
int transfer_copy_kept(unsigned int kept);
/* Takes and closes the descriptor in hand; -1: none. */
void transfer_discard(int fd);

/* Frees all memory that has come. false: none had. */
bool transfer_drop(CUdevice dev);

/* Makes each driver call of a transfer once, on exportable memory of the caller's. */
void transfer_probe(CUmemGenericAllocationHandle handle);

void transfer_after_fork_child(void);

#endif
