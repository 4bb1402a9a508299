# SPDX-License-Identifier: Apache-2.0
"""The plugin of pytest: what a test that failed left to look at, and with --run-again one that races is not red.

A worker of xdist judges; the process that started them runs again what may be flaky, each test in a pytest of its own.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from multiprocessing import connection

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import verdict  # noqa: E402

BUILD = pathlib.Path(os.environ.get("NVSHARE_BUILD", verdict.ROOT / "build" / "plain")).resolve()
NEVER = "never flaky"
EXIT_NEVER = 99
N_LINES = 90

has_failed = pytest.StashKey()


class LeftOver(AssertionError):
    pass


def pytest_addoption(parser):
    parser.addoption("--run-again", action="store_true", help="each test that fails, alone, up to twice")


# ---- while a test runs ---------------------------------------------------------------------


def folders(item):
    """Where the programs of a test work; their environments name it."""
    funcargs = getattr(item, "funcargs", None) or {}
    found = {getattr(funcargs.get("node"), "folder", None), funcargs.get("tmp_path")}
    return sorted(folder for folder in found if isinstance(folder, pathlib.Path))


def processes(item):
    return sorted({pid for folder in folders(item) for pid in verdict.processes(bytes(folder))})


def told(item):
    """What every program of its node said, as (name, text)."""
    paths = [path for folder in folders(item) for path in [*sorted(folder.glob("*.out")), folder / "log"]]
    return [(path.name, path.read_text(errors="replace")) for path in dict.fromkeys(paths) if path.is_file()]


def last_lines(text):
    lines = [line for line in text.splitlines() if "GET_STATUS" not in line]
    telling = [line for line in lines if " debug: message " not in line]  # of those there are thousands
    return "\n".join(telling[-N_LINES:])


def status(item):
    said = ""
    for socket in [path for folder in folders(item) for path in (folder / "scheduler.sock", folder / "sock/scheduler.sock")]:
        try:
            said += subprocess.run([BUILD / "nvsharectl", "status"], env={"NVSHARE_SOCK_DIR": str(socket.parent)},
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=10,
                                   check=False).stdout.decode(errors="replace") if socket.exists() else ""
        except subprocess.TimeoutExpired:
            said += "the scheduler does not answer"
    return said


def started(item):
    """The processes of the programs that the node knows."""
    node = item.funcargs.get("node")
    programs = [getattr(node, "scheduler", None), *getattr(node, "programs", []), node]
    found = [getattr(program, "process", program) for program in programs]
    return [process for process in found if isinstance(process, subprocess.Popen)]


def codes(item):
    """Exit codes. A program's pipes end a moment before it does, and a test that fails by them is quicker."""
    end = time.monotonic() + 1
    while None in [process.poll() for process in started(item)] and time.monotonic() < end:
        time.sleep(0.02)
    return [process.returncode for process in started(item)]


def piped(item):
    """What waits in the pipes of the programs."""
    pipes = [pipe for process in started(item) for pipe in (process.stdout, process.stderr) if pipe and not pipe.closed]
    ready = connection.wait(pipes, timeout=0)
    return [("a pipe", os.read(pipe.fileno(), 1 << 16).decode(errors="replace")) for pipe in ready]


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if not report.failed:
        return
    item.stash[has_failed] = True
    error = call.excinfo.value
    said = [str(error)] + [text for _, text in report.sections]
    ended = codes(item) + ([error.returncode] if isinstance(error, subprocess.CalledProcessError) else [])
    if folders(item):
        sections = told(item) + piped(item)
        said += [text for _, text in sections]
        report.sections += [(name, last_lines(text)) for name, text in sections]
        if alive := processes(item):
            report.sections += [("status", status(item)), ("stacks", verdict.stacks(alive))]
    if why := verdict.why_never("\n".join(said), *ended):
        report.user_properties.append((NEVER, why))


