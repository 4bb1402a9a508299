# SPDX-License-Identifier: Apache-2.0
"""A command under nvsharectl run behaves at a terminal, and under signals, as it does alone."""

import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time

import pytest

from conftest import PATIENCE, until
from jobs_node import FULL, JobsNode, node  # noqa: F401

COUNTER = """
import os, signal, sys
def count(number, frame):
    with open(sys.argv[1], "a") as out:
        print(signal.Signals(number).name, file=out)
for name in sys.argv[3:]:
    signal.signal(getattr(signal, name), count)
open(sys.argv[2], "w").close()
while not os.path.exists(sys.argv[2] + ".end"):
    signal.sigtimedwait([], 0.05)
"""


class Terminal:
    """A shell with job control on a terminal of its own."""

    def __init__(self, node):
        self.text = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ |= {**node.env, "PS1": "$ ", "TERM": "xterm", "PATH": f"{node.build}:{os.environ['PATH']}"}
            os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
        self.expect("$ ")

    def type(self, text):
        os.write(self.fd, text.encode())

    def expect(self, words):
        """Reads until words are there, and returns what came with them."""
        end = time.monotonic() + PATIENCE
        while words not in self.text:
            assert time.monotonic() < end, f"no '{words}' in: {self.text!r}"
            if select.select([self.fd], [], [], 1)[0]:
                self.text += os.read(self.fd, 4096).decode(errors="replace")
        at = self.text.index(words) + len(words)
        found, self.text = self.text[:at], self.text[at:]
        return found

    def await_foreground(self):
        """A shell's job has the terminal, in the state that the job knows: keys are for the job."""
        def is_there():
            own = os.getpgid(self.pid)
            return os.tcgetpgrp(self.fd) not in (0, own) and termios.tcgetattr(self.fd)[3] & termios.ICANON
        until("the job has the terminal", is_there)

    def foreground(self, words):
        """fg, of a job whose command line has these words."""
        self.type("fg\n")
        self.expect(words)
        self.await_foreground()

    def close(self):
        os.close(self.fd)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class Session:
    """A command that leads the session of a terminal, as under ssh -t, tmux or script."""

    def __init__(self, node, *args):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ |= node.env
            os.execvp(args[0], [str(arg) for arg in args])

    def hang_up(self):
        os.close(self.fd)

    def code(self):
        """Of its end, as Popen has it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def terminal(node):
    node.start_scheduler()
    made = Terminal(node)
    yield made
    made.close()


def test_a_key_reaches_the_command_once(node, terminal):
    notes, ready = node.folder / "notes", node.folder / "ready"
    (node.folder / "script").write_text(COUNTER)
    terminal.type(f"nvsharectl run -- {sys.executable} {node.folder}/script {notes} {ready} SIGINT SIGQUIT; echo rc=$?\n")
    until("the command is there", ready.exists)
    terminal.type("\x03")
    until("it has heard", notes.exists)
    terminal.type("\x1c")
    until("it has heard twice", lambda: "SIGQUIT" in notes.read_text())
    (node.folder / "ready.end").touch()
    terminal.expect("rc=0")
    assert notes.read_text().split() == ["SIGINT", "SIGQUIT"]


def test_a_key_that_ends_the_command_ends_the_job(node, terminal):
    terminal.type("nvsharectl run -- sleep 1000\n")
    until("it runs", lambda: node.queue()["with_gpu"] == 1)
    until("its command is there", lambda: "sleep" in subprocess.run(["pgrep", "-l", "-P", str(node.queue()["jobs"][0]["pid"])],
                                                                     stdout=subprocess.PIPE, text=True, check=False).stdout)
    terminal.type("\x03")
    terminal.expect("$ ")
    terminal.type("echo rc=$?\n")
    terminal.expect("rc=130")
    node.expect_no_jobs()


def test_a_job_is_stopped_and_continued_by_the_shell(node, terminal):
    terminal.type("nvsharectl run -- cat\n")
    until("it runs", lambda: node.queue()["with_gpu"] == 1)
    terminal.type("one\n")
    terminal.expect("one\r\none")
    terminal.type("\x1a")
    terminal.expect("Stopped")
    terminal.expect("$ ")
    assert node.queue()["with_gpu"] == 1
    terminal.foreground("nvsharectl run -- cat")
    terminal.type("two\n")
    terminal.expect("two\r\ntwo")
    terminal.type("\x1a")
    terminal.expect("Stopped")
    # In the background it stops when it reads from the terminal.
    terminal.type("bg\n")
    terminal.expect("nvsharectl run -- cat &")

    def is_stopped():
        terminal.type("jobs\n")
        return "Stopped" in terminal.expect("nvsharectl run -- cat")
    until("the shell has seen it stop", is_stopped)
    terminal.foreground("nvsharectl run -- cat")
    terminal.type("\x04")
    terminal.expect("$ ")
    terminal.type("echo rc=$?\n")
    terminal.expect("rc=0")
    node.expect_no_jobs()


def test_a_pipeline_works(node, terminal):
    terminal.type("nvsharectl run -- seq 3 | nvsharectl run -- sed s/^/n/ | cat\n")
    terminal.expect("n1\r\nn2\r\nn3\r\n")
    node.expect_no_jobs()


def test_a_terminal_shows_one_line_while_the_job_waits(node, terminal):
    first = node.hold()
    node.await_state(first, "running")
    terminal.type(f"stty cols 60; nvsharectl run --whole --memory {FULL} -- echo started; echo rc=$?\n")
    shown = terminal.expect("is number 1 of 1: it needs")
    assert "\r\x1b[K" in shown
    node.flag("enough").touch()
    shown = terminal.expect("rc=0")
    # The line is cleared before the command writes.
    assert re.search(r"\r\x1b\[Kstarted\r\n", shown)
    assert "\n" not in shown[: shown.index("started")]
    first.expect(0)


def test_the_line_of_a_wait_is_cut_where_its_columns_end(node, terminal):
    """East Asian characters have three bytes and two columns each."""
    terminal.type(f"stty cols 70; nvsharectl run --gang {'模' * 20} --gang-size 2 --memory 1M -- true\n")
    terminal.expect("\x1b[Knvsharectl: job 1 is number 1 of 1: waits for 1 more of gang " + "模" * 4)
    terminal.type("\x03")
    assert not terminal.expect("$ ").startswith("模")


def test_a_key_ends_the_wait(node, terminal):
    first = node.hold()
    node.await_state(first, "running")
    terminal.type(f"nvsharectl run --whole --memory {FULL} -- true; echo rc=$?\n")
    terminal.expect("is number 1 of 1")
    terminal.type("\x1a")
    terminal.expect("Stopped")
    assert node.queue()["waiting"] == 1  # stopped, it keeps its place
    terminal.foreground("nvsharectl run")
    terminal.type("\x03")
    terminal.expect("$ ")
    until("it has left the queue", lambda: node.queue()["waiting"] == 0)
    node.flag("enough").touch()
    first.expect(0)


def test_a_command_hears_of_the_terminals_end_once(node):
    """The kernel tells the leader of the session alone; a shell would tell the command."""
    node.start_scheduler()
    (node.folder / "script").write_text(COUNTER)
    notes, ready = node.folder / "notes", node.folder / "ready"
    session = Session(node, node.build / "nvsharectl", "run", "--", sys.executable, node.folder / "script",
                      notes, ready, "SIGHUP", "SIGCONT")
    until("the command is there", ready.exists)
    session.hang_up()
    until("it has heard", lambda: notes.exists() and len(notes.read_text().split()) == 2)
    (node.folder / "ready.end").touch()
    assert session.code() == 0
    assert sorted(notes.read_text().split()) == ["SIGCONT", "SIGHUP"]


def test_the_end_of_the_terminal_ends_the_command(node):
    node.start_scheduler()
    ready = node.flag("ready")
    session = Session(node, node.build / "nvsharectl", "run", "--", "sh", "-c", f"touch {ready}; exec sleep 1000")
    until("the command is there", ready.exists)
    session.hang_up()
    assert session.code() == -signal.SIGHUP
    node.expect_no_jobs()


def test_the_end_of_the_terminal_ends_the_wait(node):
    node.start_scheduler()
    first = node.hold()
    node.await_state(first, "running")
    session = Session(node, node.build / "nvsharectl", "run", "--whole", "--memory", FULL, "--", "true")
    until("it waits", lambda: node.queue()["waiting"] == 1)
    session.hang_up()
    assert session.code() == -signal.SIGHUP
    until("it has left the queue", lambda: node.queue()["waiting"] == 0)
    node.flag("enough").touch()
    first.expect(0)


def test_where_sighup_is_ignored_the_terminals_end_ends_nothing(node):
    node.start_scheduler()
    (node.folder / "script").write_text(COUNTER)
    notes, ready = node.folder / "notes", node.folder / "ready"
    session = Session(node, "sh", "-c", "trap '' HUP; exec \"$@\"", "sh", node.build / "nvsharectl", "run", "--",
                      sys.executable, node.folder / "script", notes, ready, "SIGCONT")
    until("the command is there", ready.exists)
    session.hang_up()
    until("the kernel has told of it", notes.exists)
    (node.folder / "ready.end").touch()
    assert session.code() == 0


def test_a_key_reaches_the_command_of_a_sessions_leader_once(node):
    node.start_scheduler()
    (node.folder / "script").write_text(COUNTER)
    notes, ready = node.folder / "notes", node.folder / "ready"
    session = Session(node, node.build / "nvsharectl", "run", "--", sys.executable, node.folder / "script",
                      notes, ready, "SIGINT", "SIGWINCH")
    until("the command is there", ready.exists)
    os.write(session.fd, b"\x03")
    until("it has heard", notes.exists)
    termios.tcsetwinsize(session.fd, (30, 100))
    until("it has heard twice", lambda: len(notes.read_text().split()) == 2)
    (node.folder / "ready.end").touch()
    assert session.code() == 0
    session.hang_up()
    assert notes.read_text().split() == ["SIGINT", "SIGWINCH"]


def test_a_shell_that_continues_the_job_continues_the_command_once(node, terminal):
    (node.folder / "script").write_text(COUNTER)
    notes, ready = node.folder / "notes", node.folder / "ready"
    terminal.type(f"nvsharectl run -- {sys.executable} {node.folder}/script {notes} {ready} SIGCONT\n")
    until("the command is there", ready.exists)
    for n in range(1, 4):
        terminal.type("\x1a")
        terminal.expect("Stopped")
        terminal.foreground("nvsharectl run")
        until("it has heard", lambda n=n: notes.exists() and len(notes.read_text().split()) >= n)
    (node.folder / "ready.end").touch()
    node.expect_no_jobs()
    assert notes.read_text().split() == ["SIGCONT"] * 3


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGALRM", "SIGCONT"])
def test_a_signal_to_the_runner_reaches_the_command_once(node, name):
    node.start_scheduler()
    (node.folder / "script").write_text(COUNTER)
    notes, ready = node.folder / "notes", node.folder / "ready"
    job = node.run("--", sys.executable, node.folder / "script", notes, ready, name)
    until("the command is there", ready.exists)
    os.kill(job.pid, getattr(signal, name))
    until("it has heard", notes.exists)
    (node.folder / "ready.end").touch()
    job.expect(0)
    assert notes.read_text().split() == [name]


def test_a_wait_outlives_a_logout_under_nohup(node):
    node.start_scheduler()
    first = node.hold()
    node.await_state(first, "running")
    job = node.start(["nohup", node.build / "nvsharectl", "run", "--whole", "--memory", FULL, "--", "true"], preload=False)
    node.await_state(job, "waiting")
    os.kill(job.pid, signal.SIGHUP)
    node.flag("enough").touch()
    first.expect(0)
    job.expect(0)


def test_a_command_that_somebody_stops_and_continues_ends_its_job(node):
    node.start_scheduler()
    job = node.run("--", "sh", "-c", f"while [ ! -e {node.flag('enough')} ]; do sleep 0.02; done")
    node.await_state(job, "running")

    def command():
        found = subprocess.run(["pgrep", "-P", str(job.pid), "-x", "sh"], stdout=subprocess.PIPE, text=True, check=False)
        return found.stdout.split()
    (pid,) = until("the command is there", command)
    os.kill(int(pid), signal.SIGSTOP)
    until("it is stopped", lambda: "\nState:\tT" in pathlib.Path(f"/proc/{pid}/status").read_text())
    os.kill(int(pid), signal.SIGCONT)
    node.flag("enough").touch()
    job.expect(0)


def test_ignored_signals_stay_ignored(node):
    """As under nohup(1); and with SIGCHLD ignored, which would hide the end of the command."""
    node.start_scheduler()
    ignore = "import os, signal, sys\n" \
             "signal.signal(signal.SIGHUP, signal.SIG_IGN); signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n" \
             "os.execv(sys.argv[1], sys.argv[1:])"
    for command, code in ((["cat", "/proc/self/status"], 0), (["sh", "-c", "exit 7"], 7)):
        done = subprocess.run([sys.executable, "-c", ignore, str(node.build / "nvsharectl"), "run", "--", *command],
                              env=node.env, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == code, done.stderr
        if code == 0:
            found = dict(line.split(":\t") for line in done.stdout.splitlines() if line.startswith("Sig"))
            ignored = int(found["SigIgn"], 16)
            assert ignored & 1 << (signal.SIGHUP - 1) and ignored & 1 << (signal.SIGCHLD - 1)
            assert int(found["SigBlk"], 16) == 0
