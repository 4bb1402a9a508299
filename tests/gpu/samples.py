#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds NVIDIA's CUDA samples with nvcc, runs each in four ways, and compares exit codes and output.

  without  without the library
  again    the same: lines that differ already are not compared
  with     with the library
  beside   with it, beside a program of the library's that holds and works over a part of the card

SOURCE is a copy of https://github.com/NVIDIA/cuda-samples. Samples that need OpenGL, Vulkan, NvSci or MPI are left out.
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import rig as rigs

WAYS = ("without", "again", "with", "beside")
LEFT_OUT = re.compile(r"find_package\((OpenGL|GLUT|Vulkan|NVSCI|EGL|X11|MPI|FreeImage)|D3D", re.I)
LIBRARIES = [f"-l{name}" for name in ("cuda", "cublas", "cufft", "curand", "cusparse", "cusolver", "nvrtc", "nvjpeg", "nppisu",
                                      "nppif", "nppim", "nppidei", "nppist", "nppitc", "nppial", "nppicc", "nppig", "nppc",
                                      "nvJitLink", "pthread", "gomp", "cudadevrt")]
SHOWN = 6  # lines of a difference


class Sample:
    """A folder with one program."""

    def __init__(self, folder):
        self.folder = folder
        self.name = folder.name
        self.text = (folder / "CMakeLists.txt").read_text()
        self.error = ""

    def program(self):
        return self.folder / f"{self.name}.program"

    def sources(self):
        """Files of its first program, in the folder of the recipe."""
        found = re.search(r"add_executable\(\s*\S+([^)]*)\)", self.text)
        words = [word for word in (found[1].split() if found else []) if word.endswith((".cu", ".cpp", ".c", ".cc"))]
        return words or sorted(p.name for p in self.folder.iterdir() if p.suffix in (".cu", ".cpp"))

    def kernel(self):
        """The source of a module that the program loads, and the module's name."""
        names = dict(re.findall(r"set\((\w+)\s+\"?([^\")]+)\"?\)", self.text))
        file, source = names.get("CUDA_FATBIN_FILE"), names.get("CUDA_KERNEL_SOURCE")
        if not file or not source:
            return None
        return pathlib.Path(source).name, re.sub(r"\$\{\w+\}", "64", pathlib.Path(file).name)

    def build(self, nvcc, arch, common):
        flags = [f"-arch={arch}", "-std=c++17", "-O2", "--extended-lambda", "-w", "-I", common, "-I", common / "UtilNPP",
                 "-I", "."]
        if "CUDA_SEPARABLE_COMPILATION ON" in self.text:
            flags.append("-rdc=true")
        if re.search("openmp", self.text, re.I):
            flags += ["-Xcompiler", "-fopenmp"]
        cuda = pathlib.Path(shutil.which(nvcc)).resolve().parents[1]
        for header in ("cooperative_groups.h", "cooperative_groups", "cccl/nv", "cccl/cuda"):  # for kernels built at run time
            link = self.folder / pathlib.Path(header).name
            if "nvrtc" in self.name and (cuda / "include" / header).exists() and not link.is_symlink():
                link.symlink_to(cuda / "include" / header)
        compilations = [[nvcc, *flags, "-o", self.program().name, *self.sources(), "-L", cuda / "lib64" / "stubs",
                         "-Xlinker", "--as-needed", *LIBRARIES]]
        if self.kernel():
            source, module = self.kernel()
            compilations.append([nvcc, *flags, "-fatbin", "-o", module, source])
        for command in compilations:
            done = subprocess.run([str(c) for c in command], cwd=self.folder, text=True, check=False, timeout=400,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            if done.returncode:
                self.error = next((line for line in done.stdout.splitlines() if "error" in line or "cannot" in line),
                                  "it does not build")
                return


def samples_of(source):
    for recipe in sorted(source.glob("Samples/[0-6]_*/*/CMakeLists.txt")):
        if not LEFT_OUT.search(recipe.read_text()):
            yield Sample(recipe.parent)


def template(line):
    """The line without what a run chooses: numbers, addresses, this library's prefix."""
    return re.sub(r"0x[0-9a-fA-F]+|[-+]?[0-9][0-9.,]*(e[-+]?[0-9]+)?|\b(inf|nan)\b", "#", " ".join(line.split()))


class Outcome:
    def __init__(self, program, code):
        self.code = "it did not end" if code is None else code
        self.seconds = (program.end or time.monotonic()) - program.start
        self.lines = collections.Counter(template(text) for _, text in program.lines if text.strip())
        self.last = program.tail(3)


def run_all(args, way, samples):
    """Outcomes by name."""
    rig = rigs.Rig(args.bin)
    try:
        rig.start_scheduler()
        enough = rig.flag()
        if way == "beside":
            total = rig.status()["gpus"][0]["total_memory"]
            holder = rig.app("holder", "oversub", "--size", int(total * args.part) // (64 * rigs.MIB) * 64 * rigs.MIB, "--buffers", "64",
                             "--sums", "--think", "100", "--until", enough)
            rig.until("the holder holds its memory", 120,
                      lambda: (rig.client(holder) or {"memory_resident": 0})["memory_resident"] >= int(total * (args.part - 0.1)))

        def one(sample):
            program = rig.start(sample.name, "sh", "-c", f"cd '{sample.folder}' && exec './{sample.program().name}'",
                                preload=way in ("with", "beside"))
            code = program.wait(args.patience)
            if code is None:
                program.kill()
                program.wait(10)
            return sample.name, Outcome(program, code)

        with concurrent.futures.ThreadPoolExecutor(args.at_once) as pool:
            outcomes = dict(pool.map(one, samples))
        if way == "beside":
            enough.touch()
            rig.expect(holder, 120)
            print(f"holder: {holder.tail(1)}", flush=True)
        return outcomes
    finally:
        rig.close()


def difference(name, found, way):
    """In words; empty: none."""
    without, again, other = (found[w][name] for w in ("without", "again", way))
    if other.code not in (without.code, again.code):
        return f"exit {without.code}, now {other.code}\n" + "\n".join(f"      {line}" for line in other.last.splitlines())
    unsteady = (without.lines - again.lines) + (again.lines - without.lines)
    gone, new = without.lines - other.lines, other.lines - without.lines
    lines = [f"      - {line}" for line in gone if line not in unsteady] + [f"      + {line}" for line in new if line not in unsteady]
    return "output\n" + "\n".join(lines[:SHOWN]) if lines else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--source", required=True, type=pathlib.Path)
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--arch", default="native")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--only", help="a regular expression of names")
    parser.add_argument("--part", type=float, default=0.92, help="of the card, for the program beside")
    parser.add_argument("--at-once", type=int, default=3, help="so many samples run at the same time")
    parser.add_argument("--patience", type=float, default=90)
    args = parser.parse_args()

    samples = [s for s in samples_of(args.source) if not args.only or re.search(args.only, s.name)]
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda s: s.build(args.nvcc, args.arch, (args.source / "Common").resolve()), samples))
    for sample in samples:
        if sample.error:
            print(f"not built: {sample.name}: {re.sub(r'/[^ ]*/', '', sample.error)[:150]}")
    built = [sample for sample in samples if not sample.error]
    print(f"{len(built)} of {len(samples)} samples built in {time.monotonic() - begin:.0f} s", flush=True)

    found = {}
    for way in args.ways.split(","):
        begin = time.monotonic()
        found[way] = run_all(args, way, built)
        codes = collections.Counter(str(outcome.code) for outcome in found[way].values())
        print(f"{way}: {time.monotonic() - begin:.0f} s; exit " +
              ", ".join(f"{code}: {n}" for code, n in sorted(codes.items())), flush=True)
    for code in sorted({str(outcome.code) for outcome in found["without"].values()} - {"0"}):
        print(f"exit {code} without: " + ", ".join(n for n, outcome in found["without"].items() if str(outcome.code) == code))
    n_different = 0
    for way in args.ways.split(",")[2:]:
        different = {s.name: text for s in built if (text := difference(s.name, found, way))}
        ratios = sorted(found[way][s.name].seconds / found["without"][s.name].seconds for s in built)
        print(f"{way}: {len(built) - len(different)} of {len(built)} end as without; "
              f"wall time {ratios[len(ratios) // 2]:.2f} in the median, at most {ratios[-1]:.1f}")
        for name, text in different.items():
            print(f"    {name}: {text}", flush=True)
        n_different += len(different)
    sys.exit(n_different > 0)


if __name__ == "__main__":
    main()
