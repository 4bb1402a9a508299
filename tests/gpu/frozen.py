#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Freezes a program and moves it out and in, many times. The result must be that of an undisturbed run.

frozen.py OPTIONS -- COMMAND: the command takes --steps N, and prints a line of JSON with
`steps_per_second` and `result`, which depends on N only. A partner that needs the same memory comes
and goes. The length of a turn changes all the time, so that freezes come at random moments.
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
PROBE_SECONDS = 3  # a probe must last so long to give a rate


class DoesNotMove(Exception):
    """Both programs fit, or neither."""


def result_of(program):
    lines = [text for _, text in program.lines if text.startswith("{")]
    if not lines:
        raise RuntimeError(f"{program.name} has no result\n{program.tail(40)}")
    return json.loads(lines[-1])


def run_alone(card, name, command, steps, patience):
    """The program's result, and its peaks: bytes of memory, bytes pinned."""
    program = card.rig.start(name, *command, "--steps", str(steps), NVSHARE_DEBUG="1")
    peak = {"memory_allocated": 0, "memory_resident": 0, "memory_pinned": 0}
    end = time.monotonic() + patience
    while program.is_alive() and time.monotonic() < end:
        client = card.rig.client(program) or {}
        peak = {key: max(n, client.get(key, 0)) for key, n in peak.items()}
        time.sleep(0.05)
    card.rig.expect(program, 1, "result")
    return result_of(program), peak


def rate_of(card, command):
    """Steps a second without the time of the start, from two runs of different lengths."""
    steps = PROBE_STEPS
    probe, _ = run_alone(card, "probe", command, steps, 120)
    rate = probe["steps_per_second"]
    seconds = steps / rate
    for _ in range(3):
        if seconds >= PROBE_SECONDS:
            break
        before = steps, seconds
        steps += max(PROBE_STEPS, int(rate * PROBE_SECONDS))
        probe, _ = run_alone(card, "probe", command, steps, 120)
        seconds = steps / probe["steps_per_second"]
        if seconds > before[1]:
            rate = (steps - before[0]) / (seconds - before[1])
    return rate


def set_turn(card, seconds):
    subprocess.run([str(card.rig.bin / "nvsharectl"), "set", "switch-time", f"{seconds:.3f}"],
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, timeout=20)


def evictions(program):
    """Bytes of each."""
    return [int(m[1]) for _, m in program.find(r"evicted (\d+) of") if int(m[1])]


def n_frozen(program):
    """The number of stops in the middle of its work."""
    return len(program.find("stopped in .*frozen"))


def run_frozen(card, command, steps, partner_bytes, args):
    """
    Its result, and how often it was stopped, frozen, moved out and in. The partner ends
    before the program where it has come, and found it at work, often enough, or taken too long.
    """
    program = card.rig.start("frozen", *command, "--steps", str(steps), NVSHARE_DEBUG="1",
                             NVSHARE_DRAIN_MS="0")
    card.rig.until("the program is there", 60, lambda: card.rig.client(program))
    flag = card.rig.flag()
    partner = card.start("partner", partner_bytes, flag, NVSHARE_DRAIN_MS="0")
    last = time.monotonic() + args.disturb
    n_moves = 0
    while (program.is_alive() and time.monotonic() < last
           and (n_moves < 1.2 * args.times or n_frozen(program) < args.times)):
        if not partner.is_alive():
            raise RuntimeError(f"the partner has ended\n{card.rig.story()}")
        set_turn(card, random.uniform(args.turn_min, args.turn_max))
        time.sleep(args.turn_min)
        n_moves = len(evictions(program))
        if not n_moves and time.monotonic() - partner.start > args.settle:
            waiting = [c["name"] for c in card.rig.status()["clients"] if c["wait_reason"]]
            for stuck in (program, partner):
                stuck.kill()
                stuck.wait(20)
            raise DoesNotMove("neither fits" if waiting else "both fit")
    flag.touch()
    card.rig.expect(partner, 60)
    card.rig.expect(program, args.patience, "result")
    moves = evictions(program)
    back = [int(m[1]) for _, m in program.find(r"restored (\d+) bytes") if int(m[1])]
    counts = {"frozen": n_frozen(program), "out": len(moves), "in": len(back),
              "bytes_out": sum(moves), "bytes_in": sum(back),
              "drained": [m[1] for _, m in program.find("stops by draining: (.*)")]}
    return result_of(program), counts


def try_frozen(card, command, steps, peak, args):
    """The result of run_frozen, with a partner that fits alone, but not beside the program."""
    # The partner's pinned memory is mostly its context, so it is not larger than the program's.
    pinned = 2 * peak["memory_pinned"]
    room = rigs.size(args.room)
    less = 0
    step = max(room // 8, 4 * rigs.MIB)
    for _ in range(4):
        usable = peak["memory_resident"] + pinned + room
        card.make(usable, NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED=str(args.turn_max))
        try:
            return run_frozen(card, command, steps, usable - pinned - card.slack - less, args)
        except DoesNotMove as what:
            print(f"{what}: again", flush=True)
            if str(what) == "both fit":
                room = max(room - step, 0)
            else:
                less += step
            card.give_back()
    raise RuntimeError("the program and its partner do not take turns")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    cards.add_arguments(parser)
    parser.add_argument("--seconds", type=float, default=25, help="length of the undisturbed run")
    parser.add_argument("--times", type=int, default=200, help="smallest number of times that it is moved out")
    parser.add_argument("--turn-min", type=float, default=0.03)
    parser.add_argument("--turn-max", type=float, default=0.12)
    parser.add_argument("--disturb", type=float, default=140, help="longest frozen run, seconds")
    parser.add_argument("--settle", type=float, default=20, help="seconds until the first move")
    parser.add_argument("--room", default="1GiB", help="room beyond the program's peak")
    parser.add_argument("--patience", type=float, default=60, help="seconds for the frozen run's undisturbed rest")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    random.seed(args.seed)
    card = cards.Card(args)
    failed = False
    try:
        card.rig.start_scheduler()
        steps = max(PROBE_STEPS, int(args.seconds * rate_of(card, args.command)))
        undisturbed, peak = run_alone(card, "undisturbed", args.command, steps, 3 * args.seconds + 120)
        card.rig.stop_scheduler()
        print(f"undisturbed: {steps} steps, {undisturbed['result']}; at most"
              f" {peak['memory_resident'] / rigs.GIB:.2f} GiB pageable, {peak['memory_pinned'] / rigs.GIB:.2f} pinned",
              flush=True)
        if not peak["memory_resident"]:
            raise RuntimeError("the program has no memory that can be paged")
        frozen, counts = try_frozen(card, args.command, steps, peak, args)
        print(f"frozen:      {steps} steps, {frozen['result']}; in the middle of its work {counts['frozen']} times,"
              f" out {counts['out']} times ({counts['bytes_out'] / rigs.GIB:.1f} GiB),"
              f" in {counts['in']} times ({counts['bytes_in'] / rigs.GIB:.1f} GiB)")
        if frozen["result"] != undisturbed["result"]:
            again, _ = run_alone(card, "again", args.command, steps, 3 * args.seconds + 120)
            print("the results DIFFER" if again["result"] == undisturbed["result"]
                  else f"this work is not deterministic by itself: {again['result']}")
            failed = True
        if counts["out"] < args.times or counts["frozen"] < args.times:
            print(f"out, or in the middle of its work, fewer than {args.times} times; drained: {counts['drained']}")
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
