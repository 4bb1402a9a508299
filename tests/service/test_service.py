# SPDX-License-Identifier: Apache-2.0
"""The units, by systemd's own tools, and the scheduler under what they say; no systemd has to run here."""

import contextlib
import importlib.util
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
UNITS = ROOT / "src" / "service"
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from wire import PATIENCE, Wire  # noqa: E402

_spec = importlib.util.spec_from_file_location("e2e_node", ROOT / "tests" / "e2e" / "conftest.py")
e2e = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(e2e)

until = e2e.until
MIB = e2e.MIB
SERVICE_UID, PROGRAM_UID = 64001, 64002
CAP_SYS_PTRACE = 19

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become other users")
pytestmark = pytest.mark.skipif(not shutil.which("systemd-analyze"),
                                reason="needs systemd's tools (scripts/setup test installs them)")


@pytest.fixture
def node():
    """In a folder that other users reach."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="nvshare-service-"))
    folder.chmod(0o755)
    made = e2e.Node(folder)
    yield made
    made.close()
    shutil.rmtree(folder)


@pytest.fixture
def units(tmp_path):
    """The units, as they are installed; ExecStart= is the scheduler of this build."""
    text = (UNITS / "nvshare-scheduler.service.in").read_text()
    (tmp_path / "nvshare-scheduler.service").write_text(text.replace("@BINDIR@", str(e2e.BUILD)))
    shutil.copy(UNITS / "nvshare-scheduler.socket", tmp_path)
    return tmp_path


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=PATIENCE, check=False, **options)
    return done.returncode, done.stdout


def settings_of(unit):
    """Section to key to values, in their order."""
    found = {}
    for line in unit.read_text().splitlines():
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            key, value = line.split("=", 1)
            section.setdefault(key, []).append(value)
    return found


# ---- the analyses ---------------------------------------------------------------------


def test_systemd_finds_nothing_to_say_about_the_units(units):
    found = run("systemd-analyze", "verify", "--man=no", *sorted(units.glob("nvshare-scheduler.*")))
    assert found == (0, "")


def test_a_mistake_in_a_unit_would_be_found(units):
    with open(units / "nvshare-scheduler.socket", "a") as unit:
        unit.write("NoSuchKey=yes\n")
    assert "NoSuchKey" in run("systemd-analyze", "verify", "--man=no", units / "nvshare-scheduler.socket")[1]


def test_the_exposure_of_the_service_is_at_most_two(units):
    code, said = run("systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold=20",
                     units / "nvshare-scheduler.service")
    assert code == 0, said


@needs_root
def test_the_user_and_its_folder_come_from_their_files(tmp_path):
    (tmp_path / "etc").mkdir()
    code, said = run("systemd-sysusers", f"--root={tmp_path}", UNITS / "nvshare.sysusers")
    assert code == 0, said
    uid, gid = next(line.split(":")[2:4] for line in (tmp_path / "etc" / "passwd").read_text().splitlines()
                    if line.startswith("nvshare:"))
    assert run("systemd-tmpfiles", "--create", f"--root={tmp_path}", UNITS / "nvshare.tmpfiles") == (0, "")
    folder = (tmp_path / "run" / "nvshare").stat()
    assert (folder.st_uid, folder.st_gid, folder.st_mode & 0o7777) == (int(uid), int(gid), 0o755)


# ---- the scheduler and its manager ---------------------------------------------------------


@contextlib.contextmanager
def manager(name):
    """A stand-in: hears what the scheduler sends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(name.replace("@", "\0", 1))
        heard.settimeout(PATIENCE)
        yield lambda: heard.recv(4096).decode()


