# SPDX-License-Identifier: Apache-2.0
"""Peers that break HTTP/2, gRPC or every measure: the plugin ends what is wrong, and serves the others.

The plugin runs under the address and undefined sanitizers, where the build has it so.
"""

import os
import random
import struct

import grpc
import pytest

import raw_http2 as h2
from conftest import CHECKED, all_healthy, until
from raw_http2 import Raw, frame, message, request_headers
from test_health import lose, recover

PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR = 1, 2, 3, 6
REFUSED_STREAM, CANCEL, COMPRESSION_ERROR = 7, 8, 9
STREAMS_MAX = 32
CONNECTIONS_MAX = 16
MESSAGE_MAX = 4 << 20


@pytest.fixture
def plugin(node, plugins, kubelet):
    """A plugin that serves the fake kubelet; it still does at the end of the test."""
    node.start_scheduler(NVSHARE_POLL_INTERVAL_MS="20")
    kubelet.start()
    made = plugins.start(program=CHECKED, POLL_SEC=3600)
    devices = list(kubelet.wait_devices(all_healthy))
    made.path = plugins.folder / "nvshare.com_gpu.sock"
    yield made
    assert kubelet.allocate(devices[:1])[0].envs["LD_PRELOAD"]
    assert len(kubelet.registrations) == 1, "the kubelet's own connection has lasted"


def expect_code(raw, code, stream=1):
    """The answer is an error with this grpc-status. Its block is decoded by a library of its own."""
    block = raw.status(stream)
    found = decode(block)
    assert found.get("grpc-status") == str(code), found
    return found


# A decoder of RFC 7541 as far as nghttp2's answers need it: indexed, literal, Huffman.
STATIC = {8: (":status", "200"), 9: (":status", "204"), 13: (":status", "404"), 31: ("content-type", "")}
HUFFMAN = {}


def huffman(data):
    """Only codes of what our answers contain; anything else is '?'."""
    if not HUFFMAN:
        codes = {  # RFC 7541, Appendix B
            " ": "010100", "%": "010101", "-": "010110", ".": "010111", "/": "011000", "0": "00000", "1": "00001",
            "2": "00010", "3": "011001", "4": "011010", "5": "011011", "6": "011100", "7": "011101", "8": "011110",
            "9": "011111", "A": "100001", "a": "00011", "b": "100011", "c": "00100", "d": "100100", "e": "00101",
            "f": "100101", "g": "100110", "h": "100111", "i": "00110", "j": "1110100", "k": "1110101", "l": "101000",
            "m": "101001", "n": "101010", "o": "00111", "p": "101011", "q": "1110110", "r": "101100", "s": "01000",
            "t": "01001", "u": "101101", "v": "1110111", "w": "1111000", "x": "1111001", "y": "1111010",
            "z": "1111011", ",": "11111010", ":": "1011100", "'": "11111111010", "(": "1111111010", ")": "1111111011",
            "B": "1011101", "C": "1011110", "D": "1011111", "E": "1100000", "F": "1100001", "G": "1100010",
            "I": "1100100", "M": "1101000", "O": "1101010", "P": "1101011", "R": "1101101", "S": "1101110",
            "T": "1101111", "U": "1110000", "V": "1110001", "_": "100010", ";": "11111011",
        }
        HUFFMAN.update({code: char for char, code in codes.items()})
    bits, text, code = "".join(f"{byte:08b}" for byte in data), "", ""
    for bit in bits:
        code += bit
        if code in HUFFMAN:
            text, code = text + HUFFMAN[code], ""
    return text


