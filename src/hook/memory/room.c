/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/memory/room.h"

#include "hook/memory/charge.h"
#include "nvshare/protocol.h"

/* What the driver lacks is its secret. Its steps are of 2 to 32 MiB; this is a few of them. */
#define ROOM_BYTES (64ull << 20)

bool room_again(struct room *room, CUresult res)
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

/* What the driver took is not counted: the card's own numbers show it. */
void room_end(const struct room *room)
{
	if (room->is_taken)
		budget_give(room->dev, ROOM_BYTES, NVSHARE_PINNED_MODULE);
}