@pytest.mark.parametrize("is_abstract", [False, True])
def test_a_manager_hears_of_start_life_and_end(node, is_abstract):
    name = f"@nvshare-{os.getpid()}" if is_abstract else str(node.folder / "notify")
    with manager(name) as hear:
        node.scheduler = e2e.Program("scheduler", [node.build / "nvshare-scheduler"],
                                     {**node.env, "NOTIFY_SOCKET": name, "WATCHDOG_USEC": "200000"}, node.folder)
        assert hear() == f"READY=1\nSTATUS=listening on {node.sock_dir}/scheduler.sock, gpus=1"
        Wire(node.sock_dir / "scheduler.sock").close()
        assert [hear(), hear()] == ["WATCHDOG=1"] * 2
        node.scheduler.kill(signal.SIGTERM)
        while (said := hear()) == "WATCHDOG=1":
            pass
        assert said == "STOPPING=1"
        node.scheduler.expect(0)


def activate(node, *prefix, **env):
    """The manager's part: it listens, and starts the scheduler at the first connection."""
    settings = {**node.env, "NVSHARE_LOG": "debug", **env}
    node.n_schedulers += 1
    node.scheduler = e2e.Program(
        f"scheduler-{node.n_schedulers}",
        ["systemd-socket-activate", "--seqpacket", "-l", node.sock_dir / "scheduler.sock",
         *[f"-E{key}={value}" for key, value in settings.items()], *prefix, node.build / "nvshare-scheduler"],
        settings, node.folder)
    until("the manager listens", lambda: "Listening on" in node.scheduler.output())
    (node.sock_dir / "scheduler.sock").chmod(0o666)  # the tool knows no SocketMode=


def test_the_first_connection_starts_the_scheduler_and_is_answered(node):
    activate(node)
    client = Wire(node.sock_dir / "scheduler.sock")
    assert client.register()[0] == 0
    client.send("PING", 5)
    assert client.expect("PING") == (5,)
    assert "restarted" in node.scheduler.output()  # others may come back
    client.close()
    node.expect_sound_scheduler()
    assert (node.sock_dir / "scheduler.sock").is_socket()  # the manager's


def test_another_socket_than_the_schedulers_is_an_error_that_says_what_to_do(node):
    activate(node, "env", f"NVSHARE_SOCK_DIR={node.folder}")
    Wire(node.sock_dir / "scheduler.sock").close()
    said = node.scheduler.expect(1)
    assert f"something else than one listening SOCK_SEQPACKET socket '{node.folder}/scheduler.sock'" in said


# ---- its rights ----------------------------------------------------------------------


def as_the_unit(units):
    """The unit's capabilities, and a user of its own, for setpriv."""
    service = settings_of(units / "nvshare-scheduler.service")["Service"]
    words = [word for value in service["CapabilityBoundingSet"] for word in value.split()]
    names = ",".join(["-all"] + ["+" + word.removeprefix("CAP_").lower() for word in words])
    assert service["AmbientCapabilities"] == service["CapabilityBoundingSet"]
    assert service["NoNewPrivileges"] == ["yes"]
    return ["setpriv", "--reuid", SERVICE_UID, "--regid", SERVICE_UID, "--clear-groups", "--no-new-privs",
            "--bounding-set", names, "--inh-caps", names, "--ambient-caps", names]


def capabilities(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1], 16) for line in lines if line.startswith("Cap")}


def share_gpu(node):
    """Makes the files of the simulated node, for all users: a scheduler that begins without them finds no GPU."""
    node.used()
    for path in [node.sim_dir, *node.sim_dir.iterdir()]:
        path.chmod(0o777)


def start_pair(node):
    """Two programs of one user that is neither root nor the scheduler's."""
    return [node.start(["setpriv", "--reuid", PROGRAM_UID, "--clear-groups", node.build / "tests/apps/oversub",
                        "--size", "80MiB", "--buffers", 10, "--passes", 1, "--until", node.flag("enough"),
                        "--name", f"p{i}", "--seed", i], f"p{i}", NVSHARE_DEBUG="1", NVSHARE_DRAIN_MS="0")
            for i in range(2)]


def handed_over(program):
    return sum(int(n) for n in re.findall(r"(\d+) handed over", program.output()))


