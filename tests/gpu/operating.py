#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an administrator sees of a real card: doctor, the state of the GPU, metrics, the page, the trace, events.

Values of the scheduler's helper are compared with nvidia-smi's. Exit 0: all of it holds.
"""

import argparse
import json
import subprocess
import sys
import time
import urllib.request

import rig as rigs

FIELDS = ("uuid", "memory.total", "memory.used", "temperature.gpu", "power.draw", "utilization.gpu")


def smi():
    """None: this nvidia-smi does not know the fields (a simulated one)."""
    done = subprocess.run(["nvidia-smi", "--query-gpu=" + ",".join(FIELDS), "--format=csv,noheader,nounits", "-i", "0"],
                          capture_output=True, text=True, timeout=60, check=False)
    values = [value.strip() for value in done.stdout.splitlines()[0].split(",")] if done.returncode == 0 else []
    return dict(zip(FIELDS, values)) if len(values) == len(FIELDS) else None


def ctl(rig, *args):
    done = subprocess.run([str(rig.bin / "nvsharectl"), *args], capture_output=True, text=True, timeout=60, check=False)
    print(f"$ nvsharectl {' '.join(args)}  (exit {done.returncode})")
    return done


def shown(rig, *args, most=200):
    done = ctl(rig, *args)
    print("\n".join("  " + line for line in (done.stdout + done.stderr).replace(str(rig.bin), "BIN").splitlines()[:most]), flush=True)
    return done


def get(address, path):
    begin = time.monotonic()
    with urllib.request.urlopen(f"http://{address}{path}", timeout=20) as answer:
        body = answer.read()
    print(f"GET {path}: {answer.status}, {len(body)} bytes, {(time.monotonic() - begin) * 1e3:.1f} ms", flush=True)
    return body.decode()


def need(holds, what):
    if not holds:
        raise RuntimeError(what)


def compare(gpu, card):
    print(f"nvidia-smi: {card}")
    print(f"scheduler:  {gpu}")
    if not card:
        return
    need(gpu["uuid"] == card["uuid"], "another UUID")
    need(abs(gpu["temperature_celsius"] - float(card["temperature.gpu"])) <= 5, "another temperature")
    need(abs(gpu["power_watts"] - float(card["power.draw"])) <= 0.3 * float(card["power.draw"]) + 20, "another power")
    need(abs(gpu["nvml_utilization_percent"] - float(card["utilization.gpu"])) <= 30, "another utilisation")


def check(rig, args):
    rig.start_scheduler(NVSHARE_HTTP_ADDRESS=args.http)
    shown(rig, "doctor")
    programs = [rig.app(f"worker-{i}", "be", "--seconds", str(args.seconds), "--size", args.size) for i in range(2)]
    rig.until("both have memory", 60, lambda: all(
        (rig.client(p) or {}).get("memory_allocated", 0) >= rigs.size(args.size) for p in programs))
    time.sleep(3)  # values of the card are means over the last second, and asked for once a second
    compare(rig.status()["gpus"][0], smi())
    shown(rig, "status")
    shown(rig, "doctor", "--pid", str(programs[0].pid))
    metrics = get(args.http, "/metrics")
    for name in ("nvshare_gpu_memory_total_bytes", "nvshare_client_", "nvshare_gpu_switches_total"):
        need(f"\n{name}" in metrics, f"no metric {name}*")
    need("<title>" in get(args.http, "/"), "no page")
    need(len(json.loads(get(args.http, "/status.json"))["clients"]) == 2, "not two clients on the page")
    traced = json.loads(ctl(rig, "trace").stdout)["traceEvents"]
    print(f"  {len(traced)} entries")
    need({"worker-0", "worker-1"} <= {e["args"]["name"].split(" ")[0] for e in traced if e["ph"] == "M"
                                      and e["name"] == "thread_name"}, f"trace lacks a client: {traced[:5]}")
    need(not ctl(rig, "events", "--json").stdout.strip(), "events on a card that is well")
    for program in programs:
        rig.expect(program, args.seconds + 60)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder of the build")
    parser.add_argument("--http", default="127.0.0.1:9411", help="where the scheduler listens")
    parser.add_argument("--seconds", type=int, default=20, help="work of each program")
    parser.add_argument("--size", default="2GiB", help="memory of each program")
    args = parser.parse_args()
    rig = rigs.Rig(args.bin)
    try:
        check(rig, args)
    finally:
        rig.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
