# SPDX-License-Identifier: Apache-2.0
"""Python programs with the library, a scheduler and a simulated GPU."""

import os
import re
import sys

import pytest
from conftest import ROOT, until

sys.path.append(str(ROOT / "tests" / "e2e"))

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")

START = """
import asyncio, contextlib, os, sys, threading, time, warnings
import nvshare
from gpu import start_managed, until

warnings.simplefilter("error")

def tasks():
    return nvshare.metrics().tasks_completed
"""


def test_a_program_sees_and_steers_itself(node, start):
    node.start_scheduler()
    flag = node.flag("go")
    program = start(START + f"""
assert nvshare.is_loaded() and not nvshare.status().is_used
gpu = start_managed()
gpu.alloc(10 << 20)
s = nvshare.status(0)
assert s == nvshare.status() and s.is_used and s.is_running and s.client > 0
assert (s.priority, s.weight, s.slo_ms, s.compute_limit_percent) == (nvshare.Priority.NORMAL, 100, None, None)
assert s.memory_allocated_bytes >= 10 << 20 and s.memory_pinned_bytes >= 4 << 20, s
assert s.memory_allocated_bytes <= s.memory_resident_bytes + s.memory_pinned_bytes
assert not nvshare.status(3).is_used and nvshare.status(3).client is None
assert nvshare.set_priority("high") and nvshare.set_weight(300)
assert nvshare.set_slo(12.5) and nvshare.set_compute_limit(40)
until(lambda: nvshare.status().compute_limit_percent == 40)
s = nvshare.status()
assert (s.priority, s.weight, s.slo_ms) == (nvshare.Priority.HIGH, 300, 12.5), s
print("client", s.client, flush=True)
until(lambda: os.path.exists({str(flag)!r}))
assert nvshare.set_slo(None) and nvshare.set_compute_limit(None)
until(lambda: nvshare.status().compute_limit_percent is None)
assert nvshare.status().slo_ms is None
print("verified")
""")
    until("it has set all", lambda: "client" in program.output())
    found = node.client(program)
    assert f"client {found['id']}\n" in program.output()
    keys = ("priority", "weight", "slo_seconds", "compute_limit_percent")
    assert tuple(found[k] for k in keys) == ("high", 300, 0.0125, 40)
    flag.touch()
    program.expect_verified()


def test_requests_are_measured_once_each(node, start):
    """By threads, coroutines and generators, nested, and ended by exceptions or elsewhere."""
    node.start_scheduler()
    start(START + """
gpu = start_managed()

@nvshare.latency_critical(slo_ms=0.001)
def urgent(x):
    gpu.use()
    gpu.spin(0.1)
    return x

@nvshare.latency_critical
async def later(x):
    await asyncio.sleep(0.001)
    return urgent(x)

@nvshare.latency_critical
def tokens():
    yield from range(3)

@nvshare.latency_critical
async def more_tokens():
    for i in range(3):
        yield i

@nvshare.latency_critical
def wrong():
    raise KeyError

async def many():
    assert await asyncio.gather(*(later(i) for i in range(20))) == list(range(20))
    assert [i async for i in more_tokens()] == [0, 1, 2]
    async for _ in more_tokens():
        break

def grows_by(n, do):
    before = tasks()
    do()
    assert tasks() - before == n, (tasks() - before, n)

def in_threads():
    threads = [threading.Thread(target=lambda: [urgent(i) for i in range(50)]) for _ in range(8)]
    [t.start() for t in threads], [t.join() for t in threads]

def nested():
    again = nvshare.request()
    with again, again, nvshare.request():
        pass
    with again:
        pass

def elsewhere():
    request = nvshare.request()
    request.__enter__()
    thread = threading.Thread(target=request.__exit__, args=(None, None, None))
    thread.start(), thread.join()

def with_errors():
    for _ in range(5):
        with contextlib.suppress(KeyError):
            wrong()

def more_than_can_be_open():
    with contextlib.ExitStack() as stack:
        for _ in range(1100):
            stack.enter_context(nvshare.request())

with nvshare.request():  # from now on bursts are not taken for requests
    pass
grows_by(1, lambda: urgent(1))
until(lambda: nvshare.status().priority == nvshare.Priority.CRITICAL)
until(lambda: nvshare.status().slo_ms == 0.001)
before = nvshare.metrics()
grows_by(400, in_threads)
after = nvshare.metrics()
assert after.slo_violations - before.slo_violations == 400, after
assert 100 <= after.p50_latency_us <= after.p99_latency_us <= after.max_latency_us, after
assert after.last_latency_us >= 100 and after.avg_latency_us > 0
grows_by(40 + 2, lambda: asyncio.run(many()))
grows_by(1, lambda: list(tokens()))
grows_by(4, nested)
grows_by(1, elsewhere)
grows_by(5, with_errors)
grows_by(1024, more_than_can_be_open)
grows_by(1, lambda: urgent(1))
print("verified")
""").expect_verified()