def take_integer(block, at, bits):
    most = (1 << bits) - 1
    number, at = block[at] & most, at + 1
    if number < most:
        return number, at
    shift = 0
    while True:
        byte, at = block[at], at + 1
        number += (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at


def take_text(block, at):
    is_coded = block[at] & 128
    length, at = take_integer(block, at, 7)
    data = block[at:at + length]
    return huffman(data) if is_coded else data.decode(), at + length


def decode(block):
    found, at = {}, 0
    while at < len(block):
        first = block[at]
        if first & 128:
            index, at = take_integer(block, at, 7)
            name, value = STATIC.get(index, (f"#{index}", ""))
        else:
            index, at = take_integer(block, at, 6 if first & 64 else 5 if first & 32 else 4)
            if first & 32 and not first & 64:
                continue  # the table's size
            if index:
                name = STATIC.get(index, (f"#{index}", ""))[0]
            else:
                name, at = take_text(block, at)
            value, at = take_text(block, at)
        found[name] = value
    return found


# ---- HTTP/2 ----


GREETINGS = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\0" * 100,
    h2.PREFACE[:-1] + b"x",
    h2.PREFACE + frame(h2.PING, payload=b"\0" * 8),  # SETTINGS must come first
    h2.PREFACE + frame(h2.SETTINGS, payload=b"\0" * 5),
    h2.PREFACE + frame(h2.SETTINGS, stream=1),
    h2.PREFACE + frame(h2.SETTINGS, payload=struct.pack(">HI", h2.INITIAL_WINDOW_SIZE, 1 << 31)),
    h2.PREFACE + frame(h2.SETTINGS, payload=b"\0\x63\0\0\0\0" * 100),
]


def test_a_greeting_that_is_wrong_ends_the_connection(plugin):
    for greeting in GREETINGS:
        raw = Raw(plugin.path, preface=greeting, settings=b"")
        raw.wait_end()
        raw.close()


FRAMES = [
    ([frame(h2.DATA, 0, 0, b"x")], PROTOCOL_ERROR),
    ([frame(h2.DATA, 0, 5, b"x")], PROTOCOL_ERROR),
    ([frame(h2.DATA, 0, 1, b"", length=(1 << 24) - 1)], FRAME_SIZE_ERROR),
    ([frame(h2.HEADERS, h2.END_HEADERS, 2, request_headers())], PROTOCOL_ERROR),
    ([frame(h2.HEADERS, h2.END_HEADERS, 1, b"\xff" * 40)], COMPRESSION_ERROR),
    ([frame(h2.HEADERS, 0, 1, request_headers()), frame(h2.PING, payload=b"\0" * 8)], PROTOCOL_ERROR),
    ([frame(h2.CONTINUATION, h2.END_HEADERS, 1, request_headers())], PROTOCOL_ERROR),
    ([frame(h2.PUSH_PROMISE, h2.END_HEADERS, 1, b"\0\0\0\2")], PROTOCOL_ERROR),
    ([frame(h2.WINDOW_UPDATE, payload=b"\0\0\0\0")], PROTOCOL_ERROR),
    ([frame(h2.WINDOW_UPDATE, payload=b"\x7f\xff\xff\xff")], FLOW_CONTROL_ERROR),
    ([frame(h2.PING, payload=b"\0" * 7)], FRAME_SIZE_ERROR),
    ([frame(h2.RST_STREAM, 0, 7, b"\0\0\0\0")], PROTOCOL_ERROR),
]


def test_frames_that_are_wrong_end_the_connection_with_the_code(plugin):
    for frames, code in FRAMES:
        raw = Raw(plugin.path)
        raw.send(*frames)
        assert raw.wait_end() == code, frames
        raw.close()


def test_headers_without_end_are_not_kept(plugin):
    raw = Raw(plugin.path)
    raw.send(frame(h2.HEADERS, 0, 1, request_headers()))
    for _ in range(2000):
        raw.send(frame(h2.CONTINUATION, 0, 1, h2.headers_block(("x", "y" * 16000))))
    raw.wait_end()
    raw.close()


def test_a_call_with_too_many_headers_is_reset_alone(plugin):
    raw = Raw(plugin.path)
    block = request_headers() + h2.headers_block(*[(f"x-{i}", "y" * 100) for i in range(130)])
    raw.send(frame(h2.HEADERS, h2.END_HEADERS, 1, block))
    assert raw.wait(h2.RST_STREAM, 1) == struct.pack(">I", INTERNAL_ERROR)
    raw.call(3, message(), method="PreStartContainer")
    assert raw.wait(h2.DATA, 3) == message()
    raw.close()


def test_streams_beyond_the_limit_are_refused_alone(plugin):
    raw = Raw(plugin.path)
    raw.send(*[frame(h2.HEADERS, h2.END_HEADERS, stream, request_headers()) for stream in range(1, 100, 2)])
    refused = [raw.wait(h2.RST_STREAM) for _ in range(50 - STREAMS_MAX)]
    assert {struct.unpack(">I", code)[0] for code in refused} == {REFUSED_STREAM}
    raw.send(frame(h2.DATA, h2.END_STREAM, 1, message()))  # one of those that were taken
    assert raw.wait(h2.DATA, 1) == message()
    raw.close()


