# SPDX-License-Identifier: Apache-2.0
"""What src/python repeats of the C headers is what the headers say."""

import ctypes
import os
import re
import subprocess

import pytest
from conftest import ROOT
from nvshare import Priority, __version__, _library, orion

STRUCTS = {
    "nvshare_claim": _library.ClaimStruct,
    "nvshare_status": _library.StatusStruct,
    "orion_stats": orion.StatsStruct,
    "orion_config": orion.ConfigStruct,
}
CONSTANTS = {
    "NVSHARE_HINT_US_MAX": _library.HINT_US_MAX,
    "NVSHARE_WEIGHT_MAX": _library.WEIGHT_MAX,
    "NVSHARE_WEIGHT_DEFAULT": _library.WEIGHT_DEFAULT,
    "NVSHARE_SLO_US_MAX": _library.SLO_US_MAX,
    "NVSHARE_PRIORITY_COUNT": len(Priority),
    "ORION_CLIENTS_MAX": orion.CLIENTS_MAX,
    "ORION_NO_CLIENT": orion._NO_CLIENT,
    "ORION_LATENCY_MS_MAX": orion._LATENCY_MS_MAX,
    **{f"NVSHARE_PRIORITY_{p.name}": p for p in Priority},
    **{f"NVSHARE_{n}": v for n, v in vars(_library).items() if n.startswith("STATUS_")},
}
C_NAMES = {
    ctypes.c_int: "int",
    ctypes.c_int64: "int64_t",
    ctypes.c_uint32: "uint32_t",
    ctypes.c_size_t: "size_t",
    ctypes.c_float: "float",
    ctypes.c_char_p: "const char *",
    ctypes.POINTER(_library.StatusStruct): "struct nvshare_status *",
    ctypes.POINTER(orion.StatsStruct): "struct orion_stats *",
    ctypes.POINTER(orion.ConfigStruct): "struct orion_config *",
}


def answer_of(folder, lines):
    """The numbers that a C program prints."""
    source, program = folder / "layout.c", folder / "layout"
    source.write_text(
        "#include <nvshare/nvshare.h>\n#include <nvshare/orion.h>\n#include <stdio.h>\n"
        "int main(void)\n{\n" + "\n".join(lines) + "\nreturn 0;\n}\n"
    )
    subprocess.run(
        [os.environ.get("CC", "cc"), "-std=gnu11", f"-I{ROOT / 'include'}", "-o", program, source], check=True
    )
    return [int(n) for n in subprocess.run([program], stdout=subprocess.PIPE, check=True).stdout.split()]


def test_structures_and_constants_are_those_of_the_header(tmp_path):
    values = dict(CONSTANTS)
    for name, struct in STRUCTS.items():
        values[f"sizeof(struct {name})"] = ctypes.sizeof(struct)
        for field, _ in struct._fields_:
            values[f"offsetof(struct {name}, {field})"] = getattr(struct, field).offset
            values[f"sizeof(((struct {name} *)0)->{field})"] = getattr(struct, field).size
    found = answer_of(tmp_path, [f'printf("%lld\\n", (long long)({what}));' for what in values])
    assert dict(zip(values, found)) == values
    header = (ROOT / "include" / "nvshare" / "nvshare.h").read_text()
    assert set(re.findall(r"NVSHARE_STATUS_[A-Z_]+", header)) == {n for n in CONSTANTS if "_STATUS_" in n}


@pytest.mark.parametrize("module", [_library, orion])
def test_functions_are_those_of_the_header(module, tmp_path):
    prefix = "nvshare" if module is _library else "orion"
    header = (ROOT / "include" / "nvshare" / f"{prefix}.h").read_text()
    listed = re.findall(rf"^{prefix.upper()}_API .*?({prefix}_\w+)\(", header, re.M)
    assert set(listed) == set(module.PROTOTYPES)
    lines = []
    for name, (_, result, arguments) in module.PROTOTYPES.items():
        types = ", ".join(C_NAMES[a] for a in arguments) or "void"
        if name == "orion_set_config":
            types = "const " + types  # ctypes has no const
        pointer = f"{C_NAMES[result]} (*)({types})"
        lines.append(f"_Static_assert(__builtin_types_compatible_p(__typeof__(&{name}), {pointer}), \"{name}\");")
    assert answer_of(tmp_path, lines) == []


def test_the_version_is_the_projects():
    header = (ROOT / "include" / "nvshare" / "version.h").read_text()
    assert f'#define NVSHARE_VERSION "{__version__}"' in header
