# SPDX-License-Identifier: Apache-2.0
"""A real Slurm of two nodes on a machine of its own (tests/operator/machine.py), without systemd.

Each node has a simulated GPU's folder and an nvshare-scheduler of its own. Both slurmd run side by side on the one
machine, so the plugin finds a node's scheduler by "%n" in its socket_dir.
"""

import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "operator"))

from machine import Machine, until  # noqa: E402
from root_files import GPU, GPU_STATE  # noqa: E402

BUILD = "/opt/nvshare/build/plain"
LIBRARY = f"{BUILD}/libnvshare.so"
PLUGSTACK = "/etc/slurm/plugstack.conf.d/nvshare.conf"
NODES = ("node1", "node2")
SBIN = "export PATH=$PATH:/usr/sbin"
NEEDS = ("nsenter", "setpriv", "unshare", "munged", "slurmctld", "slurmd", "srun")
TOOL_PATH = f"{os.environ['PATH']}:/usr/sbin"

# As in Debian: plugstack.conf includes the files of plugstack.conf.d. KillWait is how long a task has after scancel.
SLURM_CONF = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
{select}
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=2
StateSaveLocation=/var/spool/slurmctld
SlurmctldPidFile=/run/slurmctld.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdPidFile=/run/slurmd-%n.pid
SlurmdSpoolDir=/var/spool/slurmd-%n
SlurmdLogFile=/var/log/slurmd-%n.log
TaskProlog=/etc/slurm/task-prolog
{nodes}
PartitionName=all Nodes=ALL Default=YES
"""
NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=16 RealMemory=2000 Gres={gres}"
SELECT = "SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nGresTypes=gpu,shard"
GRES = "gpu:2,shard:8"
GRES_CONF = "Name=gpu File=/dev/nvidia[0-1]\nName=shard Count=8\n"

# Slurm resolves names only where an interface has an address beyond 127.0.0.1 (AI_ADDRCONFIG); SIOCSIFADDR gives one.
ADDRESS = """import fcntl, socket, struct
request = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, bytes([10, 0, 0, 1]))
fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8916, request)
"""


class Slurm:
    """Munge, slurmctld and a slurmd a node, on a Machine."""

    def __init__(self, machine, nodes, sim_dir, select=SELECT, gres=GRES, gres_conf=GRES_CONF):
        """sim_dir: of the simulated GPU, as the shell of a task names it. The rest: lines and words of Slurm's files."""
        self.machine = machine
        self.nodes = nodes
        host = os.uname().nodename
        lines = [NODE.format(name=name, host=host, port=17001 + i, gres=gres) for i, name in enumerate(nodes)]
        machine.write("/etc/slurm/slurm.conf", SLURM_CONF.format(host=host, select=select, nodes="\n".join(lines)))
        machine.write("/etc/slurm/gres.conf", gres_conf)
        machine.write("/etc/slurm/task-prolog", f"#!/bin/sh\necho export NVSHARE_SIM_DIR={sim_dir}\n")
        machine.write("/run/address.py", ADDRESS)
        for line in (
            "chmod 755 /etc/slurm/task-prolog && python3 /run/address.py",
            "mknod -m 666 /dev/nvidia0 c 1 3 && mknod -m 666 /dev/nvidia1 c 1 3",
            "mkdir -p /run/munge /var/spool/slurmctld && chown munge:munge /run/munge",
            "setpriv --reuid munge --regid munge --clear-groups /usr/sbin/munged </dev/null >/run/munged.out 2>&1",
        ):
            machine.run(line, is_root=True)
        self.daemon("slurmctld -i")
        for name in nodes:
            self.daemon(f"slurmd -N {name}")
        self.await_nodes()

    def daemon(self, line):
        self.machine.run(f"{SBIN}; {line} </dev/null >>/run/slurm.out 2>&1", is_root=True)

    def await_nodes(self):
        want = sorted(f"{name} idle" for name in self.nodes)
        until(f"{self.nodes} are idle", lambda: sorted(self.states()) == want)

    def states(self):
        return self.machine.try_("timeout 20 sinfo -h -N -o '%N %T'")[1].splitlines()

    def pid_of(self, daemon, node=None):
        return int(self.machine.read(f"/run/{daemon}{f'-{node}' if node else ''}.pid"))


