#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Uses host memory for the first time, so that later measurements do not.

A virtual machine's memory grows on first use: at the first touch, and again when it is registered
with the driver. The program uses nearly all, because a measurement would meet the rest.
"""

import argparse
import ctypes
import mmap
import sys
import threading
import time

import rig as rigs

LEAVE = 8 << 30  # bytes that the machine itself may need
SLAB = 1 << 30
N_THREADS = 8


def available():
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))


def touch(start, n_bytes):
    part = n_bytes // N_THREADS
    threads = [threading.Thread(target=ctypes.memset, args=(start + i * part, 1, part)) for i in range(N_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def call(cuda, name, *args):
    error = getattr(cuda, name)(*args)
    if error:
        raise RuntimeError(f"{name}: error {error}")


def register(cuda, start, n_bytes):
    """Touches and registers bytes of memory, and frees them."""
    slabs = [(start + at, min(SLAB, n_bytes - at)) for at in range(0, n_bytes, SLAB)]
    for at, size in slabs:
        call(cuda, "cuMemHostRegister_v2", ctypes.c_void_p(at), ctypes.c_size_t(size), 0)
    for at, _ in slabs:
        call(cuda, "cuMemHostUnregister", ctypes.c_void_p(at))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", help="size; less if less is available")
    n_bytes = min(rigs.size(parser.parse_args().size), available() - LEAVE) & ~((2 << 20) - 1)
    if n_bytes <= 0:
        print("host memory: none to spare, nothing was used ahead")
        return
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    call(cuda, "cuInit", 0)
    call(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call(cuda, "cuCtxSetCurrent", context)
    area = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.madvise(mmap.MADV_HUGEPAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    took = []
    for step in (lambda: touch(start, n_bytes), lambda: register(cuda, start, n_bytes),
                 lambda: register(cuda, start, min(n_bytes, 8 * SLAB))):
        began = time.monotonic()
        step()
        took.append(time.monotonic() - began)
    per_gib = [1e3 * seconds * rigs.GIB / size
               for seconds, size in zip(took, (n_bytes, n_bytes, min(n_bytes, 8 * SLAB)))]
    print(f"host memory, {n_bytes / rigs.GIB:.1f} GiB, for the first time: touched in {per_gib[0]:.0f} ms a GiB,"
          f" registered and let go in {per_gib[1]:.0f}; the second time in {per_gib[2]:.0f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
