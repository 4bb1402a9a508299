# SPDX-License-Identifier: Apache-2.0
"""nvsharectl against a real scheduler."""

import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import wire  # noqa: E402
from scheduler_node import (  # noqa: E402,F401
    CTL,
    GIB,
    NOBODY,
    PATIENCE,
    clean_env,
    leave_descriptors,
    node,
    open_to_all,
    until,
)
from wire import mem  # noqa: E402


# ---- nvsharectl -----------------------------------------------------------------------------


def test_ctl_shows_what_seed_000_names(node):
    node.start()
    began = time.time()
    node.holder(total=10 * GIB, name='quote " back\\slash \x1b[31m', memory=mem(resident=1 << 20))
    node.waiter(total=10 * GIB, pod="space/name")
    run = node.ctl("status", "--json")
    assert run.returncode == 0 and run.stderr == ""
    status = json.loads(run.stdout)
    (gpu,) = [g for g in status["gpus"] if g["uuid"] == "GPU-01010101-0101-0101-0101-010101010101"]
    assert gpu["total_memory"] == 10 * GIB
    assert 0 < gpu["available_memory"] <= gpu["usable_memory"] < gpu["total_memory"]
    assert gpu["running_memory_usage"] >= 0
    one, two = status["clients"]
    assert one["name"] == "quote ' back\\slash ?[31m"
    assert one["is_running"] and began - 0.01 <= one["last_scheduled_time"] <= time.time()
    assert not two["is_running"] and two["last_scheduled_time"] is None
    assert two["wait_reason"] == "turn" and two["queue_position"] == 1 and two["pod"] == "space/name"
    assert {"memory_allocated", "memory_resident", "memory_swapped", "memory_pinned"} <= one.keys()
    shown = node.ctl("status").stdout
    assert "\x1b" not in shown
    assert "running" in shown and "#1 waits for its turn" in shown


# Zero width, marks of direction, isolates, a byte order mark, tags, selectors, half a surrogate pair, no UTF-8.
UNSEEN = [0xAD, 0x61C, 0x180E, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFE0F]
UNSEEN += [0xFEFF, *range(0xFFF9, 0xFFFC), 0xE0001, 0xE0041, 0xE007F, 0x10FFFF]
UNSEEN_BYTES = [chr(code).encode() for code in UNSEEN] + [b"\xed\xa0\x80", b"\xff", b"\xc0\xaf", b"\xc2\x9b", b"\x1b[2J"]
UNSEEN_TEXTS = [b"a" + bytes_ + b"z" for bytes_ in UNSEEN_BYTES]


def expect_seen_only(output):
    text = output.decode()
    assert not [c for c in text if ord(c) in UNSEEN or (ord(c) < 0x20 and c != "\n")], ascii(text)


def test_names_show_nothing_that_is_not_seen(node):
    node.start()
    for text in UNSEEN_TEXTS:
        wire_ = node.connect()
        wire_.send("REGISTER", bytes([1] * 16), GIB, 0, *mem(), 0, 1, *wire.CLAIM, text, text)
        assert wire_.expect("REGISTERED")[0] == 0
    for args in [("status",), ("status", "--json")]:
        run = node.ctl(*args, is_text=False)
        assert run.returncode == 0
        expect_seen_only(run.stdout)
    clients = json.loads(run.stdout)["clients"]
    assert len(clients) == len(UNSEEN_TEXTS)
    for client in clients:
        assert client["name"] == client["pod"]
        assert client["name"][:2] == "a?" and client["name"][-1] == "z"
    expect_seen_only(node.log_path.read_bytes())
    assert node.log().count('name="a?') == len(UNSEEN_TEXTS)


