# SPDX-License-Identifier: Apache-2.0
"""What single programs see of the library: every API family, queries, forks, resets."""

import hashlib

import pytest

from conftest import MIB, until


@pytest.mark.parametrize("resolve", ["dlsym", "procaddress"])
@pytest.mark.parametrize("backend", ["auto", "vmm", "managed", "none"])
def test_every_family_of_allocations_works(node, backend, resolve):
    node.start_scheduler()
    bare = node.app("families", preload=False).expect(0)
    out = node.app("families", NVSHARE_MEMORY_BACKEND=backend, NVSHARE_APP_RESOLVE=resolve).expect(0)
    assert out == bare
    node.expect_empty()
    node.expect_sound_scheduler()


def test_queries_answer_as_without_the_library(node):
    bare = node.app("queries", preload=False).expect(0)
    node.start_scheduler()
    assert node.app("queries").expect(0) == bare


def test_digests_of_the_gpu_are_those_of_the_cpu(node):
    out = node.app("digest", "--cases", 300, "--flips", 20, "--sizes", "16MiB,64MiB", "--times", 2,
                   preload=False).expect(0)
    assert "compared=374" in out and "verified" in out


@pytest.mark.parametrize("call", ["cuModuleLoadData", "cuModuleGetFunction", "cuModuleGetGlobal", "cuMemHostAlloc"])
def test_a_driver_that_has_no_digests_says_so(node, call):
    node.app("digest", preload=False, NVSHARE_SIM_FAIL=f"{call}:1:801").expect(77)


@pytest.mark.parametrize("backend", ["vmm", "managed", "none"])
def test_reset_contexts_leave_nothing(node, backend):
    node.start_scheduler()
    node.app("reset", "--rounds", 4, "--size", "200MiB", NVSHARE_MEMORY_BACKEND=backend).expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


GREENS = ["launch", "late", "current", "default", "event", "capture", "reset"]


@pytest.mark.parametrize("case", GREENS)
def test_green_contexts_end_before_their_streams(node, case):
    """The simulated driver ends a program that touches one afterwards."""
    node.start_scheduler()
    node.app("greens", "--case", case).expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_ends_of_green_contexts_mix(node):
    node.start_scheduler()
    node.app("greens", preload=False).expect_verified()
    node.app("greens", NVSHARE_APP_RESOLVE="procaddress").expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


@pytest.mark.parametrize("backend", ["vmm", "none"])
def test_freed_memory_waits_for_its_stream(node, backend):
    node.start_scheduler()
    node.app("ordered", preload=False).expect_verified()
    node.app("ordered", NVSHARE_MEMORY_BACKEND=backend).expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_freed_memory_waits_for_its_stream_while_memory_moves(node):
    node.start_scheduler(NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="0.1")
    enough = node.flag("enough")
    other = node.app("oversub", "--async", "--size", "200MiB", "--until", enough)
    until("the other one is there", lambda: (c := node.client(other)) and c["memory_allocated"] >= 200 * MIB)
    node.app("ordered", "--size", "6MiB", "--rounds", 20, "--moving").expect_verified()
    enough.touch()
    other.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


@pytest.mark.parametrize("backend", ["vmm", "none"])
def test_host_memory_of_the_program_s_own_goes_from_process_to_process(node, backend):
    lend = ["lend", "--size", "32MiB", "--slab", "8MiB"]
    node.app(*lend, preload=False).expect_verified()
    node.start_scheduler()
    node.app(*lend, NVSHARE_MEMORY_BACKEND=backend).expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_forks_at_all_moments(node):
    node.start_scheduler()
    node.app("forker", "--rounds", 3, "--size", "16MiB").expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_forks_while_taking_turns(node):
    node.start_scheduler()
    enough = node.flag("enough")
    other = node.app("oversub", "--size", "200MiB", "--until", enough)
    until("the other one is there", lambda: (c := node.client(other)) and c["memory_allocated"] >= 200 * MIB)
    node.app("forker", "--rounds", 3, "--size", "60MiB").expect_verified()
    enough.touch()
    other.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_no_capture_breaks_while_memory_moves(node):
    """The strictest capture mode, against drains, frees and evictions of two programs."""
    node.start_scheduler(NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="0.1")
    enough = node.flag("enough")
    programs = [
        node.app("capture", "--rounds", 20, "--size", "130MiB", "--until", enough,
                 "--name", f"capture{i}", name=f"capture{i}")
        for i in range(2)
    ]
    until("the GPU changed hands", lambda: node.gpu()["switches"] >= 30)
    enough.touch()
    for program in programs:
        program.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_peer_memory_of_two_gpus(node):
    node.env["NVSHARE_SIM_GPUS"] = "2"
    node.start_scheduler()
    bare = node.app("peer", preload=False)
    assert bare.wait() in (0, 77)
    node.app("peer").expect(bare.wait())
    node.expect_empty(0)
    node.expect_empty(1)


def test_kernels_that_are_submitted_ahead_all_run(node):
    node.start_scheduler(NVSHARE_SCHEDULING_MODE="serial")
    programs = [
        node.app("spin", "--ms", 5, "--kernels", 100, "--ahead", 7, "--size", "32MiB", name=f"spin{i}")
        for i in range(3)
    ]
    for program in programs:
        program.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_video_writes_the_stream_that_another_decoder_took(node, tmp_path):
    """No engine here decodes it: ffmpeg 5.1 made of these bytes exactly the pictures that the program expects."""
    stream = tmp_path / "stream.h264"
    node.app("video", "--write", stream, "--size", 256, "--batch", 4, "--raw", 3, preload=False).expect(0)
    assert hashlib.sha256(stream.read_bytes()).hexdigest() == (
        "5bffc209e64cf1ce6557f612a5dd454e18b547aa9b537507cb24a6aa93eeaf50")


@pytest.mark.parametrize("app", ["video", "flow"])
def test_without_its_library_a_program_for_an_engine_skips(node, app):
    assert "cannot open shared object file" in node.app(app, "--library", "/nowhere.so", preload=False).expect(77)
