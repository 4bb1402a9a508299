# SPDX-License-Identifier: Apache-2.0
"""GPUScheduler's config_file: settings of this program, and a section for the whole node.

The reader knows a part of YAML: mappings and lists of mappings by indentation, lists of values in
brackets on one line, plain and quoted words, comments. Anything else is an error that names the line.

The sections `scheduler:` and `preemption:` are checked, but not applied: they concern all programs of
the node. Most of their keys are settings of nvshare-scheduler; some have no counterpart.
"""

import re

from . import _calls, _check, _library

_IS = {
    "true or false": lambda text: text in ("true", "false"),
    "a whole number": lambda text: text.isascii() and text.isdecimal(),
    "one of priority, fair, credit, deadline": ("priority", "fair", "credit", "deadline").__contains__,
    "one of critical, high, normal, low": ("critical", "high", "normal", "low").__contains__,
}
_BOOL, _NUMBER, _POLICY, _CLASS = _IS

# Settings of this program: conversion from text, the allowed values in words, check, setter.
_SETTINGS = {
    "priority": (str, _CLASS, _check.priority, _calls.set_priority),
    "weight": (int, f"a whole number from 1 to {_library.WEIGHT_MAX}", _check.weight, _calls.set_weight),
    "slo_ms": (float, f"a number from 0.001 to {_library.SLO_US_MAX // 1000}", _check.slo_us, _calls.set_slo),
    "compute_limit": (int, "a whole number from 1 to 100", _check.compute_limit, _calls.set_compute_limit),
}

# Settings of the node: the kind of value, and the scheduler's setting; None: it has none.
_NODE = {
    "scheduler": {
        "poll_interval_ms": (_NUMBER, "NVSHARE_POLL_INTERVAL_MS"),
        "memory_safety_margin_mb": (_NUMBER, "NVSHARE_JOB_MARGIN"),
        "max_models_per_gpu": (_NUMBER, "NVSHARE_JOB_MODELS_MAX"),
        "model_cache_ttl_seconds": (_NUMBER, "NVSHARE_JOB_MODEL_TTL_SEC"),
        "worker_heartbeat_interval_seconds": (_NUMBER, "NVSHARE_HEARTBEAT_SEC"),
        "worker_heartbeat_timeout_seconds": (_NUMBER, "NVSHARE_HEARTBEAT_LIMIT_SEC"),
        "default_task_timeout_seconds": (_NUMBER, "NVSHARE_JOB_LIMIT_SEC"),
        "max_task_timeout_seconds": (_NUMBER, "NVSHARE_JOB_LIMIT_MAX_SEC"),
        "gpu_ids": [(_NUMBER, "NVSHARE_JOB_GPUS")],
        "reserved_gpu_ids": [(_NUMBER, "NVSHARE_JOB_GPUS_RESERVED")],
    },
    "preemption": {
        "enabled": (_BOOL, "NVSHARE_HOLD"),
        "timeslice": {
            "lc_task_us": (_NUMBER, "NVSHARE_SLICE_LEVELS"),
            "be_task_us": (_NUMBER, "NVSHARE_SLICE_BEST_EFFORT_US"),
            "min_timeslice_us": (_NUMBER, None),
            "max_timeslice_us": (_NUMBER, None),
        },
        "pre_preemption": {
            "enabled": (_BOOL, "NVSHARE_HINTS"),
            "scheduled": (_BOOL, None),
            "safety_margin_us": (_NUMBER, "NVSHARE_HINT_MARGIN_US"),
            "min_prep_time_us": (_NUMBER, "NVSHARE_HINT_MIN_PREPARE_US"),
        },
        "resources": {
            "max_context_memory_mb": (_NUMBER, "NVSHARE_CONTEXT_MEMORY_MAX"),
            "max_concurrent_contexts": (_NUMBER, "NVSHARE_CONTEXTS_MAX"),
        },
        "scheduling": {
            "policy": (_POLICY, "NVSHARE_POLICY"),
            "fair_share_enabled": (_BOOL, "NVSHARE_POLICY"),
        },
        "priorities": [
            {
                "level": (_NUMBER, None),
                "name": (_CLASS, "NVSHARE_SLICE_LEVELS"),
                "timeslice_us": (_NUMBER, "NVSHARE_SLICE_LEVELS"),
                "preemptible": (_BOOL, None),
            }
        ],
        "monitoring": {
            "enabled": (_BOOL, "NVSHARE_HTTP_ADDRESS"),
            "export_interval_sec": (_NUMBER, None),
            "prometheus_port": (_NUMBER, "NVSHARE_HTTP_ADDRESS"),
        },
    }
}
_KNOWN = {**dict.fromkeys(_SETTINGS), **_NODE}

_LINE = re.compile(
    r"(?P<indent> *)(?P<dash>- +)?(?P<name>[A-Za-z_]\w*):"
    r"""(?: +(?:\[(?P<list>[^\[\]{}"'#]*)\]|"(?P<double>[^"\\]*)"|'(?P<single>[^']*)'|(?P<plain>(?!- )[^\s"'#\[\]{}&*!|>%@`][^#]*?)))?"""
    r"(?: +#.*| *)"
)


