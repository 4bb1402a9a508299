# SPDX-License-Identifier: Apache-2.0
"""Makes a card of any size for two programs of which only one fits, and measures their switches.

A program without the library holds the rest of the card. The library's log has the times of moves.
A whole switch lasts from the scheduler's order to stop (drop) to its leave to run (grant). Bytes
that come in before the order are counted apart (ahead).
"""

import os
import statistics
import subprocess
import time

import rig as rigs

# The scheduler's reserve, percent of the card: both second contexts must fit into it.
RESERVE = int(os.environ.get("NVSHARE_MEMORY_RESERVE_PERCENT", "2"))

LATE = 0.1  # seconds that a program's log line may come after its switch


class Switches:
    """The switches of one pair of programs."""

    def __init__(self, rig):
        self.rig = rig
        self.rows = []  # dict of seconds and bytes, one a switch

    def collect(self, programs, since):
        by_client = {}
        for _, match in self.rig.scheduler.find(r"join client=(\d+) .*pid=(\d+)"):
            by_client[match[1]] = int(match[2])
        programs = {p.pid: p for p in programs}
        self.rows = []
        drops = self.rig.scheduler.find(r"drop client=(\d+) gpu=0 grant=[1-9]", since)
        ends = [at for at, _ in drops[1:]] + [time.monotonic()]
        before = since  # from the last grant on
        for (dropped, drop), end in zip(drops, ends):
            out = programs.get(by_client.get(drop[1]))
            granted, into = self.granted(drop[1], dropped, end, by_client)
            into = programs.get(into)
            # If the other program ran already, and only grew, no program comes in afterwards.
            self.rows.append({"dropped": dropped, "granted": granted,
                              "whole": granted - dropped if into else None,
                              **self.moved(out, "out", dropped, granted),
                              **self.moved(into, "in", dropped, granted),
                              "ahead_bytes": self.moved(into, "in", before, dropped, 0)["in_bytes"],
                              **self.stopped(out, dropped, granted)})
            before = granted + LATE
        return self.rows

    def granted(self, dropped, since, until, by_client):
        """The time of the next grant to another client than this one, and its pid."""
        for at, grant in self.rig.scheduler.find(r"grant client=(\d+)", since):
            if at <= until and grant[1] != dropped:
                return at, by_client.get(grant[1])
        return until, None

    @staticmethod
    def moved(program, way, since, until, late=None):
        pattern = (r"evicted (\d+) of \d+ bytes in (\d+) us" if way == "out"
                   else r"restored (\d+) bytes in (\d+) us")
        late = LATE if late is None else late
        found = [m for at, m in (program.find(pattern, since) if program else []) if at <= until + late]
        return {f"{way}_bytes": sum(int(m[1]) for m in found),
                f"{way}_seconds": sum(int(m[2]) for m in found) / 1e6}

    @staticmethod
    def stopped(program, since, until):
        if not program:
            return {"stop_seconds": 0.0, "frozen": False}
        found = [m for at, m in program.find(r"stopped in (\d+) us(, frozen)?", since) if at <= until]
        return {"stop_seconds": int(found[0][1]) / 1e6 if found else 0.0,
                "frozen": bool(found and found[0][2])}


