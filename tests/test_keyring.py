"""A key that the program knows is in nothing that leaves it, wherever in an incident the server prints it."""

import asyncio
import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.incidents import cases_end
from tests.incidents.case import CASES
from tests.web.site import source
from watchdog import config, keyring
from watchdog.act import redact
from watchdog.act.collectors import journal_lines, pack
from watchdog.act.scene import Scene
from watchdog.act.summary import summary
from watchdog.clean import without_secrets
from watchdog.clock import FakeClock
from watchdog.figures import figures
from watchdog.judge.explain import explain
from watchdog.judge.verdict import Intent
from watchdog.known_keys import learn
from watchdog.log import plain
from watchdog.observation import (
    STRUCK,
    Acted,
    Answer,
    Cgroup,
    Deps,
    Kernel,
    Log,
    Metrics,
    Observation,
    Operator,
    Probe,
    Proc,
    Procs,
    Self,
    Server,
    Unit,
    encode,
)
from watchdog.view import server_view
from watchdog.watch import Watch
from watchdog.web.metrics import render
from watchdog.web.page import Page
from watchdog.web.timeline import Timeline

CASE = CASES[cases_end.crash_that_nobody_repairs.__name__.replace("_", "-")]
PLAYED = CASE.sim("plain", 7).out
KEYS = st.from_regex(r"[!-~]{4}[A-Za-z0-9][!-~]{3,30}", fullmatch=True).map(lambda word: f"qZ7{word}")


def spoilt(x: Observation, key: str, place: int) -> Observation:
    """The observation with the key somewhere in its text."""
    if isinstance(x, Log):
        at = place % (len(x.message) + 1)
        return msgspec.structs.replace(x, message=f"{x.message[:at]}{key}{x.message[at:]}")
    if isinstance(x, Probe) and x.outcome not in ("ok", "skipped"):
        return msgspec.structs.replace(x, body=f'{{"said": {json.dumps(key)}}}', detail=f"for {key}: no")
    if isinstance(x, Server):
        return msgspec.structs.replace(x, args={**x.args, "chat_template": f"/t/{key}.jinja"})
    return x


def told(watch: Watch, intents: list[tuple[float, Intent]], timeline: Timeline) -> dict[str, str]:
    """All that the program shows, writes and serves of a server."""
    clock, now = watch.clock, watch.clock.now()
    lines = watch.recorder.lines()
    out = {
        "view": json.dumps(server_view(watch)),
        "explain": json.dumps(explain(watch.engine, now)),
        "status": watch.sentence(),
        "state": msgspec.json.encode(watch.snapshot_state()).decode(),
        "record": b"\n".join(lines).decode(),
        "bundle's record": gzip.decompress(pack(lines)).decode(),
        "metrics": render(figures(clock, [watch], [], None, 0.0)).decode(),
        "timeline": json.dumps(timeline.view(watch)),
        "page": json.dumps(asyncio.run(Page(source([watch])).status()), default=str),
    }
    for t, intent in intents:
        scene = Scene(
            server=watch.server, intent=intent, clock=clock, t=t, latest=watch.latest,
            conditions=list(watch.engine.conditions.values()), record=lines,
        )  # fmt: skip
        out[f"summary {intent.reason}"] = summary(scene, {}, {})
        out[f"intent {intent.reason}"] = repr(intent)
    return out


@settings(max_examples=6)
@given(key=KEYS, places=st.lists(st.integers(0, 10_000), min_size=5, max_size=5))
def test_a_known_key_is_in_nothing_that_is_told(key: str, places: list[int]) -> None:
    keyring.forget()
    keyring.remember(key)
    clock, intents, timeline = FakeClock(), [], Timeline()
    whole = config.Config(servers=[config.Server(name="kimi", unit="kimi.service")])
    with TemporaryDirectory() as home:
        watch = Watch(whole.servers[0], whole, Path(home), clock, lambda _w, t, intent: intents.append((t, intent)))
        for n, x in enumerate(PLAYED):
            clock.advance(max(0.0, x.t - clock.now()))
            # The lines around the fault each have it, so that it stands in whatever is quoted.
            near = isinstance(x, Log) and x.priority is not None
            watch.take(spoilt(x, key, places[n % len(places)]) if near or n % 3 == 0 else x)
            timeline.look(watch)
    assert any(intent.action == "restart" for _, intent in intents)
    forms = {key, json.dumps(key)[1:-1]}
    assert [place for place, text in told(watch, intents, timeline).items() if any(form in text for form in forms)] == []