class _Mapping:
    """A mapping whose lines are being read: column and path of its names, known and found names."""

    def __init__(self, column, path, known):
        self.column, self.path, self.known, self.found = column, path, known, set()


class _Reader:
    """Reads a file line by line into settings and left_out."""

    def __init__(self, path):
        self.path = path
        self.number = 0
        self.settings = []  # (where, name, text)
        self.left_out = {}  # name: setting of the scheduler, or None
        self._open = [_Mapping(0, "", _KNOWN)]  # the innermost mapping is the last
        self._empty = None  # a section without a line so far: (name, known, line)

    def wrong(self, what, number=None):
        return ValueError(f"config_file: {self.path}:{number or self.number}: {what}")

    def read(self):
        with open(self.path, encoding="utf-8-sig", errors="surrogateescape") as lines:
            for self.number, line in enumerate(lines, 1):
                if any("\udc80" <= c <= "\udcff" for c in line):
                    raise self.wrong("not all of it is UTF-8")
                text = line.rstrip()
                if text and not text.lstrip().startswith("#"):
                    self._line(text)
        self._end_empty()

    def _line(self, text):
        found = _LINE.fullmatch(text)
        if not found:
            raise self.wrong(f"{text.strip()!r} is not `name: value`")
        column = len(found["indent"])
        self._enter(column, len(found["dash"] or ""))
        values = [found[kind] for kind in ("double", "single", "plain") if found[kind] is not None]
        self._take(found["name"], values[0] if values else None, found["list"])

    def _enter(self, column, dash):
        """Opens or closes mappings, so that the last open one is the line's."""
        top = self._open[-1]
        is_list = self._empty and isinstance(self._empty[1], list)
        if self._empty and (column > top.column or (dash and is_list and column == top.column)):
            name, known, _ = self._empty
            if bool(dash) != is_list:
                raise self.wrong(f"{name} is {'a list' if is_list else 'no list'}")
            self._empty = None
            if is_list:
                name, known = name + "[]", known[0]
            self._open.append(_Mapping(column + dash, name, known))
            return
        self._end_empty()
        while self._open[-1].column > column + dash:
            self._open.pop()
        top = self._open[-1]
        if top.column != column + dash or (dash and not top.path.endswith("[]")):
            raise self.wrong("its indentation is none of those above it")
        if dash:
            top.found.clear()

    def _end_empty(self):
        if self._empty:
            name, _, number = self._empty
            raise self.wrong(f"nothing stands below {name}", number)

    def _take(self, name, text, elements):
        top = self._open[-1]
        if name not in top.known:
            raise self.wrong(f"{name!r} is none of {', '.join(top.known)}")
        if name in top.found:
            raise self.wrong(f"{name!r} is there twice")
        top.found.add(name)
        known, path = top.known[name], f"{top.path}.{name}".lstrip(".")
        if elements is not None:
            self._take_list(name, path, known, elements)
        elif isinstance(known, (dict, list)):
            if text is not None:
                raise self.wrong(f"{name}: {text!r} is no section")
            self._empty = (path, known, self.number)
        elif text is None:
            raise self.wrong(f"{name}: has no value")
        elif known is None:
            self.settings.append((f"{self.path}:{self.number}", name, text))
        elif not _IS[known[0]](text):
            raise self.wrong(f"{name}: {text!r} is not {known[0]}")
        else:
            self.left_out[path] = known[1]

    def _take_list(self, name, path, known, elements):
        if not isinstance(known, list) or not isinstance(known[0], tuple):
            raise self.wrong(f"{name} is no list of values")
        kind, setting = known[0]
        for text in elements.split(",") if elements.strip() else []:
            if not _IS[kind](text.strip()):
                raise self.wrong(f"{name}: {text.strip()!r} is not {kind}")
        self.left_out[path + "[]"] = setting


def _warn(path, left_out):
    elsewhere = [f"{name} ({setting})" for name, setting in left_out.items() if setting]
    nowhere = [name for name, setting in left_out.items() if not setting]
    said = []
    if elsewhere:
        said.append(f"set these for all programs, by nvshare-scheduler's settings: {', '.join(elsewhere)}")
    if nowhere:
        said.append(f"these are no settings: {', '.join(nowhere)}")
    if said:
        _library.warn(f"config_file: {path}: left out; {'; '.join(said)}")


def _value(convert, check, text):
    """The value of text; None if it is not allowed."""
    if not text.isascii() or "_" in text:  # Python's numbers may have other digits, and underscores
        return None
    try:
        value = convert(text)
        check(value)
    except ValueError:
        return None
    return value


def apply(path):
    """Reads and checks the whole file, then claims its settings in order. A claim that the scheduler
    refuses is an error, and the claims behind it are not made."""
    reader = _Reader(path)
    reader.read()
    claims = []
    for where, name, text in reader.settings:
        convert, expected, check, claim = _SETTINGS[name]
        value = _value(convert, check, text)
        if value is None:
            raise ValueError(f"config_file: {where}: {name}: {text!r} is not {expected}")
        claims.append((claim, value))
    for claim, value in claims:
        claim(value)
    _warn(path, reader.left_out)
