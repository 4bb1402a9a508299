# SPDX-License-Identifier: Apache-2.0
"""nvshare.hpp with both compilers, and what a program of it does with and without the library."""

import pathlib
import shutil
import subprocess

import pytest

from conftest import ROOT

SOURCE = pathlib.Path(__file__).with_name("calls.cpp")
NODE_FILE = ROOT / "tests" / "daemon" / "config" / "seed_004.yaml"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wold-style-cast", "-Werror"]


def compile_it(folder, *options, compiler="g++"):
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler} here")
    program = folder / "calls"
    subprocess.run(
        [compiler, *WARNINGS, *options, f"-I{ROOT / 'include'}", "-pthread", "-o", program, SOURCE, "-ldl"],
        check=True,
    )
    return program


@pytest.mark.parametrize("standard", ["c++11", "c++20"])
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_it_compiles_and_works_with_and_without_the_library(node, tmp_path, compiler, standard):
    program = compile_it(tmp_path, f"-std={standard}", compiler=compiler)
    node.start([program, "alone", NODE_FILE], preload=False).expect_verified()
    node.start([program, "unmanaged", NODE_FILE]).expect_verified()
    node.start_scheduler()
    node.start([program, "managed", NODE_FILE]).expect_verified()
    node.start([program, "critical", NODE_FILE], NVSHARE_LATENCY_CRITICAL="1").expect_verified()


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_the_threads_of_a_scheduler_neither_race_nor_outlive_it(node, tmp_path, sanitizer):
    program = compile_it(tmp_path, "-std=c++17", "-g", "-O1", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all")
    node.start([program, "alone", NODE_FILE], preload=False).expect_verified()
