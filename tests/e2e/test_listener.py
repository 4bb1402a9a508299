# SPDX-License-Identifier: Apache-2.0
"""The scheduler's socket and those who connect to it: what they send, how many they are, and
whose folder it is in."""

import contextlib
import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import wire  # noqa: E402
from scheduler_node import (  # noqa: E402
    CTL,
    NOBODY,
    PATIENCE,
    SCHEDULER,
    Node,
    clean_env,
    more_descriptors,
    until,
)
from wire import Closed  # noqa: E402

HERE = pathlib.Path(__file__).parent

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")


@pytest.fixture
def node():
    """Others get to its socket, whoever made the folders above those of pytest."""
    with tempfile.TemporaryDirectory(prefix="nvshare-node-") as folder:
        pathlib.Path(folder).chmod(0o755)
        node_ = Node(pathlib.Path(folder))
        yield node_
        node_.stop()


class Somebody:
    """A Python program of another user, which prints lines; "path" is the socket's."""

    PRELUDE = """
import array, os, signal, socket, struct, sys
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
path = sys.argv[1]
sys.path.insert(0, sys.argv[3])
import wire
from wire import Closed, Wire
def say(*words):
    print(*words, flush=True)
"""

    def __init__(self, node_, program, uid=NOBODY):
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.PRELUDE + program, str(node_.path), str(uid), str(HERE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        node_.children.append(self.process)

    def hear(self):
        return self.process.stdout.readline().strip()

    def tell(self):
        """To go on, where it reads a line."""
        self.process.stdin.write("\n")
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
signal.pause()
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


# ---- connections without end --------------------------------------------------------

# Says nothing over so many connections, then asks over each what becomes of it.
CROWD = """
wires = [Wire(path) for _ in range(300)]
say("connected")
sys.stdin.readline()
answers = {"closed": 0, "busy": 0, "status": 0}
for one in wires:
    try:
        one.send("GET_STATUS", b"")
        name, values = one.receive()
    except Closed:
        answers["closed"] += 1
    else:
        assert name == "STATUS_NODE" or values[0] == wire.BUSY
        answers["busy" if name == "RESULT" else "status"] += 1
say(*answers.values())
one = Wire(path)
say(one.register()[0])
for one in wires[::2]:
    one.close()
sys.stdin.readline()
one = Wire(path)
say(one.register()[0])
signal.pause()
"""

# The descriptors of a small node: one user other than root has less than a third as connections.
FEW = 600
FULL = 1  # enum nvshare_register_result


@needs_root
def test_one_user_s_connections_leave_room_for_root_and_for_others(node):
    node.start(command=["prlimit", f"--nofile={FEW}:{FEW}"], NVSHARE_FIRST_MESSAGE_SEC="86400")
    crowd = Somebody(node, CROWD)
    assert crowd.hear() == "connected"
    node.expect_log(f"turned-away uid={NOBODY}")
    # Root's programs and tools, and another user's, come and go as if nobody was there.
    node.holder()
    assert node.ctl("status").returncode == 0
    other = Somebody(node, "one = Wire(path); say(one.register()[0]); signal.pause()", NOBODY - 1)
    assert other.hear() == "0"
    crowd.tell()
    closed, busy, status = map(int, crowd.hear().split())
    assert closed and busy == 4 and 60 < status < FEW / 3
    assert crowd.hear() == str(FULL)
    # Half of them are gone: a program that was turned away comes back, and is taken.
    until("their end", lambda: wire.open_descriptors(node.process.pid) < status)
    crowd.tell()
    assert crowd.hear() == "0"
    assert node.n_clients() == 3


@needs_root
def test_a_tool_that_is_turned_away_says_that_the_scheduler_is_busy(node):
    node.start(command=["prlimit", f"--nofile={FEW}:{FEW}"], NVSHARE_FIRST_MESSAGE_SEC="86400")
    program = node.folder / "nvsharectl"
    program.write_bytes(CTL.read_bytes())
    program.chmod(0o755)
    crowd = Somebody(
        node,
        """
wires = []
while True:
    wires.append(Wire(path))
    wires[-1].send("GET_STATUS", b"")
    if wires[-1].receive()[0] == "RESULT":
        break
say("full")
signal.pause()
""",
    )
    assert crowd.hear() == "full"
    for args in [("status",), ("set", "tq", "5")]:
        run = subprocess.run(
            [program, *args],
            env=clean_env(node.folder),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
        )
        assert (run.returncode, run.stdout) == (3, "")
        assert run.stderr == (
            f"nvsharectl: the scheduler is busy: uid {NOBODY} has as many connections as others leave it\n"
        )


def test_a_connection_that_says_nothing_is_closed_and_a_client_is_not(node):
    node.start(NVSHARE_FIRST_MESSAGE_SEC="0.2")

    def registered():
        """It may have come to say something too late."""
        with contextlib.suppress(Closed):
            return node.client()

    client = until("a client is there", registered)
    silent = node.connect()
    silent.expect_closed(PATIENCE)
    node.expect_log("it has said nothing")
    client.send("PING", 5)
    assert client.expect("PING") == (5,)


def test_the_limit_of_descriptors_is_raised_as_far_as_it_goes(node):
    node.start(command=["prlimit", "--nofile=100:4000"])
    soft, hard = resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE)
    assert soft == hard >= 4000


