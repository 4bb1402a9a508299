# SPDX-License-Identifier: Apache-2.0
"""Who answers when a program looks a driver function up, in every way it can.

The probe checks; here it is run alone, between other libraries that stand in the way, and
with the driver linked or loaded by itself. The driver is a fake that does nothing.
"""

import os
import subprocess

import pytest

BUILD = os.environ["NVSHARE_BUILD"]
HERE = os.path.join(BUILD, "tests/hook/preload")
OURS = os.path.join(BUILD, "libnvshare.so")
CHAIN1, CHAIN2, CHAIN3 = (os.path.join(HERE, f"libchain{n}.so") for n in (1, 2, 3))
TRAP, WALKER = (os.path.join(HERE, f"lib{name}.so") for name in ("trap", "walker"))
FAKE = os.path.join(HERE, "fake", "libcuda.so.1")


def run(command, preload, **env):
    """Runs command with libraries in front of it; returns the finished process."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NVSHARE")}
    clean.update(env, LD_PRELOAD=":".join(preload))
    return subprocess.run(command, env=clean, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("probe", ["probe", "probe_linked"])
@pytest.mark.parametrize(
    "preload, said",
    [
        ([OURS], ""),
        ([CHAIN1, OURS, CHAIN3], "13"),
        ([CHAIN1, OURS, CHAIN2, CHAIN3], "123"),
        ([CHAIN2, OURS, CHAIN3], "23"),
        ([OURS, CHAIN2, CHAIN1, CHAIN3], "213"),
        ([WALKER, OURS], ""),
        ([OURS, WALKER], ""),
    ],
)
def test_look_ups_give_ours_for_the_drivers_and_nothing_else(probe, preload, said):
    done = run([os.path.join(HERE, probe), said], preload, LD_LIBRARY_PATH=os.path.join(HERE, "fake"))
    assert done.stdout == ""
    assert done.stderr == ""
    assert done.returncode == 0


def test_a_driver_that_is_preloaded_first_is_reached_through_ours():
    done = run([os.path.join(HERE, "probe_linked"), ""], [FAKE, OURS], LD_LIBRARY_PATH=os.path.join(HERE, "fake"))
    assert done.stdout == ""
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.parametrize(
    "preload",
    [
        [TRAP, OURS], [OURS, TRAP], [TRAP, OURS, FAKE], [OURS, FAKE, TRAP],
        [WALKER, OURS], [OURS, WALKER], [WALKER, OURS, FAKE],
    ],
    ids=lambda libraries: "-".join(os.path.basename(library).split(".")[0] for library in libraries),
)
def test_nothing_that_is_interposed_is_called_before_main(preload):
    done = run([os.path.join(HERE, "starter")], preload)
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.parametrize(
    "command, said",
    [
        (["/bin/sh", "-c", "echo $((6 * 7)); exit 3"], "42\n"),
        ([os.path.join(HERE, "probe_static")], "static\n"),
    ],
)
def test_programs_without_cuda_see_no_change(command, said):
    with_us = run(command, [OURS])
    without = run(command, [])
    assert with_us.stdout == said
    assert (with_us.stdout, with_us.stderr, with_us.returncode) == (
        without.stdout,
        without.stderr,
        without.returncode,
    )


def test_a_shell_starts_no_thread_and_opens_no_file():
    listing = "ls /proc/self/task | wc -l; ls -l /proc/self/fd | wc -l"
    assert run(["/bin/sh", "-c", listing], [OURS]).stdout == run(["/bin/sh", "-c", listing], []).stdout
