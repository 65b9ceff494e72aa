"""Requests to the daemon: each wrong field is named, with what it takes; nothing that JSON can hold makes the answer fail."""

import asyncio
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from watchdog import config
from watchdog import requests as module
from watchdog.asking import REQUEST_LIMIT_S
from watchdog.clock import FakeClock
from watchdog.observation import Probe, Unit
from watchdog.requests import FIELDS, RequestError, Requests, checked
from watchdog.roster import Roster
from watchdog.watch import Watch

LIMIT_S = module.SAVE_LIMIT_S
YEAR_S = 365 * 86400


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({}, "command must be one of status, explain, pause, resume, operator, reload, probe, baseline, not null"),
        ({"command": ["status"]}, 'not ["status"]'),
        ({"command": "stop"}, 'not "stop"'),
        ({"command": "status", "server": ["a"]}, 'server must be the name of a watched server (text), not ["a"]'),
        ({"command": "status", "server": {"a": 1}}, 'not {"a": 1}'),
        ({"command": "status", "server": True}, "server must be the name of a watched server (text), not true"),
        (
            {"command": "pause", "seconds": True},
            "seconds must be a number of seconds, more than 0 and at most 31536000 (a year), not true",
        ),
        ({"command": "pause", "seconds": "1h"}, 'not "1h"'),
        ({"command": "pause", "seconds": 0}, "not 0"),
        ({"command": "pause", "seconds": math.nan}, "not NaN"),
        ({"command": "pause", "seconds": math.inf}, "not Infinity"),
        ({"command": "pause", "seconds": 10**400}, "not 1000"),
        ({"command": "pause", "reason": 7}, "reason must be text, not 7"),
        ({"command": "pause", "sever": "kimi"}, 'pause has no field "sever"; the fields that it takes: server, seconds, reason'),
        ({"command": "reload", "server": "kimi"}, 'reload has no field "server"; the fields that it takes: none'),
        ({"command": "operator"}, "action is missing: it must be one of acknowledge, repaired"),
        ({"command": "operator", "action": "fixed"}, 'action must be one of acknowledge, repaired, not "fixed"'),
        ({"command": "probe", "kind": None}, "kind is missing"),
        ({"command": "baseline", "action": [1]}, "action must be one of show, learn, accept, not [1]"),
    ],
)
def test_what_is_wrong_is_named_with_what_it_takes(request_: dict[str, Any], error: str) -> None:
    with pytest.raises(RequestError) as e:
        checked(request_)
    assert error in str(e.value)
    assert len(str(e.value)) < 250


@pytest.mark.parametrize("seconds", [1, 0.5, YEAR_S])
def test_a_right_request_goes_through(seconds: float) -> None:
    request = {"command": "pause", "server": "kimi", "seconds": seconds, "reason": "new weights"}
    assert checked({**request, "server": None}) == {k: v for k, v in request.items() if k != "server"}
    assert checked(request) == request


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8
)
NAMES = st.sampled_from(sorted({name for fields in FIELDS.values() for name in fields})) | st.text()
WORDS = st.sampled_from(["kimi", "acknowledge", "show", "learn", "health", "chat"])


class Endpoint:
    async def probe_now(self, kind: str) -> Probe:
        return Probe(t=1.0, probe=kind, outcome="ok")


class Responder:
    last_bundle = None
    trouble = None

    async def save(self) -> None:
        pass


class Learner:
    def accept(self, action: str, *, changed_too: bool) -> None:
        assert action in ("learn", "accept"), changed_too

    async def keep(self) -> None:
        pass

    def describe(self) -> dict[str, Any]:
        return {}


async def reload() -> str | None:
    return None


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> Requests:
    clock = FakeClock()
    server = config.Server(name="kimi", unit="kimi.service")
    home: Path = tmp_path_factory.mktemp("state")
    watch = Watch(server, config.Config(servers=[server]), home, clock, lambda *_: None)
    watch.take(Unit(t=0.0, inv="a" * 32, load_state="loaded", active_state="active", sub_state="running", since=0.0))
    parts: Any = SimpleNamespace(watch=watch, runs=[], endpoint=Endpoint(), responder=Responder(), learner=Learner())
    roster = Roster(clock)
    roster.servers["kimi"] = parts
    return Requests(roster, reload)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    command=st.sampled_from(sorted(FIELDS)) | VALUES,
    fields=st.dictionaries(NAMES, VALUES | WORDS | st.floats(min_value=1, max_value=YEAR_S), max_size=4),
)
async def test_nothing_that_json_can_hold_makes_the_answer_fail(requests: Requests, command: Any, fields: dict[str, Any]) -> None:
    """Either an answer, or a sentence that names a field; never an exception, and always JSON."""
    request = json.loads(json.dumps({**fields, "command": command}))

    answer = await requests.answer(request)

    json.dumps(answer)
    if "error" in answer:
        known = ("command", "server", *(name for each in FIELDS.values() for name in each))
        assert (
            answer["error"].split()[0] in known or " has no field " in answer["error"] or answer["error"].startswith("no server")
        )
    else:
        assert command in FIELDS


class Deaf(Responder):
    """Its disk answers never, or not before it is told to."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def save(self) -> None:
        self.asked.set()
        await asyncio.Event().wait()


def several(tmp_path: Path, *responders: Responder) -> Requests:
    clock = FakeClock()
    roster = Roster(clock)
    for name, responder in zip("abc", responders, strict=False):
        server = config.Server(name=name, unit=f"{name}.service")
        watch = Watch(server, config.Config(servers=[server]), tmp_path / name, clock, lambda *_: None)
        parts: Any = SimpleNamespace(watch=watch, responder=responder)
        roster.servers[name] = parts
    return Requests(roster, reload)


async def test_a_pause_of_several_holds_for_all_before_any_disk_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = [Deaf(), Responder(), Deaf()]
    requests = several(tmp_path, *deaf)
    servers = requests._roster.servers
    monkeypatch.setattr(module, "SAVE_LIMIT_S", 0.05)

    asked = asyncio.create_task(requests.answer({"command": "pause"}))
    await deaf[0].asked.wait()  # type: ignore[attr-defined]

    assert [s.watch.engine.facts.paused(0.0) for s in servers.values()] == [True, True, True]
    answer = await asked
    assert answer["servers"] == ["a", "b", "c"]
    assert answer["warning"].endswith("(a: the disk does not answer; c: the disk does not answer)")
    assert LIMIT_S < REQUEST_LIMIT_S - 1, "the answer comes before who asks has given up"


async def test_a_pause_that_one_server_does_not_take_is_kept_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = several(tmp_path, Responder(), Responder())
    servers = requests._roster.servers
    monkeypatch.setattr(servers["a"].watch, "take", lambda _: None)

    answer = await requests.answer({"command": "pause"})

    assert answer == {"error": "pause did not take effect for a: look at the daemon's journal"}
    assert servers["b"].watch.engine.facts.paused(0.0)
