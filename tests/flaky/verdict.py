# SPDX-License-Identifier: Apache-2.0
"""What may be flaky, and which processes a test has left: for both runners, programs.py and flaky.py.

A failure may be a race, so that its test runs alone up to twice more. What says one of NEVER is none. So a test of
contents says WRONG where they differ.
"""

import os
import pathlib
import re
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MORE_RUNS = 2
# More of them are red (scripts/test), so where more tests of one run failed, none has to run again.
FLAKY_MAX = 3
# In the environment of a test that runs alone. Its waits may take longer: PATIENCE, and LIMIT_S of programs.py.
ALONE = "TEST_ALONE"
# Seconds; only a failure takes so long.
PATIENCE = 300.0 if ALONE in os.environ else 120.0
# Of a failure: processes, and seconds for all of them; a process may be one that even looking at blocks.
N_STACKS = 10
STACKS_S = 120

CRASHES = [signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV, signal.SIGSYS]
_NUMBERS = "|".join(str(number.value) for number in CRASHES)
_SHELL_CODES = "|".join(str(128 + number) for number in CRASHES)
NEVER = {
    "a crash": [
        rf"returncode[=:] ?-({_NUMBERS})\b|exit status ({_SHELL_CODES})\b",  # of subprocess
        rf"died with <Signals\.({'|'.join(number.name for number in CRASHES)}):",
        # Of pytest, which cuts the middle out of a long CompletedProcess.
        rf"\bassert (not )?\(?-({_NUMBERS})\b|\bassert ({_SHELL_CODES}) == 0\b",
        rf"\bended with (-({_NUMBERS})|{_SHELL_CODES})\b",  # of these tests
        "Segmentation fault|Bus error|core dumped",  # of shells
        "Test failed with exception: ",  # of CMocka
        "Assertion `.*' failed",
        r"\*\*\* .* detected \*\*\*|double free or corruption|(free|malloc|realloc)\(\): (invalid|corrupted)",  # of glibc
    ],
    "a sanitizer's report": [r"\b(ERROR|WARNING|SUMMARY): \w+Sanitizer\b", r":\d+:\d+: runtime error: "],
    "wrong data": [r"\bWRONG\b", r"\d+ bytes of \w+ and \w+ differ", "Guard block of .* is corrupt"],
    "a process left over": ["left over: "],
}
_NEVER = {why: re.compile("|".join(forms)) for why, forms in NEVER.items()}


def why_never(said, *codes):
    """Why a failure is no race; None: it may be one. codes: exit codes, negative for signals."""
    if any(-code in CRASHES or code - 128 in CRASHES for code in codes if code):
        return "a crash"
    return next((why for why, form in _NEVER.items() if form.search(said)), None)


def processes(word):
    """Those that have this word (bytes) in their environment, without this one."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if word in (folder / "environ").read_bytes() and int(folder.name) != os.getpid():
                found.append(int(folder.name))
        except OSError:  # it has ended, or is another user's
            pass
    return sorted(found)


def left_over(word, patience=None):
    """What is there of them when they had time to end, as a text; "": nothing. Ends them."""
    end = time.monotonic() + (PATIENCE if patience is None else patience)
    while (found := processes(word)) and time.monotonic() < end:
        time.sleep(0.02)
    said = f"left over: {len(found)} processes\n{stacks(found)}" if found else ""
    end_all(word)
    return said


def end_all(word):
    for pid in processes(word):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def stacks(pids):
    """Where each thread of the first of them is."""
    if not pids:
        return ""
    try:
        told = subprocess.run([ROOT / "scripts" / "stacks", *map(str, pids[:N_STACKS])], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=STACKS_S, check=False)
    except subprocess.TimeoutExpired as late:
        told = late
    return (told.stdout or b"").decode(errors="replace")