def test_a_tool_that_finds_the_queue_full_does_not_say_that_there_is_no_scheduler(node):
    node.start()
    node.process.send_signal(signal.SIGSTOP)
    with more_descriptors(6000), contextlib.ExitStack() as queued:
        while True:
            one = queued.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            one.setblocking(False)
            try:
                one.connect(str(node.path))
            except BlockingIOError:
                break
        run = node.ctl("status")
    assert run.returncode == 3
    assert run.stderr.startswith(f"nvsharectl: the scheduler on {node.path} is busy: ")
    node.process.send_signal(signal.SIGCONT)
    until("a status", lambda: node.ctl("status").returncode == 0)


# Comes and goes, as fast as it can.
FLICKERER = """
say("begins")
while True:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
        one.setblocking(False)
        try:
            one.connect(path)
        except BlockingIOError:
            pass  # a full queue, which is what it wants
"""


@needs_root
def test_loops_of_connecting_and_leaving_keep_nobody_out(node):
    node.start()
    holder, (grant, _, epoch) = node.holder()
    waiter = node.waiter()
    flickerers = [Somebody(node, FLICKERER, NOBODY - i) for i in range(2)]
    for flickerer in flickerers:
        assert flickerer.hear() == "begins"
    for _ in range(8):
        # connect() waits its turn in the queue, as nvsharectl and the library do by trying again.
        assert node.connect().register(gpu=2)[0] == 0
        holder.release(grant, epoch)
        holder, waiter = waiter, holder
        grant, _, epoch = holder.expect("LOCK_OK", PATIENCE)
        waiter.request()
        waiter.expect("WAIT_FOR_MEM", PATIENCE)
    until("a status", lambda: node.ctl("status").returncode == 0)
    for flickerer in flickerers:
        flickerer.end()
    until("their end", lambda: node.n_clients() == 10)


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
    assert f"the socket's folder '{node.folder}' is not safe: '{node.folder}' belongs to uid {NOBODY}" in said
    assert f"run chown 0 '{node.folder}', or set NVSHARE_SOCK_DIR" in said
    assert list(node.folder.iterdir()) == []


def test_a_folder_that_others_may_write_to_is_an_error_that_says_what_to_do(node):
    node.folder.chmod(0o777)
    said = fails_to_start(node)
    assert f"others may write to '{node.folder}' (mode 0777)" in said
    assert f"run chmod go-w '{node.folder}', or set NVSHARE_SOCK_DIR" in said
    node.folder.chmod(0o1777)
    node.start()


def test_a_lock_file_that_is_none_is_an_error_that_says_what_to_do(node):
    (node.folder / "scheduler.lock").symlink_to("/dev/null")
    said = fails_to_start(node)
    assert f"'{node.folder}/scheduler.lock' is no file of uid {os.geteuid()}: remove it" in said


# ---- the socket's name ------------------------------------------------------------


@pytest.mark.parametrize("removed", [["scheduler.sock"], ["scheduler.sock", "scheduler.lock"]])
def test_a_socket_that_somebody_removes_is_there_again(node, removed):
    """New clients come, and those that are there stay."""
    node.start()
    before = node.client(name="before")
    for i in range(3):
        for name in removed:
            (node.folder / name).unlink()
        until("all names", lambda: all((node.folder / name).exists() for name in removed))
        node.client(name=f"after-{i}")
    node.expect_log("or its lock was removed, and is there again")
    assert node.n_clients() == 4
    assert not before.pending()


def test_a_folder_that_is_moved_away_ends_the_scheduler(node):
    node.start()
    away = pathlib.Path(f"{node.folder}-away")
    node.folder.rename(away)
    try:
        assert node.process.wait(PATIENCE) == 1
    finally:
        away.rename(node.folder)
    node.expect_log("cannot be made anew (Stale file handle): this scheduler ends, start it again")


@pytest.mark.parametrize("name", ["scheduler.sock", "scheduler.lock"])
def test_a_name_that_somebody_takes_is_no_end(node, name):
    """Those who are there go on; nobody takes the name away by force."""
    node.start()
    here, _ = node.holder()
    node.process.send_signal(signal.SIGSTOP)
    (node.folder / name).unlink()
    (node.folder / name).mkdir()
    node.process.send_signal(signal.SIGCONT)
    node.expect_log("cannot be made anew (")
    assert node.process.poll() is None
    here.send("PING", 1)
    here.expect("PING")
