# SPDX-License-Identifier: Apache-2.0
"""Drives tests/apps/ipc, which shares memory by CUDA IPC and does what it is told."""


class Sharer:
    def __init__(self, rig, name, device, patience, **env):
        self.rig, self.patience = rig, patience
        self.program = rig.app(name, "ipc", "--device", device, hears=True, **env)
        self.n = 0

    def __call__(self, *command):
        """The program's answer."""
        self.program.tell(*command)
        self.n += 1
        self.rig.until(f"{self.program.name} answers {command[0]}", self.patience, lambda: len(self.answers()) >= self.n)
        return self.answers()[self.n - 1]

    def answers(self):
        return [match[1] for _, match in self.program.find("^= (.+)")]

    def expect(self, *command, what="done"):
        answer = self(*command)
        if answer != what:
            raise RuntimeError(f"{self.program.name}, {' '.join(map(str, command))}: {answer}\n{self.rig.story()}")

    def share(self, place, size, seed):
        """The handle of new memory of that size, whose words have that seed."""
        self.expect("alloc", place, size)
        self.expect("fill", place, size // 4, seed)
        return self("get", place, 0).removeprefix("handle ")

    def quit(self):
        self.expect("quit")
        self.rig.expect(self.program, self.patience, "^= done")
