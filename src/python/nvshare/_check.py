# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments. Each function returns the value that the library takes, or raises a
ValueError that names the argument."""

import enum
import numbers

from . import _library


class Priority(enum.IntEnum):
    """The class of a program. While a CRITICAL one has a request, others are kept off the GPU."""

    LOW = 0
    NORMAL = 1
    HIGH = 2
    CRITICAL = 3


def integer(name, value, low, high):
    if isinstance(value, numbers.Integral) and not isinstance(value, bool) and low <= value <= high:
        return int(value)
    raise ValueError(f"{name}: {value!r} is not a whole number from {low} to {high}")


def above_zero(name, value, high):
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 < value <= high:
        return float(value)
    raise ValueError(f"{name}: {value!r} is not a number above 0 to {high}")


def boolean(name, value):
    if isinstance(value, bool):
        return value
    raise ValueError(f"{name}: {value!r} is neither True nor False")


def priority(value, among=tuple(Priority), name="priority"):
    """A Priority, its number, or its name in any case."""
    try:
        found = Priority[value.upper()] if isinstance(value, str) else Priority(value)
    except (KeyError, ValueError):
        found = None
    if found in among and not isinstance(value, bool):
        return found
    names = ", ".join(p.name.lower() for p in among)
    raise ValueError(f"{name}: {value!r} is none of {names}")


def weight(value):
    return integer("weight", value, 1, _library.WEIGHT_MAX)


def slo_us(value, name="slo_ms"):
    """Converts milliseconds to microseconds; None to 0."""
    high = _library.SLO_US_MAX // 1000
    if value is None:
        return 0
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and 0.001 <= value <= high:
        return round(float(value) * 1000)
    raise ValueError(f"{name}: {value!r} is neither None nor a number from 0.001 to {high}")


def compute_limit(value):
    return 0 if value is None else integer("percent", value, 1, 100)


def device(value, name="device"):
    return -1 if value is None else integer(name, value, 0, (1 << 31) - 1)