@pytest.mark.parametrize("flood", [
    lambda raw, stream: raw.send(frame(h2.HEADERS, h2.END_HEADERS, stream, request_headers()),
                                 frame(h2.RST_STREAM, 0, stream, struct.pack(">I", CANCEL))),
    lambda raw, stream: raw.send(frame(h2.PING, payload=b"\0" * 8)),
    lambda raw, stream: raw.send(frame(h2.SETTINGS)),
    lambda raw, stream: raw.send(frame(h2.PRIORITY, 0, stream, b"\0\0\0\0\0")),
    lambda raw, stream: raw.send(frame(h2.WINDOW_UPDATE, payload=b"\0\0\0\1")),
], ids=["resets", "pings", "settings", "priorities", "windows"])
def test_a_flood_starves_nobody(plugin, kubelet, flood):
    """The peer reads nothing. The kubelet is answered meanwhile."""
    raw = Raw(plugin.path)
    raw.socket.settimeout(0.2)
    try:
        for i in range(20000):
            flood(raw, 2 * i + 1)
            if i % 5000 == 0:
                kubelet.stub.GetDevicePluginOptions(kubelet.pb.Empty())
    except TimeoutError:
        pass  # the plugin does not read either, until we do
    kubelet.stub.GetDevicePluginOptions(kubelet.pb.Empty())
    raw.close()


def test_connections_beyond_the_limit_are_closed_at_once(plugin):
    raws = [Raw(plugin.path) for _ in range(CONNECTIONS_MAX + 10)]
    ended = [raw for raw in raws[CONNECTIONS_MAX - 1:] if raw.wait_end() is None]
    assert len(ended) == 11  # the kubelet has one of the places
    for raw in raws:
        raw.close()

    def is_answered():
        """The plugin closes a connection that comes before it has seen the others end."""
        raw = Raw(plugin.path)
        try:
            raw.call(1, message(), method="PreStartContainer")
            return raw.wait(h2.DATA, 1) == message()
        except OSError:
            return False
        finally:
            raw.close()
    until("a place is free", is_answered)


def test_a_peer_that_says_goodbye_gets_the_answers_that_are_due(plugin):
    raw = Raw(plugin.path)
    raw.send(frame(h2.HEADERS, h2.END_HEADERS, 1, request_headers("PreStartContainer")),
             frame(h2.GOAWAY, payload=struct.pack(">II", 0, 0)),
             frame(h2.DATA, h2.END_STREAM, 1, message()))
    assert raw.wait(h2.DATA, 1) == message()
    raw.wait_end()
    raw.close()


def test_any_bytes_are_survived(plugin):
    seed = int(os.environ.get("SEED", "1"))
    print(f"SEED={seed}")
    chance = random.Random(seed)
    for _ in range(200):
        raw = Raw(plugin.path)
        for _ in range(chance.randrange(1, 20)):
            payload = chance.choice([b"", request_headers(), message(), chance.randbytes(chance.randrange(60))])
            stream = chance.choice([0, 1, 1, 3, 2**31 - 1])
            raw.send(frame(chance.randrange(12), chance.randrange(256), stream, payload))
        raw.close()


# ---- gRPC ----


BODIES = [
    (b"", 13),
    (b"\0\0\0", 13),
    (message(b"", length=1), 13),
    (message() + message(), 13),
    (message(b"", flag=1), 12),
    (message(b"", flag=255), 12),
    (message(b"", length=MESSAGE_MAX + 1), 8),
    (message(b"\xff" * 10), 3),
    (message(b"\x0a\x7f"), 3),
]


def test_a_message_that_is_wrong_gets_its_status(plugin):
    for body, code in BODIES:
        raw = Raw(plugin.path)
        raw.call(1, body)
        expect_code(raw, code)
        raw.close()


def test_a_message_that_is_too_large_is_refused_before_it_is_whole(plugin):
    raw = Raw(plugin.path)
    raw.send(frame(h2.HEADERS, h2.END_HEADERS, 1, request_headers()))
    sent = 0
    while sent <= MESSAGE_MAX:
        raw.send(*[frame(h2.DATA, 0, 1, b"\0" * 16384)] * 2)
        sent += 2 * 16384
        raw.wait(h2.WINDOW_UPDATE)
    expect_code(raw, 8)
    raw.close()


