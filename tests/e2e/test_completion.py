# SPDX-License-Identifier: Apache-2.0
"""Completion in the shells themselves, where they are installed."""

import os
import shutil
import subprocess

import pytest

from conftest import BUILD, ROOT
from wire import PATIENCE

SCRIPTS = ROOT / "src" / "cli" / "completion"
# How each shell is asked what may stand in the place of the last word.
ASK = {
    "bash": """source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _nvsharectl; printf '%s\\n' "${COMPREPLY[@]}" """,
    "zsh": """script=$1; shift; words=("$@"); CURRENT=$#
compadd() { for word in ${@:2}; do [[ $word == ${words[CURRENT]}* ]] && print -- $word; done; true }; source $script""",
    "fish": """source $argv[1]; complete -C "$argv[2..-1]" """,
}


@pytest.mark.parametrize("shell", ASK)
@pytest.mark.parametrize("line, words", [
    (["nvsharectl", "s"], {"status", "set"}),
    (["nvsharectl", "set", "m"], {"mode", "max-runtime"}),
    (["nvsharectl", "set", "mode", ""], {"auto", "serial", "concurrent"}),
    (["nvsharectl", "set", "tq", ""], set()),
    (["nvsharectl", "status", "--"], {"--json"}),
])
def test_a_shell_offers_the_words_of_the_help(shell, line, words, tmp_path):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed (scripts/setup all installs it)")
    script = str(SCRIPTS / f"nvsharectl.{shell}")
    behind = [] if shell == "fish" else ["ask"]
    env = {"PATH": f"{BUILD}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run([shell, "-c", ASK[shell], *behind, script, *line], env=env, capture_output=True, text=True,
                          timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert {word for word in done.stdout.split("\n") if word} == words