def test_a_generator_is_a_request_until_it_ends(node, start):
    node.start_scheduler()
    start(START + """
gpu = start_managed()
tokens = nvshare.latency_critical(lambda: iter(()))  # not a generator function: over at once

@nvshare.latency_critical
def three():
    yield from range(3)

tokens()
n = tasks()
items = three()
assert tasks() == n
assert next(items) == 0 and next(items) == 1
assert tasks() == n, "it has not ended"
items.close()
assert tasks() == n + 1
print("verified")
""").expect_verified()


def test_the_most_urgent_function_gives_the_class(node, start):
    node.start_scheduler()
    start(START + """
gpu = start_managed()
Priority = nvshare.Priority

def has(priority, slo_ms):
    until(lambda: (nvshare.status().priority, nvshare.status().slo_ms) == (priority, slo_ms))

low = nvshare.best_effort(priority="low")(lambda: None)
plain = nvshare.best_effort(lambda: None)
high = nvshare.latency_critical(priority="high", slo_ms=20)(lambda: None)
urgent = nvshare.latency_critical(slo_ms=10)(lambda: None)
slack = nvshare.latency_critical(slo_ms=30)(lambda: None)
has(Priority.NORMAL, None)
plain()
has(Priority.NORMAL, None)
low()
has(Priority.LOW, None)
high()
has(Priority.HIGH, 20)
n = tasks()
low(), plain()
assert tasks() == n, "work without a hurry is no request"
urgent()
has(Priority.CRITICAL, 10)
n = tasks()
low(), plain()
assert tasks() == n, "the same"
slack(), high()
assert tasks() == n + 2
nvshare.latency_critical(priority="high", slo_ms=40)(lambda: None)()
assert nvshare.set_weight(101)
until(lambda: nvshare.status().weight == 101)  # and so all claims before are in, too
has(Priority.CRITICAL, 10)
assert nvshare.set_priority("normal")
urgent()
has(Priority.NORMAL, 10)  # what was set last stands
print("verified")
""").expect_verified()


CALM = """
gpu = start_managed()

@nvshare.best_effort
def plain():
    return tasks()

@nvshare.best_effort
def items():
    yield from range(2)

@nvshare.best_effort
async def later():
    await asyncio.sleep(0)

@nvshare.best_effort
async def more_items():
    for i in range(2):
        yield i

@nvshare.best_effort
def promoted():
    print("begun", flush=True)
    until(lambda: nvshare.status().priority == nvshare.Priority.CRITICAL)

async def all_of_these():
    await later()
    assert [i async for i in more_items()] == [0, 1]

with nvshare.request():  # from now on bursts are not taken for requests
    pass
n = tasks()
promoted()
with nvshare.GPUScheduler() as scheduler:
    assert scheduler.submit(plain).result() == n
assert plain() == n and list(items()) == [0, 1]
asyncio.run(all_of_these())
assert tasks() == n, "it would keep others off the GPU"
nvshare.latency_critical(lambda: None)()
assert tasks() == n + 1
print("verified")
"""


def test_work_without_a_hurry_is_no_request_of_a_critical_program(node, start):
    node.start_scheduler()
    start(START + CALM, NVSHARE_LATENCY_CRITICAL="1").expect_verified()
    program = start(START + CALM)
    until("a call is under way", lambda: "begun" in program.output())
    assert node.ctl("set", "priority", "critical", f"pid:{program.pid}").returncode == 0
    program.expect_verified()


def test_others_are_held_for_a_decorated_function(node, start):
    node.start_scheduler()
    door = node.flag("door")
    door.touch()
    other = node.app("be", "--rounds", "40", "--door", door)
    until("it computes", lambda: "ready" in other.output())
    held = node.flag("held")
    program = start(START + f"""
gpu = start_managed()

@nvshare.latency_critical(slo_ms=60000)
def infer():
    gpu.spin(5)

while nvshare.metrics().tasks_completed < 20 or not os.path.exists({str(held)!r}):
    with nvshare.hint_prepare(2000):
        time.sleep(0.002)
    infer()
nvshare.hint_prepare(2000).cancel()
m = nvshare.metrics()
assert m.tasks_completed >= 20 and m.slo_violations == 0 and m.hints > 0, m
assert m.busy_seconds > 0 and m.total_preemptions == 0, m
print("verified")
""")
    until("the other one is held", lambda: node.client(other)["held_seconds"] > 0)
    held.touch()
    program.expect_verified()
    node.flag("door.end").touch()
    door.unlink()
    other.expect_verified()
    assert int(re.search(r"library .*\bholds=([0-9]+)", other.output())[1]) > 0, other.output()