REQUESTS = [
    ({":path": "/v1beta1.DevicePlugin/Nothing"}, 12),
    ({":path": "/v1beta1.DevicePlugin/"}, 12),
    ({":path": ""}, 12),
    ({":path": "/" * 5000}, 12),
    ({":path": b"/v1beta1.DevicePlugin/Allocate\0x"}, 12),
    ({"grpc_encoding": "gzip"}, 12),
    ({"content_type": "text/html"}, 13),
    ({"content_type": "application/grpcx"}, 13),
    ({":method": "GET"}, 13),
]


def test_a_request_that_is_wrong_gets_its_status(plugin):
    for changes, code in REQUESTS:
        raw = Raw(plugin.path)
        raw.call(1, message(), **changes)
        expect_code(raw, code)
        raw.close()


def test_an_authority_that_is_a_path_or_rubbish_does_not_matter(plugin):
    """A kubelet before 1.26 sends the socket's path."""
    for authority in ("/var/lib/kubelet/device-plugins/nvshare.sock", "", "\x01\x02"):
        raw = Raw(plugin.path)
        raw.call(1, message(), method="PreStartContainer", **{":authority": authority})
        assert raw.wait(h2.DATA, 1) == message()
        raw.close()


def test_a_message_that_would_make_much_memory_is_refused(plugin, kubelet):
    """A million empty elements of two bytes: thirty times as much as objects."""
    many = b"\x0a\x00" * 1_000_000
    call = kubelet.channels[0].unary_unary("/v1beta1.DevicePlugin/Allocate")
    with pytest.raises(grpc.RpcError) as error:
        call(many)
    assert error.value.code().name == "INVALID_ARGUMENT"
    assert "too large" in error.value.details()


# ---- slow streams ----


def parse(data):
    """The gRPC messages in data."""
    found = []
    while data:
        length = int.from_bytes(data[1:5], "big")
        found.append(data[5:5 + length])
        data = data[5 + length:]
    return found


def test_a_watcher_that_reads_slowly_gets_the_newest_list_and_no_pile(node, plugin, kubelet):
    no_window = frame(h2.SETTINGS, payload=struct.pack(">HI", h2.INITIAL_WINDOW_SIZE, 0))
    slow = Raw(plugin.path, settings=no_window)
    slow.call(1, message(), method="ListAndWatch")
    assert slow.wait(h2.HEADERS, 1) is not None
    n_changes = 10
    for _ in range(n_changes // 2):
        lose(node)
        kubelet.wait_devices(lambda health: set(health.values()) == {"Unhealthy"})
        recover(node)
        kubelet.wait_devices(all_healthy)
    assert len(kubelet.lists) == n_changes + 1
    lose(node)
    kubelet.wait_devices(lambda health: set(health.values()) == {"Unhealthy"})
    slow.send(frame(h2.WINDOW_UPDATE, 0, 1, struct.pack(">I", 1 << 20)))
    data = b""
    while len(parse(data)) < 2 or len(data) < sum(5 + len(each) for each in parse(data)):
        data += slow.wait(h2.DATA, 1)
    first, last = [kubelet.pb.ListAndWatchResponse.FromString(each) for each in parse(data)]
    assert {device.health for device in first.devices} == {"Healthy"}
    assert {device.health for device in last.devices} == {"Unhealthy"}
    slow.close()
    recover(node)
    kubelet.wait_devices(all_healthy)


def test_many_watchers_get_each_change(node, plugin, kubelet):
    raws = [Raw(plugin.path) for _ in range(8)]
    streams = range(1, 41, 2)
    for raw in raws:
        for stream in streams:
            raw.call(stream, message(), method="ListAndWatch")
    for change, word in ((None, "Healthy"), (lose, "Unhealthy"), (recover, "Healthy")):
        if change:
            change(node)
        for raw in raws:
            missing = set(streams)
            while missing:
                kind, _, stream, payload = raw.next()
                if kind == h2.DATA:
                    missing.remove(stream)
                    (found,) = parse(payload)
                    assert {d.health for d in kubelet.pb.ListAndWatchResponse.FromString(found).devices} == {word}
    for raw in raws:
        raw.close()
