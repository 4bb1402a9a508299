#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gangs on two GPUs: programs whose kernels wait for each other take turns with others on both GPUs at once.

  rings     two gangs of two processes, of which only one fits
  threads   a process on both GPUs, beside a program on each that does not fit beside it
  ddp       two trainings with DDP and NCCL, of two ranks each, of which only one fits; needs PyTorch
  pmap      a program of JAX on both GPUs, beside a program on each that does not fit beside it
  pipeline  the same with PyTorch, whose GPUs pass on what they computed
  ipc       a gang that shares memory by CUDA IPC, on one GPU and on two, beside a program on each that does not fit
            beside it; the shared memory moves (NVSHARE_IPC_MOVES)
  critical  requests of a latency-critical gang, alone and beside best effort on each GPU; the same on one GPU

A gang's result must be that of the same gang alone. Times begin when all programs have their memory.
"""

import argparse
import importlib.util
import pathlib
import re
import socket
import sys
import time

import rig as rigs

sys.path.append(str(rigs.HERE.parent / "e2e"))

from sharer import Sharer

from scheduler_trace import Trace  # pylint: disable=wrong-import-position

N = 2  # GPUs, and members of each gang
SKIPPED = 77
SEEDS = {"a": 1, "b": 2}
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}


def median(values):
    return sorted(values)[len(values) // 2] if values else float("nan")


class Gang:
    """Programs with results. key: what the results depend on. n_lines: so many lines say "ready", and later a result."""

    def __init__(self, name, key, programs, result, n_lines=N):
        self.name, self.key, self.programs, self.result, self.n_lines = name, key, programs, result, n_lines
        self.pids = [program.pid for program in programs]

    def results(self):
        return sorted(match.string for p in self.programs for _, match in p.find(self.result))


class Scene:
    """A new scheduler, and gangs that begin together."""

    alone = {}  # of each key: results, seconds

    def __init__(self, args, **settings):
        self.args, self.settings = args, settings
        self.rig = rigs.Rig(args.bin)
        self.go = self.rig.flag()
        self.since = 0  # where in the trace the gangs begin
        self.total = 0  # bytes of the smaller GPU

    def __enter__(self):
        try:
            self.rig.start_scheduler(**self.settings)
            gpus = self.rig.status()["gpus"]
        except BaseException:
            self.rig.close()
            raise
        self.total = min(gpu["total_memory"] for gpu in gpus)
        if self.args.card:
            self.shrink_cards(len(gpus))
        return self

    def shrink_cards(self, n):
        """A program that the library does not see holds the rest of each."""
        holders = [self.rig.app(f"hold-{gpu}", "hold", "--leave", self.args.card, "--until", self.rig.flag(),
                                preload=False, CUDA_VISIBLE_DEVICES=str(gpu)) for gpu in range(n)]
        self.rig.until("the rest of the cards is taken", self.args.patience, lambda: all(h.find("left=") for h in holders))
        self.total = rigs.size(self.args.card)

    def __exit__(self, *_):
        self.rig.close()

    def part(self, share):
        """So much of a GPU, in whole MiB."""
        return int(self.total * share) // rigs.MIB * rigs.MIB

    def ring(self, name, share, rounds, round_us, *options, n_threads=0, **env):
        """As many processes as GPUs, or one with threads."""
        seed = SEEDS[name]
        command = ["--rounds", rounds, "--round-us", round_us, "--memory", self.part(share), "--seed", seed,
                   "--hold", self.go, "--patience", int(self.args.patience), *options]
        if n_threads:
            programs = [self.rig.app(f"ring-{name}", "ring", "--threads", n_threads, *command, **env)]
        else:
            meeting = self.rig.path / f"meet-{name}"
            meeting.mkdir()
            command += ["--ranks", N, "--rendezvous", meeting]
            programs = [self.rig.app(f"ring-{name}{rank}", "ring", "--rank", rank, *command, NVSHARE_GANG=name, **env)
                        for rank in range(N)]
        return Gang(name, ("ring", seed, share, rounds, n_threads == 1), programs, r"^ring rank=.* verified$", n_threads or N)

    def ddp(self, name, share, steps):
        """As torchrun would start it. Its gang is found by these variables."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        env = {**NO_MULTICAST, "TORCHELASTIC_RUN_ID": "none", "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1",
               "MASTER_PORT": str(port), "WORLD_SIZE": str(N), "LOCAL_WORLD_SIZE": str(N)}
        gib = self.part(share) // rigs.GIB
        command = [sys.executable, rigs.HERE / "torch_ddp.py", gib, steps, SEEDS[name], self.go]
        programs = [self.rig.start(f"ddp-{name}{rank}", *command, RANK=str(rank), LOCAL_RANK=str(rank), **env)
                    for rank in range(N)]
        return Gang(name, ("ddp", SEEDS[name], gib, steps), programs, r"^ddp rank=.* verified$")

    def script(self, name, share, steps):
        """One process on both GPUs."""
        gib = self.part(share) // rigs.GIB
        program = self.rig.start(name, sys.executable, rigs.HERE / f"{name}.py", gib, steps, self.go, **NO_MULTICAST,
                                 XLA_PYTHON_CLIENT_PREALLOCATE="false")
        return Gang(name, (name, gib, steps), [program], rf"^{name} .* verified$", n_lines=1)

    def single(self, gpu, share, until, rounds=1):
        return self.rig.app(f"single-{gpu}", "oversub", "--device", gpu, "--size", self.part(share), "--buffers", 16,
                            "--rounds", rounds, "--passes", 2, "--sums", "--seed", 500 + gpu, "--until", until)

    def get_ready(self, *gangs):
        for gang in gangs:
            self.rig.until(f"gang {gang.name} is ready", self.args.patience,
                           lambda g=gang: sum(len(p.find("^ready rank=")) for p in g.programs) == g.n_lines)
        self.since = len(Trace(self.rig).entries)

    def run(self, *gangs):
        """Seconds until all of them have their results."""
        begin = time.monotonic()
        self.go.touch()
        for gang in gangs:
            self.rig.until(f"gang {gang.name} has its results", self.args.patience,
                           lambda g=gang: len(g.results()) == g.n_lines)
        for gang in gangs:
            for program in gang.programs:
                self.rig.expect(program, self.args.patience)
        return max(p.find(g.result)[-1][0] for g in gangs for p in g.programs) - begin

    def stops(self, trace, *programs):
        """Their stops on each GPU."""
        found = {gpu: 0 for gpu in range(N)}
        for program in programs:
            for gpu, n in trace.stops(program.pid, self.since).items():
                found[gpu] += n
        return found


