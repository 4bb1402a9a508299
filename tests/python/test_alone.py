# SPDX-License-Identifier: Apache-2.0
"""Without the library: programs do what they would, and wrong arguments are named."""

import asyncio
import concurrent.futures
import contextlib
import errno
import functools
import gc
import inspect
import itertools
import re
import threading
import weakref

import nvshare
import pytest
from conftest import ROOT, run_alone
from nvshare import Priority, _calls, _config

SEEDS = ROOT / "tests" / "daemon" / "config"

pytestmark = pytest.mark.filterwarnings("ignore:libnvshare.so is not preloaded")

EVERYTHING = """
import asyncio, threading
import nvshare

@nvshare.latency_critical(slo_ms=10)
def urgent(x):
    return x + 1

@nvshare.best_effort
async def calm(x):
    return x + 2

assert not nvshare.is_loaded()
assert urgent(1) == 2 and asyncio.run(calm(1)) == 3
with nvshare.hint_prepare(100), nvshare.request():
    pass
nvshare.hint_prepare(0)
assert not nvshare.set_priority("high") and not nvshare.set_weight(5)
assert not nvshare.set_slo(1.5) and not nvshare.set_compute_limit(50)
assert not nvshare.status().is_loaded and nvshare.metrics().tasks_completed == 0
threads = [threading.Thread(target=urgent, args=(1,)) for _ in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
with nvshare.GPUScheduler() as scheduler:
    assert scheduler.submit(urgent, (5,)).result() == 6
    assert scheduler.get_metrics().gpu_utilization == 0
print("did all")
"""


def test_everything_does_nothing_and_says_so_once():
    done = run_alone(EVERYTHING, "-W", "always")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "did all\n"
    assert done.stderr.count("RuntimeWarning: libnvshare.so is not preloaded") == 1
    assert done.stderr.startswith("<string>:14: "), "the warning is about the program's line"


def test_importing_alone_says_nothing():
    done = run_alone("import nvshare; nvshare.is_loaded(); nvshare.latency_critical(print)")
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_but_the_standard_library_is_needed():
    done = run_alone("import nvshare", "-S")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "name, call",
    [
        ("us", lambda v: nvshare.hint_prepare(v)),
        ("weight", lambda v: nvshare.set_weight(v)),
        ("percent", lambda v: nvshare.set_compute_limit(v)),
        ("device", lambda v: nvshare.status(v)),
        ("device", lambda v: nvshare.metrics(v)),
        ("gpu_id", lambda v: nvshare.GPUScheduler(gpu_id=v)),
        ("max_workers", lambda v: nvshare.GPUScheduler(max_workers=v)),
        ("slo_ms", lambda v: nvshare.set_slo(v)),
        ("slo_ms", lambda v: nvshare.latency_critical(slo_ms=v)),
        ("priority", lambda v: nvshare.set_priority(v)),
        ("priority", lambda v: nvshare.latency_critical(priority=v)),
        ("priority", lambda v: nvshare.best_effort(priority=v)),
    ],
)
@pytest.mark.parametrize("value", [-1, 1 << 32, float("nan"), True, "many", [], object()])
def test_wrong_arguments_are_named(name, call, value):
    with pytest.raises(ValueError, match=f"^{name}: "):
        call(value)


@pytest.mark.parametrize(
    "call",
    [
        lambda: nvshare.set_weight(0),
        lambda: nvshare.set_weight(10001),
        lambda: nvshare.set_weight(1.5),
        lambda: nvshare.set_compute_limit(0),
        lambda: nvshare.set_compute_limit(101),
        lambda: nvshare.set_slo(0),
        lambda: nvshare.set_slo(0.0001),
        lambda: nvshare.set_slo(3600001),
        lambda: nvshare.hint_prepare(1000001),
        lambda: nvshare.set_priority("CRITICAL "),
        lambda: nvshare.latency_critical(priority=Priority.NORMAL),
        lambda: nvshare.best_effort(priority=Priority.CRITICAL),
    ],
)
def test_borders_are_kept(call):
    with pytest.raises(ValueError):
        call()


