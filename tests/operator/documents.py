# SPDX-License-Identifier: Apache-2.0
"""The commands that the documents give to an operator. A test runs all of them, as they stand there."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACES = [("README.md", "First real use"), ("src/man/nvshare-scheduler.8.md", "OPERATING")]


def section(page, heading):
    """The text below a heading, up to the next one."""
    text = (ROOT / page).read_text()
    begin = text.index(f"\n## {heading}\n")
    end = text.find("\n## ", begin + 1)
    return text[begin: None if end < 0 else end]


def blocks(text, language="sh"):
    return [block.split("\n```")[0] for block in text.split(f"```{language}\n")[1:]]


class Documents:
    def __init__(self, places=PLACES):
        found = [block for place in places for block in blocks(section(*place))]
        self.lines = [line for block in found for line in block.splitlines() if line and not line.startswith("#")]
        self.unused = set(self.lines)

    def take(self, line):
        """The line, which has to stand in a document."""
        assert line in self.lines, f"no document says any more: {line}"
        self.unused.discard(line)
        return line


def row(first):
    """The commands of a row of README.md's table of places where programs run."""
    (line,) = [line for line in section("README.md", "Three places").splitlines() if line.startswith(f"| {first} |")
               or line.startswith(f"| [{first}]")]
    return re.findall(r"`([^`]+)`", line)
