# SPDX-License-Identifier: Apache-2.0
"""The programs that freeze themselves do it, and tell a driver that would hang from one that does not."""


import os
import pathlib
import signal
import subprocess

import pytest

from conftest import MIB, deep, until

REHEARSE = pathlib.Path(__file__).parents[1] / "gpu" / "rehearse"


# A step that hangs does so for ever: --hang-ms is the patience. --settle-ms is for a thread to get into its call; a
# shorter one on a busy machine would have nothing to find.


def test_memory_moves_whatever_call_of_the_driver_a_thread_is_in(node):
    program = node.app("locks", "--freezes", "30", "--size", "4MiB", "--hang-ms", "10000", preload=False)
    program.expect_verified()
    assert "hangs=0" in program.output()


def test_host_memory_is_not_registered_beside_a_context_that_ends(node):
    """As on a real card; no freeze of the library's begins there."""
    program = node.app("locks", "--freezes", "2", "--call", "26", "--size", "4MiB", "--hang-ms", "300",
                       "--settle-ms", "2000", preload=False)
    program.expect_verified()
    assert "hangs=0" in program.output()
    assert "hangs_apart=0" not in program.output()


def test_a_driver_whose_locks_keep_the_agent_out_is_noticed(node):
    program = node.app("locks", "--freezes", "1", "--call", "4", "--size", "4MiB", "--hang-ms", "300",
                       "--settle-ms", "2000", preload=False, NVSHARE_SIM_LOCKS="process")
    program.expect(1)
    assert "hangs=1" in program.output()


def test_every_load_survives_being_frozen_over_and_over(node):
    program = node.app("latency", "--times", "10", "--size", "1MiB", preload=False)
    program.expect_verified()
    assert "freezes=50" in program.output()


@pytest.mark.slow
@pytest.mark.parametrize("section", ["freeze", "frozen-oversub", "switch", "digest", "switch-more", "kills", "latency",
                                     "shares", *deep("unmap", "small-switch", "alternate-90", "latency-torch", "caps")])
def test_the_measurements_for_a_real_card_work_on_the_simulated_one(build, section):
    with subprocess.Popen([str(REHEARSE), section], env={**os.environ, "NVSHARE_BIN": str(build)}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True) as run:
        try:
            output = run.communicate(timeout=400)[0]
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGTERM)  # the scripts clear up behind themselves
            output = run.communicate(timeout=60)[0]
    assert run.returncode == 0, output


def test_measurements_without_a_gpu_leave_earlier_results_alone(build, tmp_path):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho No devices were found; exit 6\n")
    tool.chmod(0o755)
    (tmp_path / "probe.txt").write_text("of last year\n")
    run = subprocess.run([REHEARSE.with_name("run"), "probe"], capture_output=True, text=True, check=False,
                         env={**os.environ, "NVSHARE_BIN": str(build), "NVSHARE_RESULTS": str(tmp_path),
                              "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert (run.returncode, run.stdout) == (2, "") and "No devices were found" in run.stderr
    assert (tmp_path / "probe.txt").read_text() == "of last year\n"


def stop_before_the_proof(node, name):
    """Starts two programs that take turns, and returns them with whether the first stop of the long one found no kernel."""
    long = node.app("spin", "--ms", "2500", "--ahead", "2", "--kernels", "10", "--size", "40MiB", name=name,
                    NVSHARE_DEBUG="1", NVSHARE_DRAIN_MS="0", NVSHARE_DRAIN_MAX_MS="600000",
                    CUDA_DEVICE_MAX_CONNECTIONS="1")
    until("it computes", lambda: (c := node.client(long)) and c["memory_resident"] >= 40 * MIB)
    other = node.app("oversub", "--size", "40MiB", "--buffers", "8", "--rounds", "20", "--passes", "1",
                     "--until", node.flag("enough"), name="other")
    until("it was stopped", lambda: "evicted " in long.output())
    return long, other, ", frozen\n" in long.output().split("evicted ")[0]


def test_a_long_kernel_in_the_way_of_the_proof_delays_it_and_no_more(node):
    """All its streams share one queue: what is to show that freezing works waits for the kernel."""
    node.env.update(NVSHARE_SIM_MEMORY="64MiB", NVSHARE_SIM_CONTEXT="1MiB")
    node.start_scheduler(NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="0.1")
    # A busy machine may stop it before its first kernel, or between two: then there was nothing to wait for.
    for name in ("first", "second", "third", "fourth"):
        long, other, is_frozen = stop_before_the_proof(node, name)
        if not is_frozen:
            break
        for program in (long, other):
            program.kill()
            program.wait()
    # However late one looks: before its memory went for the first time it was waited for, not frozen.
    assert not is_frozen
    until("it was frozen", lambda: ", frozen\n" in long.output())
    assert node.client(long)["stops_by"] == "freeze"
    node.finish([long, other])