HIDDEN = "HiddenZZvalue998877"


@pytest.mark.parametrize(
    "form",
    [f"store http://s/x?sig={HIDDEN} Authorization: Token {HIDDEN}", f"'--api-key', '{HIDDEN}'", f"cookie: session={HIDDEN}"],
)
def test_a_key_that_nobody_knows_is_in_nothing_that_is_told_either(form: str) -> None:
    keyring.forget()
    clock, intents, timeline = FakeClock(), [], Timeline()
    whole = config.Config(servers=[config.Server(name="kimi", unit="kimi.service")])
    with TemporaryDirectory() as home:
        watch = Watch(whole.servers[0], whole, Path(home), clock, lambda _w, t, intent: intents.append((t, intent)))
        for x in PLAYED:
            clock.advance(max(0.0, x.t - clock.now()))
            if isinstance(x, Log) and x.priority is not None:
                watch.take(msgspec.structs.replace(x, message=f"{x.message} {form}"))
            else:
                watch.take(spoilt(x, form, 0) if not isinstance(x, Log) else x)
            timeline.look(watch)
        watch.take(Operator(t=clock.now(), action="pause", reason=form))
    assert intents
    assert [place for place, text in told(watch, intents, timeline).items() if HIDDEN in text] == []


FACTS = [
    Unit(t=1.0, inv="a" * 32, load_state="loaded", active_state="active", sub_state="running", main_pid=123456),
    Cgroup(t=1.0, memory_current=81234567890),
    Procs(t=1.0, procs=[Proc(pid=1234567, name="sglang::scheduler_TP0", state="S", rss=1234567168)]),
    Metrics(t=1.0, ok=True, values={"num_running_reqs": 123456.0}),
    Probe(t=1.0, probe="chat", outcome="ok", answer=Answer(text="Paris", finish_reason="length", prompt_tokens=1234567)),
    Probe(t=1.0, probe="health", outcome="timeout", detail="connected, but no answer within 5 s"),
    Server(t=1.0, version="0.5.9", args={"model_path": "/models/sglang/kimi", "max_total_tokens": 1234567}),
    Operator(t=1.0, action="repaired", reason="restart of the GPU"),
    Acted(t=1.0, action="restart", result="refused", reason="SchedulerHung"),
    Self(t=1.0, control_probe="failed", journal_ok=True),
    Log(t=1.0, message="The server is fired up and ready to roll! sglang is active, #token: 1234567", ident="sglang"),
]
WORDS = ["123456", "1234567", "active", "running", "sglang", "length", "repaired", "restart", "refused", "failed", "timeout"]


@pytest.mark.parametrize("key", WORDS)
def test_a_key_that_is_a_plain_word_or_number_destroys_no_fact(key: str) -> None:
    keyring.forget()
    keyring.remember(key)
    assert [without_secrets(x) for x in FACTS] == FACTS
    assert redact.secrets(f"--api-key {key} --tp 8") == f"--api-key {STRUCK} --tp 8", "where it is named it is struck"


@pytest.mark.parametrize("key", ["not-found2", "SchedulerHung-1", "kimi-k2.service", "life-of-0001"])
def test_no_key_is_struck_out_of_a_state_a_name_or_a_number(key: str) -> None:
    keyring.forget()
    keyring.remember(key)
    facts = [
        Unit(t=1.0, inv=key, load_state=key),
        Deps(t=1.0, units={key: key}),
        Acted(t=1.0, action=key, result=key, reason=key),
        Operator(t=1.0, action=key),
        Probe(t=1.0, probe=key, outcome="ok", why=key, request_id=key),
    ]
    assert [without_secrets(x) for x in facts] == facts


