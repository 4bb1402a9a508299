# SPDX-License-Identifier: Apache-2.0
"""The runners of tests: what runs again, what is flaky, what is red, and what a failure shows."""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

import verdict  # noqa: E402

SANITIZER = "==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x602000000010"
# What a test does in its first run, in each, or in its first two; what follows is how it ends then.
RACES = {
    "fails once": ("1", "exit 1"),
    "fails twice": ("12", "exit 1"),
}
REDS = {
    "fails always": ("123", "exit 1"),
    "crashes once": ("1", "kill -SEGV $$"),
    "aborts once": ("1", "kill -ABRT $$"),
    "is caught once": ("1", "echo 'Test failed with exception: Segmentation fault(11)'; exit 1"),
    "dies once": ("1", "echo 'Command died with <Signals.SIGSEGV: 11>.'; exit 1"),
    "dies in a shell once": ("1", "echo 'Command returned non-zero exit status 139.'; exit 1"),
    "is compared once": ("1", "echo 'E       assert -11 == 0'; exit 1"),
    "is reported once": ("1", f"echo '{SANITIZER}'; exit 1"),
    "is undefined once": ("1", "echo 'a.c:7:3: runtime error: signed integer overflow'; exit 1"),
    "reads wrong data once": ("1", "echo 'oversub: WRONG: word 7'; exit 1"),
    "differs once": ("1", "echo '1 bytes of 0x7f01 and 0x7f02 differ'; exit 1"),
    "leaves a process once": ("1", "sleep 1000 >/dev/null 2>&1 & exit 0"),
    "crashes the second time": ("12", "[ $n = 2 ] && kill -SEGV $$; exit 1"),
}


def run(*command, **env):
    done = subprocess.run([str(part) for part in command], env={**os.environ, **env}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def shell(folder, name, case):
    """A program that does so in those runs, and passes in the others."""
    runs, then = case
    path = folder / name.replace(" ", "-")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho >>{path}.runs\nn=$(wc -l <{path}.runs)\ncase '{runs}' in *$n*) {then} ;; esac\n")
    path.chmod(0o755)
    return path


def log_of(folder, program):
    return folder / "logs" / f"{program.parent.name}-{program.name}.log"


def n_runs(path):
    return len(pathlib.Path(f"{path}.runs").read_text().splitlines())


# ---- unit test programs ------------------------------------------------------------------


IMPATIENT = "import sys, verdict, programs; verdict.PATIENCE = 0.2; sys.exit(programs.main(*sys.argv[1:]))"


def run_programs(folder, *programs):
    return run(sys.executable, "-B", "-c", IMPATIENT, 2, folder / "logs", *programs, PYTHONPATH=str(HERE))


@pytest.mark.parametrize("name", RACES)
def test_a_program_that_passes_when_it_runs_again_is_flaky(tmp_path, name):
    program = shell(tmp_path, name, RACES[name])
    code, said = run_programs(tmp_path, shell(tmp_path, "passes", ("", "")), program)
    assert code == 0, said
    log = log_of(tmp_path, program)
    assert f"FLAKY {program} ({log})" in said.splitlines()
    assert log.is_file() and "FAILED" not in said
    assert n_runs(program) == len(RACES[name][0]) + 1 and n_runs(tmp_path / "passes") == 1


@pytest.mark.parametrize("name", REDS)
def test_a_program_is_red(tmp_path, name):
    program = shell(tmp_path, name, REDS[name])
    code, said = run_programs(tmp_path, program)
    assert code == 1, said
    assert f"FAILED {program} ({log_of(tmp_path, program)})" in said.splitlines()
    assert n_runs(program) == len(REDS[name][0])  # and not once more


def test_two_programs_of_one_name_have_a_log_each(tmp_path):
    programs = [shell(tmp_path / room, "test_it", ("12", f"echo of the {room} $n; exit 1")) for room in ("daemon", "hook")]
    code, said = run_programs(tmp_path, *programs)
    assert code == 0, said
    for program in programs:
        log = log_of(tmp_path, program)
        again = log.with_suffix(".again-1.log")
        assert [path.read_text() for path in (log, again)] == [f"of the {program.parent.name} {n}\n" for n in (1, 2)]


def test_a_simulation_is_red_at_once(tmp_path):
    program = shell(tmp_path / "tests" / "sim", "a seed", RACES["fails once"])
    code, said = run_programs(tmp_path, program)
    assert code == 1 and n_runs(program) == 1, said