def test_metrics_of_a_limited_program(node, start):
    node.start_scheduler()
    start(START + """
gpu = start_managed()
scheduler = nvshare.GPUScheduler(gpu_id=0)
step = scheduler.best_effort(lambda: (gpu.use(), gpu.spin(20)))
with scheduler:
    # At first it rests behind the gate, until it is proven that it can be held.
    while nvshare.metrics().total_preemptions == 0:
        scheduler.submit(step).result()
    m, s = scheduler.get_metrics(), scheduler.get_status()
assert s.is_used and s.compute_limit_percent == 30, s
assert 0 < m.gpu_seconds <= m.busy_seconds and m.total_preemptions > 0, m
assert 0 < m.gpu_utilization < 100, m
assert nvshare.metrics().gpu_utilization is None
assert nvshare.GPUScheduler(gpu_id=1).get_metrics().gpu_utilization == 0
print("verified")
""", NVSHARE_COMPUTE_LIMIT="30").expect_verified()


def test_children_of_fork_are_programs_of_their_own(node, start):
    """What was claimed holds in the child, too; requests, threads and numbers are the parent's."""
    node.start_scheduler()
    start(START + """
urgent = nvshare.latency_critical(slo_ms=10)(lambda x: x + 1)
scheduler = nvshare.GPUScheduler()
assert scheduler.submit(urgent, (1,)).result() == 2
parents = nvshare.request()
parents.__enter__(), parents.__enter__()
pid = os.fork()
if not pid:
    parents.__exit__(None, None, None)
    gpu = start_managed()
    until(lambda: nvshare.status().priority == nvshare.Priority.CRITICAL)
    assert nvshare.status().slo_ms == 10
    n = tasks()
    assert scheduler.submit(urgent, (2,)).result() == 3
    for _ in range(8):
        with nvshare.request():
            pass
    with nvshare.request():
        before = tasks()
        parents.__exit__(None, None, None)  # its number is nobody's here
        assert tasks() == before
    # What it began with may count as a burst, and be known to have ended only now.
    assert n + 10 <= tasks() <= n + 11, (n, tasks())
    assert 0 <= scheduler.get_metrics().gpu_utilization <= 100
    scheduler.shutdown()
    print("child is done", flush=True)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
gpu = start_managed()
n = tasks()
parents.__exit__(None, None, None), parents.__exit__(None, None, None)
assert n + 2 <= tasks() <= n + 3, (n, tasks())
scheduler.shutdown()
print("verified")
""").expect_verified()


def test_without_a_scheduler_requests_are_measured(node, start):
    start(START + """
from gpu import Gpu
assert not nvshare.set_priority("critical")
urgent = nvshare.latency_critical(slo_ms=0.001)(lambda: gpu.spin(1))
gpu = Gpu()
until(lambda: nvshare.status().is_used)
urgent(), urgent()
m, s = nvshare.metrics(), nvshare.status()
assert (m.tasks_completed, m.slo_violations) == (2, 2), m
assert not s.is_managed and s.client is None, s
nvshare.hint_prepare(100)
print("verified")
""").expect_verified()


@needs_root
def test_a_refused_claim_is_told_and_stops_nothing(node, start):
    from scheduler_node import open_to_all

    node.start_scheduler()
    open_to_all(node.sock_dir)
    program = start(START + """
gpu = start_managed()
os.seteuid(65534)
warnings.simplefilter("default")
urgent = nvshare.latency_critical(slo_ms=10)(lambda x: x)
assert [urgent(i) for i in range(3)] == [0, 1, 2]
for set_it in (lambda: nvshare.set_priority("critical"), lambda: nvshare.set_weight(7)):
    try:
        set_it()
    except PermissionError as error:
        print("refused:", error.strerror)
    else:
        raise AssertionError("it was granted")
os.seteuid(0)
print("all refused", flush=True)
until(lambda: not nvshare.status().is_managed)
until(lambda: nvshare.status().is_managed)
s = nvshare.status()  # the next scheduler, which would grant it, is not asked
assert (s.priority, s.weight, s.slo_ms) == (nvshare.Priority.NORMAL, 100, None), s
print("verified")
""")
    until("all are refused", lambda: "all refused" in program.output())
    node.kill_scheduler()
    node.start_scheduler()
    said = program.expect_verified()
    assert said.count("RuntimeWarning: nvshare: cannot set priority critical: Permission denied") == 1
    assert said.count("RuntimeWarning: nvshare: cannot set an SLO of 10.0 ms: Permission denied") == 1
    assert "refused: cannot set priority critical: " in said and "refused: cannot set weight 7: " in said