def run_alone(args, make, **settings):
    """The gang that make(scene) starts, once it has ended. Scene.alone has its results and seconds."""
    with Scene(args, **settings) as scene:
        gang = make(scene)
        scene.get_ready(gang)
        seconds = scene.run(gang)
    Scene.alone[gang.key] = gang.results(), seconds
    return gang


class Verdict:
    """Prints a scene's table, and knows whether all was well."""

    def __init__(self, title):
        self.is_good = True
        print(title, flush=True)

    def row(self, what, text, is_good=True):
        self.is_good = self.is_good and is_good
        print(f"  {what:<38} {text}{'' if is_good else '  WRONG'}", flush=True)

    def results(self, gangs):
        for gang in gangs:
            is_same = gang.results() == Scene.alone[gang.key][0]
            for line in gang.results():
                self.row(f"gang {gang.name}, {'as alone' if is_same else 'OTHER THAN ALONE'}", line, is_same)
            if not is_same:
                print("\n".join(f"    alone: {line}" for line in Scene.alone[gang.key][0]))

    def sum(self, args, gangs, seconds):
        alone = [Scene.alone[gang.key][1] for gang in gangs]
        ratio = seconds / sum(alone)
        held = f", target {args.target:g} {'held' if ratio <= args.target else 'MISSED'}" if args.target else ""
        self.row("alone; together; by the sum",
                 f"{' and '.join(f'{s:.1f}' for s in alone)} s; {seconds:.1f} s; {ratio:.3f}{held}")

    def stops(self, who, found, least):
        self.row(f"stops of {who}", ", ".join(f"GPU {gpu}: {n}" for gpu, n in found.items()),
                 all(n >= least for n in found.values()))

    def switches(self, scene, trace, gangs):
        for gang in gangs:
            self.stops(f"gang {gang.name}", scene.stops(trace, *gang.programs), 1)
        times = [s for gang in gangs for s in trace.stop_times(gang.pids, scene.since)]
        self.row("first order to last answer", f"{len(times)} stops, median {median(times) * 1e3:.0f} ms, longest "
                                               f"{max(times, default=float('nan')) * 1e3:.0f} ms")
        torn = trace.torn([gang.pids for gang in gangs], scene.since)
        self.row("moments in which a gang was torn", len(torn), not torn)
        print("\n".join(f"    {line}" for line in torn[:5]), end="\n" if torn else "")