def test_a_program_runs_again_alone_and_knows_it(tmp_path):
    program = shell(tmp_path, "once", ("1", f"exit ${{{verdict.ALONE}:-1}}"))
    others = [shell(tmp_path, f"waits {i}", ("1", f"while [ ! -e {program}.runs ]; do sleep 0.02; done")) for i in range(3)]
    second = shell(tmp_path, "second", ("12", f"[ $n = 2 ] && [ ${verdict.ALONE} = 1 ] && exit 0; exit 1"))
    code, said = run_programs(tmp_path, program, second, *others)
    assert code == 0, said
    lines = [line.split()[-1 if "ok" in line.split() else -3] for line in said.splitlines() if " ms " in line]
    assert len(lines) == 7 and set(map(str, others)) <= set(lines[:5])  # the others had ended


def test_when_more_fail_than_may_be_flaky_none_runs_again(tmp_path):
    programs = [shell(tmp_path, f"race {i}", RACES["fails once"]) for i in range(4)]
    code, said = run_programs(tmp_path, *programs)
    assert code == 1 and said.count("FAILED ") == 4, said
    assert [n_runs(program) for program in programs] == [1] * 4


def test_a_program_that_hangs_is_ended_and_shows_its_stacks(tmp_path):
    program = shell(tmp_path, "hangs", ("1", "sleep 1000"))
    hasty = IMPATIENT.replace("sys.exit", "programs.LIMIT_S = 0.5; sys.exit")
    code, said = run(sys.executable, "-B", "-c", hasty, 1, tmp_path / "logs", program, PYTHONPATH=str(HERE))
    assert code == 0, said
    log = log_of(tmp_path, program).read_text()
    assert "not within 0.5 s" in log and "sleep 1000" in log and "sleep: S (sleeping)" in log


def test_stacks_are_of_ten_processes_and_do_not_hang(tmp_path, monkeypatch):
    folder = tmp_path / "scripts"
    folder.mkdir()
    monkeypatch.setattr(verdict, "ROOT", tmp_path)
    (folder / "stacks").write_text('#!/bin/sh\necho "$# processes"\n')
    (folder / "stacks").chmod(0o755)
    assert verdict.stacks([]) == "" and verdict.stacks(list(range(1, 101))) == "10 processes\n"
    monkeypatch.setattr(verdict, "STACKS_S", 0.5)
    (folder / "stacks").write_text('#!/bin/sh\necho "the first"\nexec sleep 1000\n')
    assert verdict.stacks([1]) in ("", "the first\n")


# ---- pytest ------------------------------------------------------------------------------


CONFTEST = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
import verdict
verdict.PATIENCE = 0.2
"""
TEST = """
import os, pathlib, subprocess

def test_it(tmp_path):
    done = subprocess.run([{program!r}], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          env={{**os.environ, "PLACE": str(tmp_path)}})
    assert done.returncode == 0, done.stdout
