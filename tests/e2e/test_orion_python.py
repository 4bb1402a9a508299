# SPDX-License-Identifier: Apache-2.0
"""Python threads as clients of the scheduler inside their process: by raw ctypes, and by nvshare.orion."""

import sys

import pytest
from conftest import BUILD, LIBRARY, ROOT

ROUNDS = 20

# The simulated driver takes the bodies of kernels by their names.
WORK = f"""
import ctypes, os, threading

ROUNDS, N = {ROUNDS}, 64
""" + r'''
PTX = b"""
.version 7.0
.target sm_52
.address_size 64
.visible .entry nvs_lcg_u32(.param .u64 p, .param .u64 n, .param .u32 rounds)
{
ret;
}
"""
driver = ctypes.CDLL("libcuda.so.1")
context, module, kernel = (ctypes.c_void_p() for _ in range(3))

def cuda(name, *arguments):
    r = getattr(driver, name)(*arguments)
    assert r == 0, f"{name} says {r}"

cuda("cuInit", 0)
cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
cuda("cuCtxSetCurrent", context)
cuda("cuModuleLoadData", ctypes.byref(module), PTX)
cuda("cuModuleGetFunction", ctypes.byref(kernel), module, b"nvs_lcg_u32")

def launch(stream, pointer, rounds):
    values = pointer, ctypes.c_uint64(N), ctypes.c_uint32(rounds)
    arguments = (ctypes.c_void_p * 3)(*(ctypes.addressof(v) for v in values))
    cuda("cuLaunchKernel", kernel, 1, 1, 1, N, 1, 1, 0, stream, arguments, None)

def work(first, is_right):
    """Each round: a copy, three kernels, and a copy back."""
    pointer, stream = ctypes.c_uint64(), ctypes.c_void_p()
    cuda("cuCtxSetCurrent", context)
    cuda("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(4 * N))
    cuda("cuStreamCreate", ctypes.byref(stream), 1)
    for i in range(ROUNDS):
        values = [first + i + k for k in range(N)]
        data = (ctypes.c_uint32 * N)(*values)
        cuda("cuMemcpyHtoD_v2", pointer, data, ctypes.c_size_t(4 * N))
        for _ in range(3):
            launch(stream, pointer, 2)
        cuda("cuStreamSynchronize", stream)
        cuda("cuMemcpyDtoH_v2", data, pointer, ctypes.c_size_t(4 * N))
        for _ in range(6):
            values = [(v * 1664525 + 1013904223) % 2**32 for v in values]
        assert list(data) == values
    is_right.append(True)

def run(*tasks):
    threads = [threading.Thread(target=task) for task in tasks]
    [t.start() for t in threads], [t.join() for t in threads]

is_right = []
'''

# As Orion's own example, by its name of the library.
RAW = """
lib = ctypes.CDLL(os.environ["ORION_LIBRARY"])
assert lib.orion_start_scheduler(2) == 0

def hp_task():
    assert lib.orion_set_client_idx(0) == 0
    work(1, is_right)

def be_task():
    assert lib.orion_set_client_idx(1) == 0
    work(1000, is_right)

run(hp_task, be_task)
stats = (ctypes.c_uint64 * 4)()
assert lib.orion_get_stats(stats, ctypes.c_size_t(32)) == 0
assert lib.orion_stop_scheduler() == 0
assert lib.orion_get_client_idx() == -1
print("ops", *stats[:3])
"""

HELPER = """
from nvshare import orion

def hp_task():
    with orion.client(0):
        assert orion.client_index() == 0
        work(1, is_right)

@orion.client(1)
def be_task():
    work(1000, is_right)

with orion.scheduler(2, hp_latency_ms=5, interference_aware=False):
    assert orion.is_enabled() and orion.config().hp_request_latency_ms == 5
    run(hp_task, be_task)
    stats = orion.stats()
    try:
        orion.scheduler(2).start()
    except orion.OrionError as error:
        assert error.strerror.endswith("one is started already"), error
    assert orion.config().num_sms > 0
print("ops", stats.hp_ops_scheduled, stats.be_ops_scheduled, stats.be_ops_rejected)
"""

RIGHT = """
assert is_right == [True, True]
work(5000, is_right)  # by nobody, when the scheduler has ended
print("verified")
"""


@pytest.fixture
def start(node):
    """start(code): a program of this node; it finds the library by Orion's name."""
    link = node.folder / "libgpu_scheduler.so"
    link.symlink_to(LIBRARY or BUILD / "libgpu_scheduler.so")

    def start_(code, **options):
        return node.start(
            [sys.executable, "-c", code], "program",
            PYTHONPATH=str(ROOT / "src" / "python"), PYTHONDONTWRITEBYTECODE="1", ORION_LIBRARY=str(link), **options,
        )

    return start_


@pytest.mark.parametrize("use", [RAW, HELPER], ids=["ctypes", "helper"])
def test_two_threads_are_clients(node, start, use):
    node.start_scheduler()
    said = start(WORK + use + RIGHT).expect_verified()
    hp, be, waited = (int(n) for n in next(line for line in said.splitlines() if "ops " in line).split()[1:])
    assert (hp, be) == (5 * ROUNDS, 5 * ROUNDS), said
    assert 0 <= waited <= be, said
    node.expect_empty()
    node.expect_sound_scheduler()


def test_without_preload_the_start_fails_with_one_line(start):
    said = start(
        'import ctypes, os\nlib = ctypes.CDLL(os.environ["ORION_LIBRARY"])\n'
        "print(lib.orion_start_scheduler(2))\n", preload=False,
    ).expect(0).splitlines()
    reasons = [line for line in said if "orion_start_scheduler" in line]
    assert len(said) == 2 and len(reasons) == 1 and "-38" in said, said
    assert "LD_PRELOAD" in reasons[0], said
    said = start("from nvshare import orion\norion.scheduler(2).start()\n", preload=False).expect(1)
    assert "OrionError: [Errno 38] libnvshare.so is not preloaded: LD_PRELOAD=" in said.splitlines()[-1], said
