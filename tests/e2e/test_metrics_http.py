# SPDX-License-Identifier: Apache-2.0
"""Metrics by HTTP: what they say, and peers that are slow, huge or many. Latencies are in tests/bench."""

import contextlib
import pathlib
import socket
import sys
import threading

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from exposition import Metrics, ask, connect, free_port, read_all  # noqa: E402
from scheduler_node import node, until  # noqa: E402,F401
from wire import mem  # noqa: E402

MIB = 1 << 20
HAND_OVERS = 60


@pytest.fixture
def http(node):  # noqa: F811
    """Where a node answers HTTP."""
    address = node.folder / "http.sock"
    node.start(NVSHARE_HTTP_ADDRESS=f"unix:{address}")
    return address


def metrics_when(address, condition):
    """Numbers are up to a second old."""

    def look():
        found = Metrics(address)
        return found if condition(found) else None

    return until("the metrics", look)


def hand_over_often(node, n=HAND_OVERS):  # noqa: F811
    """Each is answered, as late as may be."""
    a, (grant, _, epoch) = node.holder()
    b = node.client()
    for _ in range(n):
        b.request()
        b.expect("WAIT_FOR_MEM")
        a.release(grant, epoch)
        grant, _, epoch = b.expect("LOCK_OK")
        a, b = b, a
    a.release(grant, epoch)


def test_clients_have_series_that_go_with_them(node, http):  # noqa: F811
    holder = node.client(name='a"b\\', pod="space/name")
    holder.request(mem(resident=64 * MIB))
    holder.expect("LOCK_OK")
    waiter = node.waiter(name="waiter")
    found = metrics_when(http, lambda m: m.all("nvshare_scheduler_queue_size") == [1])
    assert found.one("nvshare_scheduler_clients") == 2
    assert found.one("nvshare_gpu_clients") == 2
    assert found.one("nvshare_client_running", namespace="space", pod="name") == 1
    assert found.one("nvshare_scheduler_waiters", reason="turn") == 1
    assert sorted(found.all("nvshare_client_queue_position")) == [0, 1]
    assert found.one("nvshare_client_memory_bytes", pod="name", kind="resident") == 64 * MIB
    assert found.one("nvshare_scheduler_schedule_total") == 1
    labels = next(has for has in found.labels("nvshare_client_info") if has.get("pod") == "name")
    assert labels["UUID"].startswith("GPU-") and labels["gpu"] == "0"
    assert labels["name"] in ("a'b\\\\", 'a\\"b\\\\')
    assert sorted(found.all("nvshare_client_running")) == [0, 1]
    holder.close()
    waiter.close()
    found = metrics_when(http, lambda m: m.one("nvshare_scheduler_clients") == 0)
    assert not [name for name, _, _ in found.series if name.startswith("nvshare_client_")]


def test_waits_are_counted(node, http):  # noqa: F811
    hand_over_often(node, 20)
    found = metrics_when(http, lambda m: m.all("nvshare_scheduler_queue_wait_seconds_count") == [21])
    assert found.one("nvshare_scheduler_queue_wait_seconds_bucket", le="+Inf") == 21
    assert found.one("nvshare_scheduler_queue_wait_seconds_sum") > 0
    assert found.one("nvshare_gpu_switch_wake_seconds_count") == 21
    assert found.one("nvshare_scheduler_schedule_total") == 21
    assert found.one("nvshare_gpu_switches_total") == node.connect().status()[1][0][6]


def test_a_paused_client_is_counted(node, http):  # noqa: F811
    node.client(name="paused", pod="space/paused")
    node.client(name="other")
    assert node.ctl("set", "pause", "on", "1").returncode == 0
    found = metrics_when(http, lambda m: m.all("nvshare_gpu_clients_paused") == [1])
    assert found.one("nvshare_client_paused", pod="paused") == 1
    assert sorted(found.all("nvshare_client_paused")) == [0, 1]


def test_what_nobody_tells_of_a_gpu_has_no_series(node, http):  # noqa: F811
    node.client()  # there is no NVML here
    found = metrics_when(http, lambda m: m.all("nvshare_gpu_clients") == [1])
    assert found.one("nvshare_gpu_state", state="unknown") == 1
    assert sum(found.all("nvshare_gpu_state")) == 1 and found.one("nvshare_gpu_out") == 0
    for name in ("temperature_celsius", "power_watts", "energy_joules_total", "nvml_utilization_ratio"):
        assert found.all(f"nvshare_gpu_{name}") == [], name


