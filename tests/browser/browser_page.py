"""The status page as a person meets it, in a real headless Chromium (make test-browser)."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.box.box import PROJECT, SCRIPT, Box, wait_for
from tests.browser.chromium import Chromium
from tests.web.site import LIFE, Site, gpus, make_watch, probe, serve, start
from watchdog.observation import Answer, Operator, Unit
from watchdog.watch import Watch
from watchdog.web.stream import READERS

EVIL = """<script>document.title="owned"</script><img src=x onerror=alert(1)>"'`&lt;b&gt; \u202e \x1b[31m"""
TITLE = "document.querySelector('h1')?.textContent"

CONTRAST = """(() => {
  const rgb = (text) => {
    const c = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    c.fillStyle = text; c.fillRect(0, 0, 1, 1);
    return [...c.getImageData(0, 0, 1, 1).data];
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((x, i) => (x * a + below[i] * (255 - a)) / 255);
  const light = (c) => [0.2126, 0.7152, 0.0722].reduce((sum, k, i) => {
    const x = c[i] / 255;
    return sum + k * (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
  }, 0);
  const path = (e) => (e ? [...path(e.parentElement), e] : []);
  const bad = [];
  for (const e of document.body.querySelectorAll('*')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility() || e.closest('.away, .skip, noscript')) continue;
    const ground = path(e).reduce((below, x) => over(rgb(getComputedStyle(x).backgroundColor), below), [255, 255, 255]);
    const style = getComputedStyle(e);
    const ink = rgb(style.color);
    ink[3] *= path(e).reduce((all, x) => all * Number(getComputedStyle(x).opacity), 1);
    const [a, b] = [light(over(ink, ground)), light(ground)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) bad.push(`${e.textContent.slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return bad;
})()"""

SPILT = """[...document.querySelectorAll('main *')].filter((e) => {
  const style = getComputedStyle(e);
  const text = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  if (!text || !e.checkVisibility() || style.display === 'inline' || style.overflowX !== 'visible') return false;
  return e.scrollWidth > e.clientWidth + 1;
}).map((e) => e.textContent.slice(0, 60))"""
"""Texts that reach beyond their boxes, and so into others."""

