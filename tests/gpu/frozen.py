#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Freezes a program and pages it out and in, many times, and compares with an undisturbed run.

frozen.py OPTIONS -- COMMAND: the command takes --steps N and prints a line of JSON with
`result`, the same for each run of as many steps, and `steps_per_second`. A partner that
needs the same memory comes and goes; how long a turn is changes all the time, so that
the moments of the freezes are random.
"""

import argparse
import json
import random
import subprocess
import sys
import time

import card as cards
import rig as rigs

PROBE_STEPS = 20


def result_of(program):
    lines = [text for _, text in program.lines if text.startswith("{")]
    if not lines:
        raise RuntimeError(f"{program.name} has no result\n{program.tail(40)}")
    return json.loads(lines[-1])


def run_alone(card, name, command, steps, patience):
    """Its result, and the most that it had: bytes of memory, bytes pinned."""
    program = card.rig.start(name, *command, "--steps", str(steps), NVSHARE_DEBUG="1")
    peak = {"memory_allocated": 0, "memory_resident": 0, "memory_pinned": 0}
    end = time.monotonic() + patience
    while program.is_alive() and time.monotonic() < end:
        client = card.rig.client(program) or {}
        peak = {key: max(n, client.get(key, 0)) for key, n in peak.items()}
        time.sleep(0.05)
    card.rig.expect(program, 1, "result")
    return result_of(program), peak


def set_turn(card, seconds):
    subprocess.run([str(card.rig.bin / "nvsharectl"), "set", "switch-time", f"{seconds:.3f}"],
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, timeout=20)


def run_frozen(card, command, steps, partner_bytes, args):
    """Its result, and how often it was stopped, frozen, moved out and in."""
    program = card.rig.start("frozen", *command, "--steps", str(steps), NVSHARE_DEBUG="1",
                             NVSHARE_DRAIN_MS="0")
    flag = card.rig.flag()
    partner = card.start("partner", partner_bytes, flag)
    end = time.monotonic() + args.patience
    while program.is_alive() and time.monotonic() < end:
        if not partner.is_alive():
            raise RuntimeError(f"the partner has ended\n{card.rig.story()}")
        set_turn(card, random.uniform(args.turn_min, args.turn_max))
        time.sleep(args.turn_min)
    card.rig.expect(program, 1, "result")
    flag.touch()
    card.rig.expect(partner, 60)
    moves = [int(m[1]) for _, m in program.find(r"evicted (\d+) of") if int(m[1])]
    back = [int(m[1]) for _, m in program.find(r"restored (\d+) bytes") if int(m[1])]
    counts = {"frozen": len(program.find("stopped in .*frozen")), "out": len(moves), "in": len(back),
              "bytes_out": sum(moves), "bytes_in": sum(back)}
    return result_of(program), counts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    cards.add_arguments(parser)
    parser.add_argument("--seconds", type=float, default=40, help="of undisturbed work")
    parser.add_argument("--times", type=int, default=200, help="to be paged out, at least")
    parser.add_argument("--turn-min", type=float, default=0.03)
    parser.add_argument("--turn-max", type=float, default=0.2)
    parser.add_argument("--room", default="1GiB", help="more than the program had at most")
    parser.add_argument("--patience", type=float, default=300, help="seconds for the frozen run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    random.seed(args.seed)
    card = cards.Card(args)
    failed = False
    try:
        card.rig.start_scheduler()
        probe, _ = run_alone(card, "probe", args.command, PROBE_STEPS, 120)
        steps = max(PROBE_STEPS, int(args.seconds * probe["steps_per_second"]))
        undisturbed, peak = run_alone(card, "undisturbed", args.command, steps, 3 * args.seconds + 120)
        card.rig.stop_scheduler()
        print(f"undisturbed: {steps} steps, {undisturbed['result']}; at most"
              f" {peak['memory_resident'] / rigs.GIB:.2f} GiB pageable, {peak['memory_pinned'] / rigs.GIB:.2f} pinned",
              flush=True)
        if not peak["memory_resident"]:
            raise RuntimeError("the program has no memory that can be paged")
        usable = (peak["memory_resident"] + peak["memory_pinned"] + 2 * card.pinned + rigs.size(args.room))
        card.make(usable, NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED=str(args.turn_max))
        # Beside the pinned memory of both, all of the card that was left.
        partner_bytes = usable - peak["memory_pinned"] - 2 * card.pinned - card.slack
        frozen, counts = run_frozen(card, args.command, steps, partner_bytes, args)
        print(f"frozen:      {steps} steps, {frozen['result']}; in the middle of its work {counts['frozen']} times,"
              f" out {counts['out']} times ({counts['bytes_out'] / rigs.GIB:.1f} GiB),"
              f" in {counts['in']} times ({counts['bytes_in'] / rigs.GIB:.1f} GiB)")
        if frozen["result"] != undisturbed["result"]:
            again, _ = run_alone(card, "again", args.command, steps, 3 * args.seconds + 120)
            print("the results DIFFER" if again["result"] == undisturbed["result"]
                  else f"this work is not deterministic by itself: {again['result']}")
            failed = True
        if counts["out"] < args.times or counts["frozen"] < args.times // 2:
            print(f"out fewer than {args.times} times, or most of them idle")
            failed = True
        card.give_back()
    except RuntimeError as error:
        print(error)
        failed = True
    finally:
        card.rig.close()
    sys.exit(failed)


if __name__ == "__main__":
    main()
