# SPDX-License-Identifier: Apache-2.0
"""nvshare.ncu: what Nsight Compute has measured becomes a file of profiles that the library takes."""

import subprocess
import sys

import pytest
from conftest import HERE, ROOT
from nvshare import ncu

HEADER = ["ID", "Kernel Name", "Block Size", "Grid Size", *ncu.METRICS]
UNITS = ["", "", "", "", "us", "%", "%", "Kbyte", "", "SM", *["block"] * 4]


def csv_of(*rows, header=HEADER, units=UNITS):
    return "\n".join(",".join(f'"{field}"' for field in row) for row in (header, units, *rows)) + "\n"


def row(name="k", blocks="(4, 2, 1)", threads="(96, 1, 1)", us="1", compute="0", memory="0", kbytes="0", gpu="unknown",
        sms="132", limit="32"):
    return ["0", name, threads, blocks, us, compute, memory, kbytes, gpu, sms, "32", limit, "32", "32"]


def convert(tmp_path, text, *options):
    source, out = tmp_path / "in.csv", tmp_path / "out.profile"
    source.write_text(text)
    done = subprocess.run([sys.executable, "-m", "nvshare.ncu", "-o", str(out), *options, str(source)],
                          env={"PYTHONPATH": str(ROOT / "src" / "python")}, capture_output=True, text=True)
    return done, out


def profiles(path):
    head, columns, *lines = path.read_text().splitlines()
    return head, [dict(zip(columns.split("\t"), line.split("\t"))) for line in lines]


def test_launches_of_a_kernel_and_size_are_one_profile(tmp_path):
    text = "==PROF== Connected\nwhat the program prints, with a comma\n" + csv_of(
        row(us="1,000.5", compute="90", memory="10", kbytes="2", limit="3"), row(us="500", compute="30", memory="70", kbytes="3"),
        row(threads="(33, 1, 1)", limit="1", sms="5"), "==PROF== Disconnected".split(","))
    done, out = convert(tmp_path, text.replace("unknown", "NVIDIA H200"), "--model", "serve")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{out}: 2 kernels: 1 compute-bound, 0 memory-bound, 1 unknown\n"
    head, (first, second) = profiles(out)
    assert head == "# nvshare kernel profiles 1\tmodel serve\tgpu NVIDIA H200"
    assert first == {"key": f"{ncu.profile_key('k', 8, 96):016x}", "name": "k", "grid_blocks": "8", "block_threads": "96",
                     "sms": "3", "mean_ns": "750250", "min_ns": "500000", "count": "2", "bytes": "3000", "class": "compute"}
    assert (second["block_threads"], second["sms"], second["count"], second["bytes"]) == ("64", "5", "1", "0")


@pytest.mark.parametrize("compute, memory, bound", [
    ("59.9", "59.9", "unknown"), ("60", "10", "compute"), ("10", "60", "memory"), ("80", "61", "compute"), ("70", "90", "memory")])
def test_the_larger_share_from_60_percent_on_is_the_class(tmp_path, compute, memory, bound):
    done, out = convert(tmp_path, csv_of(row(compute=compute, memory=memory)))
    assert done.returncode == 0
    assert [p["class"] for p in profiles(out)[1]] == [bound]


REFUSED = {
    "nothing": ("", 'no line names the column "Kernel Name"'),
    "no kernel": (csv_of(), "no kernel is in the file"),
    "another page": (csv_of(header=HEADER[:4], units=UNITS[:4]), "line 1: column gpu__time_duration.sum is missing"),
    "unit": (csv_of(row(), units=[*UNITS[:4], "hour", *UNITS[5:]]), 'line 2: column gpu__time_duration.sum: unit "hour"'),
    "number": (csv_of(row(), row(us="n/a")), 'line 4: column gpu__time_duration.sum: "n/a" is no such value'),
    "negative": (csv_of(row(us="-1")), 'line 3: column gpu__time_duration.sum: "-1" is no such value'),
    "infinite": (csv_of(row(compute="inf")), 'line 3: column sm__throughput.avg.pct_of_peak_sustained_elapsed: "inf" is'),
    "size": (csv_of(row(blocks="4 x 2")), 'line 3: column Grid Size: "4 x 2" is no such value'),
    "GPUs": (csv_of(row(gpu="a"), row(gpu="b")), 'kernels of two GPUs, "a" and "b"'),
    "cut": (csv_of(row(), row()[:5]), "line 4: 5 fields, and the header has 14"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_file_is_refused_by_its_line_and_leaves_the_old_profile(tmp_path, case):
    text, reason = REFUSED[case]
    (tmp_path / "out.profile").write_text("old")
    done, out = convert(tmp_path, text)
    assert done.returncode == 1
    assert f"in.csv: {reason}" in done.stderr and "Traceback" not in done.stderr
    assert out.read_text() == "old" and len(list(tmp_path.iterdir())) == 2


def test_kernels_of_a_real_card(tmp_path):
    """ResNet-50 of batch 1 and 32, and products, on an H200: some rows and columns of the section orion-profile."""
    done, out = convert(tmp_path, (HERE / "ncu-h200.csv").read_text(), "--model", "resnet50")
    assert done.stdout == f"{out}: 9 kernels: 3 compute-bound, 3 memory-bound, 3 unknown\n"
    head, found = profiles(out)
    assert head == "# nvshare kernel profiles 1\tmodel resnet50\tgpu NVIDIA H200"
    assert all(0 < int(p["min_ns"]) <= int(p["mean_ns"]) < 1e6 and 0 < int(p["sms"]) <= 132 for p in found)
    product = [p for p in found if p["name"] == "nvjet_sm90_hsh_256x128_64x4_1x2_h_bz_coopA_NNT"]
    assert [(p["grid_blocks"], p["class"]) for p in product] == [("128", "compute"), ("160", "compute")]


def test_names_and_keys_are_those_of_the_library(node, tmp_path):
    """Of each kernel that the library has recorded; and the library takes the classes that the converter finds."""
    recorded, again = tmp_path / "recorded", tmp_path / "again"
    node.start_scheduler()
    node.app("orion", "--profile", recorded).expect_verified()
    kernels = profiles(recorded)[1]
    assert len(kernels) > 1
    for kernel in kernels:
        key = ncu.profile_key(kernel["name"], int(kernel["grid_blocks"]), int(kernel["block_threads"]))
        assert kernel["key"] == f"{key:016x}"
    rows = [row(kernel["name"], f"({kernel['grid_blocks']}, 1, 1)", f"({kernel['block_threads']}, 1, 1)", memory="75")
            for kernel in kernels]
    done, converted = convert(tmp_path, csv_of(*rows, row("long" * 40), row("odd\\name é")))
    assert done.returncode == 0
    node.app("orion", "--load", converted, "--profile", again).expect_verified()
    classes = {kernel["key"]: kernel["class"] for kernel in profiles(again)[1]}
    assert all(classes[kernel["key"]] == "memory" for kernel in kernels)
    assert len(classes) >= len(kernels) + 2