def test_another_gpu_at_an_index_counts_from_nothing(node, http):  # noqa: F811
    holder, _ = node.holder(gpu=1)
    metrics_when(http, lambda m: m.all("nvshare_scheduler_schedule_total", gpu="0") == [1])
    holder.close()
    until("its end", lambda: node.n_clients() == 0)
    node.client(gpu=2)
    found = metrics_when(http, lambda m: m.labels("nvshare_gpu_info")[0]["UUID"].endswith("02"))
    assert found.all("nvshare_scheduler_schedule_total", gpu="0") == [0]


def test_only_what_there_is(node, http):  # noqa: F811
    status, headers, body = ask(http, "/nothing")
    assert status == 404 and b"/metrics" in body
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "NONSENSE"):
        status, headers, _ = ask(http, method=method, body=b"x" * 100)
        assert (status, headers["allow"]) == (405, "get, head")
    status, headers, body = ask(http, method="HEAD")
    assert status == 200 and int(headers["content-length"]) > 1000 and not body


def test_a_taken_address_is_tried_again(node):  # noqa: F811
    port = free_port()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        node.start(NVSHARE_HTTP_ADDRESS=f"127.0.0.1:{port},unix:{node.folder}/http.sock")
        node.expect_log(f"http-failed address=127.0.0.1:{port}")
        hand_over_often(node, 3)
        assert ask(node.folder / "http.sock")[0] == 200, "the other address is served"
    node.expect_log(f"info: http address=127.0.0.1:{port}")
    assert Metrics(port).one("nvshare_scheduler_schedule_total") == 4


def test_a_socket_left_over_is_replaced(node, http):  # noqa: F811
    until("its socket", http.exists)
    node.kill()
    assert http.exists()
    node.start(NVSHARE_HTTP_ADDRESS=f"unix:{http}")
    assert ask(http)[0] == 200
    assert http.stat().st_mode & 0o777 == 0o600


# ---- hostile peers ----------------------------------------------------------------


def drip(sock, stop):
    """A byte now and then, so that silence never ends the connection."""
    with contextlib.suppress(OSError):
        sock.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        while not stop.wait(0.2):
            sock.sendall(b"x")


def test_peers_that_send_slowly_end(node, http):  # noqa: F811
    stop = threading.Event()
    socks = [connect(http) for _ in range(40)]  # more than are open at a time
    threads = [threading.Thread(target=drip, args=(sock, stop)) for sock in socks]
    for thread in threads:
        thread.start()
    try:
        hand_over_often(node)
        assert ask(http)[0] == 200, "answered when the slow ones end"
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        for sock in socks:
            sock.close()


def is_open(sock):
    """Whether the other side has not ended the connection."""
    sock.setblocking(False)
    try:
        return bool(sock.recv(1))
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nX: ", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_the_oldest_connections_make_room_for_the_next(node, http, sent):  # noqa: F811
    for i in range(200):
        node.client(name=f"client-{i}")  # the answer is longer than a socket's buffers
    socks = [connect(http) for _ in range(60)]
    for sock in socks:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(sent)
    assert ask(http)[0] == 200
    if not sent.endswith(b"\n"):
        assert any(is_open(sock) for sock in socks), "it was answered before the time of all others was over"
    for sock in socks:
        sock.close()


def test_peers_that_do_not_read_end(node, http):  # noqa: F811
    for i in range(200):
        node.client(name=f"client-{i}")  # the answer is longer than a socket's buffers
    socks = [connect(http) for _ in range(32)]
    for sock in socks:
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    hand_over_often(node)
    assert ask(http)[0] == 200
    for sock in socks:
        sock.close()