class Cluster:
    """Two nodes, their schedulers, and the plugin of the build."""

    def __init__(self, folder):
        self.machine = Machine(folder, "/", ROOT)
        self.pids = {}
        self.n_logs = 0
        self.plug()
        self.slurm = Slurm(self.machine, NODES, f"{GPU_STATE}/$SLURMD_NODENAME")
        for node in NODES:
            self.start_scheduler(node)

    def close(self):
        self.machine.close()

    def plug(self, *words, is_required=False):
        """Writes the plugin's line; Slurm reads it for each step."""
        first = "required" if is_required else "optional"
        words = words or (f"library={LIBRARY}", "socket_dir=/run/nvshare-%n")
        self.machine.write(PLUGSTACK, f"{first} {BUILD}/nvshare_spank.so {' '.join(words)}\n")

    def root(self, line):
        return self.machine.run(line, is_root=True)

    # ---- the schedulers ----

    def start_scheduler(self, node, settings=""):
        """As root, settings: NAME=VALUE words. All users reach the simulated GPU, as they reach a real one."""
        gpu = f"{GPU_STATE}/{node}"
        self.n_logs += 1
        self.root(f"mkdir -p -m 755 /run/nvshare-{node} && mkdir -p -m 777 {gpu} && rm -f /run/{node}.pid")
        env = (f"NVSHARE_CONFIG=none NVSHARE_HTTP_ADDRESS=0 NVSHARE_PRIORITY_MAX=critical NVSHARE_SIM_DIR={gpu} "
               f"NVSHARE_SOCK_DIR=/run/nvshare-{node} {settings}")
        line = f"{env} {BUILD}/nvshare-scheduler </dev/null >/run/{node}-{self.n_logs}.log 2>&1 & echo $! >/run/{node}.pid"
        self.root(line)
        until(f"the scheduler of {node} answers", lambda: self.ctl(node, "status")[0] == 0)
        self.root(f"chmod -R a+rwX {gpu}")
        self.pids[node] = int(self.machine.read(f"/run/{node}.pid"))

    def kill_scheduler(self, node):
        self.root(f"kill -9 {self.pids[node]}")
        until("nobody answers", lambda: self.ctl(node, "status")[0] != 0)

    def ctl(self, node, words):
        return self.machine.try_(f"NVSHARE_SOCK_DIR=/run/nvshare-{node} {BUILD}/nvsharectl {words}", is_root=True)

    def set(self, node, words):
        code, said = self.ctl(node, f"set {words}")
        assert code == 0, said

    def jobs(self, node):
        """The node's queue, by name."""
        code, said = self.ctl(node, "queue --all --json")
        assert code == 0, said
        return {job["name"]: job for job in json.loads(said)["jobs"]}

    def clients(self, node):
        code, said = self.ctl(node, "status --json")
        assert code == 0, said
        return json.loads(said)["clients"]

    def states(self, node):
        """How many jobs of each state."""
        found = {}
        for job in self.jobs(node).values():
            found[job["state"]] = found.get(job["state"], 0) + 1
        return found

    def await_states(self, node, **states):
        until(f"{node} has {states}", lambda: self.states(node) == states)

    def expect_nothing_left(self):
        for node in NODES:
            until(f"{node} has no client", lambda: not self.clients(node))
            until(f"{node} has no job", lambda: not self.jobs(node))
        until("Slurm's queue is empty", lambda: not self.machine.run("timeout 20 squeue -h"))
        self.slurm.await_nodes()

    # ---- tasks ----

    def try_(self, line, **options):
        """A command of Slurm, as a user: its exit code and output."""
        return self.machine.try_(f"timeout 100 {line}", **options)

    def run(self, line, **options):
        return self.machine.run(f"timeout 100 {line}", **options)

    def start(self, line):
        """It goes on meanwhile. The function that tells its output so far."""
        return self.machine.start(f"exec timeout 300 {line}")


def program(flag, size="20MiB"):
    """The words of a program that uses its GPU until a file is there."""
    return f"{GPU}/oversub --size {size} --passes 1 --think 20 --until {flag}"


def variables(said):
    """The output of env(1)."""
    return dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
