# SPDX-License-Identifier: Apache-2.0
"""The scheduler's trace, and questions about gangs: how often was one stopped, for how long, and was it torn?"""

import itertools

from wire import Wire

JOIN, LEAVE, ASK, BRING, GRANT, STOP, RELEASE = 0, 2, 3, 5, 7, 8, 9  # enum nvshare_trace_kind
SUCCESS, PARTIAL, NO_CARD_MEMORY = 0, 7, 8  # enum nvshare_outcome
ENTRY_VALUES = 6  # of an entry, in a TRACE


class Trace:
    """The scheduler's trace so far: (step, client, GPU, kind, detail, pid). A step is a round of its loop."""

    def __init__(self, node):
        self.entries, wire, end = [], Wire(node.sock_dir / "scheduler.sock"), 1
        pids = {}
        while len(self.entries) < end:
            wire.send("GET_TRACE", len(self.entries), 0)
            first, end, _, n, _, *values = wire.expect("TRACE")
            assert first == len(self.entries), "the trace has lost nothing"
            for i in range(n):
                step, client, gpu, kind, detail, data = values[ENTRY_VALUES * i:ENTRY_VALUES * (i + 1)]
                if kind == JOIN:
                    pids[client] = int.from_bytes(data[:8], "little")
                self.entries.append((step, client, gpu, kind, detail, pids[client]))
        wire.close()

    def stops(self, pid, since=0):
        """How often each client of the process was stopped, by GPU."""
        found = {gpu: 0 for _, _, gpu, _, _, of in self.entries if of == pid}
        for _, _, gpu, kind, detail, of in self.entries[since:]:
            if of == pid and kind == STOP:
                found[gpu] += detail
        return found

    def grants(self, pid):
        return sum(kind == GRANT and of == pid for _, _, _, kind, _, of in self.entries)

    def stop_times(self, pids, since=0):
        """Of each stop of a gang the seconds from the first order to the last member's answer. A member that has answered
        may be asked for its memory while others have not."""
        found, stopping, begin, end = [], set(), None, None
        for at, client, _, kind, detail, of in self.entries[since:]:
            if of not in pids:
                continue
            if kind == STOP and (detail or stopping):
                stopping.add(client)
                begin = at if begin is None else begin
            elif client in stopping and (kind == LEAVE or kind == RELEASE and detail not in (PARTIAL, NO_CARD_MEMORY)):
                stopping.discard(client)
                end = at
            elif kind == GRANT and begin is not None and not stopping:
                found.append((end - begin) / 1e9)
                begin = None
        if begin is not None and not stopping:
            found.append((end - begin) / 1e9)
        return found

    def torn(self, gangs, since=0):
        """Steps after which a gang was torn: a member ran, and a mate that had been stopped in the middle of its work
        had to look on while another client ran on the mate's GPU. gangs: lists of pids. Whoever is told to stop does
        not run any more, so the time of a switch does not count."""
        runs, off, stopping, where, whose = set(), set(), {}, {}, {}
        found = []
        for number, (step, entries) in enumerate(self.steps()):
            for client, gpu, kind, detail, pid in entries:
                where[client], whose[client] = gpu, pid
                # The first answer is to the stop, and later ones are to evictions of who has stopped.
                is_stopping = client in stopping and stopping[client] is None
                if kind in (GRANT, LEAVE):
                    off.discard(client)
                if kind == GRANT:
                    runs.add(client)
                elif kind == STOP and detail:
                    runs.discard(client)
                    stopping[client] = None
                elif kind == RELEASE and is_stopping and detail == SUCCESS:
                    runs.discard(client)
                    stopping[client] = step
                elif kind == RELEASE and is_stopping and detail not in (PARTIAL, NO_CARD_MEMORY):
                    runs.add(client)  # the stop has failed
                    del stopping[client]
                elif kind == RELEASE and detail == SUCCESS:
                    runs.discard(client)
                elif kind == ASK and stopping.pop(client, None) == step:
                    off.add(client)  # it wants to go on as soon as it has stopped
                elif kind == LEAVE:
                    runs.discard(client)
            if since < len(self.entries) and step < self.entries[since][0]:
                continue
            for gang, mate in itertools.product(gangs, off):
                running = [c for c in runs if whose[c] in gang]
                others = [c for c in runs if where[c] == where[mate] and whose[c] not in gang]
                if whose[mate] in gang and running and others:
                    found.append(f"step {number} {entries}: {running} run, {mate} was stopped, {others} are there")
        return found

    def steps(self):
        for step, entries in itertools.groupby(self.entries, lambda entry: entry[0]):
            yield step, [entry[1:] for entry in entries]
