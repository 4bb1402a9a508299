# SPDX-License-Identifier: Apache-2.0
"""Runs test programs, JOBS at a time, and what failed again, alone: scripts/run-tests.

Unit tests wait more than they compute. Prints one line a program; if it fails, its output follows.
RUNNER: a command with options that runs a program of another processor.
"""

import concurrent.futures
import os
import pathlib
import shlex
import subprocess
import sys
import time

import verdict

# Of a program, which has many tests; a sanitizer's build of one takes minutes on a busy machine.
LIMIT_S = 600
LIMIT_ALONE_S = 1500


class Run:
    """One run of a program, and what came of it."""

    def __init__(self, program, log, is_alone=False):
        self.program, self.log, self.is_alone = program, log, is_alone
        mark = f"TEST_RUN={os.getpid()}-{time.monotonic_ns()}-{os.path.basename(program)}"
        name, _, value = mark.partition("=")
        env = {**os.environ, name: value} | ({verdict.ALONE: "1"} if is_alone else {})
        begin = time.monotonic()
        with open(log, "wb") as out:
            process = subprocess.Popen([*shlex.split(os.environ.get("RUNNER", "")), program],
                                       stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env)
            added = self.wait(process, mark.encode())
            self.code = process.returncode
            self.ms = int(1000 * (time.monotonic() - begin))
            left = verdict.left_over(mark.encode())
            out.seek(0, os.SEEK_END)
            out.write((added + left).encode())
        self.is_passed = self.code == 0 and not left
        self.never = None if self.is_passed else self.why_never()

    def wait(self, process, mark):
        limit = LIMIT_ALONE_S if self.is_alone else LIMIT_S
        try:
            process.wait(limit)
            return ""
        except subprocess.TimeoutExpired:
            said = f"\nnot within {limit} s\n{verdict.stacks([process.pid, *verdict.processes(mark)])}"
            verdict.end_all(mark)
            process.kill()
            process.wait()
            return said

    def output(self):
        return self.log.read_text(errors="replace")

    def why_never(self):
        if "/tests/sim/" in f"/{self.program}":
            return "a simulation, which is the same each time"
        return verdict.why_never(self.output(), self.code)

    def tell(self):
        if self.is_passed:
            print(f"ok      {self.ms:7} ms  {self.program}", flush=True)
            return
        then = f" ({self.never}: never flaky)" if self.never else ""
        print(f"failed  {self.ms:7} ms  {self.program}: exit {self.code}{then}\n{self.output()}", flush=True)


def log_name(program):
    """Programs of several folders share a name, so the folder is a part of it."""
    return "-".join(pathlib.Path(program).parts[-2:])


def passes_alone(first, logs):
    """In one of two more runs; what a flaky test is."""
    for i in range(verdict.MORE_RUNS):
        run = Run(first.program, logs / f"{log_name(first.program)}.again-{i + 1}.log", is_alone=True)
        run.tell()
        if run.is_passed or run.never:
            return run.is_passed
    return False


def main(jobs, folder, *programs):
    logs = pathlib.Path(folder)
    logs.mkdir(parents=True, exist_ok=True)
    failed = []
    with concurrent.futures.ThreadPoolExecutor(int(jobs)) as pool:
        runs = [pool.submit(Run, program, logs / f"{log_name(program)}.log") for program in programs]
        for done in concurrent.futures.as_completed(runs):
            done.result().tell()
            if not done.result().is_passed:
                failed.append(done.result())
    again = [run for run in failed if not run.never]
    if len(again) > verdict.FLAKY_MAX:
        again = []
    flaky = [run for run in again if passes_alone(run, logs)]
    for run in failed:
        print(f"{'FLAKY' if run in flaky else 'FAILED'} {run.program} ({run.log})", flush=True)
    return 0 if failed == flaky else 1


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: scripts/run-tests JOBS LOG_FOLDER PROGRAM...")
    sys.exit(main(*sys.argv[1:]))
