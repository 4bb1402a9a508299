# SPDX-License-Identifier: Apache-2.0
"""A new user installs, configures, watches, upgrades and removes nvshare, by the commands of the documents.

From the sources on a copy of this machine, whose changes stay in memory; from packages in a clean Debian, which
scripts/check-deb makes. Both have a simulated GPU, and stand-ins for systemd (manager.py) and for an editor.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from documents import ROOT, Documents, blocks, section  # noqa: E402
from machine import Machine, until  # noqa: E402
from root_files import HOME, UID  # noqa: E402

SCHEDULER_PAGE = "src/man/nvshare-scheduler.8.md"
SETTINGS = "/etc/nvshare/nvshare.yaml"
EDIT = f"sudoedit {SETTINGS}"
RELOAD = "sudo systemctl reload nvshare-scheduler"
RESTART = "sudo systemctl restart nvshare-scheduler"
LIBRARY = "/usr/lib/x86_64-linux-gnu/nvshare/libnvshare.so"
PACKAGED = ["./scripts/setup deb && make deb", "sudo apt install ./build/deb/*nvshare_*.deb",
            "sudo apt remove nvshare libnvshare python3-nvshare", "sudo apt purge nvshare"]
FROM_SOURCES = [
    "make && sudo make install",
    "sudo systemd-sysusers && sudo systemd-tmpfiles --create nvshare.conf && sudo systemctl daemon-reload",
    "sudo systemctl enable --now nvshare-scheduler.socket nvshare-scheduler.service",
    "sudo install -D -m 644 -t /etc/nvshare /usr/local/share/nvshare/nvshare.yaml",
    "sudo install -d -m 755 /run/nvshare /var/lib/nvshare && sudo -b nvshare-scheduler",
    "sudo systemctl disable --now nvshare-scheduler.socket nvshare-scheduler.service && sudo make uninstall",
]
DEBS = f"{HOME}/nvshare/build/deb"  # where `make deb` leaves them
TOOLS = ("nsenter", "setpriv", "unshare", "sudo")

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a machine of its own"),
    pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason=f"needs {TOOLS} (scripts/setup all installs them)"),
]


class Path:
    """What both ways have in common."""

    def __init__(self, machine, library):
        self.machine = machine
        self.library = library
        self.documents = Documents()

    def do(self, line, code=0, **options):
        """A command of a document, as it stands there."""
        ended, said = self.machine.try_(self.documents.take(line), **options)
        assert ended == code, f"{line}\nended with {ended}:\n{said}\n{self.machine.journal()}"
        return said

    def status(self):
        return json.loads(self.machine.run("nvsharectl status --json"))

    def clients(self):
        return {client["name"]: client for client in self.status()["clients"]}

    def wait_for_programs(self):
        until("both programs have memory on a GPU", lambda: all(
            self.clients().get(name, {}).get("run_seconds", 0) > 0 for name in ("train_a", "train_b")))

    def look_around(self):
        said = self.do("systemctl status nvshare-scheduler")
        assert "active (running)" in said and "listening on /run/nvshare/scheduler.sock" in said
        code, said = self.machine.try_(self.documents.take("nvsharectl doctor"))
        assert code in (0, 1), said  # this machine may warn
        for finding in ("driver", "library", "socket", "scheduler"):
            assert re.search(rf"^ok +{finding}\b", said, re.MULTILINE), said

    def start_program(self, name, line):
        """It runs until the file "enough" is there. The function that tells its output."""
        line = self.documents.take(line).replace(LIBRARY, self.library)
        return self.machine.start(f"cd {HOME} && export NVSHARE_NAME={name} && {line}")

    def start_programs(self):
        outputs = [self.start_program(name, f"LD_PRELOAD={LIBRARY} python3 {name}.py &") for name in ("train_a", "train_b")]
        self.wait_for_programs()
        assert "train_a" in self.do("nvsharectl status")
        return outputs

    def configure(self):
        before = self.machine.read(SETTINGS)
        self.machine.edit(self.documents.take(EDIT), before + "policy: fastest\n")
        n = before.count("\n") + 1
        said = self.do("nvshare-scheduler --check-config", code=1)
        assert f"{SETTINGS}:{n}" in said and "priority, fair, credit, deadline" in said, said
        self.do(RELOAD, code=1)
        self.machine.edit(EDIT, before + "policy: fair\n")
        assert self.do("nvshare-scheduler --check-config").strip() in ("", "ok")
        self.do(RELOAD)
        assert re.search(rf"^policy +fair +{SETTINGS}:{n}$", self.do("nvsharectl config"), re.MULTILINE)
        self.do("sudo nvsharectl set --save quantum_sec 20")
        more = "policy: fair\npoll_interval_ms: 100\nalert_command: /usr/local/bin/nvshare-alert\n"
        self.machine.edit(EDIT, before + more)
        (script,) = [text for text in blocks(section(SCHEDULER_PAGE, "ALERTS"), "text") if text.startswith("#!")]
        self.machine.write("/usr/local/bin/nvshare-alert", script + "\n")
        self.machine.run("chmod 755 /usr/local/bin/nvshare-alert", is_root=True)
        self.do(RESTART)
        self.wait_for_programs()
        said = self.do("nvsharectl config")
        assert re.search(r"^quantum_sec +20 +/var/lib/nvshare/saved.yaml", said, re.MULTILINE), said
        assert re.search(r"^alert_command +/usr/local/bin/nvshare-alert ", said, re.MULTILINE), said

    def watch(self):
        code = self.machine.in_terminal(self.documents.take("nvsharectl top"), ["train_a", "train_b", "running"], "q")
        assert code == 0
        metrics = self.do("curl http://127.0.0.1:9401/metrics")
        known = set(re.findall(r"# TYPE (\S+)", metrics))
        share = "/usr/local/share" if "/usr/local/" in self.library else "/usr/share"
        for file in ("nvshare-dashboard.json", "nvshare-alerts.yaml"):
            names = re.findall(r"\bnvshare_[a-z_]+", self.machine.read(f"{share}/nvshare/{file}"))
            assert names and {re.sub("_bucket$", "", name) for name in names} <= known
        assert "<title>" in self.machine.run("curl -s http://127.0.0.1:9401/")
        page = json.loads(self.machine.run("curl -s http://127.0.0.1:9401/status.json"))
        assert {client["name"] for client in page["clients"]} == {"train_a", "train_b", "serve"}
        self.do("nvsharectl trace -o trace.json")
        assert json.loads(self.machine.read(f"{self.machine.work}/trace.json"))["traceEvents"]

    def hurry(self):
        """A third program, of a class that the user may have by now."""
        line = self.documents.take("sudo nvsharectl set --save priority_max normal,uid:1000=critical")
        self.machine.run(line.replace("1000", str(UID)))
        output = self.start_program("serve", f"NVSHARE_PRIORITY=critical LD_PRELOAD={LIBRARY} python3 serve.py")
        until("it is critical", lambda: self.clients().get("serve", {}).get("priority") == "critical")
        return output

    def break_a_gpu(self):
        """Programs use the other one."""
        events = self.machine.start(self.documents.take("nvsharectl events -f"))
        until("both GPUs are good", lambda: [gpu["state"] for gpu in self.status()["gpus"]] == ["good"] * 2)
        self.machine.inject("xid 79 gpu 1")
        until("the user sees it", lambda: "gpu_unrecoverable" in events())
        until("the status says why", lambda: "lost, Xid 79: no client gets a turn" in self.machine.run("nvsharectl status"))
        until("the alert command has run", lambda: "nvshare-alert: error gpu_unrecoverable: GPU 1" in self.machine.journal())
        self.machine.inject("recover gpu 1")
        until("the user sees that, too", lambda: "gpu_back" in events())
        said = self.do("journalctl -u nvshare-scheduler")
        assert "gpu-unrecoverable gpu=1" in said and "gpu-back gpu=1" in said

    def finish(self, outputs):
        self.machine.run(f"touch {HOME}/enough")
        for output in outputs:
            until("a program ends, and all of its bytes are right", lambda: "verified" in output())

    def operate(self):
        """From the installation to the upgrade. The output of programs that run on."""
        self.look_around()
        outputs = self.start_programs()
        self.configure()
        outputs.append(self.hurry())
        self.watch()
        self.break_a_gpu()
        return outputs


@pytest.fixture
def machine(tmp_path):
    made = []

    def make(*files):
        made.append(Machine(tmp_path, *files))
        return made[0]

    yield make
    for one in made:
        one.close()


# ---- from the sources --------------------------------------------------------------------------


def test_from_the_sources(machine):
    """In the user's home are links to the tree, which is mounted without the right to write."""
    user = machine("/", ROOT)
    path = Path(user, "/usr/local/lib/libnvshare.so")
    path.do("make && sudo make install")
    start_without_systemd(path)
    path.do(FROM_SOURCES[1])
    path.do(FROM_SOURCES[2])
    path.do(FROM_SOURCES[3])
    outputs = path.operate()
    pid = path.clients()["train_a"]["pid"]
    path.do("make && sudo make install")
    path.do(RESTART)
    path.wait_for_programs()
    assert f"{path.library}.{user.run('make -s print-version').strip()} (deleted)" in user.read(f"/proc/{pid}/maps")
    path.do(FROM_SOURCES[-1])
    path.finish(outputs)
    left = user.run("find /usr/local -path '*nvshare*' ! -type d", is_root=True).split()
    assert left == ["/usr/local/bin/nvshare-alert"]
    assert path.documents.unused == set(PACKAGED)


