/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/memory/oom_retry.h"

#include "hook/memory/charge.h"
#include "nvshare/protocol.h"

/*
 * The driver does not tell how much it lacks. It grows in steps of 2 to 32 MiB; this is a few of
 * them.
 */
#define ROOM_BYTES (64ull << 20)

bool oom_retry_again(struct oom_retry *room, CUresult res)
{
	CUcontext ctx;

	if (res != CUDA_ERROR_OUT_OF_MEMORY)
		return false;
	if (!room->is_taken) {
		if (charge_here(&ctx, &room->dev) != CUDA_SUCCESS)
			return false;
		budget_force(room->dev, ROOM_BYTES, NVSHARE_PINNED_MODULE);
		room->is_taken = true;
	}
	return budget_retry(room->dev, ROOM_BYTES, NVSHARE_PINNED_MODULE, &room->tries) ==
	       CUDA_SUCCESS;
}

/* Bytes that the driver took are not counted. They show in the card's own numbers. */
void oom_retry_end(const struct oom_retry *room)
{
	if (room->is_taken)
		budget_give(room->dev, ROOM_BYTES, NVSHARE_PINNED_MODULE);
}