def test_a_known_key_is_struck_out_of_each_free_text() -> None:
    keyring.forget()
    keyring.remember(key := 'sk-"own"-77')
    said, answer = f"it is {key}, you know", Answer(text=key, reasoning=key, model=key, prompt_tokens=3)
    for x in (
        Probe(t=1.0, probe="prefix", outcome="ok", body=json.dumps(said), answer=answer, earlier=answer, fresh=answer),
        Probe(t=1.0, probe="models", outcome="ok", served=[said], adapters=[said]),
        Metrics(t=1.0, ok=False, error=said),
        Procs(t=1.0, procs=[Proc(pid=7, name=said)]),
        Server(t=1.0, args={"lora_paths": [{"name": said}]}, env={"A": said}, memory_usage={"note": said}),
        Self(t=1.0, fallen=[said]),
        Operator(t=1.0, action="pause", reason=said),
        Acted(t=1.0, action="restart", result="failed", detail=said),
        Log(t=1.0, message=said),
        Kernel(t=1.0, message=json.dumps(said)),
    ):
        clean = encode(without_secrets(x)).decode()
        assert (STRUCK in clean, "own" in clean) == (True, False), clean


def test_the_bundle_and_our_own_journal_strike_it_too() -> None:
    keyring.remember("MARKER-sk-kimi-77")
    line = "RuntimeError: bad request from MARKER-sk-kimi-77"
    entry = json.dumps({"MESSAGE": line, "__REALTIME_TIMESTAMP": "1768356000000000", "_PID": "1"})
    assert f"bad request from {STRUCK}" in journal_lines(entry.encode())[0]
    assert redact.value({"cmdline": ["--note", "MARKER-sk-kimi-77"]}) == {"cmdline": ["--note", STRUCK]}
    assert plain(line) == f"RuntimeError: bad request from {STRUCK}"


def test_the_keys_of_the_configuration_are_known_before_anything_is_asked(tmp_path: Path) -> None:
    texts = {
        "key": "sk-of-the-api\n",
        "headers": "Authorization: Bearer tok-of-hook\nX-Tenant: acme-corp\n",
        "urls": "ntfy://tok-of-ntfy/x\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    learn(
        config.Config(
            servers=[config.Server(name="k", unit="k.service", api_key_file=str(tmp_path / "key"))],
            alert=config.Alerting(
                webhook_headers_file=str(tmp_path / "headers"),
                apprise_urls_file=str(tmp_path / "urls"),
                alertmanager_headers_file="/none",
            ),
        )
    )
    assert keyring.struck("sk-of-the-api tok-of-hook ntfy://tok-of-ntfy/x acme-corp") == f"{STRUCK} {STRUCK} {STRUCK} acme-corp"


def test_a_key_costs_a_line_next_to_nothing() -> None:
    line = Log(
        t=1.0,
        message="[2026-01-14 02:00:00 TP0] Decode batch, #running-req: 3, #token: 1234, token usage: 0.12, gen throughput: 81.2",
    )

    def took(what: Callable[[], object]) -> float:
        begun = time.process_time()
        for _ in range(2000):
            what()
        return time.process_time() - begun

    keyring.remember("sk-one-of-the-keys")
    keyring.remember("sk-another-of-them")
    # The looks at the keys, beside all else that is looked for in a line.
    assert min(took(lambda: keyring.struck(line.message)) for _ in range(9)) < 0.1 * min(
        took(lambda: without_secrets(line)) for _ in range(9)
    )


@pytest.mark.parametrize("n", [keyring.MOST + 6])
def test_renewed_keys_do_not_pile_up(n: int) -> None:
    keys: list[Any] = [f"sk-{i:06}" for i in range(n)]
    for key in keys:
        keyring.remember(key)
    assert keyring.struck(keys[0]) == keys[0]
    assert keyring.struck(keys[-1]) == STRUCK


@pytest.mark.parametrize(
    "text", ["api_key={}", "--api-key {}", "Authorization: Bearer {}", "https://{}@host/", '"api_key": "{}"', "bad {}"]
)
def test_what_is_struck_again_stays_as_it_is(text: str) -> None:
    """By its name, and since it is known: there is one mark, and it is taken for no secret."""
    keyring.remember("MARKER-sk-kimi-77")
    once = redact.secrets(text.format("MARKER-sk-kimi-77"))
    assert redact.secrets(once) == once
    assert (once.count(STRUCK), "MARKER" in once) == (1, False)
