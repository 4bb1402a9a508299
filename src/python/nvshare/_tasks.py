# SPDX-License-Identifier: Apache-2.0
"""Decorators for functions whose calls are requests, or are no requests.

A class belongs to a process, not to a function. So a process claims the most urgent class and the
smallest SLO of the decorated functions that it has called. A function claims once, at its first
call. A later setting, by any other way, replaces the claim.
"""

import contextlib
import functools
import inspect
import os
import threading

from . import _calls, _check, _library
from ._check import Priority


class _Process:
    """The claims of this process's functions so far."""

    def __init__(self):
        self.lock = threading.Lock()
        self.priority = None
        self.slo_us = 0

    def renew_lock(self):
        self.lock = threading.Lock()

    def claim(self, priority, slo_us):
        with self.lock:
            if priority is not None and (self.priority is None or priority > self.priority):
                self.priority = priority
                self.ask(_calls.set_priority, priority)
            if slo_us and (not self.slo_us or slo_us < self.slo_us):
                self.slo_us = slo_us
                self.ask(_calls.set_slo, slo_us / 1000)

    @staticmethod
    def ask(setter, value):
        """Claims a value. A refused claim must not keep a function from its work."""
        try:
            setter(value)
        except OSError as error:
            _library.warn(f"nvshare: {error.strerror}")


_process = _Process()

if hasattr(os, "register_at_fork"):
    # Another thread may have held the lock. In the child the library keeps the claims.
    os.register_at_fork(after_in_child=_process.renew_lock)


class Task:
    """What a decorator has made of a function: its attribute `nvshare_task`. Only the decorators
    make one.

    is_latency_critical: each call is a request. priority: a Priority; None: the process's class
    stays. slo_us: the longest time that a call should take, microseconds; 0: no limit.
    """

    def __init__(self, is_latency_critical, priority, slo_us):
        self.is_latency_critical = is_latency_critical
        self.priority = priority
        self.slo_us = slo_us
        self.is_claimed = False

    def request(self):
        """A context for one call. A best-effort call is no request: in a process that is critical,
        or becomes critical meanwhile, it would keep others off the GPU."""
        if not self.is_claimed:
            _process.claim(self.priority, self.slo_us)
            self.is_claimed = True
        return _calls.Request() if self.is_latency_critical else contextlib.nullcontext()


def _is(kind, function):
    """Applies kind to the function, to the function in a partial(), or to an object's __call__."""
    while isinstance(function, functools.partial):
        function = function.func
    return kind(function) or kind(getattr(type(function), "__call__", None))


def is_plain(function):
    """True if the function's work is done when it returns."""
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    return not any(_is(kind, function) for kind in kinds)


def _wrap_async_generator(function, task):
    """Passes values and exceptions on: asynchronous generators have no `yield from`."""

    @functools.wraps(function)
    async def wrapper(*args, **kwargs):
        with task.request():
            items = function(*args, **kwargs)
            step = items.asend(None)
            while True:
                try:
                    item = await step
                except StopAsyncIteration:
                    return
                finally:
                    step = None  # it may hold an exception, which holds this frame
                try:
                    step = items.asend((yield item))
                except GeneratorExit:
                    await items.aclose()  # not athrow(): a loop that ends may have closed it
                    raise
                except BaseException as error:
                    step = items.athrow(error)

    return wrapper


def _wrap(function, task):
    """A wrapper whose request ends with the work: a coroutine's with its last await, a generator's
    with its last item."""
    if _is(inspect.isasyncgenfunction, function):
        wrapper = _wrap_async_generator(function, task)
    elif _is(inspect.iscoroutinefunction, function):

        @functools.wraps(function)
        async def wrapper(*args, **kwargs):
            with task.request():
                return await function(*args, **kwargs)

    elif _is(inspect.isgeneratorfunction, function):

        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            with task.request():
                return (yield from function(*args, **kwargs))

    else:

        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            with task.request():
                return function(*args, **kwargs)

    wrapper.nvshare_task = task
    return wrapper


def _decorate(function, new_task):
    def decorate(found):
        if not callable(found):
            raise ValueError(f"function: {found!r} can not be called")
        return _wrap(found, new_task())

    return decorate if function is None else decorate(function)


def latency_critical(function=None, *, priority=Priority.CRITICAL, slo_ms=None):
    """Decorator, with or without parentheses: each call is a latency-critical request.

    priority: CRITICAL keeps others off the GPU while the call runs; HIGH only goes first. slo_ms:
    the longest time that a call should take; longer calls are counted. The function must wait for
    its result: a CUDA call that does not wait for the GPU returns early, and so ends the request.
    Works for functions, coroutines, generators, asynchronous generators, and callable objects. See
    set_priority() for rights.
    """
    found = _check.priority(priority, (Priority.HIGH, Priority.CRITICAL))
    slo_us = _check.slo_us(slo_ms)
    return _decorate(function, lambda: Task(True, found, slo_us))


def best_effort(function=None, *, priority=None):
    """Decorator, with or without parentheses: calls are best-effort work, and no requests.

    They keep no others off the GPU. Once the program has begun a request, metrics() does not count
    them as tasks. But in a critical program that never began one, each burst of work is a request,
    also a burst of these calls. priority: LOW, NORMAL or HIGH; None keeps the process's class.
    """
    among = (Priority.LOW, Priority.NORMAL, Priority.HIGH)
    found = None if priority is None else _check.priority(priority, among)
    return _decorate(function, lambda: Task(False, found, 0))
