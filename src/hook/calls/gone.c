/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/calls/gone.h"

#include "hook/pager/pager.h"

bool gone_bytes(CUdeviceptr ptr, uint64_t size)
{
	return size && pager_is_gap(ptr, size);
}

bool gone_area(CUdeviceptr ptr, uint64_t pitch, uint64_t width, uint64_t height)
{
	return width && height && pager_is_gap(ptr, (height - 1) * pitch + width);
}

/* One side of a copy with two or three dimensions. Without a pitch it has no gaps. */
struct side {
	CUmemorytype type;
	CUdeviceptr device;
	uint64_t x, y, z;
	uint64_t pitch, rows;
};

static bool side_is_gone(struct side side, uint64_t width, uint64_t height, uint64_t depth)
{
	uint64_t pitch = side.pitch ? side.pitch : side.x + width;
	uint64_t rows = side.rows ? side.rows : side.y + height;

	if ((side.type != CU_MEMORYTYPE_DEVICE && side.type != CU_MEMORYTYPE_UNIFIED) || !width ||
	    !height || !depth)
		return false;
	return pager_is_gap(side.device + (side.z * rows + side.y) * pitch + side.x,
			    ((depth - 1) * rows + height - 1) * pitch + width);
}

#define RECT_SIDE(p, s) \
	((struct side){p->s##MemoryType, p->s##Device, p->s##XInBytes, p->s##Y, 0, p->s##Pitch, 0})
#define BOX_SIDE(p, s)                                                                   \
	((struct side){p->s##MemoryType, p->s##Device, p->s##XInBytes, p->s##Y, p->s##Z, \
		       p->s##Pitch, p->s##Height})
#define BOX_IS_GONE(p)                                                                   \
	((p) && (side_is_gone(BOX_SIDE(p, dst), p->WidthInBytes, p->Height, p->Depth) || \
		 side_is_gone(BOX_SIDE(p, src), p->WidthInBytes, p->Height, p->Depth)))

bool gone_rect(const CUDA_MEMCPY2D *copy)
{
	return copy && (side_is_gone(RECT_SIDE(copy, dst), copy->WidthInBytes, copy->Height, 1) ||
			side_is_gone(RECT_SIDE(copy, src), copy->WidthInBytes, copy->Height, 1));
}

bool gone_box(const CUDA_MEMCPY3D *copy)
{
	return BOX_IS_GONE(copy);
}

bool gone_box_peer(const CUDA_MEMCPY3D_PEER *copy)
{
	return BOX_IS_GONE(copy);
}

bool gone_fill(const CUDA_MEMSET_NODE_PARAMS *fill)
{
	return fill && gone_area(fill->dst, fill->pitch, (uint64_t)fill->width * fill->elementSize,
				 fill->height);
}

bool gone_batch(const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes, size_t count)
{
	if (!dsts || !srcs || !sizes)
		return false;
	for (size_t i = 0; i < count; i++) {
		if (gone_bytes(dsts[i], sizes[i]) || gone_bytes(srcs[i], sizes[i]))
			return true;
	}
	return false;
}

/* Rows are counted in elements of the array at the other side, if there is one. */
static bool operand_is_gone(const CUmemcpy3DOperand *operand, const CUmemcpy3DOperand *other,
			    const CUDA_MEMCPY3D_BATCH_OP *copy)
{
	struct side side = {.type = CU_MEMORYTYPE_DEVICE,
			    .device = operand->ptr,
			    .pitch = operand->rowLength,
			    .rows = operand->layerHeight};

	if (operand->type != CU_MEMCPY_OPERAND_TYPE_POINTER)
		return false;
	if (other->type != CU_MEMCPY_OPERAND_TYPE_POINTER)
		return pager_is_gap(operand->ptr, 1);
	return side_is_gone(side, copy->extent.width, copy->extent.height, copy->extent.depth);
}

bool gone_boxes(const CUDA_MEMCPY3D_BATCH_OP *copies, size_t count)
{
	for (size_t i = 0; copies && i < count; i++) {
		if (operand_is_gone(&copies[i].dst, &copies[i].src, &copies[i]) ||
		    operand_is_gone(&copies[i].src, &copies[i].dst, &copies[i]))
			return true;
	}
	return false;
}

bool gone_words(const CUstreamBatchMemOpParams *ops, unsigned int count)
{
	for (unsigned int i = 0; ops && i < count; i++) {
		switch (ops[i].operation) {
		case CU_STREAM_MEM_OP_WAIT_VALUE_32:
		case CU_STREAM_MEM_OP_WRITE_VALUE_32:
			if (pager_is_gap(ops[i].writeValue.address, sizeof(cuuint32_t)))
				return true;
			break;
		case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		case CU_STREAM_MEM_OP_WRITE_VALUE_64:
			if (pager_is_gap(ops[i].writeValue.address, sizeof(cuuint64_t)))
				return true;
			break;
		case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		case CU_STREAM_MEM_OP_BARRIER:
			break;
		}
	}
	return false;
}