@pytest.mark.parametrize("not_a_function", [5, "name", [print]])
def test_only_functions_are_decorated_and_submitted(not_a_function):
    for decorate in (nvshare.latency_critical, nvshare.best_effort, nvshare.latency_critical(slo_ms=1)):
        with pytest.raises(ValueError, match="^function: "):
            decorate(not_a_function)
    with nvshare.GPUScheduler() as scheduler, pytest.raises(ValueError, match="^task: "):
        scheduler.submit(not_a_function)



def test_each_thread_and_task_ends_the_request_that_it_has_begun(monkeypatch):
    """One object, entered by several: what ends first is not what began last."""
    began, ended = iter(range(1, 100)), []

    def call(name, *args):
        return next(began) if name == "nvshare_request_begin" else ended.append(args[0])

    monkeypatch.setattr(_calls, "call", call)
    request = nvshare.request()
    has_begun, may_end = threading.Event(), threading.Event()

    def other():
        with request:
            has_begun.set()
            assert may_end.wait(20)

    with request:
        thread = threading.Thread(target=other)
        thread.start()
        assert has_begun.wait(20)
    assert ended == [1]
    may_end.set()
    thread.join()
    assert ended == [1, 2]

    async def task(begin_after, steps):
        for _ in range(begin_after):
            await asyncio.sleep(0)
        with request, request:
            for _ in range(steps):
                await asyncio.sleep(0)

    async def both():
        with request:  # 3, which the tasks see, and leave alone
            await asyncio.gather(task(0, 3), task(1, 10))
        with request:
            pass

    asyncio.run(both())
    assert ended[2:] == [5, 4, 7, 6, 3, 8]
    assert request._begun == []

    async def numbers():  # ends in another context than it has begun in
        with request:
            yield 1

    async def stop_early():
        async for _ in numbers():
            break

    asyncio.run(stop_early())
    assert ended[-1] == 9 and request._begun == []


def test_requests_that_end_elsewhere_are_forgotten_where_they_began(monkeypatch):
    """With the library, and without it, where each has the same number."""

    @nvshare.latency_critical
    def tokens():
        yield 1

    for begun in (itertools.count(1).__next__, lambda: -errno.ENOTCONN):
        monkeypatch.setattr(_calls, "call", lambda name, *_: begun() if name == "nvshare_request_begin" else 0)
        shared = nvshare.request()
        with concurrent.futures.ThreadPoolExecutor(1) as elsewhere:
            for _ in range(20):
                items = tokens()
                next(items)
                shared.__enter__()
                assert elsewhere.submit(list, items).result() == []
                elsewhere.submit(shared.__exit__, None, None, None).result()
                assert len(_calls._open.get()) <= 2, "what began last may be known yet"
        with shared:
            assert len(_calls._open.get()) == 1
        assert _calls._open.get() == ()


def test_an_object_that_is_called_as_a_coroutine_or_generator_is_one(monkeypatch):
    said = []
    monkeypatch.setattr(_calls, "call", lambda name, *_: said.append(name[8:]) or 1)

    class Coroutine:
        async def __call__(self):
            await asyncio.sleep(0)
            said.append("works")

    class Generator:
        def __call__(self):
            yield
            said.append("works")

    class AsyncGenerator:
        async def __call__(self):
            yield
            said.append("works")

    class Plain:
        def __call__(self):
            said.append("works")

    class Static:
        @staticmethod
        async def __call__():
            said.append("works")

    async def collect(items):
        return [item async for item in items]

    run = {
        Coroutine: asyncio.run,
        Generator: list,
        AsyncGenerator: lambda items: asyncio.run(collect(items)),
        Plain: lambda _: None,
        Static: asyncio.run,
    }
    with nvshare.GPUScheduler() as scheduler:
        for kind, finish in run.items():
            for task in (kind(), functools.partial(kind()), kind().__call__):
                said.clear()
                decorated = nvshare.latency_critical(priority="high")(task)
                finish(decorated())
                assert [s for s in said if s != "set_priority"] == ["request_begin", "works", "request_end"], kind
                for submitted in (task, decorated):
                    if kind is Plain:
                        scheduler.submit(submitted).result()
                        continue
                    with pytest.raises(ValueError, match="^task: .* is not a plain function"):
                        scheduler.submit(submitted)
        assert nvshare.best_effort(Coroutine) is not Coroutine
        assert isinstance(scheduler.submit(Coroutine).result(), Coroutine), "a class only makes one"


