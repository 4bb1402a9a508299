# SPDX-License-Identifier: Apache-2.0
"""nvsharectl top in a terminal, which tmux plays."""

import json
import re
import shutil
import subprocess

import pytest

from scheduler_node import BUILD, CTL, GIB, PATIENCE, clean_env, node, until  # noqa: F401
from wire import mem


class Screen:
    """A terminal in which top runs."""

    def __init__(self, folder, term, *args, width=80, height=24):
        self.socket = folder / "tmux"
        command = f"env TERM={term} {CTL} top {' '.join(args)}"
        self.tmux("new-session", "-d", "-x", str(width), "-y", str(height), "sh", "-c", f"{command}; echo ended: $?; cat",
                  env=clean_env(folder, LC_ALL="C.UTF-8"))

    def tmux(self, *args, env=None):
        done = subprocess.run(["tmux", "-S", self.socket, "-f", "/dev/null", *args], env=env, capture_output=True,
                              text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def press(self, *keys):
        self.tmux("send-keys", *keys)

    def lines(self, *args):
        return self.tmux("capture-pane", "-p", *args).split("\n")

    def expect(self, *words):
        """The line that has all of these words, as soon as there is one."""
        def found():
            return [line for line in self.lines() if all(word in line for word in words)]
        try:
            return until(f"{words} on the screen", found)[0]
        except AssertionError as error:
            raise AssertionError(f"{error}\n" + "\n".join(self.lines())) from None

    def close(self):
        self.tmux("kill-server")


@pytest.fixture
def screen(tmp_path):
    if not shutil.which("tmux"):
        pytest.skip("tmux is not installed (scripts/setup all installs it)")
    screens = []

    def start(*args, **size):
        screens.append(Screen(tmp_path, *args, **size))
        return screens[-1]

    yield start
    for screen_ in screens:
        screen_.close()


def clients(node):
    return {client["id"]: client for client in json.loads(node.ctl("status", "--json").stdout)["clients"]}


@pytest.mark.parametrize("term", ["vt100", "xterm-256color"])
def test_keys_change_what_the_scheduler_has(node, screen, term):
    node.start()
    node.holder(total=10 * GIB, name="train")
    node.waiter(total=10 * GIB, name="infer")
    shown = screen(term)
    shown.expect(">", "train", "running")
    assert not shown.expect("infer", "waiting").startswith(">")
    shown.press("Down")
    shown.expect(">", "infer", "waiting")
    shown.expect("#1 waits for its turn")
    shown.press("p")
    shown.expect("priority of client 2:")
    shown.press("h")
    shown.expect("priority of client 2 is high")
    assert clients(node)[2]["priority"] == "high" and clients(node)[1]["priority"] == "normal"
    shown.expect("infer", "high")
    shown.press("k", "w", "2", "5", "5", "BSpace", "Enter")
    shown.expect("weight of client 1 is 25")
    assert clients(node)[1]["weight"] == 25 and clients(node)[2]["weight"] == 100
    shown.press("z")
    shown.expect("pause of client 1 is on")
    assert clients(node)[1]["paused"] and not clients(node)[2]["paused"]
    shown.press("z")
    shown.expect("pause of client 1 is off")
    assert not clients(node)[1]["paused"]
    shown.press("w", "9", "Escape")
    shown.expect("q quit")
    assert clients(node)[1]["weight"] == 25
    shown.press("q")
    shown.expect("ended: 0")


def test_a_terminal_without_colours_gets_none(node, screen):
    node.start()
    node.holder(name="train")
    shown = screen("vt100")
    shown.expect("train", "running")
    assert not [line for line in shown.lines("-e") if re.search(r"\x1b\[[0-9;]*[34][0-8]m", line)]


def test_clients_are_filtered_sorted_and_in_sight(node, screen):
    node.start()
    for i in range(40):
        node.client(name=f"c{i:02}", total=10 * GIB, memory=mem())
    shown = screen("xterm-256color")
    shown.expect("40 clients, by ID, from 1")
    shown.press("End")
    shown.expect(">", "c39", "idle")
    shown.press("s", "s", "s", "s", "r")
    shown.expect("40 clients, by NAME reversed, from 1")
    shown.expect(">", "c39", "idle")
    shown.press("/", "c", "1", "7", "Enter")
    shown.expect("40 clients, 1 with 'c17', by NAME")
    shown.expect(">", "c17", "idle")
    shown.press("?")
    shown.expect("change priority or weight")
    shown.press("x", "Escape")
    shown.expect("40 clients, by NAME reversed, from")


def test_members_of_a_gang_are_found(node, screen):
    node.start()
    for gpu in (1, 2):
        client = node.client(gpu=gpu, name=f"on{gpu}", total=10 * GIB, memory=mem())
        client.send("GANG", 2, 0, b"pair")
        client.send("PING", 7)
        client.expect("PING")
    node.client(name="other", total=10 * GIB, memory=mem())
    shown = screen("xterm-256color")
    shown.expect("3 clients, by ID")
    shown.expect("1 on1: pid", "gang 1; idle")
    shown.press("/", "g", "a", "n", "g", ":", "1", "Enter")
    shown.expect("3 clients, 2 with 'gang:1', by ID")


def test_no_name_moves_what_stands_beside_it(node, screen):
    node.start()
    names = ["\x1b[2J\x1b[H", "日本語の名前プログラム漢字日本語", "a\u0301\u0301b", "x\r\ny\tz", "plain"]
    for name in names:
        node.client(name=name, total=10 * GIB)
    shown = screen("xterm-256color")
    shown.expect("plain", "idle")
    shown.expect("?[2J?[H", "idle")
    shown.expect("日本語", "idle")
    for i, line in enumerate(line for line in shown.lines() if " normal " in line):
        assert line[:7].strip("> ") == str(i + 1), line
        width = sum(2 if ord(char) > 0x2e80 else 1 for char in line[: line.index(" idle ")])
        assert width == len(shown.expect("plain", "idle").split(" idle ")[0]), line


def test_a_window_may_change_its_size(node, screen):
    node.start()
    node.holder(name="train")
    shown = screen("xterm-256color")
    shown.expect("PRIORITY", "WEIGHT", "USE")
    shown.tmux("resize-window", "-x", "44", "-y", "9")
    until("fewer columns", lambda: not [line for line in shown.lines() if "WEIGHT" in line])
    shown.expect("train", "running")
    shown.tmux("resize-window", "-x", "140", "-y", "40")
    shown.expect("USER", "WEIGHT", "NOTE")


def test_a_gpu_tells_its_heat_and_its_error(node, screen, tmp_path):
    sim = tmp_path / "sim"
    sim.mkdir()
    node.start(LD_LIBRARY_PATH=str(BUILD / "simgpu"), NVSHARE_SIM_DIR=str(sim), NVSHARE_POLL_INTERVAL_MS="20")
    shown = screen("vt100", "-d", "0.1")
    shown.expect("GPU 0", "busy 0 %, 32C 75W")
    (sim / "inject.new").write_text("xid 79 gpu 0\n")
    (sim / "inject.new").rename(sim / "inject")  # readers take the file away, so it comes whole
    shown.expect("GPU 0", "lost, Xid 79")


def test_a_scheduler_that_ends_and_comes_back_is_shown(node, screen):
    shown = screen("xterm-256color", "-d", "0.1")
    shown.expect("no scheduler on")
    node.start()
    node.holder(name="train")
    shown.expect("train", "running")
    node.kill()
    shown.expect("NO SCHEDULER, trying again; below is its last status")
    shown.expect("train", "running")
    shown.press("p")
    shown.expect("no scheduler answers")
    node.start()
    shown.expect("nvshare", "up")
    shown.expect("0 clients")
    shown.press("q")
    shown.expect("ended: 0")


@pytest.mark.parametrize("args", [("-d",), ("-d", "0"), ("-d", "0.01"), ("-d", "1", "2"), ("--json",)])
def test_a_wrong_interval_is_refused(tmp_path, args):
    done = subprocess.run([CTL, "top", *args], env=clean_env(tmp_path), capture_output=True, text=True,
                          timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (2, "") and "-d SECONDS" in done.stderr


def test_top_needs_a_terminal(tmp_path):
    done = subprocess.run([CTL, "top"], env=clean_env(tmp_path), capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (2, "") and "needs a terminal" in done.stderr
