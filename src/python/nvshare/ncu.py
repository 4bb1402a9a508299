# SPDX-License-Identifier: Apache-2.0
"""Makes a file of kernel profiles, for nvshare.orion.load_profile(), of what Nsight Compute has measured.

    ncu --csv --page raw --print-kernel-base mangled --clock-control none --cache-control none \\
        --metrics METRICS python3 serve.py >serve.csv
    python3 -m nvshare.ncu --model serve -o serve.profile serve.csv

`python3 -m nvshare.ncu --metrics` prints METRICS. A profile says how long a kernel runs, and whether
arithmetic or memory limits it. The library measures the first by itself. The second needs hardware
counters, which Nsight Compute reads. It runs each kernel ten times and saves its memory in between: some
tenths of a second a kernel. So let it count one request (ncu --profile-from-start off, and
cudaProfilerStart() in the program).

The class is that of the larger share of the peak, if this share is at least 60 %: compute-bound or
memory-bound. That is the rule of Orion (Strati et al., EuroSys 2024). Below 60 % it is unknown. Shares
of several launches of a kernel and size count by their durations.
"""

import argparse
import csv
import os
import re
import sys
import tempfile

DURATION = "gpu__time_duration.sum"
COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
BYTES = "dram__bytes.sum"
GPU = "device__attribute_display_name"
SMS = "launch__sm_count"
LIMITS = tuple(f"launch__occupancy_limit_{what}" for what in ("blocks", "registers", "shared_mem", "warps"))
_MEASURED = (DURATION, COMPUTE, MEMORY, BYTES)
METRICS = (*_MEASURED, GPU, SMS, *LIMITS)