class Int16(int):
    """A number of few bits, as numpy has them: what does not fit in is cut off."""

    def __mul__(self, other):
        return Int16((int(self) * other + 0x8000) % 0x10000 - 0x8000)

    def __round__(self):
        return self


def test_numbers_of_few_bits_are_not_cut():
    assert nvshare._check.slo_us(Int16(100)) == 100000


def test_right_arguments_are_taken():
    for value in (Priority.LOW, 0, "low", "LOW", "Low"):
        assert nvshare.set_priority(value) is False
    assert nvshare.set_slo(None) is False and nvshare.set_slo(3600000) is False
    assert nvshare.set_compute_limit(None) is False and nvshare.set_weight(10000) is False
    nvshare.hint_prepare(1000000).cancel()


@pytest.mark.parametrize("decorate", [nvshare.latency_critical, nvshare.best_effort(priority="low")])
def test_decorated_functions_stay_what_they_were(decorate):
    @decorate
    def plain(a, *, b=2):
        """What it does."""
        return a, b

    class Model:
        @decorate
        def method(self, x):
            return self, x

        @staticmethod
        @decorate
        def static(x):
            return x

    @decorate
    def generator():
        got = yield 1
        yield got
        return 5

    @decorate
    async def coroutine(x):
        await asyncio.sleep(0)
        return x

    @decorate
    async def async_generator():
        for x in range(3):
            yield x

    async def collected():
        return [x async for x in async_generator()]

    model = Model()
    assert plain(1, b=3) == (1, 3) and plain.__name__ == "plain" and plain.__doc__ == "What it does."
    assert str(inspect.signature(plain)) == "(a, *, b=2)"
    assert model.method(4) == (model, 4) and Model.static(5) == 5
    items = generator()
    assert inspect.isgeneratorfunction(generator) and next(items) == 1 and items.send(7) == 7
    with pytest.raises(StopIteration) as end:
        next(items)
    assert end.value.value == 5
    assert inspect.iscoroutinefunction(coroutine) and asyncio.run(coroutine(6)) == 6
    assert asyncio.run(collected()) == [0, 1, 2]
    assert decorate(functools.partial(plain, 1))() == (1, 2)


def test_exceptions_come_through():
    @nvshare.latency_critical
    def wrong():
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        wrong()
    with pytest.raises(KeyError), nvshare.hint_prepare(5), nvshare.request():
        raise KeyError


def test_an_exception_calls_a_hint_off(monkeypatch):
    said = []
    monkeypatch.setattr(_calls, "call", lambda *call: said.append(call) or 0)
    with nvshare.hint_prepare(500):
        pass
    assert said == [("nvshare_hint_prepare", 500)]
    with pytest.raises(KeyError), nvshare.hint_prepare(700):
        raise KeyError
    assert said[1:] == [("nvshare_hint_prepare", 700), ("nvshare_hint_prepare", 0)]


def test_an_async_generator_is_closed_with_its_wrapper():
    said = []

    @nvshare.latency_critical
    async def items():
        try:
            yield 1
            yield 2
        finally:
            said.append("closed")

    async def take_one():
        found = items()
        assert await found.__anext__() == 1
        await found.aclose()
        return list(said)

    assert asyncio.run(take_one()) == ["closed"]


