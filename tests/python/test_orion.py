# SPDX-License-Identifier: Apache-2.0
"""nvshare.orion beside a library and a torch that write down how they are called."""

import os
import subprocess

import pytest
from conftest import HERE, ROOT, run_alone
from nvshare import _library, orion

REFUSED = """
from nvshare import orion

def refused(call):
    try:
        call()
    except orion.OrionError as error:
        return error
    raise AssertionError("it was not refused")
"""
START = REFUSED + """
import ctypes, os, sys, threading

fake = ctypes.CDLL(None)
fake.fake_notes.restype = ctypes.c_char_p

def notes():
    found = fake.fake_notes().decode().splitlines()
    fake.fake_forget()
    return found
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    found = tmp_path_factory.mktemp("fake") / "libfake.so"
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-shared", "-fPIC", f"-I{ROOT / 'include'}"]
    subprocess.run([*command, "-o", found, HERE / "fake_orion.c"], check=True)
    return found


@pytest.fixture
def passes(library):
    """passes(code): runs a program with the fake library, which must end well."""

    def passes_(code):
        done = run_alone(START + code, "-W", "error", LD_PRELOAD=str(library))
        assert (done.returncode, done.stderr) == (0, ""), done.stderr

    return passes_


def test_a_scheduler_starts_and_stops(passes):
    passes("""
with orion.scheduler(3) as found:
    assert isinstance(found, orion.Scheduler) and notes() == ["start_scheduler(3)"]
assert notes() == ["stop_scheduler()"]
found = orion.scheduler(num_clients=2)
assert notes() == []
found.start(), found.stop()
assert notes() == ["start_scheduler(2)", "stop_scheduler()"]
try:
    with orion.scheduler(2):
        raise KeyError
except KeyError:
    assert notes() == ["start_scheduler(2)", "stop_scheduler()"]
""")


def test_only_settings_that_are_given_change(passes):
    passes("""
size = ctypes.sizeof(orion.ConfigStruct)
assert orion.config() == orion.Config(0.5, ctypes.c_float(0.025).value, 10, 10, True, 0, 132)
assert orion.config().interference_aware is True
notes()
with orion.scheduler(2, hp_latency_ms=2.5, interference_aware=False):
    assert notes() == [f"get_config({size})", f"set_config({size})", "start_scheduler(2)"]
    assert orion.config() == orion.Config(0.5, ctypes.c_float(0.025).value, 2.5, 10, False, 0, 132)
orion.scheduler(2, sm_threshold_ratio=1, dur_threshold_ratio=0.5, poll_interval_us=7, device_id=3).start()
assert orion.config() == orion.Config(1, 0.5, 2.5, 7, False, 3, 132)
""")


def test_a_scheduler_that_fails_to_start_is_not_stopped(passes):
    passes("""
def start(**settings):
    with orion.scheduler(2, **settings):
        raise AssertionError("it runs")

fake.fake_fail(b"start_scheduler", -114)
assert refused(start).strerror == "cannot start a scheduler for 2 clients: one is started already"
assert notes() == ["start_scheduler(2)"]
fake.fake_fail(b"set_config", -114)
said = refused(lambda: start(device_id=1, hp_latency_ms=3)).strerror
assert said == "cannot set hp_request_latency_ms, device_id: a scheduler is started already", said
assert not any("start" in line for line in notes())
""")


def test_each_error_has_a_plain_reason(passes):
    passes("""
def reason(name, answer, call):
    fake.fake_fail(name, -answer)
    error = refused(call)
    assert error.errno == answer and isinstance(error, OSError)
    return error.strerror

