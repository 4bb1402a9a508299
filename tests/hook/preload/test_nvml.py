# SPDX-License-Identifier: Apache-2.0
"""NVML and cuMemGetInfo tell a program the same about its GPU, and only that program."""

import json
import os
import subprocess
import sys
import tempfile

import pytest

BUILD = os.environ["NVSHARE_BUILD"]
SIMGPU = os.path.join(BUILD, "simgpu")
OURS = os.path.join(BUILD, "libnvshare.so")
MIB = 1 << 20

# Looks everything up by dlsym(), as every user of NVML does; prints what it was told.
ASK = """
import ctypes, json, sys
class V1(ctypes.Structure):
    _fields_ = [(n, ctypes.c_ulonglong) for n in ("total", "free", "used")]
class V2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [
        (n, ctypes.c_ulonglong) for n in ("total", "reserved", "free", "used")]
said = {}
if "cuda" in sys.argv:
    cuda = ctypes.CDLL("libcuda.so.1")
    ctx, ptr = ctypes.c_void_p(), ctypes.c_ulonglong()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctx), 0) == 0
    assert cuda.cuCtxSetCurrent(ctx) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(ptr), ctypes.c_size_t(10 << 20)) == 0
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    said["cuda"] = [free.value, total.value]
nvml = ctypes.CDLL("libnvidia-ml.so.1")
gpu, v1, v2 = ctypes.c_void_p(), V1(), V2()
v2.version = ctypes.sizeof(V2) | 2 << 24
assert nvml.nvmlInit_v2() == 0
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(gpu)) == 0
assert nvml.nvmlDeviceGetMemoryInfo(gpu, ctypes.byref(v1)) == 0
assert nvml.nvmlDeviceGetMemoryInfo_v2(gpu, ctypes.byref(v2)) == 0
said["v1"] = [v1.free, v1.total, v1.used]
said["v2"] = [v2.free, v2.total, v2.used, v2.reserved]
print(json.dumps(said))
"""


def ask(*arguments, preload=True, libraries=SIMGPU, **env):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NVSHARE")}
    with tempfile.TemporaryDirectory() as folder:
        clean.update(
            env,
            LD_LIBRARY_PATH=libraries,
            NVSHARE_SIM_DIR=folder,
            NVSHARE_SOCK_DIR=folder,  # no scheduler there
            NVSHARE_SIM_MEMORY="1GiB",
        )
        if preload:
            clean["LD_PRELOAD"] = OURS
        done = subprocess.run(
            [sys.executable, "-c", ASK, *arguments],
            env=clean,
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def check_agreement(said):
    free, total = said["cuda"]
    assert said["v1"] == [free, total, total - free]
    assert said["v2"][:2] == [free, total]
    assert said["v2"][2] + said["v2"][3] == total - free


def test_agrees_with_cuda_in_a_program_that_uses_it():
    said = ask("cuda")
    check_agreement(said)
    assert said["v1"][2] >= 10 * MIB


def test_agrees_within_a_limit():
    said = ask("cuda", NVSHARE_GPU_MEMORY_LIMIT="400MiB")
    check_agreement(said)
    assert said["cuda"][1] == 400 * MIB


def test_a_limit_shows_without_cuda_too():
    assert ask(NVSHARE_GPU_MEMORY_LIMIT="400MiB")["v1"][1] == 400 * MIB


def test_tells_the_cards_own_numbers_without_cuda_or_limit():
    assert ask() == ask(preload=False)


@pytest.mark.parametrize("which", ["new_by_old", "old_by_new"])
@pytest.mark.parametrize("limit, total", [("50%", 500), ("400MiB", 400), ("200MiB", 200)])
def test_a_library_that_calls_itself_is_answered_once(which, limit, total):
    """The card has 1000 MiB, of which others use 300, 100 of these the driver itself."""
    libraries = os.path.join(BUILD, "tests/hook/preload", which)
    said = ask(libraries=libraries, NVSHARE_GPU_MEMORY_LIMIT=limit)
    used = min(300, total)
    assert said["v1"] == [n * MIB for n in (total - used, total, used)]
    assert said["v2"] == [n * MIB for n in (total - used, total, used - 100, 100)]