def decorated_and_not(function):
    """What a decorator makes of it is to be seen to do the same."""
    return [function, nvshare.latency_critical(function), nvshare.best_effort(function)]


def test_async_generators_are_sent_to_and_thrown_at():
    async def numbers():
        got, n = [], 0
        while len(got) < 3:
            try:
                got.append((yield n))
            except KeyError as error:
                got.append(error)
            n += 1
        yield got

    async def talk(items):
        wrong = KeyError("mine")
        assert await items.asend(None) == 0
        assert await items.asend("a") == 1
        assert await items.athrow(wrong) == 2
        assert await items.__anext__() == ["a", wrong, None]
        with pytest.raises(ValueError) as caught:
            await items.athrow(ValueError("not taken"))
        assert caught.value.__context__ is None
        with pytest.raises(StopAsyncIteration):
            await items.asend(1)

    for function in decorated_and_not(numbers):
        asyncio.run(talk(function()))


def test_an_async_generator_ends_as_it_wants():
    """By what is thrown at it, and by what it makes of that."""

    async def stubborn(then):
        try:
            yield 1
        except BaseException as error:
            if then is None:
                return
            if then == "again":
                raise
            raise then from error

    async def throw(function, then, thrown):
        """What comes back."""
        items = function(then)
        await items.__anext__()
        with pytest.raises(BaseException) as caught:
            await items.athrow(thrown)
        return caught.value

    async def close(function, then):
        items = function(then)
        await items.__anext__()
        await items.aclose()

    for function in decorated_and_not(stubborn):
        for wrong in (KeyError("mine"), asyncio.CancelledError()):
            other = OSError("other")
            assert isinstance(asyncio.run(throw(function, None, wrong)), StopAsyncIteration)
            assert asyncio.run(throw(function, "again", wrong)) is wrong
            assert asyncio.run(throw(function, other, wrong)) is other
            assert other.__context__ is wrong and other.__cause__ is wrong and wrong.__context__ is None
        leave = GeneratorExit()
        assert asyncio.run(throw(function, "again", leave)) is leave
        for stop in (StopAsyncIteration(), StopIteration()):
            found = asyncio.run(throw(function, "again", stop))
            assert isinstance(found, RuntimeError) and found.__cause__ is stop
        asyncio.run(close(function, None))
        asyncio.run(close(function, "again"))
        with pytest.raises(OSError, match="late"):
            asyncio.run(close(function, OSError("late")))


def test_async_generators_that_nobody_ends_are_closed_with_the_loop(caplog):
    """Which closes them in any order, those inside and those around them."""

    async def numbers():
        try:
            yield 1
        finally:
            said.append("closed")

    async def leave(function):
        left.extend(function() for _ in range(20))
        for items in left:
            await items.__anext__()

    for function in decorated_and_not(numbers):
        said, left = [], []
        asyncio.run(leave(function))
        assert said == ["closed"] * 20 and not caplog.records, caplog.text


def test_async_context_managers_see_the_exception():
    def manager(function):
        async def enter(wrong):
            async with contextlib.asynccontextmanager(function)() as said:
                raise wrong
            return said

        return enter

    async def suppresses():
        said = []
        try:
            yield said
        except KeyError as error:
            said.append(error)

    wrong = KeyError("mine")
    for function in decorated_and_not(suppresses):
        assert asyncio.run(manager(function)(wrong)) == [wrong]
        for other in (OSError("mine"), StopAsyncIteration()):
            with pytest.raises(type(other)) as caught:
                asyncio.run(manager(function)(other))
            assert caught.value is other


def test_a_failed_async_generator_leaves_nothing_behind():
    """What it held, as a tensor on the GPU, goes with the exception, not with the next collection."""

    class Tensor:
        pass

    held = []

    async def numbers():
        tensor = Tensor()
        held.append(weakref.ref(tensor))
        yield 1

    async def fail(function):
        items = function()
        await items.__anext__()
        with contextlib.suppress(KeyError):
            await items.athrow(KeyError())

    for function in decorated_and_not(numbers):
        gc.collect()
        gc.disable()
        try:
            asyncio.run(fail(function))
            assert held.pop()() is None
        finally:
            gc.enable()


