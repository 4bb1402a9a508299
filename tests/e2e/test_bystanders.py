# SPDX-License-Identifier: Apache-2.0
"""Programs that never touch CUDA see no change: shells, static binaries, a whole system."""

import os
import re
import shutil
import subprocess

import pytest

from conftest import PATIENCE

STATIC_C = r"""
#include <stdio.h>
int main(void) { puts("static"); return 7; }
"""


def run(command, preload=None, **kwargs):
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    if preload:
        env["LD_PRELOAD"] = str(preload)
    return subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=PATIENCE, **kwargs)


@pytest.fixture
def static_binary(tmp_path):
    source, binary = tmp_path / "static.c", tmp_path / "static"
    source.write_text(STATIC_C)
    subprocess.run(["cc", "-static", "-o", str(binary), str(source)], check=True)
    return binary


@pytest.mark.parametrize(
    "script",
    [
        "echo hello; echo error >&2; exit 3",
        "for i in 1 2 3; do (echo $i) | cat; done | sort -r",
        "trap 'echo caught; exit 5' TERM; kill -TERM $$",
        "env | grep -v LD_PRELOAD | grep -v ^_= | sort",
        "ulimit -n; ulimit -v; cat /proc/self/limits",
        "ls /proc/self/fd | wc -l; ls /proc/self/task | wc -l",
    ],
)
def test_a_shell_does_what_it_did(build, script):
    lib = build / "libnvshare.so"
    assert lib.exists()
    without, with_ = run(["/bin/sh", "-c", script]), run(["/bin/sh", "-c", script], lib)
    assert (with_.returncode, with_.stdout, with_.stderr) == (
        without.returncode, without.stdout, without.stderr)


def test_python_does_what_it_did(build):
    script = ("import ctypes, subprocess, threading, os, sys;"
              "t = threading.Thread(target=print, args=('thread',)); t.start(); t.join();"
              "print(ctypes.CDLL(None).getpid() == os.getpid());"
              "print(subprocess.run(['echo', 'child'], stdout=subprocess.PIPE).stdout);"
              "pid = os.fork();"
              "os._exit(4) if pid == 0 else print(os.waitpid(pid, 0)[1]);"
              "sys.exit(6)")
    command = ["/usr/bin/python3", "-c", script]
    without, with_ = run(command), run(command, build / "libnvshare.so")
    assert without.returncode == 6
    assert (with_.returncode, with_.stdout, with_.stderr) == (
        without.returncode, without.stdout, without.stderr)


def test_a_static_binary_does_what_it_did(build, static_binary):
    done = run([str(static_binary)], build / "libnvshare.so")
    assert (done.returncode, done.stdout, done.stderr) == (7, "static\n", "")


def test_loading_starts_no_thread_and_opens_nothing(build):
    script = "import os; print(len(os.listdir('/proc/self/task')), sorted(os.readlink(f'/proc/self/fd/{f}')" \
             " for f in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{f}')))"
    done = run(["/usr/bin/python3", "-c", script], build / "libnvshare.so", stdin=subprocess.DEVNULL)
    assert done.stdout.startswith("1 "), done.stdout
    assert "socket" not in done.stdout


def libraries_of(binary):
    """What the loader needs for it, as absolute paths."""
    done = subprocess.run(["ldd", str(binary)], stdout=subprocess.PIPE, text=True, check=True)
    return re.findall(r"(/[^ ]+)", done.stdout)


def copy_into(root, path):
    target = root / str(path).lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, target)


@pytest.fixture
def system(tmp_path, build, static_binary):
    """A root folder with a shell, a few tools, a static binary, and the library for all."""
    if os.geteuid() != 0:
        pytest.skip("chroot needs root")
    root = tmp_path / "root"
    for tool in ("/bin/sh", "/bin/cat", "/bin/ls", "/usr/bin/sort", "/usr/bin/env"):
        real = os.path.realpath(tool)
        for path in {real, *libraries_of(real), *libraries_of(build / "libnvshare.so")}:
            copy_into(root, path)
        target = root / tool.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copy2(real, target)
    shutil.copy2(static_binary, root / "static")
    copy_into(root, "/etc/passwd")
    (root / "lib").mkdir(exist_ok=True)
    shutil.copy2(build / "libnvshare.so", root / "lib" / "libnvshare.so")
    return root


def test_a_system_that_preloads_it_everywhere(system):
    """/etc/ld.so.preload: every program loads the library, none shows it."""
    scripts = [
        ("echo hello; echo error >&2; exit 3", 3),
        ("for i in 3 1 2; do (echo $i); done | sort", 0),
        ("ls /etc/passwd && cat /etc/passwd | sort", 0),
        ("/static; echo $?", 0),
        ("env -i /bin/sh -c 'echo inner'", 0),
        ("cat /missing", 1),
    ]
    command = ["chroot", str(system), "/bin/sh", "-c"]
    before = [run([*command, script]) for script, _ in scripts]
    (system / "etc" / "ld.so.preload").write_text("/lib/libnvshare.so\n")
    after = [run([*command, script]) for script, _ in scripts]
    for (script, code), old, new in zip(scripts, before, after):
        assert old.returncode == code, (script, old)
        assert (new.returncode, new.stdout, new.stderr) == (old.returncode, old.stdout, old.stderr), script
    loaded = run(["chroot", str(system), "/bin/sh", "-c", "LD_DEBUG=libs cat /etc/passwd"])
    assert "libnvshare.so" in loaded.stderr, "the library was not even loaded"
