# SPDX-License-Identifier: Apache-2.0
"""Callers that symbol interposition does not reach."""

import re
import shutil

import pytest

from conftest import BUILD, LIBRARY, MIB, until

PLUGINS = BUILD / "tests" / "apps" / "plugin"
DRIVER = BUILD / "simgpu" / "libcuda.so.1"
OURS = LIBRARY or str(BUILD / "libnvshare.so")

CALLERS = {
    "deep": ("libplugin.so", "--by", "deep"),
    "deep-lazy": ("libplugin_lazy.so", "--by", "deep", "--lazy"),
    "deep-finds": ("libplugin_finds.so", "--by", "deep"),
    "deep-by-name": ("libplugin.so", "--by", "deep", "by name"),
    "space": ("libplugin.so", "--by", "space"),
    "space-lazy": ("libplugin_lazy.so", "--by", "space", "--lazy"),
    "space-finds": ("libplugin_finds.so", "--by", "space"),
    "path": ("libplugin_finds.so", "--driver", str(DRIVER)),
    "copy": ("libplugin_finds.so", "--driver", "a copy"),
    "driver-first": ("libplugin.so", "driver first"),
    "driver-first-lazy": ("libplugin_lazy.so", "--lazy", "driver first"),
}


@pytest.fixture(params=CALLERS)
def caller(request, node):
    """Starts the program with a plugin that calls the driver in one of the ways."""
    plugin, *args = CALLERS[request.param]

    def start(name, *more, **env):
        options = list(args)
        path = str(PLUGINS / plugin)
        if "by name" in options:
            options.remove("by name")
            path = plugin
            env["LD_LIBRARY_PATH"] = f"{PLUGINS}:{node.env['LD_LIBRARY_PATH']}"
        if "a copy" in options:
            copy = node.folder / "driver.so"
            if not copy.exists():
                shutil.copy(DRIVER, copy)
            options[options.index("a copy")] = str(copy)
        preload = OURS
        if "driver first" in options:
            options.remove("driver first")
            preload = f"{DRIVER}:{OURS}"
        # The command itself is started without the library.
        return node.start(
            ["env", f"LD_PRELOAD={preload}", BUILD / "tests/apps/plugged", "--plugin", path, *options, *more,
             "--until", node.flag("enough")],
            name=name, preload=False, **env)

    return start


def seen(program):
    """The plugin's words: the size of its card, what was free, and what was after it had taken some."""
    return [int(n) for n in re.search(r"plugin total=(\d+) free=(\d+) then=(\d+)", program.output()).groups()]


def test_limits_hold_and_memory_counts(node, caller):
    node.start_scheduler()
    program = caller("plugged", "--size", "50MiB", NVSHARE_GPU_MEMORY_LIMIT="128MiB")
    until("the plugin has memory", lambda: "plugin total" in program.output())
    total, before, after = seen(program)
    assert total == 128 * MIB
    assert 50 * MIB <= before - after < 60 * MIB
    assert 100 * MIB <= node.client(program)["memory_allocated"] < 110 * MIB
    node.finish([program])


# Callers of each way are limited and counted above. A few of them are moved, which takes long.
@pytest.mark.parametrize("caller", ["deep", "deep-lazy", "deep-by-name", "space", "copy", "driver-first-lazy"], indirect=True)
def test_it_takes_turns_and_computes_right(node, caller):
    node.start_scheduler(NVSHARE_SCHEDULING_MODE="serial")
    programs = [caller(f"plugged-{i}") for i in range(2)]
    until("they take turns", lambda: (g := node.gpu())["switches"] >= 4 and g["moved_out_bytes"])
    assert "nvshare" not in programs[0].output()
    node.finish(programs)


@pytest.mark.parametrize("caller", ["deep-finds", "space-lazy", "path", "driver-first"], indirect=True)
def test_a_plugin_alone_takes_turns(node, caller):
    """Nothing but the plugin uses the GPU."""
    node.start_scheduler(NVSHARE_SCHEDULING_MODE="serial")
    programs = [caller(f"plugged-{i}", "--alone", "--size", "150MiB") for i in range(2)]
    until("they take turns", lambda: (g := node.gpu())["switches"] >= 4 and g["moved_out_bytes"])
    node.finish(programs)


def test_what_is_out_of_reach_is_noticed(node):
    """Nothing of it moves, and the status and one line say why."""
    node.start_scheduler(NVSHARE_RETRY_SEC="0.2", NVSHARE_POLL_INTERVAL_MS="100")
    args = ["--plugin", PLUGINS / "libplugin.so", "--by", "hidden", "--size", "100MiB",
            "--until", node.flag("enough")]
    hidden = node.app("plugged", *args, name="hidden")
    until("the plugin has memory", lambda: "plugin total" in hidden.output())
    other = node.app("oversub", "--size", "150MiB", "--passes", 2, "--until", node.flag("enough"), name="other")
    until("the status says it", lambda: node.client(hidden)["bypass"])
    until("the other one waits", lambda: (c := node.client(other)) and c["wait_reason"] != "none")
    client = node.client(hidden)
    assert client["memory_pinned"] >= 100 * MIB, client
    assert not client["memory_resident"] and not client["memory_swapped"], client
    assert client["stops_by"] == "drain", client
    assert "some of its calls go past nvshare" in node.ctl("status").stdout
    assert node.scheduler.output().count(f" stays client={client['id']} gpu=0 reason=bypass\n") == 1
    assert len(re.findall("libplugin.so calls cu[A-Za-z0-9_]+ past nvshare", hidden.output())) == 1
    node.finish([hidden, other])
