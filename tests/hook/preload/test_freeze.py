# SPDX-License-Identifier: Apache-2.0
"""Freezing on the simulated GPU, and the library's ioctl() in programs that want something else."""

import os
import pathlib
import subprocess
import sys

import pytest

BUILD = pathlib.Path(os.environ["NVSHARE_BUILD"])
FREEZE = BUILD / "tests/apps/freeze"
PATIENCE = 600  # a thousand freezes beside two threads that spin, on few processors


def run(folder, *command, **more):
    env = {name: value for name, value in os.environ.items() if not name.startswith("NVSHARE")}
    env.update(
        LD_LIBRARY_PATH=str(BUILD / "simgpu"),
        NVSHARE_SIM_DIR=str(folder),
        NVSHARE_SOCK_DIR=str(folder),  # no scheduler there
        NVSHARE_SIM_MEMORY="1GiB",
    )
    env.update(more)
    return subprocess.run(
        [str(part) for part in command], env=env, capture_output=True, text=True, timeout=PATIENCE
    )


def freeze(folder, *options, status=0, **env):
    done = run(folder, FREEZE, "--size", "1MiB", "--rounds", "20", *options, **env)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_channels_are_counted_and_a_freeze_is_proven(tmp_path):
    out = freeze(tmp_path, "--times", "5")
    assert "one context: groups=4 channels=20 compute=8 own=0" in out
    assert "of our own: groups=4 channels=20 compute=8 own=20" in out
    assert "at the end: groups=4 channels=20 compute=8 own=20" in out
    assert "proven\n" in out
    assert "still for 20 ms: yes" in out


def test_channels_for_pictures_are_frozen_too(tmp_path):
    out = freeze(tmp_path, "--times", "5", NVSHARE_SIM_PICTURES="1")
    assert "one context: groups=5 channels=21 compute=8 own=0" in out
    assert "of our own: groups=5 channels=21 compute=8 own=21" in out
    assert "proven\n" in out
    assert "verified passes=" in out


def test_a_thousand_freezes_under_load(tmp_path):
    assert "verified passes=" in freeze(tmp_path, "--times", "1000")


def test_contexts_come_and_go_while_frozen(tmp_path):
    assert "verified passes=" in freeze(tmp_path, "--times", "300", "--churn")


@pytest.mark.parametrize("how", ["frozen", "committed"])
def test_leaves(tmp_path, how):
    out = freeze(tmp_path, "--times", "1", "--leave", how)
    assert out.endswith(f"leaving {how}\n")


@pytest.mark.parametrize(
    "name, value, why",
    [
        ("CUDA_INJECTION64_PATH", "/lib/x.so", "injected"),
        ("NVTX_INJECTION64_PATH", "/lib/x.so", "injected"),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50", "MPS"),
        ("NVSHARE_SIM_MPS", "1", "MPS"),  # the driver says so
        ("NVSHARE_FREEZE", "0", "NVSHARE_FREEZE=0"),
    ],
)
def test_says_why_not(tmp_path, name, value, why):
    assert why in freeze(tmp_path, status=77, **{name: value})


def test_a_live_mps_is_left_alone(tmp_path):
    pipes = tmp_path / "mps"
    pipes.mkdir()
    (pipes / "nvidia-cuda-mps-control.pid").write_text(f"{os.getpid()}\n")
    assert "MPS" in freeze(tmp_path, status=77, CUDA_MPS_PIPE_DIRECTORY=str(pipes))
    (pipes / "nvidia-cuda-mps-control.pid").write_text("")
    freeze(tmp_path, "--times", "1", CUDA_MPS_PIPE_DIRECTORY=str(pipes))


IOCTL = """
import ctypes, errno, fcntl, os, struct, sys, termios
libc = ctypes.CDLL("libc.so.6", use_errno=True)
every = ctypes.CDLL(None, use_errno=True)
ours = ctypes.CDLL(sys.argv[1], use_errno=True).ioctl if len(sys.argv) > 1 else None
address = lambda f: ctypes.cast(f, ctypes.c_void_p).value
if ours:
    assert address(every.ioctl) == address(ours)  # of whoever comes first
    assert address(libc.ioctl) == address(ours)   # of the C library alone
read, write = os.pipe()
os.write(write, b"12345")
for call in (libc.ioctl, every.ioctl):
    n = ctypes.c_int(-1)
    ctypes.set_errno(99)
    assert call(read, ctypes.c_ulong(termios.FIONREAD), ctypes.byref(n)) == 0
    assert n.value == 5 and ctypes.get_errno() == 99
    # A request that looks like the driver's, on a descriptor of somebody else's.
    for request in (0xC020462A, 0xC020462B, 0xC030462B, 0xC0104629, 0xC01046D3, 0x4600):
        buffer = ctypes.create_string_buffer(64)
        assert call(read, ctypes.c_ulong(request), buffer) == -1
        assert ctypes.get_errno() == errno.ENOTTY and buffer.raw == bytes(64)
        assert call(read, ctypes.c_ulong(request), None) == -1
        assert ctypes.get_errno() == errno.ENOTTY
    assert call(-1, ctypes.c_ulong(termios.FIONREAD), ctypes.byref(n)) == -1
    assert ctypes.get_errno() == errno.EBADF
assert struct.unpack("i", fcntl.ioctl(read, termios.FIONREAD, b"0000"))[0] == 5
print("same")
"""


def test_other_ioctls_are_what_they_were(tmp_path):
    ours = BUILD / "libnvshare.so"
    done = run(tmp_path, sys.executable, "-c", IOCTL, ours, LD_PRELOAD=str(ours))
    assert (done.returncode, done.stdout) == (0, "same\n"), done.stderr
    done = run(tmp_path, sys.executable, "-c", IOCTL)
    assert (done.returncode, done.stdout) == (0, "same\n"), done.stderr