"""


def make_tests(folder, cases):
    programs = []
    (folder / "tests").mkdir()
    (folder / "tests" / "conftest.py").write_text(CONFTEST)
    for name, case in cases.items():
        programs.append(shell(folder, name, case))
        path = folder / "tests" / f"test_{name.replace(' ', '_')}.py"
        path.write_text(TEST.format(program=str(programs[-1])))
    return programs


def run_pytest(folder, *args):
    return run(ROOT / "scripts" / "run-pytest", *args, folder / "tests", PYTHON=sys.executable, NVSHARE_BUILD=str(folder))


has_xdist = subprocess.run([sys.executable, "-c", "import xdist"], stderr=subprocess.DEVNULL, check=False).returncode == 0
sides = pytest.mark.parametrize("args", [[], *([["-n", "2"]] if has_xdist else [])], ids=["one", "workers"][:1 + has_xdist])


@sides
def test_a_test_that_passes_when_it_runs_again_is_flaky(tmp_path, args):
    programs = make_tests(tmp_path, RACES)
    code, said = run_pytest(tmp_path, *args)
    assert code == 0, said
    lines = [line for line in said.splitlines() if line.startswith("FLAKY ")]
    assert len(lines) == len(RACES) and "FAILED" not in said, said
    for line in lines:
        name, log = line.split()[1:]
        assert name.endswith("::test_it") and "assert done.returncode == 0" in pathlib.Path(log.strip("()")).read_text()
    assert [n_runs(program) for program in programs] == [2, 3]


@sides
def test_all_kinds_that_are_red(tmp_path, args):
    programs = make_tests(tmp_path, REDS)
    code, said = run_pytest(tmp_path, *args)
    assert code == 1, said
    assert "FLAKY" not in said
    assert [n_runs(program) for program in programs] == [len(runs) for runs, _ in REDS.values()], said


# How tests look at a program that a signal ended.
CRASHED = {
    "check": "subprocess.run(CRASH, check=True)",
    "check in a shell": "subprocess.run(['sh', '-c', 'exit 139'], check=True)",
    "check, and few words": "raise type('Short', (subprocess.CalledProcessError,), {'__str__': lambda _: 'failed'})(-11, CRASH)",
    "compares": "assert subprocess.run(CRASH).returncode == 0",
    "compares, cut": "assert subprocess.run(LONG, stdout=subprocess.PIPE).returncode == 0",
    "has none": "done = subprocess.run(LONG, stdout=subprocess.PIPE); assert not done.returncode",
    "compares both": "done = subprocess.run(CRASH, stdout=subprocess.PIPE); assert (done.returncode, done.stdout) == (0, b'')",
    "compares a shell's": "assert subprocess.run(['sh', '-c', 'exit 139']).returncode == 0",
}


@pytest.mark.parametrize("name", CRASHED)
def test_a_crash_is_red_however_a_test_looks_at_it(tmp_path, name):
    make_tests(tmp_path, {})
    (tmp_path / "tests" / "test_crash.py").write_text(textwrap.dedent(f"""
        import subprocess
        CRASH = ["sh", "-c", "kill -SEGV $$"]
        LONG = ["sh", "-c", "printf %0300d 0; kill -SEGV $$", "x" * 300]
        def test_it(tmp_path):
            {CRASHED[name]}
        """))
    code, said = run_pytest(tmp_path)
    assert code == 1 and "::test_it: a crash: never flaky" in said, said


def test_a_red_test_does_not_hide_which_one_is_flaky(tmp_path):
    make_tests(tmp_path, {"fails once": RACES["fails once"], "crashes once": REDS["crashes once"]})
    code, said = run_pytest(tmp_path)
    lines = said.splitlines()
    assert code == 1
    assert sum(line.startswith("FLAKY ") for line in lines) == sum(line.startswith("FAILED ") for line in lines) == 1, said


def test_of_more_tests_than_may_be_flaky_none_runs_again(tmp_path):
    programs = make_tests(tmp_path, {f"race {i}": RACES["fails once"] for i in range(4)})
    code, said = run_pytest(tmp_path)
    assert code == 1 and [n_runs(program) for program in programs] == [1] * 4, said


def test_a_test_runs_again_where_it_ran_and_its_folders_are_removed(tmp_path):
    make_tests(tmp_path, {"fails always": REDS["fails always"]})
    (tmp_path / "tests" / "test_place.py").write_text(textwrap.dedent(f"""
        import pathlib
        def test_it(tmp_path):
            with open("{tmp_path}/places", "a") as places:
                print(tmp_path, pathlib.Path.cwd(), file=places)
            assert len(open("{tmp_path}/places").readlines()) > 1
        """))
    code, said = run_pytest(tmp_path, f"--rootdir={tmp_path}")
    places = [line.split() for line in (tmp_path / "places").read_text().splitlines()]
    assert code == 1 and sum(line.startswith("FLAKY tests/test_place.py") for line in said.splitlines()) == 1, said
    assert [here for _, here in places] == [os.getcwd()] * 2
    assert not [base for base, _ in places if pathlib.Path(base).parents[1].exists()]


def test_without_the_option_no_test_runs_again(tmp_path):
    [program] = make_tests(tmp_path, {"fails once": RACES["fails once"]})
    code, _ = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "flaky", tmp_path / "tests",
                  PYTHONPATH=str(HERE), NVSHARE_BUILD=str(tmp_path))
    assert code == 1 and n_runs(program) == 1


def test_a_failure_shows_the_output_and_the_stacks_of_what_runs(tmp_path):
    make_tests(tmp_path, {})
    (tmp_path / "tests" / "test_waits.py").write_text(textwrap.dedent("""
        import os, subprocess
        def test_it(tmp_path):
            (tmp_path / "program.out").write_text("I am slow\\n")
            subprocess.Popen(["sleep", "1000"], env={**os.environ, "PLACE": str(tmp_path)})
            assert False, "not within 120 s"
        """))
    code, said = run_pytest(tmp_path)
    assert code == 1
    assert "I am slow" in said and "sleep 1000" in said and "sleep: S (sleeping)" in said


# What a program with pipes does, and what the rig of the test that reads them says of it.
PIPES = {
    "crashes": ("exec >&- 2>&-; sleep 0.2; kill -SEGV $$", "a crash"),
    "is reported": (f"echo '{SANITIZER}' >&2; exit 1", "a sanitizer's report"),
}
RIGS = {
    "node": """
