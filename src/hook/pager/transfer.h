/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_TRANSFER_H
#define NVS_HOOK_TRANSFER_H

/*
 * Physical memory that goes from a program that is evicted to the one that comes in, as a
 * descriptor in a packet, so that it is not freed: the driver fills freed memory with zeros on
 * the engine that copies to the card. The scheduler introduces two programs that could read each
 * other's memory anyway: it makes a pair of sockets without a name, and sends each of the two
 * one end. The one that gives has a sink; the one that takes has a source for each that gives to
 * it, and overwrites all of the memory that it takes. Nothing here has to work: memory that does
 * not go out, is not taken, or lies here for a second is freed.
 *
 * Threading: the agent's thread, but for transfer_supported(), transfer_close_kept() and
 * transfer_after_fork_child(). It has one descriptor in hand at a time, which a child that is
 * forked meanwhile closes like the others.
 * Errors: none but "no"; descriptors belong to whom the function says.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NVSHARE_TRANSFER, and the driver can export memory of dev. Makes a driver call. */
bool transfer_supported(CUdevice dev);

#define TRANSFER_SOURCES_MAX 8 /* a device; the oldest makes place for a new one */

/* Takes fd, from which memory of dev may come until its other end is closed. */
void transfer_add_source(CUdevice dev, int fd);
/* Takes fd, into which the next transfer_aim() sends memory of dev, in place of an earlier one. */
void transfer_set_sink(CUdevice dev, int fd);
/* Sink and sources go, with all that has come. */
void transfer_close(CUdevice dev);

/* For poll(): when one is readable, transfer_receive(). The number of them. */
size_t transfer_fds(CUdevice dev, int ret_fds[TRANSFER_SOURCES_MAX]);
void transfer_receive(CUdevice dev);
/*
 * Frees memory that nobody has needed for a second, and all if nothing is out that could need it.
 * When it is to be called again; UINT64_MAX: never.
 */
uint64_t transfer_tick(CUdevice dev, uint64_t now_ns, bool is_needed);

/*
 * Until the next call up to bytes of the memory that dev gives up go into its sink. 0: none
 * does, and the sink is closed.
 */
void transfer_aim(CUdevice dev, uint64_t bytes);
bool transfer_is_aimed(CUdevice dev);
/* A descriptor of memory that is to be given up, in hand; -1: it is to be freed. */
int transfer_export(CUdevice dev, CUmemGenericAllocationHandle handle);
/* Takes fd. false: it did not go out, and if nothing else holds the memory, it is free. */
bool transfer_send(CUdevice dev, int fd, size_t size);

/*
 * A handle of memory of that size that has come, with another program's bytes in it.
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

/* Frees all that has come. false: nothing had. */
bool transfer_drop(CUdevice dev);

/* Makes each call that this takes of the driver once, on exportable memory of the caller's. */
void transfer_probe(CUmemGenericAllocationHandle handle);

void transfer_after_fork_child(void);

#endif
