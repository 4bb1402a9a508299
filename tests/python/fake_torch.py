# SPDX-License-Identifier: Apache-2.0
"""What nvshare.orion uses of PyTorch. Importing it makes it `torch`; notes go to fake_orion.c."""

import contextlib
import ctypes
import sys
import types

note = ctypes.CDLL(None).fake_note
n_streams = 0


class Stream:
    def __init__(self, device=None, priority=0, name=None):
        global n_streams
        self.device, self.name = cuda.device if device is None else device, name
        if not name:
            n_streams += 1
            self.name = f"s{n_streams}"
            note(f"{self.name} = Stream({priority}) on {self.device}".encode())

    def wait_stream(self, other):
        note(f"{self.name} waits for {other.name}".encode())


@contextlib.contextmanager
def stream(entered):
    before = cuda.current
    cuda.current = entered
    note(f"on {entered.name}".encode())
    try:
        yield
    finally:
        cuda.current = before
        note(f"back on {before.name}".encode())


cuda = types.SimpleNamespace(
    Stream=Stream,
    stream=stream,
    device=0,
    current_device=lambda: cuda.device,
    current_stream=lambda device: cuda.current,
    is_available=lambda: True,
)
cuda.current = Stream(name="default")
sys.modules["torch"] = types.ModuleType("torch")
sys.modules["torch"].cuda = cuda