class Card:
    """A card of which another program holds all but a part. One of the two programs fills the part."""

    def __init__(self, args):
        self.rig = rigs.Rig(args.bin)
        self.pinned = rigs.size(args.pinned)  # bytes of one program, with self.ahead
        self.ahead = 0  # the part of pinned that a program needs and the scheduler does not show
        self.external = 0  # bytes of others without any program
        self.beside = 0  # bytes left free beside the usable ones: mostly the reserve
        self.total = 0  # bytes of the card, once a scheduler has told them
        self.slack = rigs.size(args.slack)
        self.buffer = rigs.size(args.buffer)
        self.settings = {}  # of the scheduler
        self.holder = None
        self.until = None

    def spare(self):
        """Bytes of the reserve that the two programs' pinned memory takes, without second contexts."""
        return min(self.total * RESERVE // 200, 2 * self.pinned)

    def make(self, usable, **env):
        for _ in range(6):
            self.until = self.rig.flag()
            self.holder = self.rig.app("hold", "hold", "--leave", str(usable + self.beside), "--until", str(self.until),
                                       preload=False)
            self.rig.until("memory is held", 60, lambda: self.holder.find("left="))
            self.settings = {"NVSHARE_MEMORY_RESERVE_PERCENT": str(RESERVE), **env}
            self.rig.start_scheduler(**self.settings)
            gpu = self.rig.status()["gpus"][0]
            self.external = gpu["external_memory"]
            found = max(0, gpu["usable_memory"] - self.external)
            self.total = gpu["total_memory"]
            if abs(found - usable) < 4 * rigs.MIB:
                return
            self.give_back()
            # If less than the reserve is left, no byte is usable, so the number says nothing.
            self.beside += usable - found if found else gpu["total_memory"] * RESERVE // 100
        raise RuntimeError(f"{usable} bytes were to be left, not {found}")

    def give_back(self):
        self.rig.stop_scheduler()
        self.until.touch()
        self.rig.expect(self.holder, 60, "left=")

    def start(self, name, n_bytes, flag, n_graphs="1", passes="0", n_buffers=0, is_verbose=False, is_brief=False, **env):
        """
        At the edge of its budget the library asks for 64 MiB ahead of small allocations: so
        buffers are larger, and what the program needs besides is there from the start. To sum up
        every word takes 0.2 s a GiB: is_brief, only windows of it are compared.
        """
        n_buffers = n_buffers or max(1, min(16, n_bytes // self.buffer))
        return self.rig.app(name, "oversub", "--name", name, "--size", str(n_bytes),
                            "--buffers", str(n_buffers), "--passes", passes, "--rounds", "4",
                            "--windows" if is_brief else "--sums", "--resident", n_graphs, *(["--until", str(flag)] if flag else []),
                            *(["--verbose"] if is_verbose else []),
                            NVSHARE_DEBUG="1", **env)

    def look(self, programs):
        """
        What each has pinned; the scheduler's sums may hold a little more for a moment. What a
        context costs is booked by guess: how far off that is shows as memory of others.
        """
        seen = {p.name: [] for p in programs}
        external = []
        for _ in range(9):
            status = self.rig.status() or {"gpus": [], "clients": []}
            external += [gpu["external_memory"] for gpu in status["gpus"][:1]]
            for client in status["clients"]:
                seen.setdefault(client["name"], []).append(client["memory_pinned"])
            time.sleep(0.05)
        found = [statistics.median(values) for values in seen.values() if values]
        if found and external:
            off = (statistics.median(external) - self.external) / len(programs)
            self.pinned = max(int(max(found) + off), 0) + self.ahead

    def both_ways(self, n_bytes, n_switches, turn, n_graphs="1", is_ahead=False):
        """Runs two programs in turns; returns rows of their switches. is_ahead: memory may come in early."""
        for _ in range(8):
            rows = self.try_both_ways(n_bytes, n_switches, turn, n_graphs, is_ahead)
            if rows is not None:
                return rows
        raise RuntimeError(f"two programs of {rigs.nice(n_bytes)} do not take turns\n{self.rig.story()}")

    def try_both_ways(self, n_bytes, n_switches, turn, n_graphs, is_ahead):
        """None: both programs fitted, or neither; then the estimate of pinned bytes is corrected."""
        self.make(n_bytes + 2 * self.pinned + self.slack - self.spare(),
                  NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED=f"{turn:.3f}",
                  **({} if is_ahead else {"NVSHARE_PREPARE_SEC": "0"}))
        flag = self.rig.flag()
        programs = [self.start(name, n_bytes, flag, n_graphs, NVSHARE_DRAIN_MS="0")
                    for name in ("first", "second")]
        switches = Switches(self.rig)
        begin = last = time.monotonic()
        has_grown = False  # once true, a switch moves all memory of both programs
        n_before = 0
        while not has_grown or len(switches.collect(programs, begin)) <= n_switches:  # the last is under way
            if not has_grown and self.have_all(programs, n_bytes):
                has_grown, begin, n_before = True, time.monotonic(), 0
            if len(switches.collect(programs, begin)) > n_before:
                n_before, last = len(switches.rows), time.monotonic()
            if time.monotonic() - last > 8 + 6 * turn or not all(p.is_alive() for p in programs):
                self.mend(programs, n_bytes)
                return None
            time.sleep(0.05)
        self.look(programs)
        flag.touch()
        for program in programs:
            self.rig.expect(program, 120)
        self.give_back()
        return switches.rows[:n_switches]

    def have_all(self, programs, n_bytes):
        clients = [self.rig.client(program) for program in programs]
        return all(c and c["memory_resident"] + c["memory_swapped"] >= n_bytes for c in clients)

    def mend(self, programs, n_bytes):
        for program in programs:
            if program.process.poll():
                raise RuntimeError(f"{program.name} ended with {program.process.poll()}\n{self.rig.story()}")
        waiting = [c for c in self.rig.status()["clients"] if c["wait_reason"]]
        step = max(min(self.pinned, n_bytes) // 8, 4 * rigs.MIB)
        step = step if waiting else -step
        self.pinned += step
        self.ahead += step
        print(f"{'neither fits' if waiting else 'both fit'}: again, with {rigs.nice(self.pinned)} pinned by each")
        for program in programs:
            program.kill()
            program.wait(20)
        self.give_back()

    def one_way(self, n_bytes):
        """One program has all memory, and another one comes. Runs twice; the second run counts."""
        self.make(n_bytes + 2 * self.pinned + self.slack - self.spare(),
                  NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="1")
        flag = self.rig.flag()
        first = self.start("first", n_bytes, flag, NVSHARE_DRAIN_MS="0")
        self.rig.until("the first has all of its memory", 60,
                       lambda: (self.rig.client(first) or {"memory_resident": 0})["memory_resident"] >= n_bytes)
        rows = []
        for name in ("second", "third"):
            begin = time.monotonic()
            at_once = self.rig.flag()
            at_once.touch()
            # It wants all memory in one piece, and ends within its turn.
            other = self.start(name, n_bytes, at_once, n_buffers=1, is_brief=True)
            self.rig.expect(other, 120)
            rows = [Switches.moved(first, "out", begin, time.monotonic())]
            self.rig.until("the first is back", 60, lambda b=begin: first.find("restored", b))
            rows[0].update(Switches.moved(first, "in", begin, time.monotonic()))
            time.sleep(0.5)  # the first program works, so that the next stop comes in the middle of its work
        flag.touch()
        self.rig.expect(first, 120)
        self.give_back()
        return rows


def used_mib():
    """Memory that all processes use on the first card."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(query, stdout=subprocess.PIPE, text=True, check=True).stdout.split()[0])


def add_arguments(parser):
    parser.add_argument("--bin", required=True)
    parser.add_argument("--pinned", default="1GiB", help="first guess of a program's pinned memory")
    parser.add_argument("--slack", default="64MiB")
    parser.add_argument("--buffer", default="64MiB", help="smallest size of a buffer")


def median(rows, key):
    values = [row[key] for row in rows if row.get(key) is not None]
    return statistics.median(values) if values else 0.0