def test_urgent_tasks_do_not_wait_for_others():
    gate = threading.Event()
    with nvshare.GPUScheduler() as scheduler:
        urgent = scheduler.latency_critical(slo_ms=10)(lambda x, y=0: x + y)
        calm = scheduler.best_effort(gate.wait)
        waiting = [scheduler.submit(calm), scheduler.submit(gate.wait)]
        assert scheduler.submit(urgent, args=(1,), kwargs={"y": 2}).result() == 3
        with pytest.raises(concurrent.futures.TimeoutError):
            waiting[0].result(timeout=0)
        assert not waiting[1].running()
        gate.set()
        assert [w.result() for w in waiting] == [True, True]
    with pytest.raises(RuntimeError):
        scheduler.submit(urgent, (1,))


def test_a_decorated_function_tells_what_kind_of_task_it_is():
    urgent = nvshare.latency_critical(lambda: 1, priority=Priority.HIGH, slo_ms=10).nvshare_task
    calm = nvshare.best_effort(lambda: 1).nvshare_task
    assert isinstance(urgent, nvshare.Task) and isinstance(calm, nvshare.Task)
    assert (urgent.is_latency_critical, urgent.priority, urgent.slo_us) == (True, Priority.HIGH, 10000)
    assert (calm.is_latency_critical, calm.priority, calm.slo_us) == (False, None, 0)


def test_what_is_no_plain_function_is_not_submitted():
    async def coroutine():
        pass

    def generator():
        yield

    with nvshare.GPUScheduler() as scheduler:
        for task in (coroutine, generator, nvshare.latency_critical(coroutine)):
            with pytest.raises(ValueError, match="^task: .* is not a plain function"):
                scheduler.submit(task)


def test_the_config_file_is_read(tmp_path):
    path = tmp_path / "gpu.yaml"
    path.write_text("# of this service\npriority: high  # goes first\n\nslo_ms: 12.5\nweight: 200\ncompute_limit: 50\n")
    nvshare.GPUScheduler(config_file=path)
    nvshare.GPUScheduler(config_file=str(path))
    for text, message in [
        ("weight: 5\nprority: high\n", "2: 'prority' is none of "),
        ("priority high\n", "1: "),
        ("weight: none\n", "1: weight: 'none' is not a whole number from 1 to 10000$"),
        ("priority: urgent\n", "1: priority: 'urgent' is not one of critical, high, normal, low$"),
        ("weight: -5\n", "1: weight: '-5' is not a whole number from 1 to 10000$"),
        ("compute_limit: 101\n", "1: compute_limit: '101' is not a whole number from 1 to 100$"),
        ("compute_limit: 50%\n", "1: compute_limit: '50%' is not a whole number from 1 to 100$"),
        ("weight: 5\nslo_ms: null\n", "2: slo_ms: 'null' is not a number from 0.001 to 3600000$"),
        ("slo_ms: nan\n", "1: slo_ms: 'nan' is not a number from "),
        ("weight: \u0665\n", "1: weight: '\u0665' is not a whole number from "),
        ("slo_ms: \u0665\n", "1: slo_ms: '\u0665' is not a number from "),
        ("weight: 1_0\n", "1: weight: '1_0' is not a whole number from "),
    ]:
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=f"^config_file: .*gpu.yaml:{message}"):
            nvshare.GPUScheduler(config_file=path)
    with pytest.raises(FileNotFoundError):
        nvshare.GPUScheduler(config_file=tmp_path / "none")