def test_ctl_trusts_no_word_of_a_scheduler(tmp_path):
    """The one on NVSHARE_SOCK_DIR may be anybody's, and say anything."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(tmp_path / "scheduler.sock"))
    listener.listen()

    def shown(name, *texts):
        """A packet with nothing but these texts, which are its last ones."""
        form = wire.FORMATS[name]
        values = list(form.unpack(bytes(form.size)))
        places = [i for i, value in enumerate(values) if isinstance(value, bytes)]
        for i, text in zip(places[-len(texts):], texts):
            values[i] = text
        return wire.packet(name, *values)

    def answer():
        sock = listener.accept()[0]
        request = sock.recv(4096)
        for text in UNSEEN_TEXTS if request[6:8] == struct.pack("<H", wire.TYPES["GET_STATUS"][0]) else []:
            sock.send(shown("STATUS_GPU", text))
            sock.send(shown("STATUS_OUTSIDER", text))
            sock.send(shown("STATUS_CLIENT", text, text))
        sock.send(shown("STATUS_NODE", b"1\x1b[2J"))
        sock.send(wire.packet("STATUS_END", len(UNSEEN_TEXTS), len(UNSEEN_TEXTS)))
        sock.close()

    def refuse():
        sock = listener.accept()[0]
        sock.recv(4096)
        sock.send(wire.packet("RESULT", wire.DENIED, b"no \x1b[2J \xe2\x80\xae \xff"))
        sock.close()

    for args, reply in [(("status",), answer), (("status", "--json"), answer), (("set", "tq", "5"), refuse)]:
        thread = threading.Thread(target=reply)
        thread.start()
        run = subprocess.run([CTL, *args], env=clean_env(tmp_path), capture_output=True, timeout=PATIENCE, check=False)
        thread.join()
        expect_seen_only(run.stdout + run.stderr)
        if reply is answer:
            assert run.returncode == 0, run.stderr
        else:
            assert b"no ?[2J ??? ?" in run.stderr


def test_ctl_sets_and_the_status_follows(node):
    node.start()
    for args, text in [
        (("set", "tq", "6"), "tq is 6 s; it counts in mode concurrent only"),
        (("set", "mode", "concurrent"), "mode is concurrent"),
        (("set", "tq", "7"), "tq is 7 s"),
        (("set", "switch-time", "0.01"), "switch-time is 0.01 s; it does not count in mode concurrent"),
        (("set", "switch-time", "12"), "switch-time is 12 s; it does not count in mode concurrent"),
        (("set", "tq", "86399.999"), "tq is 86399.999 s"),
        (("set", "tq", "7"), "tq is 7 s"),
        (("set", "reserve", "9"), "reserve is 9 percent"),
        (("set", "max-runtime", "60"), "max-runtime is 60 s"),
        (("-S", "off"), "anti-thrash is off: nobody takes turns"),
    ]:
        run = node.ctl(*args)
        assert (run.returncode, run.stdout, run.stderr) == (0, text + "\n", "")
    status = json.loads(node.ctl("status", "--json").stdout)
    assert status["mode"] == "concurrent" and status["tq_seconds"] == 7
    assert status["switch_time"]["mode"] == "fixed" and status["switch_time"]["fixed_seconds"] == 12
    assert status["memory_reserve_percent"] == 9 and status["max_runtime_seconds"] == 60
    assert status["anti_thrash"] is False
    for args in [("-T", "8"), ("-T8",), ("--set-tq", "8"), ("--set-tq=8",)]:
        assert node.ctl(*args).stdout == "tq is 8 s\n"
    assert node.ctl("--anti-thrash=on").returncode == 0
    assert node.ctl("set", "switch-time", "auto").returncode == 0


def test_ctl_does_all_that_a_line_of_options_says_or_nothing(node):
    node.start()
    for line, text in [
        ("-T 5 -S off", "tq is 5 s; it counts in mode concurrent only\nanti-thrash is off: nobody takes turns\n"),
        ("--anti-thrash=on -T6", "anti-thrash is on: programs take turns\ntq is 6 s; it counts in mode concurrent only\n"),
    ]:
        run = node.ctl(*line.split())
        assert (run.returncode, run.stdout, run.stderr) == (0, text, "")
    for line in ["-T 7 -S x", "-T 7 -S", "-S off -T 0", "-T 7 now", "-T 7 status"]:
        run = node.ctl(*line.split())
        assert run.returncode == 2 and run.stdout == "" and run.stderr.count("\n") == 1, line
    status = json.loads(node.ctl("status", "--json").stdout)
    assert status["anti_thrash"] is True and status["tq_seconds"] == 6


def test_ctl_s_exit_status_tells_what_went_wrong(node):
    for line in [
        "",
        "bogus",
        "set",
        "set tq",
        "set tq x",
        "set tq 0",
        "set tq 0.009",
        "set switch-time 86401",
        "set max-runtime 9.9",
        "set --save",
        "set --save tq",
        "set --save tq 5 7",
        "reload x",
        "config x",
        "config --json x",
        "set mode auto x",
        "set reserve 51",
        "-T",
        "-S x",
        "-T 5 x",
        "-S off status",
        "-T 5 -x",
        "--help x",
        "-V status",
        "status x",
        "status --json x",
    ]:
        args = line.split()
        run = node.ctl(*args)
        assert run.returncode == 2 and run.stderr and not run.stdout, args
    run = node.ctl("status")
    assert run.returncode == 3
    assert str(node.path) in run.stderr and "nvshare-scheduler" in run.stderr
    assert node.ctl("--help").returncode == 0 and "status" in node.ctl("--help").stdout
    assert node.ctl("--version").stdout.startswith("nvsharectl ")


@pytest.mark.parametrize(
    "line", ["status --help", "status -h", "status --json -h", "set --help", "set -h", "set priority high --help"]
)
def test_ctl_helps_whoever_asks_behind_a_command(node, line):
    run = node.ctl(*line.split())
    assert (run.returncode, run.stdout, run.stderr) == (0, node.ctl("--help").stdout, "")


def test_ctl_tells_who_waits_that_turns_are_off(node):
    """Whether its turn would have come or not; "stuck" is who sees that time pass."""
    node.start(NVSHARE_SCHEDULING_MODE="auto", NVSHARE_WAIT_BOUND_SEC="2")
    first, second = node.client(total=10 * GIB), node.client(total=10 * GIB)
    first.request(mem(wanted=8 * GIB))
    _, _, epoch = first.expect("LOCK_OK")
    first.send("MEM_UPDATE", 0, 0, epoch, 0, *mem(resident=8 * GIB))
    second.request(mem(wanted=8 * GIB))
    second.expect("WAIT_FOR_MEM")
    shown = "#1 waits for memory: turns are off (nvsharectl -S on), needs 8.0 GiB more"
    assert node.ctl("-S", "off").returncode == 0
    assert shown in node.ctl("status").stdout
    until("its turn", lambda: '"wait_reason": "stuck"' in node.ctl("status", "--json").stdout)
    assert shown in node.ctl("status").stdout
    assert node.ctl("-S", "on").returncode == 0
    assert "turns are off" not in node.ctl("status").stdout


def shell(node, words):
    return subprocess.run(
        ["sh", "-c", words, "sh", CTL],
        env=clean_env(node.folder),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize("where, why", [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")])
@pytest.mark.parametrize("line", ["status", "status --json", "set tq 5", "-T 6", "--help", "--version"])
def test_ctl_fails_when_its_output_is_lost(node, line, where, why):
    node.start()
    run = shell(node, f'"$1" {line} {where}')
    assert (run.returncode, run.stdout) == (4, "")
    assert run.stderr == f"nvsharectl: the standard output can not be written to: {why}\n"


def test_ctl_fails_when_more_than_a_buffer_is_lost(node):
    """What fails first is then not what is written last."""
    node.start()
    for i in range(60):
        node.client(name=f"client {i}")
    assert shell(node, '"$1" status --json >/dev/full').returncode == 4


def test_ctl_says_that_it_was_turned_away(node):
    node.start()
    leave_descriptors(node.process.pid, 20)
    for _ in range(100):
        node.connect()
    node.expect_log("out of file descriptors")
    for args in [("status",), ("set", "tq", "5")]:
        run = node.ctl(*args)
        assert (run.returncode, run.stdout) == (3, "")
        assert f"{node.path} refused this connection, or has ended (" in run.stderr
        assert run.stderr.endswith("): look at its log\n")


def test_ctl_tells_the_scheduler_nothing_that_is_for_people(node):
    node.start()
    assert shell(node, '"$1" set weight 5 99 2>&-').returncode == 1
    assert shell(node, '"$1" set weight 5 99 <&- >&- 2>&-').returncode == 1
    assert node.ctl("status").returncode == 0
    assert "close peer" not in node.log()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_ctl_says_when_it_is_not_permitted(node):
    node.start()
    open_to_all(node.folder)
    program = node.folder / "nvsharectl"
    program.write_bytes(CTL.read_bytes())
    program.chmod(0o755)
    run = subprocess.run(
        [program, "set", "tq", "5"],
        env=clean_env(node.folder),
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1 and "not permitted" in run.stderr and run.stdout == ""