def test_many_connections(node, http):  # noqa: F811
    stop = threading.Event()

    def connect_for_ever():
        while not stop.is_set():
            socks = []
            with contextlib.suppress(OSError):
                for _ in range(50):
                    sock = socket.socket(socket.AF_UNIX)
                    sock.setblocking(False)
                    socks.append(sock)
                    sock.connect(str(http))
            for sock in socks:
                sock.close()

    threads = [threading.Thread(target=connect_for_ever) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        hand_over_often(node)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert ask(http)[0] == 200


def test_headers_and_bodies_that_are_huge(node, http):  # noqa: F811
    heads = [
        b"GET /metrics HTTP/1.1\r\nX: " + b"x" * MIB,
        b"GET /" + b"x" * MIB,
        b"GET /metrics HTTP/1.1\r\n" + b"X: x\r\n" * 100000,
        b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n" + b"x" * MIB,
        b"\0" * MIB,
        b"\r\n" * MIB,
    ]
    for head in heads:
        with connect(http) as sock:
            # The scheduler closes before it has read all of this.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                sock.sendall(head)
                sock.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                answer = read_all(sock)
                assert not answer or answer.split()[1] in (b"400", b"405", b"413", b"414", b"431"), answer[:99]
        hand_over_often(node, 3)
    assert ask(http)[0] == 200


def answer_to(address, request):
    """The status and the body of one request, as it stands."""
    with connect(address) as sock:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(request)
        answer = read_all(sock)
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def test_a_page_that_calls_this_machine_by_its_own_name_reads_nothing(node):  # noqa: F811
    port = free_port()
    unix = node.folder / "http.sock"
    node.start(NVSHARE_HTTP_ADDRESS=f"127.0.0.1:{port},unix:{unix}", NVSHARE_HTTP_HOSTS="gpu-1.example.com,node")
    node.client(name="secret")
    right = ["127.0.0.1", f"127.0.0.1:{port}", "10.0.0.1", "[::1]:1", "localhost", f"LOCALHOST:{port}", "node", "gpu-1.example.com:80"]
    wrong = ["evil.example", f"evil.example:{port}", "node.evil.example", "localhost.evil.example", "127.0.0.1.evil.example",
             "127.0.0.1@evil.example", "", "x" * 8000, "[" * 500, "node,gpu-1.example.com", "node:x"]
    for path in ("/", "/metrics", "/status.json", "/trace.json"):
        get = f"GET {path} HTTP/1.1\r\n"
        for host in right:
            assert answer_to(port, f"{get}Host: {host}\r\n\r\n".encode())[0] == 200, host
        for host in wrong:
            status, body = answer_to(port, f"{get}Host: {host}\r\n\r\n".encode())
            assert status == 421 and b"NVSHARE_HTTP_HOSTS" in body and b"secret" not in body, host
        for hosts in (["node", "evil.example"], ["evil.example", "node"], ["node", "node"]):
            lines = "".join(f"Host: {host}\r\n" for host in hosts)
            assert answer_to(port, f"{get}{lines}\r\n".encode())[0] == 421, hosts
        for version in ("1.0", "1.1"):
            assert answer_to(port, f"GET {path} HTTP/{version}\r\n\r\n".encode())[0] == 200, "no browser leaves the Host out"
        # Of an absolute address, libmicrohttpd gives the whole as the path.
        assert answer_to(port, f"GET http://evil.example{path} HTTP/1.1\r\nHost: node\r\n\r\n".encode())[0] == 404
        assert answer_to(port, f"GET {path} HTTP/1.0\r\nHost: evil.example\r\n\r\n".encode())[0] == 421
        assert answer_to(unix, f"{get}Host: evil.example\r\n\r\n".encode())[0] == 200, "not over the Unix socket"
    assert answer_to(port, b"POST /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n")[0] == 421
    assert answer_to(port, b"GET /metrics HTTP/1.1\r\nHost: " + b"x" * MIB + b"\r\n\r\n")[0] in (413, 431)


def test_a_name_of_this_machine_is_added_while_the_scheduler_runs(node):  # noqa: F811
    port = free_port()
    node.start(NVSHARE_HTTP_ADDRESS=f"127.0.0.1:{port}")
    get = b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n"
    assert answer_to(port, get)[0] == 421
    assert node.ctl("set", "http-hosts", "node").returncode == 0
    assert answer_to(port, get)[0] == 200


def test_five_hundred_connections_at_once(node):  # noqa: F811
    port = free_port()
    node.start(NVSHARE_HTTP_ADDRESS=f"127.0.0.1:{port}")
    socks = []
    for _ in range(500):
        sock = socket.socket()
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.connect(("127.0.0.1", port))
        socks.append(sock)
    hand_over_often(node)
    for sock in socks:
        sock.close()
    until("an answer", lambda: ask(port)[0] == 200)
    assert node.process.poll() is None