def test_the_config_file_is_utf_8(tmp_path):
    path = tmp_path / "gpu.yaml"
    path.write_bytes(b"\xef\xbb\xbfweight: 5  # after a byte order mark\npriority: high  # \xc3\xbcber alles\n")
    nvshare.GPUScheduler(config_file=path)
    for text, number in [(b"weight: 5\npriority: high  # \xfcber alles\n", 2), ("weight: 5\n".encode("utf-16"), 1)]:
        path.write_bytes(text)
        with pytest.raises(ValueError) as error:
            nvshare.GPUScheduler(config_file=path)
        assert str(error.value) == f"config_file: {path}:{number}: not all of it is UTF-8"


def test_of_a_config_file_with_an_error_nothing_is_claimed(tmp_path, monkeypatch):
    claimed = []
    monkeypatch.setattr(_calls, "_claim", lambda *args: claimed.append(args))
    path = tmp_path / "gpu.yaml"
    path.write_text("weight: 200\npriority: high\nslo_ms: fast\n")
    with pytest.raises(ValueError, match="config_file: .*gpu.yaml:3: slo_ms: "):
        nvshare.GPUScheduler(config_file=path)
    assert not claimed
    path.write_text("weight: 200\npriority: high\nslo_ms: 2.5\n")
    nvshare.GPUScheduler(config_file=path)
    assert [args[1] for args in claimed] == [200, Priority.HIGH, 2500]


def names_in(known, path=""):
    """Of all that a section may have, as a warning shows them."""
    if isinstance(known, list):
        return names_in(known[0], path + "[]")
    if isinstance(known, dict):
        return {name for key in known for name in names_in(known[key], f"{path}.{key}".lstrip("."))}
    return {path}


@pytest.mark.parametrize(
    "seed, section, setting",
    [
        ("seed_003.yaml", "scheduler", "scheduler.worker_heartbeat_timeout_seconds (NVSHARE_HEARTBEAT_LIMIT_SEC)"),
        ("seed_004.yaml", "preemption", "preemption.timeslice.be_task_us (NVSHARE_SLICE_BEST_EFFORT_US)"),
    ],
)
def test_what_a_config_file_says_of_the_node_is_left_out_by_name(seed, section, setting):
    with pytest.warns(RuntimeWarning, match=f"config_file: .*{seed}: left out; ") as warnings:
        nvshare.GPUScheduler(config_file=SEEDS / seed)
    said = next(str(w.message) for w in warnings if "left out" in str(w.message))
    found = set(re.findall(rf"{section}\.[\w.\[\]]*", said))
    assert found == names_in(_config._NODE[section], section), "the file has each that is known, and each is named"
    assert setting in said
    assert warnings[0].filename == __file__, "it is about the program's line"


