# SPDX-License-Identifier: Apache-2.0
"""Programs with the runtime of a sanitizer, and libraries that stand in its place.

Such a runtime looks hundreds of functions up before any constructor has run. The programs compute,
lose their memory, get it back and verify it. A report of the sanitizer would be in their output.
"""

import subprocess

import pytest
from preload_rig import (
    BUFFER, BUILD, MEM_SWAPPED, PRELOAD, RELEASED_MEM, RELEASED_OUTCOME, expect_end, expect_line, tell,
)

OURS = str(BUILD / "libnvshare.so")
WALKER = str(PRELOAD / "libwalker.so")
TIMEOUT = 1  # outcome of a stop


def runtime(name):
    """The runtime that the compiler's programs load."""
    return subprocess.run(["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()


ASAN, TSAN = runtime("libasan.so"), runtime("libtsan.so")
# The simulated driver forgets the events of a context that has gone, and the program does not join its thread.
LEAKS = {"ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": "report_thread_leaks=0"}
# The runtime of ASan wants to be the first library, unless it is told that another one may be.
ANY_ORDER = {"ASAN_OPTIONS": LEAKS["ASAN_OPTIONS"] + ":verify_asan_link_order=0"}


@pytest.mark.parametrize(
    "program, preload, env",
    [
        ("sanitized/address", [ASAN, OURS], {}),
        ("sanitized/address", [OURS, ASAN], ANY_ORDER),
        ("sanitized/address", [OURS], ANY_ORDER),
        ("sanitized/address-inside", [OURS], {}),
        ("sanitized/thread", [OURS], {}),
        ("sanitized/thread", [TSAN, OURS], {}),
        ("sanitized/thread", [OURS, TSAN], {}),
        ("sanitized/thread-inside", [OURS], {}),
        ("leaver", [WALKER, OURS], {}),
        ("leaver", [OURS, WALKER], {}),
    ],
)
def test_it_starts_moves_and_verifies(node, program, preload, env):
    node.listen()
    program = node.start(PRELOAD / program, "nowhere", "read", **{**LEAKS, **env, "LD_PRELOAD": ":".join(preload)})
    client = node.accept()
    client.welcome()
    client.let_run()
    expect_line(program, "ready")
    released = client.stop(1 << 40)
    while released[RELEASED_OUTCOME] == TIMEOUT:  # on a busy machine; the scheduler tries again, too
        released = client.stop(1 << 40)
    assert released[RELEASED_MEM + MEM_SWAPPED] >= BUFFER
    tell(program)
    tell(program)
    client.let_run()
    assert expect_end(program) == "read right\n"