import subprocess, types, pytest

@pytest.fixture
def node(tmp_path):
    process = subprocess.Popen({program!r}, stdin=-1, stdout=-1, stderr=-1)
    yield types.SimpleNamespace(folder=tmp_path, programs=[process])
    process.communicate()

def test_it(node):
    assert node.programs[0].stdout.readline() == b"ready\\n"
""",
    "expect_line": """
import contextlib, preload_rig

preload_rig.PATIENCE = 60

def test_it(tmp_path):
    with contextlib.closing(preload_rig.Node(tmp_path)) as node:
        preload_rig.expect_line(node.start({program!r}, LD_PRELOAD=""), "ready")
""",
    "expect_end": """
import contextlib, preload_rig

preload_rig.PATIENCE = 60

def test_it(tmp_path):
    with contextlib.closing(preload_rig.Node(tmp_path)) as node:
        preload_rig.expect_end(node.start({program!r}, LD_PRELOAD=""))
""",
}


@pytest.mark.parametrize("rig", RIGS)
@pytest.mark.parametrize("name", PIPES)
def test_what_a_program_with_pipes_did_is_known(tmp_path, monkeypatch, rig, name):
    then, why = PIPES[name]
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "hook" / "preload"))
    make_tests(tmp_path, {})
    (tmp_path / "tests" / "test_pipes.py").write_text(RIGS[rig].format(program=str(shell(tmp_path, name, ("1", then)))))
    code, said = run_pytest(tmp_path)
    assert code == 1 and f"::test_it: {why}: never flaky" in said, said


TEARS_DOWN = """
import os, pathlib, subprocess, pytest

@pytest.fixture
def torn(tmp_path):
    yield
    assert {passes}, "torn"

def test_it(torn, tmp_path):
    child = subprocess.Popen(["sleep", "1000"], env={{**os.environ, "PLACE": str(tmp_path)}})
    pathlib.Path(__file__).with_suffix(".pid").write_text(str(child.pid))
    assert {succeeds}, "not within 120 s"
"""


def has_ended(pid):
    try:
        return "\nState:\tZ" in pathlib.Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("passes", [True, False])
@pytest.mark.parametrize("succeeds", [True, False])
def test_what_is_left_is_ended_and_red_where_the_test_passed(tmp_path, passes, succeeds):
    make_tests(tmp_path, {})
    (tmp_path / "tests" / "test_torn.py").write_text(TEARS_DOWN.format(passes=passes, succeeds=succeeds))
    code, said = run_pytest(tmp_path)
    assert code == 1 and ("a process left over: never flaky" in said) == succeeds, said
    assert passes or "torn" in said
    assert has_ended(int((tmp_path / "tests" / "test_torn.pid").read_text()))


# ---- scripts/test ------------------------------------------------------------------------


def run_stages(folder, *stages):
    text = "; ".join(["source scripts/stages", *[f"stage 'stage {i}' sh -c '{stage}'" for i, stage in enumerate(stages)],
                      "summary"])
    return run("bash", "-c", f"cd {ROOT}; logs={folder}; {text}")


@pytest.mark.parametrize("n, code", [(0, 0), (3, 0), (4, 1)])
def test_three_flaky_tests_of_all_stages_are_listed_and_a_fourth_is_red(tmp_path, n, code):
    stages = [f"echo FLAKY test_{i} [log_{i}]" for i in range(n)] + ["true"]
    found, said = run_stages(tmp_path, *stages)
    assert found == code, said
    for i in range(n):
        assert f"flaky: test_{i} [log_{i}]" in said.splitlines()
    assert said.splitlines()[-1] == f"{n + 1} passed, {code} failed"


def test_a_stage_that_fails_is_red(tmp_path):
    found, said = run_stages(tmp_path, "true", "echo FAILED test_x; exit 1")
    assert found == 1 and "  FAILED test_x" in said
    assert said.splitlines()[-1] == "1 passed, 1 failed"


def test_the_limit_is_the_same_in_both_places():
    assert f"flaky_max={verdict.FLAKY_MAX}\n" in (ROOT / "scripts" / "stages").read_text()
