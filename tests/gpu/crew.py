# SPDX-License-Identifier: Apache-2.0
"""Programs that are started once, and work while their door is open (tests/apps/lib/door.h).

Latency-critical programs (lc) report their requests' latencies when the door closes. Best-effort
programs (be) report their progress on the way, which gives a rate between any two moments.
"""

import subprocess
import time
from dataclasses import dataclass

from rig import Rig

AROUND = 0.6  # seconds that a window usually takes beyond its length
TELL_PATIENCE = 15  # seconds for a program's report after its door has closed


def pairs(text):
    """The key=value pairs of a line, as numbers."""
    found = {}
    for part in text.split():
        key, _, value = part.partition("=")
        try:
            found[key] = float(value)
        except ValueError:
            pass
    return found


class Worker:
    def __init__(self, program, door, label):
        self.program = program
        self.door = door
        self.label = label
        self.n_told = 0  # number of its lines when the door was opened
        self.is_missed = False  # its unexpected end has been reported

    def find(self, word, since=0):
        """The pairs of its lines with the word. The library's lines between them are skipped."""
        begin = f"{self.program.name} {word} "
        return [pairs(text) for _, text in self.program.lines[since:] if f"{text} ".startswith(begin)]

    def open(self, *numbers):
        self.n_told = len(self.program.lines)
        draft = self.door.with_suffix(".draft")
        draft.write_text(" ".join(str(n) for n in numbers))
        draft.rename(self.door)

    def shut(self):
        self.door.unlink(missing_ok=True)

    def said(self, word):
        """The last such line since the door was opened, or None."""
        found = self.find(word, self.n_told)
        return found[-1] if found else None

    def work_at(self, at_ns):
        """Kernels (or steps) done at that time, interpolated between two reports."""
        points = [(p["at_ns"], p["kernels"]) for p in self.find("at") + self.find("rests")]
        before = [p for p in points if p[0] <= at_ns]
        after = [p for p in points if p[0] > at_ns]
        if not before or not after:
            return (max(before) if before else min(after))[1] if points else 0.0
        (t0, n0), (t1, n1) = max(before), min(after)
        return n0 + (n1 - n0) * (at_ns - t0) / (t1 - t0)

    def rate(self, from_ns, to_ns):
        seconds = (to_ns - from_ns) / 1e9
        return (self.work_at(to_ns) - self.work_at(from_ns)) / seconds if seconds > 0 else 0.0


@dataclass
class Job:
    """An order for a worker. which: the number of its kind of work, if it has several."""

    worker: Worker
    which: int = 0
    is_after: bool = False  # the GPU does other work of the program before each request
    mean_ms: int = 0  # mean time between two requests; 0: as on its command line

    def open(self, hint_us=0, n_warm=0):
        more = [int(self.is_after), self.mean_ms] if self.is_after or self.mean_ms else []
        self.worker.open(hint_us, n_warm, self.which, *more)


@dataclass
class Window:
    """The result of one window."""

    lc: dict  # {}: no latency-critical program
    rates: list  # kernels a second of each best-effort program
    from_ns: float
    to_ns: float
    preemptions: float = 0
    is_slices_only: bool = False
    overhead_us: tuple = (0.0, 0.0)  # beyond the freeze call: p50 and p99 of the last 128 preemptions
    used: dict = None  # {name: part of the GPU's time by the scheduler's account}