BOUND_PERCENT = 60.0
_NAME, _GRID, _BLOCK = "Kernel Name", "Grid Size", "Block Size"
_SCALES = {"": 1.0, "%": 1.0, "ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9,
           "second": 1e9, "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}

# Names, sizes and keys as src/core/orion/kernel_profile.c has them.
_NAME_MAX = 127
_THREADS_MAX, _BLOCKS_MAX, _SMS_MAX = 1024, 1 << 63, 65535
_NS_MAX, _BYTES_MAX, _COUNT_MAX = 10**12, 1 << 44, 10**6
_COLUMNS = ("key", "name", "grid_blocks", "block_threads", "sms", "mean_ns", "min_ns", "count", "bytes", "class")


class CsvError(ValueError):
    """The text says which line of the CSV is wrong, and why."""


def _size_class(blocks):
    """The blocks of a grid, to 3 significant bits."""
    blocks = min(max(blocks, 1), _BLOCKS_MAX)
    step = max(1 << max(blocks.bit_length() - 3, 0), 1)
    return (blocks + step - 1) // step * step


def _thread_class(threads):
    return (min(max(threads, 1), _THREADS_MAX) + 31) // 32 * 32


def profile_key(name, blocks, threads):
    """FNV-1a over the name's bytes, the class of the blocks, and the warps of a block."""
    key = 0xCBF29CE484222325
    warps = _thread_class(threads) // 32
    for byte in name.encode() + _size_class(blocks).to_bytes(8, "little") + bytes([warps]):
        key = (key ^ byte) * 0x100000001B3 % (1 << 64)
    return key


def _printable(name):
    parts = [chr(c) if 32 <= c <= 126 and c != 92 else f"\\x{c:02x}" for c in name.encode()]
    if sum(map(len, parts)) <= _NAME_MAX:
        return "".join(parts) or "-"
    text = ""
    for part in parts:
        if len(text) + len(part) + 3 > _NAME_MAX:
            break
        text += part
    return text + "..."


def _sizes(text):
    """The product of "(160, 1, 1)"."""
    found = re.fullmatch(r"\((\d+), *(\d+), *(\d+)\)", text.strip())
    if not found:
        raise ValueError
    product = 1
    for part in found.groups():
        product *= int(part)
    return product


class _Rows:
    """The kernels of the CSV. Nsight Compute writes lines of its own, and what the program prints,
    before the header."""

    def __init__(self, lines):
        self.reader = csv.reader(lines)
        header = next((row for row in self.reader if _NAME in row), None)
        if header is None:
            raise CsvError(f'no line names the column "{_NAME}": run ncu with --csv --page raw')
        missing = [name for name in (_NAME, _GRID, _BLOCK, *METRICS) if name not in header]
        if missing:
            raise CsvError(f"line {self.reader.line_num}: column {missing[0]} is missing: run ncu with --page raw and "
                           f"--metrics {','.join(METRICS)}")
        self.at = {name: i for i, name in enumerate(header)}
        self.n_columns = len(header)
        self.units = self._scales(next(self.reader, []))

    def _scales(self, row):
        scales = {}
        for name in _MEASURED:
            unit = row[self.at[name]] if len(row) == self.n_columns else "?"
            if unit not in _SCALES:
                raise CsvError(f'line {self.reader.line_num}: column {name}: unit "{unit}" is none of '
                               f'{", ".join(filter(None, _SCALES))}')
            scales[name] = _SCALES[unit]
        return scales

    def _field(self, row, name, read):
        text = row[self.at[name]]
        try:
            value = read(text)
            if not 0 <= value < 1e300:
                raise ValueError
        except ValueError:
            raise CsvError(f'line {self.reader.line_num}: column {name}: "{text}" is no such value') from None
        return value

    def __iter__(self):
        for row in self.reader:
            if not row or row[0].startswith("=="):
                continue
            if len(row) != self.n_columns:
                raise CsvError(f"line {self.reader.line_num}: {len(row)} fields, and the header has {self.n_columns}")
            values = {name: self._field(row, name, _sizes) for name in (_GRID, _BLOCK)}
            for name in (*_MEASURED, SMS, *LIMITS):
                values[name] = self._field(row, name, lambda text: float(text.replace(",", ""))) * self.units.get(name, 1)
            yield row[self.at[_NAME]], row[self.at[GPU]], values


class Kernel:
    """What is known of one kernel at one size."""

    def __init__(self):
        self.durations, self.bytes, self.sms, self.shares = [], 0.0, 1, {COMPUTE: 0.0, MEMORY: 0.0}

    def add(self, values):
        self.durations.append(values[DURATION])
        self.bytes = max(self.bytes, values[BYTES])
        filled = -(-values[_GRID] // max(min(int(values[name]) for name in LIMITS), 1))
        self.sms = max(self.sms, min(filled, int(values[SMS]), _SMS_MAX))
        for name in self.shares:
            self.shares[name] += values[name] * values[DURATION]

    def share(self, name):
        total = sum(self.durations)
        return self.shares[name] / total if total else 0.0

    @property
    def bound(self):
        compute, memory = self.share(COMPUTE), self.share(MEMORY)
        if max(compute, memory) < BOUND_PERCENT:
            return "unknown"
        return "compute" if compute > memory else "memory"


def kernels_of(lines):
    """The GPU's name, and {(name, class of blocks, class of threads): Kernel}, of the CSV's lines. Raises
    CsvError."""
    gpu, kernels = None, {}
    for name, of, values in _Rows(lines):
        if gpu not in (None, of):
            raise CsvError(f'kernels of two GPUs, "{gpu}" and "{of}": run ncu with --devices')
        gpu = of
        size = _size_class(values[_GRID]), _thread_class(values[_BLOCK])
        kernels.setdefault((name, *size), Kernel()).add(values)
    if not kernels:
        raise CsvError("no kernel is in the file")
    return gpu, kernels


def profile_lines(gpu, kernels, model):
    """The lines of the file of profiles."""
    yield f"# nvshare kernel profiles 1\tmodel {_printable(model)}\tgpu {_printable(gpu)}"
    yield "\t".join(_COLUMNS)
    for (name, blocks, threads), kernel in kernels.items():
        mean = round(sum(kernel.durations) / len(kernel.durations))
        least, mean = (min(max(int(ns), 1), _NS_MAX) for ns in (min(kernel.durations), mean))
        yield "\t".join(map(str, (
            f"{profile_key(name, blocks, threads):016x}", _printable(name), blocks, threads, kernel.sms,
            max(least, mean), least, min(len(kernel.durations), _COUNT_MAX), min(round(kernel.bytes), _BYTES_MAX),
            kernel.bound)))


def _write(path, lines):
    """The file is the old one or the whole new one."""
    folder = os.path.dirname(os.path.abspath(path))
    with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".nvshare-", delete=False) as f:
        try:
            f.writelines(line + "\n" for line in lines)
            f.flush()
            os.fchmod(f.fileno(), 0o644)
            os.replace(f.name, path)
        except BaseException:
            os.unlink(f.name)
            raise


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python3 -m nvshare.ncu", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metrics", action="store_true", help="print what ncu's --metrics has to name, and end")
    parser.add_argument("--model", default="unknown", help="a name for the reader")
    parser.add_argument("-o", "--output", help="the file of profiles")
    parser.add_argument("csv", nargs="?", help="the output of ncu")
    args = parser.parse_args(arguments)
    if args.metrics:
        print(",".join(METRICS))
        return 0
    if not args.csv or not args.output:
        parser.error("a CSV and -o FILE are needed")
    try:
        with open(args.csv, newline="", encoding="utf-8", errors="replace") as f:
            gpu, kernels = kernels_of(f)
        _write(args.output, profile_lines(gpu, kernels, args.model))
    except (CsvError, csv.Error) as e:
        print(f"{args.csv}: {e}", file=sys.stderr)
        return 1
    except OSError as e:
        print(f"{e.filename or args.output}: {e.strerror}", file=sys.stderr)
        return 1
    counts = [sum(k.bound == bound for k in kernels.values()) for bound in ("compute", "memory", "unknown")]
    print("{}: {} kernels: {} compute-bound, {} memory-bound, {} unknown".format(args.output, len(kernels), *counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
