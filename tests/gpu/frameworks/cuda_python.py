#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cuda-python: the driver's calls one by one, and a kernel by NVRTC."""

import numpy

from work import over_and_over, sha, skip

try:
    from cuda.bindings import driver, nvrtc
except ImportError as error:
    skip(error)

SOURCE = b'extern "C" __global__ void step(int *x, int n)' \
         b"{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = x[i] * 5 + i; }"


def ok(answer):
    error, *rest = answer
    if int(error):
        raise SystemExit(f"{error!r}")
    return rest[0] if rest else None


def compiled(device):
    major = ok(driver.cuDeviceGetAttribute(
        driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device))
    program = ok(nvrtc.nvrtcCreateProgram(SOURCE, b"step.cu", 0, [], []))
    ok(nvrtc.nvrtcCompileProgram(program, 1, [f"--gpu-architecture=compute_{major}0".encode()]))
    text = b" " * ok(nvrtc.nvrtcGetPTXSize(program))
    ok(nvrtc.nvrtcGetPTX(program, text))
    return ok(driver.cuModuleGetFunction(ok(driver.cuModuleLoadData(text)), b"step"))


def main():
    ok(driver.cuInit(0))
    device = ok(driver.cuDeviceGet(0))
    context = ok(driver.cuDevicePrimaryCtxRetain(device))
    ok(driver.cuCtxSetCurrent(context))
    function = compiled(device)
    n = 1 << 20
    host = numpy.arange(n, dtype=numpy.int32)
    ballast_host = numpy.arange(1 << 29, dtype=numpy.int32)
    ballast = ok(driver.cuMemAlloc(ballast_host.nbytes))
    ok(driver.cuMemcpyHtoD(ballast, ballast_host.ctypes.data, ballast_host.nbytes))

    def work():
        memory = ok(driver.cuMemAlloc(host.nbytes))
        stream = ok(driver.cuStreamCreate(1))
        ok(driver.cuMemcpyHtoDAsync(memory, host.ctypes.data, host.nbytes, stream))
        pointer = numpy.array([int(memory)], dtype=numpy.uint64)
        count = numpy.array([n], dtype=numpy.int32)
        arguments = numpy.array([pointer.ctypes.data, count.ctypes.data], dtype=numpy.uint64)
        for _ in range(50):
            ok(driver.cuLaunchKernel(function, n // 256, 1, 1, 256, 1, 1, 0, stream, arguments.ctypes.data, 0))
        back = numpy.empty_like(host)
        ok(driver.cuMemcpyDtoHAsync(back.ctypes.data, memory, back.nbytes, stream))
        ok(driver.cuStreamSynchronize(stream))
        ok(driver.cuStreamDestroy(stream))
        ok(driver.cuMemFree(memory))
        return sha(back)

    over_and_over(work)
    back = numpy.empty_like(ballast_host)
    ok(driver.cuMemcpyDtoH(back.ctypes.data, ballast, back.nbytes))
    if not (back == ballast_host).all():
        raise SystemExit("memory has changed")


if __name__ == "__main__":
    main()
