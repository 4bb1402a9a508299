# SPDX-License-Identifier: Apache-2.0
"""Reads the scheduler's metrics, and Prometheus's text format."""

import contextlib
import random
import re
import socket
import struct
import time

from wire import PATIENCE

SERIES = re.compile(r"^(?P<name>[a-z_]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
LABEL = re.compile(r'([A-Za-z_]+)="((?:[^"\\]|\\.)*)"(?:,|$)')


def free_port():
    """Below the ports that the kernel gives to connections, one of which could get this one meanwhile."""
    for port in random.SystemRandom().sample(range(10000, 32000), 100):
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port is free")


def connect(address):
    """address: a port on 127.0.0.1, or the path of a Unix socket.

    A scheduler that starts lets clients in a moment before it listens for HTTP.
    """
    is_port = isinstance(address, int)
    deadline = time.monotonic() + PATIENCE
    while True:
        sock = socket.socket(socket.AF_INET if is_port else socket.AF_UNIX)
        # While the backlog of a Unix socket is full, a connect() that may not block fails at once.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(PATIENCE), 0))
        try:
            sock.connect(("127.0.0.1", address) if is_port else str(address))
        except (FileNotFoundError, ConnectionRefusedError):
            sock.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
            continue
        sock.settimeout(PATIENCE)
        return sock


def read_all(sock):
    parts = []
    while True:
        part = sock.recv(65536)
        if not part:
            return b"".join(parts)
        parts.append(part)


def ask(address, path="/metrics", method="GET", body=b"", headers=""):
    """The status, the headers in small letters, and the body."""
    with connect(address) as sock:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
        sock.sendall(head.encode() + body)
        answer = read_all(sock)
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    return int(lines[0].split()[1]), dict(line.lower().split(": ", 1) for line in lines[1:]), body


class Metrics:
    """series: (name, labels as a dict, value)."""

    def __init__(self, address):
        status, headers, body = ask(address)
        assert status == 200, body
        assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        self.text = body.decode()
        self.series = []
        for line in self.text.splitlines():
            if line.startswith("#"):
                continue
            found = SERIES.match(line)
            assert found, f"no series: {line}"
            self.series.append((found["name"], dict(LABEL.findall(found["labels"] or "")), float(found["value"])))

    def all(self, name, **labels):
        return [value for got, has, value in self.series if got == name and labels.items() <= has.items()]

    def one(self, name, **labels):
        found = self.all(name, **labels)
        assert len(found) == 1, f"{name} {labels}: {found}"
        return found[0]

    def labels(self, name):
        return [has for got, has, _ in self.series if got == name]