def two_gangs(args, title, make):
    """make(scene, name): starts a gang. Each alone, then both."""
    for name in SEEDS:
        run_alone(args, lambda scene, n=name: make(scene, n))
    verdict = Verdict(title)
    with Scene(args) as scene:
        gangs = [make(scene, name) for name in SEEDS]
        scene.get_ready(*gangs)
        found = {c["gang"]["number"]: c["gang"] for c in scene.rig.status()["clients"] if c["gang"]}
        is_good = [gang["members"] for gang in found.values()] == [N, N]
        seconds = scene.run(*gangs)
        trace = Trace(scene.rig)
    verdict.row("gangs", ", ".join(sorted(f"{g['name']} of {g['members']}" for g in found.values())), is_good)
    verdict.results(gangs)
    verdict.sum(args, gangs, seconds)
    verdict.switches(scene, trace, gangs)
    return verdict.is_good


def rings(args):
    return two_gangs(args, f"rings: two gangs of two processes, {args.share:g} of each GPU each",
                     lambda scene, name: scene.ring(name, args.share, args.rounds, args.round_us))


def ddp(args):
    if not importlib.util.find_spec("torch"):
        print("ddp: skipped, there is no PyTorch", flush=True)
        return None
    return two_gangs(args, f"ddp: two trainings of two ranks, each {args.ddp_share:g} of a GPU and what PyTorch needs",
                     lambda scene, name: scene.ddp(name, args.ddp_share, args.steps))


def beside_singles(args, title, make, share, **settings):
    """make(scene): starts a process on both GPUs. Alone, then beside a program on each."""
    run_alone(args, make, **settings)
    verdict = Verdict(f"{title}, and a program on each GPU; all take {share:g} of a GPU")
    with Scene(args, **settings) as scene:
        enough = scene.rig.flag()
        singles = [scene.single(gpu, share, enough) for gpu in range(N)]
        gang = make(scene)
        scene.get_ready(gang)
        seconds = scene.run(gang)
        trace = Trace(scene.rig)
        enough.touch()
        for single in singles:
            scene.rig.expect(single, args.patience)
    verdict.results([gang])
    for single in singles:
        verdict.row(single.name, next(m.string for _, m in single.find("verified")))
    verdict.row("the process", f"{Scene.alone[gang.key][1]:.1f} s alone, {seconds:.1f} s beside them")
    verdict.switches(scene, trace, [gang])
    verdict.stops("both programs", scene.stops(trace, *singles), 1)
    return verdict.is_good


def threads(args):
    return beside_singles(args, "threads: a process on both GPUs",
                          lambda scene: scene.ring("a", args.share, args.rounds, args.round_us, n_threads=N), args.share)


def script(args, module, title, name, steps):
    if not importlib.util.find_spec(module):
        print(f"{title}: skipped, there is no {module}", flush=True)
        return None
    return beside_singles(args, title, lambda scene: scene.script(name, args.script_share, steps), args.script_share,
                          NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED=str(args.turn))


def pmap(args):
    return script(args, "jax", "pmap: a program of JAX on both GPUs", "jax_pmap", args.pmap_steps)


def pipeline(args):
    return script(args, "torch", "pipeline: a program of PyTorch on both GPUs", "torch_pipeline", args.pipeline_steps)


