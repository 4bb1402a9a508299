# SPDX-License-Identifier: Apache-2.0
"""The commands of README.md and of the manual for a job on a machine, as they stand there."""

import os
import pathlib
import re
import sys

from conftest import until
from jobs_node import node  # noqa: F401

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "operator"))

from documents import Documents, row  # noqa: E402


def shell(node, line, **env):  # noqa: F811
    path = f"{node.build}:{os.environ['PATH']}"
    return node.start(["sh", "-c", f"cd {node.folder} && exec {line}"], preload=False, PATH=path, **env)


def test_the_commands_run_as_they_are_written(node):  # noqa: F811
    documents = Documents([("src/man/nvsharectl.1.md", "RUN")])
    run, look = documents.lines
    assert row("a machine") == [run, look]
    program = [str(node.build / "tests" / "apps" / "oversub"), "--size", "40MiB", "--passes", "1",
               "--until", str(node.flag("enough"))]
    (node.folder / "train.py").write_text(f"import os\nos.execv({program[0]!r}, {program})\n")
    node.env["NVSHARE_SIM_MEMORY"] = "24GiB"
    node.start_scheduler()
    job = shell(node, run)
    until("its program uses the GPU", lambda: any(j["programs"] and j["peak"] for j in node.queue()["jobs"]))
    (found,) = node.queue()["jobs"]
    assert found["memory"] == 8 << 30 and found["model"] == "resnet50" and found["pid"] == job.pid
    assert re.search(rf"^ +{found['job']} +{job.pid} .* running ", shell(node, look).expect(0), re.MULTILINE)
    node.flag("enough").touch()
    job.expect_verified()