@needs_root
def test_with_the_units_rights_alone_memory_is_handed_over(node, units):
    node.env.update(NVSHARE_SIM_MEMORY="128MiB", NVSHARE_SIM_CONTEXT="1MiB")
    share_gpu(node)
    shutil.chown(node.sock_dir, SERVICE_UID, SERVICE_UID)
    activate(node, *as_the_unit(units), NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="0.2")
    until("the scheduler answers", node.is_scheduler_up)
    only = {name: 1 << CAP_SYS_PTRACE for name in ("CapInh", "CapPrm", "CapEff", "CapBnd")}
    assert capabilities(node.scheduler.pid) == {**only, "CapAmb": 0}  # nothing for its children
    programs = start_pair(node)
    until("both handed memory over", lambda: all(handed_over(p) >= 16 * MIB for p in programs))
    pid = node.scheduler.pid
    (helper,) = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert capabilities(helper)["CapPrm"] == capabilities(helper)["CapEff"] == 0
    node.finish(programs)


def expand(name):
    """The system calls of a set of systemd's."""
    if not name.startswith("@"):
        return {name}
    code, said = run("systemd-analyze", "--no-pager", "syscall-filter", name)
    assert code == 0, said
    words = [line.strip() for line in said.splitlines()[1:]]
    return set().union(*(expand(word) for word in words if word and not word.startswith("#")))


def allowed_calls(units):
    """Of the unit: each line adds or takes away, in their order."""
    allowed = set()
    for line in settings_of(units / "nvshare-scheduler.service")["Service"]["SystemCallFilter"]:
        calls = set().union(*(expand(word) for word in line.removeprefix("~").split()))
        allowed = allowed - calls if line.startswith("~") else allowed | calls
    return allowed | expand("@default")


@needs_root
def test_a_reload_of_the_unit_applies_a_file_and_fails_where_it_is_wrong(node, units):
    share_gpu(node)
    shutil.chown(node.sock_dir, SERVICE_UID, SERVICE_UID)
    file = node.folder / "nvshare.yaml"
    file.write_text("retry_sec: 5\n")
    name = str(node.folder / "notify")
    with manager(name) as hear:
        os.chmod(name, 0o666)
        activate(node, *as_the_unit(units), NVSHARE_CONFIG=str(file), NOTIFY_SOCKET=name)
        until("the scheduler answers", node.is_scheduler_up)
        assert hear().startswith("READY=1\nSTATUS=listening on ")
        reload_ = settings_of(units / "nvshare-scheduler.service")["Service"]["ExecReload"][0].split()
        file.write_text("retry_sec: 7\n")
        assert run(*as_the_unit(units), *reload_, env=node.env)[0] == 0
        assert hear().startswith("RELOADING=1\nMONOTONIC_USEC=")
        assert hear() == "READY=1\nSTATUS=reload done: settings changed: 1"
        file.write_text("retry_sec: never\n")
        code, said = run(*as_the_unit(units), *reload_, env=node.env)
        assert code != 0 and f"{file}:1" in said
        assert hear().startswith("RELOADING=1\nMONOTONIC_USEC=")
        assert hear().startswith("READY=1\nSTATUS=reload refused: ")
        node.expect_sound_scheduler()


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_the_scheduler_calls_nothing_that_the_unit_forbids(node, units):
    """With two programs that hand memory over. What a real NVML calls does not show here."""
    node.env.update(NVSHARE_SIM_MEMORY="128MiB", NVSHARE_SIM_CONTEXT="1MiB")
    seen = node.folder / "calls"
    activate(node, "strace", "-D", "-f", "-qq", "-o", seen,
             NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="0.2")
    until("the scheduler answers", node.is_scheduler_up)
    programs = [node.app("oversub", "--size", "80MiB", "--buffers", 10, "--passes", 1, "--until",
                         node.flag("enough"), "--seed", i, name=f"p{i}", NVSHARE_DEBUG="1", NVSHARE_DRAIN_MS="0")
                for i in range(2)]
    until("both handed memory over", lambda: all(handed_over(p) for p in programs))
    node.finish(programs)
    calls = set(re.findall(r"^\d+ +(\w+)\(", seen.read_text(errors="replace"), re.MULTILINE))
    assert "accept4" in calls
    assert calls - allowed_calls(units) == set()
