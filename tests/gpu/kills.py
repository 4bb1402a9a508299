#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills a program, or the scheduler, at random moments of switches, over and over.

Programs are stopped in the middle of their work. No other program may hang or lose data, and the
card must be as empty as before.
"""

import argparse
import random
import signal
import sys
import time

import card as cards
import rig as rigs

SIGNALS = (signal.SIGKILL, signal.SIGTERM)


def drops(card):
    return len(card.rig.scheduler.find(r"drop client=\d+ gpu=0 grant=[1-9]"))


def released(card):
    return len(card.rig.scheduler.find(r"released client=\d+ gpu=0 grant=[1-9]"))


def is_any_frozen(programs):
    return any(program.find("stopped in .*frozen") for program in programs.values())


def restart_scheduler(card):
    code = card.rig.scheduler.wait(20)
    time.sleep(random.uniform(0, 0.5))
    card.rig.start_scheduler(**card.settings)
    return code


def one_round(card, args, victim, number):
    flag = card.rig.flag()
    programs = {name: card.start(name, rigs.size(args.size), flag, NVSHARE_DRAIN_MS="0")
                for name in ("first", "second")}
    card.rig.until("two switches", 60, lambda: drops(card) >= 2)
    # The first stops may find them between two kernels, on a busy machine.
    card.rig.until("a stop in the middle of a program's work", 120, lambda: is_any_frozen(programs))
    n_drops = drops(card)
    card.rig.until("another switch begins", 60, lambda: drops(card) > n_drops, pause=0.0005)
    n_released = released(card)
    delay = random.uniform(0, args.switch)
    time.sleep(delay)
    stage = "after the memory had gone" if released(card) > n_released else "while it was going out"
    (programs.get(victim) or card.rig.scheduler).kill(number)
    if victim == "scheduler":
        code = restart_scheduler(card)
    else:
        code = programs.pop(victim).wait(20)
    begin = time.monotonic()
    time.sleep(args.turn)
    flag.touch()
    for program in programs.values():
        card.rig.expect(program, args.patience)
    slowest = time.monotonic() - begin
    print(f"{number.name} of the {victim} {delay * 1e3:.0f} ms into a switch, {stage}: it ended with {code};"
          f" {' and '.join(programs)} verified {slowest:.1f} s later", flush=True)
    if code is None:
        raise RuntimeError(f"the {victim} does not end")
    return stage


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    cards.add_arguments(parser)
    parser.add_argument("--size", default="4GiB", help="memory of each program")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--turn", type=float, default=0.3, help="length of a turn, seconds")
    parser.add_argument("--switch", type=float, default=0.09, help="length of a switch, seconds, roughly")
    parser.add_argument("--patience", type=float, default=60, help="seconds for the others to end")
    parser.add_argument("--victims", default="first,second,scheduler", help="in turns, with each signal")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    random.seed(args.seed)
    card = cards.Card(args)
    failed = False
    stages = []
    victims = [(v, s) for s in SIGNALS for v in args.victims.split(",")]
    try:
        card.both_ways(rigs.size(args.size), 2, 1.0)  # measures pinned bytes; first use of host memory
        for i in range(args.rounds):
            card.make(rigs.size(args.size) + 2 * card.pinned + card.slack - card.spare(),
                      NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED=str(args.turn))
            before = cards.used_mib()
            stages.append(one_round(card, args, *victims[i % len(victims)]))
            card.rig.until("the memory of all is back", 20, lambda b=before: cards.used_mib() <= b)
            card.give_back()
        n_during = stages.count("while it was going out")
        print(f"kills verified rounds={args.rounds}, {n_during} of them while memory was going out")
        failed = n_during < args.rounds // 4
    except RuntimeError as error:
        print(error)
        failed = True
    finally:
        card.rig.close()
    sys.exit(failed)


if __name__ == "__main__":
    main()