def start_without_systemd(path):
    output = path.machine.start(path.documents.take(FROM_SOURCES[4]))
    until("the scheduler answers", lambda: path.machine.try_("nvsharectl status")[0] == 0)
    path.machine.run(f"sudo kill {path.status()['pid']}")
    until("it has ended", lambda: path.machine.try_("nvsharectl status")[0] == 3)
    assert "listening" in output()


# ---- from packages -------------------------------------------------------------------------------


def make_newer(debs, folder):
    """The packages again as the next version: another name of the library's file, another file of settings."""
    for deb in debs:
        tree = folder / deb.stem
        subprocess.run(["dpkg-deb", "-R", deb, tree], check=True)
        control = tree / "DEBIAN" / "control"
        version = re.search(r"^Version: (.*)$", control.read_text(), re.MULTILINE)[1]
        control.write_text(control.read_text().replace(version, f"{version}+next"))
        for library in tree.glob("usr/lib/*/nvshare/libnvshare.so.*"):
            library.rename(f"{library}+next")
            link = library.parent / "libnvshare.so"
            link.unlink()
            link.symlink_to(f"{library.name}+next")
        for settings in tree.glob(SETTINGS[1:]):
            settings.write_text(settings.read_text() + "# the next version\n")
        subprocess.run(["dpkg-deb", "-b", tree, folder / f"{deb.stem}.deb"], check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(tree)
    return sorted(folder.glob("*.deb"))


def check_installed(path):
    """All that is there before anybody has used it."""
    user = path.machine
    assert user.run("stat -c '%U:%G %a' /run/nvshare") == "nvshare:nvshare 755\n"
    assert user.try_(f"LD_PRELOAD={LIBRARY} ls / >/dev/null") == (0, "")
    assert user.run(f"LD_PRELOAD={LIBRARY} python3 -c 'import nvshare; print(nvshare.is_loaded())'") == "True\n"
    assert not user.is_there("/etc/ld.so.preload")
    units = "nvshare-scheduler.service nvshare-scheduler.socket"
    assert user.try_(f"systemd-analyze verify --man=no {units}", is_root=True) == (0, "")


@pytest.mark.slow
def test_from_packages(machine, tmp_path):
    """NVSHARE_DEBS: the packages. NVSHARE_ROOT: a Debian that has what they need in apt's cache."""
    debs = sorted(pathlib.Path(os.environ["NVSHARE_DEBS"]).glob("*nvshare_*.deb"))
    user = machine(os.environ["NVSHARE_ROOT"])
    user.put(debs, DEBS)
    path = Path(user, LIBRARY)
    path.documents.take(PACKAGED[0])  # this is how they came to be
    path.do(PACKAGED[1])
    check_installed(path)
    outputs = path.operate()
    settings = user.read(SETTINGS)
    pid, scheduler = path.clients()["train_a"]["pid"], path.status()["pid"]
    (tmp_path / "newer").mkdir()
    user.put(make_newer(debs, tmp_path / "newer"), DEBS)
    path.do(PACKAGED[1], answer="n\n")  # dpkg asks, because both the user and the new version have changed it
    path.wait_for_programs()
    assert path.status()["pid"] != scheduler
    assert user.read(SETTINGS) == settings
    assert re.search(r"libnvshare.so.*\(deleted\)", user.read(f"/proc/{pid}/maps"))
    assert re.search(r"^quantum_sec +20 ", user.run("nvsharectl config"), re.MULTILINE)
    path.do(PACKAGED[2])
    assert user.try_("systemctl is-active nvshare-scheduler")[0] != 0 and not user.is_there("/usr/bin/nvsharectl")
    assert user.read(SETTINGS) == settings and user.is_there("/var/lib/nvshare/saved.yaml")
    path.finish(outputs)
    path.do(PACKAGED[3])
    left = user.run("find /etc /lib/ /run /usr /var/lib -path '*nvshare*' ! -path '*/dpkg/*'", is_root=True).split()
    assert left == ["/usr/local/bin/nvshare-alert"]
    assert path.documents.unused == set(FROM_SOURCES)
