# SPDX-License-Identifier: Apache-2.0
"""What tests of jobs share: `nvsharectl run` on the simulated node, and the queue as it shows it."""

import json
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from conftest import Node, until  # noqa: E402

NOBODY = 65534
FULL = "170M"  # of 256 MiB: with a margin of 10 %, one such job fits on a GPU, and two do not


class JobsNode(Node):
    def __init__(self, folder):
        super().__init__(folder)
        (folder / "state").mkdir()
        self.scheduler_env |= {"STATE_DIRECTORY": str(folder / "state"), "NVSHARE_JOB_GRACE_SEC": "1"}

    def run(self, *args, name=None, before=(), **env):
        """nvsharectl run with these arguments."""
        return self.start([*before, self.build / "nvsharectl", "run", *args], name, preload=False, **env)

    def hold(self, *options, until_flag="enough", **env):
        """A job that waits for room, takes no GPU memory, and ends when the flag is there."""
        loop = f"while [ ! -e {self.flag(until_flag)} ]; do sleep 0.02; done"
        return self.run("--whole", "--memory", FULL, *options, "--", "sh", "-c", loop, **env)

    def queue(self, *args):
        done = self.ctl("queue", "--json", "--all", *args)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def job(self, program, *args):
        """The job of a process; None: it has none."""
        pid = program if isinstance(program, int) else program.pid
        return next((j for j in self.queue("--ended", *args)["jobs"][::-1] if j["pid"] == pid), None)

    def await_state(self, program, state):
        def found():
            job = self.job(program)
            return job if job and job["state"] == state else None
        return until(f"a job that is {state}", found)

    def place(self, *args):
        done = self.ctl("place", "--dry-run", "--json", *args)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def expect_no_jobs(self):
        """None lives, and nothing is reserved."""
        def is_free():
            found = self.queue()
            return not found["jobs"] and all(g["programs"] == 0 for g in self.place("--memory", "1M")["gpus"])
        until("no job is left", is_free)

    def journal(self):
        return self.sock_dir / "jobs.journal"


@pytest.fixture
def node(tmp_path):
    made = JobsNode(tmp_path)
    yield made
    made.flag("enough").touch()
    made.close()


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