start = orion.scheduler(2).start
said = reason(b"start_scheduler", 38, start)
assert said.startswith("cannot start a scheduler for 2 clients: preload libnvshare.so: the library was"), said
assert " too late to see calls of CUDA: LD_PRELOAD=LIBRARY " in said and "\\n" not in said, said
assert reason(b"start_scheduler", 12, start).endswith(": memory is short")
assert reason(b"start_scheduler", 22, start).endswith(": an argument is out of range")
assert reason(b"stop_scheduler", 107, orion.scheduler(2).stop) == "cannot stop the scheduler: no scheduler is started"
said = reason(b"set_client_idx", 22, lambda: orion.client(9).__enter__())
assert said == "cannot make this thread client 9: the scheduler has fewer clients", said
assert reason(b"set_hp_latency", 107, lambda: orion.set_hp_latency(1)).startswith("cannot set a latency of 1 ms: ")
assert reason(b"set_enabled", 107, lambda: orion.set_enabled(False)).startswith("cannot disable the scheduler: ")
assert reason(b"get_stats", 107, orion.stats).startswith("cannot read the statistics: ")
load = lambda: orion.load_profile("/a/profile")
assert reason(b"load_profile", 22, load).startswith("cannot load the profile: it is no profile: ")
assert reason(b"load_profile", 2, load) == "cannot load the profile: No such file or directory"
assert str(refused(load)).endswith(": '/a/profile'")
enter = lambda: orion.profiling("m", "f").__enter__()
assert reason(b"start_profiling", 114, enter).endswith(": a profile is recorded already")
""")


def test_a_thread_is_a_client_for_a_block(passes):
    passes("""
assert orion.client_index() is None
with orion.client(0):
    assert orion.client_index() == 0
    with orion.client(2), orion.client(1):
        assert orion.client_index() == 1
        thread = threading.Thread(target=lambda: fake.fake_note(str(orion.client_index()).encode()))
        thread.start(), thread.join()
    assert orion.client_index() == 0
    try:
        with orion.client(3):
            raise KeyError
    except KeyError:
        assert orion.client_index() == 0
    fake.fake_fail(b"set_client_idx", -22)
    refused(lambda: orion.client(5).__enter__())
    fake.fake_fail(b"", 0)
assert orion.client_index() is None
assert notes() == [
    *("set_client_idx(0)", "set_client_idx(2)", "set_client_idx(1)", "None"),
    *("set_client_idx(2)", "set_client_idx(0)", "set_client_idx(3)", "set_client_idx(0)"),
    *("set_client_idx(5)", "set_client_idx(-1)"),
]

@orion.client(1)
def decorated():
    return orion.client_index()

assert [decorated(), decorated(), orion.client_index()] == [1, 1, None]
assert "torch" not in sys.modules
""")


def test_a_client_has_a_stream_behind_the_one_that_was_current(passes):
    passes("""
import fake_torch
with orion.client(0):
    fake.fake_note(b"body")
assert notes() == [
    *("s1 = Stream(-1) on 0", "s1 waits for default", "on s1", "set_client_idx(0)"),
    "body",
    *("set_client_idx(-1)", "back on default", "default waits for s1"),
]
try:
    with orion.client(1), orion.client(0):
        raise KeyError
except KeyError:
    pass
assert notes() == [
    *("s2 = Stream(0) on 0", "s2 waits for default", "on s2", "set_client_idx(1)"),
    *("s1 waits for s2", "on s1", "set_client_idx(0)"),
    *("set_client_idx(1)", "back on s2", "s2 waits for s1"),
    *("set_client_idx(-1)", "back on default", "default waits for s2"),
]
fake_torch.cuda.device = 1
with orion.client(0):
    assert notes()[0] == "s3 = Stream(-1) on 1"
""")


def test_a_refused_client_leaves_the_stream_again(passes):
    passes("""
import fake_torch
fake.fake_fail(b"set_client_idx", -22)
refused(lambda: orion.client(1).__enter__())
assert notes()[-3:] == ["set_client_idx(1)", "back on default", "default waits for s1"]
""")


def test_the_argument_decides_about_the_stream(passes):
    passes("""
def enter(stream):
    with orion.client(1, stream=stream):
        pass
    return [line for line in notes() if "client" not in line]

try:
    enter(True)
    raise AssertionError("there is no torch")
except ImportError:
    assert orion.client_index() is None
assert enter(None) == enter(False) == []
import fake_torch
own = fake_torch.Stream(name="own")
notes()
assert enter(own) == ["own waits for default", "on own", "back on default", "default waits for own"]
assert enter(False) == []
fake_torch.cuda.is_available = lambda: False
assert enter(None) == []
assert "on s1" in enter(True)
fake_torch.cuda.is_available = lambda: True
assert "on s1" in enter(None)
""")


def test_a_child_of_fork_leaves_the_blocks_of_its_parent(passes):
    passes("""
import fake_torch
with orion.scheduler(2):
    with orion.client(1):
        notes()
        pid = os.fork()
    assert notes() == ["set_client_idx(-1)", "back on default"] + (["default waits for s1"] if pid else [])
