# SPDX-License-Identifier: Apache-2.0
"""Programs that no scheduler takes: what their users are told, and where."""

import os
import pathlib
import pty
import socket
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from conftest import MIB, PATIENCE, until  # noqa: E402
from wire import VERSION, Wire, mem, packet  # noqa: E402

REGISTER_VERSION = 4  # enum nvshare_register_result


def settings(node, **more):
    return {**node.env, "LD_PRELOAD": str(node.build / "libnvshare.so"), **more}


def oversub(node, size=8 * MIB):
    return [str(node.build / "tests" / "apps" / "oversub"), "--size", str(size), "--passes", "1"]


def read_all(fd):
    """What a terminal shows until nobody writes to it any more."""
    text = b""
    while True:
        try:
            data = os.read(fd, 4096)
        except OSError:  # how a terminal without writers ends
            data = b""
        if not data:
            return text.decode()
        text += data


def test_a_terminal_is_told_that_there_is_no_scheduler(node):
    terminal, line = pty.openpty()
    with subprocess.Popen(
        oversub(node), env=settings(node), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=line, text=True
    ) as program:
        os.close(line)
        told = read_all(terminal)
        out, _ = program.communicate(timeout=PATIENCE)
    os.close(terminal)
    assert program.returncode == 0 and "verified" in out
    assert told == (
        f"nvshare[{program.pid}]: no scheduler at {node.sock_dir}/scheduler.sock: this program runs without nvshare. "
        "Start nvshare-scheduler, or set NVSHARE_SOCK_DIR.\r\n"
    )


def run(node, command, **more):
    done = subprocess.run(
        command, env=settings(node, **more), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
    )
    return done.returncode, done.stdout, done.stderr


def test_a_log_is_not_but_for_one_who_looks_closely(node):
    code, out, errors = run(node, oversub(node))
    assert code == 0 and "verified" in out and errors == ""
    code, out, errors = run(node, oversub(node), NVSHARE_DEBUG="1")
    assert code == 0 and "verified" in out
    assert errors.count("this program runs without nvshare") == 1


def test_a_program_short_of_descriptors_hears_that_it_is(node):
    node.start_scheduler()
    limited = ["prlimit", "--nofile=12:12"]
    code, out, errors = run(node, [*limited, *oversub(node)])
    assert code == 0 and "verified" in out
    assert errors.count("\n") == 1 and "file descriptors are short (RLIMIT_NOFILE)" in errors
    other = node.app("oversub", "--size", "160MiB", "--passes", "1", "--until", node.flag("enough"))
    until("it has its memory", lambda: (c := node.client(other)) and c["memory_allocated"] >= 160 * MIB)
    code, out, errors = run(node, [*limited, *oversub(node, 160 * MIB)])
    assert code != 0 and "CUDA_ERROR_OUT_OF_MEMORY" in errors
    assert "file descriptors are short (RLIMIT_NOFILE)" in errors
    node.finish([other])


def test_a_program_works_with_as_few_descriptors_as_without_the_library(node):
    node.start_scheduler()
    for limit in range(4, 12):
        limited = ["prlimit", f"--nofile={limit}:{limit}", *oversub(node)]
        without = run(node, limited, LD_PRELOAD="")
        code, out, errors = run(node, limited)
        assert code == without[0] and ("verified" in out) == ("verified" in without[1]), f"{limit}: {errors}"


@pytest.mark.parametrize("version, advice", [(VERSION + 1, "upgrade the scheduler"), (VERSION - 1, "of this release")])
def test_the_scheduler_names_both_versions_to_another_one_and_in_its_log(node, version, advice):
    node.start_scheduler()
    stranger = Wire(node.sock_dir / "scheduler.sock")
    stranger.send("REQ_LOCK", *mem(), version=version)
    name, values = stranger.receive()  # its header is of the scheduler's version
    assert name == "REGISTERED" and values[0] == REGISTER_VERSION
    stranger.expect_closed()
    line = f"it speaks version {version} of the protocol, this scheduler version {VERSION}: "
    until("the line", lambda: any(line in said and said.endswith(advice)
                                  for said in node.scheduler.output().splitlines()))


def test_nvsharectl_names_both_versions(node):
    """To a scheduler of a later release, which this one's tool finds in its place."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as later:
        later.bind(str(node.sock_dir / "scheduler.sock"))
        later.listen()
        tool = subprocess.Popen([node.build / "nvsharectl", "status"], env=node.env, stderr=subprocess.PIPE, text=True)
        peer, _ = later.accept()
        with peer:
            assert peer.recv(4096)
            peer.send(packet("REGISTERED", REGISTER_VERSION, 0, 0, version=VERSION + 1))
            _, errors = tool.communicate(timeout=PATIENCE)
    assert tool.returncode == 3
    assert errors == (
        f"nvsharectl: the scheduler on {node.sock_dir}/scheduler.sock speaks version {VERSION + 1} of the protocol, "
        f"this nvsharectl version {VERSION}: use the nvsharectl of the scheduler's release\n"
    )
