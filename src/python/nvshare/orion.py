# SPDX-License-Identifier: Apache-2.0
"""Threads of this process as clients of a scheduler inside it: nvshare/orion.h by ctypes.

    from nvshare import orion

    def serve():
        with orion.client(0):  # high priority
            answer_requests()

    def train():
        with orion.client(1):  # best effort
            run_epochs()

    with orion.scheduler(2, hp_latency_ms=8):
        threads = [threading.Thread(target=f) for f in (serve, train)]
        ...

Streams. By default a client of a program that uses PyTorch gets a torch.cuda.Stream of its own, for
two reasons. Threads that all submit to CUDA's default stream follow each other there. And PyTorch's
allocator gives memory that was freed on a stream to the next allocation of that stream at once. So
it must know the streams that the threads really use.

Each function raises OrionError if the library refuses, and if libnvshare.so is not preloaded. An
argument that makes no sense is a ValueError that names it.
"""

import contextlib
import ctypes
import dataclasses
import errno
import os
import sys
from typing import Any, ContextManager, Dict, Iterator, Optional, Tuple, Union

from . import _check, _library

__all__ = [
    "CLIENTS_MAX",
    "Config",
    "OrionError",
    "Scheduler",
    "Stats",
    "client",
    "client_index",
    "config",
    "is_enabled",
    "load_profile",
    "profiling",
    "scheduler",
    "set_enabled",
    "set_hp_latency",
    "stats",
]

CLIENTS_MAX = 63
_NO_CLIENT = -1
_LATENCY_MS_MAX = 60000

_Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


class StatsStruct(ctypes.Structure):
    """struct orion_stats"""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in ("hp_ops_scheduled", "be_ops_scheduled", "be_ops_rejected", "total_wait_time_us")
    ]