def test_a_config_file_may_have_both(tmp_path):
    path = tmp_path / "both.yaml"
    path.write_text("weight: none\n" + (SEEDS / "seed_004.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(ValueError, match="both.yaml:1: weight: "):
        nvshare.GPUScheduler(config_file=path)
    path.write_text("preemption:\n    scheduling:\n          policy: 'fair'   # by weight\n\nweight: 7\n")
    with pytest.warns(RuntimeWarning, match=r"settings: preemption.scheduling.policy \(NVSHARE_POLICY\)$"):
        nvshare.GPUScheduler(config_file=path)


def test_the_node_s_keys_and_settings_are_those_of_the_scheduler_s_file():
    table = (ROOT / "src" / "daemon" / "settings" / "config_keys.c").read_text()
    sets = dict(re.findall(r'(?:SETS|LISTS)\("([\w.\[\]]+)", \w+, "(\w+)"', table))
    left_out = re.findall(r'LEFT_OUT\("([\w.\[\]]+)"', table)

    def settings_in(known, path=""):
        if isinstance(known, tuple):
            return {path: known[1]}
        if isinstance(known, list):
            return settings_in(known[0], path + "[]")
        return {k: v for key in known for k, v in settings_in(known[key], f"{path}.{key}".lstrip(".")).items()}

    found = settings_in(_config._NODE)
    assert sets and set(found) == {*sets, *left_out}
    assert {path: found[path] for path in sets} == {path: "NVSHARE_" + name for path, name in sets.items()}


@pytest.mark.parametrize(
    "text, number, message",
    [
        ("preemption:\n  timeslices:\n", 2, "'timeslices' is none of enabled, timeslice, "),
        ("preemption:\n  enabled: maybe\n", 2, "enabled: 'maybe' is not true or false"),
        ("preemption:\n  timeslice:\n    be_task_us: -200\n", 3, "be_task_us: '-200' is not a whole number"),
        ("preemption:\n  timeslice:\n    be_task_us: \u0665\n", 3, "be_task_us: '\u0665' is not a whole number"),
        ("preemption:\n  scheduling:\n    policy: lottery\n", 3, "policy: 'lottery' is not one of priority, "),
        ("preemption:\n  priorities:\n    - name: urgent\n", 3, "name: 'urgent' is not one of critical, "),
        ("preemption: true\n", 1, "preemption: 'true' is no section"),
        ("preemption:\n\nweight: 5\n", 1, "nothing stands below preemption"),
        ("preemption:\n  priorities:\n", 2, "nothing stands below preemption.priorities"),
        ("preemption:\n  enabled:\n  resources:\n", 2, "enabled: has no value"),
        ("preemption:\n  enabled: true\n  enabled: true\n", 3, "'enabled' is there twice"),
        ("weight: 5\nweight: 6\n", 2, "'weight' is there twice"),
        ("  weight: 5\n", 1, "its indentation is none of those above it"),
        ("preemption:\n  timeslice:\n    be_task_us: 5\n   enabled: true\n", 4, "its indentation is none of those"),
        ("preemption:\n  enabled: true\n    enabled: true\n", 3, "its indentation is none of those"),
        ("preemption:\n  timeslice:\n    - be_task_us: 5\n", 3, "preemption.timeslice is no list"),
        ("preemption:\n  priorities:\n    level: 5\n", 3, "preemption.priorities is a list"),
        ("preemption:\n  - enabled: true\n", 2, "preemption is no list"),
        ("- weight: 5\n", 1, "its indentation is none of those above it"),
        ("preemption:\n  enabled: true\n- weight: 5\n", 3, "its indentation is none of those above it"),
        ("preemption:\n\tenabled: true\n", 2, "'enabled: true' is not `name: value`"),
        ("scheduler:\n  gpu_ids: [0, x]\n", 2, "gpu_ids: 'x' is not a whole number"),
        ("scheduler:\n  gpu_ids: 0\n", 2, "gpu_ids: '0' is no section"),
        ("scheduler:\n  poll_interval_ms: [5]\n", 2, "poll_interval_ms is no list of values"),
        ("preemption:\n  priorities: []\n", 2, "priorities is no list of values"),
        ("weight: {a: 5}\n", 1, "'weight: {a: 5}' is not `name: value`"),
        ("weight: 'a\n", 1, "\"weight: 'a\" is not `name: value`"),
        ("---\n", 1, "'---' is not `name: value`"),
    ],
)
def test_what_a_config_file_can_not_say_is_named_with_its_line(tmp_path, text, number, message):
    path = tmp_path / "gpu.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError) as error:
        nvshare.GPUScheduler(config_file=path)
    assert str(error.value).startswith(f"config_file: {path}:{number}: {message}")


def test_lists_may_stand_as_far_left_as_their_name(tmp_path):
    path = tmp_path / "gpu.yaml"
    path.write_text(
        "preemption:\n  priorities:\n  - name: high\n    timeslice_us: 5\n  - name: low\n  enabled: true\nslo_ms: 5\n"
    )
    with pytest.warns(RuntimeWarning, match="left out; .*priorities.*timeslice_us .*preemption.enabled "):
        nvshare.GPUScheduler(config_file=path)


def test_a_warning_that_is_an_error_is_the_users_wish():
    done = run_alone("import nvshare\nnvshare.set_weight(1)", "-W", "error")
    assert "RuntimeWarning: libnvshare.so is not preloaded" in done.stderr and done.returncode == 1
