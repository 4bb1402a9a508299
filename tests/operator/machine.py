# SPDX-License-Identifier: Apache-2.0
"""A machine with a simulated GPU, and a user of it who may use sudo. manager.py is its process 1."""

import os
import pathlib
import pty
import select
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "flaky"))

from root_files import GPU_STATE, HERE, HOME, UID, USER  # noqa: E402
from verdict import PATIENCE  # noqa: E402

ENV = {
    "HOME": HOME,
    "USER": USER,
    "LC_ALL": "C.UTF-8",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "TERM": "xterm-256color",
    "EDITOR": "/usr/local/bin/an-editor",
    "NVSHARE_SIM_DIR": GPU_STATE,
    "NVSHARE_SIM_GPUS": "2",
    "NVSHARE_SIM_MEMORY": "256MiB",
    "NVSHARE_SIM_CONTEXT": "4MiB",
}


def until(what, condition):
    """Waits until condition() is true, and returns what it returned."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, f"{what}: not within {PATIENCE} s"
        time.sleep(0.05)
    return found


class Machine:
    def __init__(self, folder, lower, *tree):
        """lower: the folder whose files it begins with. tree: sources for the user's home."""
        self.folder = folder
        self.root = folder / "root"
        self.root.mkdir()
        self.n_outputs = 0
        self.work = f"{HOME}/nvshare"
        gpu = {key: value for key, value in ENV.items() if key.startswith("NVSHARE_SIM_")}
        env = {**gpu, "PATH": os.environ["PATH"], "NVSHARE_BUILD": os.environ.get("NVSHARE_BUILD", "")}
        command = ["unshare", "--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child", "--propagation", "private",
                   sys.executable, HERE / "manager.py", self.root, lower, *tree]
        self.process = subprocess.Popen(command, env={k: v for k, v in env.items() if v}, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "up\n"
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as children:
            self.pid = int(children.read())

    def close(self):
        self.process.kill()  # and process 1 with it, and all others with that
        self.process.wait()

    def command(self, line, is_root=False):
        become = [] if is_root else ["setpriv", "--reuid", str(UID), "--regid", str(UID), "--init-groups"]
        words = [f"{key}={value}" for key, value in ENV.items()]
        return ["nsenter", "--target", str(self.pid), "--mount", "--net", "--pid", "--ipc", "--root", "--wd",
                *become, "env", "-i", *words, "sh", "-c", f"cd {self.work} && {line}"]

    def try_(self, line, is_root=False, answer=""):
        """Its exit code and output; answer: what the user types."""
        done = subprocess.run(self.command(line, is_root), input=answer, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=900, check=False)
        return done.returncode, done.stdout

    def run(self, line, **options):
        """As the user; sh runs it. Its output."""
        code, said = self.try_(line, **options)
        assert code == 0, f"{line}\nended with {code}:\n{said}\n{self.journal()}"
        return said

    def start(self, line):
        """Goes on meanwhile. The function that tells its output so far."""
        self.n_outputs += 1
        path = self.folder / f"output-{self.n_outputs}"
        with open(path, "wb") as output:
            subprocess.Popen(self.command(line), stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        return path.read_text

    def in_terminal(self, line, words, key):
        """Runs it in a terminal until all words are on the screen, and then presses the key. Its exit code."""
        here, there = pty.openpty()
        process = subprocess.Popen(self.command(f"stty rows 24 cols 80 && {line}"), stdin=there, stdout=there, stderr=there)
        os.close(there)
        seen = b""

        def are_shown():
            nonlocal seen
            while select.select([here], [], [], 0)[0]:
                seen += os.read(here, 65536)
            assert process.poll() is None, f"{line} has ended:\n{seen.decode(errors='replace')}"
            return all(word.encode() in seen for word in words)

        until(f"{line} shows {words}", are_shown)
        os.write(here, key.encode())
        code = process.wait(PATIENCE)
        os.close(here)
        return code

    def journal(self):
        return self.try_("cat /run/manager/journal", is_root=True)[1]

    def write(self, path, text, is_root=True):
        subprocess.run(self.command(f"cat >{path}", is_root=is_root), input=text, text=True, check=True, timeout=PATIENCE)

    def read(self, path):
        return self.run(f"cat {path}", is_root=True)

    def is_there(self, path):
        return self.try_(f"test -e {path}", is_root=True)[0] == 0

    def put(self, files, folder):
        """Files of this machine; the folder has no others then."""
        inside = f"{self.root}{folder}"
        line = 'rm -rf "$0" && mkdir -p "$0" && cp "$@" "$0"'
        subprocess.run(["nsenter", "--target", str(self.pid), "--mount", "sh", "-c", line, inside, *files], check=True)

    def edit(self, line, text):
        """The line starts an editor; the person leaves this text."""
        self.write("/tmp/edited", text)
        self.run(line)

    def inject(self, line):
        """An event of the simulated GPU; readers take the file away, so it comes whole."""
        self.write(f"{GPU_STATE}/inject.new", line + "\n")
        self.run(f"chmod 666 {GPU_STATE}/inject.new && mv {GPU_STATE}/inject.new {GPU_STATE}/inject", is_root=True)