class ConfigStruct(ctypes.Structure):
    """struct orion_config"""

    _fields_ = [
        ("sm_threshold_ratio", ctypes.c_float),
        ("dur_threshold_ratio", ctypes.c_float),
        ("hp_request_latency_ms", ctypes.c_float),
        ("poll_interval_us", ctypes.c_int32),
        ("interference_aware", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("num_sms", ctypes.c_int32),
    ]


# As _library.PROTOTYPES.
PROTOTYPES = {
    "orion_start_scheduler": (True, ctypes.c_int, [ctypes.c_int]),
    "orion_stop_scheduler": (True, ctypes.c_int, []),
    "orion_set_hp_latency": (True, ctypes.c_int, [ctypes.c_float]),
    "orion_init": (True, ctypes.c_int, [ctypes.c_int]),
    "orion_shutdown": (True, ctypes.c_int, []),
    "orion_set_client_idx": (False, ctypes.c_int, [ctypes.c_int]),
    "orion_get_client_idx": (False, ctypes.c_int, []),
    "orion_set_enabled": (True, ctypes.c_int, [ctypes.c_int]),
    "orion_is_enabled": (False, ctypes.c_int, []),
    "orion_load_profile": (True, ctypes.c_int, [ctypes.c_char_p]),
    "orion_start_profiling": (True, ctypes.c_int, [ctypes.c_char_p]),
    "orion_end_profiling": (True, ctypes.c_int, [ctypes.c_char_p]),
    "orion_get_stats": (True, ctypes.c_int, [ctypes.POINTER(StatsStruct), ctypes.c_size_t]),
    "orion_get_config": (True, ctypes.c_int, [ctypes.POINTER(ConfigStruct), ctypes.c_size_t]),
    "orion_set_config": (True, ctypes.c_int, [ctypes.POINTER(ConfigStruct), ctypes.c_size_t]),
}

_functions = _library.find(PROTOTYPES)

_PRELOAD = "LD_PRELOAD=LIBRARY python3 PROGRAM (libnvshare(7), FILES, has the library's path)"

_REASONS = {
    errno.EINVAL: "an argument is out of range",
    errno.EALREADY: "it was done before, and has not been undone since",
    errno.ENOTCONN: "no scheduler is started",
    errno.ENOSYS: f"preload libnvshare.so: the library was loaded too late to see calls of CUDA: {_PRELOAD}",
    errno.ENOMEM: "memory is short",
}

# Where more is known than the error alone says.
_REASONS_OF = {
    ("orion_start_scheduler", errno.EALREADY): "one is started already",
    ("orion_set_config", errno.EALREADY): "a scheduler is started already",
    ("orion_set_client_idx", errno.EINVAL): "the scheduler has fewer clients",
    ("orion_load_profile", errno.EINVAL): "it is no profile: a line on standard error says why",
    ("orion_start_profiling", errno.EALREADY): "a profile is recorded already",
    ("orion_end_profiling", errno.EALREADY): "no profile is recorded",
}


class OrionError(OSError):
    """The library refused. errno: one of orion.h's; strerror: the reason; filename: the profile."""


@dataclasses.dataclass(frozen=True)
class Stats:
    """Operations since the scheduler was started: kernels, graphs and copies."""

    hp_ops_scheduled: int  #: of client 0
    be_ops_scheduled: int  #: of all others
    be_ops_rejected: int  #: of all others, that had to wait; each counts once
    total_wait_time_us: int


@dataclasses.dataclass(frozen=True)
class Config:
    """The settings of the scheduler; see scheduler()."""

    sm_threshold_ratio: float
    dur_threshold_ratio: float
    hp_request_latency_ms: float
    poll_interval_us: int
    interference_aware: bool
    device_id: int
    num_sms: int  #: multiprocessors of the GPU; 0: not known yet


def _function(name: str) -> Any:
    if _functions:
        return _functions[name]
    if _library.is_loaded():
        raise OrionError(errno.ENOSYS, "the preloaded libnvshare.so is older than this module")
    raise OrionError(errno.ENOSYS, f"libnvshare.so is not preloaded: {_PRELOAD}")


def _call(name: str, what: str, *arguments: Any, path: Optional[_Path] = None) -> int:
    """Calls the library's function. what: what it does, for the error. Returns its result."""
    result = _function(name)(*arguments)
    if result < 0:
        reason = _REASONS_OF.get((name, -result)) or _REASONS.get(-result) or os.strerror(-result)
        raise OrionError(-result, f"cannot {what}: {reason}", path)
    return result


def _text(name: str, value: _Path) -> bytes:
    with contextlib.suppress(TypeError, UnicodeError):
        found = os.fsencode(value)
        if b"\0" not in found:  # C would read less than the program wrote
            return found
    raise ValueError(f"{name}: {value!r} is no text that C can read")


def _latency(name: str, value: float) -> float:
    return _check.above_zero(name, value, _LATENCY_MS_MAX)


class Scheduler:
    """What scheduler() makes: starts and ends with a `with` block, or by start() and stop()."""

    def __init__(self, num_clients: int, settings: Dict[str, Union[int, float]]) -> None:
        self._num_clients = num_clients
        self._settings = settings
        self._pid: Optional[int] = None

    def start(self) -> None:
        """Applies the settings, then takes the calls of clients. Work that was submitted before is
        not waited for."""
        if self._settings:
            found = _read_config()
            for name, value in self._settings.items():
                setattr(found, name, value)
            what = f"set {', '.join(self._settings)}"
            _call("orion_set_config", what, ctypes.byref(found), ctypes.sizeof(found))
        what = f"start a scheduler for {self._num_clients} clients"
        _call("orion_start_scheduler", what, self._num_clients)
        self._pid = os.getpid()

    def stop(self) -> None:
        """Waits until all that clients have asked for is submitted, then ends the scheduler."""
        _call("orion_stop_scheduler", "stop the scheduler")

    def __enter__(self) -> "Scheduler":
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._pid == os.getpid():  # a child of fork() has no scheduler
            self.stop()


def scheduler(
    num_clients: int,
    *,
    hp_latency_ms: Optional[float] = None,
    sm_threshold_ratio: Optional[float] = None,
    dur_threshold_ratio: Optional[float] = None,
    poll_interval_us: Optional[int] = None,
    interference_aware: Optional[bool] = None,
    device_id: Optional[int] = None,
) -> Scheduler:
    """A scheduler for clients 0 to num_clients - 1, at most 63. A process has one at a time.

    A setting that is None stays as it is, and one that is given stays for later schedulers, too.

    hp_latency_ms: how long a request of client 0 takes, above 0 to 60000. sm_threshold_ratio: the
    part of the multiprocessors that best effort may have beside client 0, above 0 to 1.
    dur_threshold_ratio: the part of hp_latency_ms by which it may delay a request, above 0 to 1.
    poll_interval_us: how often completed work is looked for, 1 to 1000000. interference_aware: only
    kernels with other needs run beside client 0's. device_id: the GPU, by CUDA ordinal.
    """
    settings: Dict[str, Union[int, float]] = {}
    if hp_latency_ms is not None:
        settings["hp_request_latency_ms"] = _latency("hp_latency_ms", hp_latency_ms)
    if sm_threshold_ratio is not None:
        settings["sm_threshold_ratio"] = _check.above_zero("sm_threshold_ratio", sm_threshold_ratio, 1)
    if dur_threshold_ratio is not None:
        settings["dur_threshold_ratio"] = _check.above_zero("dur_threshold_ratio", dur_threshold_ratio, 1)
    if poll_interval_us is not None:
        settings["poll_interval_us"] = _check.integer("poll_interval_us", poll_interval_us, 1, 1000000)
    if interference_aware is not None:
        settings["interference_aware"] = _check.boolean("interference_aware", interference_aware)
    if device_id is not None:
        settings["device_id"] = _check.device(device_id, "device_id")
    return Scheduler(_check.integer("num_clients", num_clients, 1, CLIENTS_MAX), settings)


# One stream for each client and device. PyTorch's allocator keeps memory apart by stream: a new one
# for each entry would keep it for all streams of PyTorch's pool.
_streams: Dict[Tuple[int, int], Any] = {}


def _stream_for(idx: int, stream: Any) -> Any:
    """The torch stream that the client enters, or None."""
    if stream is None and sys.modules.get("torch") is not None:
        import torch  # waits for a thread that is just importing it

        stream = torch.cuda.is_available()
    if not isinstance(stream, bool):
        return stream
    if not stream:
        return None
    import torch

    key = (idx, torch.cuda.current_device())
    if key not in _streams:
        _streams.setdefault(key, torch.cuda.Stream(priority=0 if idx else -1))
    return _streams[key]


@contextlib.contextmanager
def _entered(stream: Any) -> Iterator[None]:
    """Enters the stream, behind the one that was current; the other way round at the end."""
    import torch

    before = torch.cuda.current_stream(stream.device)
    stream.wait_stream(before)
    pid = os.getpid()
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        if pid == os.getpid():  # a child of fork() cannot use its parent's CUDA
            before.wait_stream(stream)


@contextlib.contextmanager
def _client(idx: int, stream: Any) -> Iterator[None]:
    what = f"make this thread client {idx}"
    earlier = _function("orion_get_client_idx")()
    with contextlib.ExitStack() as stack:
        found = _stream_for(idx, stream)
        if found is not None:
            # Outside: the thread waits for, and on, the earlier stream as the client that it was.
            stack.enter_context(_entered(found))
        _call("orion_set_client_idx", what, idx)
        stack.callback(_call, "orion_set_client_idx", "restore the client of this thread", earlier)
        yield


def client(idx: int, *, stream: Any = None) -> ContextManager[None]:
    """A context: what this thread submits in it belongs to client idx. 0 has high priority.

    At the end the thread is the client again that it was before, so contexts may be nested. A
    context concerns its thread. So a coroutine must not wait in it: others of the thread would run.

    stream: False: the thread's streams stay. True: the block runs on a torch.cuda.Stream, one for
    each client and device, of high priority for client 0. It is on the thread's current device. A
    torch stream: the block runs on that one. None: as True if the program has imported torch, and
    torch has CUDA; else as False. The module says why.

    On entry the stream waits for the one that was current, and at the end the other way round. So
    inputs and results are in order. Enter once in a thread, not for each request: threads that come
    from the same stream wait there for each other's blocks.
    """
    _check.integer("idx", idx, 0, CLIENTS_MAX - 1)
    if not (stream is None or isinstance(stream, bool) or hasattr(stream, "wait_stream")):
        raise ValueError(f"stream: {stream!r} is neither None, a bool nor a torch.cuda.Stream")
    return _client(idx, stream)


def client_index() -> Optional[int]:
    """The client that this thread is; None: none."""
    idx = _function("orion_get_client_idx")()
    return None if idx == _NO_CLIENT else idx


def set_hp_latency(latency_ms: float) -> None:
    """Says how long a request of client 0 takes, above 0 to 60000 milliseconds; at any time."""
    found = _latency("latency_ms", latency_ms)
    _call("orion_set_hp_latency", f"set a latency of {latency_ms} ms", found)


def set_enabled(enabled: bool) -> None:
    """False: everything passes as if there was no scheduler, until it is enabled again."""
    found = _check.boolean("enabled", enabled)
    _call("orion_set_enabled", "enable the scheduler" if found else "disable the scheduler", found)


def is_enabled() -> bool:
    return bool(_call("orion_is_enabled", "ask whether the scheduler is enabled"))


def stats() -> Stats:
    """The Stats of the scheduler."""
    found = StatsStruct()
    _call("orion_get_stats", "read the statistics", ctypes.byref(found), ctypes.sizeof(found))
    return Stats(*(getattr(found, name) for name, _ in StatsStruct._fields_))


def _read_config() -> ConfigStruct:
    found = ConfigStruct()
    _call("orion_get_config", "read the settings", ctypes.byref(found), ctypes.sizeof(found))
    return found


def config() -> Config:
    """The Config of the scheduler, also before its start."""
    found = _read_config()
    values = {name: getattr(found, name) for name, _ in ConfigStruct._fields_}
    return Config(**{**values, "interference_aware": bool(found.interference_aware)})


def load_profile(path: _Path) -> None:
    """Adds a file of profiles to what is known of kernels. They are learned anyway, while programs
    run: a file only spares the first kernels their way alone."""
    _call("orion_load_profile", "load the profile", _text("path", path), path=path)


@contextlib.contextmanager
def _profiling(model: bytes, file: bytes, path: _Path) -> Iterator[None]:
    _call("orion_start_profiling", "record a profile", model)
    try:
        yield
    finally:
        _call("orion_end_profiling", "write the profile", file, path=path)


def profiling(model: str, path: _Path) -> ContextManager[None]:
    """A context: the kernels that run in it are written to a file of profiles, for load_profile().
    The file is written also if an exception ends the block. model: a name for the reader."""
    return _profiling(_text("model", model), _text("path", path), path)
