#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs each script of tests/gpu/frameworks in four ways, and compares the results.

without  without the library
alone    with it
beside   beside a program of the library's that takes turns with it
frozen   the same in turns of a tenth of a second, stopped in the middle of its work

Another program has the rest of the card, so that what is left is too small for both.
"""

import argparse
import json
import sys

import rig as rigs

SCRIPTS = ("torch_loader", "torch_graphs", "torch_ddp", "jax_prealloc", "cupy_arrays", "numba_kernels", "cuda_python",
           "transformers_generate", "serving")
WAYS = ("without", "alone", "beside", "frozen")
SKIPPED = 77
# Programs that take a part of the card that they see.
SEE_LESS = ("jax_prealloc", "serving")


def scheduler_settings(way):
    if way == "frozen":
        return {"NVSHARE_SWITCH_TIME_MODE": "fixed", "NVSHARE_SWITCH_TIME_FIXED": "0.1"}
    return {"NVSHARE_SWITCH_TIME_MODE": "fixed", "NVSHARE_SWITCH_TIME_FIXED": "1"}


def count(rig, pattern):
    return sum(len(program.find(pattern)) for program in rig.programs if program.name != "partner")


def run(args, script, way, variant):
    """Its result, and what was done to it."""
    rig = rigs.Rig(args.bin)
    try:
        env = {"FRAMEWORK_SECONDS": "0" if way in ("without", "alone") else str(args.seconds), **variant}
        partner = None
        rig.start_scheduler(**scheduler_settings(way))
        held = rig.flag()
        gpu = rig.status()["gpus"][0]
        left = rigs.size(args.card) + gpu["total_memory"] - gpu["usable_memory"] + gpu["external_memory"]
        outsider = rig.app("outsider", "hold", "--leave", str(left), "--until", held, preload=False)
        rig.until("the rest of the card is taken", 60, lambda: outsider.find("left="))
        if way in ("beside", "frozen"):
            partner = rig.app("partner", "oversub", "--name", "partner", "--size", args.partner, "--windows",
                              "--until", rig.flag(), NVSHARE_DRAIN_MS="0" if way == "frozen" else "300")
            rig.until("the partner is there", 60, lambda: rig.client(partner))
        if way == "frozen":
            env["NVSHARE_DRAIN_MS"] = "0"
        if script in SEE_LESS:
            env["NVSHARE_GPU_MEMORY_LIMIT"] = args.seen
        program = rig.start(script, sys.executable, rigs.HERE / "frameworks" / f"{script}.py",
                            preload=way != "without", NVSHARE_DEBUG="1", **env)
        code = program.wait(args.patience)
        if code == SKIPPED:
            return None, program.tail(1)
        found = program.find(r'^(\{"result".*\})$')
        if code != 0 or not found:
            raise RuntimeError(f"{script} ended with {code}\n{rig.story()}")
        moved = sum(int(m[1]) for _, m in program.find(r"evicted (\d+) of"))
        frozen = count(rig, "stopped in .*frozen")
        answer = json.loads(found[-1][1][1])
        return answer["result"], f"{answer['rounds']} rounds, {moved / rigs.GIB:.1f} GiB out, frozen {frozen} times"
    finally:
        rig.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--scripts", default=",".join(SCRIPTS))
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--card", default="10GiB", help="of the card for programs of the library")
    parser.add_argument("--partner", default="7GiB")
    parser.add_argument("--seen", default="8GiB", help="of the card, for programs that take a part of it")
    parser.add_argument("--seconds", type=float, default=8, help="of work beside the partner")
    parser.add_argument("--patience", type=float, default=240)
    args = parser.parse_args()
    failed = 0
    for script in args.scripts.split(","):
        variants = [{}]
        if script == "torch_graphs":
            variants.append({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
        for variant in variants:
            results = {}
            name = script + (", expandable_segments" if variant else "")
            for way in args.ways.split(","):
                try:
                    results[way], what = run(args, script, way, variant)
                except RuntimeError as error:
                    print(f"{name}, {way}: {error}", flush=True)
                    failed += 1
                    continue
                print(f"{name}, {way}: {results[way]}; {what}", flush=True)
                if results[way] is None:
                    break
            if len(set(results.values())) > 1:
                print(f"{name}: the results DIFFER", flush=True)
                failed += 1
    print("frameworks verified" if not failed else f"{failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
