/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_TICKETS_H
#define NVS_HOOK_TICKETS_H

/*
 * CUDA IPC of the pager's memory: the owner's side (tickets.c) and the opener's (opened.c).
 *
 * The driver shares only plain memory, and the pager's is mapped. So its handle, as the program
 * passes it on, contains a ticket (ipc/ticket_packet.h) instead. The opener gets the chunks'
 * descriptors from the scheduler, and maps them at addresses of its own. The memory counts as the
 * owner's.
 *
 * It stays on the card, unless the owner and all openers are of one gang. Then openers unmap it
 * once they have stopped (park), the owner takes it back and evicts it, and after its restore
 * leaves new descriptors. Openers map those at the old addresses before they run. A process whose
 * opened memory is not mapped must not run, as one whose own memory is out.
 *
 * Threading: any thread. No call keeps a lock over a driver call or waits at the gate with one.
 */

#include "abi/cuda_abi.h"
#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The handle was made by tickets_make(), of whichever process. */
bool tickets_is_handle(const CUipcMemHandle *handle);

/*
 * A handle of the allocation that ptr lies in. Call it outside the gate. CUDA_ERROR_INVALID_VALUE:
 * the pager has no such allocation, or it is of a pool. CUDA_ERROR_NOT_SUPPORTED: no scheduler, or
 * it takes no more; one line says so.
 */
CUresult tickets_make(CUdeviceptr ptr, CUipcMemHandle *ret);

/* The program frees ptr: its ticket is over. Call it before the memory goes. */
void tickets_freed(CUdeviceptr ptr);
/* The context has ended, with its allocations, and with what was opened in it. */
void tickets_context_gone(CUcontext ctx);

/*
 * The agent's thread: a scheduler is there. One that has restarted gets all tickets again.
 * has_words: it sends TICKET_WORD.
 */
void tickets_renew(bool has_words);
/*
 * The agent's thread, at each turn. The same where the pair was lost, or where a ticket could not
 * be left. Returns when to call it again; UINT64_MAX: when the bell rings.
 */
uint64_t tickets_tick(uint64_t now_ns);

/* The agent's thread, at any time, also while memory moves: TICKET_WORD has come. */
void tickets_hear(const struct nvshare_ticket_word *word);

/*
 * The agent's thread, which evicts. Asks for the memory of all tickets in size bytes at addr.
 * HELD: ask again, others have it still.
 */
enum tickets_taken { TICKETS_TAKEN, TICKETS_HELD, TICKETS_STAY };
enum tickets_taken tickets_take(CUdeviceptr addr, size_t size);

/* They are not asked for again before the process has run. */
void tickets_keep(CUdeviceptr addr, size_t size);

/* The agent's thread, when it moves no memory: what is in again can be opened again. */
void tickets_return(void);

/* An opener waits for memory of ours that is out. */
bool tickets_are_wanted(void);

/* Others are at work, maybe on memory of ours that leaves the card with us. */
bool tickets_are_used(void);

/*
 * The agent's thread, while the process is halted, with nothing that could thaw it. Unmaps what
 * owners want for themselves.
 */
void opened_park(void);
/*
 * The agent's thread, in a context of dev that is not frozen: maps what was parked. false: not all
 * of it is there yet.
 */
bool opened_return(CUdevice dev);
/* Memory of dev is parked, or open at all. DEVICE_ANY: of any. */
bool opened_is_parked(CUdevice dev);
bool opened_is_there(CUdevice dev);

/*
 * Maps the memory of handle in the current context, or counts one more use of it there. Call it
 * outside the gate. Errors as the driver has them: CUDA_ERROR_INVALID_CONTEXT: the process's own
 * memory; CUDA_ERROR_INVALID_VALUE: it is gone, or another user's.
 */
CUresult opened_open(const CUipcMemHandle *handle, CUdeviceptr *ret_ptr);

/*
 * One use less; the last one waits for the context's work and unmaps the memory. false: ptr is no
 * address that opened_open() returned.
 */
bool opened_close(CUdeviceptr ptr, CUresult *ret_res);

/* The memory that ptr lies in, as its owner allocated it. */
struct opened_memory {
	CUdeviceptr base;
	size_t size; /* bytes */
	CUcontext ctx;
	CUdevice dev;
};

bool opened_find(CUdeviceptr ptr, struct opened_memory *ret);

/* cuCtxEnablePeerAccess() has opened memory of dev to another device: what is open there, too. */
void opened_peers_changed(CUdevice dev);

void tickets_after_fork_child(void);

/* ---- within the room ----------------------------------------------------------- */

/* Made by this process. */
bool tickets_is_own(const uint8_t *ticket);
/* The ticket in a handle. */
const uint8_t *tickets_of(const CUipcMemHandle *handle);

/* The scheduler sends words, and takes what belongs to them. */
bool tickets_have_words(void);

void opened_hear_park(const uint8_t *ticket);
void opened_context_gone(CUcontext ctx);
void opened_after_fork_child(void);

#endif
