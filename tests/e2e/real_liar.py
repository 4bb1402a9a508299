# SPDX-License-Identifier: Apache-2.0
"""A client that has memory on the card, taken without the library, and speaks the protocol itself.

Arguments: the socket, bytes that it has, bytes that it says it has. Prints "told" when it has said so, and
ends with its standard input."""

import ctypes
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from wire import OK, Wire, mem  # noqa: E402


def take(size):
    cuda = ctypes.CDLL("libcuda.so.1")
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    assert cuda.cuInit(0) == 0
    assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0


def main():
    path, has, says = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    tool = Wire(path)
    tool.send("GET_STATUS", b"")
    uuid, total = tool.expect("STATUS_GPU")[:2]
    tool.close()
    wire = Wire(path)
    wire.send("REGISTER", uuid, total, 0, *mem(), 0, 1, 1, 100, 0, 0, b"liar", b"")
    assert wire.expect("REGISTERED")[0] == OK
    wire.send("REQ_LOCK", *mem(wanted=has))
    _, budget, epoch = wire.expect("LOCK_OK")
    take(has)
    wire.send("MEM_UPDATE", budget, epoch, 0, 0, *mem(resident=has))
    wire.send("MEM_UPDATE", budget, epoch, 0, 0, *mem(resident=says))
    print("told", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