@pytest.hookimpl(hookwrapper=True, tryfirst=True)  # what raises last of all keeps no other plugin from its end
def pytest_runtest_teardown(item):
    """What a test left is ended, also where a fixture raised. One that failed could not end what it had begun."""
    outcome = yield
    words = [bytes(folder) for folder in folders(item)]
    error = outcome.excinfo[1] if outcome.excinfo else None
    if item.stash.get(has_failed, False) or isinstance(error, (KeyboardInterrupt, pytest.exit.Exception)):
        for word in words:
            verdict.end_all(word)
    elif left := "".join(verdict.left_over(word, 0 if error else None) for word in words):
        raise LeftOver(left) from error


# ---- when all have run ----------------------------------------------------------------------


def run_again(config, nodeid, log):
    """The exit code of a pytest that runs this test alone."""
    base = tempfile.mkdtemp(prefix="nvshare.")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "flaky",
               f"--rootdir={config.rootpath}", "--basetemp", f"{base}/t", f"{config.rootpath}/{nodeid}"]
    path = os.pathsep.join([str(pathlib.Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, verdict.ALONE: "1", "PYTHONPATH": path}
    with open(log, "wb") as out:
        code = subprocess.run(command, env=env, cwd=config.invocation_params.dir, stdin=subprocess.DEVNULL,
                              stdout=out, stderr=out, check=False).returncode
        # A test may have left a mount there.
        subprocess.run(["rm", "-rf", "--one-file-system", base], stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False)
    return code


def passes_alone(config, nodeid, log):
    for i in range(verdict.MORE_RUNS):
        code = run_again(config, nodeid, log.with_suffix(f".again-{i + 1}.log"))
        if code in (0, EXIT_NEVER):
            return code == 0
    return False


def failures(reporter):
    """Test to reports of it; a worker that ended and a file that is no test are never flaky."""
    found = {}
    for report in reporter.stats.get("failed", []) + reporter.stats.get("error", []):
        if getattr(report, "when", None) not in ("setup", "call", "teardown"):
            report.user_properties = [(NEVER, "a crash of pytest, or a file without tests")]
        found.setdefault(report.nodeid, []).append(report)
    return found


def keep_log(nodeid, reports):
    folder = BUILD / "logs" / "failed"
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / (re.sub(r"[^\w.-]+", "-", nodeid)[-150:] + ".log")
    log.write_text("\n".join(f"{report.longreprtext}\n" + "".join(f"---- {name}\n{text}\n" for name, text in report.sections)
                             for report in reports))
    return log


def why_never(reports):
    return next((why for report in reports for name, why in report.user_properties if name == NEVER), None)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    config = session.config
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if hasattr(config, "workerinput") or session.exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return
    failed = failures(reporter)
    if verdict.ALONE in os.environ:
        if any(map(why_never, failed.values())):
            session.exitstatus = EXIT_NEVER
        elif not reporter.stats.get("passed"):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return
    if not config.getoption("run_again"):
        return
    again = [nodeid for nodeid, reports in failed.items() if not why_never(reports)]
    if len(again) > verdict.FLAKY_MAX:
        again = []
    logs = {nodeid: keep_log(nodeid, reports) for nodeid, reports in failed.items()}
    for nodeid in again:
        if passes_alone(config, nodeid, logs[nodeid]):
            reporter.stats.setdefault("flaky", []).append((nodeid, logs[nodeid]))
            for kind in ("failed", "error"):
                reporter.stats[kind] = [report for report in reporter.stats.get(kind, []) if report.nodeid != nodeid]
    if failed and len(reporter.stats.get("flaky", [])) == len(failed):
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter):
    for nodeid, log in terminalreporter.stats.get("flaky", []):
        terminalreporter.write_line(f"FLAKY {nodeid} ({log})")
    for nodeid, reports in failures(terminalreporter).items():
        if why := why_never(reports):
            terminalreporter.write_line(f"{nodeid}: {why}: never flaky")