assert notes() == (["stop_scheduler()"] if pid else [])
if not pid:
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
""")


def test_the_rest_passes_values_on(passes):
    passes("""
import pathlib
assert orion.stats() == orion.Stats(1, 2, 3, 1 << 40)
assert notes() == [f"get_stats({ctypes.sizeof(orion.StatsStruct)})"]
assert orion.is_enabled() is True
orion.set_enabled(False)
assert orion.is_enabled() is False
orion.set_hp_latency(2.5)
orion.load_profile(pathlib.Path("/a/b"))
assert notes() == ["set_enabled(0)", "set_hp_latency(2.5)", "load_profile(/a/b)"]
with orion.profiling("ResNet-50", "out"):
    assert notes() == ["start_profiling(ResNet-50)"]
assert notes() == ["end_profiling(out)"]
try:
    with orion.profiling("m", b"out"):
        raise KeyError
except KeyError:
    assert notes() == ["start_profiling(m)", "end_profiling(out)"]
""")


def test_without_the_library_each_call_says_what_to_do():
    done = run_alone(REFUSED + """
for call in (
    orion.scheduler(2).start, orion.scheduler(2, device_id=0).start, orion.scheduler(2).stop,
    lambda: orion.client(0).__enter__(), orion.client_index, orion.stats, orion.config, orion.is_enabled,
    lambda: orion.set_enabled(True), lambda: orion.set_hp_latency(1), lambda: orion.load_profile("f"),
    lambda: orion.profiling("m", "f").__enter__(),
):
    assert refused(call).strerror.startswith("libnvshare.so is not preloaded: LD_PRELOAD=LIBRARY "), call
""", "-W", "error")
    assert (done.returncode, done.stderr) == (0, "")


def test_an_older_library_is_named(monkeypatch):
    monkeypatch.setattr(_library, "_functions", {"nvshare_status": None})
    monkeypatch.setattr(orion, "_functions", {})
    with pytest.raises(orion.OrionError, match="the preloaded libnvshare.so is older than this module"):
        orion.stats()


@pytest.mark.parametrize(
    "name, call",
    [
        ("num_clients", lambda v: orion.scheduler(v)),
        ("hp_latency_ms", lambda v: orion.scheduler(2, hp_latency_ms=v)),
        ("sm_threshold_ratio", lambda v: orion.scheduler(2, sm_threshold_ratio=v)),
        ("dur_threshold_ratio", lambda v: orion.scheduler(2, dur_threshold_ratio=v)),
        ("poll_interval_us", lambda v: orion.scheduler(2, poll_interval_us=v)),
        ("interference_aware", lambda v: orion.scheduler(2, interference_aware=v)),
        ("device_id", lambda v: orion.scheduler(2, device_id=v)),
        ("idx", lambda v: orion.client(v)),
        ("stream", lambda v: orion.client(0, stream=v)),
        ("latency_ms", lambda v: orion.set_hp_latency(v)),
        ("enabled", lambda v: orion.set_enabled(v)),
        ("path", lambda v: orion.load_profile(v)),
        ("path", lambda v: orion.profiling("m", v)),
        ("model", lambda v: orion.profiling(v, "f")),
    ],
)
@pytest.mark.parametrize("value", [-1, 1 << 32, float("nan"), "a\0b", [], object()])
def test_wrong_arguments_are_named(name, call, value):
    with pytest.raises(ValueError, match=f"^{name}: "):
        call(value)


@pytest.mark.parametrize(
    "call",
    [
        lambda: orion.scheduler(0),
        lambda: orion.scheduler(orion.CLIENTS_MAX + 1),
        lambda: orion.scheduler(2, hp_latency_ms=0),
        lambda: orion.scheduler(2, hp_latency_ms=60001),
        lambda: orion.scheduler(2, sm_threshold_ratio=1.1),
        lambda: orion.scheduler(2, dur_threshold_ratio=0),
        lambda: orion.scheduler(2, poll_interval_us=0),
        lambda: orion.scheduler(2, poll_interval_us=1000001),
        lambda: orion.scheduler(2, interference_aware=1),
        lambda: orion.client(orion.CLIENTS_MAX),
        lambda: orion.client(True),
    ],
)
def test_borders_are_kept(call):
    with pytest.raises(ValueError):
        call()