def ipc_on(args, verdict, what, device):
    """An owner on GPU 0 and an opener on the device write the same memory in turns. Each has memory of its own, too."""
    settings = {"NVSHARE_SWITCH_TIME_MODE": "fixed", "NVSHARE_SWITCH_TIME_FIXED": str(args.turn)}
    gang = {"NVSHARE_GANG": "g", "NVSHARE_IPC_MOVES": "1"}
    with Scene(args, **settings) as scene:
        size = scene.part(args.ipc_share)
        n_words = size // 4
        owner = Sharer(scene.rig, "owner", 0, args.patience, **gang)
        opener = Sharer(scene.rig, "opener", device, args.patience, **gang)
        opener.expect("open", 0, owner.share(0, size, 0))
        private = size if device else size // 8
        opener.expect("alloc", 1, private)
        opener.expect("fill", 1, private // 4, 7)
        enough = scene.rig.flag()
        singles = [scene.single(gpu, args.beside_share, enough) for gpu in {0, device}]
        turns = 0
        since = len(Trace(scene.rig).entries)
        end = time.monotonic() + args.ipc_seconds
        while time.monotonic() < end:
            for writer, reader in (opener, owner), (owner, opener):
                turns += 1
                writer.expect("fill", 0, n_words, turns)
                reader.expect("verify", 0, n_words, turns, what="right")
            opener.expect("verify", 1, private // 4, 7, what="right")
        trace = Trace(scene.rig)
        client = scene.rig.client(owner.program)
        answers = scene.rig.scheduler.find(rf"released client={client['id']} .* moved=(\d+)")
        moved = max((int(match[1]) for _, match in answers), default=0)
        enough.touch()
        for single in singles:
            scene.rig.expect(single, args.patience)
        opener.quit()
        owner.quit()
    members = [owner.program.pid, opener.program.pid]
    stops = [sum(trace.stops(pid, since).values()) for pid in members]
    verdict.row(f"{what}, written and verified", f"{turns} times {rigs.nice(size)}", turns > 0)
    verdict.row(f"{what}, stops of owner, opener", f"{stops[0]}, {stops[1]}", min(stops) > 0)
    verdict.row(f"{what}, pinned of the owner", rigs.nice(client["memory_pinned"]),
                client["memory_pinned"] < size)
    verdict.row(f"{what}, most that left with a stop", rigs.nice(moved), moved > 0)
    times = trace.stop_times(members, since)
    verdict.row(f"{what}, first order to last answer", f"{len(times)} stops, median {median(times) * 1e3:.0f} ms")
    for single in singles:
        verdict.row(f"{what}, {single.name}", next(m.string for _, m in single.find("verified")))


def ipc(args):
    verdict = Verdict(f"ipc: {args.ipc_share:g} of GPU 0, shared by CUDA IPC, which moves; programs of {args.beside_share:g}")
    ipc_on(args, verdict, "one GPU", 0)
    ipc_on(args, verdict, "two GPUs", 1)
    return verdict.is_good


def requests(args, verdict, what, make, n):
    """Requests of the gang that make(scene) starts on n GPUs, alone and beside a program on each."""
    settings = {"NVSHARE_PRIORITY_MAX": "critical"}
    alone = run_alone(args, make, **settings)
    with Scene(args, **settings) as scene:
        enough = scene.rig.flag()
        singles = [scene.single(gpu, args.single_share, enough, args.single_rounds) for gpu in range(n)]
        scene.rig.until("best effort works", args.patience, lambda: all(
            (scene.rig.client(s) or {"state": ""})["state"] == "running" for s in singles))
        gang = make(scene)
        scene.get_ready(gang)
        scene.run(gang)
        trace = Trace(scene.rig)
        usage = scene.rig.status()["gpus"]
        enough.touch()
        for single in singles:
            scene.rig.expect(single, args.patience)
    verdict.results([gang])
    for where, programs in ("alone", alone.programs), ("beside best effort", gang.programs):
        for program in programs:
            for _, found in program.find(r"^times (rank=\d+) p50_us=(\d+) p99_us=(\d+) longest_us=(\d+)"):
                p50, p99, longest = (int(n) / 1e3 for n in found.groups()[1:])
                verdict.row(f"{what}, {where}, {found[1]}", f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, longest {longest:.2f} ms")
    verdict.row(f"{what}, preemptions", ", ".join(f"GPU {i}: {gpu['preemptions']}" for i, gpu in enumerate(usage[:n])))
    found = scene.stops(trace, *gang.programs)
    verdict.row(f"{what}, stops of it", ", ".join(f"GPU {gpu}: {n}" for gpu, n in found.items()), not any(found.values()))


def critical(args):
    def make(scene, n_threads):
        return scene.ring("a", args.critical_share, args.critical_rounds, args.critical_us, "--times", "--pause-us",
                          args.critical_pause_us, n_threads=n_threads, NVSHARE_PRIORITY="critical")

    verdict = Verdict(f"critical: {args.critical_share:g} of a GPU, requests of {args.critical_us} us and "
                      f"{args.critical_pause_us} us from one to the next, beside a program of {args.single_share:g}")
    requests(args, verdict, "one GPU", lambda scene: make(scene, 1), 1)
    requests(args, verdict, "gang", lambda scene: make(scene, 0), N)
    return verdict.is_good


SCENES = {"rings": rings, "threads": threads, "ddp": ddp, "pmap": pmap, "pipeline": pipeline, "ipc": ipc,
          "critical": critical}


def n_gpus(args):
    with Scene(args) as scene:
        return len(scene.rig.status()["gpus"])


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--scenes", default=",".join(SCENES), help="of " + ", ".join(SCENES))
    parser.add_argument("--share", type=float, default=0.55, help="part of each GPU that a member fills")
    parser.add_argument("--rounds", type=int, default=300, help="of a ring")
    parser.add_argument("--round-us", type=int, default=50000)
    parser.add_argument("--ddp-share", type=float, default=0.55, help="the same for DDP, without what PyTorch needs")
    parser.add_argument("--steps", type=int, default=350, help="of DDP")
    parser.add_argument("--card", help="leave so much of each GPU, such as 80GiB, to the scenes")
    parser.add_argument("--script-share", type=float, default=0.5, help="the same for pmap and pipeline")
    parser.add_argument("--turn", type=int, default=4, help="seconds of a turn beside pmap, pipeline and ipc")
    parser.add_argument("--pmap-steps", type=int, default=200)
    parser.add_argument("--pipeline-steps", type=int, default=300)
    parser.add_argument("--ipc-share", type=float, default=0.07, help="part of GPU 0 that the owner shares")
    parser.add_argument("--beside-share", type=float, default=0.93, help="part of a GPU that a program beside ipc fills")
    parser.add_argument("--ipc-seconds", type=float, default=20)
    parser.add_argument("--critical-share", type=float, default=0.1)
    parser.add_argument("--critical-rounds", type=int, default=2000)
    parser.add_argument("--critical-us", type=int, default=2000)
    parser.add_argument("--critical-pause-us", type=int, default=6000)
    parser.add_argument("--single-share", type=float, default=0.3, help="part of a GPU that best effort fills")
    parser.add_argument("--single-rounds", type=int, default=400, help="length of its kernels")
    parser.add_argument("--target", type=float, default=1.08, help="of the time together by the sum alone; 0: none")
    parser.add_argument("--patience", type=float, default=240)
    args = parser.parse_args()
    args.scenes = args.scenes.split(",")
    if not set(args.scenes) <= set(SCENES):
        parser.error(f"scenes are {', '.join(SCENES)}")
    return args


def main():
    args = read_options()
    n = n_gpus(args)
    if n < N:
        print(f"skipped: {n} GPU, and gangs need {N}")
        sys.exit(SKIPPED)
    bad, skipped = [], []
    for name in args.scenes:
        try:
            is_good = SCENES[name](args)
        except Exception as error:  # pylint: disable=broad-except # the other scenes still count
            print(re.sub(r"/\S*/", "", f"{name}: {error}"), flush=True)
            is_good = False
        if is_good is None:
            skipped.append(name)
        elif not is_good:
            bad.append(name)
    if skipped == args.scenes:
        sys.exit(SKIPPED)
    print(f"FAILED: {', '.join(bad)}" if bad else "all results as alone, and no gang torn")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