class Crew:
    """All programs of a measurement, and its remaining time."""

    def __init__(self, folder_of_build, budget):
        self.rig = Rig(folder_of_build)
        self.end = time.monotonic() + budget
        self.workers = []
        self.is_ok = True

    def left(self):
        return self.end - time.monotonic()

    def hire(self, label, preload, command, **env):
        """command: a function that makes the command line from a name and a door."""
        name = f"{label}{'' if preload else '-plain'}"
        door = self.rig.path / f"{name}.door"
        program = self.rig.start(name, *command(name, door), preload=preload, **env)
        self.workers.append(Worker(program, door, label))
        return self.workers[-1]

    def app(self, label, app, *options, preload=True, **env):
        path = self.rig.bin / "tests" / "apps" / app
        return self.hire(label, preload, lambda name, door: (path, *options, "--name", name, "--door", door), **env)

    def until_ready(self, workers, patience):
        """Reports programs that fail to start; the others go on without them."""
        end = time.monotonic() + min(patience, self.left())
        for worker in workers:
            while not worker.find("ready") and worker.program.is_alive() and time.monotonic() < end:
                time.sleep(0.02)
            if not worker.find("ready"):
                worker.program.kill()
                worker.is_missed = True
                self.fail(worker.program.name, f"did not get ready:\n{worker.program.tail()}")

    def wait(self, seconds, workers):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.check(workers)
            time.sleep(0.02)

    @staticmethod
    def check(workers):
        for worker in workers:
            if not worker.program.is_alive():
                text = "" if worker.is_missed else f":\n{worker.program.tail()}"
                worker.is_missed = True
                raise RuntimeError(f"{worker.program.name} has ended{text}")

    def await_word(self, workers, word):
        end = time.monotonic() + TELL_PATIENCE
        for worker in workers:
            while worker.said(word) is None:
                self.check([worker])
                if time.monotonic() > end:
                    raise RuntimeError(f"{worker.label} does not say '{word}':\n{worker.program.tail(5)}")
                time.sleep(0.01)

    def run(self, steps, longest, shortest=0.8, around=AROUND):
        """steps: [(name, function of its window's seconds)], which share the remaining time."""
        for i, (what, step) in enumerate(steps):
            if self.left() < shortest:
                self.fail(what, f"no time left for it and {len(steps) - i - 1} more")
                return
            share = self.left() / (len(steps) - i) - around
            try:
                step(max(shortest, min(longest, share)))
            except Exception as error:  # pylint: disable=broad-except # the other steps still count
                self.fail(what, f"{type(error).__name__}: {error}")

    def ctl(self, *args):
        done = subprocess.run([str(self.rig.bin / "nvsharectl"), *args], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=10, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"nvsharectl {' '.join(args)}: {done.stdout.strip()}")

    def usage(self):
        """The scheduler's (preemptions, slices only, {name: seconds}, overhead in us), or zeros."""
        try:
            status = self.rig.status() or {"gpus": [], "clients": []}
        except Exception:  # pylint: disable=broad-except # a measurement goes on without
            status = {"gpus": [], "clients": []}
        return (sum(g.get("preemptions", 0) for g in status["gpus"]),
                any(c.get("slices_only") for c in status["clients"]),
                {c["name"]: c.get("gpu_seconds", 0.0) for c in status["clients"]},
                tuple(max((g.get("preempt_overhead_seconds", {}).get(at, 0.0) * 1e6
                           for g in status["gpus"]), default=0.0) for at in ("p50", "p99")))

    def together(self, lc, bes, seconds, hint_us=0, n_warm=0, settle=0.3):
        """Measures jobs. lc: the latency-critical one, or None. The first n_warm requests do not count."""
        workers = [be.worker for be in bes]
        everybody = workers + ([lc.worker] if lc else [])
        self.check(everybody)
        try:
            for be in bes:
                be.open()
            self.await_word(workers, "at")
            self.wait(settle, everybody)
            n_before, _, used_before, _ = self.usage()
            start_ns = time.monotonic_ns()
            if lc:
                lc.open(hint_us, n_warm)
            self.wait(seconds, everybody)
            found = {}
            if lc:  # before the status, whose answer would delay a request
                lc.worker.shut()
                self.await_word([lc.worker], "verified")
                found = lc.worker.said("verified")
                if not found["requests"]:
                    raise RuntimeError(f"no request of {lc.worker.label} has ended")
            n_after, is_slices_only, used, overhead_us = self.usage()
            end_ns = time.monotonic_ns()
        finally:
            for worker in everybody:
                worker.shut()
        self.await_word(workers, "rests")
        from_ns, to_ns = found.get("from_ns", start_ns), found.get("to_ns", end_ns)
        rates = [worker.rate(from_ns, to_ns) for worker in workers]
        used = {name: (s - used_before.get(name, 0.0)) * 1e9 / (end_ns - start_ns) for name, s in used.items()}
        return Window(found, rates, from_ns, to_ns, n_after - n_before, is_slices_only, overhead_us, used)

    def report(self):
        """Prints the scheduler's last status, and its warnings."""
        done = subprocess.run([str(self.rig.bin / "nvsharectl"), "status"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=10, check=False)
        print(done.stdout)
        for _, text in self.rig.scheduler.lines:
            if "holds-slow" in text or "warn" in text or "error" in text:
                print(f"  {text}")

    def fail(self, what, error):
        self.is_ok = False
        print(f"  {what}: FAILED: {error}", flush=True)

    def close(self):
        """Ends the programs that still run; they must end well."""
        try:
            self.report()
        except Exception as error:  # pylint: disable=broad-except # all that matters has been printed
            self.fail("nvsharectl status", error)
        for worker in self.workers:
            worker.door.with_suffix(".door.end").touch()
            worker.shut()
        for worker in self.workers:
            code = worker.program.wait(max(1.0, min(10.0, self.left() + 10)))
            if code != 0 and not worker.is_missed:
                self.fail(worker.program.name, f"ended with {code}\n{worker.program.tail(5)}")
        scheduler = self.rig.scheduler
        if scheduler and not scheduler.is_alive():
            self.fail("the scheduler", scheduler.tail())
        self.rig.close()


def measure(kinds, args):
    """Runs the kind that args.what names, with a crew, for args.budget seconds. Returns the exit status."""
    crew = Crew(args.bin, args.budget)
    try:
        crew.rig.start_scheduler()
        kinds[args.what](crew, args)
    except Exception as error:  # pylint: disable=broad-except # what was measured has been printed
        crew.fail(args.what, f"{type(error).__name__}: {error}")
    finally:
        crew.close()
    return 0 if crew.is_ok else 1
