# SPDX-License-Identifier: Apache-2.0
"""Stands for torch_models.py: the same names, but kernels of the driver API that only take time."""

import ctypes

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

# Milliseconds of a kernel, and kernels of a request or a step.
KINDS = {"resnet50": (0.2, 10), "resnet50-graph": (2, 1), "decoder": (0.2, 10),
         "matmul": (2, 4), "train": (1, 20), "long": (50, 1)}


class Driver:
    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device, self.context = ctypes.c_int(), ctypes.c_void_p()
        module, self.kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.call("cuCtxSetCurrent", self.context)
        self.call("cuModuleLoadData", ctypes.byref(module), PTX)
        self.call("cuModuleGetFunction", ctypes.byref(self.kernel), module, b"nvs_spin")

    def call(self, name, *args):
        result = getattr(self.cuda, name)(*args)
        if result:
            raise RuntimeError(f"{name}: {result}")

    def launch(self, ms):
        ns = ctypes.c_uint64(int(ms * 1e6))
        params = (ctypes.c_void_p * 1)(ctypes.addressof(ns))
        self.call("cuLaunchKernel", self.kernel, 1, 1, 1, 1, 1, 1, 0, None, params, None)

    def synchronize(self):
        self.call("cuCtxSynchronize")


class Work:
    amount = 1.0
    driver = None

    def __init__(self, ms, n):
        Work.driver = Work.driver or Driver()
        self.ms, self.n = ms, n

    def prepare(self):
        pass

    def step(self):
        for _ in range(self.n):
            self.driver.launch(self.ms)

    def mark(self):
        return self.driver

    def request(self):
        self.step()
        self.driver.synchronize()


def make(name):
    return Work(*KINDS[name])
