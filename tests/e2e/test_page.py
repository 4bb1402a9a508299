# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser: what it shows, what it does when clicked, and what strangers' names do to it.

NVSHARE_SCREENSHOTS names a folder that gets pictures of it.
"""

import json
import os
import pathlib
import shutil
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from exposition import ask, free_port  # noqa: E402
from scheduler_node import GIB, hand_over, node, until  # noqa: E402,F401
from wire import CLAIM, mem  # noqa: E402

MIB = 1 << 20
HOSTILE = b"<img src=x onerror=alert(1)>\"'\\</script>\xff \xf0\x9f\x90\x8d"
SHOWN = "<img src=x onerror=alert(1)>''\\</script>? \U0001f40d"
SIZES = {"phone": (390, 844), "desktop": (1280, 900)}


@pytest.fixture
def port(node):  # noqa: F811
    number = free_port()
    node.start(
        NVSHARE_HTTP_ADDRESS=f"127.0.0.1:{number}",
        NVSHARE_SWITCH_TIME_MODE="fixed",
        NVSHARE_SWITCH_TIME_FIXED="3600",
        NVSHARE_MAX_RUNTIME_SEC="3600",
        NVSHARE_WAIT_BOUND_SEC="3600",
        NVSHARE_HEARTBEAT_LIMIT_SEC="3600",
        NVSHARE_MOVING_PERCENT="0",  # nobody comes early while a browser takes its time
    )
    return number


def get(port, path):
    status, headers, body = ask(port, path)
    assert (status, headers["content-type"]) == (200, "application/json")
    return json.loads(body)


def ask_until(port, path, condition):
    """Answers are up to a second old."""

    def look():
        found = get(port, path)
        return found if condition(found) else None

    return until(path, look)


def hostile(node):  # noqa: F811
    client = node.connect()
    client.send("REGISTER", bytes([1] * 16), 4 * GIB, 0, *mem(), 0, 1, *CLAIM, HOSTILE, HOSTILE)
    assert client.expect("REGISTERED")[0] == 0
    return client


# ---- without a browser --------------------------------------------------------------


def test_the_status_names_clients_as_they_are(node, port):  # noqa: F811
    holder, _ = node.holder(name="holder")
    holder.send("MEM_UPDATE", GIB, 0, 0, 0, *mem(resident=64 * MIB, pinned=MIB))
    hostile(node)
    found = ask_until(port, "/status.json", lambda s: [c["resident"] > 0 for c in s["clients"]] == [True, False])
    first, second = found["clients"]
    assert (first["name"], first["state"], first["resident"], first["pinned"]) == ("holder", 3, 64 * MIB, MIB)
    assert second["name"] == second["pod"] == SHOWN
    assert found["gpus"][0]["running"] == 1


def test_the_trace_goes_on_where_the_last_one_ended(node, port):  # noqa: F811
    a, (grant, _, epoch) = node.holder(name="first")
    hostile(node)
    trace = ask_until(port, "/trace.json", lambda t: any(entry[3] == "join" and entry[1] == 2 for entry in t["entries"]))
    assert [entry[3] for entry in trace["entries"] if entry[1] == 1] == ["join", "name", "ask", "grant"]
    assert "".join(entry[5] for entry in trace["entries"] if entry[1] == 2 and entry[3] == "name") == SHOWN
    a.release(grant, epoch)
    later = ask_until(port, f"/trace.json?since={trace['next']}", lambda t: t["entries"])
    assert [entry[3] for entry in later["entries"]] == ["release"]
    assert later["first"] == trace["next"]


def test_the_trace_is_bounded(node, port):  # noqa: F811
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    for _ in range(200):
        grant, epoch = hand_over(a, b, grant, epoch)
    trace = ask_until(port, "/trace.json", lambda t: t["next"] > 1200)
    assert len(trace["entries"]) == trace["next"] - trace["first"] == 1024
    assert get(port, "/trace.json?since=99999999999")["entries"] == []
    for text in ("x", "-1", "99999999999999999999", ""):
        assert ask(port, f"/trace.json?since={text}")[0] == 400


def test_the_page_may_do_little(port):
    status, headers, body = ask(port, "/")
    assert status == 200 and body.startswith(b"<!DOCTYPE html>")
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert b"http://" not in body and b"https://" not in body, "it is self-contained"
    for word in (b"innerHTML", b"insertAdjacentHTML", b"document.write"):
        assert word not in body


# ---- in a browser -------------------------------------------------------------------


class Browser:
    def __init__(self):
        webdriver = pytest.importorskip("selenium.webdriver", reason="Debian's python3-selenium is not installed")
        if not (shutil.which("chromium") and shutil.which("chromedriver")):
            pytest.skip("Debian's chromium and chromium-driver are not installed")
        options = webdriver.ChromeOptions()
        for word in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars"):
            options.add_argument(f"--{word}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.chrome.service.Service("/usr/bin/chromedriver")
        self.driver = webdriver.Chrome(options=options, service=service)

    def look(self, size, is_dark):
        width, height = SIZES[size]
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == "phone"},
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def one(self, selector):
        return self.driver.find_element("css selector", selector)

    def text(self, selector):
        return self.one(selector).text

    def script(self, text):
        return self.driver.execute_script(f"return {text}")

    def titles(self, selector):
        """Of one moment: the page may change between two questions."""
        return self.script(f"[...document.querySelectorAll('{selector}')].map(node => node.title)")

    def picture(self, name):
        folder = os.environ.get("NVSHARE_SCREENSHOTS")
        if folder:
            self.driver.save_screenshot(f"{folder}/{name}.png")

    def complaints(self):
        return [entry["message"] for entry in self.driver.get_log("browser") if "ERR_" not in entry["message"]]


@pytest.fixture(scope="module")
def browser():
    browser_ = Browser()
    yield browser_
    browser_.driver.quit()


def busy_node(node):  # noqa: F811
    """Clients that took turns, one that waits, one with a hostile name."""
    size = {"total": 4 * GIB}
    a, (grant, _, epoch) = node.holder(name="train.py", **size)
    b = node.waiter(name="jupyter-lab", pod="research/notebook", **size)
    hostile(node)
    for _ in range(5):
        grant, epoch = hand_over(a, b, grant, epoch)
    a.send("MEM_UPDATE", 2 * GIB, 0, 0, 0, *mem(resident=1536 * MIB, pinned=300 * MIB))
    b.send("MEM_UPDATE", 0, 0, 0, 0, *mem(swapped=900 * MIB, host=1024 * MIB))


@pytest.mark.slow
def test_clicking_through(node, port, browser):  # noqa: F811
    busy_node(node)
    browser.look("desktop", False)
    browser.driver.get(f"http://127.0.0.1:{port}/")
    until("clients", lambda: len(browser.all("details")) == 3)
    assert browser.text("#link") == "live"

    # What is on the card, and in host memory.
    card = ["train.py: 1.5 GiB", "train.py: 300 MiB that cannot move"]
    until("the card's map", lambda: browser.titles('[data-bar="card"] button') == card)
    until("the host's map", lambda: browser.titles('[data-bar="host"] button') == ["jupyter-lab: 900 MiB"])

    # Why each waits; the names are text.
    assert "waits for its turn, place 1" in browser.text('[data-client="2"]')
    assert SHOWN in browser.text('[data-client="3"]') and "wants nothing" in browser.text('[data-client="3"]')
    assert not browser.all("img") and browser.script("document.scripts.length") == 1

    # A piece of the map opens its client; the details stay open and go on changing.
    browser.all('[data-bar="host"] button')[0].click()
    until("the details", lambda: "research/notebook" in browser.text('[data-client="2"] dl'))

    # Each client has a lane; a shorter range has fewer slices or as many.
    until("lanes", lambda: len(browser.all(".lane")) == 3)
    until("slices", lambda: int(browser.one('[data-lane="1"] canvas').get_attribute("data-slices")) > 4)
    for button in browser.all("#ranges button"):
        if button.text == "5 min":
            button.click()
    assert browser.text("#axis-from") == "5 min ago"
    pause = browser.all("#ranges button")[-1]
    pause.click()
    assert browser.text("#axis-to") == "paused"
    pause.click()
    until("the timeline to go on", lambda: browser.text("#axis-to") == "now")

    # The filter looks at name, pod and pid.
    field = browser.one("#filter")
    field.send_keys("NOTEBOOK")
    assert [row.get_attribute("data-client") for row in browser.all("details")] == ["2"]
    field.send_keys("x")
    assert browser.text("#clients-none") == "No client has this name, pod, pid or gang."
    field.clear()
    field.send_keys(" ")
    assert len(browser.all("details")) == 3

    assert not browser.complaints(), "nothing breaks the policy"


KNOWN = "const of = lane => lane && lane.slices.map(slice => [slice.doing, slice.from, slice.to]);"


@pytest.mark.slow
@pytest.mark.parametrize("first, entries, slices", [
    # The ring begins in the middle of a move: nothing is known of the time before its first entry.
    (5, [[399e6, 2, 0, "ask"], [400e6, 1, 0, "brought", 0, 5]], [["move-in", 399e6, None]]),
    (5, [[399e6, 1, 0, "release", 0, 5]], [["move-out", 399e6, 399e6]]),
    # It holds all that ever was.
    (0, [[100e6, 1, 0, "join", 0], [399e6, 1, 0, "grant"]], [["run", 399e6, None]]),
])
def test_the_timeline_draws_no_move_that_it_has_not_seen(port, browser, first, entries, slices):
    browser.driver.get(f"http://127.0.0.1:{port}/")
    until("the page is live", lambda: browser.text("#link") == "live")
    trace = {"first": first, "next": first + len(entries), "now_us": 400e6, "entries": entries}
    found = browser.driver.execute_script(
        KNOWN + "forget(); takeTrace(arguments[0]); return of(lanes.get(1));", trace)
    assert found == slices


@pytest.mark.slow
def test_the_timeline_forgets_what_it_knew_before_entries_that_it_has_missed(port, browser):
    browser.driver.get(f"http://127.0.0.1:{port}/")
    until("the page is live", lambda: browser.text("#link") == "live")
    seen = {"first": 0, "next": 2, "now_us": 300e6, "entries": [[299e6, 1, 0, "join", 0], [300e6, 1, 0, "bring"]]}
    missed = {"first": 9, "next": 10, "now_us": 400e6, "entries": [[399e6, 1, 0, "release", 0, 5]]}
    found = browser.driver.execute_script(
        KNOWN + "forget(); takeTrace(arguments[0]); takeTrace(arguments[1]); return of(lanes.get(1));", seen, missed)
    assert found == [["move-out", 399e6, 399e6]]


@pytest.mark.slow
def test_the_scheduler_goes_away_and_comes_back(node, port, browser):  # noqa: F811
    busy_node(node)
    browser.driver.get(f"http://127.0.0.1:{port}/")
    until("clients", lambda: len(browser.all("details")) == 3)
    node.kill()
    until("the banner", lambda: "does not answer" in browser.text("#banner"))
    assert browser.text("#link") == "away"
    assert len(browser.all("details")) == 3, "the last news stays"
    browser.look("phone", False)
    browser.picture("away")
    node.start(**node.settings)
    node.holder(name="newcomer")
    until("the new scheduler's client", lambda: [row.text.split("\n")[0] for row in browser.all("details")] == ["newcomer"])
    until("its lane", lambda: len(browser.all(".lane")) == 1)
    assert browser.text("#link") == "live" and not browser.one("#banner").is_displayed()


@pytest.mark.slow
def test_nobody_asks_while_nobody_looks(node, port, browser):  # noqa: F811
    browser.driver.get(f"http://127.0.0.1:{port}/")
    until("news", lambda: browser.text("#link") == "live")
    browser.script("void Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    browser.script("void document.dispatchEvent(new Event('visibilitychange'))")
    until("the last request", lambda: browser.script("!isAsking"))
    n_asked = "performance.getEntriesByType('resource').length"
    before = browser.script(n_asked)
    browser.driver.set_script_timeout(60)
    browser.driver.execute_async_script("setTimeout(arguments[0], 3000)")
    assert browser.script(n_asked) == before
    browser.script("void Object.defineProperty(document, 'hidden', {value: false, configurable: true})")
    browser.script("void document.dispatchEvent(new Event('visibilitychange'))")
    until("further requests", lambda: browser.script(n_asked) > before)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_it_fits(node, port, browser, size, is_dark):  # noqa: F811
    busy_node(node)
    browser.look(size, is_dark)
    browser.driver.get(f"http://127.0.0.1:{port}/")
    until("slices", lambda: browser.all('[data-lane="1"] canvas[data-slices]'))
    assert browser.script("document.documentElement.scrollWidth") <= SIZES[size][0], "nothing sticks out"
    ground = browser.script("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(15, 18, 22)") == is_dark
    browser.picture(f"{size}-{'dark' if is_dark else 'light'}")
    browser.script("void scrollTo(0, 9999)")
    browser.picture(f"{size}-{'dark' if is_dark else 'light'}-below")
