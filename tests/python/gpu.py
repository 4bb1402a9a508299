# SPDX-License-Identifier: Apache-2.0
"""For the test programs: the GPU by the driver's own calls, and waiting for what must come."""

import ctypes
import time

import nvshare

PTX = b"""
.version 7.0
.target sm_52
.address_size 64
.visible .entry nvs_spin(.param .u64 ns)
{
.reg .pred %p<2>;
.reg .b64 %rd<8>;
ld.param.u64 %rd4, [ns];
mov.u64 %rd5, %globaltimer;
again:
mov.u64 %rd6, %globaltimer;
sub.u64 %rd7, %rd6, %rd5;
setp.lt.u64 %p1, %rd7, %rd4;
@%p1 bra again;
ret;
}
"""
PATIENCE = 120.0  # seconds; only a failure takes so long


class Gpu:
    """A context on GPU 0, current on this thread."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.context, self.module, self.kernel = (ctypes.c_void_p() for _ in range(3))
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.use()
        self.call("cuModuleLoadData", ctypes.byref(self.module), PTX)
        self.call("cuModuleGetFunction", ctypes.byref(self.kernel), self.module, b"nvs_spin")

    def call(self, name, *arguments):
        r = getattr(self.driver, name)(*arguments)
        assert r == 0, f"{name} says {r}"

    def use(self):
        """On another thread."""
        self.call("cuCtxSetCurrent", self.context)

    def alloc(self, size):
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))

    def spin(self, ms):
        """A kernel that takes so long, to its end."""
        ns = ctypes.c_uint64(int(ms * 1e6))
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(ns))
        self.call("cuLaunchKernel", self.kernel, 1, 1, 1, 1, 1, 1, 0, None, arguments, None)
        self.call("cuCtxSynchronize")


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.005)


def start_managed():
    """A GPU, when the scheduler knows of this process."""
    gpu = Gpu()
    until(lambda: nvshare.status().is_managed)
    return gpu