FOCUS = """(() => {
  const e = document.activeElement;
  const style = getComputedStyle(e);
  return {
    name: e.getAttribute('aria-label') ?? e.textContent.trim().slice(0, 60),
    tag: e.tagName,
    seen: e === document.body || (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2),
  };
})()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as started:
        yield started


@pytest.fixture
def page(browser: Chromium) -> Iterator[Chromium]:
    """A page for one test, after which nothing may have gone wrong in it, nor been asked of anybody else."""
    browser.go("about:blank")
    browser.look(1280, 900)
    browser.problems.clear()
    browser.requests.clear()
    yield browser
    assert browser.problems == []
    assert [url for url in browser.requests if not url.startswith(("http://127.0.0.1:", "about:"))] == []


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    made = make_watch(tmp_path)
    serve(made)
    made.take(gpus(8, throttle=["thermal"], temp_c=91.0))
    probe(made, "chat", "timeout", limit_s=60.0, total_s=60.0, detail="no byte of an answer within 60 s")
    probe(made, "chat", "ok", status=200, total_s=0.4, answer=Answer(text="Paris", finish_reason="stop"))
    made.note(made.clock.now(), "would", "would restart (mode observe): Hung for 60 s", "SchedulerHung")
    folder = made.home / "incidents/2026-01-14T02-00-00Z-SchedulerHung"
    folder.mkdir(parents=True)
    (folder / "summary.md").write_text("# Scheduler hung\n")
    made.tick()
    return made


def failed(watch: Watch) -> None:
    watch.take(
        Unit(t=watch.clock.now(), inv=LIFE, load_state="loaded", active_state="failed", sub_state="failed", result="signal")
    )
    watch.tick()


def open_page(page: Chromium, site: Site, part: str = "") -> None:
    page.go(site.url + part)
    page.wait(f"!!{TITLE}")


def test_everything_is_there_at_a_glance(page: Chromium, watch: Watch) -> None:
    with Site([watch]) as site:
        open_page(page, site)
        text = page.text().replace("\u00a0", " ")
        for wanted in ("kimi", "sglang-kimi.service", "358.16 GB", "333.56 GiB", "GPU 7", "clock held down: thermal", "91 °C"):
            assert wanted in text
        for wanted in ("acts: restarts where a restart helps", "0 of 2 within 6 h spent", "would restart", "Download", "Summary"):
            assert wanted in text
        assert page.ask("document.title").startswith(page.ask(TITLE))


def test_a_change_is_shown_and_said_without_reload(page: Chromium, watch: Watch) -> None:
    with Site([watch]) as site:
        open_page(page, site)
        page.ask("window.same = true")
        site.call(lambda: failed(watch))
        page.wait("document.querySelector('#hero .body').classList.contains('ill')")
        said = page.wait("document.getElementById('said').textContent")
        assert said.startswith(f"kimi: {page.ask(TITLE)}")
        assert page.ask("document.getElementById('said').getAttribute('aria-live')") == "assertive"
        assert page.ask("window.same") is True
        assert "Unit active" in page.ask("document.querySelector('.chart').innerText")
        page.call("Page.reload")
        page.wait("document.querySelector('.chart')?.innerText.includes('Unit active')")


def test_what_a_model_says_is_text(page: Chromium, watch: Watch) -> None:
    probe(watch, "chat", "malformed", status=200, detail=EVIL, answer=Answer(text=EVIL, model=EVIL))
    watch.note(watch.clock.now(), "acted", EVIL, EVIL)
    with Site([watch]) as site:
        open_page(page, site)
        page.ask("document.querySelectorAll('details').forEach((d) => (d.open = true))")
        assert EVIL in page.ask("document.querySelector('#probes pre').textContent")
        assert EVIL in page.ask("document.querySelector('#diary .list').textContent")
        assert page.ask("document.querySelectorAll('main script, main img').length") == 0
        assert "owned" not in page.ask("document.title")


def test_the_policy_would_stop_what_got_in(browser: Chromium, watch: Watch) -> None:
    with Site([watch]) as site:
        open_page(browser, site)
        browser.problems.clear()
        browser.ask("(() => { try { document.body.innerHTML = '<b>x</b>' } catch (e) { window.stopped = String(e) } })()")
        assert "TrustedHTML" in browser.ask("window.stopped")
        browser.ask(
            "(() => { const i = document.createElement('img'); i.src = 'https://192.0.2.1/x.png'; document.body.append(i) })()"
        )

        def refused() -> bool:
            browser.ask("true")  # reads what the browser has told meanwhile
            return any("Content Security Policy" in p or "ContentSecurityPolicy" in p for p in browser.problems)

        wait_for(refused, 20, "the browser says that it refused the image")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("state", ["serving", "off", "starting", "paused"])
def test_contrast_is_enough(page: Chromium, watch: Watch, tmp_path: Path, state: str, *, dark: bool) -> None:
    if state == "off":
        failed(watch)
    elif state == "paused":
        watch.take(Operator(t=watch.clock.now(), action="pause"))
    elif state == "starting":
        watch = make_watch(tmp_path, "other")
        start(watch)
    with Site([watch]) as site:
        page.look(1280, 900, dark=dark)
        open_page(page, site)
        page.ask("document.querySelectorAll('details').forEach((d) => (d.open = true))")
        assert page.ask(CONTRAST) == []


@pytest.mark.parametrize("width", [320, 360, 768])
def test_it_fits_a_phone(page: Chromium, watch: Watch, tmp_path: Path, width: int) -> None:
    with Site([watch, make_watch(tmp_path, "a-server-with-" + "a-long-name-" * 4)]) as site:
        page.look(width, 740)
        open_page(page, site, "#s/kimi")
        page.ask("document.querySelectorAll('details').forEach((d) => (d.open = true))")
        assert page.ask("document.documentElement.scrollWidth") <= width
        assert page.ask(SPILT) == []
        small = "[...document.querySelectorAll('button, summary, .card, .links a')].filter((e) => e.offsetHeight < 24).length"
        assert page.ask(small) == 0


def test_it_can_be_walked_with_the_keyboard(page: Chromium, watch: Watch, tmp_path: Path) -> None:
    other = make_watch(tmp_path, "qwen")
    start(other)
    with Site([watch, other]) as site:
        open_page(page, site, "#s/kimi")
        walked = []
        for _ in range(40):
            page.key("Tab", 9)
            at = page.ask(FOCUS)
            if at["tag"] == "BODY":
                break
            walked.append(at["name"])
            assert at["seen"], f"no one sees that {at} has the focus"
        assert walked[0].startswith("Skip to")
        for wanted in (
            "kimi",
            "qwen",
            "1 h",
            "6 h",
            "24 h",
            "Summary of SchedulerHung",
            "Download SchedulerHung",
            "With what was seen",
        ):
            assert any(name.startswith(wanted) for name in walked), f"{wanted} is not reached; walked: {walked}"
        page.ask("[...document.querySelectorAll('.spans button')].at(-1).focus()")
        page.key("Enter", 13)
        page.wait(
            "document.activeElement.textContent === '24 h' && document.activeElement.getAttribute('aria-pressed') === 'true'"
        )
        page.ask("document.querySelectorAll('.card')[1].focus()")
        page.key("Enter", 13)
        page.wait("document.querySelector('.hero-name').textContent.startsWith('qwen')")


def test_a_screen_reader_finds_its_way(page: Chromium, watch: Watch) -> None:
    with Site([watch]) as site:
        open_page(page, site)
        nodes = page.call("Accessibility.getFullAXTree")["nodes"]
        found = [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n["ignored"]]
        roles = [role for role, _ in found]
        assert roles.count("main") == 1
        assert roles.count("banner") == 1
        assert roles.count("contentinfo") == 1
        assert "status" in roles
        headings = [name for role, name in found if role == "heading"]
        assert headings[0] == page.ask(TITLE)
        assert {"Work", "Memory", "GPUs", "Timeline", "Conditions", "Diary of decisions"} <= set(headings)
        assert [name for role, name in found if role in {"link", "button", "image", "progressbar"} and not name] == []


def test_a_daemon_that_is_gone_is_told_and_found_again(page: Chromium, watch: Watch) -> None:
    with Site([watch]) as site:
        open_page(page, site)
        page.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1)
        site.drop_readers()
        page.wait("!document.getElementById('stale').hidden", 15)
        assert "does not answer" in page.text()
        page.call("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1)
        page.wait("document.getElementById('stale').hidden", 20)
        page.problems.clear()


def test_one_page_too_many_asks_instead_and_listens_when_there_is_room(page: Chromium, watch: Watch) -> None:
    with Site([watch]) as site:
        port = int(site.url.split(":")[2].strip("/"))
        crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(READERS)]
        for s in crowd:
            s.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b" 200 " in s.recv(15)
        open_page(page, site)
        page.wait("document.getElementById('link').textContent === 'asked every few seconds'")
        site.call(lambda: failed(watch))
        page.wait("document.querySelector('#hero .body').classList.contains('ill')", 15)
        assert page.ask("document.getElementById('stale').hidden")
        for s in crowd:
            s.close()
        page.wait("document.getElementById('link').textContent === 'live'", 20)
    assert all("503" in problem for problem in page.problems), page.problems
    page.problems.clear()


STANDIN = f"""[Service]
ExecStart={PROJECT}/.venv/bin/python -m watchdog standin --port 30000 --tp-size 2 --enable-metrics --start-seconds 2 \
  --sglang-version 0.5.23 --fault-dir /tmp/faults --time-scale 0.2 --watchdog-timeout 7200
