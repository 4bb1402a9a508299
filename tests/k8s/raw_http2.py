# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 by hand (RFC 9113, RFC 7541), for a peer that does what no library does."""

import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW_SIZE = 4  # of SETTINGS
SERVICE = "/v1beta1.DevicePlugin/"


def frame(kind, flags=0, stream=0, payload=b"", length=None):
    return struct.pack(">I", len(payload) if length is None else length)[1:] + struct.pack(
        ">BBI", kind, flags, stream) + payload


def integer(number, bits):
    """RFC 7541, 5.1; the first byte's other bits are 0."""
    most = (1 << bits) - 1
    if number < most:
        return bytes([number])
    out, number = [most], number - most
    while number >= 128:
        out.append(number % 128 + 128)
        number //= 128
    return bytes([*out, number])


def headers_block(*pairs):
    """Literal fields that are never indexed, without Huffman's code."""
    block = b""
    for name, value in pairs:
        name, value = (text if isinstance(text, bytes) else text.encode() for text in (name, value))
        block += b"\x10" + integer(len(name), 7) + name + integer(len(value), 7) + value
    return block


def request_headers(method="Allocate", **changes):
    fields = {":method": "POST", ":scheme": "http", ":path": SERVICE + method, ":authority": "x",
              "content-type": "application/grpc", "te": "trailers"}
    fields.update({name.replace("_", "-"): value for name, value in changes.items()})
    return headers_block(*fields.items())


def message(body=b"", flag=0, length=None):
    return struct.pack(">BI", flag, len(body) if length is None else length) + body


class Raw:
    """One connection."""

    def __init__(self, path, preface=PREFACE, settings=frame(SETTINGS)):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.socket.settimeout(900)
        self.bytes = b""
        self.send(preface + settings)

    def send(self, *frames):
        """What the peer takes of it: it may have hung up."""
        try:
            self.socket.sendall(b"".join(frames))
        except (BrokenPipeError, ConnectionResetError):
            pass

    def call(self, stream=1, body=b"", method="Allocate", **changes):
        self.send(frame(HEADERS, END_HEADERS, stream, request_headers(method, **changes)),
                  frame(DATA, END_STREAM, stream, body))

    def next(self):
        """(kind, flags, stream, payload); None at the end of the connection."""
        while len(self.bytes) < 9 or len(self.bytes) < 9 + int.from_bytes(self.bytes[:3], "big"):
            try:
                more = self.socket.recv(65536)
            except ConnectionResetError:
                more = b""
            if not more:
                return None
            self.bytes += more
        length = int.from_bytes(self.bytes[:3], "big")
        kind, flags, stream = struct.unpack(">BBI", self.bytes[3:9])
        payload, self.bytes = self.bytes[9:9 + length], self.bytes[9 + length:]
        return kind, flags, stream, payload

    def wait(self, kind, stream=None):
        """The payload of the next frame of this kind; None: the connection ended without one."""
        while (found := self.next()) is not None:
            if found[0] == kind and stream in (None, found[2]):
                return found[3]
        return None

    def wait_end(self):
        """The code of the GOAWAY before the end; None: there was none."""
        code = None
        while (found := self.next()) is not None:
            if found[0] == GOAWAY:
                code = struct.unpack(">I", found[3][4:8])[0]
        return code

    def status(self, stream=1):
        """grpc-status of an answer that is headers alone, and its HTTP status, both as digits."""
        block = self.wait(HEADERS, stream)
        assert block is not None, "the connection ended"
        return block

    def close(self):
        self.socket.close()
