# SPDX-License-Identifier: Apache-2.0
"""A client that has memory on the card, taken without the library, and speaks the protocol itself.

Arguments: the socket, bytes that it has, bytes that it says it has; or the socket, bytes that it has and does not
tell, bytes that it wants back in, "full": when it may bring those in it takes the others, and finds no room; or the
socket, bytes that it has, bytes that it says its contexts cost, "contexts".
Prints "told" when it has said so, and ends with its standard input."""

import ctypes
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from scheduler_trace import NO_CARD_MEMORY  # noqa: E402
from wire import OK, Wire, mem  # noqa: E402


def take(size):
    cuda = ctypes.CDLL("libcuda.so.1")
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    assert cuda.cuInit(0) == 0
    assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0


def register(path, memory):
    tool = Wire(path)
    tool.send("GET_STATUS", b"")
    uuid, total = tool.expect("STATUS_GPU")[:2]
    tool.close()
    wire = Wire(path)
    wire.send("REGISTER", uuid, total, 0, *memory, 0, 1, 1, 100, 0, 0, b"liar", b"")
    assert wire.expect("REGISTERED")[0] == OK
    wire.send("REQ_LOCK", *memory)
    return wire


def tell_less(path, has, says):
    wire = register(path, mem(wanted=has))
    _, budget, epoch = wire.expect("LOCK_OK")
    take(has)
    wire.send("MEM_UPDATE", budget, epoch, 0, 0, *mem(resident=has))
    wire.send("MEM_UPDATE", budget, epoch, 0, 0, *mem(resident=says))
    return wire


def tell_contexts(path, has, costs):
    wire = register(path, mem(wanted=has))
    _, budget, epoch = wire.expect("LOCK_OK")
    take(has)
    wire.send("MEM_UPDATE", budget, epoch, 0, 0, *mem(resident=has, pinned=costs))
    return wire


def find_it_full(path, has, wants):
    wire = register(path, mem(swapped=wants))
    budget, epoch = wire.expect("MEM_AVAILABLE")[:2]
    take(has)
    wire.release(0, epoch, budget=budget, memory=mem(swapped=wants), outcome=NO_CARD_MEMORY)
    return wire


def main():
    path, has, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    ways = {"full": find_it_full, "contexts": tell_contexts}
    wire = (ways[sys.argv[4]] if sys.argv[4:] else tell_less)(path, has, size)
    print("told", flush=True)
    sys.stdin.read()
    wire.close()


if __name__ == "__main__":
    main()