WorkingDirectory={PROJECT}
TimeoutStopSec=5
"""
DAEMON = f"""[Service]
Type=notify
ExecStart={PROJECT}/.venv/bin/python -m watchdog run --config /etc/wd.toml
WorkingDirectory={PROJECT}
StateDirectory=sglang-watchdog
RuntimeDirectory=sglang-watchdog
"""
SETTINGS = """[daemon]
mode = "observe"
tick_s = 0.5
[web]
enabled = true
[[servers]]
name = "kimi"
unit = "sglang-kimi.service"
[servers.judge]
hang_s = 20
[servers.probe]
chat_interval_s = 2
chat_limit_s = 4
health_interval_s = 5
"""


@pytest.mark.timeout(180)
def test_a_hang_ordered_at_the_stand_in_appears_without_reload(box: Box) -> None:
    """The whole chain: server, journal and probes, judge, page."""
    box.write("/etc/wd.toml", SETTINGS)
    box.unit("sglang-watchdog.service", DAEMON)
    box.unit("sglang-kimi.service", STANDIN)
    box.run("systemctl", "start", "sglang-kimi", "sglang-watchdog")
    with Chromium([SCRIPT, "exec", box.dir]) as page:
        page.go("http://127.0.0.1:9430/")
        page.wait(f"{TITLE} === 'Well'", 40)
        page.ask("window.same = true")
        order = f"cd {PROJECT} && .venv/bin/python -m watchdog standin fault hang where=loop --fault-dir /tmp/faults"
        box.run("sh", "-c", order)
        page.wait("document.querySelector('#hero .body').classList.contains('ill')", 60)
        assert "ung" in page.ask(TITLE)
        assert page.wait("document.querySelector('.coming dd').textContent").startswith("The watchdog would have restarted")
        page.wait("document.querySelector('#diary .remark.would')", 20)
        page.wait("document.querySelector('#incidents .bundle')", 20)
        box.write("/etc/wd.toml", "[daemon]\nmode = 'brave'\n")
        box.run("systemctl", "kill", "--kill-whom=main", "-s", "HUP", "sglang-watchdog")
        page.wait("document.querySelector('#daemon').textContent.includes('the last reload was refused')", 20)
        assert "brave" in page.ask("document.querySelector('#daemon .wrong').textContent")
        assert page.ask("window.same") is True
        assert page.problems == []
        assert [url for url in page.requests if not url.startswith("http://127.0.0.1:9430/")] == []
