# SPDX-License-Identifier: Apache-2.0
"""Decorators: functions whose calls are requests, or are known to be none.

A class belongs to a process, not to a function. So a process has the most urgent class, and the
smallest SLO, of those of its decorated functions that were called; a claim is made once, at the
first call, and what is set later by other ways stands.
"""

import contextlib
import functools
import inspect
import os
import threading

from . import _calls, _check, _library
from ._check import Priority


class _Process:
    """What the functions of this process have claimed so far."""

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
        """A function has work to do, whether its claim is granted or not."""
        try:
            setter(value)
        except OSError as error:
            _library.warn(f"nvshare: {error.strerror}")


_process = _Process()

if hasattr(os, "register_at_fork"):
    # Another thread may have held it. The claims themselves the library keeps in the child.
    os.register_at_fork(after_in_child=_process.renew_lock)


class Task:
    """What a decorator was told; on the function as `nvshare_task`."""

    def __init__(self, is_latency_critical, priority, slo_us):
        self.is_latency_critical = is_latency_critical
        self.priority = priority
        self.slo_us = slo_us
        self.is_claimed = False

    def request(self):
        """For one call. What is without a hurry is no request: in a process that is critical,
        or becomes it meanwhile, it would keep everybody else off the GPU, too."""
        if not self.is_claimed:
            _process.claim(self.priority, self.slo_us)
            self.is_claimed = True
        return _calls.Request() if self.is_latency_critical else contextlib.nullcontext()


def _is(kind, function):
    """Of the function itself, or of what an object does that is called; partial() or not."""
    while isinstance(function, functools.partial):
        function = function.func
    return kind(function) or kind(getattr(type(function), "__call__", None))


def is_plain(function):
    """Its work is done when it returns."""
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    return not any(_is(kind, function) for kind in kinds)


def _wrap_async_generator(function, task):
    """There is no `yield from` for these: what is sent to it or thrown at it is handed on."""

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
    """The request ends when the work has: a coroutine's with its last await, a generator's
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
    """Decorator: each call is a request of a program in a hurry.

    priority: CRITICAL, others are kept off the GPU while it runs, or HIGH, it only goes first.
    slo_ms: how long a call may take; longer ones are counted. A CUDA call that does not wait
    for the GPU is over early: the function is to wait for its result. Plain functions,
    coroutines, generators, asynchronous ones, and objects that are called as one of these;
    with or without parentheses. See set_priority() for rights.
    """
    found = _check.priority(priority, (Priority.HIGH, Priority.CRITICAL))
    slo_us = _check.slo_us(slo_ms)
    return _decorate(function, lambda: Task(True, found, slo_us))


def best_effort(function=None, *, priority=None):
    """Decorator: calls are work without a hurry, and no requests.

    So they are no tasks of metrics() where requests are told, and keep nobody off the GPU.
    (A critical program that tells no request has each burst of work taken for one, whoever's.)
    priority: LOW, NORMAL or HIGH; None leaves the process's class as it is.
    """
    among = (Priority.LOW, Priority.NORMAL, Priority.HIGH)
    found = None if priority is None else _check.priority(priority, among)
    return _decorate(function, lambda: Task(False, found, 0))
