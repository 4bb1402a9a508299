# SPDX-License-Identifier: Apache-2.0
"""The scheduler's socket and those who connect to it: what they send, how many they are, and
whose folder it is in."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from scheduler_node import (  # noqa: E402,F401
    NOBODY,
    PATIENCE,
    SCHEDULER,
    clean_env,
    node,
    open_to_all,
)

HERE = pathlib.Path(__file__).parent

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")


class Somebody:
    """A Python program of another user, which prints lines; "path" is the socket's."""

    PRELUDE = """
import array, os, socket, struct, sys, time
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
path = sys.argv[1]
sys.path.insert(0, sys.argv[3])
import wire
from wire import Closed, Wire
def say(*words):
    print(*words, flush=True)
"""

    def __init__(self, node_, program, uid=NOBODY):
        open_to_all(node_.folder)
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.PRELUDE + program, str(node_.path), str(uid), str(HERE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        node_.children.append(self.process)

    def hear(self):
        return self.process.stdout.readline().strip()

    def tell(self, line=""):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self):
        self.process.kill()
        self.process.wait()


# ---- descriptors that nobody asked for ----------------------------------------------

# Its last close() waits for an hour: whoever receives it, or drops it, hangs.
LINGERER = """
server = socket.create_server(("127.0.0.1", 0))
lingerer = socket.create_connection(server.getsockname())
unread, _ = server.accept()
lingerer.setblocking(False)
try:
    while True:
        lingerer.send(bytes(65536))
except BlockingIOError:
    pass
lingerer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
tool = Wire(path)
try:
    tool.sock.sendmsg([wire.packet("GET_STATUS", b"")],
                      [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [lingerer.fileno()]))])
    lingerer.close()  # not the last one: the packet has it
    say("sent")
except PermissionError:
    say("refused")
time.sleep(1000)
"""


@needs_root
def test_a_descriptor_whose_close_waits_stops_nobody(node):
    node.start()
    holder, _ = node.holder()
    # The sender is done before the scheduler looks: so that one is the last to have it.
    node.process.send_signal(signal.SIGSTOP)
    lingerer = Somebody(node, LINGERER)
    assert lingerer.hear() in ("sent", "refused")
    node.process.send_signal(signal.SIGCONT)
    assert node.n_clients() == 1
    holder.send("PING", 5)
    assert holder.expect("PING") == (5,)
    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(PATIENCE) == 0


# ---- the folder of the socket -------------------------------------------------------


def fails_to_start(node_):
    run = subprocess.run(
        [SCHEDULER], env=clean_env(node_.folder), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert run.returncode == 1 and run.stderr.count("\n") == 1
    return run.stderr


@needs_root
def test_a_folder_of_another_user_is_an_error_that_says_what_to_do(node):
    os.chown(node.folder, NOBODY, NOBODY)
    said = fails_to_start(node)
    assert f"the socket's folder '{node.folder}' belongs to uid {NOBODY}" in said
    assert "give it to root or to uid 0 (chown), or set NVSHARE_SOCK_DIR" in said
    assert list(node.folder.iterdir()) == []


def test_a_folder_that_others_may_write_to_is_an_error_that_says_what_to_do(node):
    node.folder.chmod(0o777)
    said = fails_to_start(node)
    assert f"others may write to the socket's folder '{node.folder}' (mode 0777)" in said
    assert f"run chmod go-w '{node.folder}', or set NVSHARE_SOCK_DIR" in said
    node.folder.chmod(0o1777)
    node.start()


def test_a_lock_file_that_is_none_is_an_error_that_says_what_to_do(node):
    (node.folder / "scheduler.lock").symlink_to("/dev/null")
    said = fails_to_start(node)
    assert f"'{node.folder}/scheduler.lock' is no file of uid {os.geteuid()}: remove it" in said
