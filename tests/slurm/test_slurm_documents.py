# SPDX-License-Identifier: Apache-2.0
"""An operator sets nvshare up in Slurm, and a user uses it, by the commands of the documents, as they stand there."""

import os
import pathlib
import re
import shutil
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from cluster import GPU_STATE, NEEDS, NODES, ROOT, TOOL_PATH, Machine, Slurm, until  # noqa: E402

from documents import Documents, blocks, row, section  # noqa: E402
from root_files import HOME  # noqa: E402

README = "src/slurm/README.md"
PLACES = [(README, "Setting it up"), (README, "How many tasks Slurm puts on a node"), (README, "Seeing the load"),
          ("src/man/nvshare-slurm.8.md", "USING IT")]

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a machine of its own"),
    pytest.mark.skipif(not all(shutil.which(tool, path=TOOL_PATH) for tool in (*NEEDS, "sudo", "curl")),
                       reason="needs Slurm, sudo and curl (scripts/setup deep installs them)"),
]


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path, "/", ROOT)
    yield made
    made.close()


def example():
    """The files of the example, for two nodes of two GPUs instead of a hundred of eight."""
    slurm, gres = blocks(section(README, "How many tasks Slurm puts on a node"), "text")
    assert slurm.startswith("# slurm.conf\n") and gres.startswith("# gres.conf\n")
    select = "\n".join(line for line in slurm.splitlines() if not line.startswith("NodeName="))
    return {
        "select": select,
        "gres": re.search(r"Gres=(\S+)", slurm)[1].replace("gpu:8", "gpu:2"),
        "gres_conf": gres.replace("nvidia[0-7]", "nvidia[0-1]") + "\n",
    }


class Path:
    def __init__(self, machine):
        self.machine = machine
        self.documents = Documents(PLACES)

    def do(self, line):
        """A command of a document, as it stands there, in the sources."""
        return self.machine.run(self.documents.take(line))

    def use(self, line):
        """The same of a user, in the folder of the programs."""
        return self.machine.run(f"cd {HOME} && timeout 100 sh -c '{self.documents.take(line)}'")

    def set_up(self):
        assert "libslurm-dev" in self.do("sudo apt install libslurm-dev")
        self.do("make && sudo make install")
        assert self.machine.is_there("/usr/local/share/man/man8/nvshare-slurm.8")
        # test_operator.py has these from README.md.
        self.machine.run("sudo systemd-sysusers && sudo systemd-tmpfiles --create nvshare.conf")
        self.machine.run("sudo systemctl enable --now nvshare-scheduler.socket nvshare-scheduler.service")
        Slurm(self.machine, NODES, GPU_STATE, **example())
        code, said = self.machine.try_("srun --nvshare true")
        assert code != 0 and "unrecognized option" in said
        self.do("sudo install -D -m 644 src/slurm/nvshare.conf /etc/slurm/plugstack.conf.d/nvshare.conf")
        assert "--nvshare-memory=SIZE" in self.do("srun --help | grep nvshare")

    def look(self):
        """Two tasks run: one on a GPU that the scheduler chose, one where Slurm wants it."""
        outputs = [self.machine.start(f"cd {HOME} && exec {self.documents.take(line).removesuffix(' &')}") for line in (
            "srun --nvshare --gres=nvshare:1 --nvshare-memory=20MiB python3 train_a.py &",
            "srun --nvshare --gres=shard:1 python3 train_b.py &")]
        name = r"slurm-\d+\.0\.0"
        until("both use a GPU", lambda: len(re.findall(name, self.machine.run("nvsharectl status"))) == 2)
        assert len(re.findall(name, self.do("nvsharectl queue"))) == 2
        self.do("nvsharectl status")
        metrics = self.do("curl http://127.0.0.1:9401/metrics")
        named = re.findall(r"`(nvshare_[a-z_]+)`", section(README, "Seeing the load"))
        assert len(named) == 4 and all(f"# TYPE {name} " in metrics for name in named), named
        said = self.machine.run("timeout 20 scontrol show node node1,node2")
        assert "Gres=gpu:2,shard:32,nvshare:32" in said
        self.machine.run(f"touch {HOME}/enough")
        for output in outputs:
            until("it ends, and its bytes are right", lambda: "verified" in output())

    def use_all(self):
        """Programs end at once by now."""
        script = "#!/bin/sh\nsrun python3 train_a.py\n"
        self.machine.write(f"{HOME}/train.sh", script, is_root=False)
        for line, n in (
            ("srun --nvshare python3 train_a.py", 1),
            ("srun --nvshare -N 2 --ntasks-per-node=2 python3 train_a.py", 4),
            ("srun --nvshare-memory=20MiB --nvshare-model=resnet50 python3 train_a.py", 1),
            ("salloc --nvshare srun python3 train_a.py", 1),
            ("SLURM_NVSHARE=1 srun python3 train_a.py", 1),
        ):
            assert self.use(line).count("verified") == n
        for line, n in (
            ("sbatch --nvshare --nvshare-priority=low train.sh", 1),
            ("sbatch --nvshare --array=1-3 train.sh", 3),
        ):
            job = re.search(r"Submitted batch job (\d+)", self.use(line))[1]
            output = f"cat {HOME}/slurm-{job}*.out || true"
            until("its programs end", lambda: self.machine.run(output).count("verified") == n)
        until("the queue is empty", lambda: not self.machine.run("timeout 20 squeue -h"))

    def remove(self):
        (line,) = re.findall(r"`(sudo rm /etc/slurm/[^`]*)`", section(README, "Setting it up"))
        self.machine.run(line)
        assert self.machine.try_("srun --nvshare true")[0] != 0
        self.machine.run("sudo make uninstall")
        assert not self.machine.run("find /usr /etc/slurm -name '*nvshare_spank*'", is_root=True)


def test_the_documents(machine):
    path = Path(machine)
    path.set_up()
    path.look()
    path.use_all()
    path.remove()
    assert not path.documents.unused and set(row("Slurm")) <= set(path.documents.lines)
